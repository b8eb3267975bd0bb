"""The answer of `/memory`: the verdict, what takes the memory, and what would fit instead, with its working."""

from app.domain.deployment import Deployment
from app.domain.errors import PlannerError
from app.domain.hardware import Gpu
from app.domain.kv_cache import kv_cost, kv_is_known, resolve_kv_format
from app.domain.llm import Llm
from app.domain.memory import Fit, Limiting, Verdict, fit, longest_len_tokens, valid_tps
from app.domain.memory_notes import memory_warnings
from app.domain.memory_working import memory_steps
from app.domain.precision import WEIGHTS, KvFormat, WeightFormat
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


class FittingChange(Value):
    """One change of the deployment, and the verdict after computing it again."""

    change: str
    """What to change, as a sentence."""
    deployment: Deployment
    """The changed deployment."""
    verdict: Verdict
    """Verdict of the changed deployment."""
    kv_capacity_tokens: int | None
    """Token positions of one engine rank after the change."""


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
    """Single changes that would make it serve, each computed again; empty when it serves."""


def answer_memory(llm: Llm, gpu: Gpu, deployment: Deployment, *, assumptions: list[Note], versions: Versions) -> MemoryAnswer:
    """Weights, reserve and KV cache of one replica against the memory of its accelerators, with the working.

    kv = memory x fraction - weights / gpu - reserve [bytes]; see `memory.fit` for the verdicts. Raises InvalidInput for an impossible
    layout and MissingFigure when the catalog lacks the memory size.
    """
    found = fit(llm, gpu, deployment)
    per_sequence = found.longest_sequence_bytes if found.max_model_len_tokens else None
    return MemoryAnswer(
        summary=_summary(llm, gpu, deployment, found),
        working=memory_steps(llm, gpu, deployment, found),
        assumptions=assumptions,
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
            activation_bytes=0,
            cuda_graph_bytes=0,
            communication_bytes=0,
            runtime_bytes=0,
            safety_bytes=found.memory_bytes - found.budget_bytes,
            kv_cache_bytes=found.kv_cache_bytes,
        ),
        weights_bytes=found.weights.num_bytes,
        kv_cache=resolve_kv_format(llm, deployment.kv_cache),
        kv_capacity_tokens=found.capacity_tokens(),
        max_model_len_tokens=found.max_model_len_tokens,
        max_concurrency_at_max_len_ratio=found.kv_cache_bytes / per_sequence if per_sequence else None,
        by_precision=[_at_precision(llm, deployment, found, weights) for weights in WEIGHTS],
        smallest_tp=_smallest_tp(llm, deployment, found),
        what_would_fit=[] if found.verdict == "serves" else _what_would_fit(llm, gpu, deployment, found),
    )


def _at_precision(llm: Llm, deployment: Deployment, found: Fit, weights: WeightFormat) -> MemoryAtPrecision:
    total = weights_bytes(llm, weights)
    per_gpu = weights_bytes_per_gpu(llm, total, tp=deployment.tp, pp=deployment.pp, dp=deployment.dp)
    verdict, capacity = found.outcome(per_gpu, found.longest_sequence_bytes)
    return MemoryAtPrecision(
        weights=weights, weights_bytes=total, weights_bytes_per_gpu=per_gpu, verdict=verdict, kv_capacity_tokens=capacity
    )


def _with_tp(deployment: Deployment, tp: int) -> Deployment:
    return deployment.model_copy(update={"tp": tp, "ep": 1 if deployment.ep == 1 else tp * deployment.dp})


def _smallest_tp(llm: Llm, deployment: Deployment, found: Fit) -> int | None:
    kv_format, longest = resolve_kv_format(llm, deployment.kv_cache), 0
    for tp in valid_tps(llm):
        per_gpu = weights_bytes_per_gpu(llm, found.weights.num_bytes, tp=tp, pp=deployment.pp, dp=deployment.dp)
        if found.cost is not None:
            longest = kv_cost(llm, kv_format, tp=tp, pp=deployment.pp).sequence_bytes(found.max_model_len_tokens or 1)
        if found.outcome(per_gpu, longest)[0] == "serves":
            return tp
    return None


def _what_would_fit(llm: Llm, gpu: Gpu, deployment: Deployment, found: Fit) -> list[FittingChange]:
    """Single changes, mildest first; each is computed again and kept only when it then serves."""
    candidates: list[tuple[str, Deployment]] = []
    longest = longest_len_tokens(found)
    if found.limiting == "max_model_len" and longest:
        candidates.append((f"max_model_len_tokens {longest}", deployment.model_copy(update={"max_model_len_tokens": longest})))
    if kv_is_known(llm) and resolve_kv_format(llm, deployment.kv_cache) in ("bf16", "fp16"):
        candidates.append(("kv_cache fp8", deployment.model_copy(update={"kv_cache": "fp8"})))
    formats: tuple[WeightFormat, ...] = ("fp8", "awq")
    candidates += [(f"weights {weights}", deployment.model_copy(update={"weights": weights})) for weights in formats]
    candidates += [(f"tp {tp}", _with_tp(deployment, tp)) for tp in valid_tps(llm) if tp > deployment.tp]
    changes: list[FittingChange] = []
    for change, changed in candidates:
        try:
            after = fit(llm, gpu, changed)
        except PlannerError:  # a stated KV figure exists for one precision only
            continue
        smaller = changed.weights is None or changed.weights == deployment.weights or after.weights.num_bytes < found.weights.num_bytes
        if after.verdict == "serves" and smaller:
            changes.append(
                FittingChange(change=change, deployment=changed, verdict=after.verdict, kv_capacity_tokens=after.capacity_tokens())
            )
        if changes and change.startswith("tp"):
            break
    return changes


def _summary(llm: Llm, gpu: Gpu, deployment: Deployment, found: Fit) -> str:
    where = f"{deployment.num_gpus} x {gpu.slug}" if deployment.num_gpus > 1 else f"one {gpu.slug}"
    head = f"{llm.slug} on {where}: weights {gigabytes(found.weights_bytes_per_gpu)} per GPU"
    if found.verdict == "does_not_fit":
        return f"{head} do not fit into {gigabytes(found.memory_bytes)}; {gigabytes(-found.margin_bytes)} are missing on each GPU."
    if found.limiting == "kv_cache":
        budget, reserve = gigabytes(found.budget_bytes), gigabytes(found.reserve_bytes)
        return f"{head} load, but with a reserve of {reserve} out of {budget} nothing is left for KV cache: nothing is served."
    capacity = found.capacity_tokens()
    positions = f", {capacity} token positions" if capacity is not None else ""
    if found.limiting == "max_model_len":
        room = f"{gigabytes(found.kv_cache_bytes)} per GPU are left for KV cache{positions}"
        return f"{head} load and {room}: less than one sequence of {found.max_model_len_tokens} tokens."
    return f"{head} serve with {gigabytes(found.kv_cache_bytes)} of KV cache per GPU{positions}."
