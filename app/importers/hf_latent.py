"""Multi-head latent attention with mixtures of experts: DeepSeek and what follows its layout.

Layer definitions: https://github.com/huggingface/transformers/tree/main/src/transformers/models (deepseek_v2, deepseek_v3,
deepseek_v32, deepseek_v4, glm_moe_dsa, glm4_moe_lite, mistral4).
"""

from collections.abc import Mapping, Sequence

from app.domain.attention import CompressedAttention, Indexer, LatentAttention
from app.domain.feed_forward import MoeFeedForward
from app.domain.llm import ExtraWeights
from app.importers.architecture import Architecture, FamilyReader, MtpLayers, layer, num_layers
from app.importers.config_fields import ConfigFields
from app.importers.hf_attention import read_indexer, read_latent_attention
from app.importers.hf_feed_forward import SHARED_EXPERTS, dense_layers, gated, read_moe

_INDEXED = ("indexed_attention", "deepseek_sparse_attention")


def moe_of_experts(fields: ConfigFields, *, router_bias: bool) -> MoeFeedForward:
    """Routed experts of `moe_intermediate_size` and shared experts of the same width."""
    width = fields.count("moe_intermediate_size")
    shared = width * fields.count(*SHARED_EXPERTS, default=0, minimum=0)
    return read_moe(fields, width=width, shared_width=shared, router_bias=router_bias)


def _stack(
    fields: ConfigFields,
    mixers: Sequence[LatentAttention],
    *,
    router_bias: bool,
    default_first: int = 0,
    num_tables: int = 0,
    mtp_mixer: LatentAttention | None = None,
) -> Architecture:
    hidden, length = fields.count("hidden_size"), num_layers(fields)
    fields.require("mlp_bias", False)
    fields.skip("qk_rope_head_dim", "n_dense_layers", "rope_interleave")
    moe = moe_of_experts(fields, router_bias=router_bias)
    dense = dense_layers(fields, length, default_first=default_first)
    narrow = gated(fields) if any(dense) else moe
    fields.skip("intermediate_size")
    layers = [layer(mixer, narrow if is_dense else moe, norms=2 * hidden) for mixer, is_dense in zip(mixers, dense, strict=True)]
    modules = fields.count("num_nextn_predict_layers", default=0, minimum=0, maximum=100)
    block = layer(mtp_mixer or mixers[-1], moe, norms=2 * hidden)
    mtp = MtpLayers(modules, [block], num_tables) if modules else None
    return Architecture(hidden, fields.count("vocab_size"), layers, False, hidden, mtp=mtp)


def _deepseek_v2(fields: ConfigFields) -> Architecture:
    fields.require("topk_method", "greedy", "group_limited_greedy")
    return _stack(fields, [read_latent_attention(fields)] * num_layers(fields), router_bias=False)


def _deepseek_v3(fields: ConfigFields) -> Architecture:
    fields.require("topk_method", "noaux_tc")
    mixers = [read_latent_attention(fields)] * num_layers(fields)
    return _stack(fields, mixers, router_bias=True, default_first=3, num_tables=2)


def _deepseek_v32(fields: ConfigFields) -> Architecture:
    fields.require("topk_method", "noaux_tc")
    fields.texts("layer_types", allowed=_INDEXED, length=num_layers(fields))
    mixers = [read_latent_attention(fields, indexer=read_indexer(fields))] * num_layers(fields)
    return _stack(fields, mixers, router_bias=True, default_first=3, num_tables=2)


def has_indexer(fields: ConfigFields, length: int) -> list[bool]:
    """Which layers have an indexer of their own; the others reuse the choice of the one before."""
    types = fields.texts("indexer_types", allowed=("full", "shared"), length=length)
    pattern = fields.text("index_topk_pattern")
    period = fields.count("index_topk_freq", default=1)
    offset = fields.count("index_skip_topk_offset", default=2, minimum=0)
    if types is not None:
        return [kind == "full" for kind in types]
    if pattern is not None:
        if len(pattern) != length or set(pattern) - {"F", "S"}:
            raise fields.wrong("index_topk_pattern", f"{length} letters F (full) or S (shared)")
        return [letter == "F" for letter in pattern]
    return [max(index - offset + 1, 0) % period == 0 for index in range(length)]


def _glm_moe_dsa(fields: ConfigFields) -> Architecture:
    fields.require("topk_method", "noaux_tc")
    length = num_layers(fields)
    fields.texts("layer_types", allowed=_INDEXED, length=length)
    with_indexer = read_latent_attention(fields, indexer=read_indexer(fields))
    without = with_indexer.model_copy(update={"indexer": None})
    mixers = [with_indexer if own else without for own in has_indexer(fields, length)]
    return _stack(fields, mixers, router_bias=True, default_first=3, mtp_mixer=with_indexer)


def _glm4_moe_lite(fields: ConfigFields) -> Architecture:
    fields.require("topk_method", "noaux_tc")
    mixers = [read_latent_attention(fields)] * num_layers(fields)
    return _stack(fields, mixers, router_bias=True, default_first=1, num_tables=2)


def _mistral4(fields: ConfigFields) -> Architecture:
    fields.require("sliding_window")
    return _stack(fields, [read_latent_attention(fields)] * num_layers(fields), router_bias=False)


def hyper_connections(hidden: int, streams: int) -> int:
    """Parameters of the two hyper-connections of a layer.

    params = 2 x ((2 + streams) x streams x (streams x hidden + 1) + 3) [parameters].
    Source: https://github.com/huggingface/transformers/tree/main/src/transformers/models/deepseek_v4.
    """
    return 2 * ((2 + streams) * streams * (streams * hidden + 1) + 3)


_RATIOS = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}


def _compress_ratios(fields: ConfigFields, length: int, modules: int) -> Sequence[int]:
    """Tokens per compressed entry of every layer; files also list the prediction layers."""
    ratios = fields.counts("compress_ratios", maximum=10**6, lengths=range(length, length + modules + 1))
    kinds = fields.texts("layer_types", allowed=_RATIOS, length=length)
    rates = dict(_RATIOS)
    if (section := fields.section("compress_rates")) is not None:
        for kind in ("compressed_sparse_attention", "heavily_compressed_attention"):
            rates[kind] = section.count(kind, default=rates[kind])
    if ratios is not None:
        return ratios[:length]
    if kinds is None:
        raise fields.missing("compress_ratios", "layer_types")
    return [rates[kind] for kind in kinds]


def _deepseek_v4(fields: ConfigFields) -> Architecture:
    hidden, length = fields.count("hidden_size"), num_layers(fields)
    fields.require("attention_bias", False)
    fields.require("mlp_bias", False)
    fields.require("num_key_value_heads", 1)
    fields.require("topk_method", "noaux_tc")
    fields.skip("qk_rope_head_dim")
    modules = fields.count("num_nextn_predict_layers", default=0, minimum=0, maximum=100)
    streams = fields.count("hc_mult", maximum=64)
    plain = CompressedAttention(
        num_heads=fields.count("num_attention_heads"),
        head_dim=fields.count("head_dim"),
        q_lora_rank=fields.count("q_lora_rank"),
        num_output_groups=fields.count("o_groups"),
        output_lora_rank=fields.count("o_lora_rank"),
        window_tokens=fields.count("sliding_window"),
        compress_ratio=0,
    )
    indexer = Indexer(
        num_heads=fields.count("index_n_heads"), head_dim=fields.count("index_head_dim"), num_selected=fields.count("index_topk")
    )
    kinds = fields.texts("mlp_layer_types", allowed=("hash_moe", "moe"), length=length)
    num_hash = fields.count("num_hash_layers", default=3, minimum=0)
    moe = moe_of_experts(fields, router_bias=True)
    vocabulary = fields.count("vocab_size")
    hashed = moe.model_copy(update={"router_bias": False, "num_hash_table_entries": vocabulary * moe.num_experts_per_token})
    extra = hyper_connections(hidden, streams)
    layers = []
    for index, ratio in enumerate(_compress_ratios(fields, length, modules)):
        mixer = plain.model_copy(
            update={"compress_ratio": ratio, "indexer": indexer if ratio == _RATIOS["compressed_sparse_attention"] else None}
        )
        is_hashed = kinds[index] == "hash_moe" if kinds else index < num_hash
        layers.append(layer(mixer, hashed if is_hashed else moe, norms=2 * hidden, extra=extra))
    head = streams * streams * hidden + streams + 1
    block = layer(plain, moe, norms=2 * hidden, extra=extra)
    return Architecture(
        hidden,
        vocabulary,
        layers,
        False,
        hidden,
        extra_weights=(ExtraWeights(what="hyper-connection head", num_params=head),),
        mtp=MtpLayers(modules, [block], num_extra_params=head) if modules else None,
    )


FAMILIES: Mapping[str, FamilyReader] = {
    "deepseek_v2": FamilyReader(_deepseek_v2),
    "deepseek_v3": FamilyReader(_deepseek_v3),
    "kimi_k2": FamilyReader(_deepseek_v3),
    "deepseek_v32": FamilyReader(_deepseek_v32),
    "deepseek_v4": FamilyReader(_deepseek_v4),
    "deepseek_ref": FamilyReader(_deepseek_v4),
    "glm_moe_dsa": FamilyReader(_glm_moe_dsa),
    "glm4_moe_lite": FamilyReader(_glm4_moe_lite),
    "mistral4": FamilyReader(_mistral4),
}
