"""Further dense decoders after Llama: other norms, two-matrix feed-forward parts, other field names.

Layer definitions: https://github.com/huggingface/transformers/tree/main/src/transformers/models (one folder per model type); for
model types that only their repositories define, https://github.com/vllm-project/vllm/tree/main/vllm/model_executor/models.
"""

from collections.abc import Mapping

from app.domain.feed_forward import DenseFeedForward, FeedForward
from app.importers.architecture import Architecture, FamilyReader, layer, num_layers
from app.importers.config_fields import ConfigFields
from app.importers.hf_attention import (
    FULL,
    SLIDING,
    Heads,
    QkNorm,
    attention,
    every_nth_full,
    read_heads,
    read_layer_types,
    read_window,
)
from app.importers.hf_feed_forward import gated


def _equal_layers(
    fields: ConfigFields,
    part: FeedForward,
    *,
    heads: Heads | None = None,
    vocab: str = "vocab_size",
    norm: int = 1,
    norms_per_layer: int = 2,
    qkv_bias: bool = False,
    output_bias: bool = False,
    qk_norm: QkNorm = "none",
    tied: bool = False,
    extra: int = 0,
) -> Architecture:
    """Layers of one kind; a norm has `norm` vectors of the hidden width (0 without parameters, 2 with a bias)."""
    hidden = fields.count("hidden_size")
    mixer = attention(heads or read_heads(fields, hidden), qkv_bias=qkv_bias, output_bias=output_bias, qk_norm=qk_norm)
    one = layer(mixer, part, norms=norms_per_layer * norm * hidden, extra=extra)
    return Architecture(hidden, fields.count(vocab), [one] * num_layers(fields), tied, norm * hidden)


def _ungated(fields: ConfigFields) -> DenseFeedForward:
    bias = fields.flag("mlp_bias", default=False)
    return DenseFeedForward(intermediate_size=fields.count("intermediate_size"), num_matrices=2, bias=bias)


def _nemotron(fields: ConfigFields) -> Architecture:
    bias = fields.flag("attention_bias", default=False)
    return _equal_layers(fields, _ungated(fields), norm=2, qkv_bias=bias, output_bias=bias)


def _arcee(fields: ConfigFields) -> Architecture:
    bias = fields.flag("attention_bias", default=False)
    return _equal_layers(fields, _ungated(fields), qkv_bias=bias, output_bias=bias)


def _apertus(fields: ConfigFields) -> Architecture:
    """The activation has two parameters of its own."""
    fields.require("attention_bias", False)
    return _equal_layers(fields, _ungated(fields), qk_norm="per_head", extra=2)


def _olmo(fields: ConfigFields) -> Architecture:
    bias = fields.flag("attention_bias", default=False)
    return _equal_layers(fields, gated(fields), norm=0, qkv_bias=bias, output_bias=bias)


def _stablelm(fields: ConfigFields) -> Architecture:
    fields.require("qk_layernorm", False)
    parallel = fields.flag("use_parallel_residual", default=False)
    bias = fields.flag("use_qkv_bias", default=False)
    return _equal_layers(fields, gated(fields), norm=2, norms_per_layer=1 if parallel else 2, qkv_bias=bias)


def _hunyuan(fields: ConfigFields) -> Architecture:
    fields.require("use_qk_norm", True)
    fields.require("use_cla", False)
    fields.require("num_experts", 1)
    fields.skip("add_classification_head", "cla_share_factor", "class_num", "dense_list", "moe_topk", "norm_type", "org_vocab_size")
    fields.skip("attention_head_dim", "im_start_id", "im_end_id", "im_newline_id", "mask_init_id", "pool_type", "text_start_id")
    fields.skip("text_end_id", "video_start_id", "video_end_id", "use_mixed_mlp_moe", "use_rotary_pos_emb", "q_lora_rank", "kv_lora_rank")
    fields.skip("moe_intermediate_size", "num_shared_expert", "moe_drop_tokens", "moe_random_routing_dropped_token", "num_media_embeds")
    bias = fields.flag("attention_bias", default=False)
    return _equal_layers(fields, gated(fields), qkv_bias=bias, output_bias=bias, qk_norm="per_head")


def _exaone4(fields: ConfigFields) -> Architecture:
    """Norms behind the parts instead of before them; windows where the file has one."""
    hidden, length = fields.count("hidden_size"), num_layers(fields)
    _, pattern = fields.find("sliding_window_pattern")
    period = len(pattern) if isinstance(pattern, str) else fields.count("sliding_window_pattern", default=4, minimum=0)
    window = read_window(fields)
    default = every_nth_full(length, period) if window else [FULL] * length
    kinds = read_layer_types(fields, length, default=default)
    heads, part = read_heads(fields, hidden), gated(fields)
    by_kind = {
        kind: layer(attention(heads, window=window if kind == SLIDING else None, qk_norm="per_head"), part, norms=2 * hidden)
        for kind in (SLIDING, FULL)
    }
    return Architecture(hidden, fields.count("vocab_size"), [by_kind[kind] for kind in kinds], False, hidden)


def _exaone(fields: ConfigFields) -> Architecture:
    return _equal_layers(fields, gated(fields))


def _internlm2(fields: ConfigFields) -> Architecture:
    bias = fields.flag("bias", default=False)
    fields.skip("attn_implementation")
    return _equal_layers(fields, gated(fields, bias=bias), qkv_bias=bias, output_bias=bias)


def _internlm3(fields: ConfigFields) -> Architecture:
    bias = fields.flag("bias", default=False)
    return _equal_layers(fields, gated(fields, bias=bias), qkv_bias=fields.flag("qkv_bias", default=False), output_bias=bias)


def _baichuan(fields: ConfigFields) -> Architecture:
    fields.skip("z_loss_weight", "_from_model_config", "gradient_checkpointing")
    return _equal_layers(fields, gated(fields))


def _chatglm(fields: ConfigFields) -> Architecture:
    """ChatGLM 2 and 3 and GLM-4 9B under their own field names."""
    for name, value in (("add_bias_linear", False), ("rmsnorm", True), ("post_layer_norm", True), ("multi_query_attention", True)):
        fields.require(name, value)
    fields.require("apply_residual_connection_post_layernorm", False)
    fields.skip("apply_query_key_layer_scaling", "bias_dropout_fusion", "fp32_residual_connection", "hidden_dropout", "original_rope")
    fields.skip("kv_channels", "pre_seq_len", "prefix_projection", "quantization_bit", "rope_ratio", "interleaved_qkv", "vocab_size")
    heads = Heads(fields.count("num_attention_heads"), fields.count("multi_query_group_num"), fields.count("kv_channels"))
    bias = fields.flag("add_qkv_bias", default=False)
    return _equal_layers(fields, gated(fields, name="ffn_hidden_size"), heads=heads, vocab="padded_vocab_size", qkv_bias=bias)


def _minicpm(fields: ConfigFields) -> Architecture:
    fields.require("num_experts", 0)
    fields.skip("scale_emb", "scale_depth", "dim_model_base", "mup_denominator", "sparse_config")
    bias = fields.flag("attention_bias", default=False)
    return _equal_layers(fields, gated(fields), qkv_bias=bias, output_bias=bias, tied=True)


FAMILIES: Mapping[str, FamilyReader] = {
    "nemotron": FamilyReader(_nemotron),
    "arcee": FamilyReader(_arcee),
    "apertus": FamilyReader(_apertus),
    "olmo": FamilyReader(_olmo),
    "stablelm": FamilyReader(_stablelm),
    "hunyuan_v1_dense": FamilyReader(_hunyuan),
    "exaone": FamilyReader(_exaone),
    "exaone4": FamilyReader(_exaone4),
    "internlm2": FamilyReader(_internlm2),
    "internlm3": FamilyReader(_internlm3),
    "baichuan": FamilyReader(_baichuan),
    "chatglm": FamilyReader(_chatglm),
    "minicpm": FamilyReader(_minicpm),
}
