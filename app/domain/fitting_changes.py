"""What would make a deployment serve: single changes, each computed again."""

import itertools
from collections.abc import Iterable, Iterator

from app.domain.deployment import Deployment
from app.domain.fitting_search import Change, Search, first, serves
from app.domain.fitting_settings import flags, lengths, settings_together
from app.domain.hardware import Gpu
from app.domain.kv_cache import kv_is_known, resolve_kv_format
from app.domain.memory import valid_tps
from app.domain.memory_fit import Verdict
from app.domain.precision import WeightFormat
from app.domain.value import Value

MOST_STAGES = 16
"""Pipeline stages that are tried: replicas over more nodes than that are not deployed."""
MOST_OTHER_GPUS = 2
"""Sizes of larger accelerators that are offered."""
LEAST_SPEED_RATIO = 0.8
"""Memory bandwidth of an accelerator that is offered instead / that of the one asked about: more memory, but no slower class."""


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


def smallest_tp(search: Search) -> Change | None:
    """The replica with the smallest tensor-parallel degree up to 64 that serves, everything else equal; None when none does."""
    deployment = search.deployment
    for tp in valid_tps(search.llm):
        changed = search.unchanged() if tp == deployment.tp else search.with_tp(tp)
        if serves(changed):
            return changed
    return None


def fitting_changes(search: Search, wider: Change | None, gpus: Iterable[Gpu] = ()) -> list[FittingChange]:
    """Single changes, smallest first; each is computed again and kept only when it then serves.

    In this order: flags of the engine that cost requests nothing or little (memory fraction, sequences, batched tokens, graphs), the
    longest sequence, or as many of these together as it takes where none is enough alone; formats of KV cache and weights; more of the
    same accelerator (tp, stages, both where neither is enough alone); larger accelerators out of `gpus`. Of each the least that serves
    with the estimate's error to spare, else the least that serves. `wider` is what `smallest_tp` found.
    """
    settings: list[Change | None] = [each for each in (*flags(search), *lengths(search)) if serves(each)]
    settings = settings or [settings_together(search)]
    kinds = (settings, _formats(search), _more_of_the_same(search, wider), _larger_gpus(search, gpus))
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
        if serves(each)
    ]


def _formats(search: Search) -> Iterator[Change | None]:
    """KV cache of 8 bits, then weights of 8 and 4 bits where that is fewer than now, as the engine names them."""
    llm, deployment = search.llm, search.deployment
    on_llama_cpp = deployment.engine == "llama.cpp"
    if kv_is_known(llm) and resolve_kv_format(llm, deployment.kv_cache) in ("bf16", "fp16"):
        yield search.change(kv_cache="q8_0" if on_llama_cpp else "fp8")
    formats: tuple[WeightFormat, ...] = ("q8_0", "q4_k_m") if on_llama_cpp else ("fp8", "awq")
    for weights in formats:
        changed = search.with_weights(weights)
        if changed is not None and changed.found.weights_bytes_per_gpu < search.found.weights_bytes_per_gpu:
            yield changed


def _more_of_the_same(search: Search, wider: Change | None) -> Iterator[Change | None]:
    """The fewest accelerators of this kind: by tensor parallelism, by stages at the same tp, else by both."""
    own = search.deployment.tp
    wider = None if wider is None or wider.deployment.tp < own else wider
    deeper = _stages(search, own)
    yield from sorted((each for each in (wider, deeper) if each is not None), key=lambda each: each.deployment.num_gpus)
    if wider is None and deeper is None:
        both = [_stages(search, tp) for tp in valid_tps(search.llm) if tp > own]
        yield min((each for each in both if each is not None), key=lambda each: each.deployment.num_gpus, default=None)


def _stages(search: Search, tp: int) -> Change | None:
    """The fewest pipeline stages that serve at this tensor-parallel degree."""
    deployment, found = search.deployment, search.found
    if search.engine is not None and search.engine.engine == "llama.cpp":  # its accelerators always hold whole layers
        return None
    whole = sum(found.loaded.stage_bytes) if found.loaded is not None else found.weights_bytes_per_gpu * deployment.pp
    least = whole * deployment.tp / tp / found.memory_bytes
    more = search.tp_fields(tp)
    stages = range(max(deployment.pp + 1, int(least)), min(MOST_STAGES, search.llm.num_layers or 1) + 1)
    return first(search.change(**more, pp=pp) for pp in stages)


def _larger_gpus(search: Search, gpus: Iterable[Gpu]) -> Iterator[Change | None]:
    """Accelerators of the same maker with more memory, from the smallest that serves; one of each size.

    None is of a slower class. Of one size the one of the same board form first. Sizes of which the missing bytes are missing
    too are not computed.
    """
    gpu, needed = search.gpu, search.found.memory_bytes + max(1, -search.found.margin_bytes)
    speed = LEAST_SPEED_RATIO * (gpu.memory_bandwidth_bytes_per_s or 0)
    larger = [
        other
        for other in gpus
        if other.vendor == gpu.vendor and other.vendor and (other.memory_bytes or 0) >= needed
        if (other.memory_bandwidth_bytes_per_s or 0) >= speed
    ]
    larger.sort(key=lambda other: (_size(other), other.form_factor != gpu.form_factor, other.memory_bandwidth_bytes_per_s or 0))
    of_each_size = {_size(other): other for other in reversed(larger)}
    of_each_size.pop(_size(gpu), None)
    changes = (search.change(other) for other in reversed(of_each_size.values()))
    yield from itertools.islice((each for each in changes if serves(each)), MOST_OTHER_GPUS)


def _size(gpu: Gpu) -> int:
    """Memory as people name it [bytes]: devices of one size differ by what their drivers keep."""
    return gpu.marketing_memory_bytes or gpu.memory_bytes or 0
