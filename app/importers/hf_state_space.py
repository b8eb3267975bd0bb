"""Hybrids of attention with state space layers or lightning attention: Jamba, Nemotron-H, Granite 4, MiniMax-Text-01.

Layer definitions: https://github.com/huggingface/transformers/tree/main/src/transformers/models (jamba, nemotron_h, granitemoehybrid,
minimax).
"""

from collections.abc import Mapping, Sequence

from app.domain.feed_forward import DenseFeedForward, FeedForward, MoeFeedForward
from app.domain.recurrent import LightningAttention, Mamba1, Mamba2
from app.importers.architecture import Architecture, FamilyReader, layer, num_layers, read_mtp
from app.importers.config_fields import ConfigFields
from app.importers.hf_attention import FULL, LINEAR, attention, read_heads, read_layer_types
from app.importers.hf_feed_forward import EXPERTS, gated, read_moe


def _jamba(fields: ConfigFields) -> Architecture:
    hidden, length = fields.count("hidden_size"), num_layers(fields)
    fields.require("mamba_conv_bias", True)
    fields.require("mamba_proj_bias", False)
    fields.require("mamba_inner_layernorms", True)
    fields.require("sliding_window")
    _, rank = fields.find("mamba_dt_rank")
    mamba = Mamba1(
        inner_dim=fields.count("mamba_expand", maximum=1000) * hidden,
        state_dim=fields.count("mamba_d_state"),
        dt_rank=-(-hidden // 16) if rank in (None, "auto") else fields.count("mamba_dt_rank"),
        conv_kernel_size=fields.count("mamba_d_conv"),
    )
    full = attention(read_heads(fields, hidden))
    dense = gated(fields)
    experts: FeedForward = dense
    if fields.count("num_experts") > 1:
        experts = read_moe(fields, width=fields.count("intermediate_size"))
    fields.skip("num_experts_per_tok", "calc_logits_for_entire_prompt")
    attn_period, attn_offset = fields.count("attn_layer_period"), fields.count("attn_layer_offset", minimum=0)
    moe_period, moe_offset = fields.count("expert_layer_period"), fields.count("expert_layer_offset", minimum=0)
    layers = [
        layer(
            full if index % attn_period == attn_offset else mamba,
            experts if index % moe_period == moe_offset else dense,
            norms=2 * hidden,
        )
        for index in range(length)
    ]
    return Architecture(hidden, fields.count("vocab_size"), layers, False, hidden)


def _mamba2(fields: ConfigFields, *, heads: int, head_dim: int, state: str, groups: str, conv: str, bias: str) -> Mamba2:
    num_groups = fields.count(groups)
    if heads % num_groups:
        raise fields.wrong(groups, f"a divisor of the {heads} heads")
    return Mamba2(
        num_heads=heads,
        head_dim=head_dim,
        state_dim=fields.count(state),
        num_groups=num_groups,
        conv_kernel_size=fields.count(conv),
        conv_bias=fields.flag(bias, default=True),
    )


_BLOCKS = {"M": "mamba", "-": "mlp", "*": "attention", "E": "moe"}
_WORDS = {
    "mamba": "mamba",
    "linear_attention": "mamba",
    "attention": "attention",
    "full_attention": "attention",
    "mlp": "mlp",
    "moe": "moe",
}


def _block_kinds(fields: ConfigFields, pattern_name: str, list_name: str, length: int | None) -> Sequence[str] | None:
    """Kinds of blocks, written as letters or as words."""
    pattern = fields.text(pattern_name)
    if pattern is not None:
        if set(pattern) - set(_BLOCKS) or length not in (None, len(pattern)):
            raise fields.wrong(pattern_name, f"{'' if length is None else f'{length} '}letters out of {' '.join(_BLOCKS)}")
        return [_BLOCKS[letter] for letter in pattern]
    _, value = fields.find(list_name)
    size = len(value) if isinstance(value, list | tuple) and length is None else length
    words = fields.texts(list_name, allowed=_WORDS, length=size or 0)
    return None if words is None else [_WORDS[word] for word in words]


def _nemotron_h(fields: ConfigFields) -> Architecture:
    """One norm and one part per layer: Mamba2, attention, feed-forward or experts."""
    hidden = fields.count("hidden_size")
    for name in ("attention_bias", "mlp_bias", "mamba_proj_bias", "use_bias"):
        fields.require(name, False)
    fields.require("mlp_hidden_act", "relu2")
    fields.require("sliding_window")
    stated = fields.optional_count("num_hidden_layers", maximum=10_000)
    kinds = _block_kinds(fields, "hybrid_override_pattern", "layers_block_type", stated)
    if not kinds:
        raise fields.missing("hybrid_override_pattern", "layers_block_type")
    heads, head_dim = fields.count("mamba_num_heads"), fields.count("mamba_head_dim")
    fields.skip("expand")
    mamba = _mamba2(
        fields, heads=heads, head_dim=head_dim, state="ssm_state_size", groups="n_groups", conv="conv_kernel", bias="use_conv_bias"
    )
    blocks = {"mamba": layer(mamba, norms=hidden), "attention": layer(attention(read_heads(fields, hidden)), norms=hidden)}
    if "mlp" in kinds:
        dense = DenseFeedForward(intermediate_size=fields.count("intermediate_size"), num_matrices=2)
        blocks["mlp"] = layer(None, dense, norms=hidden)
    mtp_kinds = _block_kinds(fields, "mtp_hybrid_override_pattern", "mtp_layers_block_type", None) or ()
    if "moe" in {*kinds, *mtp_kinds}:
        blocks["moe"] = layer(None, _latent_moe(fields), norms=hidden)
    fields.skip("intermediate_size", "moe_intermediate_size", "moe_shared_expert_intermediate_size", "moe_latent_size", *EXPERTS)
    fields.skip("num_experts_per_tok", "n_shared_experts")
    mtp = read_mtp(fields, *(blocks[kind] for kind in mtp_kinds))
    return Architecture(hidden, fields.count("vocab_size"), [blocks[kind] for kind in kinds], False, hidden, mtp=mtp)


def _latent_moe(fields: ConfigFields) -> MoeFeedForward:
    fields.require("n_shared_experts", 1)
    moe = read_moe(
        fields,
        width=fields.count("moe_intermediate_size"),
        shared_width=fields.count("moe_shared_expert_intermediate_size"),
        num_matrices=2,
    )
    return moe.model_copy(update={"latent_size": fields.optional_count("moe_latent_size")})


def _granite_hybrid(fields: ConfigFields) -> Architecture:
    hidden, length = fields.count("hidden_size"), num_layers(fields)
    fields.require("attention_bias", False)
    fields.require("mamba_proj_bias", False)
    heads = fields.count("mamba_n_heads")
    _, width = fields.find("mamba_d_head")
    inner = fields.count("mamba_expand", maximum=1000) * hidden
    if inner % heads:
        raise fields.wrong("mamba_n_heads", f"a divisor of the inner width {inner}")
    head_dim = inner // heads if width in (None, "auto") else fields.count("mamba_d_head")
    mamba = _mamba2(
        fields, heads=heads, head_dim=head_dim, state="mamba_d_state", groups="mamba_n_groups", conv="mamba_d_conv", bias="mamba_conv_bias"
    )
    full = attention(read_heads(fields, hidden))
    shared = fields.count("shared_intermediate_size")
    part: FeedForward
    if fields.count("num_local_experts", minimum=0):
        part = read_moe(fields, width=fields.count("intermediate_size"), shared_width=shared)
    else:
        part = DenseFeedForward(intermediate_size=shared)
    fields.skip("num_experts_per_tok", "intermediate_size", "normalization_function", "attention_multiplier", "init_method")
    kinds = fields.texts("layer_types", allowed=("mamba", "linear_attention", "attention", "full_attention"), length=length)
    if kinds is None:
        raise fields.missing("layer_types")
    layers = [layer(mamba if _WORDS[kind] == "mamba" else full, part, norms=2 * hidden) for kind in kinds]
    return Architecture(hidden, fields.count("vocab_size"), layers, False, hidden)


def _bamba(fields: ConfigFields) -> Architecture:
    """Mamba2 with attention on the layers that the file lists, each with a gated feed-forward part."""
    hidden, length = fields.count("hidden_size"), num_layers(fields)
    for name in ("attention_bias", "mlp_bias", "mamba_proj_bias"):
        fields.require(name, False)
    heads = fields.count("mamba_n_heads")
    inner = fields.count("mamba_expand", default=2, maximum=1000) * hidden
    if inner % heads:
        raise fields.wrong("mamba_n_heads", f"a divisor of the inner width {inner}")
    mamba = _mamba2(
        fields,
        heads=heads,
        head_dim=inner // heads,
        state="mamba_d_state",
        groups="mamba_n_groups",
        conv="mamba_d_conv",
        bias="mamba_conv_bias",
    )
    fields.skip("mamba_d_head", "num_logits_to_keep", "z_loss_coefficient", "attn_rotary_emb")
    full, part = frozenset(fields.counts("attn_layer_indices", maximum=length - 1) or ()), gated(fields)
    attends = attention(read_heads(fields, hidden))
    layers = [layer(attends if index in full else mamba, part, norms=2 * hidden) for index in range(length)]
    return Architecture(hidden, fields.count("vocab_size"), layers, False, hidden)


def _minimax(fields: ConfigFields) -> Architecture:
    """MiniMax-Text-01 and M1: lightning attention, every eighth layer full attention."""
    hidden, length = fields.count("hidden_size"), num_layers(fields)
    fields.require("shared_intermediate_size", 0)
    fields.require("attention_bias", False)
    fields.require("sliding_window")
    fields.require("postnorm", True)
    fields.skip("shared_moe_mode")
    heads = read_heads(fields, hidden)
    lightning = LightningAttention(num_heads=heads.num_heads, head_dim=heads.head_dim)
    flags = fields.counts("attn_type_list", maximum=1, lengths=(length,))
    kinds = read_layer_types(fields, length, default=[FULL if flag else LINEAR for flag in flags or ()], allowed=(FULL, LINEAR))
    if not kinds:
        raise fields.missing("layer_types", "attn_type_list")
    moe = read_moe(fields, width=fields.count("intermediate_size"))
    layers = [layer(attention(heads) if kind == FULL else lightning, moe, norms=2 * hidden) for kind in kinds]
    return Architecture(hidden, fields.count("vocab_size"), layers, False, hidden)


FAMILIES: Mapping[str, FamilyReader] = {
    "jamba": FamilyReader(_jamba),
    "nemotron_h": FamilyReader(_nemotron_h),
    "bamba": FamilyReader(_bamba),
    "granitemoehybrid": FamilyReader(_granite_hybrid),
    "minimax": FamilyReader(_minimax),
    "minimax_text_01": FamilyReader(_minimax),
    "minimax_m1": FamilyReader(_minimax),
}
