"""The planner's speed against recorded loads: TTFT, TPOT and output rate, each with its range."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Literal, NamedTuple

from pydantic import ValidationError

from app.accuracy.load_records import LeftOutLoad, LoadRecord
from app.accuracy.step_priors import fold_of
from app.domain.batching import run_rps, state_of
from app.domain.catalog import Catalog
from app.domain.deployment import Deployment, EngineName
from app.domain.engine_defaults import with_engine_cache
from app.domain.errors import PlannerError
from app.domain.load_state import LoadState
from app.domain.performance import Lengths, Performance, performance_of
from app.domain.performance_estimate import Quantity
from app.domain.step_class import GpuClass, Load
from app.domain.step_constants import StepModel
from app.domain.value import Value

Kind = Literal["dense", "moe"]
Predictor = Literal["predicted_ratio", "in_sample_ratio", "unfitted_ratio"]
"""Which of the predictions of a comparison."""


class Figure(NamedTuple):
    """One figure of a load."""

    predicted: float
    recorded: float


Figures = dict[Quantity, Figure]
_LOADS: dict[str, Load] = {"offline": "offline", "static_batch": "batch", "burst": "burst"}


class SpeedComparison(Value):
    """One predicted figure beside the recorded one."""

    case: str
    """Record."""
    source: str
    """File of the record."""
    series: str
    """Rows of one source that belong together."""
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
    engine: EngineName
    """Engine."""
    fitted: bool
    """Whether rows of its engine, class of accelerator, weights and kind are among those of the catalog's constants."""
    predicted_ratio: float
    """Predicted / recorded, with constants fitted without it: see `fold_of`."""
    in_sample_ratio: float | None
    """The same with the catalog's constants, which have seen it; None where they predict a load that is not served."""
    unfitted_ratio: float | None
    """The same with the priors of the constants, nothing fitted."""
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
    """Share of the rows whose stated range, around the left-out prediction, holds the recorded figure."""


def speed_accuracy(
    catalog: Catalog,
    records: Iterable[LoadRecord],
    left_out: Iterable[LeftOutLoad] = (),
    *,
    folds: Mapping[str, StepModel],
    unfitted: StepModel,
) -> SpeedAccuracy:
    """Score the planner on recorded loads: every one that a request means, none left out because it disagrees.

    A record is predicted by constants that have not seen it (`fold_of`), beside them by the catalog's, which know all, and by `unfitted`,
    the priors. A family without a fold was not among the rows of the fit: the catalog's constants have not seen it either.
    """
    read, left = list(records), list(left_out)
    comparisons: list[SpeedComparison] = []
    for each in read:
        try:
            seen = recorded_performance(catalog, each)
            if is_faster_than_possible(each, seen):
                raise PlannerError("recorded as faster than the accelerators' data sheets allow")
            blind = at_constants(seen, folds.get(fold_of(each), catalog.step_model))
            comparisons += _compare(each, blind, seen, at_constants(seen, unfitted))
        except (PlannerError, ValidationError) as error:
            left.append(LeftOutLoad(id=each.id, reason=f"refused: {str(error).splitlines()[0]}"))
    return SpeedAccuracy(num_records=len(read), comparisons=comparisons, left_out=left)


def summarise_ratios(comparisons: Iterable[SpeedComparison], constants: Predictor = "predicted_ratio") -> RatioSummary | None:
    """Errors of predicted / recorded by one of the sets of constants; None without rows."""
    rows = list(comparisons)
    ratios = sorted(ratio for row in rows if (ratio := getattr(row, constants)) is not None)
    if not ratios:
        return None
    errors = sorted(abs(ratio - 1) for ratio in ratios)
    count = len(ratios)
    return RatioSummary(
        count,
        sum(errors) / count,
        errors[count // 2],
        ratios[round(0.1 * (count - 1))],
        ratios[count // 2],
        ratios[round(0.9 * (count - 1))],
        sum(error <= 0.25 for error in errors) / count,
        sum(0.5 <= ratio <= 2 for ratio in ratios) / count,
        sum(row.held for row in rows) / len(rows),
    )


def recorded_performance(catalog: Catalog, record: LoadRecord) -> Performance:
    """The deployment and lengths of a record; raises PlannerError where the planner refuses them or says that they do not serve."""
    llm, gpu = catalog.model(record.model), catalog.gpu(record.gpu)
    given = Deployment.model_validate(record.deployment)
    engine = catalog.engine(given.engine, given.engine_version)
    deployment, _ = with_engine_cache(given, engine, llm, gpu)
    found = performance_of(
        llm,
        gpu,
        deployment,
        engine,
        catalog.step_model,
        Lengths(record.input_tokens, record.output_tokens),
        num_waves=record.num_waves,
        length_width_ratio=record.length_width_ratio,
        load=_LOADS.get(record.load, "served"),
    )
    if found.places < 1:
        raise PlannerError("the planner says that it does not serve")
    return found


def _state(record: LoadRecord, performance: Performance) -> LoadState | None:
    """The state of the load, with the rate over the whole run; None where requests arrive faster than they end."""
    if record.load == "offline":
        state = performance.saturated
        if record.num_requests is not None:
            return state._replace(request_rps=run_rps(performance.serving, record.num_requests))
        return state._replace(request_rps=state.request_rps * performance.constants.offline_ratio)
    state_or_none = state_of(performance.serving, "continuous", concurrency=record.concurrency, request_rps=record.request_rps)
    if record.load in ("burst", "static_batch") and state_or_none is not None and record.concurrency is not None:
        return state_or_none._replace(request_rps=run_rps(performance.serving, record.concurrency))
    return state_or_none


def at_constants(performance: Performance, model: StepModel) -> Performance:
    """The same deployment and lengths with the constants of another model."""
    return replace(performance, model=model).with_constants(model.constants_of(performance.step_class))


def is_faster_than_possible(record: LoadRecord, performance: Performance) -> bool:
    """Whether the recorded rate asks for more FLOP/s than the accelerators' dense peaks give.

    Least time of a request = arithmetic of its prompt and of output - 1 decode steps at full peak; a closed loop ends
    C / (TTFT + (O - 1) TPOT) requests/s. Such a record means another layout or another load than it says.
    """
    if record.load != "closed" or record.ttft_s is None or record.tpot_s is None or record.concurrency is None:
        return False
    peak, outputs = performance.roofline, record.output_tokens - 1
    least_s = peak.iteration(0, record.input_tokens).compute_s + outputs * peak.iteration(1, 0).compute_s
    return record.concurrency / (record.ttft_s + outputs * record.tpot_s) * least_s > performance.work.pp


def figures_of(record: LoadRecord, performance: Performance) -> Figures:
    """What is predicted beside what was recorded [tokens/s, s, s]; TTFT only where requests do not arrive faster than they end."""
    served = _state(record, performance)
    state = served or performance.saturated
    found: dict[Quantity, tuple[float, float | None]] = {
        "throughput": (state.request_rps * record.output_tokens, record.output_tokens_per_s),
        "ttft": (state.waiting.ttft_s, None if served is None else record.ttft_s),
        "tpot": (state.tpot_s, record.tpot_s if record.output_tokens > 1 else None),
    }
    return {quantity: Figure(predicted, recorded) for quantity, (predicted, recorded) in found.items() if recorded}


def _compare(record: LoadRecord, blind: Performance, seen: Performance, unfitted: Performance) -> Iterator[SpeedComparison]:
    in_sample, before = figures_of(record, seen), figures_of(record, unfitted)
    for quantity, (predicted, actual) in figures_of(record, blind).items():
        band = seen.model.band(seen.step_class, quantity)
        yield SpeedComparison(
            case=record.id,
            source=record.source,
            series=record.series,
            quantity=quantity,
            load=record.load,
            single=record.concurrency == 1,
            model=record.model,
            kind=seen.step_class.kind,
            gpu=record.gpu,
            gpu_class=seen.step_class.gpu_class,
            engine=seen.deployment.engine,
            fitted=seen.is_fitted,
            predicted_ratio=predicted / actual,
            in_sample_ratio=in_sample[quantity].predicted / actual if quantity in in_sample else None,
            unfitted_ratio=before[quantity].predicted / actual if quantity in before else None,
            held=band.low_ratio <= actual / predicted <= band.high_ratio,
        )
