"""Traffic on a fleet, simulated step by step with the step times of `/performance`: percentiles, queues, bursts, failures."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.domain.errors import InvalidInput
from app.domain.simulation_fleet import Fleet
from app.domain.simulation_record import LoadPoint, Percentiles, Recorder, percentiles
from app.domain.simulation_requests import Outcome, Request, requests_of
from app.domain.simulation_scenario import Limits, Scenario, check
from app.domain.simulation_summary import Interval, PercentileIntervals, interval, percentile_intervals

FLOODED = "flood"
"""Name of the kind of requests that a flood adds."""
DRAIN_RATIO = 1.0
"""After the last arrival a run goes on for so many times its length at most; what is not done then is in flight."""
LEAST_DRAIN_S = 3600.0
"""And for an hour at least [s]."""


@dataclass(frozen=True)
class Times:
    """Percentiles of the times of requests; None where there is none to measure."""

    queue: Percentiles | None
    """From arrival until a place is given."""
    ttft: Percentiles | None
    tpot: Percentiles | None
    """(last token - first token) / (output - 1), of outputs from two tokens on."""
    e2e: Percentiles | None


@dataclass(frozen=True)
class Run:
    """One seed."""

    seed: int
    num_arrivals: int
    """All, warm-up included."""
    outcomes: dict[Outcome, int]
    """Requests by what became of them; `waiting` and `running` are in flight at the end. They add up to `num_arrivals`."""
    measured_s: float
    """From the end of the warm-up to the last arrival."""
    num_measured: int
    """Requests that arrived in it and finished."""
    times: Times
    by_kind: dict[str, Times]
    itl: Percentiles | None
    """Gaps between two outputs of one request."""
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


@dataclass(frozen=True)
class SimulationResult:
    """All seeds together: means over them with 95 % confidence intervals."""

    runs: list[Run]
    queue: PercentileIntervals | None
    ttft: PercentileIntervals | None
    tpot: PercentileIntervals | None
    itl: PercentileIntervals | None
    e2e: PercentileIntervals | None
    by_kind: dict[str, dict[str, PercentileIntervals | None]]
    """By kind of request, then queue, ttft, tpot, e2e."""
    request_rps: Interval
    output_tokens_per_s: Interval
    goodput_rps: Interval
    num_in_flight: Interval
    busy_ratio: Interval
    num_preemptions: Interval
    outcomes: dict[Outcome, int]
    """Over all seeds."""


def simulate(scenario: Scenario, on_progress: Callable[[float], None] | None = None) -> SimulationResult:
    """Run every seed; `on_progress` is told the share that is done, and may raise to end it. Raises InvalidInput."""
    check(scenario)
    runs = []
    for index, seed in enumerate(scenario.seeds):

        def tell(share: float, index: int = index) -> None:
            if on_progress is not None:
                on_progress((index + share) / len(scenario.seeds))

        runs.append(simulate_seed(scenario, seed, tell))
    return gathered(runs)


def simulate_seed(scenario: Scenario, seed: int, on_progress: Callable[[float], None] | None = None) -> Run:
    """One run; the same scenario and seed give the same figures. Raises InvalidInput.

    Model: iteration-level scheduling (https://www.usenix.org/conference/osdi22/presentation/yu) with a paged cache
    (https://arxiv.org/abs/2309.06180); times of steps from `ReplicaModel.times`. Not modelled: the network between balancer and replica,
    variance of accepted drafts, start of an engine beyond `ReplicaLoss.duration_s`.
    """
    check(scenario)
    requests = requests_of(
        scenario.arrivals,
        scenario.kinds,
        seed=seed,
        duration_s=scenario.duration_s,
        num_requests=scenario.num_requests,
        surges=scenario.surges,
        floods=scenario.floods,
        prefix=scenario.prefix,
    )
    if not requests:
        raise InvalidInput("no request arrives before the end", field="/duration_s", value=scenario.duration_s, expected="a longer run")
    closed = scenario.arrivals.concurrency is not None
    end_s = math.inf if closed else max(requests[-1].arrival_s, 1e-9) if scenario.duration_s is None else scenario.duration_s
    model = scenario.replica
    recorder = Recorder(0.0 if closed else end_s * scenario.warm_up_ratio, end_s, scenario.num_replicas * model.groups)
    fleet = Fleet(
        model,
        scenario.num_replicas,
        scenario.balancing,
        scenario.client,
        scenario.prefix,
        recorder,
        max_num_waiting=scenario.max_num_waiting,
    )
    for loss in scenario.losses:
        fleet.lose(loss)
    for flush in scenario.flushes:
        fleet.flush(flush)
    fleet.run(requests, end_s * (1 + DRAIN_RATIO) + LEAST_DRAIN_S, on_progress)
    if closed:
        recorder.until_s = max(1e-9, *(one.finished_s for one in requests))
    return _run_of(scenario, seed, requests, recorder, fleet)


def _run_of(scenario: Scenario, seed: int, requests: Sequence[Request], recorder: Recorder, fleet: Fleet) -> Run:
    begin_s, end_s, model = recorder.warm_up_s, recorder.until_s, scenario.replica
    measured_s = end_s - begin_s
    done = [one for one in requests if one.outcome == "finished"]
    measured = [one for one in done if one.arrival_s >= begin_s]
    inside = [one for one in done if begin_s <= one.finished_s <= end_s]
    names = [*(kind.name for kind in scenario.kinds), FLOODED] if scenario.kinds else ["trace", FLOODED]
    kinds = [[one for one in measured if one.kind == index] for index in range(len(names))]
    outcomes: dict[Outcome, int] = dict.fromkeys(("finished", "rejected", "timed_out", "failed", "running", "waiting"), 0)
    for one in requests:
        outcomes[one.outcome] += 1
    outside_s = math.fsum(one.server_s for one in inside)
    return Run(
        seed=seed,
        num_arrivals=len(requests),
        outcomes=outcomes,
        measured_s=measured_s,
        num_measured=len(measured),
        times=_times(measured),
        by_kind={name: _times(group) for name, group in zip(names, kinds, strict=True) if group},
        itl=recorder.gap_percentiles(),
        request_rps=len(inside) / measured_s,
        output_tokens_per_s=sum(one.output_tokens for one in inside) / measured_s,
        goodput_rps=sum(_keeps(one, scenario.limits) for one in measured) / measured_s,
        num_in_flight=(fleet.area + outside_s) / measured_s,
        busy_ratio=recorder.busy_s / measured_s / recorder.num_engines,
        num_preemptions=recorder.num_preemptions,
        num_timeouts=fleet.num_timeouts,
        num_retries=fleet.num_retries,
        course=recorder.course(model.room.capacity * scenario.num_replicas),
    )


def _ttft_s(one: Request) -> float:
    return (one.first_token_s or 0.0) - one.arrival_s + one.server_s


def _tpot_s(one: Request) -> float | None:
    return None if one.output_tokens < 2 else (one.last_token_s - (one.first_token_s or 0.0)) / (one.output_tokens - 1)


def _times(requests: Sequence[Request]) -> Times:
    return Times(
        queue=percentiles((one.start_s or 0.0) - one.arrival_s for one in requests),
        ttft=percentiles(_ttft_s(one) for one in requests),
        tpot=percentiles(tpot_s for one in requests if (tpot_s := _tpot_s(one)) is not None),
        e2e=percentiles(one.finished_s - one.arrival_s for one in requests),
    )


def _keeps(one: Request, limits: Limits) -> bool:
    pairs = (_ttft_s(one), limits.ttft_s), (_tpot_s(one), limits.tpot_s), (one.finished_s - one.arrival_s, limits.e2e_s)
    return all(limit is None or taken is None or taken <= limit for taken, limit in pairs)


def gathered(runs: Sequence[Run]) -> SimulationResult:
    """Runs of several seeds of one scenario as means with confidence intervals."""
    names = sorted({name for run in runs for name in run.by_kind})

    def over(values: Callable[[Run], Percentiles | None]) -> PercentileIntervals | None:
        return percentile_intervals([found for run in runs if (found := values(run)) is not None])

    def of_kind(kind: str, time: str) -> PercentileIntervals | None:
        return over(lambda run: getattr(run.by_kind[kind], time) if kind in run.by_kind else None)

    def of(values: Callable[[Run], float]) -> Interval:
        return interval([values(run) for run in runs])

    outcomes: dict[Outcome, int] = {}
    for run in runs:
        for outcome, count in run.outcomes.items():
            outcomes[outcome] = outcomes.get(outcome, 0) + count
    return SimulationResult(
        runs=list(runs),
        queue=over(lambda run: run.times.queue),
        ttft=over(lambda run: run.times.ttft),
        tpot=over(lambda run: run.times.tpot),
        itl=over(lambda run: run.itl),
        e2e=over(lambda run: run.times.e2e),
        by_kind={name: {time: of_kind(name, time) for time in ("queue", "ttft", "tpot", "e2e")} for name in names},
        request_rps=of(lambda run: run.request_rps),
        output_tokens_per_s=of(lambda run: run.output_tokens_per_s),
        goodput_rps=of(lambda run: run.goodput_rps),
        num_in_flight=of(lambda run: run.num_in_flight),
        busy_ratio=of(lambda run: run.busy_ratio),
        num_preemptions=of(lambda run: float(run.num_preemptions)),
        outcomes=outcomes,
    )
