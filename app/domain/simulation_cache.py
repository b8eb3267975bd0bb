"""The KV cache of one engine in a simulation: what running requests hold, beginnings that are held once, and room kept for outputs."""

import math
from collections.abc import Iterable

from app.domain.simulation_prefix import PrefixStore
from app.domain.simulation_replica import ReplicaModel
from app.domain.simulation_requests import Request, SharedPrefix
from app.domain.simulation_scheduler import CLIPPED_TOKENS, OutputEstimate


class KvCache:
    """Room in the units of the pool."""

    def __init__(self, model: ReplicaModel, prefix: SharedPrefix | None) -> None:
        self.room, self.reservation, self.tokens_per_step = model.room, model.reservation, model.tokens_per_step
        self.capacity = model.room.capacity / model.groups
        self.prefixes = PrefixStore(prefix, model.room.per_token)
        self.growth = 0.0 if model.reservation == "output" else model.room.per_token * model.tokens_per_step
        """Room that a decoding sequence takes up in a step."""
        self.held = 0.0
        """By running requests, without beginnings that are held once."""
        self.estimate = OutputEstimate(model.conservativeness_ratio)

    @property
    def used(self) -> float:
        """Room in use."""
        return self.held + self.prefixes.pinned

    def holds(self, request: Request) -> bool:
        """Whether an empty cache holds the request to its end."""
        return self.room.of(request.input_tokens + request.output_tokens) + self.prefixes.beyond(request) <= self.capacity

    def need(self, request: Request) -> float:
        """Room that it takes up with its place: its tokens so far, all of them where the output is reserved; a shared beginning once."""
        tokens = request.input_tokens + request.generated_tokens
        if self.reservation == "output":
            tokens = float(request.input_tokens + request.output_tokens)
        return self.room.of(tokens - self.prefixes.found_once(request))

    def admits(self, request: Request, running: Iterable[Request], step_index: int, next_growth: float) -> bool:
        """Whether there is room for a request beside those that run, which grow by `next_growth` in the coming step."""
        wanted = self.held + self.prefixes.pinned_with(request) + self.need(request) + next_growth
        if wanted > self.capacity or self.reservation != "estimate" or math.isinf(self.capacity):
            return wanted <= self.capacity
        return not self.held or wanted + self.room.per_token * self._expected_tokens(request, running, step_index) <= self.capacity

    def _expected_tokens(self, request: Request, running: Iterable[Request], step_index: int) -> float:
        """Its output, those of prompts that are computed, and the estimated share of what is left of the others [tokens]."""
        tokens = min(request.output_tokens - request.generated_tokens, CLIPPED_TOKENS)
        decoding = 0.0
        for one in running:
            left = one.output_tokens - one.generated_tokens
            if one.left_tokens > 0:
                tokens += min(left, CLIPPED_TOKENS)
            else:
                decoding += min(max(0.0, left - (step_index - one.decode_start) * self.tokens_per_step), CLIPPED_TOKENS)
        return tokens + self.estimate.ratio * decoding

    def take(self, request: Request) -> None:
        """The request runs."""
        request.held = self.need(request)
        self.prefixes.enter(request)
        self.held += request.held
        self.prefixes.shrink(self.capacity - self.held)

    def grow(self, num_steps: int, num_sequences: int) -> None:
        """So many steps of so many decoding sequences."""
        self.held += num_steps * num_sequences * self.growth
        self.estimate.decode(num_steps)

    def steps_until_full(self, num_sequences: int) -> float:
        """Steps for which there is room, one at least."""
        grown = self.growth * num_sequences
        return max(1, int((self.capacity - self.used) / grown)) if grown and not math.isinf(self.capacity) else math.inf

    def is_full_for(self, num_sequences: int) -> bool:
        """Whether that many sequences have no room for one more step."""
        return self.used + self.growth * num_sequences > self.capacity

    def keep(self, request: Request) -> None:
        """Its prompt was computed: its beginning is cached from now on and held once."""
        if request.prefix >= 0 and request.prefix_generation is None:
            freed = self.prefixes.keep(request)
            request.held -= freed
            self.held -= freed

    def release(self, request: Request, *, is_last: bool) -> None:
        """The request gave its place up; after the last one rounding is forgotten."""
        self.held = 0.0 if is_last else self.held - request.held
        self.prefixes.leave(request)

    def clear(self) -> None:
        """Everything is lost."""
        self.held = 0.0
        self.prefixes.flush()
