"""What `/capacity` says of a fleet that it simulated: percentiles of each size with their margin, and how to have them again."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from app.domain.expected_latency import ExpectedLatency, ExpectedObjective, ExpectedTime
from app.domain.performance_estimate import Estimate
from app.domain.provenance import Basis, Note, Step, step
from app.domain.replica_speed import ReplicaSpeed
from app.domain.rounding import ceil
from app.domain.simulated_search import FoundSize, Splitting, Trial, Trials
from app.domain.simulation_answer import SimulatedFigure, SimulatedObjective, SimulatedTimes, figure, times_of
from app.domain.simulation_summary import PercentileIntervals
from app.domain.units import plain, seconds
from app.domain.value import Value

SOURCE = (
    "replicas simulated step by step (https://www.usenix.org/conference/osdi22/presentation/yu); POST /simulate with the workload at "
    "peak_rps = request_rps and burst_ratio 1, replicas = num_simulated_replicas, and variation_ratio, num_under_way, num_requests, "
    "warm_up_ratio and seeds as `simulated` has them"
)


class ObjectiveMargin(SimulatedObjective):
    """One objective at a size of the fleet."""

    holds: bool
    """Whether the mean over the seeds is within the limit; `verdict` also asks its interval."""
    margin_ratio: float | None
    """1 - found / limit: what is left, negative where it is missed."""


class SimulatedSize(Value):
    """The fleet with so many replicas serving the peak."""

    replicas: int
    """Replicas that serve."""
    num_simulated_replicas: int
    """Replicas that were simulated together, and stand for all: requests go to the least loaded of them."""
    request_rps: float
    """Requests of those [requests/s]."""
    variation_ratio: float
    """Standard deviation of the gaps between those requests / their mean."""
    num_under_way: int
    """Requests in those replicas as a run starts."""
    times: SimulatedTimes
    """Times of requests."""
    num_in_flight: SimulatedFigure
    """Requests in those replicas."""
    busy_ratio: SimulatedFigure
    """Share of the time in which their engines run steps."""
    objectives: list[ObjectiveMargin]
    """Each objective of the request that is not held as measured."""
    holds: bool
    """Whether every one holds, and the replicas keep up."""


class SimulatedCapacity(Value):
    """How many replicas hold the objectives by simulation, before redundancy, and what that rests on."""

    balancing: Splitting
    """How requests are shared out among replicas."""
    seeds: list[int]
    """Runs of each size."""
    num_requests: int
    """Requests of one run that arrive."""
    warm_up_ratio: float
    """Share of a run that is left out of the figures."""
    num_requests_simulated: int
    """Of all runs of all sizes, those under way at the start included."""
    simulated_s: float
    """Time that passed in those runs, without their warm-up [s]."""
    replicas: int | None
    """Fewest replicas that hold; None where no number does. Where they would take too long to simulate, as many as other limits need."""
    replicas_exact: SimulatedFigure | None
    """Where the objectives are just held; low and high as sure as the intervals of the percentiles are. None where smaller fleets would
    take too long to simulate."""
    replicas_approximated_ratio: float | None
    """Replicas by the approximation of the percentiles / replicas_exact; None where either has none."""
    most_request_rps: float | None
    """About the rate at which `replicas` just hold [requests/s]."""
    headroom_ratio: float | None
    """most_request_rps / the peak - 1."""
    needed: SimulatedSize | None
    """The fleet of `replicas`; where no number holds, one replica with next to nothing to do."""
    fewer: SimulatedSize | None
    """The next smaller fleet that was looked at, which does not hold: one replica less, but of more than 50 up to 2 % less."""
    all_serving: SimulatedSize | None
    """The fleet with redundancy and spare replicas; None where it is not sized, or more crowded than runs of this length show."""
    one_lost: SimulatedSize | None
    """The same with one replica lost, once its requests are spread; None of a single replica."""


@dataclass(frozen=True)
class Simulated:
    """A search with the trials that it made."""

    trials: Trials
    found: FoundSize

    def expected(self, speed: ReplicaSpeed, replicas: int) -> ExpectedLatency | None:
        """Times at a size with their ranges: simulated, x what measurements were over predictions; None where something is missing.

        low = lower end of the interval over the seeds x 10th percentile of measured / predicted, high accordingly.
        """
        trial = self.trials.judged(float(replicas))
        known: dict[str, PercentileIntervals] = {name: getattr(trial.result.times, name) for name in ("ttft", "tpot", "e2e")}
        if math.isinf(trial.strain) or None in known.values():
            return None
        performance = speed.performance
        bands = [performance.model.band(performance.step_class, name) for name in ("ttft", "tpot")]
        (first_low, first_high), (low, high) = ((band.low_ratio, band.high_ratio) for band in bands)
        first = min(1.0, known["ttft"].mean.mean / known["e2e"].mean.mean)
        ratios = {
            "ttft": (first_low, first_high),
            "tpot": (low, high),
            "e2e": (first * first_low + (1 - first) * low, first * first_high + (1 - first) * high),
        }
        times = {name: _expected_time(known[name], *ratios[name]) for name in known}
        objectives = []
        for each in trial.objectives:
            name, level, _ = each.name.split("_")
            at: Estimate = getattr(times[name], f"{level}_s")
            objectives.append(
                ExpectedObjective(
                    name=f"{name}_{level}",
                    limit_s=each.limit_s,
                    expected_s=at.value,
                    holds=at.value <= each.limit_s,
                    holds_at_high=at.high <= each.limit_s,
                )
            )
        return ExpectedLatency(
            request_rps=trial.scenario.arrivals.request_rps / trial.scenario.num_replicas,
            concurrency=trial.result.num_in_flight.mean / trial.scenario.num_replicas,
            **times,
            basis=speed.basis,
            percentile_basis=speed.basis,
            percentiles="simulated",
            objectives=objectives,
        )

    def _size(self, replicas: int) -> SimulatedSize | None:
        trials, size = self.trials, float(replicas)
        was_simulated = (size, trials.scenario.seeds[-1]) in trials.runs
        return size_of(trials.judged(size)) if replicas and (was_simulated or trials.is_long_enough(size)) else None

    def answer(self, approximated: float | None, replicas: int | None) -> SimulatedCapacity:
        """The block of the answer; `approximated` is what the closed form needs, `replicas` the fleet with its reserve."""
        trials, found = self.trials, self.found
        needed = found.needed or found.idle
        all_serving, one_lost = (self._size(each) for each in ((replicas, replicas - 1) if replicas is not None else (0, 0)))
        runs, exact = trials.runs.values(), found.replicas_exact
        demand = trials.scenario.arrivals.request_rps
        if found.is_upper:
            exact = None
        most = None if exact is None or found.needed is None else found.needed.num_replicas / exact * demand
        return SimulatedCapacity(
            balancing=trials.balancing,
            seeds=list(trials.scenario.seeds),
            num_requests=trials.scenario.num_requests or 0,
            warm_up_ratio=trials.scenario.warm_up_ratio,
            num_requests_simulated=sum(run.num_arrivals for run in runs),
            simulated_s=math.fsum(run.measured_s for run in runs),
            replicas=None if found.needed is None else ceil(found.needed.num_replicas),
            replicas_exact=_exact_figure(found),
            replicas_approximated_ratio=None if exact is None or approximated is None else approximated / exact,
            most_request_rps=most,
            headroom_ratio=None if most is None else most / demand - 1,
            needed=None if needed is None else size_of(needed),
            fewer=None if found.fewer is None else size_of(found.fewer),
            all_serving=all_serving,
            one_lost=one_lost,
        )


def _expected_time(found: PercentileIntervals, low_ratio: float, high_ratio: float) -> ExpectedTime:
    def estimate(of: SimulatedFigure) -> Estimate:
        low, high = (of.value if end is None else end for end in (of.low, of.high))
        return Estimate(value=of.value, low=low * low_ratio, high=high * high_ratio)

    mean, p95, p99 = (estimate(figure(getattr(found, which))) for which in ("mean", "p95", "p99"))
    return ExpectedTime(mean_s=mean, p95_s=p95, p99_s=p99)


def _exact_figure(found: FoundSize) -> SimulatedFigure | None:
    """replicas x ((mean +- half the interval) / mean)^(1 / elasticity), of the objective that is closest."""
    if found.replicas_exact is None or found.needed is None or found.is_upper:
        return None
    known = [each.found for each in found.needed.objectives if each.found is not None]
    at = found.needed.objectives
    closest = max(at, key=lambda each: 0.0 if each.found is None else each.found.value / each.limit_s, default=None)
    if not known or closest is None or closest.found is None or closest.found.low is None or closest.found.high is None:
        return SimulatedFigure(value=found.replicas_exact, low=None, high=None)
    value = closest.found.value or math.inf
    low, high = ((end / value) ** (1 / found.elasticity) for end in (closest.found.low, closest.found.high))
    return SimulatedFigure(value=found.replicas_exact, low=found.replicas_exact * low, high=found.replicas_exact * high)


def size_of(trial: Trial) -> SimulatedSize:
    """A trial as it is answered."""
    rows = []
    for each in trial.objectives:
        value = None if each.found is None else each.found.value
        margin = None if value is None else 1 - value / each.limit_s
        rows.append(ObjectiveMargin(**dict(each), holds=each.is_within, margin_ratio=margin))
    return SimulatedSize(
        replicas=ceil(trial.num_replicas),
        num_simulated_replicas=trial.scenario.num_replicas,
        request_rps=trial.scenario.arrivals.request_rps,
        variation_ratio=trial.scenario.arrivals.variation_ratio,
        num_under_way=trial.scenario.arrivals.num_under_way,
        times=times_of(trial.result.times),
        num_in_flight=figure(trial.result.num_in_flight),
        busy_ratio=figure(trial.result.busy_ratio),
        objectives=rows,
        holds=trial.holds,
    )


def simulated_steps(simulated: Simulated, basis: Basis) -> Iterator[Step]:
    """The working: each percentile of the fleet that is needed, and the line on which the replicas lie."""
    found, demand = simulated.found, simulated.trials.scenario.arrivals.request_rps
    needed = found.needed
    if needed is None or found.replicas_exact is None:
        return
    for each in needed.objectives:
        time, level, _ = each.name.split("_")
        runs = [getattr(getattr(run.times, time), level) for run in needed.result.runs if getattr(run.times, time) is not None]
        if each.found is not None and runs:
            terms = f"({' + '.join(map(plain, runs))}) / {len(runs)}"
            yield step(f"simulated_{each.name}", "sum over seeds / seeds", terms, each.found.value, "s", SOURCE, basis=basis)
    line = found.line
    if line is not None and line.low is not None and line.high is not None:
        low, high = line.low, line.high
        sizes = f"{plain(low.num_replicas)} x ({plain(high.num_replicas)} / {plain(low.num_replicas)})"
        yield step(
            "replicas_within_objectives",
            "fewer x (enough / fewer)^(ln strain_fewer / ln(strain_fewer / strain_enough)), strain = largest percentile / objective",
            f"{sizes}^(ln({plain(low.strain)}) / ln({plain(low.strain)} / {plain(high.strain)}))",
            found.replicas_exact, "replicas", "the logarithm of the strain as a line in that of the replicas", basis=basis,
        )  # fmt: skip
    yield step(
        "slo_per_replica", "request_rps / replicas that just hold the objectives", f"{plain(demand)} / {plain(found.replicas_exact)}",
        demand / found.replicas_exact, "requests/s", SOURCE, basis=basis,
    )  # fmt: skip


def simulated_notes(simulated: Simulated) -> list[Note]:
    """What was simulated, as an assumption."""
    trials = simulated.trials
    shared = {
        "least_loaded": f"to the least loaded (groups of up to {trials.group} replicas take turns)",
        "round_robin": "in turn (round robin)",
        "random": "at random",
    }[trials.balancing]
    which = f"up to {trials.group} replicas of each fleet are" if trials.group > 1 else "one replica of each fleet is"
    message = (
        f"Percentiles are simulated: requests arrive at random (Poisson), a balancer sends them {shared}, and {which} "
        f"stepped through {len(trials.scenario.seeds)} runs of {trials.scenario.num_requests} requests."
    )
    variants = "prefix_cache_effect and pools are approximated, so that their rows compare with each other: `percentiles` says more."
    return [Note(code="percentiles_simulated", message=message), Note(code="variants_approximated", message=variants)]


def simulated_warnings(answer: SimulatedCapacity) -> list[Note]:
    """What is not sure about the size by simulation."""
    exact, needed = answer.replicas_exact, answer.needed
    notes = []
    unsure = [each for each in needed.objectives if each.verdict == "unsure"] if needed is not None and answer.replicas is not None else []
    if unsure and exact is not None and exact.low is not None and exact.high is not None:
        names = " and ".join(each.name.removesuffix("_s") for each in unsure)
        message = (
            f"The interval of {names} at {answer.replicas} replicas contains the objective: {_number(exact.low)} to {_number(exact.high)} "
            "replicas just hold it. POST /simulate with more seeds narrows that."
        )
        notes.append(Note(code="objectives_within_the_interval", message=message))
    lost = answer.one_lost
    if lost is not None and answer.replicas is not None and not lost.holds:
        missed = [each for each in lost.objectives if not each.holds]
        listed = ", ".join(f"{each.name.removesuffix('_s')} {_found(each)} of {seconds(each.limit_s)}" for each in missed)
        message = f"With one replica lost at the peak, {lost.replicas} do not hold the objectives{': ' * bool(listed)}{listed}."
        notes.append(Note(code="one_lost_misses_objectives", message=message))
    return notes


def _found(each: SimulatedObjective) -> str:
    return "nothing finished" if each.found is None else seconds(each.found.value)


def _number(replicas: float) -> str:
    return f"{replicas:.3g}"
