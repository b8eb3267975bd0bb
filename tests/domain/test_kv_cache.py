"""KV cache: published models with their arithmetic, and what must hold for every model."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.domain.errors import MissingFigure
from app.domain.kv_cache import attention_kind, kv_cost, kv_elements_by_heads, resolve_kv_format
from app.domain.llm import Llm
from app.domain.memory import valid_tps
from app.domain.precision import KV_CACHE
from tests.domain.shapes import BUNDLED, contexts, dense, models, tps

PUBLISHED = {
    "llama-3.1-8b: 32 layers x 8 heads x (128 + 128) x 2": ("llama-3.1-8b", "gqa", 32 * 8 * 256 * 2),
    "llama-2-7b: 32 x 32 x (128 + 128) x 2": ("llama-2-7b", "mha", 32 * 32 * 256 * 2),
    "falcon-7b: 32 x 1 x (64 + 64) x 2": ("falcon-7b", "mqa", 32 * 128 * 2),
    "deepseek-v3: 61 x (512 + 64) x 2": ("deepseek-v3", "mla", 61 * 576 * 2),
    "qwen3-next-80b-a3b: 12 x 2 x (256 + 256) x 2": ("qwen3-next-80b-a3b", "hybrid gated_delta_net + gqa", 12 * 2 * 512 * 2),
    "mistral-7b-v0.1: all 32 layers windowed": ("mistral-7b-v0.1", "gqa", 0),
    "gpt-oss-120b: 18 of 36 layers without window x 8 x 128 x 2": ("gpt-oss-120b", "gqa", 18 * 8 * 128 * 2),
}


@pytest.mark.parametrize(("slug", "kind", "bytes_per_token"), PUBLISHED.values(), ids=PUBLISHED.keys())
def test_published_models(slug: str, kind: str, bytes_per_token: int) -> None:
    llm = BUNDLED.models[slug]
    assert attention_kind(llm) == kind
    assert kv_cost(llm, "bf16").bytes_per_token == bytes_per_token


def test_a_window_stops_growing() -> None:
    cost = kv_cost(BUNDLED.models["mistral-7b-v0.1"], "bf16")
    assert cost.sequence_bytes(4096) == 4096 * 131072
    assert cost.sequence_bytes(100_000) == cost.sequence_bytes(4096)


def test_a_recurrent_state_does_not_grow() -> None:
    cost = kv_cost(BUNDLED.models["qwen3-next-80b-a3b"], "bf16")
    state = 36 * (32 * 128 * 128 * 4 + (2 * 16 * 128 + 32 * 128) * 3 * 2)
    assert cost.state_bytes == state
    assert cost.sequence_bytes(1000) == state + 1000 * 24576


def test_kv_heads_are_divided_and_then_replicated() -> None:
    assert [kv_cost(dense(), "bf16", tp=tp).bytes_per_token for tp in (1, 2, 8, 16)] == [327680, 163840, 40960, 40960]


def test_a_latent_is_on_every_rank() -> None:
    llm = BUNDLED.models["deepseek-v3"]
    assert kv_cost(llm, "bf16", tp=8) == kv_cost(llm, "bf16")


def test_a_pipeline_stage_holds_its_layers() -> None:
    assert kv_cost(dense(layers=81), "bf16", pp=2).bytes_per_token == pytest.approx(41 * 4096)


def test_precision_of_the_cache() -> None:
    assert resolve_kv_format(dense(), "auto") == "bf16"
    assert resolve_kv_format(BUNDLED.models["llama-2-7b"], "auto") == "fp16"
    assert resolve_kv_format(dense(), "fp8") == "fp8"
    assert {name: kv_cost(dense(), name).bytes_per_token for name in ("fp8", "fp4", "q8_0")} == {
        "fp8": 163840,
        "fp4": 92160,
        "q8_0": 174080,
    }


def test_stated_caches_answer_only_for_what_is_stated() -> None:
    stated, scalable = BUNDLED.models["deepseek-v4.1-flash"], BUNDLED.models["qwen3.8-flash-next"]
    assert resolve_kv_format(stated, "auto") == "fp4"
    assert kv_cost(stated, "fp4").bytes_per_token == 890
    with pytest.raises(MissingFigure, match="only stated for fp4"):
        kv_cost(stated, "bf16")
    assert (kv_cost(scalable, "bf16").bytes_per_token, kv_cost(scalable, "fp8").bytes_per_token) == (24576, 12288)


def test_unknown_layers_are_refused_not_guessed() -> None:
    with pytest.raises(MissingFigure, match="layers of bare are not known"):
        kv_cost(Llm(slug="bare", num_params=1, num_active_params=1), "bf16")


@given(models, contexts, contexts, tps)
def test_longer_never_holds_less(llm: Llm, one: int, other: int, tp: int) -> None:
    cost = kv_cost(llm, "bf16", tp=tp)
    assert cost.sequence_bytes(min(one, other)) <= cost.sequence_bytes(max(one, other))


@given(models, contexts, st.sampled_from(sorted(KV_CACHE)), tps)
def test_ranks_together_hold_at_least_the_whole(llm: Llm, tokens: int, kv_format: str, tp: int) -> None:
    assume(tp in valid_tps(llm))
    whole = kv_cost(llm, kv_format).sequence_bytes(tokens)  # type: ignore[arg-type]
    rank = kv_cost(llm, kv_format, tp=tp).sequence_bytes(tokens)  # type: ignore[arg-type]
    assert rank <= whole <= rank * tp


@given(models)
def test_fewer_heads_hold_less(llm: Llm) -> None:
    own, mha, mqa = kv_elements_by_heads(llm)
    assert mqa <= mha
    assert own <= mha or attention_kind(llm).endswith("mla")
