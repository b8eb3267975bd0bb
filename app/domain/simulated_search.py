"""How many replicas hold percentiles, found by simulating a few replicas of fleets of different sizes."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from app.domain.rounding import ceil
from app.domain.simulation import Run, SimulationResult, gathered
from app.domain.simulation_answer import SimulatedObjective, objectives_of
from app.domain.simulation_requests import Arrivals
from app.domain.simulation_scenario import Scenario
from app.domain.units import exact
from app.domain.workload import Slo

Splitting = Literal["least_loaded", "round_robin", "random"]
BALANCER: Literal["least_loaded"] = "least_loaded"
"""Among those that are simulated together; a single one has no choice."""
LEAST_VARIATION = 0.01
"""A steadier pace is none that `/simulate` tells from a constant one."""
STEADY_RATIO = 0.9
"""A replica that ends a smaller share of what arrives does not keep up."""
FEW_SEEDS = 1
"""Runs of each size while sizes are far apart: all of them decide between the last ones."""
MOST_SIZES, MOST_JUDGED = 10, 6
"""Sizes that are looked at with few runs, and with all; a search ends earlier as a rule."""
ELASTICITY = 2.0
"""Percentiles fall about so many times as fast as replicas grow, until two sizes tell."""
LEAST_ELASTICITY, MOST_ELASTICITY = 0.5, 8.0
GROWTH = 2.0
"""Largest step to another size."""
OVERSHOOT_RATIO = 0.05
"""By which a step goes further than the slope says: the other side of the objective is what is looked for."""
FAILED_GROWTHS = 4
"""Sizes that fail before an idle replica is asked whether any can hold."""
NARROW_RATIO = 0.02
"""Large fleets are found to this share of their replicas, small ones to one replica."""
FRACTION_RATIO = 0.2
"""The load of a single replica that just holds is found to this share."""
WIDE_RATIO = 1.25
"""Where one replica is a larger step than this, a load in between is looked at, too."""


@dataclass(frozen=True)
class Trial:
    """A fleet of one size."""

    num_replicas: float
    """Below 1: a single replica with 1 / num_replicas times the traffic."""
    scenario: Scenario
    """Those of its replicas that are simulated, with their share of the requests."""
    result: SimulationResult
    objectives: list[SimulatedObjective]
    strain: float
    """Largest percentile / its limit; infinite where requests are lost or outrun the replica."""

    @property
    def holds(self) -> bool:
        """Whether every percentile is within its limit: the means over the seeds, of which `objectives` says how sure they are."""
        return self.strain <= 1


@dataclass
class Trials:
    """Some replicas of fleets of different sizes, each seed of each size run once.

    Requests that go in turn to n / m groups of m replicas leave one group gaps that are the sum of n / m: of gamma gaps, gamma gaps with
    n / m times the shape (https://www.itl.nist.gov/div898/handbook/eda/section3/eda366b.htm), a coefficient of variation less by the root
    of it. Random choice leaves Poisson arrivals Poisson (https://doi.org/10.1002/9781119453765). So one group stands for all of them: for
    round robin and random choice a single replica, and exactly; for the least loaded `group` replicas, which all n do no worse than.
    """

    scenario: Scenario
    """A replica with all requests of the fleet: lengths, length of a run, seeds."""
    slo: Slo
    balancing: Splitting
    group: int
    """Replicas that share their requests by load, at most."""
    under_way: Callable[[float], float]
    """Requests in one replica at a rate, about: a run starts with them."""
    most_under_way: float
    """For which runs are long enough, in one replica: a more crowded size starts with so many, and may end before it is full."""
    run: Callable[[Scenario, int], Run]
    """Runs a seed; may raise to end the search."""
    runs: dict[tuple[float, int], Run] = field(default_factory=dict)

    def at(self, num_replicas: float, num_seeds: int) -> Trial:
        """The fleet at a size, by the first seeds."""
        scenario = self.part(num_replicas)
        for seed in self.scenario.seeds[:num_seeds]:
            if (num_replicas, seed) not in self.runs:
                self.runs[num_replicas, seed] = self.run(scenario, seed)
        result = gathered([self.runs[num_replicas, seed] for seed in self.scenario.seeds[:num_seeds]])
        objectives = objectives_of(self.slo, result)
        return Trial(num_replicas, scenario, result, objectives, strain_of(scenario.arrivals, result, objectives))

    def is_long_enough(self, num_replicas: float) -> bool:
        """Whether runs show what so many replicas come to."""
        return self.under_way(self.scenario.arrivals.request_rps / num_replicas) <= self.most_under_way

    def judged(self, num_replicas: float) -> Trial:
        """The fleet at a size, by all seeds."""
        return self.at(num_replicas, len(self.scenario.seeds))

    def part(self, num_replicas: float) -> Scenario:
        """The replicas that stand for so many, with what they get."""
        whole, together = self.scenario.arrivals, 1
        if self.balancing == "least_loaded":
            together = max(1, min(self.group, math.floor(num_replicas)))
        share, variation = together / num_replicas, whole.variation_ratio
        if self.balancing != "random" and share < 1:
            variation = max(LEAST_VARIATION, variation * math.sqrt(share))
        under_way = round(together * min(self.most_under_way, self.under_way(whole.request_rps / num_replicas)))
        arrivals = Arrivals(exact(whole.request_rps * share), variation, num_under_way=under_way)
        pools = (replace(self.scenario.pools[0], num_replicas=together, balancing=BALANCER),)
        return replace(self.scenario, pools=pools, arrivals=arrivals)


def strain_of(arrivals: Arrivals, result: SimulationResult, objectives: list[SimulatedObjective]) -> float:
    """How far the least kept objective is from its limit: see `Trial.strain`."""
    if result.request_rps.mean < STEADY_RATIO * arrivals.request_rps:
        return math.inf
    strain = 0.0
    for each in objectives:
        if each.verdict == "fails" and (each.found is None or each.is_within):  # too many requests were lost
            return math.inf
        strain = max(strain, 0.0 if each.found is None else each.found.value / each.limit_s)
    return strain


@dataclass(frozen=True)
class FoundSize:
    """The smallest fleet that holds, and its neighbour that does not."""

    needed: Trial | None
    """None where no number of replicas holds."""
    fewer: Trial | None
    """The next smaller fleet that was simulated, which does not hold; None of a single replica."""
    idle: Trial | None
    """A replica with next to nothing to do, where no number of replicas holds."""
    replicas_exact: float | None
    """Between both, where ln strain as a line in ln replicas crosses 0; all of `needed` where no line is known."""
    elasticity: float
    """-d ln strain / d ln replicas."""
    line: "Bracket | None" = None
    """The sizes through which the line goes."""
    is_upper: bool = False
    """Smaller fleets were not looked at: `replicas_exact` is what the closed form says, no more than `needed`."""


@dataclass(frozen=True)
class Bracket:
    """A size that does not hold below one that does."""

    low: Trial | None
    """None where none was found that fails."""
    high: Trial | None
    """None where none holds."""
    elasticity: float

    @property
    def crossing(self) -> float:
        """Replicas at which ln strain, a line in ln replicas, is 0; the middle where an end is infinite."""
        if self.low is None or self.high is None:
            known = self.low or self.high
            assert known is not None  # noqa: S101 - a search looks at one size at least
            return known.num_replicas
        begin, end = math.log(self.low.num_replicas), math.log(self.high.num_replicas)
        if math.isinf(self.low.strain) or self.high.strain <= 0:
            return math.exp((begin + end) / 2)
        over, under = math.log(self.low.strain), math.log(self.high.strain)
        return math.exp(begin + (end - begin) * over / (over - under)) if over > under else self.high.num_replicas

    @property
    def is_narrow(self) -> bool:
        """Whether both are neighbours."""
        if self.low is None or self.high is None:
            return False
        low, high = self.low.num_replicas, self.high.num_replicas
        return high <= low * (1 + FRACTION_RATIO) if high <= 1 else high - low <= max(1.0, NARROW_RATIO * high)

    def next(self) -> float:
        """The size to look at: whole numbers above one replica."""
        if self.low is not None and self.high is not None:
            low, high = self.low.num_replicas, self.high.num_replicas
            if high <= 1:
                narrow = 1 + FRACTION_RATIO / 2
                return min(max(self.crossing, low * narrow), high / narrow)
            return max(min(float(ceil(self.crossing)), high - 1), low + 1 if low >= 1 else 1.0)
        known = self.high or self.low
        assert known is not None  # noqa: S101 - a search looks at one size at least
        size, strain, further = known.num_replicas, known.strain, 1 + OVERSHOOT_RATIO
        factor = GROWTH if math.isinf(strain) else strain ** (1 / self.elasticity) if strain else 1 / GROWTH
        if self.high is None:
            size *= min(factor * further, GROWTH)
            return min(size, 1.0) if known.num_replicas < 1 else max(float(ceil(size)), known.num_replicas + 1)
        size *= max(factor / further, 1 / GROWTH)
        return size if known.num_replicas <= 1 else max(1.0, min(float(ceil(size)), known.num_replicas - 1))


@dataclass(frozen=True)
class Range:
    """Sizes that are worth a look."""

    least: float
    """At which the closed form has the replicas outrun: a run of some minutes need not show it."""
    idle: float
    """At which a replica has next to nothing to do: no larger fleet is faster."""


def bracketed(at: Callable[[float], Trial], first: float, within: Range, elasticity: float, most: int) -> Bracket:
    """Neighbouring sizes of which one holds and one does not: from `first` outwards, then by the line through both ends."""
    tried, least, idle = dict[float, Trial](), whole(within.least), whole(within.idle)
    found, size, failed = Bracket(None, None, elasticity), max(whole(first), least), 0
    for _ in range(most):
        trial = tried[size] = at(size)
        found = replace(found, high=trial) if trial.holds else replace(found, low=trial)
        found = replace(found, elasticity=_elasticity(list(tried.values()), elasticity))
        failed += not trial.holds
        if found.is_narrow or size == (least if trial.holds else idle):
            break
        size = max(found.next(), least)
        if found.high is None and (failed >= FAILED_GROWTHS or size >= idle):
            size = idle
    return found


def whole(size: float) -> float:
    """Replicas in whole numbers; a part of the load of one stays as it is."""
    return float(ceil(size)) if size > 1 else size


def _elasticity(trials: list[Trial], usual: float) -> float:
    """-d ln strain / d ln replicas, between the smallest and the largest size that keep up."""
    known = sorted((each for each in trials if 0 < each.strain < math.inf), key=lambda each: each.num_replicas)
    if len(known) < 2 or known[-1].num_replicas < known[0].num_replicas * (1 + FRACTION_RATIO / 2):
        return usual
    slope = math.log(known[0].strain / known[-1].strain) / math.log(known[-1].num_replicas / known[0].num_replicas)
    return min(max(slope, LEAST_ELASTICITY), MOST_ELASTICITY)


def search(trials: Trials, first: float | None, within: Range, one: float) -> FoundSize:
    """The smallest number of replicas that holds every objective; see `bracketed`.

    From `first`, what the closed form says, with few runs of each size, and from what they say with all. Where it says that none holds, an
    idle replica is asked first; if it does hold, the search begins where each replica has `one` request.
    """
    if first is None:
        idle = whole(within.idle)
        if not trials.at(idle, FEW_SEEDS).holds and not (alone := trials.judged(idle)).holds:
            return FoundSize(None, None, alone, None, ELASTICITY)
        first = one
    roughly = bracketed(lambda size: trials.at(size, FEW_SEEDS), first, within, ELASTICITY, MOST_SIZES)
    begin = roughly.crossing if roughly.high is not None else within.idle
    found = bracketed(trials.judged, begin, within, roughly.elasticity, MOST_JUDGED)
    low, high = found.low, found.high
    if high is None:
        return FoundSize(None, None, low, None, roughly.elasticity)
    needed = high if high.num_replicas > 1 else trials.judged(1.0)
    fewer = low if low is not None and low.num_replicas >= 1 else None
    if low is not None and high.num_replicas > 1 and high.num_replicas > low.num_replicas * WIDE_RATIO and found.is_narrow:
        trial = trials.judged(found.crossing)
        found = replace(found, high=trial) if trial.holds else replace(found, low=trial)
    adjacent = fewer is None or fewer.num_replicas == needed.num_replicas - 1
    if not adjacent or found.low is None or math.isinf(found.low.strain) or found.high is None or not found.high.strain:
        return FoundSize(needed, fewer, None, high.num_replicas, roughly.elasticity)
    return FoundSize(needed, fewer, None, found.crossing, roughly.elasticity, found)
