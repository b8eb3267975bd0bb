"""How an engine cuts its KV memory into blocks, and how many of them one sequence reserves."""

import math
from typing import NamedTuple, Protocol

from app.domain.layer_kinds import LayerKind
from app.domain.paging_rules import PagingRules

PAGE_SOURCE = "https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/v1/core/kv_cache_utils.py (groups of layers, blocks per request)"


class Pool(Protocol):
    """KV memory of one engine rank in the engine's own units; memory in bytes of the fullest accelerator."""

    @property
    def block_size_tokens(self) -> int:
        """Tokens of the smallest block."""

    def num_blocks(self, kv_bytes: int) -> int | None:
        """Blocks of the pool; None where memory is not cut into blocks."""

    def request_bytes(self, tokens: float) -> int:
        """Memory that one sequence of `tokens` tokens reserves [bytes]."""

    def concurrency(self, kv_bytes: int, tokens: float) -> float:
        """Sequences of `tokens` tokens that the pool holds, not rounded."""

    def capacity_tokens(self, kv_bytes: int, length: int) -> int:
        """Token count as the engine prints it, for sequences of at most `length` tokens."""


class PageGroup(NamedTuple):
    """Layers that share one block table."""

    kind: LayerKind
    block_tokens: int


class PagedPool(NamedTuple):
    """Pages of groups of layers; the same page serves any group."""

    block_size_tokens: int
    groups: tuple[PageGroup, ...]
    num_group_layers: int
    """Layers of a group on one pipeline stage."""
    page_bytes: float
    """One page of one layer [bytes]."""
    window_batch_tokens: int
    """Tokens that a window keeps beside itself."""
    num_state_blocks: int
    """State blocks per sequence and group."""
    tokens_line: str
    num_context_ranks: int = 1
    """Ranks over which the tokens of full layers are spread."""
    caches_prefixes: bool = True
    """Blocks of a common beginning are found again; off for recurrent states where the engine leaves it off."""

    @property
    def bytes_per_block(self) -> float:
        """One block over the layers of a group: layers x page [bytes]."""
        return self.num_group_layers * self.page_bytes

    def num_blocks(self, kv_bytes: int) -> int:
        """floor(kv_bytes / (layers per group x page))."""
        return int(kv_bytes // self.bytes_per_block)

    def request_blocks(self, tokens: float) -> int:
        """Blocks of one sequence, summed over the groups.

        full: ceil(ceil(L / context ranks) / block); sliding: ceil(min(window - 1 + F, L) / block) + 1; chunked:
        ceil(min(window + F, L) / block), F the tokens of the steps in flight; state: a fixed number.
        """
        total = 0
        for group in self.groups:
            kind, reach = group.kind, tokens
            if kind.kind == "state":
                total += self.num_state_blocks
                continue
            if kind.kind == "full":
                reach = math.ceil(tokens / self.num_context_ranks)
            if kind.kind == "sliding":
                reach = min(kind.window_tokens - 1 + self.window_batch_tokens, tokens)
            elif kind.kind == "chunked":
                reach = min(kind.window_tokens + self.window_batch_tokens, tokens)
            total += math.ceil(reach / group.block_tokens) + (kind.kind == "sliding")
        return total

    def shared_blocks(self, tokens: int) -> int:
        """Blocks of a common beginning of `tokens` tokens, a multiple of all blocks, over the groups of full layers."""
        return sum(tokens // (group.block_tokens * self.num_context_ranks) for group in self.groups if group.kind.kind == "full")

    def request_bytes(self, tokens: float) -> int:
        """Blocks of one sequence x bytes of a block [bytes]."""
        return math.ceil(self.request_blocks(tokens) * self.bytes_per_block)

    def concurrency(self, kv_bytes: int, tokens: float) -> float:
        """Blocks of the pool / blocks of one sequence."""
        return self.num_blocks(kv_bytes) / self.request_blocks(tokens)

    def capacity_tokens(self, kv_bytes: int, length: int) -> int:
        """pool: blocks // groups x smallest block x context ranks; concurrency: int(concurrency x max_model_len)."""
        if self.tokens_line == "concurrency":
            return int(self.concurrency(kv_bytes, length) * length)
        return self.num_blocks(kv_bytes) // len(self.groups) * self.block_size_tokens * self.num_context_ranks


def paged_pool(
    kinds: list[LayerKind],
    rules: PagingRules,
    *,
    block_size_tokens: int,
    pp: int,
    max_num_batched_tokens: int,
    prefix_caching: bool | None,
    num_draft_tokens: int,
    num_context_ranks: int = 1,
) -> PagedPool | None:
    """Groups and pages of a model's layers; None for a model without any cache.

    Layers of full attention only form one group whatever their sizes, the page is their sum. Otherwise every kind is cut into groups of
    g layers (g = the largest kind while it is below `group_padding_ratio` times the smallest, else the smallest) and the pages are made
    equal: blocks of smaller ones hold more tokens, recurrent state is padded to the page of attention, whose block grows to hold it.
    """
    if not rules.state_in_blocks:
        kinds = [kind for kind in kinds if kind.kind != "state"]
    if not kinds:
        return None
    attention = [kind for kind in kinds if kind.kind != "state"]
    block = block_size_tokens
    caching = rules.state_prefix_caching if prefix_caching is None else prefix_caching
    state_blocks = rules.num_state_blocks_prefix_caching if caching else rules.num_state_blocks
    state_blocks += num_draft_tokens if rules.speculative_state_blocks else 0
    if all(kind.kind == "full" for kind in kinds):
        page = sum(kind.num_layers * kind.bytes_per_token for kind in kinds) / max(kind.num_layers for kind in kinds) * block
        whole = PageGroup(kinds[0], block)
        layers = -(-max(kind.num_layers for kind in kinds) // pp)
        return PagedPool(block, (whole,), layers, page, 0, state_blocks, rules.tokens_line, num_context_ranks)
    state = max((kind.state_bytes for kind in kinds), default=0)
    if state and attention:
        block = hybrid_block_tokens(state, attention[0], rules, block)
    page = max((kind.bytes_per_token * block for kind in attention), default=float(state))
    most, fewest = max(kind.num_layers for kind in kinds), min(kind.num_layers for kind in kinds)
    size = most if most < rules.group_padding_ratio * fewest else fewest
    groups: list[PageGroup] = []
    for kind in kinds:
        own = block if kind.kind == "state" else block * max(1, int(page // (kind.bytes_per_token * block)))
        groups += [PageGroup(kind, own)] * -(-kind.num_layers // size)
    window = rules.num_window_batches * max_num_batched_tokens
    smallest = min(group.block_tokens for group in groups)
    layers, caching = -(-size // pp), caching or not state
    return PagedPool(smallest, tuple(groups), layers, page, window, state_blocks, rules.tokens_line, num_context_ranks, caching)


def hybrid_block_tokens(state_bytes: int, attention: LayerKind, rules: PagingRules, block_size_tokens: int) -> int:
    """Block of a hybrid model: the least multiple of the alignment whose attention page holds the state of one layer [tokens].

    >>> from app.domain.paging_rules import PagingRules
    >>> hybrid_block_tokens(801_792, LayerKind("full", 16, 1024), PagingRules(), 16)
    784
    """
    align = rules.latent_alignment_tokens if attention.latent else rules.hybrid_alignment_tokens
    return max(block_size_tokens, align * math.ceil(state_bytes / (align * attention.bytes_per_token)))


class CellPool(NamedTuple):
    """Cells or tokens of a pool that is sized by bytes per token alone: SGLang, TensorRT-LLM, llama.cpp."""

    block_size_tokens: int
    bytes_per_token: float
    """Full layers, and windowed ones where their pool is a share of the other [bytes/token]."""
    windows: tuple[tuple[float, int], ...]
    """(bytes per token, cells of one slot at most) of windowed layers with room of their own."""
    window_rounding_tokens: int
    state_bytes: int
    """State of all slots of one sequence [bytes]."""
    state_pool_ratio: float
    """Memory of recurrent state / memory of the KV cache where both are sized ahead; 0 elsewhere."""
    fixed_length: bool
    """The pool is exactly one context."""
    fixed_state_bytes: int = 0
    """State of all sequences that may run, where their number is given and states are sized apart [bytes]."""
    num_slots: int = 1
    """Slots that divide the context between them, each with its own cells."""

    def state_pool_bytes(self, kv_bytes: int) -> int:
        """Of the pool, what states take apart from keys and values: sequences x state, or kv ratio / (1 + ratio) [bytes]."""
        if self.fixed_state_bytes:
            return min(self.fixed_state_bytes, kv_bytes)
        return kv_bytes - int(kv_bytes / (1 + self.state_pool_ratio))

    def whole_bytes(self, token_bytes: int) -> int:
        """The pool whose keys and values take `token_bytes`: `state_pool_bytes` backwards [bytes]."""
        return token_bytes + (self.fixed_state_bytes or round(token_bytes * self.state_pool_ratio))

    def num_blocks(self, kv_bytes: int) -> int | None:
        """None: sized in tokens."""
        return None

    @property
    def counts_tokens(self) -> bool:
        """Whether the pool is a number of tokens, whatever their sequences."""
        return not self.windows and (not self.state_bytes or bool(self.fixed_state_bytes))

    def request_bytes(self, tokens: float) -> int:
        """bytes per token x L + sum of windows x slots x min(L / slots, cells) + state, times 1 + the share of state pools [bytes]."""
        total = self.bytes_per_token * tokens + self.state_bytes
        for per_token, cells in self.windows:
            rounding = self.window_rounding_tokens
            total += self.num_slots * per_token * math.ceil(min(cells, tokens / self.num_slots) / rounding) * rounding
        return math.ceil(total * (1 + self.state_pool_ratio))

    def concurrency(self, kv_bytes: int, tokens: float) -> float:
        """Pool / memory of one sequence; keys and values alone where the states of all sequences are allocated."""
        needed = self.request_token_bytes(tokens)
        return self.token_bytes(kv_bytes) / needed if needed else 0.0

    def token_bytes(self, kv_bytes: int) -> int:
        """What requests divide between them: the pool without the states of all sequences where those are allocated [bytes]."""
        return kv_bytes - self.state_pool_bytes(kv_bytes) if self.fixed_state_bytes else kv_bytes

    def request_token_bytes(self, tokens: float) -> int:
        """What one sequence takes of `token_bytes` [bytes]."""
        return self.request_bytes(tokens) - (self.state_bytes if self.fixed_state_bytes else 0)

    def capacity_tokens(self, kv_bytes: int, length: int) -> int:
        """One context where the pool is sized for it; else floor((kv - states sized apart) / bytes per token), whole blocks."""
        if self.fixed_length:
            return length if kv_bytes >= self.request_bytes(length) else 0
        if self.counts_tokens:
            tokens = int((kv_bytes - self.state_pool_bytes(kv_bytes)) // self.bytes_per_token) if self.bytes_per_token else 0
            return tokens // self.block_size_tokens * self.block_size_tokens
        return int(self.concurrency(kv_bytes, length) * length)


def cell_pool(
    kinds: list[LayerKind],
    rules: PagingRules,
    *,
    block_size_tokens: int,
    pp: int,
    max_num_batched_tokens: int,
    num_seqs: int | None = None,
    num_states: int | None = None,
) -> CellPool:
    """A pool of tokens or cells; see `CellPool` for what is in it. Layers are those of the fullest pipeline stage.

    `num_seqs` are the sequences that may run, where the caller says; `num_states` those whose states are allocated ahead in place of
    `state_pool_ratio`, where that is given.
    """
    if not rules.state_in_blocks:
        kinds = [kind for kind in kinds if kind.kind != "state"]
    stage = {kind: -(-kind.num_layers // pp) for kind in kinds}
    full = sum(count * kind.bytes_per_token for kind, count in stage.items() if kind.kind == "full")
    windowed = [(kind, count) for kind, count in stage.items() if kind.window_tokens]
    state = sum(count * kind.state_bytes for kind, count in stage.items())
    windows: tuple[tuple[float, int], ...] = ()
    by_slot = rules.cells_by_slot and num_seqs is not None
    if rules.window_pool_ratio is not None:
        full += rules.window_pool_ratio * sum(count * kind.bytes_per_token for kind, count in windowed)
    else:
        shared = 1 if rules.paged or by_slot else num_seqs or rules.num_slots
        batch = max_num_batched_tokens if not rules.paged else 0
        windows = tuple((count * kind.bytes_per_token, kind.window_tokens * shared + batch) for kind, count in windowed)
    sized_apart = bool(state) and rules.state_pool_ratio is not None
    ahead = rules.state_pool_ratio or 0.0 if sized_apart and num_states is None else 0.0
    return CellPool(
        block_size_tokens if rules.paged else 1,
        full,
        windows,
        rules.window_rounding_tokens,
        0 if ahead else state,
        ahead,
        not rules.paged,
        state * (num_states or 0) if sized_apart else 0,
        num_seqs or 1 if by_slot else 1,
    )
