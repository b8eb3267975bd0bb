"""A replica as the simulation sees it: the time of its steps, its places, and how its scheduler admits."""

import math
from dataclasses import dataclass, field
from typing import Protocol

from app.domain.batching import Batching
from app.domain.concurrency import sequence_limit
from app.domain.memory_fit import Fit
from app.domain.performance import Performance
from app.domain.places import USUAL_PLACES
from app.domain.prefix_cache import PrefixCache, block_unit, pool_shares
from app.domain.simulation_scheduler import (
    AS_USUAL,
    WHOLE_PROMPTS_TOKENS,
    Reservation,
    SchedulerSettings,
    check_settings,
    reservation_of,
)
from app.domain.simulation_span import Span
from app.domain.step import StepTimer

KNOT_TOKENS = 16
"""Contexts at which attention is computed; in between it is a line."""
NATURAL_RESIDUAL_STEPS = 0.5
"""Of the steps in flight that a request waits for, those that it waits for in a simulation anyway: half of the one that runs."""


class StepTimes(Protocol):
    """The time of a step."""

    def seconds(self, num_sequences: int, context_tokens: float, prompt_tokens: float, prompt_context_tokens: float) -> float:
        """Step with decoding sequences of so many tokens together, and prompt tokens at a mean context [s]."""


@dataclass(frozen=True)
class ConstantSteps:
    """Steps that all take the same time, as queueing theory has them."""

    step_s: float

    def seconds(self, num_sequences: int, context_tokens: float, prompt_tokens: float, prompt_context_tokens: float) -> float:
        """Always `step_s`."""
        return self.step_s


@dataclass(frozen=True)
class TimerSteps:
    """The steps of `/performance`: `StepTimer.total_s` at the contexts of the moment, drafts included.

    t = total(B, p) without attention + max(B x cache(c), positions x scores(c)) + [p > 0] max(cache(c_p), p x scores(c_p)), c the mean
    context of the decoding sequences. Layers with windows count every sequence with the mean context, as `/performance` does.
    """

    performance: Performance
    _plain: dict[int, float] = field(default_factory=dict, repr=False, compare=False)
    _knots: dict[int, tuple[float, float, float, float]] = field(default_factory=dict, repr=False, compare=False)

    def _knot(self, place: int) -> tuple[float, float, float, float]:
        found = self._knots.get(place)
        if found is None:
            tokens = float(place * KNOT_TOKENS)
            timer: StepTimer = self.performance.steps.at_contexts(self.performance.work.contexts(tokens, tokens))
            positions = timer.positions_per_sequence
            decode = timer.kv_s_per_sequence, positions * timer.attention_s_per_position
            found = self._knots[place] = (*decode, timer.prompt_kv_s, timer.attention_s_per_prompt_token)
        return found

    def seconds(self, num_sequences: int, context_tokens: float, prompt_tokens: float, prompt_context_tokens: float) -> float:
        """See the class."""
        if prompt_tokens:
            total = self.performance.steps.total_s(num_sequences, prompt_tokens) + self._draft_s(num_sequences)
            place = int(prompt_context_tokens) // KNOT_TOKENS
            low, high, part = self._knot(place), self._knot(place + 1), prompt_context_tokens / KNOT_TOKENS - place
            cache_s, scores_s = low[2] + part * (high[2] - low[2]), low[3] + part * (high[3] - low[3])
            total += max(cache_s, prompt_tokens * scores_s)
        else:
            found = self._plain.get(num_sequences)
            if found is None:
                found = self.performance.steps.total_s(num_sequences, 0) + self._draft_s(num_sequences)
                self._plain[num_sequences] = found
            total = found
        if num_sequences:
            mean = context_tokens / num_sequences
            place = int(mean) // KNOT_TOKENS
            low, high, part = self._knot(place), self._knot(place + 1), mean / KNOT_TOKENS - place
            total += num_sequences * max(low[0] + part * (high[0] - low[0]), low[1] + part * (high[1] - low[1]))
        return total

    def _draft_s(self, num_sequences: int) -> float:
        return 0.0 if self.performance.deployment.speculative is None else self.performance.draft_s(num_sequences)


@dataclass(frozen=True)
class KvRoom:
    """The KV cache of a replica in units of its pool: blocks, or bytes."""

    capacity: float = math.inf
    per_sequence: float = 0.0
    """Held by every sequence: windows, states, and the part of the last block that is not used yet."""
    per_token: float = 0.0
    """Held for every token of a sequence."""

    def of(self, tokens: float) -> float:
        """per_sequence + per_token x tokens."""
        return self.per_sequence + self.per_token * tokens


@dataclass(frozen=True)
class ReplicaModel:
    """One replica: its steps and the limits of its scheduler."""

    times: StepTimes
    token_budget: float = math.inf
    """Tokens of one step, those of decoding sequences included; infinite where prompts are not cut [tokens]."""
    room: KvRoom = KvRoom()
    max_num_seqs: int = USUAL_PLACES
    """Sequences that run at once in all groups."""
    groups: int = 1
    """Pipeline stages that work on batches of their own, each with its share of the room."""
    positions_per_sequence: int = 1
    """Tokens that a step computes per decoding sequence."""
    tokens_per_step: float = 1.0
    """Output tokens of a sequence and step; with speculation the mean."""
    batching: Batching = "continuous"
    batch_size: int = 1
    """Requests of a static batch, and of a dynamic one at most."""
    prefill_first: bool = False
    """Prompts run in steps of their own while decoding waits."""
    reservation: Reservation = "prompt"
    """Room that a place takes."""
    conservativeness_ratio: float = 1.0
    """Room kept for outputs by estimate / the usual."""
    prompt_step_tokens: float = math.inf
    """Most tokens of one prompt in a step [tokens]."""
    splits_prompts: bool = True
    """A prompt that is longer than what a step has left is computed in parts; else it waits for a step with room for all of it."""
    poll_interval_steps: int = 1
    batch_wait_steps: int = 0
    request_s: float = 0.0
    """Outside the engine's steps, per request [s]."""
    request_concurrency_s: float = 0.0
    """The same per request in the replica [s]."""
    input_token_s: float = 0.0
    """The same per prompt token [s]."""
    residual_steps: float = 0.0
    """Steps until a first token is out, beside those that compute it."""
    max_model_len_tokens: int | None = None
    """Longer requests are rejected."""

    def decode_span(self, now: float, num_sequences: int, context_tokens: float, num_steps: int) -> Span:
        """Steps that decode the same sequences: from the first to the last their contexts, and times, grow evenly."""
        first_s, growth_s = self.times.seconds(num_sequences, context_tokens, 0, 0), 0.0
        if num_steps > 1:
            last_tokens = context_tokens + self.tokens_per_step * num_sequences * (num_steps - 1)
            growth_s = (self.times.seconds(num_sequences, last_tokens, 0, 0) - first_s) / (num_steps - 1)
        return Span(now, first_s, growth_s, num_steps)


def kv_room(found: Fit, num_ranks: int, input_tokens: float, output_tokens: float) -> KvRoom:
    """The line through what a request holds after its prompt and at its end, on all engine ranks together.

    per_token = (held(input + output) - held(input)) / output, in whole blocks, and half a block that is not full. Exact for layers that
    cache the whole length; with windows it holds for lengths like these.
    """
    nothing = PrefixCache()
    unit = block_unit(found)
    first = max(1, math.ceil(input_tokens / unit)) * unit
    last = first + max(1, math.ceil(output_tokens / unit)) * unit
    one, other = pool_shares(found, first, nothing), pool_shares(found, last, nothing)
    if one is None or other is None:
        return KvRoom()
    per_token = (other.request - one.request) / (last - first)
    return KvRoom(one.pool * num_ranks, max(0.0, one.request - per_token * first) + per_token * (unit - 1) / 2, per_token)


def replica_of(performance: Performance, batching: Batching = "continuous", settings: SchedulerSettings = AS_USUAL) -> ReplicaModel:
    """The replica whose steady state `Performance.serving` computes, with the scheduler of its engine.

    Raises InvalidInput for settings of another engine.
    """
    check_settings(settings, performance.deployment.engine)
    serving, deployment, constants = performance.serving, performance.deployment, performance.constants
    found, lengths = performance.found, performance.lengths
    limit = sequence_limit(found, deployment)
    room = kv_room(found, deployment.dp, lengths.input_tokens, lengths.output_tokens)
    usual = USUAL_PLACES if math.isinf(room.capacity) else 10**9
    return ReplicaModel(
        times=TimerSteps(performance),
        token_budget=serving.token_budget if deployment.chunked_prefill else _whole_prompts_tokens(performance),
        room=room,
        max_num_seqs=usual if limit is None else limit * deployment.dp,
        groups=serving.groups,
        positions_per_sequence=performance.work.positions_per_sequence,
        tokens_per_step=serving.tokens_per_step,
        batching=batching,
        batch_size=max(1, int(performance.places)),
        prefill_first=(serving.prefill_first and not settings.mixed_chunk) or batching != "continuous",
        reservation="output" if batching != "continuous" else reservation_of(settings, deployment.engine),
        conservativeness_ratio=settings.conservativeness_ratio,
        prompt_step_tokens=float(settings.long_prefill_threshold_tokens or math.inf),
        splits_prompts=deployment.chunked_prefill,
        poll_interval_steps=serving.poll_interval_steps,
        batch_wait_steps=serving.batch_wait_steps,
        request_s=constants.request_s,
        request_concurrency_s=constants.request_concurrency_s,
        input_token_s=constants.input_token_s,
        residual_steps=max(0.0, constants.residual_iterations - NATURAL_RESIDUAL_STEPS),
        max_model_len_tokens=found.max_model_len_tokens,
    )


def _whole_prompts_tokens(performance: Performance) -> float:
    """Tokens of a step where prompts are not cut: what the engine was told, or its default, which holds the longest prompt [tokens]."""
    deployment, settings = performance.deployment, performance.found.settings
    if deployment.engine == "sglang":
        tokens: float | None = WHOLE_PROMPTS_TOKENS
    else:
        tokens = deployment.max_num_batched_tokens or (settings and settings.max_num_batched_tokens)
    return math.inf if tokens is None else float(tokens * deployment.dp)
