"""Does it fit: weights, reserve and KV cache against the memory of one accelerator."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from app.domain.activation import ActivationPeak
from app.domain.deployment import Deployment, check_layout
from app.domain.engine import EngineMemory
from app.domain.engine_budget import (
    NO_TERMS,
    Terms,
    budget_of,
    budget_with_reserve,
    is_unified,
    most_lean_peak_bytes,
    peak_of,
    pool_of,
    terms_of,
)
from app.domain.engine_defaults import Settings, default_notes, settings_of
from app.domain.errors import InvalidInput
from app.domain.hardware import Gpu
from app.domain.kv_cache import KvCost, kv_cost, kv_is_known, resolve_kv_format
from app.domain.llm import Llm
from app.domain.loaded_weights import LoadedWeights, loaded_weights_bytes_per_gpu
from app.domain.loaded_weights_working import weights_note
from app.domain.paging import Pool
from app.domain.provenance import Note
from app.domain.start_checks import CheckInputs, StartCheck, first_failure, start_checks
from app.domain.units import gigabytes
from app.domain.weights import WeightsSize, weights_bytes_per_gpu, weights_size

Verdict = Literal["serves", "loads_only", "does_not_fit"]
Limiting = Literal["weights", "kv_cache", "max_model_len", "free_memory", "activation", "max_num_seqs", "cuda_graphs"]

GENERIC_RESERVE_RATIO = 0.15
"""Memory that the generic engine keeps beside weights and KV cache. Serving guides advise to leave 10 to 20 % of the device free at
first (the middle, 15 %, is the 12 GB of an 80 GB card that such guides use in their examples); vLLM's default of 0.9 leaves 10 %
outside its budget before activations: https://docs.vllm.ai/en/stable/configuration/engine_args.html (gpu_memory_utilization)."""


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
    checks: tuple[StartCheck, ...] = ()
    pool: Pool | None = None
    settings: Settings | None = None
    kv_low_bytes: int | None = None
    """KV cache pool that nine of ten recorded starts are above [bytes]."""
    kv_high_bytes: int | None = None
    """KV cache pool that nine of ten recorded starts are below [bytes]."""
    notes: tuple[Note, ...] = ()
    """Defaults of the engine that the deployment did not set, and what not knowing them costs."""

    @property
    def kv_cache_bytes(self) -> int:
        """KV cache pool on one accelerator [bytes]; exactly one context where the engine allocates no more."""
        room = max(0, self.kv_room_bytes)
        if self.engine is not None and self.engine.fraction_basis == "exact" and self.max_model_len_tokens is not None:
            return min(room, self.longest_sequence_bytes)
        return room

    @property
    def num_blocks(self) -> int | None:
        """Blocks of the pool on one engine rank; None where it is not cut into blocks or the model's layers are not known."""
        return None if self.pool is None else self.pool.num_blocks(self.kv_cache_bytes)

    @property
    def failed_check(self) -> StartCheck | None:
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
    def margin_bytes(self) -> int:
        """What is left (positive) or missing (negative) per accelerator until the verdict changes [bytes]."""
        if self.failed_check is not None:
            return self.failed_check.margin_bytes
        if self.verdict == "does_not_fit":
            return self.memory_bytes - self.weights_bytes_per_gpu
        least = 1 if self.verdict == "loads_only" else 0
        return self.kv_room_bytes - max(least, self.longest_sequence_bytes)

    def outcome(self, weights_bytes_per_gpu: int, longest_sequence_bytes: int) -> tuple[Verdict, int | None]:
        """(verdict, token positions) of the same generic replica with other weights or another longest sequence per accelerator."""
        room = self.budget_bytes - weights_bytes_per_gpu - self.reserve_bytes
        verdict, _ = _verdict(weights_bytes_per_gpu, self.memory_bytes, room, longest_sequence_bytes)
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


def fit(llm: Llm, gpu: Gpu, deployment: Deployment, engine: EngineMemory | None = None, *, loaded_bytes: int | None = None) -> Fit:
    """Memory of one replica on its fullest accelerator, by the rules of `engine`; None is the generic engine.

    Generic: budget = memory x fraction; kv = budget - weights/gpu - reserve, all [bytes]; the reserve is `reserve_bytes_per_gpu`, or
    GENERIC_RESERVE_RATIO of the memory unless a memory fraction takes its place. `does_not_fit` when the weights exceed the memory;
    `loads_only` when no KV cache is left, or not even one sequence of the longest admitted length fits; else `serves`.
    Engines: see `engine_budget.budget_of`; the verdict is that of their first start-up check that fails. `loaded_bytes` are weights per
    accelerator that were measured. Raises InvalidInput for an impossible layout, MissingFigure when the catalog lacks the memory size.
    """
    check_layout(llm, deployment)
    memory = gpu.require_memory_bytes()
    reserve = deployment.reserve_bytes_per_gpu
    if reserve is not None and reserve > memory:
        raise InvalidInput(
            f"the reserve of {reserve} bytes is more than the {memory} bytes of {gpu.slug}",
            field="/deployment/reserve_bytes_per_gpu", value=reserve, expected=f"at most {memory}",
        )  # fmt: skip
    cost = None
    if kv_is_known(llm):
        kv_format = resolve_kv_format(llm, deployment.kv_cache)
        cost = kv_cost(llm, kv_format, tp=deployment.tp, pp=deployment.pp, field="/deployment/kv_cache")
    length = deployment.max_model_len_tokens or llm.max_model_len_tokens
    if engine is not None:
        return _engine_fit(llm, gpu, deployment, engine, loaded_bytes, cost, length)
    weights = weights_size(llm, deployment.weights)
    per_gpu = weights_bytes_per_gpu(llm, weights.num_bytes, tp=deployment.tp, pp=deployment.pp, dp=deployment.dp)
    fraction = deployment.memory_fraction_ratio
    budget = memory if fraction is None else int(memory * fraction)
    if reserve is None:
        reserve = int(GENERIC_RESERVE_RATIO * memory) if fraction is None else 0
    room = budget - per_gpu - reserve
    longest = cost.sequence_bytes(length or 1) if cost is not None else 0
    verdict, limiting = _verdict(per_gpu, memory, room, longest)
    return Fit(weights, per_gpu, memory, budget, reserve, room, cost, length, longest, verdict, limiting)


_LIMITS: dict[str, Limiting] = {
    "free_memory": "free_memory",
    "weights_load": "weights",
    "profile_run": "activation",
    "kv_memory": "kv_cache",
    "max_model_len": "max_model_len",
    "state_blocks": "max_num_seqs",
    "graph_capture": "cuda_graphs",
}


def _engine_fit(
    llm: Llm,
    gpu: Gpu,
    deployment: Deployment,
    engine: EngineMemory,
    loaded_bytes: int | None,
    cost: KvCost | None,
    length: int | None,
) -> Fit:
    memory = gpu.require_memory_bytes()
    settings = settings_of(engine, gpu, deployment, length)
    loaded = loaded_weights_bytes_per_gpu(
        llm, deployment.weights, tp=deployment.tp, pp=deployment.pp, dp=deployment.dp, ep=deployment.ep, engine=engine.engine,
        mtp=deployment.speculative is not None and deployment.speculative.draft_model is None,
        max_num_batched_tokens=settings.max_num_batched_tokens, unified_memory=is_unified(engine, gpu),
    )  # fmt: skip
    weights = WeightsSize(loaded.num_bytes, loaded.basis, loaded.source, "sum of the tensors as loaded", loaded.substituted)
    per_gpu = loaded.bytes_per_gpu if loaded_bytes is None else loaded_bytes
    peak = peak_of(llm, engine, deployment, settings, length)
    terms = terms_of(llm, gpu, engine, deployment, settings, peak)
    budget = budget_of(memory, engine, settings.fraction, per_gpu, terms)
    if deployment.reserve_bytes_per_gpu is not None:
        terms = NO_TERMS
        budget = budget_with_reserve(memory, deployment.memory_fraction_ratio, per_gpu, deployment.reserve_bytes_per_gpu)
    pool = pool_of(llm, engine, deployment, settings, resolve_kv_format(llm, deployment.kv_cache))
    longest = pool.request_bytes(length or 1) if pool is not None else cost.sequence_bytes(length or 1) if cost is not None else 0
    checks = start_checks(
        engine,
        CheckInputs(
            memory_bytes=memory,
            budget_bytes=budget.budget_bytes,
            weights_bytes=per_gpu,
            persistent_bytes=terms.runtime_bytes + terms.communication_bytes,
            activation_bytes=terms.activation_bytes,
            graphs_outside_bytes=terms.graphs_outside_bytes,
            kv_room_bytes=budget.room_bytes,
            pool=pool,
            max_model_len_tokens=length,
            max_num_seqs=settings.max_num_seqs,
            captures_graphs=not deployment.enforce_eager,
            keeps_state=llm.keeps_state,
        ),
    )
    failed = first_failure(checks)
    note = weights_note(loaded) if loaded_bytes is None else None
    verdict: Verdict = "serves" if failed is None else "does_not_fit" if failed.name == "weights_load" else "loads_only"
    lean = peak.total_bytes - most_lean_peak_bytes(llm, engine, deployment, settings, length) if terms != NO_TERMS else 0
    band = engine.band
    below = max(band.below_bytes, int(band.relative_ratio * budget.budget_bytes))
    above = max(band.above_bytes, int(band.relative_ratio * budget.budget_bytes)) + lean
    if loaded_bytes is None:
        below += loaded.high_bytes_per_gpu - loaded.bytes_per_gpu
        above += loaded.bytes_per_gpu - loaded.low_bytes_per_gpu
    low, high = max(0, budget.room_bytes - below), max(0, budget.room_bytes + above)
    if engine.fraction_basis == "exact":
        low, high = min(low, int(longest * (1 - band.relative_ratio))), min(high, int(longest * (1 + band.relative_ratio)))
    costs = {"max_num_seqs": f"With few sequences the KV cache is up to {gigabytes(lean)} larger."} if lean > 0 else {}
    return Fit(
        weights,
        per_gpu,
        memory,
        budget.budget_bytes,
        budget.reserve_bytes,
        budget.room_bytes,
        cost,
        length,
        longest,
        verdict,
        None if failed is None else _LIMITS[failed.name],
        engine,
        loaded if loaded_bytes is None else None,
        terms,
        peak,
        checks,
        pool,
        settings,
        low,
        high,
        (*([note] if note is not None else []), *default_notes(engine, deployment, settings, costs)),
    )


def _verdict(weights: int, memory: int, room: int, longest: int) -> tuple[Verdict, Limiting | None]:
    if weights > memory:
        return "does_not_fit", "weights"
    if room <= 0:
        return "loads_only", "kv_cache"
    if longest > room:
        return "loads_only", "max_model_len"
    return "serves", None


def valid_tps(llm: Llm, largest: int = 64) -> Iterator[int]:
    """Tensor-parallel degrees up to `largest` that the model can be split into, ascending; powers of two where heads are unknown."""
    kv_heads = {group.mixer.num_kv_heads for group in llm.layer_groups or () if group.mixer and group.mixer.kind == "attention"}
    heads = llm.num_attention_heads
    for tp in range(1, largest + 1):
        if (heads % tp == 0 if heads is not None else tp & (tp - 1) == 0) and all(kv % tp == 0 or tp % kv == 0 for kv in kv_heads):
            yield tp


def longest_len_tokens(found: Fit) -> int | None:
    """The longest sequence that fits alone in the KV room [tokens], or None when none does or the KV cost is unknown."""
    if found.cost is None or found.kv_room_bytes <= 0:
        return None
    low, high = 0, found.max_model_len_tokens or 10**9
    needed = found.cost.sequence_bytes if found.pool is None else found.pool.request_bytes
    while low < high:
        middle = (low + high + 1) // 2
        if needed(middle) <= found.kv_room_bytes:
            low = middle
        else:
            high = middle - 1
    return low or None
