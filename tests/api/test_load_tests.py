"""`/load-tests`: the loads, the figures expected of them, and command lines that the tools understand."""

import itertools
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

OPTIONS = Path(__file__).parent.parent / "exporters" / "benchmark_options"
PLAN: dict[str, Any] = {
    "model": "llama-3.1-70b",
    "gpu": "h100-sxm-80gb",
    "deployment": {"tp": 4, "weights": "fp8", "engine": "vllm"},
    "workload": {
        "peak_rps": 10,
        "classes": [
            {"share_ratio": 0.8, "input_tokens": 1000, "output_tokens": 200},
            {"share_ratio": 0.15, "input_tokens": 8000, "output_tokens": 500},
            {"share_ratio": 0.05, "input_tokens": 32000, "output_tokens": 1000},
        ],
    },
    "slo": {"ttft_p95_s": 5, "tpot_p99_s": 0.1},
    "percentiles": "approximated",
}
EVEN = {"peak_rps": 10, "input_tokens": 2000, "output_tokens": 200}
SHARED = EVEN | {"shared_prefix_tokens": 1000, "prefix_hit_ratio": 0.8}


def options_of(file: Path) -> dict[str, bool]:
    """Whether each option of a tool takes a value, as its own parser said (benchmark_options/read_options.py)."""
    lines = [line.split() for line in file.read_text().splitlines() if not line.startswith("#")]
    return {name: kind == "value" for name, kind in lines}


def laid_out(client: TestClient, **changes: Any) -> dict[str, Any]:
    answer = client.post("/load-tests", json={"plan": PLAN | changes})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def by_name(answer: dict[str, Any], name: str) -> dict[str, Any]:
    return next(test for test in answer["tests"] if test["name"] == name)


def test_the_ramp_doubles_past_the_knee(client: TestClient) -> None:
    answer = laid_out(client)
    levels = by_name(answer, "ramp")["levels"]
    loads = [level["concurrency"] for level in levels]
    assert loads == [1 << power for power in range(len(loads))]
    power = [level["expected"]["request_rps"]["value"] / level["expected"]["e2e_s"]["value"] for level in levels]
    knee = max(range(len(levels)), key=power.__getitem__)
    assert loads[knee] == answer["knee_concurrency"]
    assert len(levels) == knee + 3
    assert [level["is_knee"] for level in levels].count(True) == 1


@pytest.mark.parametrize("concurrency", [1, 8, 64])
def test_the_figures_are_those_of_performance(client: TestClient, concurrency: int) -> None:
    answer = laid_out(client, workload=EVEN)
    level = next(each for each in by_name(answer, "ramp")["levels"] if each["concurrency"] == concurrency)
    body = {name: PLAN[name] for name in ("model", "gpu", "deployment")} | {"input_tokens": 2000, "output_tokens": 200}
    alone = client.post("/performance", json=body | {"concurrency": concurrency, "num_requests": level["num_requests"]}).json()
    for name in ("ttft_s", "tpot_s", "output_tokens_per_s"):
        assert level["expected"][name] == alone[name], name


@pytest.mark.parametrize("workload", [PLAN["workload"], EVEN, SHARED], ids=["classes", "even", "shared"])
def test_every_option_is_one_of_the_tools(client: TestClient, workload: dict[str, Any]) -> None:
    known = {file.name.split("-")[0]: options_of(file) for file in OPTIONS.glob("*.txt")}
    answer = laid_out(client, workload=workload)
    runs = [run for test in answer["tests"] for run in (*test["levels"], *test["mix"])]
    written = [command for run in runs for command in run["commands"]]
    assert {command["tool"] for command in written} == set(known)
    for command in written:
        words = shlex.split(command["command"])
        options = [(word, not after.startswith("--")) for word, after in itertools.pairwise([*words, "--"]) if word.startswith("--")]
        assert options, command
        for name, has_value in options:
            assert known[command["tool"]].get(name) is has_value, (command["tool"], name)
        if command["tool"] == "guidellm":
            for option in ("--profile", "--data", "--backend"):
                assert json.loads(words[words.index(option) + 1])["kind"]


@pytest.mark.parametrize(
    ("tool", "inputs"),
    [("vllm", "--random-input-len"), ("sglang", "--gsp-question-len"), ("aiperf", "--synthetic-input-tokens-mean")],
    ids=["vllm", "sglang", "aiperf"],
)
def test_a_shared_prefix_is_a_part_of_the_prompt(client: TestClient, tool: str, inputs: str) -> None:
    level = by_name(laid_out(client, workload=SHARED), "baseline")["levels"][0]
    words = shlex.split(next(each["command"] for each in level["commands"] if each["tool"] == tool))
    prefixes = ("--random-prefix-len", "--gsp-system-prompt-len", "--prefix-prompt-length")
    prefix = next(int(words[words.index(option) + 1]) for option in prefixes if option in words)
    assert prefix == 800
    assert prefix + int(words[words.index(inputs) + 1]) == 2000


def test_the_mix_has_the_classes_at_the_rate_of_a_replica(client: TestClient) -> None:
    answer = laid_out(client)
    mix = by_name(answer, "mix")
    assert [part["input_tokens"] for part in mix["mix"]] == [1000, 8000, 32000]
    assert sum(part["request_rps"] for part in mix["mix"]) == pytest.approx(answer["replica_rps"])
    assert answer["replica_rps"] == pytest.approx(10 / answer["replicas"])
    assert mix["mix_expected"]["objectives"]


def test_equal_lengths_have_no_mix(client: TestClient) -> None:
    mix = by_name(laid_out(client, workload=EVEN), "mix")
    assert mix["mix"] == []
    assert mix["not_planned_because"]


def test_two_classes_keep_the_mean_of_a_distribution(client: TestClient) -> None:
    workload = {"peak_rps": 10, "input_tokens": {"mean": 4000, "p95": 12000}, "output_tokens": 300}
    mix = by_name(laid_out(client, workload=workload), "mix")["mix"]
    assert sum(part["share_ratio"] * part["input_tokens"] for part in mix) == pytest.approx(4000, rel=1e-3)


def test_faults_take_more_time_than_the_peak(client: TestClient) -> None:
    answer = laid_out(client, workload=SHARED)
    usual = client.post("/capacity", json=PLAN | {"workload": SHARED}).json()["expected"]
    faults = {fault["name"]: fault for fault in by_name(answer, "faults")["faults"]}
    assert len(faults) == (6 if answer["replicas"] > 1 else 4)
    for fault in faults.values():
        assert fault["expected"] is None or fault["expected"]["ttft"]["mean_s"]["value"] > usual["ttft"]["mean_s"]["value"]
        assert fault["simulated"]["num_requests"] >= 900
        within = all(each["found"]["value"] <= each["limit_s"] for each in fault["simulated"]["objectives"])
        assert fault["holds"] is (fault["expected"] is not None and within)
    assert faults["traffic doubles"]["request_rps"] == pytest.approx(2 * answer["replica_rps"])


def p99(run: dict[str, Any], time: str) -> float:
    found: float = run["times"][time]["p99"]["value"]
    return found


def test_levels_are_simulated_as_their_tools_send_them(client: TestClient) -> None:
    answer = laid_out(client, workload=EVEN)
    assert "loads_not_simulated" not in [note["code"] for note in answer["warnings"]]
    levels = by_name(answer, "ramp")["levels"]
    for level in levels:
        simulated, expected = level["simulated"], level["expected"]
        assert simulated["num_requests"] == level["num_requests"]
        assert simulated["times"]["e2e_s"]["mean"]["value"] == pytest.approx(expected["e2e_s"]["value"], rel=0.15), level["concurrency"]
        assert simulated["request_rps"]["value"] == pytest.approx(expected["request_rps"]["value"], rel=0.15)
        assert simulated["times"]["ttft_s"]["p50"]["value"] <= simulated["times"]["ttft_s"]["p95"]["value"] <= p99(simulated, "ttft_s")
    tails = [p99(level["simulated"], "tpot_s") for level in levels]
    assert tails == sorted(tails)
    again = by_name(laid_out(client, workload=EVEN), "ramp")["levels"]
    assert [level["simulated"] for level in again] == [level["simulated"] for level in levels]


def test_the_mix_is_simulated_by_class(client: TestClient) -> None:
    mix = by_name(laid_out(client), "mix")["mix_simulated"]
    kinds = {kind["name"]: kind for kind in mix["kinds"]}
    assert list(kinds) == ["class-1", "class-2", "class-3"]
    first = [kind["times"]["ttft_s"]["p50"]["value"] for kind in kinds.values()]
    assert first == sorted(first)


def test_the_flood_shows_what_it_does_to_others(client: TestClient) -> None:
    faults = {fault["name"]: fault["simulated"] for fault in by_name(laid_out(client, workload=EVEN), "faults")["faults"]}
    others = {name: next(kind for kind in run["kinds"] if kind["name"] == "all") for name, run in faults.items()}
    assert "flood" in [kind["name"] for kind in faults["long prompts flood in"]["kinds"]]
    assert p99(others["traffic doubles"], "tpot_s") > p99(others["the prefix cache is empty"], "tpot_s")


def test_loads_beyond_the_budget_are_left_out_and_named(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.services.load_tests.MOST_CPU_S", 0.1)
    answer = laid_out(client, workload=EVEN)
    levels = by_name(answer, "ramp")["levels"]
    assert levels[0]["simulated"]
    assert levels[-1]["simulated"] is None
    (warning,) = [note for note in answer["warnings"] if note["code"] == "loads_not_simulated"]
    assert warning["message"].split()[0].isdigit()


def test_objectives_end_a_test(client: TestClient) -> None:
    stops = " ".join(by_name(laid_out(client), "ramp")["stop_when"])
    assert re.search(r"ttft_p95 is above 10(\.0)? s", stops)
    assert "tpot_p99" in stops


@pytest.mark.parametrize(
    ("plan", "field"),
    [
        ({"workload": EVEN, "measured": {"output_tokens_per_s": 100, "concurrency": 10}}, "/plan/model"),
        (PLAN | {"deployment": {"tp": 1, "weights": "bf16", "engine": "vllm"}}, "/plan"),
    ],
    ids=["no-model", "does-not-fit"],
)
def test_what_cannot_be_tested_is_refused(client: TestClient, plan: dict[str, Any], field: str) -> None:
    answer = client.post("/load-tests", json={"plan": plan})
    assert answer.status_code == 422
    assert field in answer.text
