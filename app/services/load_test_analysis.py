"""Results files of a load test: read them, hold them against the plan, fit the model, diagnose the levels that went wrong."""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Annotated

from pydantic import Field, ValidationError
from sqlalchemy.orm import Session

from app.domain.calibration_answer import CalibrationResult
from app.domain.capacity_variants import lengths_of
from app.domain.catalog import Catalog
from app.domain.demand import demand_of
from app.domain.deployment import Deployment
from app.domain.errors import InvalidInput, under
from app.domain.finding import Finding
from app.domain.hardware import Gpu
from app.domain.llm import Llm
from app.domain.load_test_plan import ramp_levels
from app.domain.load_test_reading import QUANTITIES, compare, knee_of, levels_of, ramp_notes, ramp_of, replicas_at, working_point
from app.domain.load_test_results import Compared, LoadTestAnalysis, MeasuredLevel
from app.domain.metrics import Metrics
from app.domain.performance import performance_of, step_parts
from app.domain.prefix_cache import shared_prefix
from app.domain.provenance import Note, Step, step
from app.domain.rule import Rule
from app.domain.units import plain
from app.domain.workload import Slo
from app.importers.benchmark_results import MAX_FILES, read_sweep
from app.services.assumptions import defaults_used
from app.services.calibrations import MeasuredSweep, ResultsFile, fitted
from app.services.diagnosis import DiagnoseRequest, diagnose
from app.services.planned_fleet import ForPlan, planned
from app.services.references import as_deployed, engine_of, resolve_gpu, resolve_served
from app.services.requests import CapacityRequest
from app.services.versions import versions_of


class AnalysisRequest(ForPlan):
    """Results of a load test and the plan that they are held against."""

    files: Annotated[Sequence[ResultsFile], Field(min_length=1, max_length=MAX_FILES)]
    """Results files of the ramp of one replica, as the tool wrote them: vLLM bench serve, SGLang bench_serving, GuideLLM, AIPerf, llm-d.
    Several runs of one load show how stable it is."""
    headroom_ratio: Annotated[float, Field(ge=0, le=0.9)] = 0.2
    """Share of every objective that the working point leaves free."""
    length_width_ratio: Annotated[float, Field(ge=0, le=2)] = 0
    """Width of the range from which output lengths were drawn / mean; 0: all outputs were equally long."""


def analyse(session: Session, catalog: Catalog, rules: Sequence[Rule], request: AnalysisRequest) -> LoadTestAnalysis:
    """The knee, the working point, the comparison with the plan and the calibration that a measured ramp gives.

    Raises InvalidInput for files that are no results, and PlannerError for a plan that cannot be resolved.
    """
    plan = planned(session, request)
    sweep = read_sweep(request.files)
    with under(request.pointer):
        llm = None if plan.model is None else resolve_served(catalog, plan.model, plan.deployment)
        gpu = None if plan.gpu is None else resolve_gpu(catalog, plan.gpu)
        deployment = plan.deployment if llm is None or gpu is None else as_deployed(catalog, plan.deployment, llm, gpu)[0]
    warnings = list(sweep.notes)
    calibration = _calibration(catalog, request, plan, warnings)
    compared = _comparison(catalog, calibration, llm, gpu, deployment)
    levels = levels_of(sweep.points, plan.slo, request.headroom_ratio, compared)
    levels = [_diagnosed(catalog, rules, level, plan.slo) for level in levels]
    ramp = ramp_of(levels)
    knee = knee_of(ramp)
    work, missing = working_point(ramp, knee)
    demand = demand_of(plan.workload)
    warnings += _warnings(levels, ramp, knee)
    warnings += ramp_notes(sweep.points, ramp, {"input": demand.mean_input_tokens, "output": demand.mean_output_tokens})
    return LoadTestAnalysis(
        summary=_summary(ramp, knee, work, missing),
        working=_working(ramp, knee, work, demand.request_rps),
        assumptions=[*defaults_used(request, "headroom_ratio"), _conventions()],
        warnings=warnings if calibration is None else _each_once([*warnings, *calibration.warnings]),
        versions=versions_of(catalog),
        levels=levels,
        knee=None if knee is None else ramp[knee],
        sweet_spot=ramp[knee - 1] if knee else None,
        peak=max((level for level in ramp if level.output_tokens_per_s), key=lambda level: level.output_tokens_per_s or 0, default=None),
        working_point=work,
        working_point_missing_because=missing,
        num_replicas_at_working_point=None if work is None else replicas_at(work, demand.request_rps),
        predicted_knee_concurrency=_predicted_knee(catalog, plan, llm, gpu, deployment),
        calibration=calibration,
    )


def level_metrics(level: MeasuredLevel) -> Metrics | None:
    """The figures of a level in the words of `/diagnose`; None where they are beyond what it reads."""
    figures = {
        f"{name}_{each}_s": getattr(level, name).get(each) for name in ("ttft", "tpot", "e2e") for each in ("mean", "p50", "p95", "p99")
    }
    figures |= {"request_rps": level.request_rps, "offered_rps": level.offered_rps, "output_tokens_per_s": level.output_tokens_per_s}
    figures |= {"failed_request_ratio": level.failed_ratio}
    known = {name: value for name, value in figures.items() if value is not None and name in Metrics.model_fields}
    try:
        return Metrics.model_validate(known)
    except ValidationError:
        return None


def findings_of(catalog: Catalog, rules: Sequence[Rule], metrics: Metrics, slo: Slo | None) -> list[Finding]:
    """What `/diagnose` finds in the figures of a level: the one place where a load test meets the diagnosis."""
    return diagnose(catalog, rules, DiagnoseRequest(metrics=metrics, slo=slo)).findings


def _diagnosed(catalog: Catalog, rules: Sequence[Rule], level: MeasuredLevel, slo: Slo | None) -> MeasuredLevel:
    metrics = level_metrics(level) if level.went_wrong else None
    return level if metrics is None else level.model_copy(update={"findings": findings_of(catalog, rules, metrics, slo)})


def _calibration(catalog: Catalog, request: AnalysisRequest, plan: CapacityRequest, warnings: list[Note]) -> CalibrationResult | None:
    """The fit to the files; a note instead where the plan or the files do not allow one."""
    if not isinstance(plan.model, str) or not isinstance(plan.gpu, str):
        message = "The plan does not name a model and an accelerator of the catalog: nothing is predicted or calibrated."
        warnings.append(Note(code="not_calibrated", message=message))
        return None
    sweep = MeasuredSweep(
        model=plan.model, gpu=plan.gpu, deployment=plan.deployment, files=request.files, length_width_ratio=request.length_width_ratio
    )
    try:
        return fitted(catalog, sweep)[1].result
    except InvalidInput as error:
        warnings.append(Note(code="not_calibrated", message=f"Nothing is predicted or calibrated: {error.detail}."))
        return None


def _comparison(
    catalog: Catalog, calibration: CalibrationResult | None, llm: Llm | None, gpu: Gpu | None, deployment: Deployment
) -> Callable[[Sequence[int]], list[Compared]]:
    """Predictions beside measurements by the numbers of points, from the rows of a calibration."""
    if calibration is None or llm is None or gpu is None:
        return lambda _: []
    model, rows = catalog.step_model, calibration.rows
    step_class = step_parts(llm, gpu, deployment, model).step_class

    def compared(points: Sequence[int]) -> list[Compared]:
        errors = [error for point in points for error in rows[point].errors]
        by_quantity = {name: [error for error in errors if error.quantity == name] for name in QUANTITIES}
        return [
            compare(name, fmean(each.measured for each in own), fmean(each.before for each in own), model.band(step_class, name))
            for name, own in by_quantity.items()
            if own
        ]

    return compared


def _predicted_knee(catalog: Catalog, plan: CapacityRequest, llm: Llm | None, gpu: Gpu | None, deployment: Deployment) -> int | None:
    if llm is None or gpu is None:
        return None
    steps = catalog.calibrations.steps(catalog.step_model, llm, gpu, deployment, plan.calibration)
    lengths = lengths_of(demand_of(plan.workload), shared_prefix(plan.workload, deployment))
    performance = performance_of(llm, gpu, deployment, engine_of(catalog, deployment), steps.model, lengths, draft=deployment.draft)
    return ramp_levels(performance)[1] if performance.places >= 1 else None


def _load(level: MeasuredLevel) -> str:
    return f"{plain(level.offered_rps or 0)} requests/s" if level.load == "rate" else f"{plain(level.concurrency or 0)} requests at once"


def _summary(ramp: Sequence[MeasuredLevel], knee: int | None, work: MeasuredLevel | None, missing: str | None) -> str:
    text = f"{len(ramp)} level{'' if len(ramp) == 1 else 's'}; " + (
        "the ramp ends before throughput does" if knee is None else f"the knee is at {_load(ramp[knee])}"
    )
    if work is None:
        return f"{text}; no working point: {missing}."
    return f"{text}; work at {_load(work)} ({work.request_rps or 0:.3g} requests/s), where every objective holds with headroom."


def _working(ramp: Sequence[MeasuredLevel], knee: int | None, work: MeasuredLevel | None, request_rps: float) -> list[Step]:
    steps = []
    if knee is not None:
        at = ramp[knee]
        text = f"{plain(at.request_rps or 0)} / {plain(at.e2e.mean_s or 0)}"
        steps.append(
            step("knee", "level of largest request_rps / e2e_s", text, at.power or 0, "requests/s^2", "the results files", "measured")
        )
    if work is not None and work.request_rps:
        replicas = replicas_at(work, request_rps) or 0
        text = f"ceil({plain(request_rps)} / {plain(work.request_rps)})"
        formula = "ceil(planned requests/s / requests/s at the working point)"
        steps.append(step("num_replicas_at_working_point", formula, text, replicas, "replicas", "the results files", "measured"))
    return steps


def _conventions() -> Note:
    message = "At most 1 % failed requests, and at most 5 % between runs of one level, are conventions."
    return Note(code="load_test_conventions", message=message)


def _warnings(levels: Sequence[MeasuredLevel], ramp: Sequence[MeasuredLevel], knee: int | None) -> list[Note]:
    notes = []
    if ramp and knee is None:
        message = "Throughput over time of a request is largest at the last level: send more, until it falls for two levels."
        notes.append(Note(code="knee_not_reached", message=message))
    if all(level.num_runs == 1 for level in levels):
        notes.append(Note(code="single_runs", message="Every level was run once: nothing is known about how stable the figures are."))
    unstable = [_load(level) for level in levels if level.stable is False]
    if unstable:
        notes.append(Note(code="unstable_levels", message=f"Runs of one level differ by more than 5 %: {', '.join(unstable)}."))
    return notes


def _each_once(notes: Sequence[Note]) -> list[Note]:
    return list(dict.fromkeys(notes))
