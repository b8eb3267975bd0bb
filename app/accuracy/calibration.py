"""What calibrating brings: constants fitted to a part of a recorded sweep, scored on the rest of it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from app.accuracy.load_records import LoadRecord
from app.accuracy.performance import at_constants, recorded_performance
from app.accuracy.report import markdown_rows, percent
from app.accuracy.step_priors import fold_of
from app.domain.calibrated_model import moved_constants
from app.domain.calibration import setup_of
from app.domain.calibration_findings import SweepRow, calibrate
from app.domain.calibration_fit import Measurement, Quantity
from app.domain.catalog import Catalog
from app.domain.step_constants import StepModel
from app.domain.value import Value

LEAST_ROWS = 6
"""Shorter sweeps have no third worth the name."""
GOAL_RATIO = 0.07
"""Median error of the rest of a sweep that is asked for after calibrating on a third."""


Part = Literal["a third", "one row", "low loads", "high loads"]
THIRD: Part = "a third"


class CalibratedComparison(Value):
    """One figure of a row that a calibration has not seen."""

    case: str
    """Record."""
    sweep: str
    """Set-up and version."""
    engine: str
    """Engine."""
    quantity: Quantity
    """What is compared."""
    num_fitted_rows: int
    """Rows of the sweep that the calibration saw."""
    before_ratio: float
    """Predicted / recorded with constants that have seen no row of the model's family."""
    after_ratio: float
    """The same after the calibration."""
    held: bool
    """The range of the calibration holds the recorded figure."""


def calibration_accuracy(
    catalog: Catalog, records: Iterable[LoadRecord], *, folds: Mapping[str, StepModel], part: Part = "a third"
) -> list[CalibratedComparison]:
    """Calibrate each sweep on every third of its rows in the order of lengths and load (or on another part) and score the others.

    A sweep is what one set-up and version recorded over HTTP, LEAST_ROWS rows or more. It starts from constants of `folds` that have seen
    no row of its family of models.
    """
    found: list[CalibratedComparison] = []
    for name, sweep in _sweeps(records):
        model = folds.get(fold_of(sweep[0]), catalog.step_model)
        rows = [_measurement(catalog, model, record) for record in sweep]
        seen = _seen(sweep, part)
        found += _scored(name, sweep, rows, seen, model)
    return found


def _seen(sweep: Sequence[LoadRecord], part: Part) -> set[int]:
    """Places of the rows that a calibration sees."""
    count = len(sweep)
    by_load = sorted(range(count), key=lambda place: sweep[place].concurrency or 0)
    return {
        "a third": set(range(1, count, 3)),
        "one row": {count // 2},
        "low loads": set(by_load[: count // 3]),
        "high loads": set(by_load[-(count // 3) :]),
    }[part]


def _scored(
    name: str, sweep: Sequence[LoadRecord], rows: Sequence[Measurement], seen: set[int], model: StepModel
) -> Iterator[CalibratedComparison]:
    first = rows[0].performance
    fitted = calibrate(
        [
            SweepRow(number, row.concurrency, row.performance.lengths.input_tokens, row.performance.lengths.output_tokens, row, None)
            for number, row in enumerate(rows)
            if number in seen
        ],
        setup_of(first.llm, first.gpu, first.deployment),
        model,
        (),
    )
    bands = {band.quantity: band for band in fitted.bands}
    for number, (record, row) in enumerate(zip(sweep, rows, strict=True)):
        if number in seen:
            continue
        kind = row.performance.step_class
        before, after = row.predicted(model.constants_of(kind)), row.predicted(moved_constants(model, fitted.factors, kind))
        for quantity, measured in row.measured.items():
            band = bands[quantity]
            yield CalibratedComparison(
                case=record.id,
                sweep=name,
                engine=row.performance.deployment.engine,
                quantity=quantity,
                num_fitted_rows=len(seen),
                before_ratio=before[quantity] / measured,
                after_ratio=after[quantity] / measured,
                held=band.low_ratio <= measured / after[quantity] <= band.high_ratio,
            )


def _sweeps(records: Iterable[LoadRecord]) -> Iterator[tuple[str, list[LoadRecord]]]:
    """Records by set-up and version; how requests are looked for is a part of the set-up."""
    found: dict[str, list[LoadRecord]] = {}
    layout = ("engine", "engine_version", "tp", "pp", "dp", "ep", "weights", "kv_cache", "poll_interval_steps", "batch_wait_steps")
    for record in records:
        if record.source == "serving points" and record.concurrency is not None:
            name = "|".join(str(part) for part in (record.model, record.gpu, *(record.deployment.get(part) for part in layout)))
            found.setdefault(name, []).append(record)
    for name, sweep in found.items():
        if len(sweep) >= LEAST_ROWS:
            yield name, sorted(sweep, key=lambda each: (each.input_tokens, each.output_tokens, each.concurrency or 0, each.id))


def _measurement(catalog: Catalog, model: StepModel, record: LoadRecord) -> Measurement:
    measured: dict[Quantity, float] = {}
    if record.tpot_s:
        measured["tpot"] = record.tpot_s
    if record.ttft_s:
        measured["ttft"] = record.ttft_s
    return Measurement(at_constants(recorded_performance(catalog, record), model), float(record.concurrency or 1), measured)


def calibration_summary(by_part: Mapping[str, Sequence[CalibratedComparison]]) -> str:
    """Errors before and after by what the calibration saw, as Markdown; the goal is for a third of a sweep."""
    header = ("calibrated on", "quantity", "sweeps", "n", "median before", "median after", "mean after", "in the range", "goal", "met")
    rows = [
        _cells(part, title, [each for each in comparisons if quantity in (None, each.quantity)], judged=part == THIRD)
        for part, comparisons in by_part.items()
        for quantity, title in (("tpot", "TPOT"), ("ttft", "TTFT"), (None, "both"))
    ]
    lines = [
        f"Rows of a recorded sweep ({LEAST_ROWS} rows or more of one set-up and version) that a calibration of the same sweep has not "
        "seen. Before: constants fitted without any row of the family of models; after: the same, calibrated on every third row in the "
        "order of lengths and concurrency, on the middle row alone, or on the third with the lowest or the highest concurrency, which "
        "leaves loads that were not measured. The range is that of the calibration.",
        "",
        *markdown_rows(header, rows),
    ]
    return "\n".join(lines) + "\n"


def median_error(comparisons: Iterable[CalibratedComparison], *, before: bool = False) -> float:
    """Median of |predicted / recorded - 1| after the calibration, or before it."""
    errors = sorted(abs((each.before_ratio if before else each.after_ratio) - 1) for each in comparisons)
    return errors[len(errors) // 2]


def _cells(part: str, title: str, own: Sequence[CalibratedComparison], *, judged: bool) -> list[str]:
    median = median_error(own)
    return [
        part,
        title,
        str(len({each.sweep for each in own})),
        str(len(own)),
        percent(median_error(own, before=True)),
        percent(median),
        percent(sum(abs(each.after_ratio - 1) for each in own) / len(own)),
        percent(sum(each.held for each in own) / len(own)),
        f"median {percent(GOAL_RATIO)}" if judged else "",
        ("yes" if median <= GOAL_RATIO else "no") if judged else "",
    ]
