"""The speed against recorded loads: what the planner reaches on rows kept out of the fit, and never less again."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from app.accuracy.load_records import LeftOutLoad, LoadRecord, part_of, read_loads
from app.accuracy.performance import SpeedAccuracy, SpeedComparison, speed_accuracy, summarise_ratios
from app.accuracy.performance_report import GOALS, SpeedGoal, speed_report, speed_summary
from app.accuracy.records import RecordsUnreadable
from app.catalog.loader import parse_entry
from app.cli import cli
from app.domain.step_constants import StepModel
from app.services.catalog import CatalogHolder

POINTS, CASES, FIT_PART = (
    Path(__file__).with_name(name) for name in ("serving_points.jsonl", "throughput_cases.jsonl", "step_model.fitpart.yaml")
)
README = Path(__file__).parents[2] / "README.md"


class Bound(NamedTuple):
    """What the scored rows of a goal reached: errors rounded up to the next 0.1 %, shares down to 0.5 %."""

    num_rows: int
    mean_error_ratio: float
    within_quarter_ratio: float
    within_double_ratio: float


# Measured with `inferplan accuracy performance`; a bound is only ever tightened.
BOUNDS: dict[str, Bound] = {
    "serving points, TPOT": Bound(112, 0.249, 0.515, 1),
    "serving points, TTFT": Bound(112, 0.355, 0.39, 0.96),
    "dense, load known, tokens/s": Bound(75, 0.502, 0.49, 0.81),
    "dense, offline, tokens/s": Bound(76, 0.218, 0.88, 0.93),
    "experts and MLA, tokens/s": Bound(125, 0.635, 0.485, 0.815),
    "single stream, TPOT": Bound(13, 0.129, 0.845, 1),
}


@pytest.fixture(scope="module")
def records() -> tuple[list[LoadRecord], list[LeftOutLoad]]:
    return read_loads(POINTS, CASES)


@pytest.fixture(scope="module")
def found(records: tuple[list[LoadRecord], list[LeftOutLoad]]) -> SpeedAccuracy:
    without_scored = parse_entry(FIT_PART.read_bytes(), StepModel, FIT_PART.name)
    return speed_accuracy(CatalogHolder().current, *records, without_scored=without_scored)


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal.title)
def test_the_errors_stay_within_what_was_reached(found: SpeedAccuracy, goal: SpeedGoal) -> None:
    bound = BOUNDS.get(goal.title)
    reached = summarise_ratios(row for row in found.comparisons if row.part == "scored" and goal.holds(row))
    if bound is None:
        assert reached is None, "rows of this goal have come, and no bound"
        return
    assert reached is not None
    assert reached.num_rows == bound.num_rows
    assert reached.mean_error_ratio <= bound.mean_error_ratio
    assert reached.within_quarter_ratio >= bound.within_quarter_ratio
    assert reached.within_double_ratio >= bound.within_double_ratio


def test_every_record_is_judged_or_says_why_not(found: SpeedAccuracy, records: tuple[list[LoadRecord], list[LeftOutLoad]]) -> None:
    judged = {row.case for row in found.comparisons}
    told = {each.id for each in found.left_out}
    silent = [each.id for each in records[0] if each.id not in judged | told and any((each.output_tokens_per_s, each.ttft_s, each.tpot_s))]
    assert silent == []
    assert all(each.reason for each in found.left_out)


def test_both_parts_are_there_and_a_series_is_in_one_of_them(records: tuple[list[LoadRecord], list[LeftOutLoad]]) -> None:
    parts = {(each.model, each.gpu, each.deployment["engine"]): each.part for each in records[0]}
    assert set(parts.values()) == {"fit", "scored"}
    assert all(part == part_of(*series) for series, part in parts.items())
    assert 0.15 < sum(part == "scored" for part in parts.values()) / len(parts) < 0.4


def comparison(ratio: float, *, held: bool = True) -> SpeedComparison:
    return SpeedComparison(
        case="a", source="serving points", part="scored", quantity="tpot", load="closed", single=False, model="m", kind="dense", gpu="g",
        gpu_class="hopper", engine="vllm", predicted_ratio=ratio, held=held,
    )  # fmt: skip


def test_ratios_are_summarised() -> None:
    ratios = (0.4, 0.8, 1.0, 1.2, 2.5)
    summary = summarise_ratios(comparison(ratio, held=ratio < 1.1) for ratio in ratios)
    assert summary is not None
    assert summary.mean_error_ratio == pytest.approx((0.6 + 0.2 + 0 + 0.2 + 1.5) / 5)
    assert (summary.low_ratio, summary.middle_ratio, summary.high_ratio) == (0.4, 1.0, 2.5)
    assert (summary.within_quarter_ratio, summary.within_double_ratio, summary.held_ratio) == (0.6, 0.6, 0.6)
    assert summarise_ratios([]) is None


def test_a_goal_is_met_when_every_figure_is() -> None:
    goal = GOALS[0]
    good, bad = (summarise_ratios([comparison(ratio)]) for ratio in (1.1, 1.3))
    assert good is not None
    assert bad is not None
    assert (goal.met(good), goal.met(bad)) == (True, False)
    assert goal.text() == "mean 15 %, 78 % in 25 %, 99 % in 2x"


def test_the_command_prints_what_the_readme_shows(found: SpeedAccuracy, tmp_path: Path) -> None:
    arguments = ["accuracy", "performance", "--points", str(POINTS), "--cases", str(CASES), "--fit-part", str(FIT_PART)]
    printed = CliRunner().invoke(cli, [*arguments, "--json"], catch_exceptions=False)
    assert json.loads(printed.stdout) == found.model_dump(mode="json")
    document = tmp_path / "document.md"
    document.write_text("before <!-- inferplan accuracy performance --> old <!-- end --> after")
    CliRunner().invoke(cli, [*arguments, "--readme", str(document)], catch_exceptions=False)
    assert document.read_text() == f"before <!-- inferplan accuracy performance -->\n\n{speed_summary(found)}\n<!-- end --> after"
    assert speed_summary(found) in README.read_text(), "run `inferplan accuracy performance --readme README.md`"
    assert speed_report(found).startswith(speed_summary(found))


@pytest.mark.parametrize("text", ['{"id": "a"}', "no json", '{"id": "a", "ttft_s_mean": 1}'])
def test_a_file_that_is_no_record_is_refused_by_name_and_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "broken.jsonl"
    file.write_text(text + "\n")
    with pytest.raises(RecordsUnreadable, match=r"broken\.jsonl:1"):
        read_loads(file)
    with pytest.raises(RecordsUnreadable, match="absent"):
        read_loads(tmp_path / "absent.jsonl")
