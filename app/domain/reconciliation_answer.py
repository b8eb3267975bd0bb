"""The answer of `/memory/reconcile`: printed against estimated, why they differ, and the deployment to plan with."""

from collections.abc import Sequence

from app.domain.deployment import Deployment
from app.domain.engine_start import EngineStart, ReadStart
from app.domain.errors import PlannerError
from app.domain.provenance import Answer, Note, Step, Versions, step
from app.domain.reconciled_terms import (
    ReconciledCount,
    ReconciledTerm,
    budget_bytes,
    observations,
    printed_overhead_bytes,
    reconciled_counts,
    reconciled_terms,
)
from app.domain.reconciliation import (
    CLOSE_RATIO,
    Compute,
    Correction,
    Estimate,
    SettingDifference,
    cache_ratio,
    changed_by,
    correct,
    differences,
    printed_pool_bytes,
    settings_as_printed,
)
from app.domain.start_matches import matching_kv_cache, matching_version, matching_weights
from app.domain.units import GIB, gigabytes, plain

SEQUENCES_TRIED = (8, 16, 32, 64, 128, 256, 512, 1024)
"""max_num_seqs that are tried where neither the log nor the request says it: the powers of two that callers set."""


class ReconciliationAnswer(Answer):
    """An engine's start against the planner's estimate of it."""

    model: str
    """Catalog slug of the model, or `inline`."""
    gpu: str
    """Catalog slug of the accelerator, or `inline`."""
    printed: EngineStart
    """What was read from the log or given."""
    settings: list[SettingDifference]
    """Settings that the log prints otherwise than the request gives them; the estimate below uses the printed ones."""
    terms: list[ReconciledTerm]
    """Memory of one accelerator, term by term; the pool is the last and the sum of the gaps before it."""
    counts: list[ReconciledCount]
    """Token positions and concurrency."""
    explanations: list[Note]
    """What explains the gaps."""
    corrected: Correction | None
    """The deployment that reproduces the printed pool in `/memory`; None where the log prints neither a pool nor tokens."""


def answer_reconciliation(
    model: str,
    gpu: str,
    deployment: Deployment,
    read: ReadStart,
    *,
    compute: Compute,
    engine_versions: Sequence[str],
    notes: list[Note],
    assumptions: list[Note],
    versions: Versions,
) -> ReconciliationAnswer:
    """Printed figures against the estimate of the deployment with the printed settings, and the deployment that reproduces them.

    pool = budget - weights - overhead [bytes]; the gap of the pool is the gap of the budget less those of the others. Raises PlannerError
    when neither the deployment as printed nor as given can be computed.
    """
    changes = settings_as_printed(deployment, read.start)
    as_printed, estimate, explanations = _as_printed(deployment, changes, compute)
    found = differences(deployment, changes, compute)
    start = read.start.model_copy(update={"pp": as_printed.pp})
    version = matching_version(start, as_printed, estimate, engine_versions, compute)
    if version is not None:
        as_printed = as_printed.model_copy(update={"engine_version": version})
        estimate = compute(as_printed)
        message = f"The version is not printed; the printed figures follow the rules from {version} on, which are used."
        explanations.append(Note(code="version_implied", message=message))
    as_printed, estimate, precisions = _with_matching_precisions(start, as_printed, estimate, compute)
    explanations += precisions
    explanations += observations(start, estimate)
    implied = _implied_sequences(start, as_printed, estimate, compute) or _implied_fraction(start, as_printed, estimate)
    if implied is not None:
        explanations.append(implied)
    corrected = correct(start, as_printed, compute)
    terms = reconciled_terms(start, estimate)
    return ReconciliationAnswer(
        summary=_summary(start, terms, corrected),
        working=_working(start, estimate, corrected),
        assumptions=[*assumptions, *estimate.notes],
        warnings=[*notes, *read.notes, *_warnings(corrected)],
        versions=versions,
        model=model,
        gpu=gpu,
        printed=read.start,
        settings=found,
        terms=terms,
        counts=reconciled_counts(start, estimate),
        explanations=explanations,
        corrected=corrected,
    )


def _as_printed(deployment: Deployment, changes: dict[str, object], compute: Compute) -> tuple[Deployment, Estimate, list[Note]]:
    changed = changed_by(deployment, changes)
    try:
        return changed, compute(changed), []
    except PlannerError as error:
        if not changes:
            raise
        message = f"The printed settings cannot be computed ({error.detail}); the estimate is that of the request."
        return deployment, compute(deployment), [Note(code="printed_settings_refused", message=message)]


def _with_matching_precisions(
    start: EngineStart, deployment: Deployment, estimate: Estimate, compute: Compute
) -> tuple[Deployment, Estimate, list[Note]]:
    """The deployment with the precisions that the printed sizes show, where the assumed ones do not explain them."""
    notes = []
    weights = matching_weights(start, deployment, estimate, compute)
    if weights is not None:
        deployment = deployment.model_copy(update={"weights": weights})
        before, estimate = estimate.weights_bytes, compute(deployment)
        message = (
            f"The printed weights come closest to {weights}, {gigabytes(estimate.weights_bytes)} per accelerator where the request gives "
            f"{gigabytes(before)}: weights {weights} is used."
        )
        notes.append(Note(code="weights_format", message=message))
    kv_cache = matching_kv_cache(start, deployment, estimate, compute)
    if kv_cache is not None:
        ratio = cache_ratio(start, estimate) or 0
        message = f"A sequence takes {ratio:.3f} of what {estimate.kv_format} needs: the cache is kept in {kv_cache}, which is used."
        notes.append(Note(code="kv_cache_format", message=message))
        deployment = deployment.model_copy(update={"kv_cache": kv_cache})
        estimate = compute(deployment)
    return deployment, estimate, notes


def _implied_sequences(start: EngineStart, deployment: Deployment, estimate: Estimate, compute: Compute) -> Note | None:
    """The max_num_seqs whose terms come closest to the printed ones, where nobody says it and the engine's default does not."""
    overhead = printed_overhead_bytes(start, estimate)
    wanted, now = (start.activation_bytes, estimate.activation_bytes) if start.activation_bytes else (overhead, estimate.overhead_bytes)
    if deployment.max_num_seqs is not None or wanted is None or abs(wanted - now) <= 10 * CLOSE_RATIO * abs(now):
        return None
    best: tuple[int, int] | None = None
    for sequences in SEQUENCES_TRIED:
        tried = compute(deployment.model_copy(update={"max_num_seqs": sequences}))
        gap = abs(wanted - (tried.activation_bytes if start.activation_bytes else tried.overhead_bytes))
        if best is None or gap < best[0]:
            best = gap, sequences
    if best is None or best[0] > 10 * CLOSE_RATIO * wanted or best[0] >= abs(wanted - now) / 2:
        return None
    message = f"max_num_seqs is not printed; about {best[1]} explains the printed memory, the engine's default does not."
    return Note(code="max_num_seqs_implied", message=message)


def _implied_fraction(start: EngineStart, deployment: Deployment, estimate: Estimate) -> Note | None:
    """The memory fraction that would explain the printed pool, where nobody says it and the engine's default does not."""
    overhead = printed_overhead_bytes(start, estimate)
    if deployment.memory_fraction_ratio is not None or overhead is None or start.budget_bytes is not None:
        return None
    gap = estimate.overhead_bytes - overhead
    if abs(gap) <= max(10 * CLOSE_RATIO * estimate.overhead_bytes, GIB // 4):
        return None
    fraction = (budget_bytes(start, estimate) + gap) / estimate.memory_bytes
    if not 0 < fraction <= 1:
        return None
    message = f"The memory fraction is not printed; {fraction:.2f} explains the printed pool, the engine's default does not."
    return Note(code="memory_fraction_implied", message=message)


def _warnings(corrected: Correction | None) -> list[Note]:
    if corrected is None:
        return [
            Note(code="no_printed_pool", message="Neither a KV cache pool nor tokens were printed: nothing to correct the deployment by.")
        ]
    if not corrected.reproduces:
        message = "The corrected deployment does not reproduce all printed figures: see counts and explanations."
        return [Note(code="not_reproduced", message=message)]
    return []


def _summary(start: EngineStart, terms: list[ReconciledTerm], corrected: Correction | None) -> str:
    engine = " ".join(part for part in (start.engine, start.engine_version) if part) or "The engine"
    pool = terms[-1]
    if start.failure is not None:
        head = f"{engine} did not start ({start.failure.check})"
    elif pool.printed_bytes is not None:
        head = f"{engine} printed {gigabytes(pool.printed_bytes)} of KV cache per accelerator"
    elif start.kv_cache_tokens is not None:
        head = f"{engine} printed {start.kv_cache_tokens} token positions"
    else:
        head = f"{engine} printed no KV cache"
    if pool.printed_bytes is not None and pool.estimated_bytes is not None:
        head += f"; the estimate is {gigabytes(pool.estimated_bytes)}"
    gaps = [term for term in terms[:-1] if term.difference_bytes and term.explanation != "They agree." and term.name != "memory_bytes"]
    if gaps:
        largest = max(gaps, key=lambda term: abs(term.difference_bytes or 0))
        head += f", the largest gap is {largest.name} ({(largest.difference_bytes or 0) / GIB:+.2f} GiB)"
    if corrected is None:
        return f"{head}. Nothing to correct the deployment by."
    if not corrected.measured:
        return f"{head}. The deployment {'reproduces it' if corrected.reproduces else 'comes near it, not within its rounding,'} as it is."
    target = pool.printed_bytes
    if target is not None and abs(corrected.kv_cache_bytes_per_gpu - target) > CLOSE_RATIO * abs(target):
        computed = gigabytes(corrected.kv_cache_bytes_per_gpu)
        return f"{head}. No reserve reproduces it, /memory computes {computed}: model, accelerator, tp, pp or weights are others."
    how = " and ".join(f"{name} {getattr(corrected.deployment, name)}" for name in corrected.measured)
    return f"{head}. Plan with {how}: then /memory computes {gigabytes(corrected.kv_cache_bytes_per_gpu)}."


def _working(start: EngineStart, estimate: Estimate, corrected: Correction | None) -> list[Step]:
    source = "the printed figures"
    steps = []
    overhead = printed_overhead_bytes(start, estimate)
    if overhead is not None:
        numbers = f"{budget_bytes(start, estimate)} - {start.weights_bytes_per_gpu} - {printed_pool_bytes(start)}"
        formula = "budget_bytes - weights_bytes - kv_cache_bytes, as printed"
        steps.append(step("overhead_bytes", formula, numbers, overhead, "bytes", source, basis="measured"))
    reserve = corrected.deployment.reserve_bytes_per_gpu if corrected else None
    if corrected is not None and reserve is not None and corrected.measured:
        fraction = plain(corrected.deployment.memory_fraction_ratio or 1)
        numbers = f"{estimate.memory_bytes} x {fraction} - {estimate.weights_bytes} - {corrected.kv_cache_bytes_per_gpu}"
        formula = "memory_bytes x memory_fraction_ratio - weights_bytes - printed kv_cache_bytes, computed again until it holds"
        steps.append(step("reserve_bytes_per_gpu", formula, numbers, reserve, "bytes", source, basis="measured"))
    return steps
