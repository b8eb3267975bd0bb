"""The fit of the constants: it finds what made the rows, starts from the priors alone, and never meets what it leaves out."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

import app.catalog
from app.accuracy import step_folds
from app.accuracy.fitted_model import with_fit
from app.accuracy.load_records import LoadRecord, read_loads
from app.accuracy.performance import at_constants, figures_of, is_faster_than_possible, recorded_performance
from app.accuracy.serving_recipes import read_recipes
from app.accuracy.step_fit import FitRow, Fitted, fit_rows, fit_stage, fitted_constants
from app.accuracy.step_folds import fit_folds, fold_text
from app.accuracy.step_priors import ConstantPrior, EffectPrior, Stage, StepFold, StepPriors, family_of, fold_of, is_left_out
from app.catalog.loader import parse_entry
from app.domain.step_constants import StepModel
from app.services.catalog import CatalogHolder

POINTS, CASES, PRIORS = (Path(__file__).with_name(name) for name in ("serving_points.jsonl", "throughput_cases.jsonl", "step_priors.yaml"))
RECIPES = Path(__file__).with_name("serving_recipes.yaml")
PRIOR = StepPriors(
    origin="a test",
    constants=(
        ConstantPrior(name="bandwidth_ratio", centre=0.8, spread=0.5),
        ConstantPrior(name="kernel_s", centre=4e-6, spread=1.0, effects=(EffectPrior(by=("engine",), spread=1.0),)),
    ),
)


@pytest.fixture(scope="module")
def records() -> list[LoadRecord]:
    return read_loads(POINTS, CASES, recipes=read_recipes(RECIPES))[0]


def some(records: Sequence[LoadRecord], count: int, *models: str) -> list[LoadRecord]:
    """Records spread evenly over those of the models."""
    own = [each for each in records if each.model in models and each.source == "serving points"]
    return own[:: max(1, len(own) // count)]


def with_recorded(model: StepModel, records: Sequence[LoadRecord]) -> list[LoadRecord]:
    """Records whose times are exactly what a model says."""
    found = []
    for each in records:
        performance = at_constants(recorded_performance(CatalogHolder().current, each), model)
        said = figures_of(each, performance)
        found.append(each.model_copy(update={"ttft_s": said["ttft"].predicted, "tpot_s": said["tpot"].predicted}))
    return found


def constants_with(model: StepModel, **bases: float) -> StepModel:
    changed = tuple(
        each.model_copy(update={"base": bases[each.name], "effects": ()}) if each.name in bases else each for each in model.constants
    )
    return model.model_copy(update={"constants": changed})


def test_the_constants_that_made_the_rows_are_found(records: list[LoadRecord]) -> None:
    catalog = CatalogHolder().current
    truth = constants_with(catalog.step_model, bandwidth_ratio=0.7, kernel_s=6e-6)
    rows = fit_rows(catalog, with_recorded(truth, some(records, 40, "llama-3.1-70b", "qwen3-32b")))
    fitted = fit_stage(rows, PRIOR, catalog.step_model, "serving", {})
    bandwidth, kernel = fitted_constants(fitted, PRIOR, catalog.step_model)
    assert bandwidth.base == pytest.approx(0.7, rel=0.02)
    engines = {effect.engine: effect.factor_ratio for effect in kernel.effects}
    assert [kernel.base * engines.get(each, 1.0) for each in ("vllm", "sglang")] == pytest.approx([6e-6, 6e-6], rel=0.02)


def test_what_is_known_is_held_in_the_second_stage(records: list[LoadRecord]) -> None:
    catalog = CatalogHolder().current
    known: Fitted = {("bandwidth_ratio", ()): math.log(0.5), ("kernel_s", ()): math.log(1e-6)}
    rows = fit_rows(catalog, [each for each in records if each.load == "offline"][:20])
    fitted = fit_stage(rows, PRIOR, catalog.step_model, "throughput", known)
    assert {name: fitted[name] for name in known} == known
    assert len(fitted) > len(known)


@pytest.mark.parametrize("fold", ["qwen", "part-0"])
def test_a_fit_never_meets_what_its_fold_leaves_out(fold: str, records: list[LoadRecord], monkeypatch: pytest.MonkeyPatch) -> None:
    catalog, met, starts = CatalogHolder().current, list[LoadRecord](), list[Fitted]()

    def fit(rows: Sequence[FitRow], priors: StepPriors, start: StepModel, stage: Stage, known: Fitted) -> Fitted:
        met.extend(row.record for row in rows)
        starts.append(known)
        return {("kernel_s", ()): 0.0}

    monkeypatch.setattr(step_folds, "fit_stage", fit)
    rows = fit_rows(catalog, records[::10])
    next(fit_folds(rows, PRIOR, catalog.step_model, [fold]))
    assert any(fold_of(row.record) == fold for row in rows)
    assert met
    assert not any(is_left_out(each, fold) for each in met)
    assert starts == [{}, {("kernel_s", ()): 0.0}]


def test_a_family_is_left_out_of_both_files(records: list[LoadRecord]) -> None:
    assert {each.source for each in records if is_left_out(each, "qwen")} == {"serving points", "throughput cases"}
    assert {family_of(each.model) for each in records if is_left_out(each, "qwen")} == {"qwen"}


def test_a_fold_is_read_as_it_was_written() -> None:
    catalog = CatalogHolder().current
    fold = StepFold(
        leaves_out="qwen",
        origin="a test",
        constants=fitted_constants({("kernel_s", (("weights", "8"),)): 0.5, ("kernel_s", ()): -12.0}, PRIOR, catalog.step_model),
    )
    assert parse_entry(fold_text(fold).encode(), StepFold, "qwen.yaml") == fold
    kept = {each.name: each for each in catalog.step_model.constants}
    for each in fold.applied_to(catalog.step_model).constants:
        assert each.most == kept[each.name].most
        assert (each == kept[each.name]) == (each.name not in ("kernel_s", "bandwidth_ratio"))


def test_the_priors_name_every_constant_but_the_one_that_is_set() -> None:
    priors = parse_entry(PRIORS.read_bytes(), StepPriors, PRIORS.name)
    fitted = {each.name for each in priors.constants}
    assert {each.name for each in CatalogHolder().current.step_model.constants} - fitted == {"held_output_ratio"}


def test_a_record_that_asks_for_more_than_the_peak_is_not_believed(records: list[LoadRecord]) -> None:
    record = some(records, 1, "llama-3.1-70b")[0]
    performance = recorded_performance(CatalogHolder().current, record)
    assert record.ttft_s is not None
    assert record.tpot_s is not None
    assert not is_faster_than_possible(record, performance)
    hurried = record.model_copy(update={"ttft_s": record.ttft_s / 1000, "tpot_s": record.tpot_s / 1000})
    assert is_faster_than_possible(hurried, performance)


@pytest.mark.slow
def test_a_fold_is_what_the_fit_gives_today(records: list[LoadRecord]) -> None:
    """Constants of a fold are those of the step model as it is: a change of its equations asks for `inferplan accuracy fit-steps`."""
    catalog = CatalogHolder().current
    priors = parse_entry(PRIORS.read_bytes(), StepPriors, PRIORS.name)
    (again,) = fit_folds(fit_rows(catalog, records), priors, catalog.step_model, ["glm"])
    kept = parse_entry((Path(__file__).with_name("step_folds") / "glm.yaml").read_bytes(), StepFold, "glm.yaml")
    assert {each.name: each.base for each in again.constants} == pytest.approx({each.name: each.base for each in kept.constants}, rel=0.02)


def test_the_catalog_takes_the_constants_of_all_rows_and_their_range_over_the_folds(records: list[LoadRecord]) -> None:
    catalog = CatalogHolder().current
    text = Path(app.catalog.__file__).with_name("steps").joinpath("step_model.yaml").read_text(encoding="utf-8")
    fits = [
        StepFold(
            leaves_out=name,
            origin="a test",
            constants=fitted_constants(
                {("kernel_s", ()): math.log(base), ("bandwidth_ratio", ()): math.log(0.9)}, PRIOR, catalog.step_model
            ),
        )
        for name, base in (("nothing", 4e-6), ("qwen", 3e-6), ("part-0", 5e-6))
    ]
    rows = fit_rows(catalog, some(records, 20, "llama-3.1-70b", "qwen3-32b"))
    written = parse_entry(with_fit(text, catalog.step_model, fits[0], fits[1:], rows).encode(), StepModel, "step_model.yaml")
    kept = {each.name: each for each in catalog.step_model.constants}
    for each in written.constants:
        if each.name == "kernel_s":
            assert (each.base, each.low, each.high, each.effects) == (4e-6, 3e-6, 5e-6, ())
        elif each.name != "bandwidth_ratio":
            assert each == kept[each.name]
    assert [each.name for each in written.constants] == list(kept)
    assert sum(each.num_rows for each in written.fitted) == len(rows)
    assert (written.bands, written.kernels, written.eras) == (catalog.step_model.bands, catalog.step_model.kernels, catalog.step_model.eras)
