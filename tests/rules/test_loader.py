"""A broken rule file stops the service when it starts, and says where it is broken."""

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from app.domain.rule import Bottleneck
from app.rules.loader import BrokenRule, load_rules

BUNDLED = files("app.rules")


def rule(**changes: Any) -> dict[str, Any]:
    """A small rule that is valid without changes."""
    return {
        "id": "sample",
        "bottleneck": "kv_capacity",
        "stage": "cause",
        "title": "The cache is full",
        "when": {"name": "kv_full", "metric": "kv_cache_usage_ratio", "op": ">=", "number": 0.95},
        "why": "Blocks run out.",
        "confirm": "Look again.",
        "check_first": ["Usage"],
        "prior_ratio": 0.5,
        "severity": "warning",
        "remedies": [{"action": "Add memory", "lever": "Fraction", "price": "Memory", "verify": "Usage", "undo": "Restore"}],
        "sources": ["https://example.org/kv"],
    } | changes


def write(directory: Path, *rules: dict[str, Any]) -> Path:
    """The rules as files."""
    for each in rules:
        (directory / f"{each['id']}.yaml").write_text(yaml.safe_dump(each), encoding="utf-8")
    return directory


def comparison(**changes: Any) -> dict[str, Any]:
    """A comparison that is valid without changes."""
    return {"name": "kv_full", "metric": "kv_cache_usage_ratio", "op": ">=", "number": 0.95} | changes


TABLE = (
    "ttft_high_tpot_normal", "ttft_normal_tpot_high", "p99_far_above_p50", "gpu_idle_latency_high", "gpu_busy_ttft_tpot_high", "oom_events",
    "rps_low_but_busy", "some_requests_very_slow", "queue_time_high", "ttft_high_queue_low", "tpot_high", "kv_near_full",
)  # fmt: skip
"""Symptoms that operators know, each a rule of its own."""
COARSE = {"queueing", "prefill", "decode", "memory", "outside_engine", "measurement"}
"""What a symptom is reported as while no class is known."""
NO_CAUSE = {"none_healthy", "unresolved"}
"""What the absence of a cause is called: no rule claims either as its cause."""


def test_bundled_rules_hold_every_row_of_the_table() -> None:
    loaded = [each.id for each in load_rules()]
    assert set(TABLE) <= set(loaded)
    assert loaded == sorted(file.name.removesuffix(".yaml") for file in BUNDLED.iterdir() if file.name.endswith(".yaml"))


def test_every_class_of_cause_has_a_rule_and_none_claims_that_there_is_no_cause() -> None:
    named = {each.bottleneck for each in load_rules() if each.stage != "location"}
    assert named >= set(get_args(Bottleneck)) - NO_CAUSE - COARSE
    assert not named & NO_CAUSE


def test_valid_files_load_in_order_of_name(tmp_path: Path) -> None:
    loaded = load_rules(write(tmp_path, rule(id="second", parents=["first"]), rule(id="first")))
    assert [each.id for each in loaded] == ["first", "second"]


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"bottleneck": "gremlins"}, "sample.yaml: bottleneck: "),
        ({"severity": "bad"}, "sample.yaml: severity: "),
        ({"prior_ratio": 1}, "sample.yaml: prior_ratio: "),
        ({"surprise": 1}, "sample.yaml: surprise: "),
        ({"sources": []}, "sample.yaml: sources: "),
        ({"sources": ["http://example.org"]}, "sample.yaml: sources.0: "),
        ({"remedies": [{"action": "Add memory"}]}, "sample.yaml: remedies.0.lever: "),
        ({"when": comparison(metric="kv_cache_usage")}, "sample.yaml: when.metric: Value error, there is no symptom 'kv_cache_usage'"),
        ({"when": comparison(op="=")}, "sample.yaml: when.op: "),
        ({"when": {"all": []}}, "sample.yaml: when.all: "),
        ({"when": {"any": [comparison(), comparison(name="other", metric="nothing")]}}, "sample.yaml: when.any.1.metric: "),
        ({"when": {"all": [{"any": [comparison(number=-1)]}]}}, "sample.yaml: when.all.0.any.0.number: "),
        (
            {"when": {"name": "kv_full", "metric": "kv_cache_usage_ratio", "op": ">="}},
            "one of objective, baseline_ratio, symptom and number",
        ),
        ({"when": comparison(objective="ttft")}, "leave out baseline_ratio, symptom and number"),
        ({"when": comparison(times_ratio=2)}, "there is neither"),
        ({"when": {"all": [comparison(), comparison(number=0.9)]}}, "the threshold name 'kv_full' stands for two different comparisons"),
        ({"when": "always"}, "sample.yaml: when: "),
        ({"stage": "guess"}, "sample.yaml: stage: "),
        ({"supported_by": [{"because": "It is", "when": comparison(metric="nothing")}]}, "sample.yaml: supported_by.0.when.metric: "),
        ({"when": {"any_known": [comparison(op="=")]}}, "sample.yaml: when.any_known.0.op: "),
        ({"magnitude": {"metric": "nothing", "at_most_ratio": 2}}, "sample.yaml: magnitude.metric: "),
        ({"magnitude": {"metric": "slowdown_ratio", "at_most_ratio": 0}}, "sample.yaml: magnitude.at_most_ratio: "),
        ({"parents": ["nobody"]}, "sample.yaml: parents: there is no rule 'nobody'"),
        ({"parents": ["sample"]}, "sample.yaml: parents: names the rule itself"),
        ({"explains": ["nobody"]}, "sample.yaml: explains: there is no rule 'nobody'"),
        ({"explains": ["sample"]}, "sample.yaml: explains: names the rule itself"),
    ],
)
def test_broken_field_is_named(tmp_path: Path, changes: dict[str, Any], where: str) -> None:
    with pytest.raises(BrokenRule) as refused:
        load_rules(write(tmp_path, rule(**changes)))
    assert str(refused.value).startswith("sample.yaml: ")
    assert where in str(refused.value)


def test_circle_of_parents_is_refused(tmp_path: Path) -> None:
    circle = [rule(id="one", parents=["two"]), rule(id="two", parents=["three"]), rule(id="three", parents=["two"])]
    with pytest.raises(BrokenRule, match=r"(two|three)\.yaml: parents: (two|three) is its own ancestor"):
        load_rules(write(tmp_path, *circle))


def name_differs(directory: Path) -> None:
    (directory / "other.yaml").write_text(yaml.safe_dump(rule()), encoding="utf-8")


def reserved_name(directory: Path) -> None:
    write(directory, rule(id="objective"))


def no_yaml(directory: Path) -> None:
    (directory / "sample.yaml").write_text("when: [", encoding="utf-8")


def no_text(directory: Path) -> None:
    (directory / "sample.yaml").write_bytes(b"\xff\xfe\x00")


def a_list(directory: Path) -> None:
    (directory / "sample.yaml").write_text("- 1", encoding="utf-8")


def key_twice(directory: Path) -> None:
    (directory / "sample.yaml").write_text(yaml.safe_dump(rule()) + "severity: info\n", encoding="utf-8")


def unhashable_key(directory: Path) -> None:
    (directory / "sample.yaml").write_text("{[1]: 2}", encoding="utf-8")


def empty(directory: Path) -> None:
    (directory / "readme.txt").write_text("no rules", encoding="utf-8")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (name_differs, "other.yaml: id: is 'sample'"),
        (reserved_name, "objective.yaml: id: "),
        (no_yaml, "sample.yaml: is no YAML"),
        (no_text, "sample.yaml: is no YAML"),
        (a_list, "sample.yaml: the file: "),
        (key_twice, "sample.yaml: is no YAML: 'severity' is given twice"),
        (unhashable_key, "sample.yaml: is no YAML"),
        (empty, "holds no rule files"),
    ],
)
def test_broken_file_is_named(tmp_path: Path, spoil: Callable[[Path], None], message: str) -> None:
    spoil(tmp_path)
    with pytest.raises(BrokenRule) as refused:
        load_rules(tmp_path)
    assert message in str(refused.value)
