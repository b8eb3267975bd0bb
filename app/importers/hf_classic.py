"""Decoders before Llama: LayerNorm with bias, ungated feed-forward parts, one projection for queries, keys and values.

Layer definitions: https://github.com/huggingface/transformers/tree/main/src/transformers/models (one folder per model type).
"""

from collections.abc import Mapping

from app.domain.feed_forward import DenseFeedForward, MoeFeedForward
from app.domain.llm import ExtraWeights
from app.importers.architecture import Architecture, FamilyReader, layer, num_layers
from app.importers.config_fields import ConfigFields
from app.importers.hf_attention import Heads, attention, read_heads, read_window


def _width(fields: ConfigFields) -> int:
    return fields.count("hidden_size", "n_embd", "d_model", "n_embed")


def _heads(fields: ConfigFields, hidden: int, num_kv_heads: int | None = None) -> Heads:
    num_heads = fields.count("num_attention_heads", "n_head", "n_heads")
    num_kv_heads = num_kv_heads or num_heads
    if hidden % num_heads:
        raise fields.wrong("num_attention_heads" if "num_attention_heads" in fields.fields else "n_head", f"a divisor of {hidden}")
    if num_heads % num_kv_heads:
        raise fields.wrong("num_kv_heads", f"a divisor of the {num_heads} query heads")
    return Heads(num_heads, num_kv_heads, hidden // num_heads)


def _ungated(width: int, *, bias: bool) -> DenseFeedForward:
    return DenseFeedForward(intermediate_size=width, num_matrices=2, bias=bias)


def _bloom(fields: ConfigFields) -> Architecture:
    hidden = _width(fields)
    block = layer(attention(_heads(fields, hidden), qkv_bias=True, output_bias=True), _ungated(4 * hidden, bias=True), norms=4 * hidden)
    extra = ExtraWeights(what="norm of the word embeddings", num_params=2 * hidden)
    return Architecture(hidden, fields.count("vocab_size"), [block] * num_layers(fields), True, 2 * hidden, extra_weights=(extra,))


def _falcon(fields: ConfigFields) -> Architecture:
    hidden = _width(fields)
    num_heads = fields.count("num_attention_heads", "n_head")
    new = fields.flag("new_decoder_architecture", default=False)
    many = fields.count("num_kv_heads", "n_head_kv", default=num_heads)
    multi_query = fields.flag("multi_query", default=True)
    num_kv_heads = many if new else 1 if multi_query else num_heads
    bias = fields.flag("bias", default=False)
    parallel = fields.flag("parallel_attn", default=True)
    in_parallel = fields.count("num_ln_in_parallel_attn", default=2 if new else 1, maximum=2)
    num_norms = in_parallel if new else 1 if parallel else 2
    block = layer(
        attention(_heads(fields, hidden, num_kv_heads), qkv_bias=bias, output_bias=bias),
        _ungated(fields.count("ffn_hidden_size", default=4 * hidden), bias=bias),
        norms=2 * hidden * num_norms,
    )
    return Architecture(hidden, fields.count("vocab_size"), [block] * num_layers(fields), True, 2 * hidden)


def _gpt_bigcode(fields: ConfigFields) -> Architecture:
    hidden = _width(fields)
    num_kv_heads = 1 if fields.flag("multi_query", default=True) else None
    fields.require("add_cross_attention", False)
    if fields.count("num_key_value_heads", default=1) != 1 and num_kv_heads:
        raise fields.wrong("num_key_value_heads", "1, as multi_query is true")
    block = layer(
        attention(_heads(fields, hidden, num_kv_heads), qkv_bias=True, output_bias=True),
        _ungated(fields.count("n_inner", default=4 * hidden), bias=True),
        norms=4 * hidden,
    )
    fields.skip("attention_head_type", "inference_runner", "max_batch_size", "pad_key_length", "pre_allocate_kv_cache")
    positions = fields.count("n_positions", "max_position_embeddings")
    layers = [block] * num_layers(fields)
    return Architecture(hidden, fields.count("vocab_size"), layers, True, 2 * hidden, num_position_embeddings=positions)


def _gpt2(fields: ConfigFields) -> Architecture:
    hidden = _width(fields)
    fields.require("add_cross_attention", False)
    block = layer(
        attention(_heads(fields, hidden), qkv_bias=True, output_bias=True),
        _ungated(fields.count("n_inner", default=4 * hidden), bias=True),
        norms=4 * hidden,
    )
    fields.skip("n_ctx", "reorder_and_upcast_attn", "scale_attn_by_inverse_layer_idx")
    positions = fields.count("n_positions", "max_position_embeddings")
    layers = [block] * num_layers(fields)
    return Architecture(hidden, fields.count("vocab_size"), layers, True, 2 * hidden, num_position_embeddings=positions)


def _gptj(fields: ConfigFields) -> Architecture:
    hidden = _width(fields)
    block = layer(attention(_heads(fields, hidden)), _ungated(fields.count("n_inner", default=4 * hidden), bias=True), norms=2 * hidden)
    fields.skip("n_ctx")
    return Architecture(hidden, fields.count("vocab_size"), [block] * num_layers(fields), False, 2 * hidden, lm_head_bias=True)


def _gpt_neox(fields: ConfigFields) -> Architecture:
    hidden = fields.count("hidden_size")
    bias = fields.flag("attention_bias", default=True)
    fields.skip("use_parallel_residual")
    block = layer(
        attention(_heads(fields, hidden), qkv_bias=bias, output_bias=bias),
        _ungated(fields.count("intermediate_size"), bias=True),
        norms=4 * hidden,
    )
    return Architecture(hidden, fields.count("vocab_size"), [block] * num_layers(fields), False, 2 * hidden)


def _phi(fields: ConfigFields) -> Architecture:
    hidden = fields.count("hidden_size")
    heads = read_heads(fields, hidden)
    mixer = attention(heads, qkv_bias=True, output_bias=True)
    if fields.flag("qk_layernorm", default=False):
        mixer = mixer.model_copy(update={"num_qk_norm_params": 4 * heads.head_dim})
    width = fields.count("intermediate_size", "n_inner", default=4 * hidden)
    block = layer(mixer, _ungated(width, bias=True), norms=2 * hidden)
    return Architecture(hidden, fields.count("vocab_size"), [block] * num_layers(fields), False, 2 * hidden, lm_head_bias=True)


def _phimoe(fields: ConfigFields) -> Architecture:
    hidden = fields.count("hidden_size")
    bias = fields.flag("attention_bias", default=False)
    moe = MoeFeedForward(
        num_experts=fields.count("num_local_experts"),
        num_experts_per_token=fields.count("num_experts_per_tok", maximum=fields.count("num_local_experts")),
        intermediate_size=fields.count("intermediate_size"),
    )
    block = layer(attention(read_heads(fields, hidden), window=read_window(fields), qkv_bias=bias, output_bias=bias), moe, norms=4 * hidden)
    head_bias = fields.flag("lm_head_bias", default=False)
    layers = [block] * num_layers(fields)
    return Architecture(hidden, fields.count("vocab_size"), layers, False, 2 * hidden, lm_head_bias=head_bias)


def _starcoder2(fields: ConfigFields) -> Architecture:
    hidden = fields.count("hidden_size")
    bias = fields.flag("use_bias", default=True)
    fields.require("mlp_type", "default")
    fields.require("norm_type", "layer_norm")
    block = layer(
        attention(read_heads(fields, hidden), window=read_window(fields), qkv_bias=bias, output_bias=bias),
        _ungated(fields.count("intermediate_size"), bias=bias),
        norms=4 * hidden,
    )
    return Architecture(hidden, fields.count("vocab_size"), [block] * num_layers(fields), True, 2 * hidden)


def _mpt(fields: ConfigFields) -> Architecture:
    hidden = _width(fields)
    fields.require("no_bias", True)
    fields.require("norm_type", "low_precision_layernorm", "layernorm")
    num_kv_heads = None
    if mixer := fields.section("attn_config"):
        mixer.require("alibi", True)
        mixer.require("qk_ln", False)
        mixer.require("prefix_lm", False)
        mixer.require("attn_type", "multihead_attention", "grouped_query_attention")
        num_kv_heads = mixer.optional_count("kv_n_heads")
        mixer.skip("alibi_bias_max", "attn_uses_sequence_id", "attn_pdrop", "attn_impl", "clip_qkv", "softmax_scale", "model_type")
    fields.skip("learned_pos_emb", "embedding_fraction", "tokenizer_name", "init_config", "use_pad_tok_in_ffn", "fc_type", "logit_scale")
    # Engines differ in whether they follow another ratio.
    fields.require("expansion_ratio", 4)
    block = layer(attention(_heads(fields, hidden, num_kv_heads)), _ungated(4 * hidden, bias=False), norms=2 * hidden)
    return Architecture(hidden, fields.count("vocab_size"), [block] * num_layers(fields), True, hidden)


def _dbrx(fields: ConfigFields) -> Architecture:
    hidden = _width(fields)
    mixer, experts = fields.section("attn_config"), fields.section("ffn_config")
    if mixer is None or experts is None:
        raise fields.missing("attn_config" if mixer is None else "ffn_config")
    for section in (mixer, experts):
        section.skip("clip_qkv", "rope_theta", "moe_loss_weight", "ffn_act_fn", "moe_normalize_expert_weights", "uniform_expert_assignment")
        section.skip("hidden_size", "moe_jitter_eps", "model_type", "attn_pdrop")
    num_kv_heads = mixer.count("kv_n_heads")
    if fields.count("num_key_value_heads", default=num_kv_heads) != num_kv_heads:
        raise fields.wrong("num_key_value_heads", f"attn_config.kv_n_heads {num_kv_heads}")
    num_experts = experts.count("moe_num_experts")
    moe = MoeFeedForward(
        num_experts=num_experts,
        num_experts_per_token=experts.count("moe_top_k", maximum=num_experts),
        intermediate_size=experts.count("ffn_hidden_size"),
    )
    block = layer(attention(_heads(fields, hidden, num_kv_heads)), moe, norms=2 * hidden)
    return Architecture(hidden, fields.count("vocab_size"), [block] * num_layers(fields), False, hidden)


def _opt(fields: ConfigFields) -> Architecture:
    """Learned positions with two rows more than tokens; norms with bias before both parts and at the end."""
    hidden = _width(fields)
    for name in ("do_layer_norm_before", "enable_bias", "layer_norm_elementwise_affine"):
        fields.require(name, True)
    fields.require("_remove_final_layer_norm", False)
    if fields.count("word_embed_proj_dim", default=hidden) != hidden:
        raise fields.wrong("word_embed_proj_dim", f"hidden_size {hidden}: embeddings of another width are not modelled")
    fields.skip("layerdrop", "dropout", "activation_dropout", "init_std", "prefix")
    part = _ungated(fields.count("ffn_dim"), bias=True)
    block = layer(attention(_heads(fields, hidden), qkv_bias=True, output_bias=True), part, norms=4 * hidden)
    positions = fields.count("max_position_embeddings") + 2
    layers = [block] * num_layers(fields)
    return Architecture(hidden, fields.count("vocab_size"), layers, True, 2 * hidden, num_position_embeddings=positions)


FAMILIES: Mapping[str, FamilyReader] = {
    "bloom": FamilyReader(_bloom),
    "falcon": FamilyReader(_falcon, {"max_position_embeddings": 2048}),
    "gpt2": FamilyReader(_gpt2),
    "gpt_bigcode": FamilyReader(_gpt_bigcode),
    "gptj": FamilyReader(_gptj),
    "gpt_neox": FamilyReader(_gpt_neox),
    "phi": FamilyReader(_phi),
    "phimoe": FamilyReader(_phimoe),
    "starcoder2": FamilyReader(_starcoder2),
    "mpt": FamilyReader(_mpt),
    "opt": FamilyReader(_opt),
    "dbrx": FamilyReader(_dbrx),
}
