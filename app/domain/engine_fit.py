"""A replica's memory by the rules of its engine: settings, weights as loaded, terms, pool and start-up checks."""

from app.domain.deployment import Deployment
from app.domain.engine import EngineMemory
from app.domain.engine_budget import (
    NO_TERMS,
    budget_of,
    budget_with_reserve,
    is_unified,
    most_lean_peak_bytes,
    peak_of,
    pool_of,
    terms_of,
)
from app.domain.engine_defaults import default_notes, settings_of
from app.domain.hardware import Gpu
from app.domain.kv_cache import KvCost, resolve_kv_format
from app.domain.llm import Llm
from app.domain.loaded_weights import loaded_weights_bytes_per_gpu
from app.domain.loaded_weights_working import weights_note
from app.domain.memory_fit import Fit, Limiting, Verdict
from app.domain.start_checks import CheckInputs, first_failure, start_checks
from app.domain.units import gigabytes
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
    sequence [tokens]. Raises MissingFigure when the catalog lacks the memory size.
    """
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
