"""Use case: diagnose what a caller measured."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails

from app.domain.catalog import Catalog
from app.domain.deployment import Deployment, EngineName
from app.domain.diagnosis import diagnose as diagnose_observation
from app.domain.finding import Diagnosis
from app.domain.metrics import Metrics
from app.domain.observation import Observation
from app.domain.provenance import Note
from app.domain.rule import Rule
from app.domain.thresholds import MAX_THRESHOLDS, ThresholdFigure, ThresholdName
from app.domain.value import Given
from app.domain.workload import Slo, Workload
from app.services.expectation import expectation_of
from app.services.measured import MAX_REPLICAS, MAX_RESULTS_FILES, Measured, Replica, ResultsFile, Scrapes, ScrapeText, measured
from app.services.requests import GpuRef, ModelRef, Name
from app.services.thresholds import PROFILE_THRESHOLD_UNKNOWN, check_names, targets_of
from app.services.versions import versions_of

MAX_NAMED_UNREAD = 20
_DOUBTS: frozenset[str] = frozenset(
    {
        "beyond_last_bucket",
        "gone_engines",
        "lifetime_averages",
        "new_engines",
        "no_expectation",
        "no_request_finished",
        "out_of_range",
        "restarted",
        "seconds_disagree",
        "wide_bucket",
        PROFILE_THRESHOLD_UNKNOWN,
    }
)
"""Codes of what was read that make the conclusion less sure."""


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


Part = Literal["silent", "not_evaluated"]


class DiagnoseRequest(Given):
    """What was measured, and what it ought to be."""

    metrics: Metrics | None = None
    """What the engine shows now; beside scrapes or results files it adds to them and replaces what they say."""
    prometheus: Scrapes | ScrapeText | None = None
    """The engine's metrics endpoint: one scrape as text, or one or two with the seconds between them."""
    dcgm: Scrapes | ScrapeText | None = None
    """The exporter of the accelerators, or of the host, scraped beside it."""
    replicas: Annotated[Sequence[Replica], Field(max_length=MAX_REPLICAS)] = ()
    """Several replicas that share the traffic: their differences are symptoms."""
    benchmark: Annotated[Sequence[ResultsFile], BeforeValidator(_as_list), Field(max_length=MAX_RESULTS_FILES)] = ()
    """Results files of one sweep (vLLM bench serve, SGLang bench_serving, GuideLLM, AIPerf or GenAI-Perf, llm-d); the heaviest load is
    diagnosed, the lightest beside it."""
    baseline: Metrics | None = None
    """What it showed under the same kind of load when all was well."""
    baseline_deployment: Deployment | None = None
    """How the engine ran in the baseline, where that is known: what both have in common cannot explain the difference, and what differs
    is suspected. It says nothing without `baseline`."""
    lightest: Metrics | None = None
    """What the same set-up showed at the lowest load of a sweep, of which `metrics` are a higher one; replaces that of `benchmark`."""
    slo: Slo | None = None
    """The latency objectives."""
    model: ModelRef | None = None
    """The model; with `gpu` and `deployment` the planner's own expectation is the baseline where there is none."""
    gpu: GpuRef | None = None
    """The accelerator."""
    deployment: Deployment | None = None
    """How the engine runs."""
    workload: Workload | None = None
    """What the traffic is meant to be."""
    thresholds: Annotated[Mapping[ThresholdName, ThresholdFigure], Field(max_length=MAX_THRESHOLDS)] = {}
    """Thresholds to use instead of the rules' own, by the name that the evidence shows (`kv_near_full.kv_full`), or default objectives
    (`objective.ttft_s`); absolute, in the unit of the metric."""
    profile: Name | None = None
    """A saved profile: its thresholds apply where `thresholds` does not name them, its objectives where there is no `slo`."""
    include: Annotated[Sequence[Part], Field(max_length=2)] = ("silent", "not_evaluated")
    """Which of the rules that do not fire to list: those that do not apply (silent), and those that could not be evaluated."""

    @model_validator(mode="before")
    @classmethod
    def _something_measured(cls, given: Any) -> Any:
        sources = ("prometheus", "dcgm", "replicas", "benchmark")
        if isinstance(given, dict) and given.get("metrics") is None and not any(given.get(name) for name in sources):
            missing = InitErrorDetails(type="missing", loc=("metrics",), input=given)
            raise ValidationError.from_exception_data(cls.__name__, [missing])
        return given

    @model_validator(mode="after")
    def _model_on_gpu(self) -> "DiagnoseRequest":
        if (self.model is None) != (self.gpu is None):
            raise ValueError("the planner's expectation needs model and gpu together")
        return self

    @property
    def is_large(self) -> bool:
        """Whether texts have to be read, which takes longer than the diagnosis."""
        return bool(self.prometheus or self.dcgm or self.replicas or self.benchmark)


def diagnose(catalog: Catalog, rules: Sequence[Rule], request: DiagnoseRequest) -> Diagnosis:
    """The probable bottlenecks behind what a request gives; raises UnknownName for a threshold that no rule has or a
    profile that there is not, PlannerError."""
    check_names(request.thresholds, rules)
    profile = None if request.profile is None else catalog.profile(request.profile)
    targets = targets_of(profile, request.thresholds, request.slo, rules)
    found = measured(
        metrics=request.metrics,
        prometheus=request.prometheus,
        dcgm=request.dcgm,
        replicas=request.replicas,
        benchmark=request.benchmark,
    )
    deployment = request.deployment
    if deployment is None and found.engine in get_args(EngineName):
        deployment = Deployment.model_validate({"engine": found.engine})
    expectation = None
    if request.model is not None and request.gpu is not None:
        expectation, notes = expectation_of(
            catalog, request.model, request.gpu, deployment or Deployment(), found.metrics, request.workload
        )
        found.notes += notes
    found.notes += targets.notes
    observation = Observation(
        found.metrics,
        request.baseline,
        targets.slo,
        deployment,
        request.workload,
        expectation,
        found.replicas,
        request.lightest or found.lightest,
        request.baseline_deployment,
    )
    answer = diagnose_observation(rules, observation, overrides=targets.overrides, versions=versions_of(catalog))
    return _with_what_was_read(answer, found, request)


def _with_what_was_read(answer: Diagnosis, found: Measured, request: DiagnoseRequest) -> Diagnosis:
    others = [given for given in (request.baseline, request.lightest) if given is not None]
    unread = [*found.unread, *(name for given in others for name in given.unread)]
    warnings = [*answer.warnings, *(note for note in found.notes if note.code in _DOUBTS)]
    if unread:
        more = f" and {len(unread) - MAX_NAMED_UNREAD} more" if len(unread) > MAX_NAMED_UNREAD else ""
        named = ", ".join(repr(name[:60]) for name in unread[:MAX_NAMED_UNREAD])
        message = f"Not read, because no rule knows them: {named}{more}. /openapi.json lists the metrics under Metrics."
        warnings.append(Note(code="metric_not_read", message=message))
    if request.baseline_deployment is not None and request.baseline is None:
        message = "baseline_deployment was not used: how an engine ran is compared only beside what it showed, in baseline."
        warnings.append(Note(code="baseline_missing", message=message))
    assumptions = [note for note in (*found.notes, *(note for given in others for note in given.reading_notes)) if note.code not in _DOUBTS]
    return answer.model_copy(
        update={
            "assumptions": [*answer.assumptions, *assumptions],
            "warnings": warnings,
            "silent": answer.silent if "silent" in request.include else [],
            "not_evaluated": answer.not_evaluated if "not_evaluated" in request.include else [],
        }
    )
