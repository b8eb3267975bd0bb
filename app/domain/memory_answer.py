"""The answer of `/memory`: the verdict, what takes the memory, and what would fit instead, with its working."""

from collections.abc import Iterable

from app.domain.deployment import Deployment
from app.domain.engine import CheckName, EngineMemory
from app.domain.engine_fit import with_weights
from app.domain.fitting_changes import FittingChange, fitting_changes, smallest_tp
from app.domain.fitting_search import Search
from app.domain.hardware import Gpu
from app.domain.kv_cache import kv_cost, resolve_kv_format
from app.domain.llm import Llm
from app.domain.memory import fit, valid_tps
from app.domain.memory_fit import Fit, Limiting, Verdict
from app.domain.memory_notes import memory_warnings
from app.domain.memory_working import memory_steps
from app.domain.precision import KvFormat, WeightFormat, usual_formats
from app.domain.provenance import Answer, Note, Versions
from app.domain.units import gigabytes
from app.domain.value import Value
from app.domain.weights import weights_bytes, weights_bytes_per_gpu


class MemoryPerGpu(Value):
    """Memory of the fullest accelerator of a replica; the terms add up to `memory_bytes` when the model fits."""

    memory_bytes: int
    """What the device has [bytes]."""
    budget_bytes: int
    """What the engine may use of it [bytes]."""
    weights_bytes: int
    """Weights [bytes]."""
    free_after_weights_bytes: int
    """Memory - weights; negative when the weights alone do not fit [bytes]."""
    reserve_bytes: int
    """Everything beside weights and KV cache as one figure: the generic engine does not split it [bytes]."""
    activation_bytes: int
    """Activations, where the engine's own terms are modelled; else within `reserve_bytes` [bytes]."""
    cuda_graph_bytes: int
    """CUDA graphs, where modelled; else within `reserve_bytes` [bytes]."""
    communication_bytes: int
    """Communication buffers, where modelled; else within `reserve_bytes` [bytes]."""
    runtime_bytes: int
    """Runtime and fragmentation, where modelled; else within `reserve_bytes` [bytes]."""
    safety_bytes: int
    """Outside the engine's budget: memory - budget [bytes]."""
    kv_cache_bytes: int
    """KV cache pool [bytes]."""
    state_bytes: int
    """Of `kv_cache_bytes`, recurrent states where the engine sizes them apart from keys and values (SGLang); else 0 [bytes]."""


class MemoryAtPrecision(Value):
    """The same replica with weights in one format."""

    weights: WeightFormat
    """Format of the weights."""
    weights_bytes: int
    """Weights of the whole model [bytes]."""
    weights_bytes_per_gpu: int
    """Weights on the fullest accelerator [bytes]."""
    verdict: Verdict
    """Whether a replica with such weights serves."""
    kv_capacity_tokens: int | None
    """Token positions of one engine rank; None where the KV cache of the model is unknown."""


class EngineSettings(Value):
    """Limits of the engine after its defaults are filled in."""

    max_num_seqs: int
    """Most sequences that run at once."""
    max_num_batched_tokens: int
    """Most tokens that one step processes [tokens]."""
    memory_fraction_ratio: float | None
    """Share of the memory; None where the engine knows none."""


class StartCheck(Value):
    """One check of the engine's start."""

    name: CheckName
    """The check."""
    passed: bool
    """Whether the deployment passes it."""
    margin_bytes: int
    """Left (positive) or missing (negative) per accelerator [bytes]."""
    message: str
    """What was compared, as a sentence, and what to change where it fails."""


class MemoryAnswer(Answer):
    """Whether a replica fits, and what it leaves for the KV cache."""

    model: str
    """Catalog slug of the model, or `inline`."""
    gpu: str
    """Catalog slug of the accelerator, or `inline`."""
    num_gpus: int
    """Accelerators of one replica: tp x pp x dp."""
    verdict: Verdict
    """serves, loads_only (weights fit, requests do not), does_not_fit."""
    limiting: Limiting | None
    """What stands in the way; None when it serves."""
    margin_bytes: int
    """Left per accelerator (positive), or missing (negative) for the next better verdict [bytes]."""
    per_gpu: MemoryPerGpu
    """The fullest accelerator."""
    weights_bytes: int
    """Weights of the whole model [bytes]."""
    kv_cache: KvFormat
    """Precision of the KV cache."""
    kv_capacity_tokens: int | None
    """Token positions of one engine rank (its tp x pp accelerators together); None where the KV cache of the model is unknown."""
    max_model_len_tokens: int | None
    """Longest sequence that is admitted [tokens]."""
    max_concurrency_at_max_len_ratio: float | None
    """Sequences of that length which one engine rank holds, not rounded, as vLLM prints it."""
    by_precision: list[MemoryAtPrecision]
    """The same replica with every weight format."""
    smallest_tp: int | None
    """Smallest tensor-parallel degree up to 64 that serves with everything else equal; None when none does."""
    what_would_fit: list[FittingChange]
    """Single changes that would make it serve, smallest first, each computed again; empty when it serves."""
    engine_rules: str | None
    """Memory accounting that was used, by engine and range of versions; None for the generic engine."""
    settings: EngineSettings | None
    """Limits of the engine with its defaults filled in; None for the generic engine."""
    checks: list[StartCheck]
    """Start-up checks of the engine in its order; empty for the generic engine."""
    kv_cache_low_bytes: int | None
    """Nine of ten recorded starts have a larger KV cache; None for the generic engine [bytes]."""
    kv_cache_high_bytes: int | None
    """Nine of ten recorded starts have a smaller KV cache; None for the generic engine [bytes]."""
    num_blocks: int | None
    """Cache blocks of one engine rank, where the engine cuts its memory into blocks."""
    block_size_tokens: int | None
    """Tokens of its smallest block, enlarged where a hybrid model needs it; None for the generic engine [tokens]."""


def answer_memory(
    llm: Llm,
    gpu: Gpu,
    deployment: Deployment,
    *,
    engine: EngineMemory | None = None,
    gpus: Iterable[Gpu] = (),
    assumptions: list[Note],
    versions: Versions,
) -> MemoryAnswer:
    """Weights, reserve and KV cache of one replica against the memory of its accelerators, with the working.

    kv = memory x fraction - weights / gpu - what the engine takes beside them [bytes]; see `memory.fit` for the verdicts.
    `gpus` are the accelerators that may be offered instead where the replica does not serve. Raises InvalidInput for an impossible
    layout and MissingFigure when the catalog lacks the memory size.
    """
    found = fit(llm, gpu, deployment, engine)
    search = Search(llm, gpu, deployment, engine, found)
    wider = None if engine is None else smallest_tp(search)
    least_tp = _smallest_generic_tp(llm, deployment, found) if engine is None else None if wider is None else wider.deployment.tp
    changes: list[FittingChange] = []
    if found.verdict != "serves":
        wider = search.with_tp(least_tp) if engine is None and least_tp is not None else wider
        changes = fitting_changes(search, wider, gpus)
    return MemoryAnswer(
        summary=_summary(llm, gpu, deployment, found, changes),
        working=memory_steps(llm, gpu, deployment, found),
        assumptions=[*assumptions, *found.notes],
        warnings=memory_warnings(llm, deployment, found),
        versions=versions,
        model=llm.slug,
        gpu=gpu.slug,
        num_gpus=deployment.num_gpus,
        verdict=found.verdict,
        limiting=found.limiting,
        margin_bytes=found.margin_bytes,
        per_gpu=MemoryPerGpu(
            memory_bytes=found.memory_bytes,
            budget_bytes=found.budget_bytes,
            weights_bytes=found.weights_bytes_per_gpu,
            free_after_weights_bytes=found.memory_bytes - found.weights_bytes_per_gpu,
            reserve_bytes=found.reserve_bytes,
            activation_bytes=found.terms.activation_bytes,
            cuda_graph_bytes=found.terms.cuda_graph_bytes,
            communication_bytes=found.terms.communication_bytes,
            runtime_bytes=found.terms.runtime_bytes,
            safety_bytes=found.memory_bytes - found.budget_bytes + max(0, found.kv_room_bytes) - found.kv_cache_bytes,
            kv_cache_bytes=found.kv_cache_bytes,
            state_bytes=found.state_bytes,
        ),
        weights_bytes=found.weights.num_bytes,
        kv_cache=resolve_kv_format(llm, deployment.kv_cache),
        kv_capacity_tokens=found.capacity_tokens(),
        max_model_len_tokens=found.max_model_len_tokens,
        max_concurrency_at_max_len_ratio=found.concurrency_ratio(),
        by_precision=[_at_precision(llm, gpu, deployment, found, weights) for weights in usual_formats(deployment.engine)],
        smallest_tp=least_tp,
        what_would_fit=changes,
        engine_rules=None if engine is None else engine.slug,
        settings=_settings(found),
        checks=[
            StartCheck(name=each.name, passed=each.passed, margin_bytes=each.margin_bytes, message=each.message) for each in found.checks
        ],
        kv_cache_low_bytes=found.kv_low_bytes,
        kv_cache_high_bytes=found.kv_high_bytes,
        num_blocks=found.num_blocks,
        block_size_tokens=None if found.pool is None else found.pool.block_size_tokens,
    )


def _settings(found: Fit) -> EngineSettings | None:
    given = found.settings
    if given is None:
        return None
    return EngineSettings(
        max_num_seqs=given.max_num_seqs, max_num_batched_tokens=given.max_num_batched_tokens, memory_fraction_ratio=given.fraction
    )


def _at_precision(llm: Llm, gpu: Gpu, deployment: Deployment, found: Fit, weights: WeightFormat) -> MemoryAtPrecision:
    if found.engine is None:
        total = weights_bytes(llm, weights)
        per_gpu = weights_bytes_per_gpu(llm, total, tp=deployment.tp, pp=deployment.pp, dp=deployment.dp)
        verdict, capacity = found.outcome(per_gpu, found.longest_sequence_bytes)
    else:
        other = with_weights(found, llm, gpu, deployment, weights)
        total, per_gpu = other.weights.num_bytes, other.weights_bytes_per_gpu
        verdict, capacity = other.verdict, other.capacity_tokens()
    return MemoryAtPrecision(
        weights=weights, weights_bytes=total, weights_bytes_per_gpu=per_gpu, verdict=verdict, kv_capacity_tokens=capacity
    )


def _smallest_generic_tp(llm: Llm, deployment: Deployment, found: Fit) -> int | None:
    """What `fitting_changes.smallest_tp` finds, without a whole fit for each degree."""
    kv_format, longest = resolve_kv_format(llm, deployment.kv_cache), 0
    for tp in valid_tps(llm):
        per_gpu = weights_bytes_per_gpu(llm, found.weights.num_bytes, tp=tp, pp=deployment.pp, dp=deployment.dp)
        if found.cost is not None:
            longest = kv_cost(llm, kv_format, tp=tp, pp=deployment.pp).sequence_bytes(found.max_model_len_tokens or 1)
        if found.outcome(per_gpu, longest)[0] == "serves":
            return tp
    return None


def _summary(llm: Llm, gpu: Gpu, deployment: Deployment, found: Fit, changes: list[FittingChange]) -> str:
    told = _told(llm, gpu, deployment, found)
    if not changes:
        return told
    smallest = next((change for change in changes if not change.is_tight), changes[0])
    return f"{told} It would serve with {smallest.change}."


def _told(llm: Llm, gpu: Gpu, deployment: Deployment, found: Fit) -> str:
    where = f"{deployment.num_gpus} x {gpu.slug}" if deployment.num_gpus > 1 else f"one {gpu.slug}"
    head = f"{llm.slug} on {where}: weights {gigabytes(found.weights_bytes_per_gpu)} per GPU"
    if found.verdict == "does_not_fit":
        missing = gigabytes(found.weights_bytes_per_gpu - found.memory_bytes)
        return f"{head} do not fit into {gigabytes(found.memory_bytes)}; {missing} are missing on each GPU."
    if found.limiting == "kv_cache" and found.engine is None:
        budget, reserve = gigabytes(found.budget_bytes), gigabytes(found.reserve_bytes)
        return f"{head} load, but with a reserve of {reserve} out of {budget} nothing is left for KV cache: nothing is served."
    failed = found.failed_check
    if failed is not None and found.limiting != "max_model_len":
        return f"{head} load, but the start stops at the check {failed.name}. {failed.message}"
    capacity = found.capacity_tokens()
    positions = f", {capacity} token positions" if capacity else ""
    if found.limiting == "max_model_len":
        room = f"{gigabytes(found.kv_cache_bytes)} per GPU are left for KV cache{positions}"
        needed = gigabytes(found.longest_sequence_bytes)
        return f"{head} load and {room}: less than the {needed} of one sequence of {found.max_model_len_tokens} tokens."
    return f"{head} serve with {gigabytes(found.kv_cache_bytes)} of KV cache per GPU{positions}."
