"""Steps and waiting taken apart: what each consists of and what binds."""

from app.domain.load_state import LoadState
from app.domain.performance import Performance
from app.domain.serving import LEAST_RUNNING
from app.domain.step import IterationTime, Part
from app.domain.value import Value


class StepParts(Value):
    """One step and what it consists of. Reading and computing overlap, so the total is less than the sum of the parts."""

    compute_s: float
    """Arithmetic [s]."""
    memory_s: float
    """Reading weights and cache [s]."""
    communication_s: float
    """Between accelerators [s]."""
    overhead_s: float
    """Launches, scheduler, sampler, drafts [s]."""
    total_s: float
    """The step, or all steps of the prompt [s]."""
    binds: Part
    """The largest part."""
    mfu_ratio: float
    """Time that the arithmetic takes at the peaks of the data sheet / total."""
    mbu_ratio: float
    """Time that the reading takes at the bandwidth of the data sheet / total."""


class WaitingParts(Value):
    """What the time to the first token consists of; the parts add up to it [s]."""

    server_s: float
    """Outside the engine's steps: HTTP, tokenisation, scheduling [s]."""
    residual_s: float
    """Steps in flight when the request arrives [s]."""
    prefill_s: float
    """Steps that compute the prompt [s]."""
    prompts_ahead_s: float
    """Behind prompts that arrived before [s]."""
    start_s: float
    """Behind the burst with which a run of some waves of requests starts; 0 in the steady state [s]."""
    admission_s: float
    """Until a place in the cache is free [s]."""


def prefill_parts(performance: Performance) -> StepParts:
    """All steps of one mean prompt with nothing beside it."""
    serving = performance.serving
    steps = serving.prefill_steps
    tokens = serving.computed_tokens / steps
    return _parts(serving.step(0, tokens), _ideal(performance, 0, tokens), steps)


def decode_parts(performance: Performance, state: LoadState) -> StepParts:
    """A step without prompt tokens."""
    return _parts(state.decode, _ideal(performance, state.sequences, 0))


def mixed_parts(performance: Performance, state: LoadState) -> StepParts:
    """A step with prompt tokens; a decode step and one of prompts together where the engine runs prompts first."""
    tokens = state.prompt_tokens_per_step
    if not performance.serving.prefill_first:
        return _parts(state.mixed, _ideal(performance, state.sequences, tokens))
    both = zip(_ideal(performance, state.sequences, 0), _ideal(performance, 0, tokens), strict=True)
    return _parts(state.mixed, IterationTime(*(one + other for one, other in both)))


def mean_parts(performance: Performance, state: LoadState) -> StepParts:
    """The mean step between two tokens, and its utilisation over time."""
    decode, often = _ideal(performance, state.sequences, 0), state.prompt_step_ratio
    if not often:
        return _parts(state.decode, decode)
    if performance.serving.prefill_first:
        more = _ideal(performance, 0, state.prompt_tokens_per_step)
        mean = (one + often * other for one, other in zip(decode, more, strict=True))
    else:
        mixed = _ideal(performance, state.sequences, state.prompt_tokens_per_step)
        mean = (one + often * (other - one) for one, other in zip(decode, mixed, strict=True))
    return _parts(state.mean_step, IterationTime(*mean))


def _ideal(performance: Performance, running: float, tokens: float) -> IterationTime:
    """The step at the figures of the data sheet."""
    share = running / performance.work.pp
    return performance.roofline.iteration(share if tokens else max(LEAST_RUNNING, share), tokens)


def _parts(step: IterationTime, ideal: IterationTime, steps: int = 1) -> StepParts:
    return StepParts(
        compute_s=steps * step.compute_s,
        memory_s=steps * step.memory_s,
        communication_s=steps * step.communication_s,
        overhead_s=steps * step.overhead_s,
        total_s=steps * step.total_s,
        binds=step.binds,
        mfu_ratio=ideal.compute_s / step.total_s,
        mbu_ratio=ideal.memory_s / step.total_s,
    )
