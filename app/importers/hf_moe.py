"""Mixtures of experts over grouped-query attention.

Layer definitions: https://github.com/huggingface/transformers/tree/main/src/transformers/models (one folder per model type).
"""

from collections.abc import Mapping, Sequence

from app.domain.feed_forward import FeedForward
from app.domain.llm import Mixer
from app.importers.architecture import Architecture, FamilyReader, MtpLayers, layer, num_layers, read_mtp
from app.importers.config_fields import ConfigFields
from app.importers.hf_attention import (
    FULL,
    SLIDING,
    attention,
    read_heads,
    read_layer_types,
    read_window,
)
from app.importers.hf_dense import qwen_layer_types
from app.importers.hf_feed_forward import dense_layers, gated, moe_of_experts, read_moe


def stack_of(
    fields: ConfigFields, mixers: Sequence[Mixer], parts: Sequence[FeedForward], *, tied: bool = False, mtp: MtpLayers | None = None
) -> Architecture:
    """Layers with two norms each, and one norm at the end."""
    hidden = fields.count("hidden_size")
    layers = [layer(mixer, part, norms=2 * hidden) for mixer, part in zip(mixers, parts, strict=True)]
    return Architecture(hidden, fields.count("vocab_size"), layers, tied, hidden, mtp=mtp)


def mtp_of(fields: ConfigFields, mixer: Mixer, part: FeedForward, *, name: str, num_tables: int = 0, default: int = 0) -> MtpLayers | None:
    """Prediction modules of one layer with two norms."""
    block = layer(mixer, part, norms=2 * fields.count("hidden_size"))
    return read_mtp(fields, block, name=name, num_tables=num_tables, default=default)


def choose(dense: Sequence[bool], narrow: FeedForward | None, moe: FeedForward) -> list[FeedForward]:
    """The feed-forward part of each layer."""
    return [narrow if is_dense and narrow else moe for is_dense in dense]


def _mixtral(fields: ConfigFields) -> Architecture:
    heads = read_heads(fields, fields.count("hidden_size"))
    mixer = attention(heads, window=read_window(fields))
    moe = read_moe(fields, width=fields.count("intermediate_size"))
    return stack_of(fields, [mixer] * num_layers(fields), [moe] * num_layers(fields))


def sparse_step_parts(fields: ConfigFields, moe: FeedForward) -> list[FeedForward]:
    """Qwen's rule: every `decoder_sparse_step`-th layer is a mixture, but for those in `mlp_only_layers`."""
    length = num_layers(fields)
    step = fields.count("decoder_sparse_step", default=1)
    only = frozenset(fields.counts("mlp_only_layers", maximum=length - 1) or ())
    dense = [index in only or (index + 1) % step != 0 for index in range(length)]
    narrow = gated(fields) if any(dense) else None
    fields.skip("intermediate_size")
    return choose(dense, narrow, moe)


def _qwen2_moe(fields: ConfigFields) -> Architecture:
    length = num_layers(fields)
    bias = fields.flag("qkv_bias", default=True)
    kinds, window = qwen_layer_types(fields, length)
    heads = read_heads(fields, fields.count("hidden_size"))
    moe = read_moe(
        fields,
        width=fields.count("moe_intermediate_size"),
        shared_width=fields.count("shared_expert_intermediate_size"),
        shared_gate=True,
    )
    mixers = [attention(heads, window=window if kind == SLIDING else None, qkv_bias=bias) for kind in kinds]
    return stack_of(fields, mixers, sparse_step_parts(fields, moe))


def _qwen3_moe(fields: ConfigFields) -> Architecture:
    length = num_layers(fields)
    bias = fields.flag("attention_bias", "qkv_bias", default=False)
    fields.require("shared_expert_intermediate_size", 0)
    fields.require("use_qk_norm", True)
    kinds, window = qwen_layer_types(fields, length)
    heads = read_heads(fields, fields.count("hidden_size"))
    moe = read_moe(fields, width=fields.count("moe_intermediate_size"))
    mixers = [
        attention(heads, window=window if kind == SLIDING else None, qkv_bias=bias, output_bias=bias, qk_norm="per_head") for kind in kinds
    ]
    return stack_of(fields, mixers, sparse_step_parts(fields, moe))


def _glm4_moe(fields: ConfigFields) -> Architecture:
    heads = read_heads(fields, fields.count("hidden_size"))
    norm = fields.flag("use_qk_norm", default=False)
    mixer = attention(heads, qkv_bias=fields.flag("attention_bias", default=False), qk_norm="per_head" if norm else "none")
    moe = moe_of_experts(fields, router_bias=True)
    dense = dense_layers(fields, num_layers(fields), default_first=1)
    mtp = mtp_of(fields, mixer, moe, name="num_nextn_predict_layers", num_tables=2)
    return stack_of(fields, [mixer] * num_layers(fields), choose(dense, gated(fields), moe), mtp=mtp)


def _solar_open(fields: ConfigFields) -> Architecture:
    heads = read_heads(fields, fields.count("hidden_size"))
    fields.require("attention_bias", False)
    fields.require("use_qk_norm", False)
    fields.require("first_k_dense_replace", 0)
    fields.skip("intermediate_size")
    moe = moe_of_experts(fields, router_bias=False)
    return stack_of(fields, [attention(heads)] * num_layers(fields), [moe] * num_layers(fields))


def _hy_v3(fields: ConfigFields) -> Architecture:
    heads = read_heads(fields, fields.count("hidden_size"))
    fields.require("attention_bias", False)
    fields.require("mlp_bias", False)
    fields.require("use_qk_norm", True)
    fields.require("qk_norm", True)
    mixer = attention(heads, qk_norm="per_head")
    bias = fields.flag("moe_router_enable_expert_bias", default=True)
    moe = moe_of_experts(fields, "moe_intermediate_size", "expert_hidden_dim", router_bias=bias)
    dense = dense_layers(fields, num_layers(fields), default_first=1)
    mtp = mtp_of(fields, mixer, moe, name="num_nextn_predict_layers")
    return stack_of(fields, [mixer] * num_layers(fields), choose(dense, gated(fields), moe), mtp=mtp)


def _ernie4_5_moe(fields: ConfigFields) -> Architecture:
    length = num_layers(fields)
    fields.require("use_bias", False)
    fields.require("moe_use_aux_free", True)
    heads = read_heads(fields, fields.count("hidden_size"))
    moe = moe_of_experts(fields, router_bias=True)
    first = fields.count("moe_layer_start_index", default=1, minimum=0)
    last = fields.count("moe_layer_end_index", default=-1, minimum=-1) % length
    period = fields.count("moe_layer_interval", default=1)
    dense = [not ((index + 1) % period == 0 and first <= index <= last) for index in range(length)]
    fields.skip("moe_capacity", "moe_gate")
    return stack_of(fields, [attention(heads)] * length, choose(dense, gated(fields), moe), tied=True)


def _minimax_m2(fields: ConfigFields) -> Architecture:
    length = num_layers(fields)
    heads = read_heads(fields, fields.count("hidden_size"))
    fields.require("use_qk_norm", True)
    fields.require("qk_norm_type", "per_layer")
    fields.require("shared_intermediate_size", 0)
    fields.require("attention_bias", False)
    fields.require("sliding_window")
    kinds = fields.counts("attn_type_list", minimum=1, maximum=1, lengths=(length,))
    if kinds is None:
        read_layer_types(fields, length, default=(), allowed=(FULL,))
    fields.skip("use_mtp", "mtp_transformer_layers", "num_mtp_modules", "mlp_intermediate_size", "shared_moe_mode")
    moe = read_moe(fields, width=fields.count("intermediate_size"), router_bias=fields.flag("use_routing_bias", default=True))
    note = ("Prediction modules (num_mtp_modules) are not in the published checkpoints of this model type and are not counted.",)
    architecture = stack_of(fields, [attention(heads, qk_norm="per_width")] * length, [moe] * length)
    return architecture._replace(notes=note if "num_mtp_modules" in fields.fields else ())


FAMILIES: Mapping[str, FamilyReader] = {
    "mixtral": FamilyReader(_mixtral),
    "qwen2_moe": FamilyReader(_qwen2_moe),
    "qwen3_moe": FamilyReader(_qwen3_moe),
    "qwen3_vl_moe_text": FamilyReader(_qwen3_moe),
    "qwen3_omni_moe_text": FamilyReader(_qwen3_moe),
    "glm4_moe": FamilyReader(_glm4_moe),
    "glm4v_moe_text": FamilyReader(_glm4_moe),
    "solar_open": FamilyReader(_solar_open),
    "hy_v3": FamilyReader(_hy_v3),
    "ernie4_5_moe": FamilyReader(_ernie4_5_moe),
    "minimax_m2": FamilyReader(_minimax_m2),
}
