"""What one sequence reserves in an engine's own units, beside what its keys and values need."""

from collections.abc import Sequence

from app.domain.deployment import Deployment
from app.domain.engine import EngineMemory
from app.domain.engine_budget import pool_of
from app.domain.engine_defaults import Settings
from app.domain.engine_working import request_steps
from app.domain.kv_cache import kv_cost, resolve_kv_format
from app.domain.llm import Llm
from app.domain.paging import PagedPool
from app.domain.provenance import Step
from app.domain.value import Value


class KvInEngine(Value):
    """KV cache that an engine reserves for one sequence on one accelerator."""

    context_tokens: int
    """Length of the sequence, prompt and output together [tokens]."""
    reserved_bytes_per_gpu: int
    """Blocks of all groups of layers, windows with the steps in flight, padded pages and recurrent state [bytes]."""
    needed_bytes_per_gpu: int
    """What keys, values and state need without blocks [bytes]."""
    num_blocks: int | None
    """Blocks over all groups of layers; None where the engine counts tokens."""


def kv_in_engine(
    llm: Llm, deployment: Deployment, engine: EngineMemory, context_tokens: Sequence[int], max_num_batched_tokens: int | None
) -> tuple[list[KvInEngine], list[Step]]:
    """One row per length, and the working of the longest; empty for a model whose layers are not known.

    The last class of devices decides where `max_num_batched_tokens`, which windows keep beside themselves, is not given.
    """
    usual = engine.defaults[-1]
    batched = max_num_batched_tokens or usual.max_num_batched_tokens
    kv_format = resolve_kv_format(llm, deployment.kv_cache)
    pool = pool_of(llm, engine, deployment, Settings(usual.max_num_seqs, batched, None, 0, frozenset()), kv_format)
    if pool is None:
        return [], []
    cost = kv_cost(llm, kv_format, tp=deployment.tp)
    rows = [
        KvInEngine(
            context_tokens=tokens,
            reserved_bytes_per_gpu=pool.request_bytes(tokens),
            needed_bytes_per_gpu=cost.sequence_bytes(tokens),
            num_blocks=pool.request_blocks(tokens) if isinstance(pool, PagedPool) else None,
        )
        for tokens in context_tokens
    ]
    return rows, request_steps(pool, max(context_tokens), "reserved_bytes_per_gpu", "num_reserved_blocks")
