"""The document that a reviewer pastes."""

import re
from collections.abc import Callable

import pytest

from app.domain.plan import Plan
from app.exporters.plan_markdown import render

MakePlan = Callable[..., Plan]


def section(document: str, heading: str) -> str:
    return document.split(f"## {heading}\n\n")[1].split("\n## ")[0]


def test_document_says_what_it_is(make_plan: MakePlan) -> None:
    document = render(make_plan())
    assert document.startswith("# Chat, spring\n\n| Plan | 6a5c0d4e-7a0f-4a9c-9f0e-1d6f7c1b2a33 |\n| --- | --- |\n")
    for row in (
        "| Calculation | `capacity` |",
        "| Owner | platform |",
        "| Labels | prod, eu |",
        "| Model | llama-3.1-70b |",
        "| Revision | 3, written 2026-03-02 08:30 UTC |",
        "| Created | 2026-03-01 12:00 UTC |",
        "| Computed by | Inferplan 0.1.0, catalog c-7 |",
    ):
        assert f"\n{row}\n" in document
    assert "\n\n5 replicas of 4 GPUs carry 100 requests/s.\n\n" in document


def test_inputs_and_answer_have_base_units_beside_those_of_people(make_plan: MakePlan) -> None:
    document = render(make_plan())
    assert "| `model` | llama-3.1-70b |  |  | given |" in section(document, "Inputs")
    assert "| `workload.input_tokens.mean` | 4000 | tokens |  | default |" in section(document, "Inputs")
    answer = section(document, "Answer")
    assert "| `weights_bytes` | 70000000000 | bytes | 70 GB = 65.19 GiB |" in answer
    assert "| `utilization_ratio` | 0.84 | ratio | 84 % |" in answer
    assert "| `tpot_s` | 0.04 | s | 40 ms |" in answer
    assert "| `fits` | yes |  |  |" in answer
    assert "| `limiting` | none |  |  |" in answer
    assert "| `load_test_concurrency` | 1, 2, 4 |  |  |" in answer
    assert "| `check_first` | clock, power; queue |  |  |" in answer
    assert "| `gpus` | none |  |  |" in answer
    assert "GB = 10^9 bytes, GiB = 2^30 bytes" in section(document, "Units")


def test_lists_of_objects_are_tables_and_wide_ones_a_table_each(make_plan: MakePlan) -> None:
    answer = section(render(make_plan()), "Answer")
    assert "### `constraints`\n\n| `name` | `replicas` | `demand_tokens_per_s` [tokens/s] |\n" in answer
    assert "| throughput | 5 | 50000 (50,000) |\n| slo | 4 | none |" in answer
    assert "**`what_would_fit` 1**\n\n| Field | Value | Unit | For people |" in answer
    assert "| `deployment.option_8` | 8 |  |  |" in answer
    assert "**`what_would_fit` 1, `then`**\n\n| `step` |\n| --- |\n| 1 |" in answer


def test_working_can_be_redone(make_plan: MakePlan) -> None:
    working = section(render(make_plan()), "Working").strip().split("\n")
    assert working[0] == "| # | Step | Formula | With numbers | Result | Basis | Source |"
    assert working[2] == (
        "| 1 | `weights_bytes` | params x bytes | 70e9 x 1 | 70000000000 bytes (70 GB = 65.19 GiB) | exact "
        "| https://example.org/model_card |"
    )
    assert working[3] == r"| 2 | `replicas` | ceil(demand \| per replica) | ceil(4.2) | 5 replicas | exact | arithmetic |"


def test_assumptions_and_warnings_are_listed(make_plan: MakePlan) -> None:
    document = render(make_plan())
    assert section(document, "Assumptions").strip() == "- `kv_cache_default`: KV cache in 16 bits &lt;unless&gt; said otherwise."
    assert section(document, "Warnings").strip() == "None."


HOSTILE = "x | y\n## Owned\n<img src=x onerror=alert(1)> `"


@pytest.mark.parametrize("field", ["name", "owner", "notes", "model", "labels"])
def test_user_text_breaks_no_structure(make_plan: MakePlan, field: str) -> None:
    harmless = render(make_plan(**{field: ("x",) if field == "labels" else "x"}))
    hostile = render(make_plan(**{field: (HOSTILE,) if field == "labels" else HOSTILE}))
    headings = re.compile(r"^#+ (?!x).*$", re.MULTILINE)
    assert headings.findall(hostile) == headings.findall(harmless)
    assert "<img" not in hostile
    assert len(re.findall(r"(?<!\\)\|", hostile)) == len(re.findall(r"(?<!\\)\|", harmless))


def test_an_answer_of_an_older_planner_may_lack_parts(make_plan: MakePlan) -> None:
    document = render(make_plan(answer={"summary": "old"}))
    assert [section(document, name).strip() for name in ("Answer", "Working", "Assumptions", "Warnings")] == ["None."] * 4
