"""Draft models: their weights and cache are counted where the catalog knows them."""

from typing import Any

import pytest

from app.domain.errors import UnknownName
from app.services.estimates import memory
from app.services.requests import MemoryRequest
from tests.domain.shapes import BUNDLED, CATALOG


def ask(draft: str | None, model: str = "qwen3-32b") -> Any:
    speculative = {"speculative": {"num_draft_tokens": 3, "acceptance_ratio": 0.7, "draft_model": draft}} if draft else {}
    deployment = {"engine": "vllm", "engine_version": "0.19.1", "tp": 2, "max_model_len_tokens": 8192, **speculative}
    return memory(CATALOG, MemoryRequest.model_validate({"model": model, "gpu": "h100-sxm-80gb", "deployment": deployment}))


def codes(answer: Any) -> set[str]:
    return {note.code for note in answer.warnings}


def test_weights_and_cache_of_a_draft_model_are_counted() -> None:
    alone, drafted = ask(None), ask("Qwen/Qwen3-0.6B")
    draft = BUNDLED.models["qwen3-0.6b"]
    added = drafted.per_gpu.weights_bytes - alone.per_gpu.weights_bytes
    assert added == pytest.approx(2 * draft.num_params / 2, rel=0.02)  # and its rotary table, segments rounded up
    # 28 layers of 4 heads per rank, keys and values of 128 in 16 bits
    per_token = drafted.per_gpu.kv_cache_bytes / drafted.kv_capacity_tokens - alone.per_gpu.kv_cache_bytes / alone.kv_capacity_tokens
    assert per_token == pytest.approx(28 * 4 * 2 * 128 * 2, rel=0.001)
    assert "draft_not_counted" not in codes(drafted)


def test_beside_windows_a_draft_counts_as_layers_of_full_attention() -> None:
    alone, drafted = ask(None, "gpt-oss-120b"), ask("gpt-oss-20b", "gpt-oss-120b")
    assert drafted.max_concurrency_at_max_len_ratio < 0.9 * alone.max_concurrency_at_max_len_ratio


def test_a_head_in_a_repository_of_its_own_is_not_counted_and_said_so() -> None:
    answer = ask("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B")
    assert "draft_not_counted" in codes(answer)
    assert answer.per_gpu.weights_bytes == ask(None).per_gpu.weights_bytes


def test_a_slug_that_is_none_is_refused_by_its_field() -> None:
    with pytest.raises(UnknownName) as refused:
        ask("qwen3-0.6bb")
    assert refused.value.field == "/deployment/speculative/draft_model"
    assert "qwen3-0.6b" in refused.value.nearest
