"""What watches a planned fleet: size it, take its limits, write rules and a dashboard."""

import hashlib
import json

from sqlalchemy.orm import Session

from app.domain.catalog import Catalog
from app.domain.errors import InvalidInput, under
from app.domain.monitoring import Limits, MonitoringAnswer, limits_of
from app.domain.optimisation_order import optimisation_order
from app.domain.production_checklist import production_checklist
from app.domain.provenance import Note, Step, step
from app.exporters.alert_rules import alert_rules, rules_file
from app.exporters.dashboard import dashboard, panels
from app.exporters.engine_metrics import ENGINES
from app.services.capacity import capacity
from app.services.planned_fleet import ForPlan, deployed, planned
from app.services.references import resolve_served
from app.services.versions import versions_of


class MonitoringRequest(ForPlan):
    """Which plan is watched."""


def monitoring(session: Session, catalog: Catalog, request: MonitoringRequest) -> MonitoringAnswer:
    """Alerts, dashboard, checklist and optimisation order for a plan.

    Raises PlannerError as `/capacity` does, and InvalidInput for an engine whose metrics are not known.
    """
    plan = planned(session, request)
    with under(request.pointer):
        answer = capacity(catalog, plan)
        deployment = deployed(catalog, plan)
        names = ENGINES.get(deployment.engine)
        if names is None:
            detail = f"the metrics of {deployment.engine} are not written into rules"
            raise InvalidInput(detail, field="/deployment/engine", value=deployment.engine, expected=f"one of {', '.join(ENGINES)}")
    limits = limits_of(answer, slo=plan.slo, deployment=deployment, workload=plan.workload, safety_ratio=plan.safety_ratio)
    alerts, charts = alert_rules(names, limits), panels(names, limits)
    digest = hashlib.sha256(json.dumps(plan.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()[:12]
    name = str(request.plan_id) if request.plan_id is not None else f"request {digest}"
    title = f"{answer.model or 'LLM'} on {answer.gpus or '?'} {answer.gpu or 'accelerators'}"
    published = None if plan.model is None else resolve_served(catalog, plan.model, plan.deployment).native.quantization
    order = optimisation_order(answer, deployment, plan.workload, plan.slo, published=published)
    checklist = production_checklist(answer, deployment, plan.workload, plan.slo, plan.rolling_update)
    open_items = sum(item.state == "open" for item in checklist)
    upcoming = next((each for each in order if each.applies == "next"), None)
    critical = sum(rule.severity == "critical" for rule in alerts)
    next_step = f"; next: {upcoming.step[0].lower()}{upcoming.step[1:]}" if upcoming else ""
    return MonitoringAnswer(
        summary=f"{title}: {len(alerts)} alerts ({critical} critical) and {len(charts)} charts for {deployment.engine}; {open_items} of "
        f"{len(checklist)} items of the checklist are open{next_step}.",
        working=_working(limits),
        assumptions=[*answer.assumptions, *_conventions()],
        warnings=[*answer.warnings, *_warnings(limits)],
        versions=versions_of(catalog),
        engine=deployment.engine,
        alerts=alerts,
        prometheus_rules=rules_file(alerts, group=f"inferplan-{deployment.engine}", labels={"service": answer.model or "llm"}, plan=name),
        panels=charts,
        grafana_dashboard=dashboard(charts, title=title, uid=f"inferplan-{digest}"),
        checklist=checklist,
        optimisation_order=order,
    )


def _working(limits: Limits) -> list[Step]:
    steps = []
    source = "POST /capacity with the plan says why"
    if limits.capacity_rps is not None:
        used = limits.request_rps / limits.capacity_rps
        text = f"{limits.request_rps:.6g} / {used:.4g}"
        steps.append(step("capacity_rps", "request_rps / utilization_ratio", text, limits.capacity_rps, "requests/s", source))
    if limits.rps_without_one is not None:
        text = f"{limits.capacity_rps:.6g} x ({limits.replicas} - 1) / {limits.replicas}"
        formula = "capacity_rps x (replicas - 1) / replicas"
        steps.append(step("rps_without_one", formula, text, limits.rps_without_one, "requests/s", source))
    return steps


def _conventions() -> list[Note]:
    message = (
        "Alerts whose basis is `assumed` compare with a convention, not with the plan; rates over 5 minutes and the times "
        "that alerts must hold are conventions, too."
    )
    return [Note(code="alert_conventions", message=message)]


def _warnings(limits: Limits) -> list[Note]:
    notes = []
    if limits.slo is None:
        notes.append(Note(code="no_objectives", message="The plan has no slo: no alert watches what users experience."))
    if limits.capacity_rps is None:
        notes.append(Note(code="no_capacity", message="The plan has no size: no alert compares the traffic with what the fleet carries."))
    message = (
        "Quantiles are interpolated within the buckets of the engine's histograms: an objective between two buckets is watched no more "
        "finely than they are apart, and one above the last bucket is never seen to break."
    )
    if limits.slo is not None:
        notes.append(Note(code="histogram_buckets", message=message))
    return notes
