"""A replica's memory by the rules of its engine: settings, weights as loaded, terms, pool and start-up checks."""

from typing import NamedTuple

from app.domain.activation import ActivationPeak
from app.domain.adapters import with_adapters
from app.domain.deployment import Deployment
from app.domain.engine import EngineMemory
from app.domain.engine_budget import (
    NO_TERMS,
    Terms,
    budget_of,
    budget_with_reserve,
    is_unified,
    peak_of,
    pool_of,
    terms_of,
)
from app.domain.engine_defaults import Settings, default_notes, settings_of
from app.domain.engine_doubts import doubts_of
from app.domain.hardware import Gpu
from app.domain.kv_cache import KvCost, resolve_kv_format
from app.domain.llm import Llm
from app.domain.loaded_weights import loaded_weights_bytes_per_gpu
from app.domain.loaded_weights_working import weights_note
from app.domain.memory_fit import Fit, Limiting, Verdict
from app.domain.paging import Pool
from app.domain.precision import WeightFormat
from app.domain.start_checks import CheckInputs, first_failure, start_checks
from app.domain.weights import WeightsSize

_LIMITS: dict[str, Limiting] = {
    "free_memory": "free_memory",
    "weights_load": "weights",
    "profile_run": "activation",
    "kv_memory": "kv_cache",
    "max_model_len": "max_model_len",
    "state_blocks": "max_num_seqs",
    "graph_capture": "cuda_graphs",
}


class _Around(NamedTuple):
    """What a replica holds beside its weights: the same for every format of them."""

    memory_bytes: int
    settings: Settings
    peak: ActivationPeak
    terms: Terms
    pool: Pool | None
    cost: KvCost | None
    length: int | None
    longest_bytes: int


def engine_fit(
    llm: Llm,
    gpu: Gpu,
    deployment: Deployment,
    engine: EngineMemory,
    loaded_bytes: int | None,
    cost: KvCost | None,
    length: int | None,
) -> Fit:
    """Memory of one replica on its fullest accelerator by the rules of its engine: `engine_budget.budget_of` and the start-up checks.

    `loaded_bytes` are weights per accelerator that were measured [bytes], `cost` the arithmetic KV cost, `length` the longest admitted
    sequence [tokens]. Without `notes` and the upper end of the band: `with_band` adds them. Raises MissingFigure when the catalog
    lacks the memory size.
    """
    settings = settings_of(engine, gpu, deployment, length, llm)
    peak = peak_of(llm, engine, deployment, settings, length)
    terms = NO_TERMS if deployment.reserve_bytes_per_gpu is not None else terms_of(llm, gpu, engine, deployment, settings, peak)
    pool = pool_of(llm, engine, deployment, settings, resolve_kv_format(llm, deployment.kv_cache))
    longest = pool.request_bytes(length or 1) if pool is not None else cost.sequence_bytes(length or 1) if cost is not None else 0
    around = _Around(gpu.require_memory_bytes(), settings, peak, terms, pool, cost, length, longest)
    return _held(llm, gpu, deployment, engine, deployment.weights, loaded_bytes, around)


def with_weights(found: Fit, llm: Llm, gpu: Gpu, deployment: Deployment, weights: WeightFormat | None) -> Fit:
    """The replica of `found` with weights in another format: everything beside them stays as it is."""
    engine, settings, peak = found.engine, found.settings, found.peak
    assert engine is not None and settings is not None and peak is not None  # noqa: PT018, S101 - fits of an engine have all three
    around = _Around(
        found.memory_bytes, settings, peak, found.terms, found.pool, found.cost, found.max_model_len_tokens, found.longest_sequence_bytes
    )
    return _held(llm, gpu, deployment, engine, weights, None, around)


def with_length(found: Fit, llm: Llm, gpu: Gpu, deployment: Deployment, loaded_bytes: int | None, length: int) -> Fit:
    """The replica of `found` with another longest sequence [tokens]: the terms stay those that were profiled at the first one."""
    engine, settings, peak, pool = found.engine, found.settings, found.peak, found.pool
    assert engine is not None and settings is not None and peak is not None  # noqa: PT018, S101 - fits of an engine have all three
    longest = pool.request_bytes(length) if pool is not None else found.longest_sequence_bytes
    around = _Around(found.memory_bytes, settings, peak, found.terms, pool, found.cost, length, longest)
    return _held(llm, gpu, deployment, engine, deployment.weights, loaded_bytes, around)


def _held(
    llm: Llm,
    gpu: Gpu,
    deployment: Deployment,
    engine: EngineMemory,
    weights: WeightFormat | None,
    loaded_bytes: int | None,
    around: _Around,
) -> Fit:
    """Weights, budget, checks and verdict of a replica whose other terms are known."""
    memory, settings, terms, pool, longest = around.memory_bytes, around.settings, around.terms, around.pool, around.longest_bytes
    loaded = loaded_weights_bytes_per_gpu(
        llm, weights, tp=deployment.tp, pp=deployment.pp, dp=deployment.dp, ep=deployment.ep,
        redundant_experts=deployment.num_redundant_experts, engine=engine.engine,
        mtp=deployment.speculative is not None and deployment.speculative.draft_model is None,
        draft=deployment.draft,
        max_num_batched_tokens=settings.max_num_batched_tokens, unified_memory=is_unified(engine, gpu),
        num_mxfp4_scale_copies=engine.num_mxfp4_scale_copies if gpu.compute_capability in engine.mxfp4_capabilities else 0,
    )  # fmt: skip
    loaded = with_adapters(loaded, llm, deployment)
    per_gpu = loaded.bytes_per_gpu if loaded_bytes is None else loaded_bytes
    if deployment.reserve_bytes_per_gpu is None:
        budget = budget_of(memory, engine, settings.fraction, per_gpu, terms)
    else:
        budget = budget_with_reserve(memory, deployment.memory_fraction_ratio, per_gpu, deployment.reserve_bytes_per_gpu)
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
            max_model_len_tokens=around.length,
            longest_bytes=longest,
            max_num_seqs=settings.max_num_seqs,
            captures_graphs=not deployment.enforce_eager,
            keeps_state=llm.keeps_state,
        ),
    )
    failed = first_failure(checks)
    verdict: Verdict = "serves" if failed is None else "does_not_fit" if failed.name == "weights_load" else "loads_only"
    below = max(engine.band.below_bytes, int(engine.band.relative_ratio * budget.budget_bytes))
    if loaded_bytes is None:
        below += loaded.high_bytes_per_gpu - loaded.bytes_per_gpu
    return Fit(
        weights=WeightsSize(loaded.num_bytes, loaded.basis, loaded.source, "sum of the tensors as loaded", loaded.substituted),
        weights_bytes_per_gpu=per_gpu,
        memory_bytes=memory,
        budget_bytes=budget.budget_bytes,
        reserve_bytes=budget.reserve_bytes,
        kv_room_bytes=budget.room_bytes,
        cost=around.cost,
        max_model_len_tokens=around.length,
        longest_sequence_bytes=longest,
        verdict=verdict,
        limiting=None if failed is None else _LIMITS[failed.name],
        engine=engine,
        loaded=loaded if loaded_bytes is None else None,
        terms=terms,
        peak=around.peak,
        checks=checks,
        pool=pool,
        settings=settings,
        low_room_bytes=budget.room_bytes - below,
    )


def with_band(found: Fit, llm: Llm, gpu: Gpu, deployment: Deployment) -> Fit:
    """`found` with the range in which nine of ten recorded starts have their KV cache, and what the engine's defaults cost.

    low = room - (band below + weights of the fullest checkpoints of the format); high = room + (band above + weights of the leanest +
    what fewer sequences and a leaner sampler would free) [bytes].
    """
    engine, settings, loaded = found.engine, found.settings, found.loaded
    assert engine is not None and settings is not None  # noqa: PT018, S101 - fits of an engine have both
    doubts = doubts_of(found, llm, gpu, deployment)
    band = engine.band
    above = max(band.above_bytes, int(band.relative_ratio * found.budget_bytes)) + doubts.above_bytes
    above += 0 if loaded is None else loaded.bytes_per_gpu - loaded.low_bytes_per_gpu
    low, high = max(0, (found.low_room_bytes or 0) - doubts.below_bytes), max(0, found.kv_room_bytes + above)
    if engine.fraction_basis == "exact":
        longest = found.longest_sequence_bytes
        low, high = min(low, int(longest * (1 - band.relative_ratio))), min(high, int(longest * (1 + band.relative_ratio)))
    note = None if loaded is None else weights_note(loaded)
    notes = (*([note] if note is not None else []), *default_notes(engine, deployment, settings, doubts.costs), *doubts.notes)
    return found._replace(kv_low_bytes=low, kv_high_bytes=high, notes=notes)
