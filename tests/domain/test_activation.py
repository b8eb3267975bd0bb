"""The peak of the profile run against printed figures, and which term decides."""

import pytest

from app.domain.activation import activation_peak
from app.domain.llm import LayerGroup, Llm
from app.domain.recurrent import GatedDeltaNet, KimiDeltaAttention
from tests.domain.engines import engine
from tests.domain.shapes import BUNDLED, GIB


def peak_gib(model: str, version: str, *, sequences: int, batched: int, length: int = 8192, tp: int = 1) -> float:
    found = activation_peak(
        BUNDLED.models[model],
        engine("vllm", version).activation,
        max_num_seqs=sequences,
        max_num_batched_tokens=batched,
        max_model_len_tokens=length,
        tp=tp,
    )
    return found.total_bytes / GIB


@pytest.mark.parametrize(
    ("model", "version", "sequences", "batched", "printed_gib", "tolerance_gib"),
    [
        ("qwen3-30b-a3b-2507", "0.10.2", 1024, 8192, 5.58, 0.05),  # 38.5 B x 1,024 x 151,936
        ("qwen3-coder-30b-a3b", "0.26.1", 16, 2048, 0.23, 0.05),
        ("qwen2.5-14b", "0.7.3", 256, 8192, 1.49, 0.15),
        ("llama-3-8b", "0.6.5", 256, 8192, 1.26, 0.1),
        ("llama-3.1-8b", "0.6.4", 256, 20000, 2.07, 0.1),  # a whole prompt in one step
        ("llama-3.1-8b", "0.6.4", 256, 29000, 2.99, 0.1),
    ],
)
def test_printed_peaks(model: str, version: str, sequences: int, batched: int, printed_gib: float, tolerance_gib: float) -> None:
    assert peak_gib(model, version, sequences=sequences, batched=batched) == pytest.approx(printed_gib, abs=tolerance_gib)


def test_tensor_parallelism_does_not_divide_the_sampler() -> None:
    alone, eight = (peak_gib("qwen3-32b", "0.10.0", sequences=1024, batched=2048, tp=tp) for tp in (1, 8))
    assert eight == alone


def test_fewer_sequences_leave_the_forward_pass() -> None:
    llm, model = BUNDLED.models["llama-3.1-8b"], engine("vllm", "0.19.0").activation
    peaks = [
        activation_peak(llm, model, max_num_seqs=seqs, max_num_batched_tokens=8192, max_model_len_tokens=8192, tp=1) for seqs in (1024, 8)
    ]
    assert [peak.largest for peak in peaks] == ["sampler", "forward pass"]
    assert peaks[1].forward_bytes == 6 * 8192 * 14336 + 4 * 8192 * 4096


def test_at_most_as_many_rows_are_sampled_as_tokens_are_batched() -> None:
    assert peak_gib("llama-3.1-8b", "0.10.0", sequences=1024, batched=256) == peak_gib("llama-3.1-8b", "0.10.0", sequences=256, batched=256)


def test_the_vision_encoder_scales_with_the_length_up_to_its_largest_item() -> None:
    assert peak_gib("qwen3.5-27b", "0.19.0", sequences=1, batched=2048, length=16384) == pytest.approx(2.7, abs=0.05)
    assert peak_gib("qwen3.5-27b", "0.19.0", sequences=1, batched=2048, length=8192) == pytest.approx(1.37, abs=0.05)
    assert peak_gib("qwen3.5-27b", "0.19.0", sequences=1, batched=2048, length=262144, tp=4) == pytest.approx(1.07, abs=0.05)


def test_a_model_of_unknown_shape_takes_the_usual_figure() -> None:
    rules = engine("vllm", "0.19.0").activation
    found = activation_peak(
        Llm(slug="m", num_params=1, num_active_params=1), rules, max_num_seqs=1, max_num_batched_tokens=1, max_model_len_tokens=1, tp=1
    )
    assert not found.is_known
    assert found.total_bytes == rules.unknown.typical_bytes


@pytest.mark.parametrize(
    ("version", "batched", "left_gib"),
    [
        pytest.param("0.20.0", 8192, 1.05, id="printed"),  # mc-135
        pytest.param("0.20.0", 4608, 79.18 - 8.55 - 54.73 / 0.8 - 1.61, id="left-over"),  # mc-137, less the rest outside torch
    ],
)
def test_tensorrt_llm_profiles_its_batched_tokens(version: str, batched: int, left_gib: float) -> None:
    """Starts of Llama-3.1-8B, https://github.com/waynehacking8/trtllm-triton-serving: what is left grows with the tokens alone."""
    found = activation_peak(
        BUNDLED.models["llama-3.1-8b"],
        engine("tensorrt-llm", version).activation,
        max_num_seqs=4096,
        max_num_batched_tokens=batched,
        max_model_len_tokens=257,
        tp=1,
    )
    assert found.total_bytes / GIB == pytest.approx(left_gib, abs=0.03)


GATED = GatedDeltaNet(num_key_heads=2, num_value_heads=4, key_head_dim=8, value_head_dim=16, conv_kernel_size=4)
PER_CHANNEL = KimiDeltaAttention(num_heads=4, head_dim=16, conv_kernel_size=4)


@pytest.mark.parametrize(
    ("mixer", "per_token"), [(GATED, 2 * (2 * 2 * 8 + 4 * 4 * 16)), (PER_CHANNEL, 14 * 4 * 16)], ids=["gate-per-head", "gate-per-channel"]
)
def test_what_a_delta_rule_layer_holds_in_the_profile_run(mixer: GatedDeltaNet | KimiDeltaAttention, per_token: int) -> None:
    layers = (LayerGroup(num_layers=1, mixer=mixer, feed_forward=()),)
    llm = Llm(slug="m", num_params=10**9, num_active_params=10**9, hidden_size=64, vocab_size=64, layer_groups=layers)
    rules = engine("vllm", "0.19.0").activation
    found = activation_peak(llm, rules, max_num_seqs=1, max_num_batched_tokens=4096, max_model_len_tokens=8192, tp=2)
    assert found.forward_bytes == 4096 * (per_token // 2 + 4 * 64)


@pytest.mark.parametrize(
    ("ranks", "tokens", "inner"),
    [({"tp": 2}, 8192, 1280), ({"tp": 2, "whole_experts": True}, 8192, 2560), ({"tp": 1, "dp": 8, "whole_experts": True}, 65_536, 2560)],
    ids=["tensor-parallel", "expert-parallel", "data-and-expert-parallel"],
)
def test_experts_work_on_the_tokens_of_every_data_parallel_rank(ranks: dict[str, int], tokens: int, inner: int) -> None:
    """Eight experts per token of width 6,144 x 2,560 (Qwen3-Coder-480B): 8 x (6,144 + inner) x 2 bytes, all tokens on every rank.

    Two recorded refusals on eight ranks had 3.8 GiB less for the KV cache than without this: https://github.com/vllm-project/recipes/pull/12.
    """
    llm, rules = BUNDLED.models["qwen3-coder-480b-a35b"], engine("vllm", "0.10.1").activation
    found = activation_peak(llm, rules, max_num_seqs=1024, max_num_batched_tokens=8192, max_model_len_tokens=8192, **ranks)  # type: ignore[arg-type]
    assert found.forward_bytes == tokens * 8 * (6144 + inner) * 2 + 4 * 8192 * 6144
