"""The memory answers against recorded start-ups: what the planner reaches now, and never less again."""

import doctest
import json
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from app.accuracy import expression
from app.accuracy.expression import Expressed, NotExpressed, express
from app.accuracy.memory import answer_given_pool, memory_accuracy
from app.accuracy.quantities import QUANTITIES, MemoryAccuracy, Quantity
from app.accuracy.records import ReadRecord, RecordsUnreadable, read_records, readings_file
from app.accuracy.report import markdown_report, markdown_summary, with_summary
from app.cli import cli
from app.domain.catalog import Catalog
from app.domain.units import GIB
from app.services.catalog import CatalogHolder

pytestmark = pytest.mark.slow

CASES = Path(__file__).with_name("memory_cases.jsonl")
README = Path(__file__).parents[2] / "README.md"


class Bound(NamedTuple):
    """What the errors of one quantity reached, rounded up to the next 0.01 %, the share down to 0.5 %."""

    num_cases: int
    median_error_ratio: float
    p90_error_ratio: float
    within_bound_ratio: float = 0


# Measured with `inferplan accuracy memory`; a bound is only ever tightened. Once one was not: a term that only mc-105 had asked for, and
# that the engine's source does not bear out, was taken away, and that record is now the worst of the nine with recorded limits.
BOUNDS: dict[Quantity, Bound] = {
    "kv_bytes_per_token_per_gpu": Bound(62, 0.0001, 0.0011, 0.935),
    "weights_bytes_per_gpu": Bound(64, 0.0025, 0.0204, 0.935),
    "kv_tokens_given_pool": Bound(62, 0.0001, 0.0011, 0.95),
    "concurrency_given_pool": Bound(43, 0.0003, 0.0015, 1.0),
    "pool_from_inputs": Bound(64, 0.0097, 0.4188, 0.84),
    "kv_tokens_from_inputs": Bound(63, 0.0096, 0.6577, 0.825),
    "concurrency_from_inputs": Bound(41, 0.0131, 0.2259, 0.825),
    "pool_with_limits_recorded": Bound(9, 0.0023, 1.7336, 0.885),
    "concurrency_with_limits_recorded": Bound(6, 0.0069, 0.0311, 1.0),
    "pool_given_weights": Bound(47, 0.0078, 0.113),
}
LEAST_COVERED = 0.8
"""Share of the recorded pools that the range of the answer is asked to hold; a narrower range that does is a better one."""
WIDEST_RANGE = 0.168
"""Median width of that range relative to the pool, as reached."""
MOST_FAILED_CALLED_SERVING = 3
MOST_STARTED_CALLED_FAILING = 1


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return CatalogHolder().current


@pytest.fixture(scope="module")
def records() -> list[ReadRecord]:
    return read_records(CASES)


@pytest.fixture(scope="module")
def found(catalog: Catalog, records: list[ReadRecord]) -> MemoryAccuracy:
    return memory_accuracy(catalog, records)


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_errors_stay_within_what_was_reached(found: MemoryAccuracy, quantity: Quantity) -> None:
    reached, bound = found.summary_of(quantity), BOUNDS[quantity]
    assert reached is not None
    assert reached.num_cases >= bound.num_cases
    assert reached.median_error_ratio <= bound.median_error_ratio
    assert reached.p90_error_ratio <= bound.p90_error_ratio
    assert (reached.within_bound_ratio or 0) >= bound.within_bound_ratio


def test_the_range_holds_the_pools_it_is_asked_to(found: MemoryAccuracy) -> None:
    assert found.pool_coverage.num_cases >= 64
    assert (found.pool_coverage.covered_ratio or 0) >= LEAST_COVERED
    assert (found.pool_coverage.median_width_ratio or 1) <= WIDEST_RANGE


def test_verdicts_stay_within_what_was_reached(found: MemoryAccuracy) -> None:
    assert len(found.verdicts) >= 78
    assert len(found.failed_called_serving()) <= MOST_FAILED_CALLED_SERVING
    assert len(found.started_called_failing()) <= MOST_STARTED_CALLED_FAILING


def test_every_record_is_judged_or_listed_with_its_reason(found: MemoryAccuracy, records: list[ReadRecord]) -> None:
    judged = {each.case for each in found.comparisons} | {each.case for each in found.verdicts}
    listed = {each.case: each.reason for each in found.left_out}
    silent = {each.record.id for each in records if not (each.record.weights_gib_per_gpu or each.record.kv_available_gib_per_gpu)}
    assert len(records) == 112
    assert {each.record.id for each in records} - judged - silent <= set(listed)
    assert all(listed.values())
    assert sum(not each.parts for each in found.left_out) == found.num_cases - found.num_expressed <= 6


def test_no_reading_leaves_out_what_the_record_gives_in_numbers(records: list[ReadRecord]) -> None:
    for each in records:
        if each.reading and each.reading.expressed and "weights" in each.reading.leave_out:
            assert each.record.quantization is None, each.record.id  # a recorded quantisation is judged


def test_a_given_pool_is_the_pool_of_the_answer(catalog: Catalog, records: list[ReadRecord]) -> None:
    expressed = next(express(catalog, each) for each in records if each.record.id == "mc-011")
    assert isinstance(expressed, Expressed)
    for pool in (5 * GIB, 500 * GIB):  # within the device, and more than it has
        given = answer_given_pool(catalog, expressed, pool)
        assert given.per_gpu.kv_cache_bytes == pool
        assert given.kv_capacity_tokens == pool // 131072


def test_a_record_of_an_unknown_model_is_not_expressed(catalog: Catalog, records: list[ReadRecord]) -> None:
    read = ReadRecord(record=records[0].record.model_copy(update={"model_slug": None, "model_hf_id": "nobody/nothing"}), reading=None)
    expressed = express(catalog, read)
    assert isinstance(expressed, NotExpressed)
    assert "nobody/nothing" in expressed.reason


def test_readings_of_unknown_records_are_refused(tmp_path: Path) -> None:
    cases = tmp_path / "some.jsonl"
    cases.write_text(CASES.read_text().splitlines()[0])
    assert readings_file(cases) == tmp_path / "some.readings.yaml"
    assert len(read_records(cases)) == 1
    readings_file(cases).write_text("mc-999: {why: none}")
    with pytest.raises(RecordsUnreadable, match="mc-999"):
        read_records(cases)


def test_the_report_shows_every_quantity_and_the_json_is_the_same(found: MemoryAccuracy, records: list[ReadRecord]) -> None:
    report = markdown_report(found, records)
    assert all(title in report for title, _ in QUANTITIES.values())
    assert all(each.case in report for each in found.left_out)
    run = CliRunner().invoke(cli, ["accuracy", "memory", "--json", "--cases", str(CASES)], catch_exceptions=False)
    assert json.loads(run.stdout) == json.loads(found.model_dump_json())


def test_the_readme_carries_the_summary(found: MemoryAccuracy) -> None:
    readme = README.read_text(encoding="utf-8")
    assert markdown_summary(found) in readme, "run `inferplan accuracy memory --readme README.md`"


def test_a_summary_replaces_the_one_between_the_marks(tmp_path: Path, found: MemoryAccuracy) -> None:
    document = tmp_path / "document.md"
    document.write_text("before <!-- inferplan accuracy memory --> old <!-- end --> after")
    cases = ["accuracy", "memory", "--cases", str(CASES), "--readme", str(document)]
    assert CliRunner().invoke(cli, cases, catch_exceptions=False).stdout == ""
    text = document.read_text()
    assert text == f"before <!-- inferplan accuracy memory -->\n\n{markdown_summary(found)}\n<!-- end --> after"
    assert with_summary(text, markdown_summary(found)) == text
    assert with_summary("no marks", "summary") == "no marks"


def test_docstring_examples_of_the_reading_are_true() -> None:
    assert doctest.testmod(expression) == (0, 4)
