"""A replica in its steady state: how many requests, which steps, and what a request waits for."""

from typing import NamedTuple

from app.domain.step import IterationTime


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
    """Sequences that decode."""
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

    @property
    def mean_step(self) -> IterationTime:
        """The mean step, part by part."""
        often = self.prompt_step_ratio
        return IterationTime(*(plain + often * (other - plain) for plain, other in zip(self.decode, self.mixed, strict=True)))
