"""The compute buffer of llama.cpp: tensors of one micro-batch, reserved at start for the widest graph."""

from typing import Annotated

from pydantic import Field, PositiveInt

from app.domain.llm import Llm
from app.domain.value import Given

ELEMENT_BYTES = 4
"""Tensors between layers are single precision: https://github.com/ggml-org/llama.cpp/blob/master/src/llama-graph.cpp."""
CELLS_ROUNDING = 256
"""Cells of a context are padded to a multiple of this: https://github.com/ggml-org/llama.cpp/blob/master/src/llama-context.cpp."""
WIDENED_BYTES = 2
"""A quantised cache is widened to this per element. Printed for Qwen3.5-4B: https://github.com/unslothai/unsloth/pull/6718."""
LIVE_HIDDEN = 3
"""Residual streams alive beside the widest tensors of a layer (the input of the layer, what attention adds, the normalised one).
2 in starts of Qwen3.5-9B and Qwen3.8-27B, 4 in those of Mistral-7B without flash attention."""
LIVE_HIDDEN_AT_HEAD = 2
"""The same at the output layer."""
LIVE_INNER_DENSE = 3
"""Gate, up and their product."""
LIVE_MOE = 2
"""Outputs of every chosen expert, before and after they are weighted, and as many of its inner tensors."""


class ComputeBuffer(Given):
    """What a build reserves; bytes per entry of the mask are those per (query, cell)."""

    mask_bytes: Annotated[int, Field(ge=2, le=4)]
    """Attention mask as the first device receives it."""
    converted_mask_bytes: Annotated[int, Field(ge=0, le=2)] = 0
    """A further mask in 16 bits, made on the first device for flash attention."""
    score_bytes: Annotated[int, Field(ge=0, le=4)] = 0
    """Attention scores per (head, query, cell); 0 with flash attention."""
    every_token_has_logits: bool
    """Logits of every token of the micro-batch are reserved; else those of one token per sequence."""
    dequantizes_cache: bool = False
    """Keys and values of one layer are widened to 16 bits for flash attention when the cache holds fewer."""
    num_input_copies: PositiveInt = 4
    """Copies of the inputs of each device where a model is split by layers, so that micro-batches follow each other. Source:
    https://github.com/ggml-org/llama.cpp/blob/master/ggml/src/ggml-backend.cpp (GGML_SCHED_MAX_COPIES)."""


def compute_buffer_bytes(
    llm: Llm,
    model: ComputeBuffer,
    *,
    micro_batch_tokens: int,
    num_seqs: int,
    length_tokens: int,
    num_devices: int,
    narrow_cache: bool = False,
) -> tuple[int, int] | None:
    """(bytes at the output layer, bytes in the widest layer) of the devices that hold them; None where the shape is not known.

    head = 4 R V + 2 x 4 U H, R = U or the sequences, U the micro-batch, V the vocabulary, H the hidden width; layer = mask + conversion
    + 4 U x (3 H + widest), widest = 3 I dense, 2 k H + 2 k I for k experts per token, heads x cells scores + 2 heads x key width without
    flash attention; mask = U x cells x bytes of an entry; a cache of fewer than 16 bits (`narrow_cache`) adds cells x elements of one layer
    x 2 where the build widens it. Devices of a split model keep c copies of their inputs, the mask and the
    residual stream, through the whole graph; a single one reuses them before the output layer. Validity: all layers on accelerators;
    the allocator's fragmentation adds up to one mask. Printed sizes: `tests/domain/test_compute_buffer.py`. Source:
    https://github.com/ggml-org/llama.cpp/blob/master/src/llama-context.cpp (sched_reserve).
    """
    hidden = llm.hidden_size
    if hidden is None or llm.layer_groups is None:
        return None
    tokens = min(micro_batch_tokens, length_tokens)
    cells = -(-length_tokens // CELLS_ROUNDING) * CELLS_ROUNDING
    stream, entries = ELEMENT_BYTES * tokens * hidden, tokens * cells
    rows = tokens if model.every_token_has_logits else min(tokens, num_seqs)
    head = ELEMENT_BYTES * rows * (llm.vocab_size or 0) + LIVE_HIDDEN_AT_HEAD * stream
    layer = LIVE_HIDDEN * stream + ELEMENT_BYTES * tokens * max(_inner_width(llm, hidden), _attention_width(llm, model, cells))
    layer += model.converted_mask_bytes * entries
    if narrow_cache and model.dequantizes_cache:
        layer += WIDENED_BYTES * cells * _cached_width(llm)
    if num_devices == 1:
        return head, layer + model.mask_bytes * entries
    received = (model.converted_mask_bytes or model.mask_bytes) * entries
    return (
        head + model.num_input_copies * (received + stream),
        layer + model.num_input_copies * (model.mask_bytes * entries + stream),
    )


def _inner_width(llm: Llm, hidden: int) -> int:
    """Elements per token of the widest feed-forward part."""
    widest = 0
    for group in llm.layer_groups or ():
        for part in group.feed_forward:
            if part.kind == "moe":
                width = part.num_experts_per_token * LIVE_MOE * (hidden + part.intermediate_size)
            else:
                width = LIVE_INNER_DENSE * part.intermediate_size
            widest = max(widest, width)
    return widest


def _attention_width(llm: Llm, model: ComputeBuffer, cells: int) -> int:
    """Elements per token of scores, queries and their results where scores are kept."""
    if not model.score_bytes:
        return 0
    mixers = [group.mixer for group in llm.layer_groups or () if group.mixer is not None and group.mixer.kind == "attention"]
    return max((mixer.num_heads * (cells + 2 * mixer.key_head_dim) for mixer in mixers), default=0)


def _cached_width(llm: Llm) -> int:
    """Elements of keys and values per token of the layer with most."""
    mixers = [group.mixer for group in llm.layer_groups or () if group.mixer is not None and group.mixer.kind == "attention"]
    return max((mixer.num_kv_heads * (mixer.key_head_dim + mixer.value_head_dim) for mixer in mixers), default=0)
