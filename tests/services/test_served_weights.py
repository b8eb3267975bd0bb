"""What a deployment changes in the weights: adapter slots, redundant experts, pooling instead of generating."""

from typing import Any

import pytest

from app.domain.errors import InvalidInput
from app.services.estimates import memory
from app.services.requests import MemoryRequest
from tests.domain.shapes import BUNDLED, CATALOG, GIB


def ask(model: str, gpu: str = "h100-sxm-80gb", **deployment: object) -> Any:
    given = {"engine": "vllm", "max_model_len_tokens": 8192, "engine_version": "0.19.1", **deployment}
    return memory(CATALOG, MemoryRequest.model_validate({"model": model, "gpu": gpu, "deployment": given}))


def added(model: str, base: dict[str, Any], more: dict[str, Any], gpu: str = "h100-sxm-80gb") -> int:
    with_more, without = ask(model, gpu, **base, **more), ask(model, gpu, **base)
    return int(with_more.per_gpu.weights_bytes - without.per_gpu.weights_bytes)


def test_one_slot_is_as_large_as_an_adapter_of_all_projections() -> None:
    """rank x (input + output) over the seven projections of 32 layers: 41,943,040 for rank 16 on Llama 3 8B."""
    assert added("llama-3.1-8b", {}, {"lora": {"num_slots": 1, "max_rank": 16}}) == 2 * 41_943_040


@pytest.mark.parametrize(
    ("tp", "width"),
    [
        pytest.param(1, 3 * 4096 + 6144 + 2 * 4096 + 2 * 4096 + 2 * 14336 + 14336 + 4096, id="one GPU"),
        pytest.param(4, 3 * 4096 + 1536 + 1024 + 4096 + 2 * 4096 + 2 * 3584 + 3584 + 4096, id="inputs stay whole on four"),
    ],
)
def test_slots_and_rank_multiply_and_tensor_parallelism_divides_one_side(tp: int, width: int) -> None:
    assert added("llama-3.1-8b", {"tp": tp}, {"lora": {"num_slots": 4, "max_rank": 64}}) == 2 * 4 * 64 * 32 * width


def test_a_generic_engine_says_that_adapters_are_not_counted() -> None:
    answer = ask("llama-3.1-8b", engine="generic", engine_version=None, lora={"num_slots": 2})
    assert "adapters_not_counted" in {note.code for note in answer.assumptions}


def test_redundant_experts_take_the_place_of_as_many_experts() -> None:
    layout = {"engine": "sglang", "engine_version": "0.4.6", "tp": 1, "dp": 8, "ep": 8}
    more = added("deepseek-r1", layout, {"num_redundant_experts": 32}, "h200-sxm-141gb")
    assert more == pytest.approx(58 * 4 * 3 * 7168 * 2048, rel=0.001)  # four experts more on each rank, in 8 bits


def test_redundant_experts_need_expert_parallelism() -> None:
    with pytest.raises(InvalidInput) as refused:
        ask("deepseek-r1", tp=8, num_redundant_experts=8)
    assert refused.value.field == "/deployment/num_redundant_experts"


def test_a_pooling_model_loads_no_head_and_samples_nothing() -> None:
    """Qwen3-Embedding-8B: 14.1062 GiB were printed, and 56.24 GiB for the cache
    (https://huggingface.co/Qwen/Qwen3-Embedding-8B has the layers of Qwen3-8B)."""
    generating, pooling = ask("qwen3-8b"), ask("qwen3-8b", task="embed")
    assert pooling.per_gpu.weights_bytes / GIB == pytest.approx(14.1062, rel=0.005)
    assert generating.per_gpu.weights_bytes - pooling.per_gpu.weights_bytes == pytest.approx(2 * 151936 * 4096, rel=0.01)
    assert pooling.per_gpu.activation_bytes < generating.per_gpu.activation_bytes / 2


def test_a_tied_head_is_the_embedding_and_stays() -> None:
    llm = BUNDLED.models["qwen3-0.6b"]
    assert llm.without_head() is llm


def test_a_language_model_alone_loads_and_profiles_no_tower() -> None:
    """Recorded: 27.67 GiB at 0.27.1, https://github.com/phivan3008/meeting-translator (vllm_serve.log)."""
    tower = BUNDLED.models["qwen3.6-27b"].num_vision_params or 0
    given: dict[str, Any] = {"engine_version": "0.27.1", "max_num_seqs": 32, "max_num_batched_tokens": 4096, "enforce_eager": True}
    whole, alone = (ask("Qwen/Qwen3.6-27B-FP8", **given, language_model_only=only) for only in (False, True))
    assert whole.per_gpu.weights_bytes - alone.per_gpu.weights_bytes == pytest.approx(2 * tower, rel=0.01)
    assert alone.per_gpu.weights_bytes / GIB == pytest.approx(27.67, rel=0.01)
    assert alone.per_gpu.kv_cache_bytes > whole.per_gpu.kv_cache_bytes
