"""KV memory of one engine rank that running requests share, or may not use: a common prompt beginning, and a reserve for cached ones."""

import math
from typing import NamedTuple

from app.domain.deployment import Deployment
from app.domain.memory_fit import Fit
from app.domain.paging import CellPool, PagedPool
from app.domain.provenance import Note, Step, step
from app.domain.rounding import floor
from app.domain.units import exact, plain
from app.domain.value import Value
from app.domain.workload import Workload

SHARING_SOURCE = "https://docs.vllm.ai/en/latest/design/prefix_caching/ (whole blocks of a common beginning are kept once)"
SLOTS_SOURCE = "https://github.com/ggml-org/llama.cpp/issues/27616"
"""A slot's cache is open to others only when the slot is idle."""


class PrefixCache(NamedTuple):
    """What requests have in common, and what is kept beside them."""

    shared_tokens: float = 0
    """Beginning that all requests have in common [tokens]; 0 with prefix caching switched off."""
    hit_ratio: float = 1
    """Share of it that a request finds in the cache; it holds a copy of its own of the rest."""
    reserve_ratio: float = 0
    """Share of the pool that is kept for cached prefixes that no running request uses."""


class PrefixCacheUse(Value):
    """What the prefix cache saves and costs, at the mean length."""

    shared_prefix_tokens: int
    """Tokens of the common beginning that each engine rank keeps once: whole blocks."""
    shared_prefix_bytes: int
    """Memory of that copy on one accelerator."""
    reserve_bytes: int
    """Memory of the pool on one accelerator that is kept for cached prefixes that are not in use."""
    max_concurrency: int
    """Requests of the mean length that the replica holds with both."""
    unshared_max_concurrency: int
    """The same with neither: every request with a copy of its own, in the whole pool."""


class PoolShares(NamedTuple):
    """A pool of one engine rank, divided; all in blocks where the engine cuts memory into them, else in bytes of an accelerator."""

    in_blocks: bool
    pool: int
    reserve: int
    shared_tokens: int
    shared: int
    """The one copy of the common beginning."""
    found: int
    """Of the copy, what one request finds there and does not hold itself."""
    request: int
    """A request with its whole length."""
    bytes_per_unit: float

    @property
    def sequences(self) -> int:
        """max((pool - reserve) // request, (pool - reserve - shared) // (request - found)); sharing is never worse than not sharing."""
        free, own = self.pool - self.reserve, self.request - self.found
        return max(free // self.request, (free - self.shared) // own) if self.request else 0

    @property
    def shared_bytes(self) -> int:
        """The copy [bytes]."""
        return math.ceil(self.shared * self.bytes_per_unit)

    @property
    def reserve_bytes(self) -> int:
        """The reserve [bytes]."""
        return math.ceil(self.reserve * self.bytes_per_unit)


def shared_prefix(workload: Workload, deployment: Deployment) -> PrefixCache | None:
    """The beginning that the requests of a workload have in common, with its hits; None where none is stated, found or cached.

    Without shared_prefix_tokens hits come from anywhere, as from earlier turns of the same conversation, and nothing is held in common.
    """
    tokens = (workload.shared_prefix_tokens or 0.0) * workload.token_growth_ratio
    if not tokens or not workload.prefix_hit_ratio or not deployment.prefix_caching:
        return None
    return PrefixCache(tokens, workload.prefix_hit_ratio)


def block_unit(found: Fit) -> int:
    """Tokens that are shared together: the least common multiple of the blocks of all groups of layers, on each context-parallel rank.

    Source: https://github.com/vllm-project/vllm/blob/main/vllm/v1/core/kv_cache_coordinator.py (scheduler_block_size); one token for the
    generic engine. Not modelled: beside drafts of EAGLE or prediction layers vLLM finds one block less.
    """
    pool = found.pool
    if isinstance(pool, PagedPool):
        return math.lcm(*(group.block_tokens for group in pool.groups)) * pool.num_context_ranks
    return 1 if pool is None else pool.block_size_tokens


def shared_tokens(found: Fit, tokens: float, prefix: PrefixCache) -> int:
    """floor(min(prefix, tokens - 1) / block) x block: the last token is always computed [tokens]; 0 where nothing is shared."""
    if not prefix.shared_tokens or not_shared(found) is not None:
        return 0
    unit = block_unit(found)
    return floor(max(0.0, min(prefix.shared_tokens, tokens - 1)) / unit) * unit


def not_shared(found: Fit) -> str | None:
    """Why running requests share no beginning on this engine with this model; None where they do."""
    pool = found.pool
    if isinstance(pool, CellPool) and pool.fixed_length:
        return f"each slot of the engine has a cache of its own ({SLOTS_SOURCE})"
    if isinstance(pool, PagedPool):
        if not pool.caches_prefixes:
            return "this version caches no prefixes of models with recurrent state unless prefix_caching is given"
        if all(group.kind.kind != "full" for group in pool.groups):
            return "no layer caches the whole length"
        return None
    per_token = pool.bytes_per_token if isinstance(pool, CellPool) else _per_token(found)
    return None if per_token else "no layer caches the whole length"


def _per_token(found: Fit) -> float:
    return 0.0 if found.cost is None else found.cost.bytes_per_token + found.cost.index_bytes_per_token


def pool_shares(found: Fit, tokens: float, prefix: PrefixCache) -> PoolShares | None:
    """The pool of one engine rank with requests of `tokens` tokens; None without a known cost of the KV cache.

    Layers that cache the whole length (full and latent attention) keep the whole blocks of a common beginning once; windowed layers and
    recurrent states are held by every request. Reserve: floor(pool x reserve_ratio). Validity: all running requests have one beginning.
    """
    if found.cost is None:
        return None
    pool, kv, per_unit = found.pool, found.kv_cache_bytes, 1.0
    common = shared_tokens(found, tokens, prefix)
    if isinstance(pool, PagedPool):
        units, request, per_unit = pool.num_blocks(kv), pool.request_blocks(tokens), pool.bytes_per_block
        shared = pool.shared_blocks(common)
    elif isinstance(pool, CellPool):
        units, request = pool.token_bytes(kv), pool.request_token_bytes(tokens)
        shared = int(pool.bytes_per_token * (1 + pool.state_pool_ratio) * common)
    else:
        units, request, shared = kv, found.cost.sequence_bytes(tokens), int(_per_token(found) * common)
    reserve = floor(units * prefix.reserve_ratio)
    return PoolShares(isinstance(pool, PagedPool), units, reserve, common, shared, floor(shared * prefix.hit_ratio), request, per_unit)


def prefix_steps(found: Fit, tokens: float, prefix: PrefixCache, shares: PoolShares) -> list[Step]:
    """The working of what is shared and reserved, and how many requests of one engine rank that leaves room for."""
    name = "blocks" if shares.in_blocks else "bytes"
    steps: list[Step] = []

    def add(what: str, formula: str, text: str, value: float, unit: str = name) -> None:
        steps.append(step(what, formula, text, exact(value), unit, SHARING_SOURCE))

    if shares.shared_tokens:
        unit, pool = block_unit(found), found.pool
        length = f"min({plain(prefix.shared_tokens)}, {plain(tokens)} - 1)"
        add(
            "shared_prefix_tokens",
            "whole blocks of the beginning that requests have in common; the last token is always computed",
            f"floor({length} / {unit}) x {unit}",
            shares.shared_tokens,
            "tokens",
        )
        if isinstance(pool, PagedPool):
            text = " + ".join(
                f"{shares.shared_tokens} / {group.block_tokens * pool.num_context_ranks}"
                for group in pool.groups
                if group.kind.kind == "full"
            )
            formula = "sum over groups of layers that cache the whole length: shared_prefix_tokens / block"
        else:
            ratio = f" x (1 + {plain(pool.state_pool_ratio)})" if isinstance(pool, CellPool) and pool.state_pool_ratio else ""
            per_token = pool.bytes_per_token if isinstance(pool, CellPool) else _per_token(found)
            formula = "bytes per token of the layers that cache the whole length x shared_prefix_tokens"
            text = f"floor({plain(per_token)}{ratio} x {shares.shared_tokens})"
        add(f"shared_prefix_{name}", formula, text, shares.shared)
        if prefix.hit_ratio != 1:
            formula = f"shared_prefix_{name} x prefix_hit_ratio"
            add(f"found_prefix_{name}", formula, f"floor({shares.shared} x {plain(prefix.hit_ratio)})", shares.found)
    if prefix.reserve_ratio:
        text = f"floor({shares.pool} x {plain(prefix.reserve_ratio)})"
        add(f"prefix_cache_reserve_{name}", "pool x prefix_cache_reserve_ratio", text, shares.reserve)
    return steps


def division(found: Fit, shares: PoolShares) -> tuple[str, str]:
    """(formula, the same with numbers) of `PoolShares.sequences`."""
    name, request = ("num_blocks", "num_blocks_per_request") if shares.in_blocks else ("kv_cache_bytes", "kv_bytes_per_request_per_gpu")
    if isinstance(found.pool, CellPool) and found.pool.fixed_state_bytes:
        name, request = "(kv_cache_bytes - state_bytes)", f"({request} - state of one sequence)"
    free, free_text = (f"({name} - reserve)", f"({shares.pool} - {shares.reserve})") if shares.reserve else (name, str(shares.pool))
    whole, whole_text = f"floor({free} / {request})", f"floor({free_text} / {shares.request})"
    if not shares.shared:
        return whole, whole_text
    left, own = f"({free} - shared prefix)", f"({request} - what it finds of it)"
    left_text, own_text = f"({free_text} - {shares.shared})", f"({shares.request} - {shares.found})"
    return f"max({whole}, floor({left} / {own}))", f"max({whole_text}, floor({left_text} / {own_text}))"


def prefix_notes(found: Fit, shares: PoolShares, prefix: PrefixCache) -> tuple[list[Note], list[Note]]:
    """(assumptions, warnings) about what is shared and reserved."""
    assumptions: list[Note] = []
    warnings: list[Note] = []
    if shares.shared:
        message = (
            f"All running requests are taken to have one beginning; every engine rank keeps {shares.shared_tokens} tokens of it once. "
            "Layers of full and latent attention share them, windowed layers and recurrent states do not."
        )
        if isinstance(found.pool, CellPool) and found.engine is not None and found.engine.paging.window_pool_ratio is not None:
            message += " A pool of windowed layers that is sized as a share of the others is not taken to run out first."
        assumptions.append(Note(code="shared_prefix", message=message))
    elif prefix.shared_tokens:
        reason = not_shared(found) or f"the prefix is shorter than the {block_unit(found)} tokens that are shared together"
        warnings.append(Note(code="prefix_not_shared", message=f"The shared prefix saves no memory: {reason}."))
    if shares.reserve:
        message = f"{plain(prefix.reserve_ratio)} of the KV cache is kept for cached prefixes that no running request uses."
        assumptions.append(Note(code="prefix_cache_reserve", message=message))
    return assumptions, warnings


def kept_once(found: Fit, tokens: float, prefix: PrefixCache | None) -> tuple[list[Note], list[Note]]:
    """`prefix_notes` for requests of `tokens` tokens; nothing without a prefix."""
    shares = None if prefix is None else pool_shares(found, tokens, prefix)
    return ([], []) if prefix is None or shares is None else prefix_notes(found, shares, prefix)
