"""Figures of a simulation: of the requests of one pool or of all, in one run or over the seeds."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from app.domain.simulation_pool import Pool
from app.domain.simulation_record import LoadPoint, Percentiles, course_of, gap_percentiles, percentiles
from app.domain.simulation_requests import Outcome, Request
from app.domain.simulation_scenario import Limits, Scenario
from app.domain.simulation_summary import Interval, PercentileIntervals, interval, percentile_intervals

Taken = TypeVar("Taken")


@dataclass(frozen=True)
class Times(Generic[Taken]):
    """The times of requests; None where there is none to measure."""

    queue: Taken | None
    """From arrival until a place is given."""
    ttft: Taken | None
    tpot: Taken | None
    """(last token - first token) / (output - 1), of outputs from two tokens on."""
    itl: Taken | None
    """Gaps between two outputs of one request."""
    e2e: Taken | None


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Requests of some pools in one run."""

    num_arrivals: int
    """All, warm-up included."""
    outcomes: dict[Outcome, int]
    """Requests by what became of them; `waiting` and `running` are in flight at the end. They add up to `num_arrivals`."""
    num_measured: int
    """Requests that arrived in the measured time and finished."""
    times: Times[Percentiles]
    by_kind: dict[str, Times[Percentiles]]
    request_rps: float
    """Requests that finished in the measured time."""
    output_tokens_per_s: float
    """Tokens of those requests."""
    goodput_rps: float
    """Of the requests that arrived in the measured time, those that kept the limits, per second."""
    num_in_flight: float
    """Requests in the system, mean over the measured time."""
    busy_ratio: float
    """Share of the time in which an engine runs steps."""
    num_preemptions: int
    num_timeouts: int
    num_retries: int
    course: list[LoadPoint]


@dataclass(frozen=True, kw_only=True)
class FigureIntervals:
    """The same over all seeds: means with 95 % confidence intervals."""

    times: Times[PercentileIntervals]
    by_kind: dict[str, Times[PercentileIntervals]]
    request_rps: Interval
    output_tokens_per_s: Interval
    goodput_rps: Interval
    num_in_flight: Interval
    busy_ratio: Interval
    num_preemptions: Interval
    outcomes: dict[Outcome, int]
    """Over all seeds."""


def figures_of(scenario: Scenario, requests: Sequence[Request], pools: Sequence[Pool]) -> Figures:
    """Figures of the requests of some pools, after a run."""
    recorders = [pool.recorder for pool in pools]
    begin_s, end_s = recorders[0].warm_up_s, recorders[0].until_s
    measured_s = end_s - begin_s
    for pool in pools:
        pool.count(0, end_s)
    done = [one for one in requests if one.outcome == "finished"]
    measured = [one for one in done if one.arrival_s >= begin_s]
    inside = [one for one in done if begin_s <= one.finished_s <= end_s]
    kinds = [[one for one in measured if one.kind == index] for index in range(len(scenario.kind_names))]
    outcomes: dict[Outcome, int] = dict.fromkeys(("finished", "rejected", "timed_out", "failed", "running", "waiting"), 0)
    for one in requests:
        outcomes[one.outcome] += 1
    outside_s = math.fsum(one.server_s for one in inside)
    num_replicas = sum(pool.model.num_replicas for pool in pools)
    return Figures(
        num_arrivals=len(requests),
        outcomes=outcomes,
        num_measured=len(measured),
        times=_times(measured, gap_percentiles(gaps for each in recorders for gaps in each.gaps)),
        by_kind={
            name: _times(group, gap_percentiles(each.gaps[index] for each in recorders))
            for index, (name, group) in enumerate(zip(scenario.kind_names, kinds, strict=True))
            if group
        },
        request_rps=len(inside) / measured_s,
        output_tokens_per_s=sum(one.output_tokens for one in inside) / measured_s,
        goodput_rps=sum(_keeps(one, scenario.limits) for one in measured) / measured_s,
        num_in_flight=(math.fsum(pool.area for pool in pools) + outside_s) / measured_s,
        busy_ratio=math.fsum(each.busy_s for each in recorders) / measured_s / sum(each.num_engines for each in recorders),
        num_preemptions=sum(each.num_preemptions for each in recorders),
        num_timeouts=sum(one.num_timeouts for one in requests),
        num_retries=sum(one.attempt for one in requests),
        course=course_of(recorders, [pool.model.replica.room.capacity for pool in pools], num_replicas),
    )


def _ttft_s(one: Request) -> float:
    return (one.first_token_s or 0.0) - one.arrival_s + one.server_s


def _tpot_s(one: Request) -> float | None:
    return None if one.output_tokens < 2 else (one.last_token_s - (one.first_token_s or 0.0)) / (one.output_tokens - 1)


def _times(requests: Sequence[Request], itl: Percentiles | None) -> Times[Percentiles]:
    return Times(
        queue=percentiles((one.start_s or 0.0) - one.arrival_s for one in requests),
        ttft=percentiles(_ttft_s(one) for one in requests),
        tpot=percentiles(tpot_s for one in requests if (tpot_s := _tpot_s(one)) is not None),
        itl=itl,
        e2e=percentiles(one.finished_s - one.arrival_s for one in requests),
    )


def _keeps(one: Request, limits: Limits) -> bool:
    pairs = (_ttft_s(one), limits.ttft_s), (_tpot_s(one), limits.tpot_s), (one.finished_s - one.arrival_s, limits.e2e_s)
    return all(limit is None or taken is None or taken <= limit for taken, limit in pairs)


def _over(seeds: Sequence[Times[Percentiles]]) -> Times[PercentileIntervals]:
    def of(found: Iterable[Percentiles | None]) -> PercentileIntervals | None:
        return percentile_intervals([each for each in found if each is not None])

    return Times(
        queue=of(times.queue for times in seeds),
        ttft=of(times.ttft for times in seeds),
        tpot=of(times.tpot for times in seeds),
        itl=of(times.itl for times in seeds),
        e2e=of(times.e2e for times in seeds),
    )


def intervals_of(runs: Sequence[Figures]) -> FigureIntervals:
    """Figures of several seeds as means with confidence intervals."""
    names = sorted({name for run in runs for name in run.by_kind})

    def of(values: Callable[[Figures], float]) -> Interval:
        return interval([values(run) for run in runs])

    outcomes: dict[Outcome, int] = {}
    for run in runs:
        for outcome, count in run.outcomes.items():
            outcomes[outcome] = outcomes.get(outcome, 0) + count
    return FigureIntervals(
        times=_over([run.times for run in runs]),
        by_kind={name: _over([run.by_kind[name] for run in runs if name in run.by_kind]) for name in names},
        request_rps=of(lambda run: run.request_rps),
        output_tokens_per_s=of(lambda run: run.output_tokens_per_s),
        goodput_rps=of(lambda run: run.goodput_rps),
        num_in_flight=of(lambda run: run.num_in_flight),
        busy_ratio=of(lambda run: run.busy_ratio),
        num_preemptions=of(lambda run: float(run.num_preemptions)),
        outcomes=outcomes,
    )
