"""Which tensors a quantisation touches, and what a weight costs in each class of tensors."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from app.domain.gguf import gguf_bits
from app.domain.llm import Llm
from app.domain.precision import WEIGHTS, GgufKind, WeightFormat
from app.domain.tensors import TensorClass


class Cost(NamedTuple):
    """Bits of one weight and of its share of scales and zero points, and the widths to which a kernel pads stacks of experts."""

    bits: float
    scale_bits: float = 0
    outer_multiple: int = 1
    inner_multiple: int = 1

    @property
    def bits_with_scales(self) -> float:
        """Bits of one weight with its share of scales and zero points."""
        return self.bits + self.scale_bits


class Scheme(NamedTuple):
    """One way of quantising a checkpoint: costs by class of tensors; what is not named stays in 16 bits."""

    name: str
    costs: Mapping[TensorClass, Cost]
    source: str
    leanest: Mapping[TensorClass, Cost] | None = None
    """Costs of the leanest checkpoints of this name, where they differ: what they quantise further."""
    fullest: Mapping[TensorClass, Cost] | None = None
    """Costs of the fullest checkpoints of this name, where they differ: what they leave in more bits."""

    def cost(self, kind: TensorClass) -> Cost:
        """What a weight of this class costs."""
        return self.costs.get(kind, SIXTEEN)


SIXTEEN = Cost(16)
FP32 = Cost(32)
FP8_BLOCK = Cost(8, 32 / (128 * 128))
INT8_CHANNEL = Cost(8, 32 / 4096)
GROUP_128_ZERO = Cost(4, (16 + 4) / 128)
GROUP_128 = Cost(4, 16 / 128)
GROUP_32 = Cost(4, 16 / 32)
NVFP4 = Cost(4, 8 / 16)
GROUP_32_ZERO = Cost(4, (16 + 4) / 32)
MXFP4 = Cost(4, 8 / 32, outer_multiple=256, inner_multiple=128)
MXFP4_LEAN = Cost(3.65, 8 / 32)
"""What padded stacks come to where the kernel pads only one side or neither (up to 9 % less for experts of 2880 x 2880)."""
MXFP4_SCALE_BITS = 8 / 32
NF4 = Cost(4, 32 / 64)
"""Scales that are stored in 8 bits are widened to 32 when the checkpoint is loaded."""

Costs = Mapping[TensorClass, Cost]
FEED_FORWARD: tuple[TensorClass, ...] = ("dense", "shared", "experts")
LINEARS: tuple[TensorClass, ...] = ("attention", "recurrent", *FEED_FORWARD)
ALL: tuple[TensorClass, ...] = (*LINEARS, "embedding", "head", "expert_bias", "router", "small", "extra", "vision")

_VLLM = "https://github.com/vllm-project/vllm/tree/main/vllm/model_executor/layers/quantization"
_COMPRESSOR = "https://github.com/vllm-project/llm-compressor/tree/main/examples (what recipes ignore)"
_MXFP4 = "https://github.com/vllm-project/vllm/blob/main/vllm/model_executor/layers/fused_moe/oracle/mxfp4.py (padding by kernel)"
_MIXED = "https://huggingface.co/nvidia/Qwen3.6-27B-NVFP4 (feed-forward in NVFP4, attention and linear attention in FP8)"
_ALL_NVFP4 = (
    "https://huggingface.co/nvidia/Qwen3-32B-NVFP4 (all linear layers; https://huggingface.co/nvidia/Gemma-4-31B-IT-NVFP4: not attention)"
)
_GGUF = "https://github.com/ggml-org/llama.cpp/blob/master/src/llama-quant.cpp"
_AS_GGUF: Mapping[WeightFormat, GgufKind] = {"int8": "q8_0", "int4": "q4_k_m"}
"""What other names mean on llama.cpp."""
_NF4 = "https://github.com/vllm-project/vllm/blob/main/vllm/model_executor/model_loader/bitsandbytes_loader.py"
_EXPERTS = "routed experts"
_EXCEPTION = re.compile(r"([a-z0-9_ -]+): ([a-z_, ]+)")
"""A format, and the classes that are in it."""
_BY_NAME: Mapping[str, Cost] = {"fp8": FP8_BLOCK, "int8": INT8_CHANNEL, "nvfp4": NVFP4, "bnb-4bit": NF4, "w4a16_nvfp4": NVFP4}
_TRITON_MXFP4 = "https://github.com/vllm-project/vllm/blob/v0.14.1/vllm/model_executor/layers/quantization/mxfp4.py (Triton: scales kept)"
STORED_SIZE = "metadata.total_size"
"""How the basis of a size begins that was read from the index of the checkpoint."""
LEAST_BITS = 2
"""Fewer bits per weight are not served by the engines here."""


def scheme_of(llm: Llm, weights: WeightFormat | None, engine: str) -> Scheme | None:
    """The scheme of a format for this model, of its published checkpoint for None; None when the catalog's words are not understood.

    A format that is the published checkpoint's own means that checkpoint.
    """
    native = native_scheme(llm)
    if weights is None:
        return _of_stored_size(llm, native)
    if native is not None and native.name.split()[0] == weights:
        return native
    return _of_format(llm, _AS_GGUF.get(weights, weights) if engine == "llama.cpp" else weights)


def without_padding(scheme: Scheme, scale_copies: int) -> Scheme:
    """The scheme where Triton kernels take MXFP4 experts: no padding, and as many copies of the scales as stay after they are rearranged.

    Another scheme is returned as it is.
    """
    if scheme.costs.get("experts") != MXFP4:
        return scheme
    cost = Cost(MXFP4.bits, scale_copies * MXFP4_SCALE_BITS)
    return scheme._replace(costs={**scheme.costs, "experts": cost}, source=_TRITON_MXFP4, leanest=None)


def _of_format(llm: Llm, weights: WeightFormat) -> Scheme:
    experts = bool(llm.num_expert_params)
    match weights:
        case "fp32":
            return Scheme("fp32", dict.fromkeys(ALL, FP32), "width of the number format")
        case "bf16" | "fp16":
            return Scheme(weights, {}, "width of the number format")
        case "fp8":
            fullest: Costs = dict.fromkeys(("attention", *FEED_FORWARD), FP8_BLOCK)
            return Scheme("fp8", dict.fromkeys(LINEARS, FP8_BLOCK), _COMPRESSOR, fullest=fullest)
        case "int8":
            return Scheme("int8", dict.fromkeys(LINEARS, INT8_CHANNEL), _VLLM)
        case "awq" | "gptq":
            fullest = dict.fromkeys(("attention", *FEED_FORWARD), GROUP_32_ZERO)
            cost = GROUP_128 if weights == "gptq" else GROUP_128_ZERO  # symmetric GPTQ loads without zero points
            return Scheme(weights, dict.fromkeys(LINEARS, cost), _VLLM, fullest=fullest)
        case "bnb-4bit":
            return Scheme("bitsandbytes nf4", dict.fromkeys(LINEARS, NF4), _NF4)
        case "int4":
            leanest: Costs = dict.fromkeys(LINEARS, GROUP_128)
            fullest = {"experts": GROUP_32} if experts else dict.fromkeys(("attention", *FEED_FORWARD), GROUP_32_ZERO)
            return Scheme("int4", dict.fromkeys(LINEARS, _int4_cost(llm)), _COMPRESSOR, leanest, fullest)
        case "nvfp4" if experts:
            narrow: Costs = dict.fromkeys(("attention", *FEED_FORWARD), NVFP4)
            return Scheme("nvfp4", narrow, _COMPRESSOR, dict.fromkeys(LINEARS, NVFP4), {"experts": NVFP4})
        case "nvfp4" if any(group.mixer and group.mixer.kind == "gated_delta_net" for group in llm.layer_groups or ()):
            mixed: Costs = {"attention": FP8_BLOCK, "recurrent": FP8_BLOCK, **dict.fromkeys(FEED_FORWARD, NVFP4)}
            fullest = dict.fromkeys(("attention", *FEED_FORWARD), NVFP4)
            return Scheme("nvfp4 feed-forward, fp8 mixers", mixed, _MIXED, dict.fromkeys(LINEARS, NVFP4), fullest)
        case "nvfp4":
            return Scheme("nvfp4", dict.fromkeys(LINEARS, NVFP4), _ALL_NVFP4, fullest=dict.fromkeys(FEED_FORWARD, NVFP4))
        case "mxfp4" if experts:
            return Scheme("mxfp4 routed experts", {"experts": MXFP4}, _MXFP4, {"experts": MXFP4_LEAN})
        case "mxfp4":
            return Scheme(
                "mxfp4", dict.fromkeys(LINEARS, Cost(MXFP4.bits, MXFP4.scale_bits)), _VLLM, fullest=dict.fromkeys(FEED_FORWARD, NVFP4)
            )
        case kind:
            return _gguf(llm, kind)


def _of_stored_size(llm: Llm, scheme: Scheme | None) -> Scheme | None:
    """The scheme with the bits that its quantised tensors must have when the index of the checkpoint says how large all of it is.

    bits = (8 x stored bytes - 16 x parameters of the other tensors and prediction layers) / quantised parameters; left alone where
    that is no plausible number of bits, as for an index of other weights.
    """
    size = llm.native.weights_bytes
    if size is None or not str(llm.native.weights_basis).startswith(STORED_SIZE) or (scheme is not None and not scheme.costs):
        return scheme
    counts = llm.num_params_by_class()
    quantised = {kind for kind in scheme.costs if kind in counts} if scheme is not None else {kind for kind in LINEARS if kind in counts}
    total = sum(counts[kind] for kind in quantised)
    others = sum(count for kind, count in counts.items() if kind not in quantised) + (llm.num_mtp_params or 0)
    bits = (8 * size - SIXTEEN.bits * others) / total if total else 0
    if not LEAST_BITS <= bits < SIXTEEN.bits:
        return scheme
    cost = Cost(int(bits), bits - int(bits))
    name = scheme.name if scheme is not None else llm.native.quantization or "checkpoint"
    return Scheme(name, dict.fromkeys(quantised, cost), llm.native.weights_basis or STORED_SIZE)


def _int4_cost(llm: Llm) -> Cost:
    """Groups of 128 where they divide the width of every expert, else of 32, as recipes for narrow experts choose."""
    widths = [part.intermediate_size for group in llm.layer_groups or () for part in group.feed_forward if part.kind == "moe"]
    return GROUP_128 if all(width % 128 == 0 for width in widths) else GROUP_32


def _gguf(llm: Llm, kind: GgufKind) -> Scheme:
    """A GGUF kind as published, with an importance matrix; without one some kinds are larger."""
    costs, others = (
        {what: Cost(int(bits), bits - int(bits)) for what, bits in gguf_bits(llm, kind, importance_matrix=matrix).items()}
        for matrix in (True, False)
    )
    return Scheme(kind, costs, _GGUF, fullest=others)


def native_scheme(llm: Llm) -> Scheme | None:
    """The scheme that the catalog's, the importer's or a checkpoint name's words describe; None when they are not understood.

    No words are 16 bits; a bare format is that format as published most often; after a semicolon stand classes in another format.
    """
    words = llm.native.quantization
    if words is None:
        dtype = llm.native.dtype or "bfloat16"
        return _of_format(llm, "fp32" if dtype == "float32" else "fp16" if dtype == "float16" else "bf16")
    general, *exceptions = words.casefold().split("; ")
    scheme = _of_format(llm, general) if general in WEIGHTS else _described(llm, general)
    others = [match for each in exceptions if (match := _EXCEPTION.fullmatch(each))]
    if scheme is None and not others:
        return None
    costs = dict(scheme.costs) if scheme is not None else {}
    for match in others:
        for kind in match[2].split(", "):
            if kind not in ALL:
                continue
            costs.pop(kind, None)
            if match[1] in _BY_NAME:
                costs[kind] = _BY_NAME[match[1]]
    if scheme is None:
        return Scheme(general.split()[0], costs, _source(llm))
    return scheme._replace(costs=costs) if others else scheme


def _source(llm: Llm) -> str:
    return llm.native.weights_basis or llm.slug


def _described(llm: Llm, text: str) -> Scheme | None:
    """The scheme of the words before exceptions."""
    source = _source(llm)
    group = re.search(r"group (\d+)", text)
    if "fp4" in str(llm.native.quantization).casefold() and text.startswith("fp8"):
        return Scheme("fp8 with mxfp4 experts", dict.fromkeys(LINEARS, FP8_BLOCK) | {"experts": Cost(4, 8 / 32)}, source)
    only_experts = _EXPERTS in text or "moe experts" in text
    where: tuple[TensorClass, ...] = ("experts",) if only_experts else LINEARS
    scope = f" {_EXPERTS}" if only_experts else ""
    for name in ("mxfp4", "nvfp4", "fp4", "fp8", "awq", "gptq", "bnb-4bit", "int4", "int8"):
        if name not in text:
            continue
        if name == "fp4":
            name = "nvfp4"
        if name in _BY_NAME:
            cost = _BY_NAME[name]
        elif name == "mxfp4":
            cost = MXFP4 if only_experts else Cost(MXFP4.bits, MXFP4.scale_bits)
        else:
            zeros = 4 if name == "awq" else 0
            cost = Cost(4, (16 + zeros) / (int(group[1]) if group else 128))
        if "fbgemm" in text:
            where = ("dense", "experts")
        return Scheme(name + scope, dict.fromkeys(where, cost), source, {"experts": MXFP4_LEAN} if cost is MXFP4 else None)
    return None
