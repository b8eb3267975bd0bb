"""The file of the step model with constants that were fitted to all rows, their range over the folds, and the classes that had rows."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from app.accuracy.step_fit import FitRow
from app.accuracy.step_folds import constant_lines
from app.accuracy.step_priors import FoldConstant, StepFold
from app.domain.step_constants import StepConstant, StepModel


def with_fit(text: str, model: StepModel, whole: StepFold, folds: Iterable[StepFold], rows: Sequence[FitRow]) -> str:
    """The text of the file with the constants of a fit to all rows; kernels, eras, bands and notes stay.

    low and high of a constant are the least and the largest base among the fits: how far it hangs on single families or series.
    """
    constants, kernels = text.index("constants:\n"), text.index("kernels:\n")
    fitted, bands = text.index("fitted:\n"), text.index("bands:\n")
    lines = ["constants:", *_constants(model, whole, [whole, *folds])]
    return "".join(
        (
            text[:constants],
            "\n".join(lines) + "\n",
            text[kernels:fitted],
            "fitted:\n",
            "".join(f"{line}\n" for line in _classes(rows)),
            text[bands:],
        )
    )


def _constants(model: StepModel, whole: StepFold, fits: Sequence[StepFold]) -> Iterator[str]:
    own = {each.name: each for each in whole.constants}
    bases: dict[str, list[float]] = {}
    for fit in fits:
        for fitted in fit.constants:
            bases.setdefault(fitted.name, []).append(fitted.base)
    for each in model.constants:
        found = own.get(each.name) or FoldConstant(name=each.name, base=each.base, effects=each.effects)
        reach = bases.get(each.name, [each.low, each.high])
        yield from constant_lines(found, _limits(each, min(reach), max(reach)))


def _limits(constant: StepConstant, low: float, high: float) -> dict[str, float]:
    limits = {"low": low, "high": high}
    return limits if constant.most is None else limits | {"most": constant.most}


def _classes(rows: Iterable[FitRow]) -> Iterator[str]:
    """Classes of the rows of the first stage."""
    counts = Counter(row.performance.step_class[:4] for row in rows if row.record.source == "serving points")
    for (engine, gpu_class, weights, kind), count in sorted(counts.items()):
        written = f"'{weights}'" if weights.isdigit() else weights
        yield f"- {{engine: {engine}, gpu_class: {gpu_class}, weights: {written}, kind: {kind}, num_rows: {count}}}"
