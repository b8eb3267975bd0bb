"""The working by the rules of the engines, redone: memory, KV cache and concurrency of every kind of model, starts that fail too."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.services.calculator import agree, answers, redo

pytestmark = pytest.mark.slow

MODELS = {
    "dense": "llama-3.1-8b", "dense_large": "llama-3.1-70b", "moe": "mixtral-8x7b", "moe_mxfp4": "gpt-oss-120b", "latent": "deepseek-v3",
    "latent_indexed": "deepseek-v3.2", "compressed": "deepseek-v4-flash", "windowed": "gemma-3-27b", "chunked": "llama-4-scout",
    "hybrid": "qwen3-next-80b-a3b", "mamba": "nemotron-h-47b", "stated": "deepseek-v4.1-flash",
}  # fmt: skip
ENGINES: dict[str, dict[str, Any]] = {
    "vllm_oldest": {"engine": "vllm", "engine_version": "0.6.4"},
    "vllm_divided_line": {"engine": "vllm", "engine_version": "0.10.2"},
    "vllm": {"engine": "vllm"},
    "sglang_old": {"engine": "sglang", "engine_version": "0.4.6"},
    "sglang": {"engine": "sglang"},
    "tensorrt-llm": {"engine": "tensorrt-llm"},
    "llama.cpp": {"engine": "llama.cpp"},
}
DEPLOYMENTS: list[dict[str, Any]] = [
    {"tp": 8, "max_model_len_tokens": 8192},
    {"tp": 4, "pp": 2, "weights": "fp8", "kv_cache": "fp8", "max_num_seqs": 100, "max_model_len_tokens": 30_000},
    {"weights": "awq", "enforce_eager": True, "memory_fraction_ratio": 0.93, "max_model_len_tokens": 4097},
    {"tp": 2, "memory_fraction_ratio": 0.85, "reserve_bytes_per_gpu": 5 * 10**9},
    {"tp": 8, "dp": 2, "ep": 16, "block_size_tokens": 64, "speculative": {"num_draft_tokens": 2, "acceptance_ratio": 0.7}},
    {"tp": 2, "max_num_seqs": 16},
]
REPLICAS = [*(("h100-sxm-80gb", each) for each in DEPLOYMENTS), ("l4-24gb", DEPLOYMENTS[2]), ("mi300x-192gb", DEPLOYMENTS[4])]


def bodies(model: str, engine: str, **more: Any) -> Iterator[dict[str, Any]]:
    for gpu, deployment in REPLICAS:
        yield {"model": MODELS[model], "gpu": gpu, "deployment": {**deployment, **ENGINES[engine]}, **more}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", MODELS)
def test_memory(model: str, engine: str) -> None:
    found = list(answers("memory", bodies(model, engine)))
    assert found
    for answer in found:
        working = redo(answer.working)
        agree(answer, working, "weights_bytes", "kv_capacity_tokens", "num_blocks")
        for name in ("budget_bytes", "reserve_bytes", "kv_cache_bytes"):
            assert getattr(answer.per_gpu, name) == working[name], name
        assert answer.per_gpu.weights_bytes == working["weights_bytes_per_gpu"]
        for name in ("activation_bytes", "cuda_graph_bytes", "communication_bytes", "runtime_bytes"):
            assert getattr(answer.per_gpu, name) == working.get(name, 0), name


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", MODELS)
def test_kv(model: str, engine: str) -> None:
    asked = {"model": MODELS[model], "context_tokens": [5000, 100_001, 1000], "num_sequences": 7, **ENGINES[engine]}
    found = list(answers("kv", ({**asked, "tp": tp} for tp in (1, 8))))
    assert found
    for answer in found:
        working = redo(answer.working)
        for row in answer.in_engine[1:2]:
            assert row.reserved_bytes_per_gpu == working["reserved_bytes_per_gpu"]
            assert row.num_blocks == working.get("num_reserved_blocks")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", MODELS)
def test_concurrency(model: str, engine: str) -> None:
    found = list(answers("concurrency", bodies(model, engine, tokens_per_sequence={"mean": 5000.5, "p95": 9000})))
    assert found
    for answer in found:
        working = redo(answer.working)
        agree(answer, working, "kv_capacity_tokens", "max_concurrency", "safe_concurrency", "recommended_max_num_seqs")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", MODELS)
def test_concurrency_with_a_prefix_cache(model: str, engine: str) -> None:
    traffic = {"peak_rps": 1, "input_tokens": 4000, "output_tokens": 500.5, "shared_prefix_tokens": 3000}
    found = list(answers("concurrency", bodies(model, engine, workload=traffic, prefix_cache_reserve_ratio=0.1)))
    assert found
    for answer in found:
        working, use = redo(answer.working), answer.prefix_cache
        agree(answer, working, "max_concurrency", "safe_concurrency")
        assert use.max_concurrency == answer.max_concurrency
        assert use.shared_prefix_tokens == working.get("shared_prefix_tokens", 0)
        shared = use.shared_prefix_tokens > 0
        assert ("shared_prefix" in {note.code for note in answer.assumptions}) is shared
        assert ("prefix_not_shared" in {note.code for note in answer.warnings}) is not shared


def test_the_replicas_serve_load_and_do_not_fit() -> None:
    found = [answer for engine in ENGINES for answer in answers("memory", bodies("dense_large", engine))]
    assert {answer.verdict for answer in found} == {"serves", "loads_only", "does_not_fit"}
    limits = {answer.limiting for answer in found}
    assert limits >= {None, "weights", "kv_cache", "max_model_len"}


def test_the_page_of_a_dense_model_is_its_block_in_bytes() -> None:
    (answer,) = answers("memory", iter([{"model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "deployment": {"engine": "vllm"}}]))
    page = next(step for step in answer.working if step.name == "page_bytes")
    assert (page.substituted, page.value) == ("16 x 4096", 65536)
