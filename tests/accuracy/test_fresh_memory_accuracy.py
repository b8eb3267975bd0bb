"""The memory answers against start-ups that were collected after the constants were fixed: an independent measure."""

from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from app.accuracy.commands import FRESH_MEMORY_CASES, MEMORY_CASES
from app.accuracy.quantities import QUANTITIES, MemoryAccuracy, Quantity
from app.accuracy.records import ReadRecord, read_records
from app.accuracy.sets import APART, FITTED_BARE, FRESH, FRESH_BARE, compared_sets, markdown_sets, without_reading
from app.cli import cli
from app.services.catalog import CatalogHolder

pytestmark = pytest.mark.slow

README = Path(__file__).parents[2] / "README.md"


class Bound(NamedTuple):
    """What the errors of one quantity reached, rounded up to the next 0.01 %, the share down to 0.5 %."""

    num_cases: int
    median_error_ratio: float
    p90_error_ratio: float
    within_bound_ratio: float = 0


# Measured with `inferplan accuracy memory`; no goal is asked of these records that is not reached, and a bound is only ever tightened.
# Once one was not: builds of 0.19.2rc1 print that graphs are inside the budget, and are now taken at their word, so that two starts on
# GB10, which leave more than is modelled anyway, raise the 90th percentile given the weights from 7.15 % to 7.81 %.
BOUNDS: dict[str, dict[Quantity, Bound]] = {
    FRESH: {
        "kv_bytes_per_token_per_gpu": Bound(41, 0.0001, 0.0007, 1.0),
        "weights_bytes_per_gpu": Bound(53, 0.0017, 0.1494, 0.845),
        "kv_tokens_given_pool": Bound(41, 0.0001, 0.0007, 1.0),
        "concurrency_given_pool": Bound(33, 0.0002, 0.0005, 1.0),
        "pool_from_inputs": Bound(47, 0.0144, 0.6994, 0.74),
        "kv_tokens_from_inputs": Bound(36, 0.0298, 0.3052, 0.72),
        "concurrency_from_inputs": Bound(27, 0.0144, 0.0861, 0.85),
        "pool_with_limits_recorded": Bound(9, 0.0695, 0.7417, 0.44),
        "concurrency_with_limits_recorded": Bound(4, 0.0043, 0.0341, 1.0),
        "pool_given_weights": Bound(41, 0.0088, 0.0782),
    },
    APART: {
        "kv_bytes_per_token_per_gpu": Bound(21, 0.0001, 0.0003, 1.0),
        "weights_bytes_per_gpu": Bound(27, 0.0012, 0.1494, 0.885),
        "kv_tokens_given_pool": Bound(21, 0.0001, 0.0003, 1.0),
        "concurrency_given_pool": Bound(18, 0.0002, 0.0005, 1.0),
        "pool_from_inputs": Bound(24, 0.0353, 0.3052, 0.75),
        "kv_tokens_from_inputs": Bound(18, 0.0401, 0.3052, 0.72),
        "concurrency_from_inputs": Bound(14, 0.0279, 0.079, 0.925),
        "pool_given_weights": Bound(21, 0.0247, 0.0782),
    },
}
LEAST_COVERED = {FRESH: 0.85, APART: 0.83}
"""Share of the recorded pools that the range of the answer holds, as reached; 0.8 is asked."""
FAILED_CALLED_SERVING = {FRESH: 2, APART: 0}
STARTED_CALLED_FAILING = {FRESH: 2, APART: 1}


@pytest.fixture(scope="module")
def fresh() -> list[ReadRecord]:
    return read_records(FRESH_MEMORY_CASES)


@pytest.fixture(scope="module")
def sets(fresh: list[ReadRecord]) -> dict[str, MemoryAccuracy]:
    return compared_sets(CatalogHolder().current, read_records(MEMORY_CASES), fresh)


@pytest.mark.parametrize(("name", "quantity"), [(name, quantity) for name, bounds in BOUNDS.items() for quantity in bounds])
def test_errors_stay_within_what_was_reached(sets: dict[str, MemoryAccuracy], name: str, quantity: Quantity) -> None:
    reached, bound = sets[name].summary_of(quantity), BOUNDS[name][quantity]
    assert reached is not None
    assert reached.num_cases >= bound.num_cases
    assert reached.median_error_ratio <= bound.median_error_ratio
    assert reached.p90_error_ratio <= bound.p90_error_ratio
    assert (reached.within_bound_ratio or 0) >= bound.within_bound_ratio


@pytest.mark.parametrize("name", [FRESH, APART])
def test_ranges_and_verdicts_stay_within_what_was_reached(sets: dict[str, MemoryAccuracy], name: str) -> None:
    found = sets[name]
    assert (found.pool_coverage.covered_ratio or 0) >= LEAST_COVERED[name]
    assert len(found.failed_called_serving()) <= FAILED_CALLED_SERVING[name]
    assert len(found.started_called_failing()) <= STARTED_CALLED_FAILING[name]


def test_half_is_kept_apart_and_every_record_is_judged_or_listed(sets: dict[str, MemoryAccuracy], fresh: list[ReadRecord]) -> None:
    found = sets[FRESH]
    judged = {each.case for each in found.comparisons} | {each.case for each in found.verdicts}
    assert len(fresh) == found.num_cases >= 64
    assert {each.record.id for each in fresh if each.record.apart} == {f"fresh-{n:03d}" for n in range(1, len(fresh), 2)}
    assert {each.record.id for each in fresh} <= judged | {each.case for each in found.left_out}
    assert found.num_cases - found.num_expressed <= 1


def test_fresh_records_are_none_of_those_that_constants_were_fitted_to(fresh: list[ReadRecord]) -> None:
    fitted = {(each.record.source_url, each.record.kv_available_gib_per_gpu) for each in read_records(MEMORY_CASES)}
    assert not fitted & {(each.record.source_url, each.record.kv_available_gib_per_gpu) for each in fresh}
    assert all(each.record.source_url.startswith("https://") for each in fresh)


def test_a_record_without_its_reading_keeps_its_own_fields_only(fresh: list[ReadRecord]) -> None:
    read = next(each for each in fresh if each.record.id == "fresh-017")
    bare = without_reading(read)
    assert read.record.gpu_memory_gib_total == 39.4
    assert bare.record.gpu_memory_gib_total is None
    assert bare.reading is None
    assert without_reading(bare) == bare


def test_the_bare_sets_hold_every_record(sets: dict[str, MemoryAccuracy], fresh: list[ReadRecord]) -> None:
    assert sets[FRESH_BARE].num_cases == len(fresh)
    assert sets[FITTED_BARE].num_cases == len(read_records(MEMORY_CASES))
    assert sets[APART].num_cases == len(fresh) / 2


def test_the_readme_and_the_report_carry_the_sets(sets: dict[str, MemoryAccuracy]) -> None:
    table = markdown_sets(sets)
    assert all(title in table for title, _ in QUANTITIES.values())
    assert table in README.read_text(encoding="utf-8"), "run `inferplan accuracy memory --readme README.md`"
    assert CliRunner().invoke(cli, ["accuracy", "memory"], catch_exceptions=False).stdout.endswith(table)
