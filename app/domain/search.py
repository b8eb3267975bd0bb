"""The cheapest deployments that hold the objectives: branch and bound over families of deployments."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from app.domain.errors import InvalidInput, MissingFigure
from app.domain.performance import Performance
from app.domain.replica_speed import TOLERANCE
from app.domain.search_leaders import Candidate, Leaders, Objectives, Outcome
from app.domain.search_space import Family, Reason, Refusals, Setting, Space

Result = TypeVar("Result")
CLOSE_RATIO = 0.1
"""Numbers of replicas this close to each other are not told apart by bounds."""
MARGIN_RATIO = 1 + 2 * TOLERANCE
"""Bounds keep this far from figures that are found by iteration."""
MOST_REPLICAS = 1e9
"""Of fleets beyond this nothing is bounded."""


class Miss(NamedTuple):
    """Why no number of replicas holds the objectives."""

    reason: Reason
    why: str


class Judge(Protocol):
    """What decides about a candidate. All raise MissingFigure and InvalidInput where a deployment cannot be computed."""

    def best(self, family: Family) -> Outcome | Miss:
        """Bounds: nowhere above what `assess` finds for any setting of the family; a miss where that is one for all settings."""

    def perform(self, family: Family, setting: Setting) -> Performance:
        """The deployment with the fit of its memory and the times of its steps."""

    def with_budget(self, performance: Performance, setting: Setting) -> Performance:
        """The deployment with the token budget of a setting, and the memory that it has."""

    def times(self, performance: Performance, replicas: int) -> tuple[float, float] | None:
        """Nowhere above the expected TTFT and TPOT with so many replicas [s]; None where `assess` may find that more are needed."""

    def least_exact(self, replicas: int) -> float:
        """What `replicas_exact` of a fleet of so many replicas is above."""

    def needs_more(self, performance: Performance, exact: float) -> bool:
        """Whether `replicas_exact` is surely above; it may be where this says False."""

    def assess(self, performance: Performance) -> Outcome | Miss:
        """The fewest replicas that hold the objectives."""


@dataclass
class Progress:
    """How far a search has come; another thread may read it, and set `cancelled`."""

    num_candidates: int = 0
    num_decided: int = 0
    cancelled: bool = False


@dataclass
class Found:
    """What a search found, and what became of every candidate."""

    leaders: Leaders
    refusals: Refusals = field(default_factory=Refusals)
    num_candidates: int = 0
    num_held: int = 0
    """Candidates that hold the objectives, computed to the end."""
    num_beaten: int = 0
    """Candidates of which bounds show that they can be neither among the cheapest nor on the front."""
    num_computed: int = 0
    """Candidates that were computed to the end, whether they hold the objectives or not."""

    @property
    def num_decided(self) -> int:
        """Candidates of which it is known what became of them."""
        return self.num_held + self.num_beaten + sum(self.refusals.counts.values())

    @property
    def complete(self) -> bool:
        """Whether every candidate was decided."""
        return self.num_decided == self.num_candidates


class _Bounded(NamedTuple):
    """A family with the best that it can be."""

    objectives: Objectives
    rank: int
    family: Family
    best: Outcome


@dataclass
class Search:
    """One search."""

    space: Space
    judge: Judge
    leaders: Leaders
    progress: Progress = field(default_factory=Progress)
    out_of_time: Callable[[], bool] = lambda: False
    uses_bounds: bool = True
    """False computes what bounds would decide, to test them."""

    def run(self) -> Found:
        """Search until everything is decided, the time is over or the search is cancelled.

        Families are bounded first, then computed in the order of their bounds, so that the first found beat most of the others.
        """
        found = Found(self.leaders, num_candidates=self.space.num_candidates)
        self.progress.num_candidates = found.num_candidates
        families: list[_Bounded] = []
        for number, family in enumerate(self.space.families(found.refusals)):
            if self._is_over(found):
                return found
            best = self._unless_refused(partial(self.judge.best, family), family, len(self.space.settings), found)
            if best is not None:
                objectives = best.objectives(family.usd_per_replica_hour)
                families.append(_Bounded(objectives, number * len(self.space.settings), family, best))
        for bounded in sorted(families, key=lambda one: one[:2]):
            if self._is_over(found):
                return found
            if self.uses_bounds and self.leaders.beats(bounded.family, bounded.objectives, bounded.rank):
                found.num_beaten += len(self.space.settings)
            else:
                self._compute_family(bounded, found)
        self.progress.num_decided = found.num_decided
        return found

    def _is_over(self, found: Found) -> bool:
        self.progress.num_decided = found.num_decided
        return self.progress.cancelled or self.out_of_time()

    def _compute_family(self, bounded: _Bounded, found: Found) -> None:
        """Every setting of a family: smaller budgets first, which take less memory, and of one budget those with most places first.

        A limit below the places that another setting has only makes requests wait: it is counted without being computed. A larger budget
        is bounded by the memory of the smallest.
        """
        family, easiest = bounded.family, None
        ranked = sorted(enumerate(self.space.settings), key=lambda one: (one[1].max_num_batched_tokens, -one[1].max_num_seqs))
        budgets = [list(group) for _, group in itertools.groupby(ranked, key=lambda one: one[1].max_num_batched_tokens)]
        for position, budget in enumerate(budgets):
            places = 0.0
            if easiest is not None and self.uses_bounds:
                first = bounded.rank + min(number for number, _ in budget)
                if self._is_beaten(bounded, self.judge.with_budget(easiest, budget[0][1]), first):
                    found.num_beaten += len(budget)
                    continue
            for number, setting in budget:
                if setting.max_num_seqs * family.deployment.dp <= places:
                    found.refusals.add("fewer_places", 1, partial(_fewer_places, family, setting))
                    continue
                performance = self._unless_refused(partial(self._started, family, setting), family, 1, found)
                if performance is not None:
                    places = performance.places
                    easiest = easiest or performance
                    self._compute(bounded, performance, bounded.rank + number, found)
            if easiest is None:
                left = sum(map(len, budgets[position + 1 :]))
                found.refusals.add("does_not_fit", left, lambda: f"{family.name}: no setting leaves enough memory")
                return

    def _started(self, family: Family, setting: Setting) -> Performance | Miss:
        performance = self.judge.perform(family, setting)
        fit = performance.found
        if fit.verdict == "serves" and performance.places >= 1:
            return performance
        return Miss("max_model_len" if fit.limiting == "max_model_len" else "does_not_fit", f"{fit.verdict}, limited by {fit.limiting}")

    def _compute(self, bounded: _Bounded, performance: Performance, rank: int, found: Found) -> None:
        family = bounded.family
        if self.uses_bounds and self._is_beaten(bounded, performance, rank):
            found.num_beaten += 1
            return
        found.num_computed += 1
        outcome = self._unless_refused(partial(self.judge.assess, performance), family, 1, found)
        if outcome is not None:
            found.num_held += 1
            objectives = outcome.objectives(family.usd_per_replica_hour)
            self.leaders.add(Candidate(objectives, rank, family, performance, outcome))

    def _is_beaten(self, bounded: _Bounded, performance: Performance, rank: int) -> bool:
        """Whether a candidate can change no list, from two numbers of replicas between which its own lies.

        Its price is at least that of the smaller, its times are at least those with the larger, for they fall with the replicas. Looked for
        by doubling, then by halving until the candidate is beaten or the two are close.
        """
        family, unit, low = bounded.family, bounded.family.usd_per_replica_hour, bounded.best.replicas
        most = self.leaders.most_usd_per_hour(family, bounded.objectives) / unit
        end, high, least = 2 * low, 0, (0.0, 0.0)
        while low <= min(most, MOST_REPLICAS):
            times = self.judge.times(performance, end)
            if times is None:
                low = end
            else:
                high, least = end, times
            if high:
                exact = max(bounded.best.replicas_exact, self.judge.least_exact(low))
                objectives = Outcome(exact, low, *least).objectives(unit)
                if self.leaders.beats(family, objectives, rank):
                    return True
                if high - low <= max(1, CLOSE_RATIO * low):
                    return self._uses_too_much(family, performance, objectives, rank)
            end = (low + high) // 2 if high else 2 * low
        return low > most

    def _uses_too_much(self, family: Family, performance: Performance, best: Objectives, rank: int) -> bool:
        """Whether a candidate changes no list because the traffic needs more of its replicas than `best` says.

        Few requests need few replicas by their work alone, and ten times as many by the objectives.
        """
        beaten = best._replace(usd_per_hour_in_use=self.leaders.in_use_behind(best))
        if not math.isfinite(beaten.usd_per_hour_in_use) or not self.leaders.beats(family, beaten, rank):
            return False
        return self.judge.needs_more(performance, beaten.usd_per_hour_in_use / family.usd_per_replica_hour)

    def _unless_refused(self, compute: "Callable[[], Result | Miss]", family: Family, num_candidates: int, found: Found) -> "Result | None":
        """What is computed; None where it is a miss, as which `num_candidates` are then counted."""
        try:
            result = compute()
        except MissingFigure as error:
            result = Miss("figure_missing", error.detail)
        except InvalidInput as error:
            result = Miss("layout_impossible", error.detail)
        if not isinstance(result, Miss):
            return result
        miss = result
        found.refusals.add(miss.reason, num_candidates, lambda: f"{family.name}: {miss.why}")
        return None


def _fewer_places(family: Family, setting: Setting) -> str:
    return f"{family.name}: max_num_seqs {setting.max_num_seqs} only makes requests wait, its cache holds more"
