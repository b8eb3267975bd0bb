"""A replica in its steady state: how many requests, which steps, and what a request waits for."""

import math
from typing import NamedTuple

from app.domain.arrivals import Wait
from app.domain.step import IterationTime


class StepTimes(NamedTuple):
    """The steps of a load."""

    plain_s: float
    """Without prompts [s]."""
    mean_s: float
    """Mean over all [s]."""
    often: float
    """Steps with prompts per step that decodes."""


class Interference(NamedTuple):
    """Steps without and with prompts."""

    decode: IterationTime
    mixed: IterationTime
    """With prompts; a decode step and one of prompts together where engines run prompts first."""
    prompt_tokens: float
    often: float
    busy_s: float
    """Time with prompts per step [s]."""
    square_ratio: float
    """Mean square of the steps / mean step: twice what is left of the step that an arrival meets [s]."""

    @property
    def mean_step_s(self) -> float:
        """Mean step over all [s]."""
        return mean_of_steps_s(self.decode.total_s, self.mixed.total_s, self.often)


def mean_of_steps_s(decode_s: float, mixed_s: float, often: float) -> float:
    """decode + steps with prompts per decode step x (mixed - decode) [s]."""
    return decode_s + often * (mixed_s - decode_s)


class WaitingTimes(NamedTuple):
    """The time to the first token and what it consists of [s]."""

    server_s: float
    """Outside the engine's steps: HTTP, tokenisation, scheduling."""
    residual_s: float
    """The steps in flight when the request arrives."""
    prefill_s: float
    """The steps that compute the prompt."""
    prompts_ahead_s: float
    """Behind prompts that arrived before."""
    start_s: float
    """Behind the burst with which a run starts."""
    admission_s: float
    """Until a running request ends and leaves its place."""

    @property
    def ttft_s(self) -> float:
        """Sum of the parts."""
        return sum(self)


class LoadState(NamedTuple):
    """A replica in its steady state."""

    concurrency: float
    """Requests in the system, waiting ones too."""
    admitted: float
    """Requests that have a place in the cache."""
    running: float
    """Sequences that decode, on average."""
    sequences: float
    """Those of the steps that one of them meets, itself among them."""
    decode: IterationTime
    """A step without prompt tokens."""
    mixed: IterationTime
    """A step with them."""
    prompt_tokens_per_step: float
    """Prompt tokens of a step that has any, of one rank group [tokens]."""
    prompt_step_ratio: float
    """Share of the steps with prompt tokens; of engines that run prompts first, their steps per decode step."""
    step_s: float
    """Mean time between two steps that decode [s]."""
    tpot_s: float
    """Mean time per output token after the first [s]."""
    waiting: WaitingTimes
    e2e_s: float
    """TTFT + (output tokens - 1) x TPOT [s]."""
    request_rps: float
    """Requests that the replica finishes [requests/s]."""
    wait: Wait | None = None
    """At a rate: what a request meets that arrives."""
    followed_s: float = 0.0
    """At a rate: what prompts that arrived while a request waited for its own add to its decoding [s]."""
    longest_step_s: float = math.inf
    """At a rate: a step beside the running sequences with as many prompt tokens as it takes; infinite without a limit [s]."""

    @property
    def mean_step(self) -> IterationTime:
        """The mean step, part by part."""
        often = self.prompt_step_ratio
        return IterationTime(*[plain + often * (other - plain) for plain, other in zip(self.decode, self.mixed, strict=True)])

    def within(self, most_s: float) -> "LoadState":
        """The same where a request with a place is there for at most so long [s]: it waits less behind the prompts of others."""
        waiting = self.waiting
        inside_s = self.e2e_s - waiting.admission_s
        less_s = min(inside_s - most_s, waiting.prompts_ahead_s + waiting.start_s)
        if less_s <= 0:
            return self
        ahead_s = min(less_s, waiting.prompts_ahead_s)
        waiting = waiting._replace(
            prompts_ahead_s=waiting.prompts_ahead_s - ahead_s,
            start_s=max(0.0, waiting.start_s - (less_s - ahead_s)),
            admission_s=waiting.admission_s * (1 - less_s / inside_s),
        )
        decode_s = self.e2e_s - self.waiting.ttft_s
        return self._replace(waiting=waiting, e2e_s=waiting.ttft_s + decode_s, request_rps=self.admitted / (inside_s - less_s))
