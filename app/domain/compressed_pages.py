"""Pages of compressed attention: window, compressed history, index keys and the compressors' own state, in one block of all layers.

Figures of vLLM 0.27.1, where each is set:
https://github.com/vllm-project/vllm/blob/v0.27.1/vllm/models/deepseek_v4/attention.py (history and index keys),
https://github.com/vllm-project/vllm/blob/v0.27.1/vllm/models/deepseek_v4/compressor.py (state of the compressors),
https://github.com/vllm-project/vllm/blob/v0.27.1/vllm/v1/attention/backends/mla/sparse_swa.py (window),
https://github.com/vllm-project/vllm/blob/v0.27.1/vllm/v1/core/kv_cache_utils.py (groups and the size of a block).
"""

import math
from collections.abc import Mapping, Sequence

from app.domain.attention import CompressedAttention
from app.domain.layer_kinds import LayerKind
from app.domain.llm import Llm
from app.domain.paging import PagedPool, PageGroup
from app.domain.paging_rules import PagingRules

ALIGNMENT_BYTES = 576
"""Pages are rounded up to a multiple of this."""
HISTORY_BLOCK_TOKENS = 256
"""Tokens of one block of the compressed history and of its index keys."""
WINDOW_BLOCK_TOKENS = 64
"""Tokens of one block of the uncompressed window."""
ROTARY_ELEMENTS = 64
"""Elements of an entry that stay in 16 bits; the others take 8."""
ENTRY_SCALE_BYTES = 8
"""Scales of one entry, padded."""
INDEX_SCALE_BYTES = 4
"""Scale of one index key, per 128 elements."""
STATE_BLOCK_TOKENS = {True: 4, False: 8}
"""Tokens of one block of compressor state, with overlapping compression (where there is an indexer) and without."""
STATE_ELEMENT_BYTES = 4
"""Compressor state is single precision."""


def compressed_pool(llm: Llm, rules: PagingRules, *, pp: int, max_num_batched_tokens: int, with_drafts: bool) -> PagedPool | None:
    """The pool of a model whose layers all are compressed attention; None for another model.

    One block holds a page of every history layer. Windows and compressor states are cut into groups of about as many layers that share
    the block; a request takes ceil(L / 256) blocks of history and, per group, those of its window and of the steps in flight. Where
    groups are made of tuples (`compressed_tuples`), a block is one page of every size of the history for each layer of the largest group.
    """
    mixers = [(group.mixer, group.num_layers) for group in llm.layer_groups or () if isinstance(group.mixer, CompressedAttention)]
    if not mixers or len(mixers) != len(llm.layer_groups or ()):
        return None
    history: dict[int, int] = {}  # page -> layers
    states: dict[tuple[int, int], dict[int, int]] = {}  # (block, window) -> page -> layers
    windows = 0
    for mixer, layers in mixers:
        windows += layers
        if not mixer.compress_ratio:
            continue
        entries = max(1, HISTORY_BLOCK_TOKENS // mixer.compress_ratio)
        _add(history, entries * _entry_bytes(mixer.head_dim), layers)
        overlap = mixer.indexer is not None
        shape = STATE_BLOCK_TOKENS[overlap], (1 + overlap) * mixer.compress_ratio
        widths = [mixer.head_dim]
        if mixer.indexer is not None:
            _add(history, entries * (mixer.indexer.head_dim + INDEX_SCALE_BYTES * math.ceil(mixer.indexer.head_dim / 128)), layers)
            widths.append(mixer.indexer.head_dim)
        for width in widths:
            _add(states.setdefault(shape, {}), shape[0] * 2 * (1 + overlap) * width * STATE_ELEMENT_BYTES, layers)
    if not history:
        return None
    first = mixers[0][0]
    windows += (llm.num_mtp_layers or 0) if with_drafts else 0
    tuples = [max(history.values()), windows, *(max(pages.values()) for pages in states.values())]
    size = _group_size(tuples)
    window_page = _aligned(WINDOW_BLOCK_TOKENS * _entry_bytes(first.head_dim))
    if rules.compressed_tuples:
        stride = sum(history) * max(tuples[0], *(math.ceil(count / -(-count // size)) for count in tuples[1:]))
    else:
        stride = _packed(history, min(size, windows) * window_page, states, size)
    groups = [PageGroup(LayerKind("full", max(history.values()), stride / HISTORY_BLOCK_TOKENS), HISTORY_BLOCK_TOKENS)]
    kind = LayerKind("sliding", windows, window_page / WINDOW_BLOCK_TOKENS, first.window_tokens)
    groups += [PageGroup(kind, WINDOW_BLOCK_TOKENS)] * -(-windows // size)
    for (block, reach), pages in states.items():
        kind = LayerKind("sliding", max(pages.values()), sum(pages) / block, reach)
        groups += [PageGroup(kind, block)] * -(-max(pages.values()) // size)
    window = rules.num_window_batches * max_num_batched_tokens
    return PagedPool(HISTORY_BLOCK_TOKENS, tuple(groups), 1, stride / pp, window, 0, rules.tokens_line)


def _packed(history: Mapping[int, int], window_bytes: int, states: Mapping[tuple[int, int], Mapping[int, int]], size: int) -> int:
    """One block that holds the pages of any one group side by side [bytes]."""
    return max(
        sum(page * layers for page, layers in history.items()),
        window_bytes,
        *(sum(page * min(size, layers) for page, layers in pages.items()) for pages in states.values()),
    )


def _entry_bytes(head_dim: int) -> int:
    """8-bit elements, 16-bit rotary part, scales.

    >>> _entry_bytes(512)
    584
    """
    return head_dim - ROTARY_ELEMENTS + 2 * ROTARY_ELEMENTS + ENTRY_SCALE_BYTES


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def _add(pages: dict[int, int], size: int, layers: int) -> None:
    pages[_aligned(size)] = pages.get(_aligned(size), 0) + layers


def _group_size(counts: Sequence[int]) -> int:
    """Layers of a group: at least those of the history, with the least padding over all; the largest where several pad as little.

    >>> _group_size([21, 43, 21, 20])
    22
    """
    return min(range(counts[0], max(counts) + 1), key=lambda size: (sum(-count % size for count in counts), -size))
