"""Attention mixers of a transformer layer: each knows its parameters and what it caches per token.

Parameter formulas follow the layer definitions of the public implementations
(https://github.com/huggingface/transformers/tree/main/src/transformers/models); the catalog test recomputes every
bundled model with them.
"""

from typing import Annotated, Literal, NamedTuple

from pydantic import Field, PositiveInt

from app.domain.tensors import Tensor, matrices
from app.domain.value import Given

Count = Annotated[int, Field(ge=0)]


class LayerCache(NamedTuple):
    """What one layer keeps per sequence on one tensor-parallel rank, in elements (not bytes)."""

    per_token: float = 0
    """Key/value elements that every token of the context adds [elements/token]."""
    per_window_token: float = 0
    """Key/value elements per token that are dropped once `window_tokens` have passed [elements/token]."""
    window_tokens: int = 0
    """Length of the window of `per_window_token` [tokens]."""
    index_per_token: float = 0
    """Keys of a sparse-attention indexer [elements/token]."""
    state: int = 0
    """Recurrent state, independent of length [elements]."""
    convolution: int = 0
    """Convolution state, independent of length [elements]."""


class Indexer(Given):
    """Sparse-attention indexer: small keys of every token that choose which tokens are attended to."""

    num_heads: PositiveInt
    """Query heads of the indexer."""
    head_dim: PositiveInt
    """Width of an index key."""
    num_selected: PositiveInt | None = None
    """Tokens, or blocks where `block_tokens` is given, that are selected per query."""
    block_tokens: PositiveInt | None = None
    """Selection works on blocks of this many tokens."""
    pool_tokens: PositiveInt = 1
    """Index keys are pooled over this many tokens before they are stored."""

    @property
    def num_attended(self) -> int | None:
        """Cache entries that a query attends to at most; None when the selection is not known."""
        return None if self.num_selected is None else self.num_selected * (self.block_tokens or 1)


class Attention(Given):
    """Multi-head, grouped-query or multi-query attention, optionally with a window."""

    kind: Literal["attention"] = "attention"
    num_heads: PositiveInt
    """Query heads."""
    num_kv_heads: PositiveInt
    """Key/value heads: equal to `num_heads` for MHA, 1 for MQA, between for GQA."""
    key_head_dim: PositiveInt
    """Width of a query or key head."""
    value_head_dim: PositiveInt
    """Width of a value head."""
    window_tokens: PositiveInt | None = None
    """Tokens that stay visible; None is full attention."""
    window_kind: Literal["sliding", "chunked"] = "sliding"
    """A sliding window moves with each token, a chunked one starts anew."""
    qkv_bias: bool = False
    """Query, key and value projections have a bias."""
    output_bias: bool = False
    """The output projection has a bias."""
    sinks: bool = False
    """One learned attention sink per head."""
    query_gate: bool = False
    """The query projection also makes a gate of its own width."""
    output_gate: bool = False
    """A separate projection gates the output."""
    head_gate: bool = False
    """One gate per head."""
    key_is_value: bool = False
    """Values reuse the key projection (both are still cached)."""
    shares_kv: bool = False
    """The layer reads another layer's cache and has no key/value projections."""
    num_qk_norm_params: Count = 0
    """Parameters of the query and key norms."""
    indexer: Indexer | None = None
    """Sparse-attention indexer."""

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """Query, key and value projections as one tensor, gate, output projection; biases, sinks, norms; the indexer on every rank."""
        query, output = self.num_heads * self.key_head_dim, self.num_heads * self.value_head_dim
        key, value = self.num_kv_heads * self.key_head_dim, self.num_kv_heads * self.value_head_dim
        kv = 0 if self.shares_kv else hidden_size * (key + (0 if self.key_is_value else value))
        small = self.num_qk_norm_params + (query + key + value) * self.qkv_bias + hidden_size * self.output_bias
        small += self.num_heads * (self.sinks + hidden_size * self.head_gate)
        index = hidden_size * (self.indexer.num_heads + 1) * self.indexer.head_dim if self.indexer else 0
        return matrices(
            Tensor("attention", split=hidden_size * query * (2 if self.query_gate else 1), kv=kv, num_kv_heads=self.num_kv_heads),
            Tensor("attention", split=hidden_size * output * self.output_gate),
            Tensor("attention", split=output * hidden_size),
            Tensor("attention", whole=index),
            Tensor("small", whole=small + (2 * self.indexer.head_dim if self.indexer else 0)),
        )

    def num_params(self, hidden_size: int) -> int:
        """Parameters of the mixer."""
        return sum(tensor.num_params for tensor in self.tensors(hidden_size))

    def cache(self, tp: int = 1) -> LayerCache:
        """Keys and values of this layer on one rank: heads are divided by `tp`, below one head they are replicated."""
        if self.shares_kv:
            return LayerCache()
        heads = max(1, self.num_kv_heads // tp)
        elements = heads * (self.key_head_dim + self.value_head_dim)
        index = self.indexer.head_dim / self.indexer.pool_tokens if self.indexer else 0
        if self.window_tokens:
            return LayerCache(per_window_token=elements, window_tokens=self.window_tokens, index_per_token=index)
        return LayerCache(per_token=elements, index_per_token=index)


class LatentAttention(Given):
    """Multi-head latent attention: one compressed latent and one rotary key per token, the same on every rank.

    Source: https://arxiv.org/abs/2405.04434 section 2.1.
    """

    kind: Literal["latent_attention"] = "latent_attention"
    num_heads: PositiveInt
    """Query heads."""
    q_lora_rank: PositiveInt | None = None
    """Rank of the compressed query; None when queries are projected directly."""
    kv_lora_rank: PositiveInt
    """Width of the latent that is cached."""
    qk_nope_head_dim: PositiveInt
    """Head width without position."""
    qk_rope_head_dim: Count
    """Width of the rotary key that is cached beside the latent."""
    v_head_dim: PositiveInt
    """Head width of the values."""
    output_gate: bool = False
    """A separate projection gates the output."""
    indexer: Indexer | None = None
    """Sparse-attention indexer."""

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """Down projections and indexer, which every rank holds, and what heads divide: up projections, gate, output."""
        query = self.num_heads * (self.qk_nope_head_dim + self.qk_rope_head_dim)
        output = self.num_heads * self.v_head_dim
        rank, latent = self.q_lora_rank or 0, self.kv_lora_rank + self.qk_rope_head_dim
        small, index = rank + self.kv_lora_rank, 0
        if self.indexer:
            dim, pool = self.indexer.head_dim, self.indexer.pool_tokens
            index = (self.q_lora_rank or hidden_size) * self.indexer.num_heads * dim + hidden_size * (dim + self.indexer.num_heads)
            index += (hidden_size + pool) * dim if pool > 1 else 0
            small += 2 * dim
        return matrices(
            Tensor("attention", whole=hidden_size * (rank + latent)),
            Tensor("attention", split=(rank or hidden_size) * query),
            Tensor("attention", split=self.kv_lora_rank * self.num_heads * (self.qk_nope_head_dim + self.v_head_dim), expands_latent=True),
            Tensor("attention", split=hidden_size * output * self.output_gate),
            Tensor("attention", split=output * hidden_size),
            Tensor("attention", whole=index),
            Tensor("small", whole=small),
        )

    def num_params(self, hidden_size: int) -> int:
        """Parameters of the mixer."""
        return sum(tensor.num_params for tensor in self.tensors(hidden_size))

    def cache(self, tp: int = 1) -> LayerCache:
        """One latent and rotary key per token on every rank: tensor parallelism does not shrink them."""
        index = self.indexer.head_dim / self.indexer.pool_tokens if self.indexer else 0
        return LayerCache(per_token=self.kv_lora_rank + self.qk_rope_head_dim, index_per_token=index)


class CompressedAttention(Given):
    """Shared-key attention over a short window plus a compressed history (DeepSeek V4).

    Source: https://github.com/huggingface/transformers/tree/main/src/transformers/models/deepseek_v4.
    """

    kind: Literal["compressed_attention"] = "compressed_attention"
    num_heads: PositiveInt
    """Query heads."""
    head_dim: PositiveInt
    """Width of a head; key and value are the same vector."""
    q_lora_rank: PositiveInt
    """Rank of the compressed query."""
    num_output_groups: PositiveInt
    """Groups of the low-rank output projection."""
    output_lora_rank: PositiveInt
    """Rank of the output projection per group."""
    window_tokens: PositiveInt
    """Tokens that are kept uncompressed."""
    compress_ratio: Count
    """Tokens per compressed entry; 0 keeps the window only."""
    indexer: Indexer | None = None
    """Indexer over the compressed entries."""

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """Down projections, compressor and indexer, which every rank holds, and what heads divide: queries and grouped output."""
        dim, overlap = self.head_dim, 2 if self.indexer else 1
        compressor = overlap * dim * (2 * hidden_size + self.compress_ratio) if self.compress_ratio else 0
        small = self.q_lora_rank + dim + self.num_heads + (dim if self.compress_ratio else 0)
        if self.indexer:
            index = self.indexer.head_dim
            compressor += self.indexer.num_heads * (self.q_lora_rank * index + hidden_size)
            compressor += overlap * index * (2 * hidden_size + self.compress_ratio)
            small += index
        return matrices(
            Tensor("attention", whole=hidden_size * (self.q_lora_rank + dim)),
            Tensor("attention", split=self.q_lora_rank * self.num_heads * dim),
            Tensor("attention", split=self.num_heads * dim * self.output_lora_rank),
            Tensor("attention", split=self.num_output_groups * self.output_lora_rank * hidden_size),
            Tensor("attention", whole=compressor),
            Tensor("small", whole=small),
        )

    def num_params(self, hidden_size: int) -> int:
        """Parameters of the mixer."""
        return sum(tensor.num_params for tensor in self.tensors(hidden_size))

    def cache(self, tp: int = 1) -> LayerCache:
        """The window and the compressed history, the same on every rank."""
        per_token = self.head_dim / self.compress_ratio if self.compress_ratio else 0
        index = self.indexer.head_dim / self.compress_ratio if self.indexer and self.compress_ratio else 0
        return LayerCache(per_token=per_token, per_window_token=self.head_dim, window_tokens=self.window_tokens, index_per_token=index)
