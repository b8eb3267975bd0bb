"""What a calibration reaches on the rest of its sweep, and never less again."""

from pathlib import Path
from typing import get_args

import pytest

from app.accuracy.calibration import (
    GOAL_RATIO,
    CalibratedComparison,
    Part,
    calibration_accuracy,
    calibration_summary,
    median_error,
)
from app.accuracy.load_records import LoadRecord, read_loads
from app.accuracy.serving_recipes import read_recipes
from app.accuracy.step_folds import read_folds
from app.services.catalog import CatalogHolder

POINTS, FOLDS = Path(__file__).with_name("serving_points.jsonl"), Path(__file__).with_name("step_folds")
RECIPES = Path(__file__).with_name("serving_recipes.yaml")
README = Path(__file__).parents[2] / "README.md"
# Measured with `inferplan accuracy calibration`, rounded up to the next 0.1 %; a bound is only ever tightened. Measured anew on 83
# sweeps in place of 80: recipes tell sweeps apart that held prompts for a batch and that did not.
BOUNDS: dict[tuple[Part, str], float] = {
    ("a third", "tpot"): 0.034,
    ("a third", "ttft"): 0.0856,
    ("one row", "tpot"): 0.0632,
    ("one row", "ttft"): 0.129,
    ("low loads", "tpot"): 0.051,
    ("low loads", "ttft"): 0.105,
    ("high loads", "tpot"): 0.063,
    ("high loads", "ttft"): 0.108,
}


def compare(records: list[LoadRecord], part: Part) -> list[CalibratedComparison]:
    catalog = CatalogHolder().current
    return calibration_accuracy(catalog, records, folds=read_folds(FOLDS, catalog.step_model), part=part)


@pytest.fixture(scope="module")
def records() -> list[LoadRecord]:
    return read_loads(POINTS, recipes=read_recipes(RECIPES))[0]


@pytest.fixture(scope="module")
def by_part(records: list[LoadRecord]) -> dict[Part, list[CalibratedComparison]]:
    return {part: compare(records, part) for part in get_args(Part)}


def test_one_series_reaches_the_goal_from_constants_that_have_not_seen_its_family(records: list[LoadRecord]) -> None:
    own = [each for each in records if each.model == "llama-3.1-70b" and each.gpu == "h200-sxm-141gb"]
    found = [each for each in compare(own, "a third") if each.quantity == "tpot"]
    assert len(found) > 50
    assert median_error(found) <= GOAL_RATIO < median_error(found, before=True)
    assert not {each.case for each in found} - {each.id for each in own}


@pytest.mark.slow
@pytest.mark.parametrize(("part", "quantity"), list(BOUNDS), ids=lambda value: value)
def test_the_rest_of_a_sweep_stays_within_what_was_reached(
    by_part: dict[Part, list[CalibratedComparison]], part: Part, quantity: str
) -> None:
    own = [each for each in by_part[part] if each.quantity == quantity]
    assert len({each.sweep for each in own}) == 83
    assert median_error(own) <= BOUNDS[part, quantity]


@pytest.mark.slow
@pytest.mark.parametrize("part", ["a third", "one row"])
def test_the_stated_range_holds_what_it_says(by_part: dict[Part, list[CalibratedComparison]], part: Part) -> None:
    # For loads that were not measured the range holds less, which answers say (`calibration_used`).
    held = [each.held for each in by_part[part]]
    assert 0.75 <= sum(held) / len(held) <= 0.9


@pytest.mark.slow
def test_the_readme_has_the_table(by_part: dict[Part, list[CalibratedComparison]]) -> None:
    assert calibration_summary(dict(by_part.items())) in README.read_text(encoding="utf-8")
