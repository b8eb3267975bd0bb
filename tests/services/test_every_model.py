"""Every model of the catalog on every engine: an answer whose figures are finite and consistent, whatever the verdict."""

import math
from typing import Any

import pytest

from app.domain.memory import valid_tps
from app.domain.memory_answer import MemoryAnswer
from app.services.estimates import CALCULATIONS
from tests.domain.shapes import CATALOG

ENGINES = ("vllm", "sglang", "tensorrt-llm", "llama.cpp")
REPLICAS = (("l4-24gb", 1), ("b200-sxm-180gb", 8), ("mi300x-192gb", 4))
LENGTHS = (4096, 32_768, 131_072)


def calculate(kind: str, body: dict[str, Any]) -> Any:
    request_type, answer = CALCULATIONS[kind]
    return answer(CATALOG, request_type.model_validate(body))


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [number for each in value.values() for number in numbers(each)]
    if isinstance(value, list | tuple):
        return [number for each in value for number in numbers(each)]
    return [value] if isinstance(value, int | float) else []


def check_memory(answer: MemoryAnswer) -> None:
    per_gpu = answer.per_gpu
    parts = per_gpu.weights_bytes + per_gpu.reserve_bytes + per_gpu.kv_cache_bytes + per_gpu.safety_bytes
    assert parts == per_gpu.memory_bytes if per_gpu.kv_cache_bytes else parts >= per_gpu.memory_bytes
    assert answer.verdict in ("serves", "loads_only", "does_not_fit")
    assert (answer.verdict == "serves") == all(check.passed for check in answer.checks) == (answer.margin_bytes >= 0)
    assert answer.verdict != "serves" or not answer.what_would_fit
    low, high = answer.kv_cache_low_bytes, answer.kv_cache_high_bytes
    assert low is not None
    assert high is not None
    assert 0 <= low <= per_gpu.kv_cache_bytes <= high
    if "llama.cpp" not in (answer.engine_rules or ""):  # which keeps the embedding on the host
        assert per_gpu.weights_bytes >= 0.99 * answer.weights_bytes / answer.num_gpus
    for change in answer.what_would_fit:
        assert (change.verdict, change.margin_bytes >= 0) == ("serves", True)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("gpu", "tp"), REPLICAS, ids=[gpu for gpu, _ in REPLICAS])
def test_memory_and_concurrency(gpu: str, tp: int, engine: str) -> None:
    for slug, llm in CATALOG.models.items():
        degree = max(each for each in valid_tps(llm, tp))
        names = {"model": slug, "gpu": gpu, "deployment": {"tp": degree, "engine": engine}}
        answer = calculate("memory", names)
        assert all(map(math.isfinite, numbers(answer.model_dump()))), slug
        check_memory(answer)
        if llm.layer_groups is None and llm.stated_kv_cache is None:
            continue
        held = calculate("concurrency", {**names, "tokens_per_sequence": {"mean": 3000, "p95": 9000}})
        assert all(map(math.isfinite, numbers(held.model_dump()))), slug
        assert held.kv_capacity_tokens == answer.kv_capacity_tokens, slug
        assert 0 <= held.safe_concurrency <= held.max_concurrency, slug
        assert held.at_p95.max_concurrency <= held.max_concurrency, slug


@pytest.mark.parametrize("slug", CATALOG.models)
def test_kv_from_4k_to_the_longest_context(slug: str) -> None:
    llm = CATALOG.models[slug]
    longest = llm.max_model_len_tokens or LENGTHS[-1]
    lengths = sorted({each for each in LENGTHS if each < longest} | {longest})
    for engine in ("generic", "vllm"):
        answer = calculate("kv", {"model": slug, "context_tokens": lengths, "engine": engine})
        assert [row.context_tokens for row in answer.by_context] == lengths
        sizes = [row.bytes_per_sequence for row in answer.by_context]
        assert sizes == sorted(sizes)
        assert sizes[0] > 0
        assert all(map(math.isfinite, numbers(answer.model_dump())))
        for row in answer.in_engine:
            assert row.reserved_bytes_per_gpu > 0
