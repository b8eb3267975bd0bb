"""`POST /performance`: what it answers, what it warns of, what it refuses."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.services.calculator import redo_json

REPLICA: dict[str, Any] = {
    "model": "llama-3.1-70b",
    "gpu": "h100-sxm-80gb",
    "deployment": {"tp": 4, "weights": "fp8", "kv_cache": "fp8", "engine": "vllm"},
}
LENGTHS = {"input_tokens": 4000, "output_tokens": 500}
CHAT = {**REPLICA, **LENGTHS, "concurrency": 32}
FIGURES = ("ttft_s", "tpot_s", "e2e_s", "output_tokens_per_s", "input_tokens_per_s", "tokens_per_s_per_user", "request_rps")


def ask(client: TestClient, **body: Any) -> dict[str, Any]:
    answer = client.post("/performance", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def codes(answer: dict[str, Any]) -> set[str]:
    return {note["code"] for note in answer["warnings"]}


def test_every_figure_has_a_range(client: TestClient) -> None:
    answer = ask(client, **CHAT)
    for name in FIGURES:
        figure = answer[name]
        assert 0 < figure["low"] < figure["value"] < figure["high"], name
    assert (answer["basis"], answer["verdict"], answer["saturated"]) == ("calibrated", "serves", False)
    assert answer["output_tokens_per_s"]["value"] == pytest.approx(500 * answer["request_rps"]["value"])
    assert answer["tokens_per_s_per_user"]["value"] == pytest.approx(1 / answer["tpot_s"]["value"])
    assert 0 < answer["mfu_ratio"] < 1
    assert 0 < answer["mbu_ratio"] < 1
    assert f"{answer['output_tokens_per_s']['value']:,.0f} output tokens/s" in answer["summary"]


def test_the_curve_rises_to_saturation_and_has_one_knee(client: TestClient) -> None:
    answer = ask(client, **CHAT)
    curve = answer["curve"]
    assert [point["concurrency"] for point in curve[:4]] == [1, 2, 4, 8]
    rates = [point["request_rps"] for point in curve]
    assert rates == sorted(rates)
    assert [point["concurrency"] for point in curve if point["is_knee"]] == [answer["knee_concurrency"]]
    assert curve[-1]["concurrency"] == answer["saturation"]["concurrency"]
    assert curve[-1]["request_rps"] == answer["saturation"]["request_rps"]
    at_32 = next(point for point in curve if point["concurrency"] == 32)
    assert (at_32["tpot_s"], at_32["ttft_s"]) == (answer["tpot_s"]["value"], answer["ttft_s"]["value"])


def test_prefill_is_bound_by_arithmetic_and_decode_by_memory(client: TestClient) -> None:
    answer = ask(client, **{**CHAT, "concurrency": 1})
    assert answer["prefill"]["binds"] == "compute"
    assert answer["decode"]["binds"] == "memory"
    assert answer["prefill"]["mfu_ratio"] > answer["decode"]["mfu_ratio"]
    assert answer["decode"]["mbu_ratio"] > answer["prefill"]["mbu_ratio"]


def test_a_batch_turns_compute_bound_where_the_cache_is_small(client: TestClient) -> None:
    short = ask(client, **{**CHAT, "input_tokens": 10, "output_tokens": 10})
    assert 32 < short["compute_bound_concurrency"] < 1024
    assert ask(client, **{**CHAT, "input_tokens": 30_000})["compute_bound_concurrency"] is None


def test_more_than_it_ends_saturates_it(client: TestClient) -> None:
    answer = ask(client, **REPLICA, **LENGTHS, request_rps=1000)
    assert answer["saturated"] is True
    assert (answer["ttft_s"], answer["e2e_s"], answer["waiting"], answer["concurrency"]) == (None, None, None, None)
    assert answer["request_rps"]["value"] == answer["saturation"]["request_rps"]
    assert "saturated" in codes(answer)
    assert "queue grows without end" in answer["summary"]


def test_what_arrives_is_served_and_has_no_range(client: TestClient) -> None:
    answer = ask(client, **REPLICA, **LENGTHS, request_rps=0.5)
    assert set(answer["request_rps"].values()) == {0.5}
    assert answer["concurrency"] == pytest.approx(0.5 * answer["e2e_s"]["value"])


def test_a_model_that_does_not_fit_is_answered(client: TestClient) -> None:
    answer = ask(client, **{**CHAT, "deployment": {"tp": 1, "weights": "bf16"}})
    assert answer["verdict"] == "does_not_fit"
    assert all(answer[name] is None for name in FIGURES)
    assert (answer["curve"], answer["by_batching"], answer["saturation"]) == ([], [], None)
    assert "serves no request of this length (does_not_fit, limited by weights)" in answer["summary"]
    assert "does_not_fit" in codes(answer)


def test_variants_hold_the_load_and_change_one_thing(client: TestClient) -> None:
    answer = ask(client, **{**CHAT, "prefix_hit_ratio": 0.25})
    assert [each["name"] for each in answer["by_batching"]] == ["continuous", "dynamic", "static"]
    assert [each["name"] for each in answer["by_prefix_hit"]] == [f"prefix_hit_ratio {ratio}" for ratio in ("0", "0.25", "0.5", "0.8")]
    first, own, half, last = answer["by_prefix_hit"]
    assert first["ttft_s"] > own["ttft_s"] == answer["ttft_s"]["value"] > half["ttft_s"] > last["ttft_s"]
    assert first["tpot_s"] > own["tpot_s"] > half["tpot_s"] > last["tpot_s"]
    budgets = {each["name"]: each for each in answer["by_token_budget"]}
    assert set(budgets) >= {"max_num_batched_tokens 2048", "max_num_batched_tokens 8192", "whole prompts"}
    assert budgets["max_num_batched_tokens 2048"]["longest_step_s"] < budgets["whole prompts"]["longest_step_s"]


def test_speculation_says_what_it_brings(client: TestClient) -> None:
    deployment = {**REPLICA["deployment"], "speculative": {"num_draft_tokens": 3, "acceptance_ratio": 0.7, "draft_model": "llama-3.1-8b"}}
    answer = ask(client, **{**CHAT, "concurrency": 1, "deployment": deployment})
    found = answer["speculation"]
    assert found["tokens_per_step"] == pytest.approx(3.1)
    assert found["draft_s"] > 0
    assert 1 < found["speedup_ratio"] < 3.1
    assert ask(client, **CHAT)["speculation"] is None
    nothing = {**deployment, "speculative": {"num_draft_tokens": 3, "acceptance_ratio": 0}}
    useless = ask(client, **{**CHAT, "deployment": nothing})
    assert (useless["speculation"]["pays_up_to_concurrency"], useless["speculation"]["speedup_ratio"] < 1) == (0, True)
    assert "draft_time_not_counted" in codes(useless)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"model": {"params": 70_000_000_000}}, "layers_unknown"),
        ({"model": {"params": 70_000_000_000}, "deployment": {"tp": 4}}, "places_not_known"),
        ({"gpu": "l40s-48gb"}, "constants_carried_over"),
        ({"concurrency": 100_000}, "few_places_left"),
        ({"deployment": {**REPLICA["deployment"], "tp": 8, "pp": 2}}, "network_assumed"),
        ({"deployment": {**REPLICA["deployment"], "enforce_eager": True}}, "eager_not_modelled"),
        ({"deployment": {**REPLICA["deployment"], "max_model_len_tokens": 4096}}, "beyond_max_model_len"),
        (
            {"gpu": {"memory_bytes": 80 * 10**9, "memory_bandwidth_bytes_per_s": 3e12, "peak_flops_per_s": 1e15}},
            "link_not_known",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_is_uncertain_is_said(client: TestClient, changed: dict[str, Any], code: str) -> None:
    answer = ask(client, **{**CHAT, **changed})
    assert code in codes(answer)
    assert code not in codes(ask(client, **CHAT))
    assert answer["tpot_s"]["value"] > 0


@pytest.mark.parametrize(
    ("changed", "field", "told"),
    [
        ({"concurrency": None}, "", "either concurrency or request_rps"),
        ({"request_rps": 2}, "", "either concurrency or request_rps"),
        ({"num_requests": 8}, "", "at least as many requests as its concurrency"),
        ({"concurrency": 0}, "/concurrency", "greater than or equal to 1"),
        ({"input_tokens": 0}, "/input_tokens", "greater than or equal to 1"),
        ({"batching": "none"}, "/batching", "continuous"),
        ({"prefix_hit_ratio": 1.5}, "/prefix_hit_ratio", "less than or equal to 1"),
        (
            {"prefix_hit_ratio": 0.5, "deployment": {**REPLICA["deployment"], "prefix_caching": False}},
            "/prefix_hit_ratio",
            "prefix_caching is false",
        ),
        ({"deployment": {**REPLICA["deployment"], "tp": 3}}, "/deployment/tp", "does not divide"),
        (
            {"deployment": {**REPLICA["deployment"], "speculative": {"num_draft_tokens": 1, "acceptance_ratio": 1, "draft_model": "no"}}},
            "/deployment/speculative/draft_model",
            "no model called",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(client: TestClient, changed: dict[str, Any], field: str, told: str) -> None:
    answer = client.post("/performance", json={**CHAT, **changed})
    assert answer.status_code in (404, 422), answer.text
    assert told in answer.text
    if field:
        assert field in answer.text


def test_a_peak_that_the_catalog_lacks_is_named(client: TestClient) -> None:
    gpu = {"memory_bytes": 10**12, "memory_bandwidth_bytes_per_s": 3e12, "peak_flops_per_s": {"bf16": 1e15}}
    answer = client.post("/performance", json={**CHAT, "gpu": gpu})
    assert answer.json()["code"] == "missing_figure"
    assert "peak_flops_per_s.fp8" in answer.json()["detail"]


@pytest.mark.parametrize("name", ["generic", "vllm", "sglang", "tensorrt-llm", "llama.cpp"])
@pytest.mark.parametrize("load", [{"concurrency": 64, "num_requests": 640}, {"request_rps": 0.7}], ids=["run", "rate"])
def test_the_working_of_every_engine_can_be_redone(client: TestClient, name: str, load: dict[str, Any]) -> None:
    deployment = {"tp": 8, "engine": name, "max_model_len_tokens": 32768}
    for model in ("deepseek-v3", "llama-3.1-8b"):
        answer = ask(client, model=model, gpu="h200-sxm-141gb", deployment=deployment, **LENGTHS, **load)
        names = [step["name"] for step in answer["working"]]
        working = redo_json(answer["working"][names.index("bandwidth_ratio") :])  # the memory's own lines come before
        assert working["tpot_s"] == answer["tpot_s"]["value"]
        assert working["mixed_step_s"] == answer["mixed"]["total_s"]


@pytest.mark.parametrize(
    "absurd",
    [
        {"input_tokens": 1e9, "output_tokens": 1e9},
        {"input_tokens": 1, "output_tokens": 1},
        {"concurrency": 10**6},
        {"model": {"params": 10**16}},
        {"model": {"params": 1, "active_params": 1}},
        {"model": {"params": 10**15, "active_params": 1}, "gpu": "b300-sxm-288gb"},
        {"gpu": {"memory_bytes": 10**15, "memory_bandwidth_bytes_per_s": 1, "peak_flops_per_s": 1}},
        {"gpu": {"memory_bytes": 10**15, "memory_bandwidth_bytes_per_s": 1e21, "peak_flops_per_s": 1e21}},
        {"deployment": {"tp": 1024, "pp": 1024}, "model": {"params": 70 * 10**9}},
        {"concurrency": None, "request_rps": 1e9},
        {"concurrency": None, "request_rps": 1e-6, "output_tokens": 1},
        {"deployment": {"max_num_batched_tokens": 1, "tp": 4, "weights": "fp8"}},
        {"deployment": {"max_num_seqs": 1, "tp": 4, "weights": "fp8"}},
    ],
    ids=str,
)
@pytest.mark.parametrize("batching", ["continuous", "dynamic", "static"])
def test_absurd_inputs_are_answered(client: TestClient, absurd: dict[str, Any], batching: str) -> None:
    answer = client.post("/performance", json={**CHAT, "batching": batching, **absurd})
    assert answer.status_code == 200, answer.text
    assert "NaN" not in answer.text
    assert "Infinity" not in answer.text


def test_a_shared_prefix_leaves_more_places(client: TestClient) -> None:
    long = {**CHAT, "deployment": {**REPLICA["deployment"], "max_num_seqs": 4000}}
    apart = ask(client, **long, prefix_hit_ratio=0.75)
    shared = ask(client, **long, shared_prefix_tokens=3000, prefix_hit_ratio=1)
    assert shared["ttft_s"] == apart["ttft_s"]  # the same tokens are left to compute
    assert shared["saturation"]["concurrency"] > 2 * apart["saturation"]["concurrency"]
    assert "shared_prefix" in {note["code"] for note in shared["assumptions"]}
    missed = ask(client, **long, shared_prefix_tokens=3000)
    assert missed["saturation"] == ask(client, **long)["saturation"]
    rows = {row["name"]: row["ttft_s"] for row in shared["by_prefix_hit"]}
    assert rows["prefix_hit_ratio 0"] == missed["ttft_s"]["value"] > rows["prefix_hit_ratio 0.5"] > rows["prefix_hit_ratio 1"]
    answer = client.post("/performance", json={**CHAT, "shared_prefix_tokens": 5000})
    assert (answer.status_code, "shared_prefix_tokens 5000" in answer.text) == (422, True)


def test_a_model_of_one_parameter_is_outrun_by_a_billion_requests_a_second(client: TestClient) -> None:
    absurd = {"model": {"params": 1}, "gpu": "h100-sxm-80gb", "deployment": {"weights": "fp32", "engine": "sglang"}, "request_rps": 1e9}
    found = ask(client, **absurd, input_tokens=128, output_tokens=1)
    assert found["saturated"]
    assert {row["output_tokens_per_s"] for row in found["by_token_budget"]} == {None}


@pytest.mark.parametrize(
    ("load", "computed"),
    [
        ({"concurrency": 32}, {"server_s", "prefill_s"}),
        ({"concurrency": 5000, "num_requests": 10**6}, {"server_s", "prefill_s", "admission_s"}),
        ({"request_rps": 1}, {"server_s", "residual_s", "prefill_s", "prompts_ahead_s"}),
    ],
    ids=["loop", "queue", "rate"],
)
def test_the_time_to_first_token_can_be_redone(client: TestClient, load: dict[str, float], computed: set[str]) -> None:
    answer = ask(client, **REPLICA, **LENGTHS, **load)
    redo_json(answer["working"])
    parts = {line["name"].removeprefix("ttft_"): line for line in answer["working"] if line["name"].startswith("ttft_")}
    assert {name for name, line in parts.items() if " x " in line["substituted"]} == computed
    assert {name: line["value"] for name, line in parts.items() if name in answer["waiting"]} == answer["waiting"]
