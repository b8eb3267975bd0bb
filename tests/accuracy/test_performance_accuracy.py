"""The speed against recorded loads: what the planner reaches on rows that the constants have not seen, and never less again."""

import json
from pathlib import Path
from typing import NamedTuple, TypedDict

import pytest
from typer.testing import CliRunner

from app.accuracy.load_records import LeftOutLoad, LoadRecord, read_loads
from app.accuracy.performance import SpeedAccuracy, SpeedComparison, speed_accuracy, summarise_ratios
from app.accuracy.performance_report import GOALS, KnownMiss, KnownMisses, SpeedGoal, speed_report, speed_summary
from app.accuracy.records import RecordsUnreadable
from app.accuracy.serving_recipes import read_recipes
from app.accuracy.step_bands import HELD_SHARE, LEAST_ROWS, band_lines, bands_of
from app.accuracy.step_folds import read_folds
from app.accuracy.step_priors import StepPriors, fold_of
from app.catalog.loader import parse_entry
from app.cli import cli
from app.domain.step_constants import StepModel
from app.services.catalog import CatalogHolder

pytestmark = pytest.mark.slow

POINTS, CASES, FOLDS, PRIORS, MISSES = (
    Path(__file__).with_name(name)
    for name in ("serving_points.jsonl", "throughput_cases.jsonl", "step_folds", "step_priors.yaml", "known_misses.yaml")
)
RECIPES = Path(__file__).with_name("serving_recipes.yaml")
README = Path(__file__).parents[2] / "README.md"
STEPS = README.parent / "app/catalog/steps/step_model.yaml"


class Bound(NamedTuple):
    """What the rows of a goal reached, left out of the fit: errors rounded up to the next 0.1 %, shares down to 0.5 %."""

    num_rows: int
    mean_error_ratio: float
    median_error_ratio: float
    within_quarter_ratio: float
    within_double_ratio: float


# Measured with `inferplan accuracy performance`; a bound is only ever tightened.
BOUNDS: dict[str, Bound] = {
    "serving points, TPOT": Bound(1251, 0.137, 0.108, 0.835, 0.995),
    "serving points, TTFT": Bound(1251, 0.285, 0.207, 0.58, 0.925),
    "dense, load known, tokens/s": Bound(243, 0.405, 0.194, 0.62, 0.875),
    "dense, offline, tokens/s": Bound(220, 0.162, 0.121, 0.82, 0.975),
    "experts and MLA, tokens/s": Bound(389, 0.468, 0.233, 0.545, 0.88),
    "single stream, TPOT": Bound(31, 0.168, 0.148, 0.74, 1.0),
}


@pytest.fixture(scope="module")
def records() -> tuple[list[LoadRecord], list[LeftOutLoad]]:
    return read_loads(POINTS, CASES, recipes=read_recipes(RECIPES))


class Constants(TypedDict):
    """What rows are predicted with beside the catalog's constants."""

    folds: dict[str, StepModel]
    unfitted: StepModel


def constants() -> Constants:
    model = CatalogHolder().current.step_model
    unfitted = parse_entry(PRIORS.read_bytes(), StepPriors, PRIORS.name).applied_to(model)
    return {"folds": read_folds(FOLDS, model), "unfitted": unfitted}


@pytest.fixture(scope="module")
def found(records: tuple[list[LoadRecord], list[LeftOutLoad]]) -> SpeedAccuracy:
    return speed_accuracy(CatalogHolder().current, *records, **constants())


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal.title)
def test_the_errors_stay_within_what_was_reached(found: SpeedAccuracy, goal: SpeedGoal) -> None:
    bound = BOUNDS.get(goal.title)
    reached = summarise_ratios(row for row in found.comparisons if goal.holds(row))
    if bound is None:
        assert reached is None, "rows of this goal have come, and no bound"
        return
    assert reached is not None
    assert reached.num_rows == bound.num_rows
    assert reached.mean_error_ratio <= bound.mean_error_ratio
    assert reached.median_error_ratio <= bound.median_error_ratio
    assert reached.within_quarter_ratio >= bound.within_quarter_ratio
    assert reached.within_double_ratio >= bound.within_double_ratio


def test_every_record_is_judged_or_says_why_not(found: SpeedAccuracy, records: tuple[list[LoadRecord], list[LeftOutLoad]]) -> None:
    judged = {row.case for row in found.comparisons}
    told = {each.id for each in found.left_out}
    silent = [each.id for each in records[0] if each.id not in judged | told and any((each.output_tokens_per_s, each.ttft_s, each.tpot_s))]
    assert silent == []
    assert all(each.reason for each in found.left_out)


def test_every_record_is_predicted_by_constants_that_have_not_seen_it(records: tuple[list[LoadRecord], list[LeftOutLoad]]) -> None:
    """A record without a fold would be predicted by the catalog's constants, which were fitted to it."""
    assert {fold_of(each) for each in records[0]} == {file.stem for file in FOLDS.glob("*.yaml")}


@pytest.mark.parametrize("quantity", ["ttft", "tpot", "throughput"])
def test_the_stated_range_holds_as_many_rows_of_each_class_as_it_says(found: SpeedAccuracy, quantity: str) -> None:
    classes: dict[tuple[str, str, bool], list[bool]] = {}
    for row in found.comparisons:
        if row.quantity == quantity and not (quantity == "throughput" and row.load == "open"):
            classes.setdefault((row.engine, row.kind, row.fitted), []).append(row.held)
    judged = {name: sum(held) / len(held) for name, held in classes.items() if len(held) >= LEAST_ROWS}
    assert judged
    assert all(0.75 <= share <= 0.9 for share in judged.values()), judged


def comparison(ratio: float, *, held: bool = True, in_sample: float | None = None, series: str = "s") -> SpeedComparison:
    return SpeedComparison(
        case="a", source="serving points", series=series, quantity="tpot", load="closed", single=False, model="m", kind="dense", gpu="g",
        gpu_class="hopper", engine="vllm", fitted=True, predicted_ratio=ratio, in_sample_ratio=in_sample, unfitted_ratio=None, held=held,
    )  # fmt: skip


def test_ratios_are_summarised() -> None:
    ratios = (0.4, 0.8, 1.0, 1.2, 2.5)
    summary = summarise_ratios(comparison(ratio, held=ratio < 1.1) for ratio in ratios)
    assert summary is not None
    assert summary.mean_error_ratio == pytest.approx((0.6 + 0.2 + 0 + 0.2 + 1.5) / 5)
    assert (summary.low_ratio, summary.middle_ratio, summary.high_ratio) == (0.4, 1.0, 2.5)
    assert (summary.within_quarter_ratio, summary.within_double_ratio, summary.held_ratio) == (0.6, 0.6, 0.6)
    assert summarise_ratios([]) is None
    seen = summarise_ratios([comparison(2.0, in_sample=1.5), comparison(2.0)], "in_sample_ratio")
    assert seen is not None
    assert (seen.num_rows, seen.mean_error_ratio) == (1, 0.5)


def test_a_range_holds_its_share_of_the_rows_it_was_read_from() -> None:
    rows = [comparison((1 + number / 100) ** (-1) ** number) for number in range(100)]
    own, *_, every = bands_of(rows)
    assert (own.engine, own.kind, every.engine, every.kind, own.num_rows) == ("vllm", "dense", None, None, 100)
    held = sum(own.low_ratio <= 1 / row.predicted_ratio <= own.high_ratio for row in rows)
    assert held == pytest.approx(100 * HELD_SHARE, abs=1)
    assert list(bands_of(rows[: LEAST_ROWS - 1])) == []


def test_the_worst_series_come_first_with_the_mechanism_that_is_known() -> None:
    rows = [comparison(1.1, series="near"), comparison(0.4, series="far/one"), comparison(0.4, series="far/one")]
    found = SpeedAccuracy(num_records=3, comparisons=rows, left_out=[])
    text = speed_report(found, [KnownMiss(series="far/*", why="a mechanism", source="https://example.org")])
    assert text.index("- far/one (2 rows): x 0.4; a mechanism") < text.index("- near (1 rows): x 1.1; no mechanism known")


def test_a_goal_is_met_when_every_figure_is() -> None:
    goal = GOALS[0]
    good, bad = (summarise_ratios([comparison(ratio)]) for ratio in (1.1, 1.3))
    assert good is not None
    assert bad is not None
    assert (goal.met(good), goal.met(bad)) == (True, False)
    assert goal.text() == "mean 15 %, 78 % in 25 %, 99 % in 2x"


def test_the_readme_and_the_catalog_show_what_these_rows_say(found: SpeedAccuracy) -> None:
    assert speed_summary(found) in README.read_text(), "run `inferplan accuracy performance --readme README.md`"
    assert "\n".join(band_lines(bands_of(found.comparisons))) in STEPS.read_text(), "the ranges are those of `--bands`"


def test_the_command_prints_what_the_functions_say(tmp_path: Path) -> None:
    for file in (POINTS, CASES):
        (tmp_path / file.name).write_text("\n".join(file.read_text().splitlines()[::12]))
    points, cases, document = tmp_path / POINTS.name, tmp_path / CASES.name, tmp_path / "document.md"
    document.write_text("before <!-- inferplan accuracy performance --> old <!-- end --> after")
    files = {"--points": points, "--cases": cases, "--folds": FOLDS, "--priors": PRIORS, "--misses": MISSES, "--recipes": RECIPES}

    def printed(*options: str) -> str:
        arguments = ["accuracy", "performance", *(str(each) for pair in files.items() for each in pair), *options]
        return CliRunner().invoke(cli, arguments, catch_exceptions=False).stdout

    found = speed_accuracy(CatalogHolder().current, *read_loads(points, cases, recipes=read_recipes(RECIPES)), **constants())
    assert json.loads(printed("--json")) == found.model_dump(mode="json")
    assert printed("--readme", str(document)) == ""
    assert document.read_text() == f"before <!-- inferplan accuracy performance -->\n\n{speed_summary(found)}\n<!-- end --> after"
    assert printed("--bands").splitlines() == list(band_lines(bands_of(found.comparisons)))
    assert printed() == speed_report(found, parse_entry(MISSES.read_bytes(), KnownMisses, MISSES.name).misses)


@pytest.mark.parametrize("text", ['{"id": "a"}', "no json", '{"id": "a", "ttft_s_mean": 1}'])
def test_a_file_that_is_no_record_is_refused_by_name_and_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "broken.jsonl"
    file.write_text(text + "\n")
    with pytest.raises(RecordsUnreadable, match=r"broken\.jsonl:1"):
        read_loads(file)
    with pytest.raises(RecordsUnreadable, match="absent"):
        read_loads(tmp_path / "absent.jsonl")
