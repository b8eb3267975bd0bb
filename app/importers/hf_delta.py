"""Hybrids of attention and delta-rule linear attention: Qwen3-Next, Qwen3.5, Kimi Linear, GLM-5.3-Flash.

Layer definitions: https://github.com/huggingface/transformers/tree/main/src/transformers/models (qwen3_next, qwen3_5, kimi_linear,
glm5_next).
"""

from collections.abc import Mapping, Sequence

from app.domain.attention import LatentAttention
from app.domain.feed_forward import FeedForward
from app.domain.recurrent import GatedDeltaNet, KimiDeltaAttention
from app.importers.architecture import Architecture, FamilyReader, MtpLayers, layer, num_layers, read_mtp
from app.importers.config_fields import ConfigFields
from app.importers.hf_attention import (
    FULL,
    LINEAR,
    attention,
    every_nth_full,
    read_heads,
    read_indexer,
    read_latent_attention,
    read_layer_types,
)
from app.importers.hf_feed_forward import EXPERTS, dense_layers, gated, moe_of_experts, read_moe
from app.importers.hf_latent import has_indexer, hyper_connections
from app.importers.hf_moe import sparse_step_parts


def _gated_delta(fields: ConfigFields) -> Architecture:
    """Qwen3-Next and Qwen3.5: gated delta layers, every fourth layer gated attention."""
    hidden, length = fields.count("hidden_size"), num_layers(fields)
    fields.require("attention_bias", False)
    fields.require("attn_output_gate", True)
    fields.require("output_gate_type", "swish")
    fields.require("mtp_use_dedicated_embeddings", False)
    num_key_heads, num_value_heads = fields.count("linear_num_key_heads"), fields.count("linear_num_value_heads")
    if num_value_heads % num_key_heads:
        raise fields.wrong("linear_num_value_heads", f"a multiple of the {num_key_heads} key heads")
    linear = GatedDeltaNet(
        num_key_heads=num_key_heads,
        num_value_heads=num_value_heads,
        key_head_dim=fields.count("linear_key_head_dim"),
        value_head_dim=fields.count("linear_value_head_dim"),
        conv_kernel_size=fields.count("linear_conv_kernel_dim"),
    )
    full = attention(read_heads(fields, hidden), query_gate=True, qk_norm="per_head")
    default = every_nth_full(length, fields.count("full_attention_interval", default=4), others=LINEAR)
    kinds = read_layer_types(fields, length, default=default, allowed=(FULL, LINEAR))
    parts = _delta_parts(fields, length)
    layers = [layer(full if kind == FULL else linear, part, norms=2 * hidden) for kind, part in zip(kinds, parts, strict=True)]
    mtp = read_mtp(fields, layer(full, parts[-1], norms=2 * hidden), name="mtp_num_hidden_layers")
    return Architecture(hidden, fields.count("vocab_size"), layers, False, hidden, mtp=mtp)


def _delta_parts(fields: ConfigFields, length: int) -> Sequence[FeedForward]:
    if not any(fields.fields.get(name) for name in EXPERTS):
        fields.skip("mlp_only_layers", *EXPERTS)
        return [gated(fields)] * length
    moe = read_moe(
        fields,
        width=fields.count("moe_intermediate_size"),
        shared_width=fields.count("shared_expert_intermediate_size"),
        shared_gate=True,
    )
    return sparse_step_parts(fields, moe)


def _qwen3_next(fields: ConfigFields) -> Architecture:
    """As Qwen3.5; published files do not name the prediction layer that the checkpoints hold."""
    architecture = _gated_delta(fields)
    if "mtp_num_hidden_layers" in fields.fields:
        return architecture
    last_full = next((one for one in reversed(architecture.layers) if one.mixer and one.mixer.kind == "attention"), architecture.layers[-1])
    note = "The configuration does not name it, but checkpoints of this model type hold one multi-token prediction layer: counted as such."
    return architecture._replace(mtp=MtpLayers(1, [last_full]), notes=(note,))


def _delta_layers(fields: ConfigFields, length: int) -> tuple[KimiDeltaAttention, list[bool]]:
    """The delta layer, and which layers are one; files count layers from 1 in `linear_attn_config` or name every layer's kind."""
    section = fields.section("linear_attn_config")
    kinds = fields.texts("layer_types", allowed=(FULL, LINEAR, "indexed_attention"), length=length)
    if section is None:
        mixer = KimiDeltaAttention(
            num_heads=fields.count("linear_num_heads"),
            head_dim=fields.count("linear_head_dim"),
            conv_kernel_size=fields.count("linear_conv_kernel_dim"),
        )
    else:
        section.skip("gate_lower_bound", "safe_gate")
        fields.skip("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim")
        mixer = KimiDeltaAttention(
            num_heads=section.count("num_heads"),
            head_dim=section.count("head_dim"),
            conv_kernel_size=section.count("short_conv_kernel_size"),
            full_rank_gate=section.flag("use_full_rank_gate", default=False),
        )
        delta = section.counts("kda_layers", minimum=1, maximum=length)
        full = section.counts("full_attn_layers", minimum=1, maximum=length)
        if delta is not None and full is not None:
            if sorted((*delta, *full)) != list(range(1, length + 1)):
                raise section.wrong("kda_layers", f"together with full_attn_layers every layer from 1 to {length} once")
            return mixer, [index + 1 in frozenset(delta) for index in range(length)]
    if kinds is None:
        raise fields.missing("layer_types", "linear_attn_config")
    return mixer, [kind == LINEAR for kind in kinds]


def _hybrid(
    fields: ConfigFields,
    delta: KimiDeltaAttention,
    latent: LatentAttention,
    is_delta: Sequence[bool],
    moe: FeedForward,
    *,
    default_first: int,
    extra: int = 0,
) -> Architecture:
    """Delta layers and latent attention; the first layers are dense."""
    hidden, length = fields.count("hidden_size"), num_layers(fields)
    dense = dense_layers(fields, length, default_first=default_first)
    narrow = gated(fields)
    layers = [
        layer(delta if is_delta[index] else latent, narrow if dense[index] else moe, norms=2 * hidden, extra=extra)
        for index in range(length)
    ]
    return Architecture(hidden, fields.count("vocab_size"), layers, False, hidden)


def _kimi_linear(fields: ConfigFields) -> Architecture:
    fields.skip("attn_res_block_size", "mla_use_nope")
    fields.require("topk_method", "noaux_tc")
    fields.require("num_nextn_predict_layers", 0)
    delta, is_delta = _delta_layers(fields, num_layers(fields))
    latent = read_latent_attention(fields, output_gate=fields.flag("mla_use_output_gate", default=False))
    moe = moe_of_experts(fields, router_bias=True)
    width = fields.optional_count("routed_expert_hidden_size")
    normed = fields.flag("latent_moe_use_norm", default=False)
    moe = moe.model_copy(update={"latent_size": width, "num_latent_norm_params": (width or 0) if normed else 0})
    return _hybrid(fields, delta, latent, is_delta, moe, default_first=1)


def _glm5_next(fields: ConfigFields) -> Architecture:
    """Every fourth layer is latent attention with an indexer; two hyper-connections per layer."""
    length = num_layers(fields)
    if not all(has_indexer(fields, length)):
        raise fields.unsupported("indexer_types", "an indexer of its own in every layer")
    fields.skip("index_kpool_always_select_tail", "mlp_bias")
    fields.require("topk_method", "noaux_tc")
    delta, is_delta = _delta_layers(fields, length)
    latent = read_latent_attention(fields, indexer=read_indexer(fields))
    extra = hyper_connections(fields.count("hidden_size"), fields.count("hc_mult", maximum=64))
    moe = moe_of_experts(fields, router_bias=True)
    architecture = _hybrid(fields, delta, latent, is_delta, moe, default_first=3, extra=extra)
    return architecture._replace(mtp=read_mtp(fields, layer(latent, moe, norms=2 * architecture.hidden_size, extra=extra)))


FAMILIES: Mapping[str, FamilyReader] = {
    "qwen3_next": FamilyReader(_qwen3_next),
    "qwen3_5_text": FamilyReader(_gated_delta),
    "qwen3_5_moe_text": FamilyReader(_gated_delta),
    "kimi_linear": FamilyReader(_kimi_linear),
    "glm5_next_text": FamilyReader(_glm5_next),
}
