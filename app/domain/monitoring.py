"""What watches a fleet: the limits that follow from its plan, alerts and panels as values, and the answer of `/monitoring`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from app.domain.capacity_answer import CapacityAnswer
from app.domain.deployment import Deployment, EngineName
from app.domain.json_difference import JsonObject
from app.domain.optimisation_order import OptimisationStep
from app.domain.production_checklist import ChecklistItem
from app.domain.provenance import Answer, Basis
from app.domain.value import Value
from app.domain.workload import Slo, Workload

Severity = Literal["critical", "warning", "info"]
PanelGroup = Literal["experience", "load_and_scheduling", "gpu_and_memory", "business_and_cost"]


class AlertRule(Value):
    """One alert for Prometheus."""

    name: str
    """Name of the alert."""
    severity: Severity
    """critical: an objective is broken or requests are lost; warning: it will be soon; info: reality has left the plan."""
    expr: str
    """PromQL; names of older engines follow the current ones after `or`."""
    for_s: int
    """How long it must hold [s]."""
    threshold: float
    """The number in the expression, in the unit of the metric."""
    basis: Basis
    """How the threshold is known: exact where it is an input or follows from the plan, assumed where it is a convention."""
    threshold_from: str
    """What it follows from."""
    summary: str
    """What it means."""
    look_at: str
    """What to look at first."""
    runbook: str
    """How to go on: what to send to `/diagnose`, or which other call answers it."""


class Panel(Value):
    """One chart of the dashboard."""

    group: PanelGroup
    """Which of the four groups."""
    title: str
    """What is drawn."""
    unit: str
    """Unit as Grafana names it."""
    queries: Sequence[tuple[str, str]]
    """(legend, PromQL) of each line."""
    limit: float | None
    """The line that should not be crossed; None where there is none."""


class MonitoringAnswer(Answer):
    """Alert rules, a dashboard, the checklist and the order of optimisation for one plan."""

    engine: EngineName
    """Whose metrics are named."""
    alerts: list[AlertRule]
    """The alerts with where their thresholds come from."""
    prometheus_rules: str
    """The same as a rules file for Prometheus."""
    panels: list[Panel]
    """The charts of the dashboard."""
    grafana_dashboard: JsonObject
    """The same as Grafana imports it."""
    checklist: list[ChecklistItem]
    """What to see to before traffic arrives."""
    optimisation_order: list[OptimisationStep]
    """The usual order of optimisation, and what of it applies here."""


@dataclass(frozen=True)
class Limits:
    """The figures of a plan that alerts compare with."""

    slo: Slo | None
    replicas: int | None
    num_ranks: int
    """Engine ranks of one replica, each with a queue and a cache of its own."""
    gpus: int | None
    request_rps: float
    """Requests per second that were planned."""
    capacity_rps: float | None
    """Requests per second at which the binding constraint is used up [requests/s]."""
    safe_concurrency: float | None
    """Requests of one replica."""
    safety_ratio: float
    mean_input_tokens: float
    mean_output_tokens: float
    hit_ratio: float
    """Share of all prompt tokens that the prefix cache is planned to serve."""
    acceptance_ratio: float | None
    usd_per_gpu_hour: float | None

    @property
    def rps_without_one(self) -> float | None:
        """What the fleet carries with one replica lost, capacity x (replicas - 1) / replicas; None for a single replica [requests/s]."""
        if self.capacity_rps is None or self.replicas is None or self.replicas < 2:
            return None
        return self.capacity_rps * (self.replicas - 1) / self.replicas


def limits_of(answer: CapacityAnswer, *, slo: Slo | None, deployment: Deployment, workload: Workload, safety_ratio: float) -> Limits:
    """The limits that a sized fleet is watched by.

    capacity_rps = demand / utilisation of the binding constraint [requests/s]. What the plan could not size is None and takes no part.
    """
    demand = answer.demand
    prompts = demand.input_tokens_per_s
    return Limits(
        slo=slo if slo is not None and slo.has_objective else None,
        replicas=answer.replicas,
        num_ranks=deployment.dp,
        gpus=answer.gpus,
        request_rps=demand.request_rps,
        capacity_rps=demand.request_rps / answer.utilization_ratio if answer.utilization_ratio else None,
        safe_concurrency=answer.per_replica.safe_concurrency,
        safety_ratio=safety_ratio,
        mean_input_tokens=demand.mean_input_tokens,
        mean_output_tokens=demand.mean_output_tokens,
        hit_ratio=demand.saved_input_tokens_per_s / prompts if prompts and workload.prefix_hit_ratio else 0.0,
        acceptance_ratio=deployment.speculative.acceptance_ratio if deployment.speculative else None,
        usd_per_gpu_hour=answer.cost.usd_per_gpu_hour if answer.cost else None,
    )
