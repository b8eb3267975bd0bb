"""GGUF kinds of quantisation: the block layouts of ggml, and which tensors llama.cpp's mixes keep in more bits.

Layouts: https://github.com/ggml-org/llama.cpp/blob/master/ggml/src/ggml-common.h. Mixes:
https://github.com/ggml-org/llama.cpp/blob/master/src/llama-quant.cpp (llama_tensor_get_type_impl, tensor_type_fallback).
"""

from collections.abc import Mapping
from typing import NamedTuple

from app.domain.llm import LayerGroup, Llm
from app.domain.precision import GgufKind
from app.domain.tensors import TensorClass

BLOCK_BITS: Mapping[str, float] = {
    "F32": 32, "F16": 16, "Q8_0": 34 * 8 / 32, "Q6_K": 210 * 8 / 256, "Q5_K": 176 * 8 / 256, "Q5_1": 24 * 8 / 32, "Q5_0": 22 * 8 / 32,
    "Q4_K": 144 * 8 / 256, "Q4_1": 20 * 8 / 32, "Q4_0": 18 * 8 / 32, "IQ4_NL": 18 * 8 / 32, "IQ4_XS": 136 * 8 / 256,
    "Q3_K": 110 * 8 / 256, "IQ3_S": 110 * 8 / 256, "IQ3_XXS": 98 * 8 / 256, "Q2_K": 84 * 8 / 256, "IQ2_S": 82 * 8 / 256,
    "IQ2_XXS": 66 * 8 / 256,
}  # fmt: skip
"""Bits of one weight with its share of scales: bytes of a block x 8 / weights of a block."""
FALLBACKS: Mapping[str, str] = {
    "Q6_K": "Q8_0", "Q5_K": "Q5_1", "Q4_K": "Q5_0", "Q3_K": "Q4_0", "Q2_K": "Q4_0",
    "IQ4_XS": "IQ4_NL", "IQ3_S": "IQ4_NL", "IQ3_XXS": "IQ4_NL", "IQ2_S": "IQ4_NL", "IQ2_XXS": "IQ4_NL",
}  # fmt: skip
"""Types in blocks of 256 weights, and what rows that 256 does not divide get instead (16 bits where 32 does not either)."""
SUPER_BLOCK, BLOCK = 256, 32
EIGHT = 8
_LOW: Mapping[GgufKind, tuple[str, str]] = {"iq2_xxs": ("Q2_K", "Q2_K"), "iq2_m": ("IQ3_S", "IQ3_S"), "iq3_xxs": ("IQ3_S", "Q3_K")}
"""Kinds that raise the embedding: to what, and to what the first down projections."""
_BASE: Mapping[GgufKind, str] = {
    "q8_0": "Q8_0", "q6_k": "Q6_K", "q5_k_m": "Q5_K", "q5_k_s": "Q5_K", "q5_0": "Q5_0", "q4_k_m": "Q4_K", "q4_k_s": "Q4_K",
    "q4_1": "Q4_1", "q4_0": "Q4_0", "iq4_nl": "IQ4_NL", "iq4_xs": "IQ4_XS", "q3_k_l": "Q3_K", "q3_k_m": "Q3_K", "q3_k_s": "Q3_K",
    "iq3_m": "IQ3_S", "iq3_xxs": "IQ3_XXS", "q2_k": "Q2_K", "iq2_m": "IQ2_S", "iq2_xxs": "IQ2_XXS",
}  # fmt: skip
_OUTPUT: Mapping[GgufKind, str] = {
    "q2_k": "Q3_K", "q3_k_m": "Q4_K", "q3_k_l": "Q5_K", "iq3_m": "Q4_K", "iq3_xxs": "IQ3_S", "iq2_m": "IQ3_S",
}  # fmt: skip
_EIGHT_OUTPUT = ("q2_k", "iq3_xxs", "q3_k_s", "q3_k_m", "iq4_nl", "q4_k_s", "q4_k_m", "iq3_m", "iq4_xs", "iq2_m", "iq2_xxs")
_MANY_QUERIES = 4
"""Query heads per key/value head from which small kinds spend more on values."""
_SEVENTY_B_LAYERS = 80
"""Layers of the models that llama.cpp calls 70B."""


class _Shape(NamedTuple):
    """What the mixes ask of a model."""

    hidden: int
    layers: int
    many_queries: bool
    experts: int
    importance_matrix: bool

    @property
    def eight(self) -> bool:
        """Whether there are eight experts: attention is then small beside them, and gets more bits."""
        return self.experts == EIGHT


def gguf_bits(llm: Llm, kind: GgufKind, *, importance_matrix: bool = True) -> dict[TensorClass, float]:
    """Mean bits of a weight with its scales, by class of tensors, of a model in a GGUF kind [bits].

    bits(class) = sum over its tensors and layers of params x block bits / params. Norms, biases, routers and convolutions are in 32 bits.
    `importance_matrix` says whether one was used, as most publishers do: some kinds raise the first down projections without it.

    >>> gguf_bits(Llm(slug="m", num_params=1, num_active_params=1), "q6_k")["head"]
    6.5625
    """
    shape = _shape(llm, importance_matrix)
    base, hidden = _BASE[kind], shape.hidden
    bits: dict[TensorClass, float] = {"small": 32.0, "router": 32.0, "expert_bias": 32.0}
    head = "Q5_K" if kind in ("iq2_xxs", "iq2_m", "iq3_xxs") else base if base == "Q8_0" else "Q6_K"
    bits["head"] = _bits(head, hidden)
    bits["embedding"] = bits["head"] if llm.tie_word_embeddings else _bits(_LOW.get(kind, (base,))[0], hidden)
    if any(extra.num_params % (llm.vocab_size or extra.num_params) == 0 for extra in llm.extra_weights):
        bits["extra"] = bits["embedding"]  # further tables over the vocabulary
    sums: dict[TensorClass, tuple[float, int]] = {}
    for group in llm.layer_groups or ():
        for what, params, each in (*_mixer(kind, group, shape), *_feed_forward(kind, group, shape)):
            total, count = sums.get(what, (0.0, 0))
            sums[what] = total + group.num_layers * params * each, count + group.num_layers * params
    plain: dict[TensorClass, float] = dict.fromkeys(("attention", "recurrent", "dense", "shared", "experts"), _bits(base, hidden))
    return bits | plain | {what: total / count for what, (total, count) in sums.items() if count}


def _shape(llm: Llm, importance_matrix: bool) -> _Shape:
    groups = llm.layer_groups or ()
    heads = [(group.mixer.num_heads, group.mixer.num_kv_heads) for group in groups if group.mixer and group.mixer.kind == "attention"]
    parts = [part for group in groups for part in group.feed_forward if part.kind == "moe"]
    return _Shape(
        llm.hidden_size or SUPER_BLOCK,
        llm.num_layers,
        any(queries // kv >= _MANY_QUERIES for queries, kv in heads),
        max((part.num_experts for part in parts), default=0),
        importance_matrix,
    )


def _bits(kind: str, row: int) -> float:
    if kind in FALLBACKS and row % SUPER_BLOCK:
        kind = FALLBACKS[kind]
    return BLOCK_BITS[kind if row % BLOCK == 0 else "F16"]


def _more_bits(at: int, layers: int) -> bool:
    """The layers on which a mix spends more: first and last eighth, and every third between."""
    return at < layers // 8 or at >= 7 * layers // 8 or (at - layers // 8) % 3 == 2


def _mixer(kind: GgufKind, group: LayerGroup, shape: _Shape) -> list[tuple[TensorClass, int, float]]:
    """(class, parameters, bits) of the linear layers of a mixer: values and output are told apart, and what is fused with values."""
    mixer, hidden, base = group.mixer, shape.hidden, _bits(_BASE[kind], shape.hidden)
    if mixer is None:
        return []
    what: TensorClass = "attention" if mixer.kind in ("attention", "latent_attention", "compressed_attention") else "recurrent"
    params = sum(tensor.num_params for tensor in mixer.tensors(hidden) if tensor.kind == what)
    value = sum(_bits(_value(kind, at, shape), hidden) for at in range(shape.layers)) / shape.layers
    output = _bits(
        "Q5_K" if shape.eight and kind in _EIGHT_OUTPUT else _BASE[kind] if shape.eight else _OUTPUT.get(kind, _BASE[kind]), hidden
    )
    parts: list[tuple[int, float]] = []
    match mixer.kind:
        case "gated_delta_net":  # queries, keys and values are one matrix, which the mixes treat as values
            width = 2 * mixer.num_key_heads * mixer.key_head_dim + mixer.num_value_heads * mixer.value_head_dim
            parts = [(hidden * width, value)]
        case "latent_attention":
            parts = [(hidden * mixer.num_heads * mixer.v_head_dim, output)]
        case "attention":
            kept = 0 if mixer.shares_kv else mixer.num_kv_heads
            eighth = "Q4_K" if kind in ("iq2_xxs", "iq2_m") else "Q8_0"
            key = _bits(eighth if shape.eight else "IQ2_S" if kind == "iq3_xxs" else _BASE[kind], hidden)
            parts = [
                (0 if mixer.key_is_value else hidden * kept * mixer.value_head_dim, value),
                (hidden * kept * mixer.key_head_dim, key),
                (hidden * mixer.num_heads * mixer.value_head_dim, output),
            ]
            base = _bits("IQ2_S", hidden) if kind == "iq3_xxs" else base
    return [(what, params - sum(count for count, _ in parts), base), *((what, *part) for part in parts)]


def _value(kind: GgufKind, at: int, shape: _Shape) -> str:
    """The type of one layer's value projection."""
    found = base = _BASE[kind]
    many, layers = shape.many_queries, shape.layers
    match kind:
        case "iq2_xxs" | "iq2_m":
            return "Q4_K" if many or shape.experts >= _MANY_QUERIES else _LOW[kind][1]
        case "q2_k":
            found = "Q4_K" if many else "Q3_K"
        case "iq3_xxs":
            found = "Q4_K" if many else base
        case "iq3_m":
            found = "Q4_K"
        case "q3_k_m":
            found = "Q5_K" if at < 2 else "Q4_K"
        case "q3_k_l":
            found = "Q5_K"
        case "iq4_nl" | "iq4_xs":
            found = "Q5_K" if many else base
        case "q4_k_m" | "q5_k_m":
            found = "Q6_K" if _more_bits(at, layers) else base
        case "q4_k_s":
            found = "Q5_K" if at < 4 else base
    if layers == _SEVENTY_B_LAYERS and found in ("Q3_K", "Q4_K"):
        found = "Q5_K"
    return "Q8_0" if shape.eight else found


def _down(kind: GgufKind, at: int, shape: _Shape) -> str:
    """The type of one layer's down projection."""
    base, layers, matrix = _BASE[kind], shape.layers, shape.importance_matrix
    first = at < layers // 8
    match kind:
        case "q2_k":
            return "Q3_K"
        case "q3_k_m":
            return "Q5_K" if at < layers // 16 else "Q4_K"
        case "q3_k_l":
            return "Q5_K"
        case "q4_k_m" | "q5_k_m":
            return "Q6_K" if _more_bits(at, layers) else base
        case "q4_k_s":
            return "Q5_K" if first else base
        case "iq3_m":
            return "Q4_K" if first or (shape.eight and _more_bits(at, layers)) else base
        case "iq4_nl" | "iq4_xs":
            return "Q5_K" if first and not matrix else base
        case "q4_0" | "q5_0":
            return f"{base[:-1]}1" if first and matrix else base
        case "iq2_xxs" | "iq2_m":
            return _LOW[kind][1] if first else base
        case "iq3_xxs":
            return base if matrix else "Q4_K" if first else "Q3_K"
    return base


def _feed_forward(kind: GgufKind, group: LayerGroup, shape: _Shape) -> list[tuple[TensorClass, int, float]]:
    """(class, parameters, bits) of feed-forward parts: matrices that read the stream, and the one that writes it."""
    found: list[tuple[TensorClass, int, float]] = []
    for part in group.feed_forward:
        widths: dict[TensorClass, int] = {"dense": part.intermediate_size}
        if part.kind == "moe":
            widths = {"experts": part.intermediate_size, "shared": part.shared_intermediate_size}
        for what, width in widths.items():
            params = sum(tensor.num_params for tensor in part.tensors(shape.hidden) if tensor.kind == what)
            narrow = params // part.num_matrices
            down = sum(_bits(_down(kind, at, shape), width) for at in range(shape.layers)) / shape.layers
            found += [(what, params - narrow, _bits(_BASE[kind], shape.hidden)), (what, narrow, down)]
    return found
