"""Mixtures of experts whose layers differ in their attention: sliding or chunked windows, sinks, sparse attention.

Layer definitions: https://github.com/huggingface/transformers/tree/main/src/transformers/models (one folder per model type); step3p5 is
read as in https://github.com/vllm-project/vllm/blob/main/vllm/model_executor/models/step3p5.py.
"""

from collections.abc import Mapping, Sequence

from app.domain.attention import Indexer
from app.domain.feed_forward import DenseFeedForward
from app.importers.architecture import Architecture, FamilyReader, num_layers
from app.importers.config_fields import ConfigFields
from app.importers.hf_attention import FULL, SLIDING, Heads, attention, every_nth_full, read_heads, read_layer_types, read_window
from app.importers.hf_feed_forward import EXPERTS, SHARED_EXPERTS, dense_layers, gated, moe_of_experts, read_moe
from app.importers.hf_moe import choose, mtp_of, stack_of


def _gpt_oss(fields: ConfigFields) -> Architecture:
    length = num_layers(fields)
    bias = fields.flag("attention_bias", default=True)
    heads = read_heads(fields, fields.count("hidden_size"))
    window = read_window(fields)
    kinds = read_layer_types(fields, length, default=every_nth_full(length, 2))
    mixers = [attention(heads, window=window if kind == SLIDING else None, qkv_bias=bias, output_bias=bias, sinks=True) for kind in kinds]
    moe = read_moe(fields, width=fields.count("intermediate_size"), router_bias=True, expert_bias=True)
    return stack_of(fields, mixers, [moe] * length)


def _llama4(fields: ConfigFields) -> Architecture:
    length = num_layers(fields)
    fields.require("attention_bias", False)
    fields.skip("use_qk_norm", "for_llm_compressor")
    heads = read_heads(fields, fields.count("hidden_size"))
    chunk = read_window(fields, "attention_chunk_size")
    period = fields.count("no_rope_layer_interval", default=4)
    rotary = fields.counts("no_rope_layers", maximum=1) or [int((index + 1) % period != 0) for index in range(length)]
    if len(rotary) != length:
        raise fields.wrong("no_rope_layers", f"a list of {length} integers, one per layer")
    default = ["chunked_attention" if uses else FULL for uses in rotary]
    kinds = read_layer_types(fields, length, default=default, allowed=(FULL, "chunked_attention"))
    mixers = [attention(heads, window=chunk if kind != FULL else None, chunked=True) for kind in kinds]
    width = fields.count("intermediate_size")
    moe = read_moe(fields, width=width, shared_width=width)
    step = fields.count("interleave_moe_layer_step", default=1)
    sparse = frozenset(fields.counts("moe_layers", maximum=length - 1) or range(step - 1, length, step))
    dense = [index not in sparse for index in range(length)]
    narrow = gated(fields, name="intermediate_size_mlp") if any(dense) else None
    fields.skip("intermediate_size_mlp")
    return stack_of(fields, mixers, choose(dense, narrow, moe))


def _exaone_moe(fields: ConfigFields) -> Architecture:
    length = num_layers(fields)
    window = read_window(fields)
    name, pattern = fields.find("sliding_window_pattern")
    if isinstance(pattern, str):
        if not pattern or set(pattern) - {"L", "G"}:
            raise fields.wrong(name, "a pattern of L (local) and G (global)")
        default = [FULL if pattern[index % len(pattern)] == "G" else SLIDING for index in range(length)]
    else:
        default = every_nth_full(length, fields.count("sliding_window_pattern", default=4, minimum=0))
    kinds = read_layer_types(fields, length, default=default)
    heads = read_heads(fields, fields.count("hidden_size"))
    mixers = [attention(heads, window=window if kind == SLIDING else None, qk_norm="per_head") for kind in kinds]
    moe = moe_of_experts(fields, router_bias=True)
    sparse = fields.flags("is_moe_layer", length=length)
    fields.require("first_last_k_dense_replace", fields.count("first_k_dense_replace", default=1, minimum=0))
    dense = dense_layers(fields, length, default_first=1)
    if sparse is not None:
        if fields.given("mlp_layer_types") and [not flag for flag in sparse] != dense:
            raise fields.wrong("is_moe_layer", "the same layers as mlp_layer_types")
        dense = [not flag for flag in sparse]
    narrow = DenseFeedForward(intermediate_size=fields.count("intermediate_size"))
    mtp = mtp_of(fields, attention(heads, window=window, qk_norm="per_head"), narrow, name="num_nextn_predict_layers")
    return stack_of(fields, mixers, choose(dense, narrow, moe), mtp=mtp)


def _mimo_v2_flash(fields: ConfigFields) -> Architecture:
    """Sliding layers have heads of their own; values are narrower than keys."""
    length = num_layers(fields)
    hidden = fields.count("hidden_size")
    fields.require("attention_bias", False)
    value_dim = fields.count("v_head_dim")
    full = read_heads(fields, hidden)
    swa_heads = fields.count("swa_num_attention_heads", default=full.num_heads)
    swa_kv_heads = fields.count("swa_num_key_value_heads", default=8)
    if swa_heads % swa_kv_heads:
        raise fields.wrong("swa_num_key_value_heads", f"a divisor of the {swa_heads} query heads")
    sliding = Heads(swa_heads, swa_kv_heads, fields.count("swa_head_dim", default=full.head_dim))
    swa_value_dim = fields.count("swa_v_head_dim", default=value_dim)
    window = fields.count("sliding_window_size", "sliding_window")
    fields.skip("attention_chunk_size")
    pattern = fields.counts("hybrid_layer_pattern", maximum=1, lengths=(length,))
    default = [SLIDING if flag else FULL for flag in pattern] if pattern else [FULL, *every_nth_full(length, 6)[1:]]
    by_kind = {
        FULL: attention(full, value_head_dim=value_dim, sinks=fields.flag("add_full_attention_sink_bias", default=False)),
        SLIDING: attention(
            sliding, window=window, value_head_dim=swa_value_dim, sinks=fields.flag("add_swa_attention_sink_bias", default=True)
        ),
    }
    moe = moe_of_experts(fields, router_bias=True)
    narrow = gated(fields)
    mixers = [by_kind[kind] for kind in read_layer_types(fields, length, default=default)]
    fields.require("topk_method", "noaux_tc")
    modules = "num_nextn_predict_layers"
    mtp = mtp_of(fields, by_kind[SLIDING], narrow, name=modules, default=3)
    notes = () if modules in fields.fields else ("The file does not name them, but checkpoints of this type hold 3 prediction layers.",)
    parts = choose(dense_layers(fields, length, default_first=1), narrow, moe)
    return stack_of(fields, mixers, parts, mtp=mtp)._replace(notes=notes)


def _minimax_m3(fields: ConfigFields) -> Architecture:
    """Block-sparse attention with an indexer in all but the first layers."""
    length = num_layers(fields)
    heads = read_heads(fields, fields.count("hidden_size"))
    fields.require("attention_output_gate", False)
    fields.require("qk_norm_type", "per_head")
    fields.require("use_qk_norm", True)
    plain = attention(heads, qk_norm="per_head")
    kinds = fields.texts("layer_types", allowed=(FULL, "minimax_m3_sparse"), length=length)
    flags: Sequence[int] | None = None if kinds is None else [int(kind != FULL) for kind in kinds]
    if (sparse := fields.section("sparse_attention_config")) is not None:
        sparse.require("use_sparse_attention", True)
        sparse.skip("sparse_disable_index_value", "sparse_init_block", "sparse_local_block", "sparse_score_type")
        flags = sparse.counts("sparse_attention_freq", maximum=1, lengths=(length,)) or flags
        source, names = sparse, ("sparse_num_index_heads", "sparse_index_dim", "sparse_topk_blocks", "sparse_block_size")
    else:
        source, names = fields, ("index_n_heads", "index_head_dim", "index_topk_blocks", "index_block_size")
    if flags is None:
        raise fields.missing("sparse_attention_config", "layer_types")
    num_heads, head_dim, num_selected, block = (source.count(name) for name in names)
    indexer = Indexer(num_heads=num_heads, head_dim=head_dim, num_selected=num_selected, block_tokens=block)
    indexed = plain.model_copy(update={"indexer": indexer})
    width = fields.count("intermediate_size", "moe_intermediate_size")
    shared = fields.count("shared_intermediate_size", default=width) * fields.count("n_shared_experts", default=1, minimum=0)
    moe = read_moe(fields, width=width, shared_width=shared, router_bias=True)
    narrow = gated(fields, name="dense_intermediate_size")
    fields.skip("num_mtp_modules", "num_nextn_predict_layers", "index_local_blocks", "use_routing_bias")
    mixers = [indexed if flag else plain for flag in flags]
    return stack_of(fields, mixers, choose(dense_layers(fields, length), narrow, moe))


def _step3p5(fields: ConfigFields) -> Architecture:
    """Sliding layers have more query heads; every head has a gate."""
    length = num_layers(fields)
    hidden = fields.count("hidden_size")
    full = read_heads(fields, hidden)
    sliding = full
    if (other := fields.section("attention_other_setting")) is not None:
        other.require("attention_type", "sliding_attention")
        sliding = read_heads(other, hidden)
        other.require("true_head_dim", sliding.head_dim)
    fields.require("use_head_wise_attn_gate", True)
    fields.require("att_impl_type", "GQA")
    fields.require("use_moe", True)
    window = read_window(fields)
    modules = fields.count("num_nextn_predict_layers", default=0, minimum=0, maximum=100)
    both = (length, length + modules)
    _, listed = fields.find("layer_types")
    kinds = fields.texts("layer_types", allowed=(FULL, SLIDING), length=len(listed) if isinstance(listed, list) else length)
    if kinds is None or len(kinds) not in both:
        raise fields.wrong("layer_types", f"a list of {length} strings, one per layer")
    by_kind = {
        kind: attention(heads, window=window if kind == SLIDING else None, qk_norm="per_head").model_copy(update={"head_gate": True})
        for kind, heads in ((FULL, full), (SLIDING, sliding))
    }
    width = fields.count("moe_intermediate_size")
    shared = fields.count("share_expert_dim")
    moe = read_moe(fields, width=width, shared_width=shared, router_bias=fields.flag("use_moe_router_bias", default=False))
    fields.skip(*EXPERTS, *SHARED_EXPERTS, "true_head_dim", "zero_centered")
    text = fields.text("moe_layers_enum")
    if text is not None:
        sparse = frozenset(int(entry) for entry in text.split(",") if entry.strip().isdigit())
        dense = [index not in sparse for index in range(length)]
    else:
        dense = dense_layers(fields, length)
    narrow = gated(fields)
    mixers = [by_kind[kind] for kind in kinds[:length]]
    mtp = mtp_of(fields, by_kind[SLIDING], narrow, name="num_nextn_predict_layers", num_tables=1)
    return stack_of(fields, mixers, choose(dense, narrow, moe), mtp=mtp)


FAMILIES: Mapping[str, FamilyReader] = {
    "minimax_m3": FamilyReader(_minimax_m3),
    "minimax_m3_vl_text": FamilyReader(_minimax_m3),
    "gpt_oss": FamilyReader(_gpt_oss),
    "llama4_text": FamilyReader(_llama4),
    "exaone_moe": FamilyReader(_exaone_moe),
    "mimo_v2_flash": FamilyReader(_mimo_v2_flash),
    "step3p5": FamilyReader(_step3p5),
}
