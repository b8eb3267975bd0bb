"""Further mixtures of experts over grouped-query attention: OLMoE, Granite, DeepSeek's first, and what follows their layouts.

Layer definitions: https://github.com/huggingface/transformers/tree/main/src/transformers/models (one folder per model type); for
model types that only their repositories define, https://github.com/vllm-project/vllm/tree/main/vllm/model_executor/models.
"""

from collections.abc import Mapping

from app.importers.architecture import Architecture, FamilyReader, num_layers
from app.importers.config_fields import ConfigFields
from app.importers.hf_attention import FULL, SLIDING, attention, read_heads, read_layer_types, read_window
from app.importers.hf_feed_forward import dense_layers, gated, moe_of_experts, read_moe
from app.importers.hf_moe import choose, mtp_of, stack_of


def _olmoe(fields: ConfigFields) -> Architecture:
    bias, length = fields.flag("attention_bias", default=False), num_layers(fields)
    mixer = attention(read_heads(fields, fields.count("hidden_size")), qkv_bias=bias, output_bias=bias, qk_norm="per_width")
    moe = read_moe(fields, width=fields.count("intermediate_size"))
    return stack_of(fields, [mixer] * length, [moe] * length)


def _granitemoe(fields: ConfigFields) -> Architecture:
    bias, length = fields.flag("attention_bias", default=False), num_layers(fields)
    mixer = attention(read_heads(fields, fields.count("hidden_size")), qkv_bias=bias, output_bias=bias)
    shared = fields.count("shared_intermediate_size", default=0, minimum=0)
    moe = read_moe(fields, width=fields.count("intermediate_size"), shared_width=shared)
    return stack_of(fields, [mixer] * length, [moe] * length)


def _deepseek(fields: ConfigFields) -> Architecture:
    bias, length = fields.flag("attention_bias", default=False), num_layers(fields)
    fields.require("scoring_func", "softmax")
    mixer = attention(read_heads(fields, fields.count("hidden_size")), qkv_bias=bias, output_bias=bias)
    moe = moe_of_experts(fields, router_bias=False)
    return stack_of(fields, [mixer] * length, choose(dense_layers(fields, length), gated(fields), moe))


def _dots1(fields: ConfigFields) -> Architecture:
    bias, length = fields.flag("attention_bias", default=False), num_layers(fields)
    fields.require("topk_method", "noaux_tc")
    fields.skip("max_window_layers")
    window, kinds = read_window(fields), read_layer_types(fields, length, default=[FULL] * length)
    mixer = attention(read_heads(fields, fields.count("hidden_size")), qkv_bias=bias, output_bias=bias, qk_norm="per_head")
    mixers = [mixer.model_copy(update={"window_tokens": window if kind == SLIDING else None}) for kind in kinds]
    moe = moe_of_experts(fields, router_bias=True)
    return stack_of(fields, mixers, choose(dense_layers(fields, length), gated(fields), moe))


def _bailing(fields: ConfigFields) -> Architecture:
    """Ling and Ring: the second version has norms on queries and keys and a bias of the router."""
    length, bias = num_layers(fields), fields.flag("use_bias", default=False)
    fields.require("embedding_dropout", 0.0)
    fields.skip("norm_head", "norm_softmax", "multi_gate", "output_dropout", "max_window_layers", "moe_shared_expert_overlap")
    fields.skip("moe_router_enable_shared_expert", "use_sliding_window", "sliding_window", "mtp_loss_scaling_factor", "score_function")
    fields.skip("router_dtype", "use_rmsnorm", "using_split_qkv_in_self_attention")
    norm = fields.flag("use_qk_norm", default=False)
    heads = read_heads(fields, fields.count("hidden_size"))
    qkv_bias = fields.flag("use_qkv_bias", default=False)
    mixer = attention(heads, qkv_bias=qkv_bias, output_bias=bias, qk_norm="per_head" if norm else "none")
    width = fields.count("moe_intermediate_size")
    shared = fields.count("moe_shared_expert_intermediate_size", default=width)
    num_shared = fields.count("num_shared_experts", default=0, minimum=0)
    corrected = fields.flag("moe_router_enable_expert_bias", default=False)
    moe = read_moe(fields, width=width, shared_width=shared * num_shared, router_bias=corrected)
    dense = dense_layers(fields, length)
    mtp = mtp_of(fields, mixer, moe, name="num_nextn_predict_layers")
    return stack_of(fields, [mixer] * length, choose(dense, gated(fields), moe), mtp=mtp)


def _hunyuan_moe(fields: ConfigFields) -> Architecture:
    """Widths, shared experts and choices are stated per layer, and have to be the same in all of them."""
    length = num_layers(fields)
    for name in ("use_cla", "use_mla", "attention_bias", "mlp_bias"):
        fields.require(name, False)
    fields.require("use_qk_norm", True)
    fields.require("use_mixed_mlp_moe", True)
    fields.skip("add_classification_head", "class_num", "cla_share_factor", "capacity_factor", "group_limited_greedy", "kv_lora_rank")
    fields.skip("moe_drop_tokens", "moe_random_routing_dropped_token", "moe_layer_num_skipped", "num_media_embeds", "org_vocab_size")
    fields.skip("q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "use_rotary_pos_emb", "pool_type", "mask_init_id")
    fields.skip("im_start_id", "im_end_id", "im_newline_id", "text_start_id", "text_end_id", "video_start_id", "video_end_id")
    fields.skip("attention_head_dim", "anyres_pooling_size", "anyres_vit_max_image_size", "anyres_vit_two_views", "max_image_size")
    fields.skip("skip_cls_token", "vit_add_patchemb_bias", "vit_input_resolution", "vit_mapping_type", "vit_norm_type", "vit_patch")
    fields.skip("vit_path", "vit_remove_prenorm", "vit_token", "vit_type", "vit_used_rms_norm", "xattn_layers", "routed_scaling_factor")
    inner = fields.count("intermediate_size")
    width = _same(fields, "moe_intermediate_size", length, default=inner)
    shared = _same(fields, "num_shared_expert", length, default=1) * inner
    chosen = ConfigFields(
        dict(fields.fields) | {"moe_topk": _same(fields, "moe_topk", length), "num_experts": _same(fields, "num_experts", length)},
        fields.pointer,
    )
    mixer = attention(read_heads(fields, fields.count("hidden_size")), qk_norm="per_head")
    moe = read_moe(chosen, width=width, shared_width=shared)
    return stack_of(fields, [mixer] * length, [moe] * length, tied=True)


def _same(fields: ConfigFields, name: str, length: int, default: int | None = None) -> int:
    """A number that is stated once or for every layer."""
    _, value = fields.find(name)
    if not isinstance(value, list | tuple):
        return fields.count(name, default=default)
    values = set(fields.counts(name, minimum=1, lengths=(length,)) or ())
    if len(values) != 1:
        raise fields.unsupported(name, "one value for all layers")
    return values.pop()


FAMILIES: Mapping[str, FamilyReader] = {
    "olmoe": FamilyReader(_olmoe),
    "granitemoe": FamilyReader(_granitemoe),
    "granitemoeshared": FamilyReader(_granitemoe),
    "deepseek": FamilyReader(_deepseek),
    "dots1": FamilyReader(_dots1),
    "bailing_moe": FamilyReader(_bailing),
    "bailing_moe_v2": FamilyReader(_bailing),
    "hunyuan_v1_moe": FamilyReader(_hunyuan_moe),
    "hunyuan": FamilyReader(_hunyuan_moe),
}
