"""Attention layers from a configuration: heads, windows, latent attention."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from app.domain.attention import Attention, Indexer, LatentAttention
from app.importers.config_fields import ConfigFields

FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"
POSITIONS = (
    "max_position_embeddings",
    "model_max_length",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
QkNorm = Literal["none", "per_head", "per_width"]


class Heads(NamedTuple):
    """Heads of an attention layer."""

    num_heads: int
    num_kv_heads: int
    head_dim: int


def read_heads(fields: ConfigFields, hidden_size: int) -> Heads:
    """Heads and their width; the width is hidden size over heads where the file does not say.

    Raises InvalidInput when heads do not divide the hidden size, or key/value heads the heads.
    """
    num_heads = fields.count("num_attention_heads", "n_head", "n_heads")
    num_kv_heads = fields.count("num_key_value_heads", "num_attention_groups", default=num_heads)
    if num_heads % num_kv_heads:
        raise fields.wrong("num_key_value_heads", f"a divisor of the {num_heads} query heads")
    head_dim = fields.optional_count("head_dim", "attention_head_dim")
    if head_dim is None:
        if hidden_size % num_heads:
            raise fields.wrong("num_attention_heads", f"a divisor of hidden_size {hidden_size}, as there is no head_dim")
        head_dim = hidden_size // num_heads
    return Heads(num_heads, num_kv_heads, head_dim)


def attention(
    heads: Heads,
    *,
    window: int | None = None,
    chunked: bool = False,
    qkv_bias: bool = False,
    output_bias: bool = False,
    sinks: bool = False,
    query_gate: bool = False,
    output_gate: bool = False,
    qk_norm: QkNorm = "none",
    value_head_dim: int | None = None,
) -> Attention:
    """One attention layer; a norm is either one vector of the width of a head, or one for all heads together."""
    norms = {"none": 0, "per_head": 2, "per_width": heads.num_heads + heads.num_kv_heads}[qk_norm]
    return Attention(
        num_heads=heads.num_heads,
        num_kv_heads=heads.num_kv_heads,
        key_head_dim=heads.head_dim,
        value_head_dim=value_head_dim or heads.head_dim,
        window_tokens=window,
        window_kind="chunked" if chunked and window else "sliding",
        qkv_bias=qkv_bias,
        output_bias=output_bias,
        sinks=sinks,
        query_gate=query_gate,
        output_gate=output_gate,
        num_qk_norm_params=norms * heads.head_dim,
    )


def read_window(fields: ConfigFields, name: str = "sliding_window") -> int | None:
    """Length of the sliding window [tokens]; None when there is none, or when it is no shorter than the context."""
    window = fields.optional_count(name, minimum=0) or None
    longest = max((size for key in POSITIONS if (size := fields.optional_count(key)) is not None), default=None)
    return None if window is None or (longest is not None and window >= longest) else window


def read_layer_types(
    fields: ConfigFields, length: int, *, default: Sequence[str], allowed: tuple[str, ...] = (FULL, SLIDING)
) -> Sequence[str]:
    """The kind of every layer's mixer."""
    given = fields.texts("layer_types", allowed=allowed, length=length)
    return default if given is None else given


def every_nth_full(length: int, period: int, *, others: str = SLIDING) -> list[str]:
    """Every `period`-th layer is full attention (0: none)."""
    return [FULL if period and (index + 1) % period == 0 else others for index in range(length)]


def read_latent_attention(fields: ConfigFields, *, indexer: Indexer | None = None, output_gate: bool = False) -> LatentAttention:
    """Multi-head latent attention."""
    num_heads = fields.count("num_attention_heads")
    if fields.count("num_key_value_heads", default=num_heads) != num_heads:
        raise fields.unsupported("num_key_value_heads", f"{num_heads}, as latent attention has one key per query head")
    fields.require("attention_bias", False)
    nope, rope = fields.count("qk_nope_head_dim"), fields.count("qk_rope_head_dim", minimum=0)
    if fields.count("qk_head_dim", default=nope + rope) != nope + rope:
        raise fields.wrong("qk_head_dim", f"qk_nope_head_dim + qk_rope_head_dim = {nope + rope}")
    fields.skip("head_dim")
    return LatentAttention(
        num_heads=num_heads,
        q_lora_rank=fields.optional_count("q_lora_rank"),
        kv_lora_rank=fields.count("kv_lora_rank"),
        qk_nope_head_dim=nope,
        qk_rope_head_dim=rope,
        v_head_dim=fields.count("v_head_dim"),
        output_gate=output_gate,
        indexer=indexer,
    )


def read_indexer(fields: ConfigFields) -> Indexer:
    """The indexer of DeepSeek sparse attention."""
    return Indexer(
        num_heads=fields.count("index_n_heads"),
        head_dim=fields.count("index_head_dim"),
        num_selected=fields.count("index_topk"),
        pool_tokens=fields.count("index_kpool", default=1),
    )
