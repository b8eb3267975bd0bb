"""Files of constants that have not seen some of the records: one for each fold."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from app.accuracy.step_fit import FitRow, Fitted, fit_stage, fitted_constants
from app.accuracy.step_priors import FoldConstant, StepFold, StepPriors, fold_of, is_left_out
from app.catalog.loader import parse_entry
from app.domain.step_constants import StepModel

NOTHING = "nothing"
"""The fold without rows: its constants have seen all."""
ORIGIN = (
    "inferplan accuracy fit-steps: fitted from step_priors.yaml to serving_points.jsonl and throughput_cases.jsonl, without these rows."
)


def read_folds(folder: Path, model: StepModel) -> dict[str, StepModel]:
    """The model with the constants of each fold, by family; raises CatalogFileError naming a file that is none."""
    found = (parse_entry(file.read_bytes(), StepFold, file.name) for file in sorted(folder.glob("*.yaml")))
    return {fold.leaves_out: fold.applied_to(model) for fold in found}


def fit_folds(rows: Sequence[FitRow], priors: StepPriors, model: StepModel, folds: Iterable[str] = ()) -> Iterator[StepFold]:
    """One fit for each fold (those given, or all and NOTHING), which never meets a row of it: neither here nor in where it starts."""
    whole: Fitted = {}
    for fold in sorted(set(folds) or {NOTHING, *(fold_of(row.record) for row in rows)}):
        others = [row for row in rows if not is_left_out(row.record, fold)]
        if any(row.record.source == "serving points" and is_left_out(row.record, fold) for row in rows):
            served = fit_stage(others, priors, model, "serving", {})
        else:
            served = whole = whole or fit_stage(others, priors, model, "serving", {})
        fitted = fit_stage(others, priors, model, "throughput", served)
        yield StepFold(leaves_out=fold, origin=ORIGIN, constants=fitted_constants(fitted, priors, model))


def fold_text(fold: StepFold) -> str:
    """A fold as YAML, one effect a line."""
    lines = [f"leaves_out: {fold.leaves_out}", f"origin: '{fold.origin}'", "constants:"]
    for each in fold.constants:
        lines += constant_lines(each)
    return "\n".join(lines) + "\n"


def constant_lines(constant: FoldConstant, more: Mapping[str, float] = MappingProxyType({})) -> Iterator[str]:
    """A constant as YAML, further numbers after its base."""
    yield f"- name: {constant.name}"
    yield f"  base: {_number(constant.base)}"
    for name, value in more.items():
        yield f"  {name}: {_number(value)}"
    yield "  effects:" if constant.effects else "  effects: []"
    for effect in constant.effects:
        told = effect.model_dump(mode="json", exclude_none=True)
        factor = told.pop("factor_ratio")
        named = "".join(f"{name}: {_text(value)}, " for name, value in told.items())
        yield f"  - {{{named}factor_ratio: {_number(factor)}}}"


def _number(value: float) -> str:
    """YAML 1.1 reads 1e-05 as a text and 1.0e-05 as a number."""
    text = f"{value:.4g}"
    return text.replace("e", ".0e") if "e" in text and "." not in text else text


def _text(value: str) -> str:
    return f"'{value}'" if value[:1].isdigit() else value
