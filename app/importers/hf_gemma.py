"""Gemma 1 to 4.

Layer definitions: https://github.com/huggingface/transformers/tree/main/src/transformers/models (gemma, gemma2, gemma3, gemma4).
"""

from collections.abc import Mapping, Sequence

from app.domain.feed_forward import FeedForward
from app.domain.llm import ExtraWeights, LayerGroup
from app.importers.architecture import Architecture, FamilyReader, layer, num_layers
from app.importers.config_fields import ConfigFields
from app.importers.hf_attention import FULL, SLIDING, Heads, QkNorm, attention, every_nth_full, read_heads, read_layer_types, read_window
from app.importers.hf_feed_forward import gated, read_moe


def _stack(fields: ConfigFields, kinds: Sequence[str], window: int | None, *, norms_per_layer: int, qk_norm: QkNorm) -> Architecture:
    hidden = fields.count("hidden_size")
    heads = read_heads(fields, hidden)
    bias = fields.flag("attention_bias", default=False)
    fields.skip("cache_implementation")
    by_kind = {
        kind: layer(
            attention(heads, window=window if kind == SLIDING else None, qkv_bias=bias, output_bias=bias, qk_norm=qk_norm),
            gated(fields),
            norms=norms_per_layer * hidden,
        )
        for kind in (SLIDING, FULL)
    }
    return Architecture(hidden, fields.count("vocab_size"), [by_kind[kind] for kind in kinds], True, hidden)


def _gemma(fields: ConfigFields) -> Architecture:
    return _stack(fields, [FULL] * num_layers(fields), None, norms_per_layer=2, qk_norm="none")


def _gemma2(fields: ConfigFields) -> Architecture:
    kinds = read_layer_types(fields, num_layers(fields), default=every_nth_full(num_layers(fields), 2))
    fields.skip("sliding_window_size")
    return _stack(fields, kinds, read_window(fields), norms_per_layer=4, qk_norm="none")


def _gemma3(fields: ConfigFields) -> Architecture:
    period = fields.count("sliding_window_pattern", "_sliding_window_pattern", default=6)
    kinds = read_layer_types(fields, num_layers(fields), default=every_nth_full(num_layers(fields), period))
    return _stack(fields, kinds, read_window(fields), norms_per_layer=4, qk_norm="per_head")


def _gemma4(fields: ConfigFields) -> Architecture:
    hidden, length = fields.count("hidden_size"), num_layers(fields)
    sliding = read_heads(fields, hidden)
    same = fields.flag("attention_k_eq_v", default=False)
    fields.require("attention_bias", False)
    num_global = fields.count("num_global_key_value_heads", default=sliding.num_kv_heads)
    if sliding.num_heads % num_global:
        raise fields.wrong("num_global_key_value_heads", f"a divisor of the {sliding.num_heads} query heads")
    full = Heads(sliding.num_heads, num_global if same else sliding.num_kv_heads, fields.count("global_head_dim", default=512))
    overrides = _overrides(fields, sliding, length)
    default = every_nth_full(length, 6)
    kinds = list(read_layer_types(fields, length, default=default))
    kinds[-1] = FULL
    num_shared = fields.count("num_kv_shared_layers", default=0, minimum=0, maximum=length)
    wide = fields.flag("use_double_wide_mlp", default=False)
    per_layer = fields.count("hidden_size_per_layer_input", minimum=0)
    window = read_window(fields)
    dense = gated(fields)
    moe: list[FeedForward] = []
    norms = 4 * hidden
    if fields.flag("enable_moe_block", default=False):
        experts = read_moe(fields, width=fields.count("moe_intermediate_size", "expert_intermediate_size"))
        moe = [experts.model_copy(update={"num_router_extra_params": hidden + experts.num_experts})]
        norms = 7 * hidden
    fields.skip("num_experts", "top_k_experts", "moe_intermediate_size", "expert_intermediate_size")
    layers: list[LayerGroup] = []
    for index, kind in enumerate(kinds):
        heads = (full if kind == FULL else sliding) if overrides is None else overrides.get(index, sliding)
        shares = index >= length - num_shared
        mixer = attention(heads, window=window if kind == SLIDING else None, qk_norm="per_head")
        update: dict[str, object] = {"key_is_value": same and kind == FULL}
        if shares:
            update = {"shares_kv": True, "num_qk_norm_params": heads.head_dim}
        part = dense.model_copy(update={"intermediate_size": dense.intermediate_size * 2}) if shares and wide else dense
        extra = 2 * hidden * per_layer
        layers.append(layer(mixer.model_copy(update=update), part, *moe, norms=norms + (hidden if per_layer else 0), extra=extra))
    return Architecture(hidden, fields.count("vocab_size"), layers, True, hidden, extra_weights=_per_layer_inputs(fields, length))


def _overrides(fields: ConfigFields, heads: Heads, length: int) -> dict[int, Heads] | None:
    """Heads of the layers that `per_layer_config` names by index; None when the file has no such field."""
    section = fields.section("per_layer_config")
    if section is None:
        return None
    found = {}
    for name in section.fields:
        own = section.section(name)
        if own is None or not name.isdecimal() or int(name) >= length:
            raise section.unsupported(name, f"the index of a layer below {length} with what differs in it")
        num_kv_heads = own.count("num_key_value_heads", default=heads.num_kv_heads)
        if heads.num_heads % num_kv_heads:
            raise own.wrong("num_key_value_heads", f"a divisor of the {heads.num_heads} query heads")
        found[int(name)] = Heads(heads.num_heads, num_kv_heads, own.count("head_dim", default=heads.head_dim))
    return found


def _per_layer_inputs(fields: ConfigFields, length: int) -> tuple[ExtraWeights, ...]:
    """The second embedding table, from which every layer takes a vector of its own."""
    per_layer = fields.count("hidden_size_per_layer_input", minimum=0)
    vocabulary = fields.count("vocab_size_per_layer_input", default=fields.count("vocab_size"))
    if not per_layer:
        return ()
    return (
        ExtraWeights(what="embeddings per layer", num_params=vocabulary * length * per_layer),
        ExtraWeights(what="projection to the inputs per layer", num_params=fields.count("hidden_size") * length * per_layer),
        ExtraWeights(what="norm of the inputs per layer", num_params=per_layer),
    )


_GEMMA3_DEFAULTS: Mapping[str, object] = {
    "vocab_size": 262_208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "sliding_window": 4096,
    "max_position_embeddings": 131_072,
}
"""Published files of Gemma 3 leave out what the configuration class already has."""

FAMILIES: Mapping[str, FamilyReader] = {
    "gemma": FamilyReader(_gemma, {"head_dim": 256}),
    "gemma2": FamilyReader(_gemma2, {"head_dim": 256, "sliding_window": 4096}),
    "gemma3_text": FamilyReader(_gemma3, _GEMMA3_DEFAULTS),
    "gemma4_text": FamilyReader(_gemma4, {"sliding_window": 512, "hidden_size_per_layer_input": 256, "head_dim": 256}),
    "gemma4_unified_text": FamilyReader(_gemma4, {"sliding_window": 1024, "hidden_size_per_layer_input": 0, "head_dim": 256}),
}
