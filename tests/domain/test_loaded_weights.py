"""Weights as loaded: native checkpoints, and what parallelism does to each class of tensors."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.attention import Attention
from app.domain.feed_forward import DenseFeedForward, MoeFeedForward
from app.domain.llm import LayerGroup, Llm, NativeWeights
from app.domain.loaded_weights import LoadedWeights, allocated_bytes, loaded_weights_bytes_per_gpu
from app.domain.precision import WeightFormat
from app.domain.weight_schemes import native_scheme, scheme_of
from app.domain.weights import weights_bytes_per_gpu
from tests.domain.shapes import BUNDLED, dense

MIB = 2**20
WITH_GROUPS = sorted(slug for slug, model in BUNDLED.models.items() if model.layer_groups is not None)
QUANTISED = sorted(slug for slug in WITH_GROUPS if BUNDLED.models[slug].native.quantization)


def load(slug: str, weights: WeightFormat | None = None, *, tp: int = 1, **layout: int | str | bool) -> LoadedWeights:
    return loaded_weights_bytes_per_gpu(BUNDLED.models[slug], weights, tp=tp, **layout)  # type: ignore[arg-type]


def part(loaded: LoadedWeights, what: str) -> int:
    return dict(loaded.parts).get(what, 0)


@pytest.mark.parametrize("slug", QUANTISED)
def test_native_checkpoints_have_their_recorded_size(slug: str) -> None:
    """By class of tensors as by the record; gpt-oss is wider in memory than on disk, as kernels pad its experts."""
    model = BUNDLED.models[slug]
    scheme = native_scheme(model)
    assert scheme is not None
    assert model.native.weights_bytes is not None
    stored = sum(count * scheme.cost(kind).bits_with_scales / 8 for kind, count in model.num_params_by_class().items())
    assert stored == pytest.approx(model.native.weights_bytes, rel=0.001)
    loaded = load(slug, engine="generic").bytes_per_gpu
    assert (1.06 if slug.startswith("gpt-oss") else 0.999) < loaded / stored < (1.09 if slug.startswith("gpt-oss") else 1.001)


@given(slug=st.sampled_from(WITH_GROUPS), tp=st.sampled_from([1, 2, 4, 8]), pp=st.integers(1, 4), dp=st.sampled_from([1, 2]))
def test_parts_sum_to_the_whole_and_no_rank_is_short(slug: str, tp: int, pp: int, dp: int) -> None:
    loaded, model = load(slug, "bf16", tp=tp, pp=pp, dp=dp), BUNDLED.models[slug]
    assert sum(size for _, size in loaded.parts) == loaded.bytes_per_gpu == max(loaded.stage_bytes)
    assert len(loaded.stage_bytes) == pp
    assert sum(loaded.stage_bytes) * tp * dp >= 2 * model.num_params
    assert loaded.low_bytes_per_gpu <= loaded.bytes_per_gpu <= loaded.high_bytes_per_gpu


@given(slug=st.sampled_from(WITH_GROUPS), weights=st.sampled_from(["bf16", "fp8", "int8", "awq", "nvfp4"]))
def test_more_ranks_never_hold_more_each(slug: str, weights: WeightFormat) -> None:
    sizes = [load(slug, weights, tp=tp).bytes_per_gpu for tp in (1, 2, 4, 8)]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(
    ("mebibytes", "allocated"),
    [(1, 1), (9.5, 9.5), (10, 10), (33.75, 34), (67.5, 68), (135, 136), (12.5, 12.5), (12.75, 12.75), (13.0, 14)],
)
def test_the_allocator_rounds_up_what_it_cannot_give_to_others(mebibytes: float, allocated: float) -> None:
    assert allocated_bytes(int(mebibytes * MIB)) == allocated * MIB


def small_model(**changes: object) -> Llm:
    attention = Attention(num_heads=8, num_kv_heads=2, key_head_dim=16, value_head_dim=16)
    groups = (
        LayerGroup(num_layers=1, mixer=attention, feed_forward=(DenseFeedForward(intermediate_size=512),), num_norm_params=256),
        LayerGroup(
            num_layers=4,
            mixer=attention,
            feed_forward=(MoeFeedForward(num_experts=8, num_experts_per_token=2, intermediate_size=64),),
            num_norm_params=256,
        ),
    )
    shape = Llm(slug="m", num_params=10**9, num_active_params=1, hidden_size=128, vocab_size=1000, layer_groups=groups)
    shape = shape.model_copy(update=changes)
    return shape.model_copy(update={"num_params": shape.num_language_params()})


def test_vocabulary_rows_are_padded_before_they_are_divided() -> None:
    loaded = loaded_weights_bytes_per_gpu(small_model(), "bf16", tp=2)
    assert part(loaded, "embedding") == part(loaded, "head") == 1024 * 128 * 2 // 2


def test_norms_and_routers_are_on_every_rank_and_stay_in_16_bits() -> None:
    for tp in (1, 4):
        loaded = loaded_weights_bytes_per_gpu(small_model(), "fp8", tp=tp)
        assert (part(loaded, "router"), part(loaded, "small")) == (4 * 8 * 128 * 2, 5 * 256 * 2)


def test_experts_are_divided_by_all_ranks_and_whole_with_expert_parallelism() -> None:
    model = small_model()
    whole = part(loaded_weights_bytes_per_gpu(model, "bf16", tp=1), "experts")
    assert whole == 4 * 8 * 3 * 128 * 64 * 2
    for layout in ({"tp": 4}, {"tp": 2, "dp": 2}, {"tp": 2, "dp": 2, "ep": 4}):
        assert part(loaded_weights_bytes_per_gpu(model, "bf16", **layout), "experts") == whole // 4  # type: ignore[arg-type]
    redundant = loaded_weights_bytes_per_gpu(model, "bf16", tp=1, dp=4, ep=4, redundant_experts=4)
    assert part(redundant, "experts") == whole // 8 * 3


def test_key_and_value_projections_are_held_twice_below_one_head_per_rank() -> None:
    query_and_output, kv = 2 * 128 * 8 * 16, 2 * 128 * 2 * 16
    for tp, kv_share in ((1, 1), (2, 2), (4, 2)):
        loaded = loaded_weights_bytes_per_gpu(small_model(), "bf16", tp=tp)
        assert part(loaded, "attention") == 5 * 2 * (query_and_output // tp + kv // kv_share)


def test_stages_hold_embedding_first_and_head_last_and_the_leading_dense_layer_first() -> None:
    untied = loaded_weights_bytes_per_gpu(small_model(), "bf16", tp=1, pp=2)
    one = loaded_weights_bytes_per_gpu(small_model(), "bf16", tp=1)
    assert sum(untied.stage_bytes) == one.bytes_per_gpu
    moe_layer = (part(one, "experts") + part(one, "router")) // 4
    layer = part(one, "attention") // 5 + 256 * 2
    # five layers over two stages: three and two (get_pp_indices), the dense one in the first
    first = part(one, "embedding") + part(one, "dense") + 2 * moe_layer + 3 * layer
    last = part(one, "head") + 2 * moe_layer + 2 * layer + 128 * 2 * small_model().num_final_norm_params
    assert untied.stage_bytes == (first, last)


def test_a_tied_table_is_on_both_ends_of_a_pipeline_only() -> None:
    model = small_model(tie_word_embeddings=True)
    one = loaded_weights_bytes_per_gpu(model, "bf16", tp=1)
    two = loaded_weights_bytes_per_gpu(model, "bf16", tp=1, pp=2)
    assert part(one, "head") == 0
    assert sum(two.stage_bytes) - one.bytes_per_gpu == part(one, "embedding")


def test_llama_cpp_keeps_the_embedding_on_the_host_and_a_head_on_the_last_card() -> None:
    loaded = loaded_weights_bytes_per_gpu(small_model(tie_word_embeddings=True), "int8", tp=1, engine="llama.cpp")
    assert part(loaded, "embedding") == 0
    assert part(loaded, "head") == 1024 * 128 * 17 // 16


def test_rotary_tables_are_one_per_width() -> None:
    assert part(load("gemma-4-26b-a4b"), "rotary") == 262144 * (256 + 512) * 2
    assert part(load("gemma-4-26b-a4b", engine="sglang"), "rotary") == 262144 * (256 + 512) * 4
    assert part(load("gemma-4-26b-a4b", engine="llama.cpp"), "rotary") == 0
    assert part(load("gemma-3-27b"), "rotary") == 2 * 131072 * 128 * 2
    assert part(load("qwen3.5-27b"), "rotary") == 4 * 262144 * (256 // 4) * 2
    assert part(load("deepseek-r1"), "rotary") == 163840 * 64 * 2


def test_folded_up_projections_come_beside_quantised_ones_only() -> None:
    elements = 61 * 128 * (128 + 128) * 512
    assert part(load("deepseek-r1", tp=8), "folded_latent") == 2 * elements // 8
    assert part(load("deepseek-r1", "bf16", tp=8), "folded_latent") == 0


def test_prediction_layers_and_drafts_are_loaded_when_asked() -> None:
    model = BUNDLED.models["qwen3.8-27b"]
    assert part(load("qwen3.8-27b", "int4", mtp=True), "mtp") == 2 * (model.num_mtp_params or 0)
    assert part(load("qwen3.8-27b", "fp8", mtp=True), "mtp") == math.ceil((model.num_mtp_params or 0) * (8 + 32 / 2**14) / 8)
    draft = BUNDLED.models["qwen3-8b"]
    both = loaded_weights_bytes_per_gpu(BUNDLED.models["qwen3-32b"], None, tp=2, draft=draft)
    assert part(both, "draft") == loaded_weights_bytes_per_gpu(draft, None, tp=2).bytes_per_gpu


def test_a_model_without_known_layers_is_divided() -> None:
    loaded = loaded_weights_bytes_per_gpu(dense(params=70 * 10**9), "fp8", tp=4)
    assert loaded.bytes_per_gpu == weights_bytes_per_gpu(dense(), 70 * 10**9, tp=4)
    assert loaded.parts == ()


@pytest.mark.parametrize(("weights", "ratio"), [(None, 1.03), ("bf16", 1.03), ("fp8", 1.2), ("awq", 1.6)])
def test_a_divided_size_may_be_more_the_fewer_bits_it_has(weights: WeightFormat | None, ratio: float) -> None:
    loaded = loaded_weights_bytes_per_gpu(dense(), weights, tp=1)
    assert loaded.high_bytes_per_gpu == math.ceil(loaded.bytes_per_gpu * ratio)
    assert loaded.low_bytes_per_gpu == math.floor(loaded.bytes_per_gpu * 0.97)


@pytest.mark.parametrize(
    ("words", "name", "kind", "bits"),
    [
        ("awq (int4, group 64)", "awq", "dense", 4 + 20 / 64),
        ("gptq (int4, group 128)", "gptq", "attention", 4 + 16 / 128),
        ("nvfp4 (modelopt)", "nvfp4", "experts", 4.5),
        ("int4 (group 32, routed experts, compressed-tensors)", "int4 routed experts", "experts", 4.5),
        ("int4 (group 32, routed experts, compressed-tensors)", "int4 routed experts", "attention", 16),
        ("mxfp4 (MoE experts)", "mxfp4 routed experts", "experts", 4.25),
        ("fp8 e4m3, 128x128 block scales; routed experts fp4", "fp8 with mxfp4 experts", "shared", 8 + 32 / 2**14),
        ("fp8 (per channel, fbgemm)", "fp8", "attention", 16),
        ("fp8 (per channel, fbgemm)", "fp8", "dense", 8 + 32 / 2**14),
    ],
)
def test_words_of_the_importer_are_understood(words: str, name: str, kind: str, bits: float) -> None:
    scheme = native_scheme(small_model(native=NativeWeights(quantization=words)))
    assert scheme is not None
    cost = scheme.cost(kind)  # type: ignore[arg-type]
    assert (scheme.name, cost.bits_with_scales) == (name, bits)


def test_words_that_are_not_understood_divide_the_recorded_size() -> None:
    native = NativeWeights(quantization="quark", weights_bytes=10**6, weights_basis="arithmetic")
    assert native_scheme(small_model(native=native)) is None
    assert loaded_weights_bytes_per_gpu(small_model(native=native), None, tp=2).bytes_per_gpu == 500_000


@pytest.mark.parametrize("words", ["quark", "nvfp4 (modelopt)"])
def test_the_stored_size_sets_the_bits_of_the_quantised_tensors(words: str) -> None:
    counts = small_model().num_params_by_class()
    linears = sum(counts[kind] for kind in ("attention", "dense", "experts"))
    stored = 2 * (sum(counts.values()) - linears) + linears * 5 // 8
    native = NativeWeights(quantization=words, weights_bytes=stored, weights_basis="metadata.total_size of the index")
    scheme = scheme_of(small_model(native=native), None, "vllm")
    assert scheme is not None
    assert scheme.cost("experts").bits_with_scales == pytest.approx(5, rel=1e-5)


def test_a_format_that_is_the_checkpoints_own_means_the_checkpoint() -> None:
    assert load("kimi-k2-thinking", "int4", tp=8).bytes_per_gpu == load("kimi-k2-thinking", tp=8).bytes_per_gpu
    assert load("kimi-k2-thinking", "awq", tp=8).bytes_per_gpu < load("kimi-k2-thinking", tp=8).bytes_per_gpu


def test_per_layer_embeddings_are_divided_as_tables() -> None:
    assert part(load("gemma-4-e4b", tp=1), "extra") > 2 * 262144 * 42 * 256
    assert part(load("gemma-4-e4b", tp=2), "extra") == pytest.approx(part(load("gemma-4-e4b", tp=1), "extra") / 2, rel=0.001)


def test_int4_groups_are_narrower_where_128_does_not_divide_an_expert() -> None:
    wide, narrow = scheme_of(BUNDLED.models["qwen3-30b-a3b"], "int4", "vllm"), scheme_of(BUNDLED.models["gemma-4-26b-a4b"], "int4", "vllm")
    assert wide is not None
    assert narrow is not None
    assert (wide.cost("experts").scale_bits, narrow.cost("experts").scale_bits) == (0.125, 0.5)
