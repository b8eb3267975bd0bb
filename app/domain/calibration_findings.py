"""From the rows of a sweep to a calibration: fit, compare before and after, and say what the rows could not tell."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from app.domain.calibrated_model import moved_constants
from app.domain.calibration import Setup, Span
from app.domain.calibration_answer import CalibratedConstant, CalibrationResult, CalibrationRow, FitQuality, RowError
from app.domain.calibration_fit import (
    MOVABLE,
    NOISE_LN,
    OUTLIER_SIGMAS,
    Measurement,
    Moved,
    Quantity,
    fit_constants,
    fitted_quantities,
)
from app.domain.provenance import Note
from app.domain.step_constants import Band, ConstantName, Constants, StepModel
from app.domain.units import plain

TELLING_RATIO = 0.7
"""A constant whose uncertainty falls below this share of what it was before has been measured; else it stays near its class."""
PRIOR_ROWS = 0.5
"""Rows that the range of the class counts as beside those of the sweep. With 0.5 the stated ranges hold 86-88 % of the other rows of a
sweep after a third of it, and 79-84 % after a single row (`inferplan accuracy calibration`)."""
WIDEST = 99.0
"""Ranges go up to this factor: a band holds no more."""
TENTH_SIGMAS = 1.2816
"""Standard deviations from the mean to the 10th and 90th percentile of a normal distribution."""
WOULD_TELL: Mapping[ConstantName, str] = {
    "bandwidth_ratio": "TPOT at 1 to 8 requests at a time",
    "expert_bandwidth_ratio": "TPOT at 8 to 64 requests at a time",
    "dense_peak_ratio": "long prompts, or the most requests at a time that fit",
    "expert_peak_ratio": "long prompts, or the most requests at a time that fit",
    "kernel_s": "TPOT at one request at a time beside a larger load",
    "sequence_s": "TPOT at many requests at a time beside a smaller load",
    "request_s": "mean TTFT at one request at a time",
    "residual_iterations": "mean TTFT at several loads",
}
"""What kind of row each constant shows in."""


@dataclass(frozen=True)
class SweepRow:
    """A point of the files, and its measurement or why there is none."""

    point: int
    concurrency: float | None
    input_tokens: float | None
    output_tokens: float | None
    measurement: Measurement | None
    unused_because: str | None


class Fitted(NamedTuple):
    """What is kept for later estimates, and the answer."""

    factors: dict[ConstantName, float]
    bands: tuple[Band, ...]
    result: CalibrationResult


def calibrate(rows: Sequence[SweepRow], setup: Setup, model: StepModel, warnings: Sequence[Note]) -> Fitted:
    """Fit the constants to the rows that have a measurement, of which there is at least one, all of one class of steps.

    See `calibration_fit.fit_constants`. The range of a quantity is exp(+-z) with z^2 = (rows x mean of (1.28 ln(measured / predicted))^2
    + PRIOR_ROWS x z_class^2) / (rows + PRIOR_ROWS): that of the class, replaced by the residuals as rows arrive.
    """
    used = [row.measurement for row in rows if row.measurement is not None]
    found = used[0].performance.step_class
    moved = fit_constants(used, MOVABLE[found.kind], lambda factors: moved_constants(model, factors, found))
    factors = {each.name: each.factor for each in moved}
    before, after = model.constants_of(found), moved_constants(model, factors, found)
    errors = [None if row.measurement is None else _errors(row.measurement, before, after) for row in rows]
    bands, quality = [], []
    for quantity in ("tpot", "ttft", "throughput"):
        own = [each for row in errors for each in row or () if each.quantity == quantity]
        band = _band(model.band(found, quantity), own)
        bands.append(band)
        if own:
            quality.append(_quality(quantity, own, band))
    loads = [each.concurrency for each in used]
    constants = [
        CalibratedConstant(
            name=each.name,
            before=getattr(before, each.name),
            after=getattr(after, each.name),
            factor_ratio=each.factor,
            uncertainty_left_ratio=each.left_ratio,
            identified=each.left_ratio <= TELLING_RATIO,
        )
        for each in moved
    ]
    result = CalibrationResult(
        summary=_summary(setup, len(used), len(rows), quality),
        setup=setup,
        num_rows=len(used),
        concurrency=Span(low=min(loads), high=max(loads)),
        constants=constants,
        quality=quality,
        rows=[_row(row, each) for row, each in zip(rows, errors, strict=True)],
        not_identified=_not_identified(moved),
        warnings=[*warnings, *_fit_warnings(moved, len(used))],
    )
    return Fitted(factors, tuple(bands), result)


def _errors(row: Measurement, before: Constants, after: Constants) -> list[RowError]:
    first, last = row.predicted(before), row.predicted(after)
    return [
        RowError(
            quantity=name,
            measured=measured,
            before=first[name],
            after=last[name],
            error_before_ratio=abs(first[name] / measured - 1),
            error_after_ratio=abs(last[name] / measured - 1),
        )
        for name, measured in row.measured.items()
    ]


def _band(of_class: Band, errors: Sequence[RowError]) -> Band:
    squares = math.fsum((TENTH_SIGMAS * math.log(each.measured / each.after)) ** 2 for each in errors)
    wide = math.log(of_class.high_ratio / of_class.low_ratio) / 2
    half = min(math.sqrt((squares + PRIOR_ROWS * wide**2) / (len(errors) + PRIOR_ROWS)), math.log(WIDEST))
    low, high = (math.exp(-half), math.exp(half)) if errors else (of_class.low_ratio, of_class.high_ratio)
    return Band(quantity=of_class.quantity, fitted=True, low_ratio=low, high_ratio=high, num_rows=len(errors))


def _quality(quantity: Quantity, errors: Sequence[RowError], band: Band) -> FitQuality:
    def median(of: Callable[[RowError], float]) -> float:
        return sorted(map(of, errors))[len(errors) // 2]

    return FitQuality(
        quantity=quantity,
        num_rows=len(errors),
        median_error_before_ratio=median(lambda each: each.error_before_ratio),
        median_error_after_ratio=median(lambda each: each.error_after_ratio),
        low_ratio=band.low_ratio,
        high_ratio=band.high_ratio,
    )


def _row(row: SweepRow, errors: Sequence[RowError] | None) -> CalibrationRow:
    return CalibrationRow(
        point=row.point,
        concurrency=row.concurrency,
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        used=row.measurement is not None,
        errors=errors or (),
        disagrees=row.unused_because if row.measurement is None else _disagreement(row.measurement, errors or ()),
    )


def _disagreement(row: Measurement, errors: Sequence[RowError]) -> str | None:
    """What the fitted model misses by more than repeated runs differ, with what the load itself explains."""
    taking_part = fitted_quantities(row.measured)
    missed = [
        f"{each.quantity} is {each.measured / each.after:.2g} times what the fit to all rows gives"
        for each in errors
        if each.quantity in taking_part and abs(math.log(each.measured / each.after)) > OUTLIER_SIGMAS * NOISE_LN[each.quantity]
    ]
    if not missed:
        return None
    places = row.performance.places
    if row.concurrency > places:
        missed.append(f"{plain(row.concurrency)} requests wait for {plain(places)} places, if the engine had as many")
    return "; ".join(missed)


def _not_identified(moved: Sequence[Moved]) -> list[Note]:
    return [
        Note(
            code=f"{each.name}_not_identified",
            message=f"The rows do not tell {each.name} from other constants (x {each.factor:.2f}, {100 * each.left_ratio:.0f} % of its "
            f"uncertainty are left): {WOULD_TELL[each.name]} would.",
        )
        for each in moved
        if each.left_ratio > TELLING_RATIO
    ]


def _fit_warnings(moved: Sequence[Moved], num_rows: int) -> list[Note]:
    notes = [
        Note(
            code="constant_at_bound",
            message=f"{each.name} moved by the most that is allowed (x {each.factor:.3g}): the deployment is probably not what was "
            "measured.",
        )
        for each in moved
        if each.at_bound
    ]
    if num_rows == 1:
        message = "One row tells one constant apart at best: loads and lengths far from it are known little better than before."
        notes.append(Note(code="single_row", message=message))
    return notes


def _summary(setup: Setup, num_used: int, num_rows: int, quality: Sequence[FitQuality]) -> str:

    def percent(ratio: float) -> str:
        return f"{100 * ratio:.0f} %"

    parts = [
        f"{each.quantity} median error {percent(each.median_error_before_ratio)} before, {percent(each.median_error_after_ratio)} after"
        for each in quality
        if each.quantity != "throughput" or len(quality) == 1
    ]
    return f"{setup.model} on {setup.gpu} with {setup.engine}: {num_used} of {num_rows} rows used; {'; '.join(parts)}."
