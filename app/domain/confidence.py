"""How sure a finding is. Judged weights, not calibrated ones: they order causes, they are no frequencies."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from app.domain.provenance import Step
from app.domain.units import plain

HELD_STEP = 0.2
"""Log-odds that each further line of evidence adds to the first."""
SUPPORTED_STEP = 0.6
"""Log-odds that each supporting observation adds."""
UNSUPPORTED_STEP = -0.4
"""Log-odds that each supporting observation takes which was looked for and is not there."""
RULED_OUT_STEP = 0.3
"""Log-odds that each objection adds which was measured and does not hold."""
UNMEASURED_STEP = -0.2
"""Log-odds that each objection takes which could not be measured, up to MOST_UNMEASURED of them."""
MOST_UNMEASURED = 3
"""Objections that are counted as unmeasured at most: a rule that names more rivals is no less probable for it."""
CONTRADICTED_STEP = -1.5
"""Log-odds that each objection takes which holds; it turns even odds into 18 %."""
EXPLAINED_STEP = -1.2
"""Log-odds that a finding takes, once, beside a probable one that would make its rule fire as well."""
WEAK_STEP = -0.7
"""Log-odds that a line of evidence takes whose metric reads high without useful work."""
PRESUMED_STEP = -0.4
"""Log-odds that it takes, once, when no symptom that it is a cause of was seen, and most were not measured."""
DEFAULT_STEP = -0.3
"""Log-odds that it takes, once, when a latency was judged by the default objective for lack of SLO, baseline and expectation, and does
not exceed it so far that any other would be missed as well."""
CONFIDENCE_BOUNDS = (0.02, 0.95)
"""Metrics alone neither prove nor exclude a cause."""
UNEXAMINED_BOUND = 0.69
"""Most confidence while more of what tells the cause from its rivals is unknown than known."""
SUSPECTED_BOUND = 0.55
"""Most confidence in what it usually is, while nothing that would show it was measured."""


@dataclass(frozen=True)
class Weighing:
    """The evidence for and against one finding, counted. Evidence that says the same thing twice is counted twice."""

    prior_ratio: float
    """Probability of the cause when its rule fires and nothing else is known; between 0 and 1, both excluded."""
    num_held: int
    """Comparisons that hold and make the rule fire."""
    num_weak: int
    """Those of them whose metric proves little."""
    num_supported: int
    """Supporting observations that hold."""
    num_unsupported: int
    """Supporting observations that were measured and do not hold."""
    num_ruled_out: int
    """Objections that were measured and do not hold."""
    num_unmeasured: int
    """Objections that could not be examined."""
    num_contradicted: int
    """Objections that hold."""
    num_unknown_support: int
    """Supporting observations that could not be measured."""
    explained: bool
    """Whether another finding, more probable than not, explains this one away."""
    by_default: bool
    """Whether a latency was judged by the default objective and is not far from it."""
    presumed: bool = False
    """Whether no symptom of the cause was seen, and most of them were not measured."""
    suspected: bool = False
    """Whether nothing that would show the cause itself was measured."""

    def log_odds(self) -> float:
        """Log-odds of the cause: those of the prior plus a fixed step for each piece of evidence.

        logit(prior) + 0.2 max(held - weak - 1, 0) + 0.6 supported - 0.4 unsupported + 0.3 ruled out - 0.2 min(unmeasured, 3)
        - 1.5 contradicted - 1.2 [explained] - 0.7 weak - 0.3 [by default] - 0.4 [presumed].
        Monotone: support never lowers it, and an objection that holds lowers it more than one that could not be measured.
        """
        return math.log(self.prior_ratio / (1 - self.prior_ratio)) + sum(weight * number for weight, _, number in self._terms())

    def confidence_ratio(self) -> float:
        """Probability of the cause, 1 / (1 + exp(-log_odds)) kept within `bounds` [ratio].

        >>> counts = dict.fromkeys(("num_weak", "num_unsupported", "num_unmeasured", "num_contradicted", "num_unknown_support"), 0)
        >>> weighing = Weighing(0.6, num_held=3, num_supported=0, num_ruled_out=1, explained=False, by_default=False, **counts)
        >>> round(weighing.confidence_ratio(), 3)
        0.751
        """
        low, high = self.bounds
        # The exponential overflows far outside the bounds.
        return min(max(1 / (1 + math.exp(-min(max(self.log_odds(), -50.0), 50.0))), low), high)

    @property
    def bounds(self) -> tuple[float, float]:
        """Least and most confidence: UNEXAMINED_BOUND at most while more discriminating observations are unknown than known, and
        SUSPECTED_BOUND at most of a suspicion."""
        low, high = CONFIDENCE_BOUNDS
        known = self.num_supported + self.num_unsupported + self.num_ruled_out + self.num_contradicted
        unknown = self.num_unmeasured + self.num_unknown_support
        return low, SUSPECTED_BOUND if self.suspected else UNEXAMINED_BOUND if unknown > known else high

    @property
    def _further(self) -> int:
        return max(self.num_held - self.num_weak - 1, 0)

    def step(self, rule: str) -> Step:
        """The working of the confidence of a rule's finding."""
        low, high = self.bounds
        symbols, numbers = zip(*(_written(*term) for term in self._terms()), strict=True)
        return Step(
            name=f"confidence_ratio of {rule}",
            formula=f"1 / (1 + exp(-x)) within {low:g} to {high:g}, x = ln(prior / (1 - prior)) {' '.join(symbols)}",
            substituted=f"x = ln({plain(self.prior_ratio)} / {1 - self.prior_ratio:.4g}) {' '.join(numbers)} = {self.log_odds():.4g}",
            value=self.confidence_ratio(),
            unit="ratio",
            basis="assumed",
            source="weights of evidence of Inferplan: judged, not calibrated",
        )

    def _terms(self) -> Iterator[tuple[float, str, int]]:
        yield HELD_STEP, "max(held - weak - 1, 0)", self._further
        yield SUPPORTED_STEP, "supported", self.num_supported
        yield UNSUPPORTED_STEP, "unsupported", self.num_unsupported
        yield RULED_OUT_STEP, "ruled_out", self.num_ruled_out
        yield UNMEASURED_STEP, f"min(unmeasured, {MOST_UNMEASURED})", min(self.num_unmeasured, MOST_UNMEASURED)
        yield CONTRADICTED_STEP, "contradicted", self.num_contradicted
        yield EXPLAINED_STEP, "explained", int(self.explained)
        yield WEAK_STEP, "weak", self.num_weak
        yield DEFAULT_STEP, "judged_by_default", int(self.by_default)
        yield PRESUMED_STEP, "presumed", int(self.presumed)


def _written(weight: float, symbol: str, number: int) -> tuple[str, str]:
    sign = "+" if weight > 0 else "-"
    return f"{sign} {abs(weight):g} {symbol}", f"{sign} {abs(weight):g} x {number}"
