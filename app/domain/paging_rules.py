"""How an engine cuts its KV memory into blocks, as data: one value per engine and range of versions."""

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from app.domain.attention import Count
from app.domain.value import Given

Factor = Annotated[float, Field(ge=0, le=1000)]


class PagingRules(Given):
    """How KV memory is cut into blocks and what one sequence reserves."""

    paged: bool = True
    """Blocks of `block_size_tokens`; else exact cells."""
    windows: bool = True
    """Windowed layers keep their window only; else the whole length."""
    chunked_windows: bool = True
    """The same for chunked local attention."""
    window_model_types: tuple[str, ...] = ()
    """Beginnings of `model_type` of the models whose windows the engine keeps apart, where it lists them; none: all models."""
    num_window_batches: Count = 1
    """Steps of max_num_batched_tokens that a window keeps beside itself."""
    group_padding_ratio: Annotated[float, Field(ge=1, le=10)] = 1
    """Groups take the size of the largest kind while it is below this many times the smallest kind."""
    tokens_line: Literal["pool", "concurrency"] = "pool"
    """Meaning of the printed token count: blocks // groups x block, or concurrency x max_model_len."""
    num_state_blocks: Count = 1
    """Blocks of recurrent state per sequence and group."""
    num_state_blocks_prefix_caching: Count = 2
    """The same with prefix caching of recurrent state."""
    state_prefix_caching: bool = False
    """Prefix caching of recurrent models is on unless it is switched off."""
    speculative_state_blocks: bool = False
    """Each draft token adds a state block per sequence and group."""
    state_in_blocks: bool = True
    """Recurrent state lives in blocks; else it is allocated beside them, for every sequence that may run."""
    wide_state_model_types: tuple[str, ...] = ()
    """Beginnings of `model_type` of state space models whose checkpoints ask for single precision; others keep 16 bits."""
    compressed_tuples: bool = False
    """Compressed attention: every group has a page of each size of the history for each of its layers; else pages lie side by side."""
    hybrid_alignment_tokens: PositiveInt = 16
    """Blocks of hybrids are a multiple of this."""
    latent_alignment_tokens: PositiveInt = 16
    """The same beside latent attention."""
    latent_cache: bool = True
    """Latent attention stores the latent; else whole keys and values padded to 256 elements."""
    sparse_latent_scales: bool = True
    """Sparse latents in 8 bits keep scales and a 16-bit rotary key beside them; else all elements have 8 bits."""
    window_pool_ratio: Factor | None = None
    """Tokens of the pool of windowed layers / tokens of the pool of full layers, where both are sized ahead."""
    state_pool_ratio: Factor | None = None
    """Memory of recurrent state / memory of the KV cache, where both are sized ahead; without prefix caching and with a given number of
    sequences, the states of these in its place."""
    window_rounding_tokens: PositiveInt = 1
    """Cells of windowed layers are rounded up to a multiple of this."""
    default_block_tokens: PositiveInt = 16
    """Tokens of a block where the caller does not say."""
    latent_block_tokens: PositiveInt | None = None
    """The same for models whose layers all cache a latent; None: as for others."""
    num_slots: PositiveInt = 1
    """Sequences whose windows are allocated when the caller does not say."""
    cells_by_slot: bool = False
    """Slots whose number the caller gives have cells of their own, a part of the context each; else all share the cells."""
