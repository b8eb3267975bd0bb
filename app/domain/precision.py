"""Number formats of weights and KV cache, and what an element costs in each."""

from typing import Literal, NamedTuple, get_args

from app.domain.hardware import Gpu, NumberFormat

GgufKind = Literal[
    "q8_0", "q6_k", "q5_k_m", "q5_k_s", "q5_0", "q4_k_m", "q4_k_s", "q4_1", "q4_0", "iq4_nl", "iq4_xs",
    "q3_k_l", "q3_k_m", "q3_k_s", "iq3_m", "iq3_xxs", "q2_k", "iq2_m", "iq2_xxs",
]  # fmt: skip
"""Kinds of GGUF files that llama.cpp writes."""
WeightFormat = Literal[
    "fp32", "bf16", "fp16", "fp8", "int8", "int4", "awq", "gptq", "nvfp4", "mxfp4", "bnb-4bit",
    "q8_0", "q6_k", "q5_k_m", "q5_k_s", "q5_0", "q4_k_m", "q4_k_s", "q4_1", "q4_0", "iq4_nl", "iq4_xs",
    "q3_k_l", "q3_k_m", "q3_k_s", "iq3_m", "iq3_xxs", "q2_k", "iq2_m", "iq2_xxs",
]  # fmt: skip
KvFormat = Literal["bf16", "fp16", "fp8", "int8", "fp4", "q8_0"]
KvChoice = Literal["auto", "bf16", "fp16", "fp8", "int8", "fp4", "q8_0"]


class ElementCost(NamedTuple):
    """Bytes of one element, scales included, and where that is defined."""

    bytes_per_element: float
    source: str


_IEEE = "width of the number format"
_GROUPED = "4 bits + a 16-bit scale and a 4-bit zero point per 128 weights, https://arxiv.org/abs/2306.00978"
_NVFP4 = "4 bits + an 8-bit scale per 16 elements, https://developer.nvidia.com/blog/introducing-nvfp4-for-efficient-and-accurate-low-precision-inference/"
_MXFP4 = "4 bits + an 8-bit scale per 32 elements, https://www.opencompute.org/documents/ocp-microscaling-formats-mx-v1-0-spec-final-pdf"
_Q8_0 = "8 bits + a 16-bit scale per 32 elements, https://github.com/ggml-org/llama.cpp/blob/master/ggml/src/ggml-common.h"
_NF4 = "4 bits + an 8-bit scale per 64 elements and a 32-bit one per 256 of those, https://arxiv.org/abs/2305.14314"
_GGUF = "https://github.com/ggml-org/llama.cpp/blob/master/tools/quantize/README.md (bits per weight of Llama 3.1 8B)"
_GGUF_MIX = "https://github.com/ggml-org/llama.cpp/blob/master/src/llama-quant.cpp (the mix applied to Llama 3.1 8B)"

WEIGHTS: dict[WeightFormat, ElementCost] = {
    "fp32": ElementCost(4, _IEEE),
    "bf16": ElementCost(2, _IEEE),
    "fp16": ElementCost(2, _IEEE),
    "fp8": ElementCost(1, _IEEE),
    "int8": ElementCost(1, _IEEE),
    "int4": ElementCost(0.5, _IEEE),
    "awq": ElementCost((4 + 20 / 128) / 8, _GROUPED),
    "gptq": ElementCost((4 + 20 / 128) / 8, _GROUPED),
    "nvfp4": ElementCost((4 + 8 / 16) / 8, _NVFP4),
    "mxfp4": ElementCost((4 + 8 / 32) / 8, _MXFP4),
    "bnb-4bit": ElementCost((4 + 8 / 64 + 32 / 16384) / 8, _NF4),
    "q8_0": ElementCost(8.5008 / 8, _GGUF),
    "q6_k": ElementCost(6.5633 / 8, _GGUF),
    "q5_k_m": ElementCost(5.7036 / 8, _GGUF),
    "q5_k_s": ElementCost(5.5704 / 8, _GGUF),
    "q5_0": ElementCost(5.585 / 8, _GGUF_MIX),
    "q4_k_m": ElementCost(4.8944 / 8, _GGUF),
    "q4_k_s": ElementCost(4.6672 / 8, _GGUF),
    "q4_1": ElementCost(5.1031 / 8, _GGUF_MIX),
    "q4_0": ElementCost(4.6505 / 8, _GGUF_MIX),
    "iq4_nl": ElementCost(4.6818 / 8, _GGUF),
    "iq4_xs": ElementCost(4.4597 / 8, _GGUF),
    "q3_k_l": ElementCost(4.2979 / 8, _GGUF),
    "q3_k_m": ElementCost(3.996 / 8, _GGUF_MIX),
    "q3_k_s": ElementCost(3.6429 / 8, _GGUF),
    "iq3_m": ElementCost(3.7628 / 8, _GGUF),
    "iq3_xxs": ElementCost(3.2548 / 8, _GGUF),
    "q2_k": ElementCost(3.1593 / 8, _GGUF),
    "iq2_m": ElementCost(2.9294 / 8, _GGUF),
    "iq2_xxs": ElementCost(2.3824 / 8, _GGUF),
}
GGUF_KINDS: tuple[GgufKind, ...] = get_args(GgufKind)
_ON_LLAMA_CPP: tuple[WeightFormat, ...] = ("fp32", "bf16", "fp16", *GGUF_KINDS)
_ELSEWHERE: tuple[WeightFormat, ...] = tuple(weights for weights in WEIGHTS if weights not in GGUF_KINDS)
KV_CACHE: dict[KvFormat, ElementCost] = {
    "bf16": ElementCost(2, _IEEE),
    "fp16": ElementCost(2, _IEEE),
    "fp8": ElementCost(1, _IEEE),
    "int8": ElementCost(1, _IEEE),
    "fp4": ElementCost((4 + 8 / 16) / 8, _NVFP4),
    "q8_0": ElementCost((8 + 16 / 32) / 8, _Q8_0),
}

_NATIVE: dict[str, WeightFormat] = {"nvfp4": "nvfp4", "fp4": "mxfp4", "fp8": "fp8", "w8a8": "int8"}
_COMPUTE: dict[WeightFormat, NumberFormat] = {"fp32": "fp32", "fp16": "fp16", "fp8": "fp8", "int8": "int8", "nvfp4": "fp4", "mxfp4": "fp4"}


def native_format(quantization: str | None) -> WeightFormat | None:
    """The narrowest format in which the products of a published checkpoint run, from the text that describes it; None for 16 bits.

    >>> native_format("fp8 e4m3, 128x128 block scales"), native_format("int4 weight-only (group 32) routed experts, rest bf16")
    ('fp8', None)
    """
    text = quantization or ""
    for written, weights in _NATIVE.items():
        if written in text:
            return weights
    return None


def usual_formats(engine: str) -> tuple[WeightFormat, ...]:
    """The formats worth comparing on an engine: GGUF kinds on llama.cpp, the others elsewhere.

    >>> "q4_k_m" in usual_formats("llama.cpp"), "q4_k_m" in usual_formats("vllm")
    (True, False)
    """
    return _ON_LLAMA_CPP if engine == "llama.cpp" else _ELSEWHERE


def compute_format(weights: WeightFormat | None, gpu: Gpu) -> NumberFormat:
    """The format in which matrix products run: the weights' own where the accelerator computes in it, else 16 bits.

    4-bit integer weights are widened before the product on every engine; FP8 and FP4 weights are where the accelerator lacks the format.
    """
    sixteen: NumberFormat = "fp16" if gpu.supports is not None and not gpu.supports.bf16 else "bf16"
    wanted = _COMPUTE.get(weights or "bf16", sixteen)
    if gpu.supports is not None and ((wanted == "fp8" and not gpu.supports.fp8) or (wanted == "fp4" and not gpu.supports.fp4)):
        return sixteen
    return wanted


def product_format(bits: float, scheme: str, gpu: Gpu) -> NumberFormat:
    """The format in which engines multiply weights of so many bits, of a scheme as `weight_schemes` calls it.

    8 bits are FP8 unless the scheme says INT8; below 8 bits NVFP4 runs in FP4, MXFP4 with 8-bit activations where the accelerator has
    4-bit units (https://github.com/vllm-project/vllm/blob/main/vllm/model_executor/layers/fused_moe/oracle/mxfp4.py), all other 4-bit
    weights are widened to 16 bits (https://github.com/IST-DASLab/marlin).
    """
    if bits >= 16:
        return compute_format("fp32" if bits >= 32 else None, gpu)
    if bits >= 8:
        return compute_format("int8" if "int8" in scheme else "fp8", gpu)
    if "nvfp4" in scheme:
        return compute_format("nvfp4", gpu)
    four_bit_units = "mxfp4" in scheme and compute_format("mxfp4", gpu) == "fp4"
    return compute_format("fp8" if four_bit_units else None, gpu)
