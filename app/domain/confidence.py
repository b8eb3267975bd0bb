"""How sure a finding is. Judged weights, not calibrated ones: they order causes, they are no frequencies."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from app.domain.provenance import Step
from app.domain.units import plain

HELD_STEP = 0.2
"""Log-odds that each further line of evidence adds to the first."""
RULED_OUT_STEP = 0.3
"""Log-odds that each objection adds which was measured and does not hold."""
UNMEASURED_STEP = -0.3
"""Log-odds that each objection takes which could not be measured; the same once for rival causes that could not be examined."""
CONTRADICTED_STEP = -1.5
"""Log-odds that each objection takes which holds; it turns even odds into 18 %."""
WEAK_STEP = -0.7
"""Log-odds that a line of evidence takes whose metric reads high without useful work."""
DEFAULT_STEP = -0.3
"""Log-odds that it takes, once, when a latency was judged by the default objective for lack of an SLO and a baseline."""
CONFIDENCE_BOUNDS = (0.02, 0.95)
"""Metrics alone neither prove nor exclude a cause."""


@dataclass(frozen=True)
class Weighing:
    """The evidence for and against one finding, counted. Evidence that says the same thing twice is counted twice."""

    prior_ratio: float
    """Probability of the cause when its rule fires and nothing else is known; between 0 and 1, both excluded."""
    num_held: int
    """Comparisons that hold and make the rule fire."""
    num_weak: int
    """Those of them whose metric proves little."""
    num_ruled_out: int
    """Objections that were measured and do not hold."""
    num_unmeasured: int
    """Objections that could not be examined, and one more where rival causes could not."""
    num_contradicted: int
    """Objections that hold."""
    by_default: bool
    """Whether a latency was judged by the default objective."""

    def log_odds(self) -> float:
        """Log-odds of the cause: those of the prior plus a fixed step for each piece of evidence.

        logit(prior) + 0.2 max(held - weak - 1, 0) + 0.3 ruled out - 0.3 unmeasured - 1.5 contradicted - 0.7 weak - 0.3 [by default].
        Monotone: support never lowers it, and an objection that holds lowers it more than one that could not be measured.
        """
        return (
            math.log(self.prior_ratio / (1 - self.prior_ratio))
            + HELD_STEP * self._further
            + RULED_OUT_STEP * self.num_ruled_out
            + UNMEASURED_STEP * self.num_unmeasured
            + CONTRADICTED_STEP * self.num_contradicted
            + WEAK_STEP * self.num_weak
            + DEFAULT_STEP * self.by_default
        )

    def confidence_ratio(self) -> float:
        """Probability of the cause, 1 / (1 + exp(-log_odds)) kept within CONFIDENCE_BOUNDS [ratio].

        >>> round(Weighing(0.6, num_held=3, num_weak=0, num_ruled_out=1, num_unmeasured=0, num_contradicted=0, by_default=False)
        ...     .confidence_ratio(), 3)
        0.751
        """
        low, high = CONFIDENCE_BOUNDS
        # The exponential overflows far outside the bounds.
        return min(max(1 / (1 + math.exp(-min(max(self.log_odds(), -50.0), 50.0))), low), high)

    @property
    def _further(self) -> int:
        return max(self.num_held - self.num_weak - 1, 0)

    def step(self, rule: str) -> Step:
        """The working of the confidence of a rule's finding."""
        low, high = CONFIDENCE_BOUNDS
        symbols, numbers = zip(*self._terms(), strict=True)
        return Step(
            name=f"confidence_ratio of {rule}",
            formula=f"1 / (1 + exp(-x)) within {low:g} to {high:g}, x = ln(prior / (1 - prior)) {' '.join(symbols)}",
            substituted=f"x = ln({plain(self.prior_ratio)} / {1 - self.prior_ratio:.4g}) {' '.join(numbers)} = {self.log_odds():.4g}",
            value=self.confidence_ratio(),
            unit="ratio",
            basis="assumed",
            source="weights of evidence of Inferplan: judged, not calibrated",
        )

    def _terms(self) -> Iterator[tuple[str, str]]:
        for weight, symbol, number in (
            (HELD_STEP, "max(held - weak - 1, 0)", self._further),
            (RULED_OUT_STEP, "ruled_out", self.num_ruled_out),
            (UNMEASURED_STEP, "unmeasured", self.num_unmeasured),
            (CONTRADICTED_STEP, "contradicted", self.num_contradicted),
            (WEAK_STEP, "weak", self.num_weak),
            (DEFAULT_STEP, "judged_by_default", int(self.by_default)),
        ):
            sign = "+" if weight > 0 else "-"
            yield f"{sign} {abs(weight):g} {symbol}", f"{sign} {abs(weight):g} x {number}"
