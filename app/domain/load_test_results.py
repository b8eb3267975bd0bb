"""What a measured ramp says: its levels, the knee, the load before it, and the load that holds the objectives with headroom."""

from collections.abc import Sequence
from typing import Literal

from app.domain.calibration_answer import CalibrationResult
from app.domain.calibration_fit import Quantity
from app.domain.finding import Finding
from app.domain.load_point import Latency
from app.domain.provenance import Answer
from app.domain.value import Value


class MeasuredObjective(Value):
    """One objective at one level."""

    name: str
    """The objective, as `ttft_p95`."""
    limit_s: float
    """What is asked for [s]."""
    measured_s: float | None
    """What was measured, None where the files have no such percentile nor a higher one [s]."""
    statistic: str | None
    """Which percentile that is: a higher one where the tool did not print the one asked for."""
    holds: bool | None
    """measured_s <= limit_s; None where it was not measured."""
    holds_with_headroom: bool | None
    """measured_s <= limit_s x (1 - headroom_ratio)."""


class Compared(Value):
    """A quantity of a level beside its prediction."""

    quantity: Quantity
    """TPOT and TTFT in seconds, throughput in output tokens/s; means."""
    measured: float
    """Mean over the runs of the level."""
    predicted: float
    """By the model with the constants of its class, before the calibration."""
    measured_over_predicted_ratio: float
    """measured / predicted."""
    low_ratio: float
    """Nine of ten measurements of the class are above this ratio."""
    high_ratio: float
    """Nine of ten are below this one."""
    within_range: bool
    """low_ratio <= measured / predicted <= high_ratio."""


class MeasuredLevel(Value):
    """All runs of one load."""

    load: Literal["concurrency", "rate"]
    """Whether a number of requests in flight was kept, or a rate."""
    concurrency: float | None
    """Requests in flight that the tool kept."""
    offered_rps: float | None
    """Rate that the tool aimed at [requests/s]."""
    num_runs: int
    """Runs of this load."""
    request_rps: float | None
    """Requests that ended per second, mean over the runs [requests/s]."""
    output_tokens_per_s: float | None
    """Output tokens per second, mean over the runs [tokens/s]."""
    failed_ratio: float | None
    """Failed requests / all requests; None where the files do not say."""
    trusted: bool
    """Whether rate and times agree with the load by Little's law, and an offered rate was reached; else the level is none to plan with."""
    ttft: Latency
    """Time to first token, each statistic averaged over the runs."""
    tpot: Latency
    """Time per output token after the first."""
    e2e: Latency
    """Whole request."""
    power: float | None
    """request_rps / mean e2e_s: largest at the knee [requests/s^2]."""
    variation_ratio: float | None
    """Standard deviation of the output rate over the runs / its mean; None of one run."""
    stable: bool | None
    """Whether it is at most 5 %; None of one run."""
    objectives: list[MeasuredObjective]
    """The objectives of the plan."""
    compared: list[Compared]
    """Prediction beside measurement; empty where the runs could not be used."""
    went_wrong: list[str]
    """What is not as it should be: failures, broken objectives, figures outside the predicted range."""
    findings: list[Finding]
    """What `/diagnose` says about its figures; empty where nothing went wrong."""


class LoadTestAnalysis(Answer):
    """A measured ramp beside its plan."""

    levels: list[MeasuredLevel]
    """From the smallest load to the largest."""
    knee: MeasuredLevel | None
    """The level of largest power; None where the ramp ends before throughput does."""
    sweet_spot: MeasuredLevel | None
    """The last level before the knee: throughput still rises there with the load."""
    peak: MeasuredLevel | None
    """The level of the largest output rate."""
    working_point: MeasuredLevel | None
    """The largest load, not beyond the knee, up to which every level holds all objectives with headroom and fails at most 1 %."""
    working_point_missing_because: str | None
    """Why there is none."""
    num_replicas_at_working_point: int | None
    """Replicas that carry the planned peak at that load, before redundancy."""
    predicted_knee_concurrency: int | None
    """Where the plan expects the knee; None where its replica is not modelled."""
    calibration: CalibrationResult | None
    """What the runs say about the constants of the model; nothing is stored (POST /calibrations does)."""


def by_load(levels: Sequence[MeasuredLevel]) -> list[MeasuredLevel]:
    """The levels from the smallest load to the largest."""
    return sorted(levels, key=lambda level: (level.load, level.concurrency or 0, level.offered_rps or 0))
