"""`POST /memory/reconcile`: real start-up logs, and the deployment that comes back sent to `/memory`."""

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.domain.units import GIB

LOGS = Path(__file__).parents[1] / "importers" / "start_up_logs"
KINDS: dict[str, tuple[str, str, str, dict[str, Any], dict[str, float]]] = {
    "moe": (
        "vllm-0.10.2-qwen3-30b-a3b-h100",
        "Qwen/Qwen3-30B-A3B-Instruct-2507",
        "h100-sxm-80gb",
        {},
        {"kv": 8.68, "tokens": 94_784, "concurrency": 15.43},
    ),
    "dense-tp8-fp8-cache": (
        "vllm-0.10.0-qwen3-32b-tp8-h100",
        "qwen3-32b",
        "h100-sxm-80gb",
        {},
        {"kv": 55.62, "tokens": 3_644_816, "concurrency": 111.23},
    ),
    "old-version": (
        "vllm-0.7.3-qwen2.5-14b-a100-40gb",
        "qwen2.5-14b",
        "a100-sxm-40gb",
        {},
        {"kv": 2.33, "tokens": 12_736, "concurrency": 1.55},
    ),
    "latent-attention-in-stages": (
        "vllm-0.9.2-deepseek-v2-lite-pp2-tp2-l4",
        "deepseek-v2-lite",
        "l4-24gb",
        {"tp": 2, "pp": 2, "engine_version": "0.9.2"},
        {"kv": 12.13, "tokens": 807_792, "concurrency": 788.86},
    ),
    "hybrid": (
        "vllm-0.19.0-qwen3.5-27b-tp4-rtx-3090",
        "qwen3.5-27b",
        "rtx-3090-24gb",
        {},
        {"kv": 7.47, "tokens": 122_304, "concurrency": 13.87},
    ),
    "windows": (
        "vllm-0.20.0-gemma-4-26b-a4b-gb10",
        "gemma-4-26b-a4b",
        "gb10-dgx-spark-128gb",
        {},
        {"kv": 40.61, "tokens": 177_440, "concurrency": 35.75},
    ),
    "windows-nvfp4": (
        "vllm-0.25.1-gemma-4-26b-a4b-nvfp4-gb10",
        "gemma-4-26b-a4b",
        "gb10-dgx-spark-128gb",
        {},
        {"kv": 84.68, "tokens": 3_912_140, "concurrency": 14.92},
    ),
    "hybrid-nvfp4-drafts": (
        "vllm-0.25.1-qwen3.8-27b-nvfp4-gb10",
        "qwen3.8-27b",
        "gb10-dgx-spark-128gb",
        {},
        {"kv": 76.4, "tokens": 2_192_477, "concurrency": 8.36},
    ),
    "consumed-memory": (
        "vllm-0.26.1-qwen3-coder-30b-a100",
        "qwen3-coder-30b-a3b",
        "a100-sxm-80gb",
        {},
        {"kv": 13.84, "tokens": 151_216, "concurrency": 1.15},
    ),
    "sglang": ("sglang-qwen2.5-1.5b-gb10", "qwen2.5-1.5b", "gb10-dgx-spark-128gb", {}, {"kv": 41.56, "tokens": 1_556_049}),
    "tensorrt-llm": (
        "tensorrt-llm-0.20.0-llama-3.1-8b-fp8-h100",
        "llama-3.1-8b",
        "h100-sxm-80gb",
        {"weights": "fp8"},
        {"kv": 61.18, "tokens": 1_002_304},
    ),
    "llama.cpp": ("llama.cpp-b7780-qwen2.5-7b-q8", "qwen2.5-7b", "l4-24gb", {"weights": "int8"}, {"kv": 1.75, "tokens": 32_768}),
}


def ask(client: TestClient, **body: Any) -> dict[str, Any]:
    """The answer to a request that is understood."""
    answer = client.post("/memory/reconcile", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def refuse(client: TestClient, **body: Any) -> dict[str, Any]:
    """The first fault of a request that is refused."""
    answer = client.post("/memory/reconcile", json=body)
    assert answer.status_code == 422, answer.text
    found: dict[str, Any] = answer.json()
    return found


def log(name: str) -> str:
    return (LOGS / f"{name}.log").read_text()


@pytest.mark.parametrize(("name", "model", "gpu", "deployment", "printed"), KINDS.values(), ids=KINDS)
def test_the_corrected_deployment_reproduces_the_log(
    client: TestClient, name: str, model: str, gpu: str, deployment: dict[str, Any], printed: dict[str, float]
) -> None:
    answer = ask(client, model=model, gpu=gpu, deployment=deployment, log=log(name))
    corrected = answer["corrected"]
    assert corrected["reproduces"], answer["summary"]
    again = client.post("/memory", json={"model": model, "gpu": gpu, "deployment": corrected["deployment"]}).json()
    assert again["per_gpu"]["kv_cache_bytes"] == corrected["kv_cache_bytes_per_gpu"]
    assert again["kv_capacity_tokens"] == corrected["kv_capacity_tokens"]
    assert corrected["kv_cache_bytes_per_gpu"] / GIB == pytest.approx(printed["kv"], abs=0.006)
    assert corrected["kv_capacity_tokens"] == pytest.approx(printed["tokens"], rel=0.002)
    if "concurrency" in printed:
        assert corrected["max_concurrency_at_max_len_ratio"] == pytest.approx(printed["concurrency"], rel=0.003)


def test_the_gap_of_the_pool_is_the_sum_of_the_others(client: TestClient) -> None:
    answer = ask(client, model="qwen3-30b-a3b-2507", gpu="h100-sxm-80gb", log=log("vllm-0.10.2-qwen3-30b-a3b-h100"))
    gaps = {term["name"]: term["difference_bytes"] for term in answer["terms"]}
    assert gaps["kv_cache_bytes"] == gaps["budget_bytes"] - gaps["weights_bytes"] - gaps["overhead_bytes"]
    assert answer["terms"][-1]["name"] == "kv_cache_bytes"
    assert [setting["setting"] for setting in answer["settings"]][:3] == ["engine", "engine_version", "memory_fraction_ratio"]
    assert answer["printed"]["num_blocks"] == 5924
    assert "graphs_outside_budget" in [note["code"] for note in answer["explanations"]]
    assert answer["working"][-1]["value"] == answer["corrected"]["deployment"]["reserve_bytes_per_gpu"]


def test_a_refused_start_is_compared_too(client: TestClient) -> None:
    answer = ask(
        client,
        model="qwen3.5-9b",
        gpu="rtx-3090-24gb",
        log=log("vllm-0.19.0-qwen3.5-9b-tp4-graph-oom"),
        printed={"max_num_seqs": 256},
    )
    assert "did not start (graph_capture)" in answer["summary"]
    assert "start_failed" in [note["code"] for note in answer["explanations"]]
    assert answer["corrected"]["deployment"]["max_num_seqs"] == 256


def test_named_figures_go_before_the_log(client: TestClient) -> None:
    name = "vllm-0.10.2-qwen3-30b-a3b-h100"
    answer = ask(client, model="qwen3-30b-a3b-2507", gpu="h100-sxm-80gb", log=log(name), printed={"kv_cache_bytes_per_gpu": 8 * GIB})
    assert answer["printed"]["kv_cache_bytes_per_gpu"] == 8 * GIB
    assert "printed_otherwise" in [note["code"] for note in answer["warnings"]]
    assert answer["corrected"]["kv_cache_bytes_per_gpu"] == pytest.approx(8 * GIB, abs=2)


def test_a_log_of_another_model_is_said(client: TestClient) -> None:
    answer = ask(client, model="qwen3-32b", gpu="h100-sxm-80gb", log=log("vllm-0.10.2-qwen3-30b-a3b-h100"))
    (warning,) = [note for note in answer["warnings"] if note["code"] == "other_model"]
    assert "qwen3-30b-a3b-2507" in warning["message"]


def test_without_pool_and_tokens_nothing_is_corrected(client: TestClient) -> None:
    answer = ask(client, model="qwen3-8b", gpu="h100-sxm-80gb", printed={"weights_bytes_per_gpu": 16_400_000_000})
    assert answer["corrected"] is None
    assert "no_printed_pool" in [note["code"] for note in answer["warnings"]]


@pytest.mark.parametrize(
    ("body", "pointer", "expected"),
    [
        ({}, "", "give a log, or at least one printed figure"),
        ({"printed": {}}, "", "give a log, or at least one printed figure"),
        ({"log": "nothing of an engine"}, "/log", "GPU KV cache size"),
        ({"log": "x" * (2**20 + 1)}, "/log", "1048576"),
        ({"printed": {"kv_cache_gib": 3}}, "/printed/kv_cache_gib", ""),
        ({"printed": {"kv_cache_tokens": -1}}, "/printed/kv_cache_tokens", "greater than or equal to 0"),
        ({"log": "Model loading took 3 GiB", "model": "qwen3-8x"}, "/model", "qwen3-8b"),
        ({"printed": {"kv_cache_tokens": 5}, "deployment": {"tp": 3}}, "/deployment/tp", "one of 1, 2, 4"),
    ],
)
def test_what_cannot_be_compared_is_refused_by_name(client: TestClient, body: dict[str, Any], pointer: str, expected: str) -> None:
    fault = refuse(client, **({"model": "qwen3-8b", "gpu": "h100-sxm-80gb"} | body))["errors"][0]
    assert fault["pointer"] == pointer
    assert expected in str(fault)


def test_a_model_split_over_two_devices_is_the_one_that_was_printed(client: TestClient) -> None:
    """llama.cpp over two cards: states beside the cache, and inputs of the graph copied four times on each."""
    answer = ask(client, model="qwen3.5-35b-a3b", gpu="rtx-6000-ada-48gb", log=log("llama.cpp-qwen3.5-35b-a3b-q8-two-gpus"))
    terms = {term["name"]: term for term in answer["terms"]}
    assert terms["activation_bytes"]["estimated_bytes"] == pytest.approx(637.07 * 2**20, rel=0.001)
    assert terms["kv_cache_bytes"]["estimated_bytes"] == terms["kv_cache_bytes"]["printed_bytes"] == 320 * 2**20
    assert answer["corrected"]["reproduces"]
