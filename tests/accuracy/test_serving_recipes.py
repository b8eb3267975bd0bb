"""Settings of runs that records leave out: each is of some row, and rows are read with them."""

import json
from pathlib import Path
from typing import Any

from app.accuracy.load_records import LoadRecord, read_loads
from app.accuracy.serving_recipes import read_recipes

HERE = Path(__file__).parent
RECIPES = read_recipes(HERE / "serving_recipes.yaml")


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (HERE / name).read_text(encoding="utf-8").splitlines()]


def read(case: str) -> LoadRecord:
    records, _ = read_loads(HERE / "serving_points.jsonl", HERE / "throughput_cases.jsonl", recipes=RECIPES)
    return next(each for each in records if each.id == case)


def test_every_recipe_and_page_is_of_some_row() -> None:
    points, pages = rows("serving_points.jsonl"), {row["source_url"] for row in rows("throughput_cases.jsonl")}
    first = {next((place for place, each in enumerate(RECIPES.recipes) if each.matches(row)), None) for row in points}
    assert first - {None} == set(range(len(RECIPES.recipes)))
    assert {page for each in RECIPES.pages for page in each.pages} <= pages


def test_a_budget_follows_lengths_and_concurrency() -> None:
    row = next(row for row in rows("serving_points.jsonl") if (row["model_slug"], row["engine"]) == ("deepseek-v3", "tensorrt-llm"))
    assert RECIPES.settings_of(row)["max_num_batched_tokens"] == row["input_tokens"] + row["concurrency"] + 64
    assert RECIPES.settings_of({**row, "model_slug": "llama-2-7b"}) == {}


def test_experts_of_a_table_run_attention_on_each_rank() -> None:
    experts, dense = read("trt100-0118"), read("trt014-0078")
    assert [experts.deployment[name] for name in ("tp", "dp", "ep")] == [1, 8, 8]
    assert [dense.deployment[name] for name in ("tp", "dp", "ep")] == [4, 1, 1]
    assert (experts.num_requests, dense.num_requests) == (3000, 3000)
