"""The share of the memory that SGLang gives to weights and KV cache when the caller does not say."""

from typing import Annotated

from pydantic import Field, PositiveInt

from app.domain.value import Given

Bytes = Annotated[int, Field(ge=0, le=10**15)]
PREFILL_SIZES: tuple[int, ...] = (
    *range(4, 33, 4),
    *range(48, 257, 16),
    *range(288, 513, 32),
    *range(576, 1025, 64),
    *range(1280, 4097, 256),
)
"""Token counts for which prefill is captured; above, one per STEP_ABOVE.
https://github.com/sgl-project/sglang/blob/v0.5.23/python/sglang/srt/arg_groups/cuda_graph_hook.py."""
STEP_ABOVE = 512


class StaticReserve(Given):
    """Memory that an engine leaves for everything beside weights and KV cache when it derives its own fraction."""

    fixed_bytes: Bytes
    """Whatever the deployment [bytes]."""
    bytes_per_chunk_token: Bytes
    """Per token of a prefill chunk."""
    least_chunk_tokens: PositiveInt
    """Chunks below this count as this."""
    bytes_per_gpu_of_layout: Bytes
    """Per tp x pp."""
    bytes_per_graph_seq: Bytes
    """Per sequence of the largest captured batch."""
    bytes_per_graph_seq_and_dp: Bytes = 0
    """Per sequence of the largest captured batch and attention data-parallel rank, with more than one."""
    num_large_graph_seqs: PositiveInt = 300
    """Largest captured batch above which each of these takes half as much again."""
    bytes_per_prefill_graph: Bytes = 0
    """Per token count for which prefill is captured, without latent attention."""
    latent_prefill_graphs_bytes: Bytes = 0
    """The same in all with latent attention [bytes]."""
    speculative_bytes: Bytes = 0
    """With a draft model or layers, where these are not measured [bytes]."""
    least_on_large_bytes: Bytes
    """Least reserve on large devices, before speculation [bytes]."""
    large_memory_bytes: Bytes
    """Devices above this are large [bytes]."""


class FractionByGpus(Given):
    """Default fraction of replicas of at least so many accelerators."""

    num_gpus: PositiveInt
    """tp x pp, at least."""
    fraction_ratio: Annotated[float, Field(gt=0, le=1)]
    """Share of the memory."""


def reserve_bytes(
    reserve: StaticReserve, *, memory_bytes: int, ranks: int, dp: int, chunk_tokens: int, graph_seqs: int, latent: bool, drafts: bool
) -> int:
    """What stays outside the fraction: fixed + c chunk + g ranks + s graph_seqs (1 + dp terms) + prefill graphs + speculation [bytes].

    At least `least_on_large_bytes` on a large device. Tokens, sequences and counts in. Source:
    https://github.com/sgl-project/sglang/blob/v0.5.23/python/sglang/srt/arg_groups/memory_hook.py.
    """
    kept = reserve.fixed_bytes + reserve.bytes_per_chunk_token * max(chunk_tokens, reserve.least_chunk_tokens)
    kept += reserve.bytes_per_gpu_of_layout * ranks + reserve.bytes_per_graph_seq * graph_seqs
    if dp > 1:
        half_more = 1.5 if graph_seqs > reserve.num_large_graph_seqs else 1
        kept += int(reserve.bytes_per_graph_seq_and_dp * half_more) * graph_seqs * dp
    kept += reserve.latent_prefill_graphs_bytes if latent else reserve.bytes_per_prefill_graph * num_prefill_graphs(chunk_tokens)
    if memory_bytes > reserve.large_memory_bytes:
        kept = max(kept, reserve.least_on_large_bytes)
    return kept + (reserve.speculative_bytes if drafts else 0)


def num_prefill_graphs(chunk_tokens: int) -> int:
    """Token counts up to a chunk for which prefill is captured.

    >>> num_prefill_graphs(2048), num_prefill_graphs(8192)
    (42, 58)
    """
    above: int = max(0, (chunk_tokens - PREFILL_SIZES[-1]) // STEP_ABOVE)
    return sum(size <= chunk_tokens for size in PREFILL_SIZES) + above
