"""What the planner expects of a deployment under the load that was measured: a baseline for those who have none."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.metrics import Metrics
from app.domain.provenance import Note, Step


@dataclass(frozen=True)
class Expectation:
    """An estimate of the figures that a diagnosis compares with."""

    typical: Metrics
    """The most probable figures."""
    worst: Metrics
    """The slow end of their range: latencies at their highest, rates at their lowest."""
    working: Sequence[Step] = ()
    """How they were computed."""
    notes: Sequence[Note] = ()
    """What was assumed."""
