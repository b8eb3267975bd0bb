"""The planner's speed against recorded loads: TTFT, TPOT and output rate, each with its range."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Literal, NamedTuple

from pydantic import ValidationError

from app.accuracy.load_records import LeftOutLoad, LoadRecord
from app.domain.batching import run_rps, state_of
from app.domain.catalog import Catalog
from app.domain.deployment import Deployment
from app.domain.errors import PlannerError
from app.domain.load_state import LoadState
from app.domain.performance import Lengths, Performance, performance_of
from app.domain.performance_estimate import Quantity
from app.domain.step_class import GpuClass, Load
from app.domain.step_constants import StepModel
from app.domain.value import Value

Kind = Literal["dense", "moe"]
_LOADS: dict[str, Load] = {"offline": "offline", "static_batch": "batch", "burst": "burst"}


class SpeedComparison(Value):
    """One predicted figure beside the recorded one."""

    case: str
    """Record."""
    source: str
    """File of the record."""
    part: Literal["fit", "scored"]
    """Whether the series was in the fit."""
    quantity: Quantity
    """What is compared."""
    load: str
    """Load mode."""
    single: bool
    """One request at a time."""
    model: str
    """Catalog slug of the model."""
    kind: Kind
    """Dense, or mixture of experts."""
    gpu: str
    """Catalog slug of the accelerator."""
    gpu_class: GpuClass
    """Class of accelerators."""
    engine: str
    """Engine."""
    predicted_ratio: float
    """Predicted / recorded."""
    held: bool
    """The stated range holds the recorded figure."""


class SpeedAccuracy(Value):
    """All comparisons, and what is not judged."""

    num_records: int
    """Records, repeated ones left out."""
    comparisons: list[SpeedComparison]
    """Predicted beside recorded."""
    left_out: list[LeftOutLoad]
    """What no request means, or the planner refuses."""


class RatioSummary(NamedTuple):
    """Predicted over recorded, over several rows."""

    num_rows: int
    mean_error_ratio: float
    median_error_ratio: float
    low_ratio: float
    """10th percentile of predicted / recorded."""
    middle_ratio: float
    """Median."""
    high_ratio: float
    """90th percentile."""
    within_quarter_ratio: float
    """Share with an error of at most 25 %."""
    within_double_ratio: float
    """Share between half and twice the recorded figure."""
    held_ratio: float
    """Share whose stated range holds the recorded figure."""


def speed_accuracy(
    catalog: Catalog, records: Iterable[LoadRecord], left_out: Iterable[LeftOutLoad] = (), *, without_scored: StepModel
) -> SpeedAccuracy:
    """Score the planner on recorded loads: every one that a request means, none left out because it disagrees.

    The catalog's constants may know every series: those that are scored are predicted with `without_scored`, which was fitted without them.
    """
    blind = replace(catalog, steps=without_scored)
    read, left = list(records), list(left_out)
    comparisons: list[SpeedComparison] = []
    for each in read:
        try:
            comparisons += _compare(each, _performance(blind if each.part == "scored" else catalog, each))
        except (PlannerError, ValidationError) as error:
            left.append(LeftOutLoad(id=each.id, reason=f"refused: {str(error).splitlines()[0]}"))
    return SpeedAccuracy(num_records=len(read), comparisons=comparisons, left_out=left)


def summarise_ratios(comparisons: Iterable[SpeedComparison]) -> RatioSummary | None:
    """Errors of predicted / recorded; None without rows."""
    rows = list(comparisons)
    if not rows:
        return None
    ratios = sorted(row.predicted_ratio for row in rows)
    errors = sorted(abs(ratio - 1) for ratio in ratios)
    count = len(rows)
    return RatioSummary(
        count,
        sum(errors) / count,
        errors[count // 2],
        ratios[round(0.1 * (count - 1))],
        ratios[count // 2],
        ratios[round(0.9 * (count - 1))],
        sum(error <= 0.25 for error in errors) / count,
        sum(0.5 <= ratio <= 2 for ratio in ratios) / count,
        sum(row.held for row in rows) / count,
    )


def _performance(catalog: Catalog, record: LoadRecord) -> Performance:
    deployment = Deployment.model_validate(record.deployment)
    return performance_of(
        catalog.model(record.model),
        catalog.gpu(record.gpu),
        deployment,
        catalog.engine(deployment.engine, deployment.engine_version),
        catalog.step_model,
        Lengths(record.input_tokens, record.output_tokens),
        num_requests=record.num_requests,
        length_width_ratio=record.length_width_ratio,
        load=_LOADS.get(record.load, "served"),
    )


def _state(record: LoadRecord, performance: Performance) -> LoadState | None:
    """The state of the load, with the rate over the whole run; None where requests arrive faster than they end."""
    if record.load == "offline":
        state = performance.saturated
        rate = state.admitted / (record.output_tokens * state.tpot_s)
        return state._replace(request_rps=rate * performance.constants.offline_ratio)
    state_or_none = state_of(performance.serving, "continuous", concurrency=record.concurrency, request_rps=record.request_rps)
    if record.load in ("burst", "static_batch") and state_or_none is not None and record.concurrency is not None:
        return state_or_none._replace(request_rps=run_rps(performance.serving, record.concurrency))
    return state_or_none


def _compare(record: LoadRecord, performance: Performance) -> Iterator[SpeedComparison]:
    if performance.places < 1:
        raise PlannerError("the planner says that it does not serve")
    served = _state(record, performance)
    state = served or performance.saturated
    recorded: dict[Quantity, tuple[float, float | None]] = {
        "throughput": (state.request_rps * record.output_tokens, record.output_tokens_per_s),
        "ttft": (state.waiting.ttft_s, None if served is None else record.ttft_s),
        "tpot": (state.tpot_s, record.tpot_s if record.output_tokens > 1 else None),
    }
    for quantity, (predicted, actual) in recorded.items():
        if not actual:
            continue
        band = performance.model.band(performance.step_class, quantity)
        yield SpeedComparison(
            case=record.id,
            source=record.source,
            part=record.part,
            quantity=quantity,
            load=record.load,
            single=record.concurrency == 1,
            model=record.model,
            kind=performance.step_class.kind,
            gpu=record.gpu,
            gpu_class=performance.step_class.gpu_class,
            engine=performance.deployment.engine,
            predicted_ratio=predicted / actual,
            held=band.low_ratio <= actual / predicted <= band.high_ratio,
        )
