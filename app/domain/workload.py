"""What the traffic asks for: request rate, lengths, sharing, and the latency objectives."""

import itertools
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from app.domain.deployment import Ratio
from app.domain.value import Given

Length = Annotated[float, Field(ge=1, le=1e9)]
Rps = Annotated[float, Field(ge=1e-6, le=1e9)]
"""Requests per second; the bounds of all inputs keep every result far from overflow."""
TokensPerS = Annotated[float, Field(ge=1e-6, le=1e12)]
Seconds = Annotated[float, Field(ge=1e-6, le=1e6)]


class TokenLengths(Given):
    """Distribution of a length in tokens; a bare number stands for a constant."""

    mean: Length
    """Mean [tokens]."""
    p50: Length | None = None
    """Median [tokens]."""
    p95: Length | None = None
    """95th percentile [tokens]."""
    p99: Length | None = None
    """99th percentile [tokens]."""

    @model_validator(mode="after")
    def _ordered(self) -> "TokenLengths":
        known = [(name, value) for name in ("p50", "p95", "p99") if (value := getattr(self, name)) is not None]
        for (low, small), (high, large) in itertools.pairwise(known):
            if small > large:
                raise ValueError(f"{low} {small:g} is above {high} {large:g}: percentiles must not fall")
        for name, value in known:
            if name != "p50" and value < self.mean:
                raise ValueError(
                    f"{name} {value:g} is below the mean {self.mean:g}: fewer than 5 % of the requests would carry most of the tokens; "
                    "describe such traffic as classes"
                )
        return self


def _from_number(value: object) -> object:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return {"mean": value, "p50": value, "p95": value, "p99": value}
    return value


Lengths = Annotated[TokenLengths, BeforeValidator(_from_number, json_schema_input_type=TokenLengths | float)]


class RequestClass(Given):
    """One class of requests of a mixed workload."""

    share_ratio: Annotated[float, Field(ge=1e-6, le=1)]
    """Share of all requests."""
    input_tokens: Length
    """Prompt length [tokens]."""
    output_tokens: Length
    """Output length [tokens]."""


class Workload(Given):
    """Traffic at its peak."""

    peak_rps: Rps
    """Requests per second at the peak."""
    mean_rps: Rps | None = None
    """Requests per second on average: what is paid is spread over them."""
    burst_ratio: Annotated[float, Field(ge=1, le=1000)] = 1
    """Short bursts above the peak: the demand is peak_rps x burst_ratio."""
    input_tokens: Lengths | None = None
    """Prompt lengths; leave out when `classes` are given."""
    output_tokens: Lengths | None = None
    """Output lengths; leave out when `classes` are given."""
    classes: Annotated[Sequence[RequestClass], Field(max_length=100)] = ()
    """A mix of request classes instead of one distribution."""
    shared_prefix_tokens: Annotated[float, Field(ge=0, le=1e9)] | None = None
    """Prompt tokens that many requests have in common: running requests hold their KV cache once where it is found [tokens]."""
    prefix_hit_ratio: Ratio = 0
    """Share of the shared prefix tokens that is found in the prefix cache; left out, `/concurrency` takes 1."""
    token_growth_ratio: Annotated[float, Field(ge=0.01, le=100)] = 1
    """Tokens after a change of tokenizer or language / tokens before."""
    streaming: bool = True
    """Answers are streamed."""

    @model_validator(mode="after")
    def _one_description(self) -> "Workload":
        if self.classes:
            if self.input_tokens is not None or self.output_tokens is not None:
                raise ValueError("give either classes or input_tokens and output_tokens, not both")
            total = sum(item.share_ratio for item in self.classes)
            if abs(total - 1) > 1e-6:
                raise ValueError(f"the share_ratio of all classes must add up to 1, not {total:g}")
        elif self.input_tokens is None or self.output_tokens is None:
            raise ValueError("input_tokens and output_tokens are needed (or classes)")
        for which in ("input_tokens", "output_tokens"):
            shortest = min((getattr(each, which) for each in self.classes), default=None) or self.lengths(which).mean
            if shortest * self.token_growth_ratio < 1:
                raise ValueError(f"token_growth_ratio {self.token_growth_ratio:g} leaves less than one token of {which} {shortest:g}")
        if self.mean_rps is not None and self.mean_rps > self.peak_rps:
            raise ValueError(f"mean_rps {self.mean_rps:g} is above peak_rps {self.peak_rps:g}")
        if self.shared_prefix_tokens is not None and self.shared_prefix_tokens > self.lengths("input_tokens").mean:
            mean = self.lengths("input_tokens").mean
            raise ValueError(f"shared_prefix_tokens {self.shared_prefix_tokens:g} is more than the mean prompt of {mean:g} tokens")
        return self

    @property
    def sustained_rps(self) -> float:
        """Requests per second that the price is spread over: on average where that is given, else at the peak without its bursts."""
        return self.mean_rps or self.peak_rps

    def lengths(self, which: str) -> TokenLengths:
        """Lengths of the prompt (`input_tokens`) or the output, as given or over the classes (before token growth)."""
        given: TokenLengths | None = getattr(self, which)
        if given is not None:
            return given
        return over_classes([(getattr(item, which), item.share_ratio) for item in self.classes])

    def total_tokens(self, level: Literal["mean", "p95"]) -> float | None:
        """Prompt and output of one request together, after token growth [tokens].

        Over classes each class counts as a whole; of two distributions the P95 is the sum of both P95s, None when one is not given.
        """
        if self.classes:
            whole = over_classes([(item.input_tokens + item.output_tokens, item.share_ratio) for item in self.classes])
            both: tuple[float | None, ...] = (getattr(whole, level),)
        else:
            both = tuple(getattr(self.lengths(which), level) for which in ("input_tokens", "output_tokens"))
        known = [tokens for tokens in both if tokens is not None]
        return sum(known) * self.token_growth_ratio if len(known) == len(both) else None


def over_classes(lengths: list[tuple[float, float]]) -> TokenLengths:
    """The distribution of (length, share of the requests) pairs."""
    ordered = sorted(lengths)
    mean = sum(length * share for length, share in ordered)

    def percentile(level: float) -> float:
        reached = 0.0
        for length, share in ordered:
            reached += share
            if reached >= level - 1e-9:
                return float(length)
        return float(ordered[-1][0])

    p95, p99 = percentile(0.95), percentile(0.99)
    return TokenLengths.model_construct(mean=round(mean, 9), p50=percentile(0.5), p95=p95, p99=p99)


class Slo(Given):
    """Latency objectives."""

    ttft_p95_s: Seconds | None = None
    """Time to first token, 95th percentile [s]."""
    ttft_p99_s: Seconds | None = None
    """Time to first token, 99th percentile [s]."""
    tpot_p95_s: Seconds | None = None
    """Time per output token, 95th percentile [s]."""
    tpot_p99_s: Seconds | None = None
    """Time per output token, 99th percentile [s]."""
    e2e_p95_s: Seconds | None = None
    """End-to-end latency, 95th percentile [s]."""
    e2e_p99_s: Seconds | None = None
    """End-to-end latency, 99th percentile [s]."""

    @property
    def has_objective(self) -> bool:
        """Whether any of them is set."""
        return any(limit is not None for _, limit in self)
