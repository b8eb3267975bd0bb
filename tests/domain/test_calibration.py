"""Fitting a set-up's constants: what was known is found again, what cannot be told is said, and who may use it."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from app.catalog.loader import load_bundled
from app.domain.calibrated_model import CalibratedModel, moved_constants
from app.domain.calibration import AppliedCalibration, Calibrations, Span, setup_of
from app.domain.calibration_findings import Fitted, SweepRow, calibrate
from app.domain.calibration_fit import MOVABLE, Measurement, Moved, fit_constants, solve
from app.domain.deployment import Deployment
from app.domain.errors import InvalidInput, UnknownName
from app.domain.step_constants import ConstantName
from tests.domain.calibration_rows import measured

CATALOG = load_bundled().snapshot("test")
KNOWN: Mapping[ConstantName, float] = {"dense_peak_ratio": 0.8, "kernel_s": 1.3, "request_s": 1.6}


def moved_by(rows: Sequence[Measurement]) -> tuple[Moved, ...]:
    found = rows[0].performance.step_class
    return fit_constants(rows, MOVABLE[found.kind], lambda factors: moved_constants(CATALOG.step_model, factors, found))


def findings(rows: Sequence[Measurement]) -> Fitted:
    performance = rows[0].performance
    setup = setup_of(performance.llm, performance.gpu, performance.deployment)
    lengths = [row.performance.lengths for row in rows]
    sweep = [
        SweepRow(number, row.concurrency, each.input_tokens, each.output_tokens, row, None)
        for number, (row, each) in enumerate(zip(rows, lengths, strict=True), 1)
    ]
    return calibrate(sweep, setup, CATALOG.step_model, [])


@pytest.mark.parametrize(
    ("deployment", "known"),
    [
        pytest.param({}, KNOWN, id="dense"),
        pytest.param({"model": "qwen3-30b-a3b", "tp": 2}, {"expert_bandwidth_ratio": 0.8, "kernel_s": 0.8}, id="experts"),
    ],
)
def test_known_constants_are_found_again(deployment: Mapping[str, Any], known: Mapping[ConstantName, float]) -> None:
    rows = measured(CATALOG, known, **deployment)
    kind = rows[0].performance.step_class
    spreads = {each.name: each.spread_ln for each in MOVABLE[kind.kind]}
    found = moved_by(rows)
    for each in found:
        off = abs(math.log(each.factor / known.get(each.name, 1.0)))
        assert off <= 2 * each.left_ratio * spreads[each.name], each.name
    constants = moved_constants(CATALOG.step_model, {each.name: each.factor for each in found}, kind)
    for row in rows:
        assert row.predicted(constants) == pytest.approx(dict(row.measured), rel=0.05)


def test_a_sweep_of_the_class_itself_moves_nothing() -> None:
    assert all(factor == pytest.approx(1, abs=1e-6) for factor in (each.factor for each in moved_by(measured(CATALOG, {}))))


def test_what_was_not_measured_is_predicted_better_than_before() -> None:
    held, seen = (6000.0, 500.0, 64), [(500.0, 500.0, 4), (6000.0, 500.0, 16)]
    found = findings(measured(CATALOG, KNOWN, seen))
    row = measured(CATALOG, KNOWN, [held])[0]
    kind = row.performance.step_class
    before = row.predicted(CATALOG.step_model.constants_of(kind))
    after = row.predicted(moved_constants(CATALOG.step_model, found.factors, kind))
    errors = [abs(math.log(after[name] / row.measured[name]) / math.log(before[name] / row.measured[name])) for name in ("tpot", "ttft")]
    assert max(errors) < 0.5


def test_one_point_is_enough_and_says_so() -> None:
    found = findings(measured(CATALOG, KNOWN, [(500.0, 500.0, 4)]))
    tpot = next(each for each in found.result.quality if each.quantity == "tpot")
    assert tpot.median_error_after_ratio < tpot.median_error_before_ratio / 3
    assert "single_row" in {note.code for note in found.result.warnings}
    assert "dense_peak_ratio_not_identified" in {note.code for note in found.result.not_identified}


def test_prompts_tell_the_peak() -> None:
    found = findings(measured(CATALOG, KNOWN))
    assert {each.name: each.identified for each in found.result.constants}["dense_peak_ratio"]


def test_a_row_of_another_kind_is_named_and_does_not_pull() -> None:
    clean = findings(measured(CATALOG, KNOWN))
    spoilt = findings(measured(CATALOG, KNOWN, noise=[1.0, 1.0, 3.0]))
    errors = [next(each.error_after_ratio for each in row.errors if each.quantity == "tpot") for row in spoilt.result.rows]
    assert max(errors) == errors[2]
    assert "times what the fit to all rows gives" in (spoilt.result.rows[2].disagrees or "")
    assert [row.disagrees for row in clean.result.rows] == [None] * 8
    others = [error for number, error in enumerate(errors) if number != 2]
    assert sorted(others)[len(others) // 2] < 0.1


def test_the_range_narrows_with_rows_and_widens_with_what_they_leave() -> None:
    def width(rows: Sequence[Measurement]) -> float:
        return next(band.high_ratio / band.low_ratio for band in findings(rows).bands if band.quantity == "tpot")

    of_class = CATALOG.step_model.band(measured(CATALOG, {})[0].performance.step_class, "tpot")
    one, many = width(measured(CATALOG, KNOWN, [(500.0, 500.0, 4)])), width(measured(CATALOG, KNOWN))
    noisy = width(measured(CATALOG, KNOWN, noise=[1.2, 0.8] * 4))
    assert many < one < of_class.high_ratio / of_class.low_ratio
    assert noisy > many


def test_equations_are_solved() -> None:
    matrix, wanted = [[4.0, 2.0, 0.4], [2.0, 3.0, 0.5], [0.4, 0.5, 2.0]], [1.0, -2.0, 3.0]
    right = [sum(one * other for one, other in zip(row, wanted, strict=True)) for row in matrix]
    assert solve(matrix, right) == pytest.approx(wanted)


def applied(version: str | None, *, at: int = 1, **deployment: object) -> AppliedCalibration:
    settings = Deployment.model_validate({"engine": "vllm", "engine_version": version, **deployment})
    rows = measured(CATALOG, {}, [(500.0, 500.0, 4)])
    return AppliedCalibration(
        id=uuid4(),
        name="sweep",
        setup=setup_of(CATALOG.model("llama-3.1-8b"), CATALOG.gpu("h100-sxm-80gb"), settings),
        factors={"kernel_s": 2.0},
        bands=findings(rows).bands,
        num_rows=3,
        concurrency=Span(low=1, high=16),
        constants_of=CATALOG.step_model.checked_on,
        created_at=datetime(2026, 1, at, tzinfo=UTC),
    )


def chosen(stored: Sequence[AppliedCalibration], wanted: UUID | str | None = None, **settings: Any) -> tuple[UUID | None, set[str]]:
    """Id of what an estimate uses, and the codes of its warnings."""
    names = {"model": "llama-3.1-8b", "gpu": "h100-sxm-80gb"} | {key: str(settings.pop(key)) for key in ("model", "gpu") if key in settings}
    deployment = Deployment.model_validate({"engine": "vllm", "engine_version": "0.19.1", **settings})
    found = Calibrations(stored).steps(
        CATALOG.step_model,
        CATALOG.model(names["model"]),
        CATALOG.gpu(names["gpu"]),
        deployment,
        wanted,  # type: ignore[arg-type]
    )
    return (found.model.calibration if isinstance(found.model, CalibratedModel) else None), {note.code for note in found.warnings}


def test_the_same_set_up_is_used_in_its_version() -> None:
    same, other = applied("0.19.1"), applied("0.17.0", at=2)
    assert chosen([same, other]) == (same.id, set())
    assert chosen([other]) == (other.id, {"calibration_of_other_version"})


def test_the_nearest_version_and_then_the_newest_goes_first() -> None:
    far, near, newer = applied("0.12.0"), applied("0.18.0"), applied("0.18.0", at=2)
    assert chosen([far, near, newer])[0] == newer.id


def test_versions_whose_constants_differ_are_not_used() -> None:
    assert chosen([applied("0.6.3")])[0] is None


@pytest.mark.parametrize(
    "settings",
    [{"tp": 2}, {"kv_cache": "fp8"}, {"weights": "fp8"}, {"engine": "sglang"}, {"model": "qwen3-8b"}, {"gpu": "h200-sxm-141gb"}],
    ids=lambda value: next(iter(value)),
)
def test_another_set_up_is_not_used_unasked(settings: dict[str, Any]) -> None:
    assert chosen([applied("0.19.1")], **settings)[0] is None


def test_a_default_and_its_explicit_form_are_one_set_up() -> None:
    found = applied("0.19.1")
    assert chosen([found], weights="bf16", kv_cache="bf16")[0] == found.id


def test_asked_for_it_is_taken_over_with_a_warning() -> None:
    found = applied("0.19.1")
    assert chosen([found], found.id, model="qwen3-8b") == (found.id, {"calibration_of_other_setup"})
    with pytest.raises(InvalidInput, match="vllm"):
        chosen([found], found.id, engine="sglang")
    with pytest.raises(UnknownName, match="no calibration"):
        chosen([found], uuid4())
    assert chosen([found], "none")[0] is None


def test_factors_on_older_class_constants_are_said() -> None:
    old = applied("0.19.1").model_copy(update={"constants_of": date(2020, 1, 1)})
    assert chosen([old]) == (old.id, {"calibration_of_other_constants"})
