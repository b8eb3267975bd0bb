"""What requests take on a fleet of a given size: means, P95 and P99, each with the range that measurements are expected in."""

from collections.abc import Iterator
from typing import Literal

from app.domain.latency_tail import LEVELS, SIMULATED_RATIO, Tail
from app.domain.latency_tail import SOURCE as TAIL_SOURCE
from app.domain.performance_estimate import Estimate
from app.domain.provenance import Basis, Step, step
from app.domain.replica_speed import Loaded, ReplicaSpeed
from app.domain.units import plain
from app.domain.value import Value

Percentiles = Literal["simulated", "approximated"]


class ExpectedTime(Value):
    """Mean and percentiles of one time of a request [s]."""

    mean_s: Estimate
    """Mean [s]."""
    p95_s: Estimate
    """95th percentile [s]."""
    p99_s: Estimate
    """99th percentile [s]."""


class ExpectedObjective(Value):
    """One objective and what is expected of it at this size."""

    name: str
    """The objective, as `ttft_p95`."""
    limit_s: float
    """What is asked for [s]."""
    expected_s: float
    """What is expected [s]."""
    holds: bool
    """expected_s <= limit_s."""
    holds_at_high: bool
    """Whether it holds at the high end of the range, too."""


class ExpectedLatency(Value):
    """Times of requests when the peak is spread evenly over all replicas. TPOT = (E2E - TTFT) / (output tokens - 1)."""

    request_rps: float
    """Requests of one replica [requests/s]."""
    concurrency: float
    """Requests in one replica, on average."""
    ttft: ExpectedTime
    """Time to the first token, waiting included."""
    tpot: ExpectedTime
    """Time per output token after the first."""
    e2e: ExpectedTime
    """Whole request."""
    basis: Basis
    """Of the means: calibrated or assumed."""
    percentile_basis: Basis
    """Of the percentiles: assumed where they are approximated, else as the steps that are simulated."""
    percentiles: Percentiles
    """simulated step by step; or approximated by queueing theory, then the high end of their range is wider."""
    objectives: list[ExpectedObjective]
    """The objectives whose time was not measured."""


_BANDED: tuple[Literal["ttft"], Literal["tpot"]] = ("ttft", "tpot")


def expected_latency(speed: ReplicaSpeed, loaded: Loaded) -> ExpectedLatency:
    """The times at a rate with their ranges.

    Means: value x measured over predicted, 10th to 90th percentile. Percentiles: the same, the high end x SIMULATED_RATIO, by which the
    approximation may be too low. E2E takes the range of both its parts, each weighted by its time.
    """
    performance, tails = speed.performance, loaded.tails
    bands = [performance.model.band(performance.step_class, name) for name in _BANDED]
    first = tails.ttft.mean / tails.e2e.mean
    first_tokens, others = ((band.low_ratio, band.high_ratio) for band in bands)
    low, high = (first * one + (1 - first) * other for one, other in zip(first_tokens, others, strict=True))
    times = {"ttft": _time(tails.ttft, *first_tokens), "tpot": _time(tails.tpot, *others), "e2e": _time(tails.e2e, low, high)}
    objectives = []
    for each in speed.objectives(loaded):
        name, level = each.name.split("_")
        high_s = getattr(times[name], f"{level}_s").high
        objectives.append(
            ExpectedObjective(
                name=each.name, limit_s=each.limit_s, expected_s=each.expected_s, holds=each.holds, holds_at_high=high_s <= each.limit_s
            )
        )
    return ExpectedLatency(
        request_rps=loaded.request_rps,
        concurrency=loaded.state.concurrency,
        ttft=times["ttft"],
        tpot=times["tpot"],
        e2e=times["e2e"],
        basis=speed.basis,
        percentile_basis="assumed",
        percentiles="approximated",
        objectives=objectives,
    )


def _time(tail: Tail, low: float, high: float) -> ExpectedTime:
    wide = high * SIMULATED_RATIO
    return ExpectedTime(
        mean_s=Estimate(value=tail.mean, low=tail.mean * low, high=tail.mean * high),
        p95_s=Estimate(value=tail.p95, low=tail.p95 * low, high=tail.p95 * wide),
        p99_s=Estimate(value=tail.p99, low=tail.p99 * low, high=tail.p99 * wide),
    )


def expected_steps(speed: ReplicaSpeed, loaded: Loaded, request_rps: float, replicas: int) -> Iterator[Step]:
    """The working from the rate of one replica to its times; the state itself is that of `/performance` at this rate."""
    state, tails = loaded.state, loaded.tails
    source = "POST /performance with request_rps of one replica gives the steps and waiting times that add up to it"
    yield step(
        "request_rps_per_replica", "request_rps / replicas", f"{plain(request_rps)} / {replicas}", loaded.request_rps, "requests/s", source
    )
    more = tails.ttft.mean - state.waiting.ttft_s
    yield step(
        "expected_ttft_s",
        "server + steps in flight + prefill + prompts ahead + start + admission, more ahead where prompts differ in length",
        " + ".join(plain(value) for value in (*state.waiting, more)),
        tails.ttft.mean,
        "s",
        source,
        basis=speed.basis,
    )
    yield step(
        "expected_tpot_s",
        *_tpot_terms(speed, loaded),
        tails.tpot.mean,
        "s",
        source,
        basis=speed.basis,
    )
    for level in LEVELS:
        parts = " + ".join(f"{plain(each)}^2" for each in tails.deviations(level))
        yield step(
            f"expected_ttft_{level}_s",
            "mean + root of the squares of what own prompt, prompts ahead and admission add at this percentile",
            f"{plain(tails.ttft.mean)} + ({parts})^0.5",
            tails.ttft.at(level),
            "s",
            TAIL_SOURCE,
            basis="assumed",
        )


def _tpot_terms(speed: ReplicaSpeed, loaded: Loaded) -> tuple[str, str]:
    """(formula, the same with numbers) of the mean TPOT."""
    serving, state = speed.serving, loaded.state
    if not serving.decode_steps:
        return "mean step / tokens per step", f"{plain(state.step_s)} / {plain(serving.tokens_per_step)}"
    steps = f"{plain(serving.decode_steps)} x {plain(state.step_s)}"
    return (
        "(decode steps x mean step + what prompts that arrived during the wait add) / (output tokens - 1)",
        f"({steps} + {plain(loaded.tails.followed_s)}) / ({plain(serving.output_tokens)} - 1)",
    )
