"""Weights as engines printed them ("Model loading took", "model weights take", "mem usage") against weights as loaded.

The cases are those of tests/accuracy/memory_cases.jsonl, which names the log of each. LATER are start-ups found in public text after
the rules were written, with those that disagree; of them only the GPTQ row changed a rule (no zero points).
"""

from typing import Any

import pytest

from app.domain.loaded_weights import loaded_weights_bytes_per_gpu
from app.domain.precision import WeightFormat
from tests.domain.shapes import BUNDLED, GIB

RECORDED: list[tuple[str, str, WeightFormat | None, dict[str, Any], float, float]] = [
    # case, model, format, layout, printed GiB, tolerance
    ("mc-001", "qwen3-30b-a3b-2507", None, {}, 56.9342, 0.0005),  # 30.532e9 x 2 + rotary table 262144 x 128 x 2
    ("mc-004", "qwen3-30b-a3b-2507", "fp8", {}, 29.08, 0.001),
    ("mc-009", "qwen3-32b", None, {"tp": 8}, 7.6871, 0.001),
    ("mc-010", "qwen3-235b-a22b", "fp8", {"tp": 8, "ep": 8}, 27.6656, 0.001),  # 4 key/value heads on 8 ranks are held twice
    ("mc-057", "llama-3.1-8b", None, {}, 14.9888, 0.0005),
    ("mc-030", "qwen2.5-14b", None, {"tp": 4}, 6.9461, 0.001),  # the allocator rounds up 1.25 MiB a layer
    ("mc-024", "qwen2.5-14b", None, {}, 27.57, 0.001),
    ("mc-085", "deepseek-r1-distill-qwen-14b", None, {"tp": 2}, 13.9476, 0.001),
    ("mc-031", "qwen2.5-14b", "awq", {}, 9.3795, 0.005),
    ("mc-059", "llama-3.1-70b", "int8", {}, 67.7229, 0.001),
    ("mc-069", "gpt-oss-120b", "mxfp4", {}, 65.9651, 0.003),  # experts of 2880 x 2880 are padded to 3072 x 2944
    ("mc-072", "gpt-oss-120b", "mxfp4", {"num_mxfp4_scale_copies": 2}, 64.38, 0.005),  # Triton on Hopper: no padding, scales kept twice
    ("mc-019", "gpt-oss-20b", "mxfp4", {}, 13.7193, 0.003),
    ("mc-153", "gemma-4-26b-a4b", None, {}, 48.5, 0.002),  # two rotary tables, of 256 and 512
    ("mc-050", "gemma-4-26b-a4b", "nvfp4", {}, 15.88, 0.015),
    ("mc-103", "qwen3.8-27b", "nvfp4", {"tp": 2}, 10.64, 0.03),
    ("mc-047", "qwen3.8-27b", "nvfp4", {"mtp": True}, 22.13, 0.009),
    ("mc-048", "qwen3.8-27b", "int4", {"mtp": True}, 18.5, 0.01),
    ("mc-049", "qwen3.6-35b-a3b", "nvfp4", {"mtp": True}, 23.45, 0.001),
    ("mc-034", "qwen3.5-27b", None, {"tp": 4}, 13.01, 0.001),  # rotary table of four times the length, for videos
    ("mc-035", "qwen3.5-9b", None, {"tp": 4}, 4.52, 0.003),
    ("mc-007", "qwen3-vl-30b-a3b", None, {"tp": 2, "max_num_batched_tokens": 8192}, 29.3115, 0.001),  # + three buffers of 8192 x 2048
    ("mc-066", "qwen3-30b-a3b-2507", None, {"engine": "sglang"}, 56.98, 0.0005),
    ("mc-115", "deepseek-r1", "fp8", {"dp": 8, "ep": 8, "redundant_experts": 32, "engine": "sglang"}, 105.59, 0.003),
    ("mc-116", "deepseek-r1", "fp8", {"tp": 8}, 79.41, 0.002),
    ("mc-067", "deepseek-r1", "gptq", {"tp": 16}, 21.21, 0.008),
    ("mc-119", "qwen2.5-7b", "int8", {"engine": "llama.cpp"}, 6.997, 0.0005),  # Q8_0; the embedding stays on the host
    ("mc-149", "qwen2.5-1.5b", None, {"engine": "sglang", "unified_memory": True}, 3.29, 0.01),
    ("mc-135", "llama-3.1-8b", "fp8", {"engine": "tensorrt-llm"}, 8.55, 0.004),
]
LATER: list[tuple[str, str, WeightFormat | None, dict[str, Any], float, float]] = [
    # engine and device of the log
    ("vLLM 0.15.1, TP 4", "glm-4.7", "nvfp4", {"tp": 4}, 47.11, 0.005),
    ("vLLM, GB10, nvidia's build", "gemma-4-26b-a4b", "nvfp4", {}, 15.76, 0.003),
    ("vLLM, RTX 5090", "qwen3.6-35b-a3b", "nvfp4", {}, 21.88, 0.002),
    ("vLLM, RTX 5070 Ti", "qwen3-vl-2b", None, {"max_num_batched_tokens": 2048}, 4.24, 0.001),
    ("vLLM, A100", "qwq-32b", "awq", {}, 18.1494, 0.001),
    ("vLLM, L40S", "qwen2.5-7b", "fp8", {}, 8.1426, 0.001),
    ("vLLM, L40S", "qwen2.5-7b", "gptq", {}, 5.1811, 0.002),
    ("vLLM 0.27.1", "qwen3-8b", "fp8", {}, 8.8, 0.001),
    ("vLLM, GB10", "qwen2.5-3b", "fp8", {}, 3.23, 0.002),
    ("vLLM, TP 4", "minimax-m2.5", None, {"tp": 4}, 53.75, 0.002),
    ("vLLM, latent attention", "glm-4.7-flash", None, {}, 55.87, 0.002),
    ("vLLM", "phi-4-mini", None, {}, 7.17, 0.002),
    ("SGLang, B200", "qwen3-8b", None, {"engine": "sglang"}, 15.28, 0.0005),
    ("vLLM 0.10, 31 images", "gemma-3-27b", None, {}, 51.7891, 0.012),
    ("vLLM, 4B", "qwen3-4b", None, {}, 7.6065, 0.008),
]
DISAGREE: list[tuple[str, str, WeightFormat | None, dict[str, Any], float, float]] = [
    # printed more than the range allows, for reasons that are not known
    ("SGLang, TP 8", "kimi-k2.5", None, {"tp": 8, "engine": "sglang"}, 73.58, 0.033),
    ("vLLM, TP 8", "deepseek-v4-flash", None, {"tp": 8}, 19.79, 0.048),
    ("vLLM, TP 2", "deepseek-v4-flash", None, {"tp": 2}, 75.62, 0.037),
    ("vLLM 0.28.0", "qwen2.5-1.5b", None, {}, 2.98, 0.034),
    ("vLLM, Turing, QAT build", "gemma-4-e2b", "int4", {}, 8.02, 0.11),
]


@pytest.mark.parametrize(("log", "slug", "weights", "layout", "printed_gib", "tolerance"), RECORDED + LATER)
def test_recorded_starts(log: str, slug: str, weights: WeightFormat | None, layout: Any, printed_gib: float, tolerance: float) -> None:
    loaded = loaded_weights_bytes_per_gpu(BUNDLED.models[slug], weights, **{"tp": 1, **layout})
    assert loaded.bytes_per_gpu / GIB == pytest.approx(printed_gib, rel=tolerance)
    assert loaded.low_bytes_per_gpu <= printed_gib * GIB <= loaded.high_bytes_per_gpu


@pytest.mark.parametrize(("log", "slug", "weights", "layout", "printed_gib", "tolerance"), DISAGREE)
def test_starts_that_disagree_do_so_by_no_more(
    log: str, slug: str, weights: WeightFormat | None, layout: Any, printed_gib: float, tolerance: float
) -> None:
    loaded = loaded_weights_bytes_per_gpu(BUNDLED.models[slug], weights, **{"tp": 1, **layout})
    assert printed_gib * (1 - tolerance) < loaded.bytes_per_gpu / GIB < printed_gib


@pytest.mark.parametrize(
    ("slug", "weights", "printed_gib"),
    [
        ("gemma-4-31b", "nvfp4", 31.04),  # nvidia's build leaves attention in 16 bits
        ("qwen3.8-27b", "nvfp4", 2 * 12.02),
        ("gemma-4-26b-a4b", "int4", 16.63),
        ("gpt-oss-120b", "mxfp4", 64.38),  # Triton kernels pad less than Marlin's
    ],
)
def test_the_range_holds_other_builds_of_the_same_name(slug: str, weights: WeightFormat, printed_gib: float) -> None:
    loaded = loaded_weights_bytes_per_gpu(BUNDLED.models[slug], weights, tp=1)
    assert loaded.low_bytes_per_gpu / GIB < printed_gib < loaded.high_bytes_per_gpu / GIB
    assert loaded.high_bytes_per_gpu < 1.65 * loaded.low_bytes_per_gpu
