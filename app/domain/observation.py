"""What a diagnosis looks at, and what reading a symptom of it gives."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from app.domain.deployment import Deployment
from app.domain.expectation import Expectation
from app.domain.metrics import Metrics, metric_unit
from app.domain.provenance import Step
from app.domain.units import plain
from app.domain.workload import Slo, Workload

NEVER = 1e7
"""Stands for a quotient that has no end (requests wait and none finishes), so that answers hold finite numbers only."""


@dataclass(frozen=True)
class Observation:
    """Everything one diagnosis may look at."""

    metrics: Metrics
    baseline: Metrics | None = None
    slo: Slo | None = None
    deployment: Deployment | None = None
    workload: Workload | None = None
    expectation: Expectation | None = None
    """What the planner expects of the deployment under this load."""
    replicas: tuple[Metrics, ...] = ()
    """Figures of each replica, where `metrics` are those of several together."""
    lightest: Metrics | None = None
    """Figures of the same set-up at the lowest load of a sweep."""
    baseline_deployment: Deployment | None = None
    """How the engine ran in the baseline; None where that is not said."""
    _seen: dict[str, "Sight"] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def max_num_seqs(self) -> float | None:
        """Cap on running sequences [count]: what the engine reports, else what the deployment says."""
        configured = self.deployment.max_num_seqs if self.deployment else None
        return self.metrics.max_num_seqs if self.metrics.max_num_seqs is not None else configured

    @cached_property
    def before(self) -> "Observation | None":
        """The baseline seen as an observation of its own; None without one."""
        return self._of(self.baseline, self.baseline_deployment)

    @cached_property
    def planned(self) -> "Observation | None":
        """What the planner expects, seen as an observation of its own; None without an expectation."""
        return self._of(None if self.expectation is None else self.expectation.typical)

    def earlier(self, metric: str) -> float | None:
        """A metric of the baseline; where the baseline lacks it, as the planner expects it; None where neither knows it."""
        planned = None if self.expectation is None else self.expectation.typical.get(metric)
        before = None if self.baseline is None else self.baseline.get(metric)
        return planned if before is None else before

    def _of(self, metrics: Metrics | None, deployment: Deployment | None = None) -> "Observation | None":
        return None if metrics is None else Observation(metrics, deployment=deployment or self.deployment, workload=self.workload)


@dataclass(frozen=True)
class Reading:
    """One value of a symptom."""

    name: str
    """Metric, or name of the derived figure."""
    value: float
    statistic: str | None = None
    """p50, p95, p99 or mean where the symptom is a family."""
    overstates: bool = False
    """The metric reads high without useful work, so that a high value proves little."""
    working: Step | None = None
    """How a derived figure was computed."""


@dataclass(frozen=True)
class Absent:
    """The symptom cannot be read."""

    missing: tuple[str, ...]
    """What to measure so that it can."""


Sight = tuple[Reading, ...] | Absent
Symptom = Callable[[Observation], Sight]


def quotient(
    name: str, over: tuple[str, float | None], under: tuple[str, float | None], *, statistic: str | None = None
) -> Reading | Absent:
    """The derived figure over / under, each given by name and value; NEVER when only the divisor is zero, 0 when both are."""
    (over_name, numerator), (under_name, divisor) = over, under
    if numerator is None or divisor is None:
        return Absent(tuple(each for each, value in (over, under) if value is None))
    value = min(numerator / divisor, NEVER) if divisor else (NEVER if numerator else 0.0)
    step = Step(
        name=name,
        formula=f"{over_name} / {under_name}",
        substituted=f"{plain(numerator)} / {plain(divisor)}",
        value=value,
        unit=metric_unit(name),
        basis="exact",
        source="arithmetic on the metrics given" + ("" if divisor else f"; {plain(NEVER)} stands for no end, 0 for 0 / 0"),
    )
    return Reading(name, value, statistic, working=step)


def single(found: Reading | Absent) -> Sight:
    """The sight of a symptom that has one reading."""
    return found if isinstance(found, Absent) else (found,)
