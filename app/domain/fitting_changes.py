"""What would make a deployment serve: single changes, each computed again."""

from collections.abc import Iterator

from app.domain.deployment import Deployment
from app.domain.engine import EngineMemory
from app.domain.errors import PlannerError
from app.domain.hardware import Gpu
from app.domain.kv_cache import kv_is_known, resolve_kv_format
from app.domain.llm import Llm
from app.domain.memory import fit, longest_len_tokens, valid_tps
from app.domain.memory_fit import Fit, Verdict
from app.domain.precision import WeightFormat
from app.domain.value import Value

HIGHEST_FRACTION = 0.98
"""Highest share of the memory that is offered: logged starts at 0.95 and above run out of memory later, in graphs or transfers."""


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


def smallest_tp(llm: Llm, gpu: Gpu, deployment: Deployment, engine: EngineMemory | None) -> int | None:
    """The smallest tensor-parallel degree up to 64 that serves with everything else equal; None when none does."""
    return next((tp for tp in valid_tps(llm) if _serves(llm, gpu, with_tp(deployment, tp), engine)), None)


def with_tp(deployment: Deployment, tp: int) -> Deployment:
    """The same deployment with another tensor-parallel degree; experts stay spread over all ranks where they are."""
    return deployment.model_copy(update={"tp": tp, "ep": 1 if deployment.ep == 1 else tp * deployment.dp})


def fitting_changes(llm: Llm, gpu: Gpu, deployment: Deployment, engine: EngineMemory | None, found: Fit) -> list[FittingChange]:
    """Single changes, mildest first; each is computed again and kept only when it then serves. One tensor-parallel degree at most."""
    changes: list[FittingChange] = []
    for change, changed in _candidates(llm, gpu, deployment, engine, found):
        after = _fit_or_none(llm, gpu, changed, engine)
        if after is None or after.verdict != "serves":
            continue
        if changed.weights != deployment.weights and after.weights_bytes_per_gpu >= found.weights_bytes_per_gpu:
            continue
        changes.append(FittingChange(change=change, deployment=changed, verdict=after.verdict, kv_capacity_tokens=after.capacity_tokens()))
        if change.startswith("tp"):
            break
    return changes


def _fit_or_none(llm: Llm, gpu: Gpu, deployment: Deployment, engine: EngineMemory | None) -> Fit | None:
    try:
        return fit(llm, gpu, deployment, engine)
    except PlannerError:  # a stated KV figure exists for one precision only
        return None


def _serves(llm: Llm, gpu: Gpu, deployment: Deployment, engine: EngineMemory | None) -> bool:
    found = _fit_or_none(llm, gpu, deployment, engine)
    return found is not None and found.verdict == "serves"


def _candidates(llm: Llm, gpu: Gpu, deployment: Deployment, engine: EngineMemory | None, found: Fit) -> Iterator[tuple[str, Deployment]]:
    longest = longest_len_tokens(found)
    if found.limiting == "max_model_len" and longest:
        yield f"max_model_len_tokens {longest}", deployment.model_copy(update={"max_model_len_tokens": longest})
    if engine is not None:
        yield from _engine_candidates(llm, gpu, deployment, engine, found)
    if kv_is_known(llm) and resolve_kv_format(llm, deployment.kv_cache) in ("bf16", "fp16"):
        yield "kv_cache fp8", deployment.model_copy(update={"kv_cache": "fp8"})
    formats: tuple[WeightFormat, ...] = ("fp8", "awq")
    for weights in formats:
        yield f"weights {weights}", deployment.model_copy(update={"weights": weights})
    for tp in valid_tps(llm):
        if tp > deployment.tp:
            yield f"tp {tp}", with_tp(deployment, tp)


def _engine_candidates(llm: Llm, gpu: Gpu, deployment: Deployment, engine: EngineMemory, found: Fit) -> Iterator[tuple[str, Deployment]]:
    """The mildest setting of each of the engine's own limits that serves, where there is one."""
    settings = found.settings
    if settings is None:
        return
    blocks = found.num_blocks
    sequences = [each for each in (blocks, *_halves(settings.max_num_seqs, 1)) if each and each < settings.max_num_seqs]
    options: list[tuple[str, list[int | float | bool]]] = [
        ("max_num_seqs", [*sorted(set(sequences), reverse=True)]),
        ("max_num_batched_tokens", [*_halves(settings.max_num_batched_tokens, 512)]),
        ("memory_fraction_ratio", _higher(settings.fraction)),
        ("enforce_eager", [] if deployment.enforce_eager else [True]),
    ]
    for name, values in options:
        for value in values:
            changed = deployment.model_copy(update={name: value})
            if _serves(llm, gpu, changed, engine):
                yield f"{name} {value}", changed
                break


def _halves(value: int, least: int) -> Iterator[int]:
    """value / 2, value / 4 ... down to `least`."""
    while (value := value // 2) >= least:
        yield value


def _higher(fraction: float | None) -> list[int | float | bool]:
    """Hundredths above the fraction."""
    return [] if fraction is None else [step / 100 for step in range(int(fraction * 100) + 1, int(HIGHEST_FRACTION * 100) + 1)]
