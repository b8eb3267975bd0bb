"""What would make a deployment serve: single changes, each computed again."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from app.domain.deployment import Deployment
from app.domain.engine import EngineMemory
from app.domain.errors import PlannerError
from app.domain.hardware import Gpu
from app.domain.kv_cache import kv_is_known, resolve_kv_format
from app.domain.llm import Llm
from app.domain.memory import longest_len_tokens, trial_fit, valid_tps
from app.domain.memory_fit import Fit, Verdict
from app.domain.precision import WeightFormat
from app.domain.value import Value

HIGHEST_FRACTION = 0.98
"""Highest share of the memory that is offered: logged starts at 0.95 and above run out of memory later, in graphs or transfers."""
FEWEST_BATCHED_TOKENS, SHORTEST_LEN_TOKENS = 512, 1024
"""Where halving stops: steps of fewer tokens and shorter sequences are of no use to a server."""
MOST_STAGES = 16
"""Pipeline stages that are tried: replicas over more nodes than that are not deployed."""
MOST_OTHER_GPUS = 2
"""Sizes of larger accelerators that are offered."""


class FittingChange(Value):
    """One change of the deployment, and what computing it again gives."""

    change: str
    """What to change, and to what."""
    gpu: str
    """Accelerator of the changed replica."""
    num_gpus: int
    """Accelerators of the changed replica."""
    deployment: Deployment
    """The changed deployment."""
    verdict: Verdict
    """Verdict of the changed deployment."""
    margin_bytes: int
    """What the change leaves per accelerator until the verdict changes [bytes]."""
    is_tight: bool
    """The margin is within the error of the estimate: such a start may still fail."""
    kv_capacity_tokens: int | None
    """Token positions of one engine rank after the change."""
    max_concurrency_at_max_len_ratio: float | None
    """Sequences of the longest admitted length that one engine rank then holds."""


class _Change(NamedTuple):
    """A replica with one thing changed, and its memory."""

    change: str
    gpu: Gpu
    deployment: Deployment
    found: Fit


class _Search(NamedTuple):
    """The replica that does not serve, and how to compute another one."""

    llm: Llm
    gpu: Gpu
    deployment: Deployment
    engine: EngineMemory | None
    found: Fit

    def change(self, gpu: Gpu | None = None, **fields: Any) -> _Change | None:
        """The replica with other fields or on another accelerator; None where no engine runs such a one."""
        deployment = self.deployment.model_copy(update=fields) if fields else self.deployment
        name = " ".join(f"{field} {value}" for field, value in fields.items() if field != "ep") if gpu is None else f"gpu {gpu.slug}"
        other = gpu or self.gpu
        try:
            return _Change(name, other, deployment, trial_fit(self.llm, other, deployment, self.engine))
        except PlannerError:  # a stated KV figure exists for one precision only; the memory of some devices is not known
            return None


def smallest_tp(llm: Llm, gpu: Gpu, deployment: Deployment, engine: EngineMemory | None, found: Fit) -> int | None:
    """The smallest tensor-parallel degree up to 64 that serves with everything else equal; None when none does.

    `found` is the fit of the deployment itself, which is not computed again.
    """
    search = _Search(llm, gpu, deployment, engine, found)
    for tp in valid_tps(llm):
        if tp == deployment.tp:
            if found.verdict == "serves":
                return tp
        elif (changed := search.change(**_with_tp(deployment, tp))) is not None and changed.found.verdict == "serves":
            return tp
    return None


def _with_tp(deployment: Deployment, tp: int) -> dict[str, Any]:
    """Another tensor-parallel degree; experts stay spread over all ranks where they are."""
    return {"tp": tp, **({} if deployment.ep == 1 else {"ep": tp * deployment.dp})}


def fitting_changes(
    llm: Llm,
    gpu: Gpu,
    deployment: Deployment,
    engine: EngineMemory | None,
    found: Fit,
    *,
    least_tp: int | None,
    gpus: Iterable[Gpu] = (),
) -> list[FittingChange]:
    """Single changes, smallest first; each is computed again and kept only when it then serves.

    In this order: flags of the engine that cost requests nothing or little (memory fraction, batched tokens, sequences, graphs), the
    longest sequence, formats of KV cache and weights, more of the same accelerator (tp, stages, both where neither is enough alone),
    larger accelerators out of `gpus`. Of each the least that serves with the estimate's error to spare, else the least that serves.
    `least_tp` is what `smallest_tp` found.
    """
    search = _Search(llm, gpu, deployment, engine, found)
    kinds = (_flags(search), _lengths(search), _formats(search), _more_of_the_same(search, least_tp), _larger_gpus(search, gpus))
    return [
        FittingChange(
            change=each.change,
            gpu=each.gpu.slug,
            num_gpus=each.deployment.num_gpus,
            deployment=each.deployment,
            verdict=each.found.verdict,
            margin_bytes=each.found.margin_bytes,
            is_tight=each.found.is_tight,
            kv_capacity_tokens=each.found.capacity_tokens(),
            max_concurrency_at_max_len_ratio=each.found.concurrency_ratio(),
        )
        for kind in kinds
        for each in kind
        if each is not None and each.found.verdict == "serves"
    ]


def _first(changes: Iterable[_Change | None]) -> _Change | None:
    """The first that serves with the estimate's error to spare, else the first that serves."""
    tight = None
    for each in changes:
        if each is not None and each.found.verdict == "serves":
            if not each.found.is_tight:
                return each
            tight = tight or each
    return tight


def _least(values: Sequence[int], change: Callable[[int], _Change | None]) -> _Change | None:
    """The same for values of which each frees more memory than the one before, by bisection."""
    best = change(values[-1]) if values else None
    if best is None or best.found.verdict != "serves":
        return None
    tight_too = best.found.is_tight
    low, high = 0, len(values) - 1
    while low < high:
        middle = (low + high) // 2
        found = change(values[middle])
        if found is not None and found.found.verdict == "serves" and (tight_too or not found.found.is_tight):
            best, high = found, middle
        else:
            low = middle + 1
    return best


def _flags(search: _Search) -> Iterator[_Change | None]:
    """The engine's own limits; none of them lets weights fit that do not."""
    settings, found = search.found.settings, search.found
    if settings is None or found.verdict == "does_not_fit":
        return
    yield _first(search.change(memory_fraction_ratio=fraction) for fraction in _higher(found, settings.fraction))
    fewer = list(_halves(settings.max_num_batched_tokens, FEWEST_BATCHED_TOKENS))
    yield _least(fewer, lambda value: search.change(max_num_batched_tokens=value))
    sequences = {each for each in (found.num_blocks, *_halves(settings.max_num_seqs, 1)) if each and each < settings.max_num_seqs}
    yield _least(sorted(sequences, reverse=True), lambda value: search.change(max_num_seqs=value))
    if not search.deployment.enforce_eager:
        yield search.change(enforce_eager=True)


def _higher(found: Fit, fraction: float | None) -> Iterator[float]:
    """Hundredths above the fraction, from where the missing memory could be there: no share of the memory frees more than itself."""
    if fraction is not None:
        missing = max(0, -found.margin_bytes) / found.memory_bytes
        for hundredths in range(int((fraction + missing) * 100) + 1, int(HIGHEST_FRACTION * 100) + 1):
            yield hundredths / 100


def _lengths(search: _Search) -> Iterator[_Change | None]:
    """Shorter sequences: the longest that the KV cache holds, or shorter profile runs where those are whole prompts."""
    found, settings = search.found, search.found.settings
    if found.limiting == "max_model_len":
        rooms = (found.low_room_bytes, found.kv_room_bytes)
        lengths = (longest_len_tokens(found, room) for room in rooms if room is not None)
        yield _first(search.change(max_model_len_tokens=length) for length in lengths if length is not None)
    elif found.verdict != "does_not_fit" and settings is not None and found.max_model_len_tokens == settings.max_num_batched_tokens:
        shorter = list(_halves(found.max_model_len_tokens, SHORTEST_LEN_TOKENS))
        yield _least(shorter, lambda value: search.change(max_model_len_tokens=value))


def _formats(search: _Search) -> Iterator[_Change | None]:
    """KV cache of 8 bits, then weights of 8 and 4 bits where that is fewer than now."""
    llm, deployment = search.llm, search.deployment
    if kv_is_known(llm) and resolve_kv_format(llm, deployment.kv_cache) in ("bf16", "fp16"):
        yield search.change(kv_cache="fp8")
    formats: tuple[WeightFormat, ...] = ("fp8", "awq")
    for weights in formats:
        changed = search.change(weights=weights)
        if changed is not None and changed.found.weights_bytes_per_gpu < search.found.weights_bytes_per_gpu:
            yield changed


def _more_of_the_same(search: _Search, least_tp: int | None) -> Iterator[_Change | None]:
    """The fewest accelerators of this kind: by tensor parallelism, by stages at the same tp, else by both."""
    deployment = search.deployment
    wider = None if least_tp is None or least_tp <= deployment.tp else search.change(**_with_tp(deployment, least_tp))
    deeper = _stages(search, deployment.tp)
    yield wider
    yield deeper
    if wider is None and deeper is None:
        both = [_stages(search, tp) for tp in valid_tps(search.llm) if tp > deployment.tp]
        yield min((each for each in both if each is not None), key=lambda each: each.deployment.num_gpus, default=None)


def _stages(search: _Search, tp: int) -> _Change | None:
    """The fewest pipeline stages that serve at this tensor-parallel degree."""
    deployment, found = search.deployment, search.found
    if search.engine is not None and search.engine.engine == "llama.cpp":  # its accelerators always hold whole layers
        return None
    whole = sum(found.loaded.stage_bytes) if found.loaded is not None else found.weights_bytes_per_gpu * deployment.pp
    least = whole * deployment.tp / tp / found.memory_bytes
    more: dict[str, Any] = {} if tp == deployment.tp else _with_tp(deployment, tp)
    stages = range(max(deployment.pp + 1, int(least)), min(MOST_STAGES, search.llm.num_layers or 1) + 1)
    return _first(search.change(**more, pp=pp) for pp in stages)


def _larger_gpus(search: _Search, gpus: Iterable[Gpu]) -> Iterator[_Change | None]:
    """Accelerators of the same maker with more memory that is not slower, from the smallest that serves; one of each size.

    Of one size the one of the same board form first. Sizes of which the missing bytes are missing too are not computed.
    """
    gpu, needed = search.gpu, search.found.memory_bytes + max(0, -search.found.margin_bytes)
    speed = gpu.memory_bandwidth_bytes_per_s or 0
    larger = [
        other
        for other in gpus
        if other.vendor == gpu.vendor and other.vendor and (other.memory_bytes or 0) > search.found.memory_bytes
        if (other.memory_bytes or 0) >= needed and (other.memory_bandwidth_bytes_per_s or 0) >= speed
    ]
    larger.sort(key=lambda other: (other.memory_bytes, other.form_factor != gpu.form_factor, other.memory_bandwidth_bytes_per_s or 0))
    of_each_size = {other.memory_bytes: other for other in reversed(larger)}
    changes = (search.change(other) for other in reversed(of_each_size.values()))
    yield from itertools.islice((each for each in changes if each is not None and each.found.verdict == "serves"), MOST_OTHER_GPUS)


def _halves(value: int, least: int) -> Iterator[int]:
    """value / 2, value / 4 ... down to `least`."""
    while (value := value // 2) >= least:
        yield value
