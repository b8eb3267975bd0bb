"""Dense decoders in the manner of Llama: one attention layer and one gated feed-forward part per layer.

Layer definitions: https://github.com/huggingface/transformers/tree/main/src/transformers/models (one folder per model type).
"""

from collections.abc import Mapping, Sequence

from app.domain.feed_forward import DenseFeedForward
from app.importers.architecture import Architecture, FamilyReader, layer, num_layers
from app.importers.config_fields import ConfigFields
from app.importers.hf_attention import (
    FULL,
    SLIDING,
    QkNorm,
    attention,
    every_nth_full,
    read_heads,
    read_layer_types,
    read_window,
)
from app.importers.hf_feed_forward import gated


def _decoder(
    fields: ConfigFields,
    *,
    all_biases: bool = False,
    qkv_bias: bool = False,
    output_bias: bool = False,
    mlp_bias: bool = False,
    norms_per_layer: int = 2,
    qk_norm: QkNorm = "none",
    output_gate: bool = False,
    layer_types: Sequence[str] | None = None,
    window: int | None = None,
    tied: bool = False,
) -> Architecture:
    """A stack of equal layers; those that `layer_types` calls sliding have the window."""
    hidden = fields.count("hidden_size")
    heads = read_heads(fields, hidden)
    feed_forward = gated(fields, bias=mlp_bias)
    kinds = layer_types if layer_types is not None else [SLIDING] * num_layers(fields)
    by_kind = {
        kind: layer(
            attention(
                heads,
                window=window if kind == SLIDING else None,
                qkv_bias=all_biases or qkv_bias,
                output_bias=all_biases or output_bias,
                qk_norm=qk_norm,
                output_gate=output_gate,
            ),
            feed_forward,
            norms=norms_per_layer * hidden,
        )
        for kind in (SLIDING, FULL)
    }
    return Architecture(hidden, fields.count("vocab_size"), [by_kind[kind] for kind in kinds], tied, hidden)


def _biased(fields: ConfigFields) -> bool:
    return fields.flag("attention_bias", default=False)


def _llama(fields: ConfigFields) -> Architecture:
    fields.require("use_sliding_window", False)
    return _decoder(fields, all_biases=_biased(fields), mlp_bias=fields.flag("mlp_bias", default=False))


def _smollm3(fields: ConfigFields) -> Architecture:
    fields.skip("no_rope_layers", "max_window_layers")
    fields.require("use_sliding_window", False)
    fields.skip("sliding_window")
    read_layer_types(fields, num_layers(fields), default=(), allowed=(FULL,))
    return _decoder(fields, all_biases=_biased(fields), mlp_bias=fields.flag("mlp_bias", default=False), tied=True)


def _mistral(fields: ConfigFields) -> Architecture:
    fields.require("attention_bias", False)
    fields.require("mlp_bias", False)
    return _decoder(fields, window=read_window(fields))


def _phi3(fields: ConfigFields) -> Architecture:
    fields.require("attention_bias", False)
    fields.require("mlp_bias", False)
    fields.require("lm_head_bias", False)
    fields.require("full_attn_mod", 1)
    return _decoder(fields, window=read_window(fields))


def qwen_layer_types(fields: ConfigFields, length: int) -> tuple[Sequence[str], int | None]:
    """Kinds of layers and their window: `use_sliding_window` windows the layers from `max_window_layers` on."""
    used = fields.flag("use_sliding_window", default=False)
    window = read_window(fields)
    first = fields.count("max_window_layers", default=length, minimum=0)
    default = [SLIDING if used and window and index >= first else FULL for index in range(length)]
    return read_layer_types(fields, length, default=default), window if used else None


def _qwen2(fields: ConfigFields) -> Architecture:
    fields.require("attention_bias", True)
    kinds, window = qwen_layer_types(fields, num_layers(fields))
    return _decoder(fields, qkv_bias=True, layer_types=kinds, window=window)


def _qwen3(fields: ConfigFields) -> Architecture:
    kinds, window = qwen_layer_types(fields, num_layers(fields))
    return _decoder(fields, all_biases=_biased(fields), qk_norm="per_head", layer_types=kinds, window=window)


def _glm4(fields: ConfigFields) -> Architecture:
    return _decoder(fields, qkv_bias=fields.flag("attention_bias", default=True), norms_per_layer=4)


def _glm(fields: ConfigFields) -> Architecture:
    return _decoder(fields, qkv_bias=fields.flag("attention_bias", default=True))


def _seed_oss(fields: ConfigFields) -> Architecture:
    return _decoder(
        fields,
        qkv_bias=fields.flag("attention_bias", default=True),
        output_bias=fields.flag("attention_out_bias", default=False),
        mlp_bias=fields.flag("mlp_bias", default=False),
    )


def _olmo2(fields: ConfigFields) -> Architecture:
    return _decoder(fields, all_biases=_biased(fields), qk_norm="per_width")


def _olmo3(fields: ConfigFields) -> Architecture:
    kinds = read_layer_types(fields, num_layers(fields), default=every_nth_full(num_layers(fields), 4))
    return _decoder(fields, all_biases=_biased(fields), qk_norm="per_width", layer_types=kinds, window=read_window(fields))


def _cohere(fields: ConfigFields) -> Architecture:
    norm: QkNorm = "per_width" if fields.flag("use_qk_norm", default=False) else "none"
    return _decoder(fields, all_biases=_biased(fields), norms_per_layer=1, qk_norm=norm, tied=True)


def _cohere2(fields: ConfigFields) -> Architecture:
    fields.skip("cache_implementation", "order_of_interleaved_layers", "layer_switch")
    period = fields.count("sliding_window_pattern", default=fields.count("layer_switch", default=4))
    fields.require("order_of_interleaved_layers", "local_attn_first")
    fields.require("use_qk_norm", False)
    fields.require("use_parallel_block", True)
    fields.require("use_gated_activation", True)
    fields.require("use_parallel_embedding", False)
    kinds = read_layer_types(fields, num_layers(fields), default=every_nth_full(num_layers(fields), period))
    return _decoder(
        fields,
        all_biases=_biased(fields),
        norms_per_layer=1,
        layer_types=kinds,
        window=read_window(fields),
        tied=True,
    )


def _muse_glimmer(fields: ConfigFields) -> Architecture:
    length = num_layers(fields)
    default = [FULL if (length - 1 - index) % 4 == 0 else SLIDING for index in range(length)]
    kinds = read_layer_types(fields, length, default=default)
    fields.require("attention_bias", False)
    return _decoder(fields, norms_per_layer=4, output_gate=True, layer_types=kinds, window=read_window(fields))


def _ernie(fields: ConfigFields) -> Architecture:
    bias = fields.flag("use_bias", default=False)
    return _decoder(fields, qkv_bias=bias, output_bias=bias, mlp_bias=bias, tied=True)


def _nemotron_nas(fields: ConfigFields) -> Architecture:
    """Blocks that differ in whether they have attention and in the width of the feed-forward part."""
    hidden = fields.count("hidden_size")
    num_heads = fields.count("num_attention_heads")
    fields.require("attention_bias", False)
    fields.require("mlp_bias", False)
    fields.skip("intermediate_size", "num_key_value_heads")
    if hidden % num_heads:
        raise fields.wrong("num_attention_heads", f"a divisor of hidden_size {hidden}")
    blocks = fields.sections("block_configs", length=num_layers(fields))
    if blocks is None:
        raise fields.missing("block_configs")
    layers = []
    for block in blocks:
        mixer, feed_forward = block.section("attention"), block.section("ffn")
        if mixer is None or feed_forward is None:
            raise block.missing("attention" if mixer is None else "ffn")
        for part in (mixer, feed_forward):
            part.require("replace_with_linear", False)
            part.require("sparsify", False)
        for name in ("num_sink_tokens", "window_length", "sparse", "use_prefill_window_in_sink_attention", "unshifted_sink"):
            mixer.require(name, False, 0)
        mixer_part = None
        if not mixer.flag("no_op", default=False):
            group = mixer.count("n_heads_in_group")
            if num_heads % group:
                raise mixer.wrong("n_heads_in_group", f"a divisor of the {num_heads} query heads")
            heads = {"num_attention_heads": num_heads, "num_key_value_heads": num_heads // group}
            mixer_part = attention(read_heads(ConfigFields(heads, fields.pointer), hidden))
        mixer.skip("n_heads_in_group")
        parts = []
        if not feed_forward.flag("no_op", default=False):
            parts.append(DenseFeedForward(intermediate_size=_nas_width(feed_forward, hidden)))
        feed_forward.skip("ffn_mult", "intermediate_size")
        norms = hidden * ((mixer_part is not None) + len(parts))
        layers.append(layer(mixer_part, *parts, norms=norms))
    return Architecture(hidden, fields.count("vocab_size"), layers, False, hidden)


def _nas_width(feed_forward: ConfigFields, hidden: int) -> int:
    """Inner width = 2/3 x multiplier x hidden, rounded up to a multiple of 256."""
    width = feed_forward.optional_count("intermediate_size")
    if width is not None:
        return width
    _, multiplier = feed_forward.find("ffn_mult")
    if isinstance(multiplier, bool) or not isinstance(multiplier, int | float) or not 0 < multiplier <= 1000:
        raise feed_forward.wrong("ffn_mult", "a number above 0 and at most 1000")
    return -(-int(2 * multiplier * hidden / 3) // 256) * 256


_NO_WINDOW_GIVEN: Mapping[str, object] = {"sliding_window": 4096}

FAMILIES: Mapping[str, FamilyReader] = {
    "llama": FamilyReader(_llama),
    "granite": FamilyReader(_llama),
    "smollm3": FamilyReader(_smollm3),
    "mistral": FamilyReader(_mistral, _NO_WINDOW_GIVEN),
    "ministral3": FamilyReader(_mistral),
    "phi3": FamilyReader(_phi3),
    "qwen2": FamilyReader(_qwen2),
    "qwen2_vl": FamilyReader(_qwen2),
    "qwen2_vl_text": FamilyReader(_qwen2),
    "qwen2_5_vl": FamilyReader(_qwen2),
    "qwen2_5_vl_text": FamilyReader(_qwen2),
    "qwen2_5_omni_text": FamilyReader(_qwen2),
    "qwen3": FamilyReader(_qwen3),
    "qwen3_vl_text": FamilyReader(_qwen3),
    "glm": FamilyReader(_glm),
    "glm4": FamilyReader(_glm4),
    "glm4v_text": FamilyReader(_glm4),
    "seed_oss": FamilyReader(_seed_oss),
    "olmo2": FamilyReader(_olmo2),
    "olmo3": FamilyReader(_olmo3, _NO_WINDOW_GIVEN),
    "cohere": FamilyReader(_cohere),
    "cohere2": FamilyReader(_cohere2, _NO_WINDOW_GIVEN),
    "muse_glimmer_text": FamilyReader(_muse_glimmer),
    "ernie4_5": FamilyReader(_ernie),
    "nemotron-nas": FamilyReader(_nemotron_nas),
}
