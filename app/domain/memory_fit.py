"""What a replica's memory holds: the figures that every answer about it reads, for all engines."""

from typing import Literal, NamedTuple

from app.domain.activation import ActivationPeak
from app.domain.engine import EngineMemory
from app.domain.engine_budget import NO_TERMS, Terms
from app.domain.engine_defaults import Settings
from app.domain.kv_cache import KvCost
from app.domain.loaded_weights import LoadedWeights
from app.domain.paging import CellPool, Pool
from app.domain.provenance import Note
from app.domain.start_checks import KV_CHECKS, Check, first_failure
from app.domain.weights import WeightsSize

Verdict = Literal["serves", "loads_only", "does_not_fit"]
Limiting = Literal["weights", "kv_cache", "max_model_len", "free_memory", "activation", "max_num_seqs", "cuda_graphs"]


class Fit(NamedTuple):
    """One replica's memory on its fullest accelerator, and what the rest holds."""

    weights: WeightsSize
    weights_bytes_per_gpu: int
    memory_bytes: int
    budget_bytes: int
    reserve_bytes: int
    kv_room_bytes: int
    """Budget - weights - reserve [bytes]; negative when they do not fit together."""
    cost: KvCost | None
    max_model_len_tokens: int | None
    longest_sequence_bytes: int
    """KV cache of one sequence of max_model_len_tokens [bytes]; of one token where that is not known, 0 without a known cost."""
    verdict: Verdict
    limiting: Limiting | None
    engine: EngineMemory | None = None
    """The rules that were used; None is the generic engine, which has none of the fields below."""
    loaded: LoadedWeights | None = None
    """Weights by class of tensor as the engine loads them; None for the generic engine and for measured weights."""
    terms: Terms = NO_TERMS
    peak: ActivationPeak | None = None
    checks: tuple[Check, ...] = ()
    pool: Pool | None = None
    settings: Settings | None = None
    low_room_bytes: int | None = None
    """Room for KV cache that nine of ten recorded starts are above [bytes]; negative where they may have none."""
    kv_low_bytes: int | None = None
    """KV cache pool that nine of ten recorded starts are above [bytes]."""
    kv_high_bytes: int | None = None
    """KV cache pool that nine of ten recorded starts are below [bytes]."""
    notes: tuple[Note, ...] = ()
    """Defaults of the engine that the deployment did not set, and what not knowing them costs."""

    @property
    def holds_one_context(self) -> bool:
        """Whether the engine allocates the KV cache of one context and leaves the rest free."""
        return self.engine is not None and self.engine.fraction_basis == "exact" and self.max_model_len_tokens is not None

    @property
    def kv_cache_bytes(self) -> int:
        """KV cache pool on one accelerator [bytes]; exactly one context where the engine allocates no more."""
        room = max(0, self.kv_room_bytes)
        return min(room, self.longest_sequence_bytes) if self.holds_one_context else room

    @property
    def state_bytes(self) -> int:
        """Of the pool, recurrent states that the engine sizes apart from keys and values; 0 elsewhere [bytes]."""
        return self.pool.state_pool_bytes(self.kv_cache_bytes) if isinstance(self.pool, CellPool) else 0

    @property
    def holds_requests(self) -> bool:
        """Whether anything is left for requests once the weights are loaded."""
        return self.verdict != "does_not_fit" and self.kv_room_bytes > 0

    @property
    def num_blocks(self) -> int | None:
        """Blocks of the pool on one engine rank; None where it is not cut into blocks or the model's layers are not known."""
        return None if self.pool is None else self.pool.num_blocks(self.kv_cache_bytes)

    @property
    def failed_check(self) -> Check | None:
        """The start-up check at which the engine stops."""
        return first_failure(self.checks)

    def concurrency_ratio(self) -> float | None:
        """Sequences of max_model_len that one engine rank holds, not rounded; None where the length or their cost is not known."""
        length = self.max_model_len_tokens
        if length is None or not self.longest_sequence_bytes:
            return None
        if self.pool is not None:
            return self.pool.concurrency(self.kv_cache_bytes, length)
        return self.kv_cache_bytes / self.longest_sequence_bytes

    @property
    def is_tight(self) -> bool:
        """Whether a start at the low end of the band would fail: the margin is within the error of the estimate."""
        low = self.low_room_bytes
        return self.verdict != "serves" or (low is not None and self.margin_bytes < self.kv_room_bytes - low)

    @property
    def closest_check(self) -> Check | None:
        """The check of the KV cache that an engine passes with the least to spare; None for the generic engine."""
        return min((check for check in self.checks if check.name in KV_CHECKS), key=lambda check: check.margin_bytes, default=None)

    @property
    def margin_bytes(self) -> int:
        """What is left (positive) or missing (negative) per accelerator until the verdict changes [bytes].

        An engine that serves: the KV cache that its checks of it could do without; not every engine checks for a longest sequence.
        """
        if self.failed_check is not None:
            return self.failed_check.margin_bytes
        closest = self.closest_check
        if closest is not None:
            return closest.margin_bytes - (closest.name == "kv_memory")
        if self.verdict == "does_not_fit":
            return self.memory_bytes - self.weights_bytes_per_gpu
        least = 1 if self.verdict == "loads_only" else 0
        return self.kv_room_bytes - max(least, self.longest_sequence_bytes)

    def outcome(self, weights_bytes_per_gpu: int, longest_sequence_bytes: int) -> tuple[Verdict, int | None]:
        """(verdict, token positions) of the same generic replica with other weights or another longest sequence per accelerator."""
        room = self.budget_bytes - weights_bytes_per_gpu - self.reserve_bytes
        verdict, _ = verdict_of(weights_bytes_per_gpu, self.memory_bytes, room, longest_sequence_bytes)
        return verdict, self._positions(max(0, room), longest_sequence_bytes)

    def capacity_tokens(self) -> int | None:
        """Token positions of one engine rank as its engine prints them; generic: floor(kv x L / sequence_bytes(L)).

        None without a known cost, and where windows or state make it depend on a longest length that is not known.
        """
        if self.pool is not None:
            return self.pool.capacity_tokens(self.kv_cache_bytes, self.max_model_len_tokens or self.pool.block_size_tokens)
        return self._positions(self.kv_cache_bytes, self.longest_sequence_bytes)

    def _positions(self, pool_bytes: int, sequence_bytes: int) -> int | None:
        length, cost = self.max_model_len_tokens, self.cost
        if cost is None or not sequence_bytes or (length is None and (cost.windows or cost.state_bytes)):
            return None
        return pool_bytes * (length or 1) // sequence_bytes

    def sequences(self, tokens: float) -> int | None:
        """Sequences of `tokens` tokens that one engine rank holds at once."""
        if self.pool is not None:
            return int(self.pool.concurrency(self.kv_cache_bytes, tokens))
        if self.cost is None:
            return None
        per_sequence = self.cost.sequence_bytes(tokens)
        return self.kv_cache_bytes // per_sequence if per_sequence else None


def verdict_of(weights: int, memory: int, room: int, longest: int) -> tuple[Verdict, Limiting | None]:
    """(verdict, what stands in the way) of the generic engine from the weights, the memory, the room for KV cache and one longest
    sequence on an accelerator, all [bytes]."""
    if weights > memory:
        return "does_not_fit", "weights"
    if room <= 0:
        return "loads_only", "kv_cache"
    if longest > room:
        return "loads_only", "max_model_len"
    return "serves", None
