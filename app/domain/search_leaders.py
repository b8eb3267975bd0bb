"""What a search has found so far: the cheapest deployments, and those that nothing else beats in every respect."""

import bisect
import math
from dataclasses import dataclass, field
from typing import NamedTuple

from app.domain.performance import Performance
from app.domain.search_space import Family

LIKE_RATIO = 1.1
"""Figures within one step of this ratio count as equal on the front: the estimates are far less sure than that."""


class Objectives(NamedTuple):
    """What is compared, less is better."""

    usd_per_hour: float
    """Price of the fleet [USD/hour]."""
    usd_per_hour_in_use: float
    """Price of the share of it that the traffic needs: at one price the smaller leaves more headroom [USD/hour]."""
    ttft_s: float
    """Expected time to the first token [s]."""
    tpot_s: float
    """Expected time per output token [s]."""

    @property
    def steps(self) -> tuple[int, ...]:
        """The figures in steps of LIKE_RATIO: floor(log(figure) / log(LIKE_RATIO))."""
        return tuple(math.floor(math.log(figure) / math.log(LIKE_RATIO)) for figure in self)


class Outcome(NamedTuple):
    """A fleet that holds the objectives, or the best that it could be."""

    replicas_exact: float
    """Replicas of the binding constraint, before rounding and redundancy."""
    replicas: int
    ttft_s: float
    tpot_s: float

    def objectives(self, usd_per_replica_hour: float) -> Objectives:
        """What is compared of it at a price."""
        return Objectives(self.replicas * usd_per_replica_hour, self.replicas_exact * usd_per_replica_hour, self.ttft_s, self.tpot_s)


class Candidate(NamedTuple):
    """A deployment that holds the objectives."""

    objectives: Objectives
    rank: int
    """Place in the order of the search, which decides between equals."""
    family: Family
    performance: Performance
    """The deployment with its settings."""
    outcome: Outcome

    @property
    def key(self) -> tuple[float, ...]:
        """Order of the cheapest: price, price of the share in use, TTFT, TPOT, rank."""
        return (*self.objectives, self.rank)


class _Standing(NamedTuple):
    steps: tuple[int, ...]
    key: tuple[float, ...]
    candidate: Candidate


@dataclass
class Leaders:
    """The `num_cheapest` cheapest, the best of each family, and the front. What they are does not depend on the order of adding."""

    num_cheapest: int
    _cheapest: list[tuple[tuple[float, ...], Candidate]] = field(default_factory=list)
    _front: list[_Standing] = field(default_factory=list)

    @property
    def cheapest(self) -> list[Candidate]:
        """The cheapest first."""
        return [candidate for _, candidate in self._cheapest]

    @property
    def front(self) -> list[Candidate]:
        """Those that no other is at least as good as in every objective, the cheapest first."""
        return [standing.candidate for standing in sorted(self._front, key=lambda standing: standing.key)]

    def beats(self, family: Family, best: Objectives, rank: int) -> bool:
        """Whether a candidate whose objectives are nowhere below `best` can change neither list."""
        key = (*best, rank)
        return key > self._to_beat(family) and self._is_behind(best.steps, key)

    def most_usd_per_hour(self, family: Family, best: Objectives) -> float:
        """The most that a candidate may cost whose other objectives are nowhere below `best`, and change a list; infinite without limit."""
        steps = best.steps[1:]
        ahead = (
            standing.candidate.objectives.usd_per_hour
            for standing in self._front
            if all(one <= other for one, other in zip(standing.steps[1:], steps, strict=True))
        )
        return max(self._to_beat(family)[0], min(ahead, default=math.inf))

    def in_use_behind(self, best: Objectives) -> float:
        """A share in use that puts a candidate behind the front whose other objectives are nowhere below `best`; infinite without one."""
        usd, _, ttft, tpot = best.steps
        ahead = (
            standing.candidate.objectives.usd_per_hour_in_use
            for standing in self._front
            if standing.steps[0] <= usd and standing.steps[2] <= ttft and standing.steps[3] <= tpot
        )
        return LIKE_RATIO * min(ahead, default=math.inf)

    def add(self, candidate: Candidate) -> None:
        """Take a candidate into the lists that it belongs to."""
        key, steps = candidate.key, candidate.objectives.steps
        if key < self._to_beat(candidate.family):
            self._cheapest = [entry for entry in self._cheapest if entry[1].family is not candidate.family]
            bisect.insort(self._cheapest, (key, candidate), key=lambda entry: entry[0])
            del self._cheapest[self.num_cheapest :]
        if not self._is_behind(steps, key):
            self._front = [standing for standing in self._front if not _is_ahead(steps, key, standing.steps, standing.key)]
            self._front.append(_Standing(steps, key, candidate))

    def _to_beat(self, family: Family) -> tuple[float, ...]:
        for key, candidate in self._cheapest:
            if candidate.family is family:
                return key
        return self._cheapest[-1][0] if len(self._cheapest) >= self.num_cheapest else (math.inf,)

    def _is_behind(self, steps: tuple[int, ...], key: tuple[float, ...]) -> bool:
        return any(_is_ahead(standing.steps, standing.key, steps, key) for standing in self._front)


def _is_ahead(steps: tuple[int, ...], key: tuple[float, ...], other_steps: tuple[int, ...], other_key: tuple[float, ...]) -> bool:
    """Nowhere a step worse, and somewhere better or, in equal steps, before the other in the order of the cheapest."""
    return all(one <= other for one, other in zip(steps, other_steps, strict=True)) and (steps != other_steps or key < other_key)
