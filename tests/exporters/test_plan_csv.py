"""The CSV of a plan: every value a row, and nothing that a spreadsheet would run."""

import csv
import io
from collections.abc import Callable

import pytest

from app.domain.plan import Plan
from app.exporters.plan_csv import render

MakePlan = Callable[..., Plan]


def rows(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline=""), strict=True))


def cells(text: str) -> dict[str, tuple[str, str]]:
    return {field: (value, unit) for field, value, unit in rows(text)[1:]}


def test_each_value_is_a_row_with_its_unit(make_plan: MakePlan) -> None:
    text = render(make_plan())
    assert rows(text)[0] == ["field", "value", "unit"]
    found = cells(text)
    assert found["name"] == ("Chat, spring", "")
    assert found["revision"] == ("3", "")
    assert found["labels.1"] == ("eu", "")
    assert found["inputs.workload.input_tokens.mean"] == ("4000.0", "tokens")
    assert found["answer.weights_bytes"] == ("70000000000", "bytes")
    assert found["answer.per_gpu.bytes_per_token"] == ("327680", "bytes/token")
    assert found["answer.fits"] == ("true", "")
    assert found["answer.limiting"] == ("", "")
    assert found["answer.constraints.0.name"] == ("throughput", "")
    assert found["answer.working.1.value"] == ("5", "replicas")
    assert found["answer.working.0.value"] == ("70000000000", "bytes")
    assert found["versions.catalog"] == ("c-7", "")


def test_lines_end_as_rfc_4180_says_and_all_have_three_cells(make_plan: MakePlan) -> None:
    text = render(make_plan(notes='first "line"\nsecond, line'))
    assert text.endswith("\r\n")
    assert {len(row) for row in rows(text)} == {3}
    assert cells(text)["notes"] == ('first "line"\nsecond, line', "")


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("=1+1", "'=1+1"),
        ("+49 30", "'+49 30"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("  =HYPERLINK(1)", "  '=HYPERLINK(1)"),
        ("＝1", "'＝1"),
        ("harmless;=1+1", "harmless;'=1+1"),
        ("a\n=1+1", "a\n'=1+1"),
        ("\t=1", "'\t'=1"),
        ("a = b - c", "a = b - c"),
        ("tp-4", "tp-4"),
    ],
)
def test_text_that_a_spreadsheet_would_run_is_made_text(make_plan: MakePlan, given: str, written: str) -> None:
    text = render(make_plan(notes=given, owner="o", labels=(given,)))
    assert cells(text)["notes"][0] == written
    assert cells(text)["labels.0"][0] == written


def test_a_negative_number_stays_a_number(make_plan: MakePlan) -> None:
    assert cells(render(make_plan(answer={"summary": "s", "margin_bytes": -5})))["answer.margin_bytes"] == ("-5", "bytes")


def test_a_field_name_cannot_be_a_formula_either(make_plan: MakePlan) -> None:
    text = render(make_plan(inputs={"=1+1": 5}))
    assert "inputs.=1+1" in cells(text)
    assert not any(cell.startswith(("=", "+", "@")) for row in rows(text) for cell in row)
