"""Steps and waiting taken apart: what each consists of and what binds."""

from app.domain.performance import Performance
from app.domain.serving import LoadState
from app.domain.step import IterationTime, Part
from app.domain.value import Value


class StepParts(Value):
    """One step and what it consists of. Reading and computing overlap: total = (memory^3 + compute^3)^(1/3) + communication + overhead."""

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
    """Behind the burst with which a run of num_requests starts; 0 in the steady state [s]."""
    admission_s: float
    """Until a place in the cache is free [s]."""


def prefill_parts(performance: Performance) -> StepParts:
    """All steps of one mean prompt with nothing beside it."""
    serving = performance.serving
    steps = serving.prefill_steps
    tokens = serving.computed_tokens / steps
    return _parts(performance, serving.step(0, tokens), 0, tokens, steps)


def decode_parts(performance: Performance, state: LoadState) -> StepParts:
    """A step without prompt tokens."""
    return _parts(performance, state.decode, state.running, 0)


def mixed_parts(performance: Performance, state: LoadState) -> StepParts:
    """A step with prompt tokens."""
    return _parts(performance, state.mixed, state.running, state.prompt_tokens_per_step)


def mean_parts(state: LoadState, decode: StepParts, mixed: StepParts | None) -> StepParts:
    """The mean step, and its utilisation weighted by time."""
    step, often = state.mean_step, state.prompt_step_ratio

    def used(name: str) -> float:
        other = 0.0 if mixed is None else often * getattr(mixed, name) * mixed.total_s
        return float((1 - often) * getattr(decode, name) * decode.total_s + other) / step.total_s

    return StepParts(**step._asdict(), binds=step.binds, mfu_ratio=used("mfu_ratio"), mbu_ratio=used("mbu_ratio"))


def _parts(performance: Performance, step: IterationTime, running: float, tokens: float, steps: int = 1) -> StepParts:
    ideal = performance.roofline.iteration(running / performance.work.pp if tokens else max(1.0, running / performance.work.pp), tokens)
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
