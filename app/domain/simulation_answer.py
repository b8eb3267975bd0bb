"""What `/simulate` answers: percentiles with their confidence intervals, rates, outcomes, objectives, and the load over time."""

from collections.abc import Sequence
from typing import Literal

from app.domain.provenance import Answer, Basis
from app.domain.simulation_figures import FigureIntervals, Figures, Times
from app.domain.simulation_requests import Outcome
from app.domain.simulation_summary import Interval, PercentileIntervals
from app.domain.value import Value
from app.domain.workload import Slo


class SimulatedFigure(Value):
    """A mean over the seeds with its 95 % confidence interval: of chance alone, not of the step model."""

    value: float
    """Mean over the seeds."""
    low: float | None
    """Lower end; None of a single seed."""
    high: float | None
    """Upper end."""


class SimulatedTime(Value):
    """A time in figures, each over the seeds."""

    mean: SimulatedFigure
    """Mean [s]."""
    p50: SimulatedFigure
    """Median [s]."""
    p95: SimulatedFigure
    """95th percentile [s]."""
    p99: SimulatedFigure
    """99th percentile [s]."""
    p999: SimulatedFigure
    """99.9th percentile [s]: of fewer than 1,000 requests the largest value."""


class SimulatedTimes(Value):
    """Times of requests that finished; None where there is nothing to measure."""

    queue_s: SimulatedTime | None
    """From arrival until a place is given [s]."""
    ttft_s: SimulatedTime | None
    """To the first token [s]."""
    tpot_s: SimulatedTime | None
    """(last token - first token) / (output - 1) of each request [s]."""
    itl_s: SimulatedTime | None
    """Gaps between two outputs of one request [s]."""
    e2e_s: SimulatedTime | None
    """To the end of the answer [s]."""


class SimulatedKind(Value):
    """Requests of one class, of a trace, or of a flood."""

    name: str
    """class-1, class-2 ... as the workload lists them; all, trace, flood."""
    times: SimulatedTimes
    """Their times."""


class SimulatedObjective(Value):
    """One objective against what was simulated."""

    name: str
    """As in `slo`."""
    limit_s: float
    """The objective [s]."""
    found: SimulatedFigure | None
    """The percentile; None where nothing finished, or no request has such a time (TPOT of answers of one token) [s]."""
    verdict: Literal["holds", "unsure", "fails"]
    """unsure: the limit lies within the confidence interval."""

    @property
    def is_within(self) -> bool:
        """Whether the mean over the seeds is within the limit; so is a time that no request has."""
        return self.verdict == "holds" if self.found is None else self.found.value <= self.limit_s


class SimulatedOutcomes(Value):
    """Requests of all seeds by what became of them."""

    num_finished: int
    """Answered."""
    num_rejected: int
    """No replica, no place to wait, or too long for a replica."""
    num_timed_out: int
    """Their clients gave up."""
    num_failed: int
    """Lost with a replica."""
    num_in_flight: int
    """Not done when the run ended, long after the last arrival."""


class SimulatedLoad(Value):
    """The load over a part of the time, means over it."""

    start_s: float
    """Begin [s]."""
    num_running: float
    """Requests with a place."""
    num_waiting: float
    """Requests without one."""
    kv_used_ratio: float
    """Share of the KV cache that is held, mean over the replicas; 0 where none is known."""


class SimulatedFigures(Value):
    """What happens to the requests of a pool, or of all pools."""

    num_requests: int
    """Requests of all seeds, warm-up included."""
    times: SimulatedTimes
    """Of all of them."""
    kinds: list[SimulatedKind]
    """The same times by kind of request."""
    request_rps: SimulatedFigure
    """Requests that finish [requests/s]."""
    output_tokens_per_s: SimulatedFigure
    """Their tokens [tokens/s]."""
    goodput_rps: SimulatedFigure
    """Requests that keep every limit [requests/s]."""
    num_in_flight: SimulatedFigure
    """Requests that wait or run at once."""
    busy_ratio: SimulatedFigure
    """Share of the time in which an engine runs steps."""
    num_preemptions: SimulatedFigure
    """Of one run: sequences that lost their place to a full cache and were computed again."""
    outcomes: SimulatedOutcomes
    """What became of the requests."""
    num_timeouts: int
    """Of all seeds, retries included."""
    num_retries: int
    """Times that a request was sent again, of all seeds."""
    objectives: list[SimulatedObjective]
    """Each objective of the request."""
    course: list[SimulatedLoad]
    """Load over time of the first seed."""


class SimulatedPool(SimulatedFigures):
    """One of several pools of replicas."""

    name: str
    """As in the request."""
    gpu: str
    """Accelerator."""
    engine: str
    """Inference engine."""
    basis: Basis
    """How the times of its steps are known."""
    replicas: int
    """Replicas behind its balancer."""
    gpus: int
    """Accelerators of all of them."""


class SimulationAnswer(SimulatedFigures, Answer):
    """Answer of `/simulate`."""

    model: str
    """Model."""
    gpu: str | None
    """Accelerator; None where pools have different ones."""
    engine: str | None
    """Inference engine; None where pools have different ones."""
    basis: Basis
    """How the times of the steps are known; with several pools the weakest."""
    replicas: int
    """Replicas of all pools."""
    gpus: int
    """Accelerators of all of them."""
    measured_s: SimulatedFigure
    """From the end of the warm-up to the last arrival [s]."""
    pools: list[SimulatedPool]
    """The same figures of each pool, where there are several."""


def figure(found: Interval) -> SimulatedFigure:
    """An interval as a figure that is not below 0."""
    if found.half_width is None:
        return SimulatedFigure(value=found.mean, low=None, high=None)
    return SimulatedFigure(value=found.mean, low=max(0.0, found.mean - found.half_width), high=found.mean + found.half_width)


def time_of(found: PercentileIntervals | None) -> SimulatedTime | None:
    """A time over seeds; None where there is none."""
    return None if found is None else SimulatedTime(**{name: figure(each) for name, each in found._asdict().items()})


def times_of(found: Times[PercentileIntervals]) -> SimulatedTimes:
    """All times over seeds."""
    return SimulatedTimes(
        queue_s=time_of(found.queue),
        ttft_s=time_of(found.ttft),
        tpot_s=time_of(found.tpot),
        itl_s=time_of(found.itl),
        e2e_s=time_of(found.e2e),
    )


def outcomes_of(found: dict[Outcome, int]) -> SimulatedOutcomes:
    """Outcomes of all seeds; what waits and runs at the end is in flight."""
    return SimulatedOutcomes(
        num_finished=found["finished"],
        num_rejected=found["rejected"],
        num_timed_out=found["timed_out"],
        num_failed=found["failed"],
        num_in_flight=found["waiting"] + found["running"],
    )


def objectives_of(slo: Slo | None, result: FigureIntervals) -> list[SimulatedObjective]:
    """Each stated objective: it holds where the whole confidence interval is within it, and fails where all of it is above.

    Where requests were rejected, gave up or failed, the percentile of those that finished flatters: a share of them that the percentile
    would have to leave out makes it fail.
    """
    rows, lost = [], 1 - result.outcomes["finished"] / max(1, sum(result.outcomes.values()))
    for name, limit in slo or ():
        if limit is None:
            continue
        time, level, _ = name.split("_")
        known: PercentileIntervals | None = getattr(result.times, time)
        found = None if known is None else figure(getattr(known, level))
        too_many = lost > 1 - int(level[1:]) / 100
        low, high = (0.0, 0.0) if found is None else (found.value if found.low is None else found.low, found.high or found.value)
        has_none = known is None and not result.outcomes["finished"]
        verdict = "fails" if has_none or too_many or low > limit else "holds" if high <= limit else "unsure"
        rows.append(SimulatedObjective.model_validate({"name": name, "limit_s": limit, "found": found, "verdict": verdict}))
    return rows


def figures_of(slo: Slo | None, runs: Sequence[Figures], found: FigureIntervals) -> SimulatedFigures:
    """Figures of some pools over all seeds."""
    return SimulatedFigures(
        num_requests=sum(found.outcomes.values()),
        times=times_of(found.times),
        kinds=[SimulatedKind(name=name, times=times_of(times)) for name, times in found.by_kind.items()],
        request_rps=figure(found.request_rps),
        output_tokens_per_s=figure(found.output_tokens_per_s),
        goodput_rps=figure(found.goodput_rps),
        num_in_flight=figure(found.num_in_flight),
        busy_ratio=figure(found.busy_ratio),
        num_preemptions=figure(found.num_preemptions),
        outcomes=outcomes_of(found.outcomes),
        num_timeouts=sum(run.num_timeouts for run in runs),
        num_retries=sum(run.num_retries for run in runs),
        objectives=objectives_of(slo, found),
        course=[SimulatedLoad(**point._asdict()) for point in runs[0].course],
    )
