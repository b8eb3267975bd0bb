"""Use case: diagnose what a caller measured."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field

from app.domain.catalog import Catalog
from app.domain.deployment import Deployment
from app.domain.diagnosis import diagnose as diagnose_observation
from app.domain.errors import UnknownName
from app.domain.evidence import OBJECTIVES
from app.domain.finding import Diagnosis
from app.domain.json_pointer import json_pointer
from app.domain.metrics import Metrics
from app.domain.observation import Observation
from app.domain.rule import Figure, Rule
from app.domain.value import Value
from app.domain.workload import Slo, Workload
from app.services.versions import versions_of

MAX_THRESHOLDS = 200

ThresholdName = Annotated[str, Field(max_length=130)]


class DiagnoseRequest(Value):
    """What was measured, and what it ought to be."""

    metrics: Metrics
    """What the engine shows now."""
    baseline: Metrics | None = None
    """What it showed under the same kind of load when all was well."""
    slo: Slo | None = None
    """The latency objectives."""
    deployment: Deployment | None = None
    """How the engine runs."""
    workload: Workload | None = None
    """What the traffic is meant to be."""
    thresholds: Annotated[Mapping[ThresholdName, Figure], Field(max_length=MAX_THRESHOLDS)] = {}
    """Thresholds to use instead of the rules' own, by the name that the evidence shows (`kv_near_full.kv_full`), or default objectives
    (`objective.ttft_s`); absolute, in the unit of the metric."""


def diagnose(catalog: Catalog, rules: Sequence[Rule], request: DiagnoseRequest) -> Diagnosis:
    """The probable bottlenecks behind the metrics of a request; raises UnknownName for a threshold that no rule has."""
    _check_names(request.thresholds, rules)
    observation = Observation(request.metrics, request.baseline, request.slo, request.deployment, request.workload)
    return diagnose_observation(rules, observation, overrides=request.thresholds, versions=versions_of(catalog))


def _check_names(thresholds: Mapping[str, float], rules: Sequence[Rule]) -> None:
    if not thresholds:
        return
    known = {*OBJECTIVES, *(f"{rule.id}.{comparison.name}" for rule in rules for comparison in rule.comparisons())}
    for name in thresholds:
        if name not in known:
            nearest = tuple(difflib.get_close_matches(name, known, n=5, cutoff=0.5))
            hint = f"; nearest: {', '.join(nearest)}" if nearest else ""
            raise UnknownName(
                f"no threshold is called {name!r}{hint}", nearest=nearest, field=json_pointer("thresholds", name), value=thresholds[name]
            )
