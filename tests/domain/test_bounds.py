"""Bounds of speed must stay bounds: what engines can skip (cached, unselected, untouched, masked) is not counted."""

import pytest

from app.domain.bounds import SpeedBounds, attention_flops, causal_attention_flops, speed_bounds, weights_read_ratio
from app.domain.deployment import Deployment, Speculative
from app.domain.kv_cache import kv_cost
from app.domain.llm import Llm
from app.domain.memory import fit
from app.domain.precision import compute_format, native_format
from tests.domain.shapes import BUNDLED, CARD, H100, dense

SPARSE = [slug for slug, llm in BUNDLED.models.items() for group in llm.layer_groups or () if getattr(group.mixer, "indexer", None)]


def limits(slug: str, deployment: Deployment) -> SpeedBounds:
    llm = BUNDLED.models[slug]
    return speed_bounds(llm, H100, deployment, fit(llm, H100, deployment))


def test_masking_leaves_half_of_a_full_matrix_and_all_but_the_first_window() -> None:
    windowed = BUNDLED.models["mistral-7b-v0.1"]
    assert causal_attention_flops(dense(), 4000) == attention_flops(dense(), 4000) / 2
    assert causal_attention_flops(windowed, 4096) == attention_flops(windowed, 4096) / 2
    query = 32 * 2 * 32 * 256  # FLOP per token that a query sees
    assert causal_attention_flops(windowed, 40_960) == query * (40_960 * 4096 - 4096**2 / 2)
    chunked = BUNDLED.models["llama-4-scout"]
    whole = [group for group in chunked.layer_groups or () if group.mixer and not getattr(group.mixer, "window_tokens", None)]
    assert sum(group.num_layers for group in whole) == 12
    assert causal_attention_flops(chunked, 81_920) == 2 * 40 * 256 * 81_920 * (36 * 8192 + 12 * 81_920) / 2


def test_cached_tokens_are_not_computed_but_attended_to() -> None:
    llm = dense()
    assert causal_attention_flops(llm, 4000, 1000) == pytest.approx(2 * 80 * 64 * 256 * (4000**2 - 1000**2) / 2)
    bounds = speed_bounds(llm, CARD, Deployment(tp=4, weights="fp8"), fit(llm, CARD, Deployment(tp=4, weights="fp8")))
    assert bounds.prefill_s(4000, 1000) == pytest.approx((2 * 70e9 * 3000 + causal_attention_flops(llm, 4000, 1000)) / 4e15)


@pytest.mark.parametrize("slug", sorted(set(SPARSE)))
def test_sparse_attention_reads_and_multiplies_what_it_selects(slug: str) -> None:
    llm, short, long = BUNDLED.models[slug], 100, 1_000_000
    bounds = limits(slug, Deployment(tp=8))
    assert bounds.read_cost
    cost = kv_cost(llm, "bf16", tp=8)
    assert bounds.read_cost.sequence_bytes(short) == cost.sequence_bytes(short)
    assert bounds.read_cost.sequence_bytes(long) < cost.sequence_bytes(long)
    assert bounds.read_cost.bytes_per_token >= 0
    doubled = attention_flops(llm, 2 * long) / attention_flops(llm, long)
    assert 2 <= doubled < 4


def test_a_data_parallel_replica_reads_its_dense_part_whole() -> None:
    llm = BUNDLED.models["deepseek-v3"]
    experts = llm.num_expert_params
    one = weights_read_ratio(llm, 1)
    touched = experts - (1 - one) * llm.num_params
    held, read = llm.num_params - experts + experts / 8, llm.num_params - experts + touched / 8
    assert weights_read_ratio(llm, 1, 8) == pytest.approx(read / held)
    assert weights_read_ratio(llm, 1, 8) > one
    assert weights_read_ratio(llm, 10_000, 8) == pytest.approx(1, abs=1e-6)


def test_a_model_known_by_its_counts_reads_what_is_active_on_its_tokens() -> None:
    sparse = Llm(slug="m", num_params=10**12, num_active_params=32 * 10**9)
    assert weights_read_ratio(sparse, 1) == pytest.approx(0.032)
    assert weights_read_ratio(sparse, 2) == pytest.approx(0.032 * (2 - 0.032))
    assert weights_read_ratio(sparse, 10_000) == pytest.approx(1)
    found = fit(sparse, CARD, many := Deployment(tp=64, weights="fp8"))
    bounds = speed_bounds(sparse, CARD, many, found)
    tpot_s = bounds.tpot_s(40, 1000)
    assert bounds.largest_batch(tpot_s, 1000, 65536) == 40


def test_a_vision_tower_is_no_expert() -> None:
    llm = BUNDLED.models["gemma-3-27b"]
    assert llm.num_active_params < llm.num_params
    assert weights_read_ratio(llm, 1) == 1


def test_drafts_are_computed_whether_accepted_or_not() -> None:
    rejected = Deployment(tp=4, weights="fp8", speculative=Speculative(num_draft_tokens=3, acceptance_ratio=0))
    llm = dense()
    bounds = speed_bounds(llm, CARD, rejected, fit(llm, CARD, rejected))
    assert bounds.decode_step_s(100_000, 0) == pytest.approx(4 * 2 * 70e9 * 100_000 / 4e15)
    assert bounds.compute_tokens_per_s() == pytest.approx(4e15 / (4 * 2 * 70e9))


@pytest.mark.parametrize(
    ("slug", "gpu", "number_format"),
    [
        ("deepseek-v3", "h100-sxm-80gb", "fp8"),
        ("deepseek-v3", "a100-sxm-80gb", "bf16"),
        ("gpt-oss-120b", "b200-sxm-180gb", "fp4"),
        ("gpt-oss-120b", "h100-sxm-80gb", "bf16"),
        ("llama-3.1-70b", "h100-sxm-80gb", "bf16"),
        ("kimi-k2-thinking", "h100-sxm-80gb", "bf16"),
    ],
)
def test_a_quantised_checkpoint_runs_in_its_own_format(slug: str, gpu: str, number_format: str) -> None:
    assert compute_format(native_format(BUNDLED.models[slug].native.quantization), BUNDLED.gpus[gpu]) == number_format
