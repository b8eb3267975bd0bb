"""What an engine printed at its start against what the planner estimates: term by term, and the deployment that reproduces it."""

import math
from collections.abc import Callable
from typing import NamedTuple

from app.domain.deployment import Deployment, Speculative
from app.domain.engine_start import EngineStart
from app.domain.errors import PlannerError
from app.domain.memory_fit import Verdict
from app.domain.precision import KvFormat
from app.domain.provenance import Note
from app.domain.units import GIB, MIB, plain
from app.domain.value import Value

CLOSE_RATIO = 0.01
"""Figures are taken for equal within this; engines print two decimals of a GiB, which is 1 % of the smallest terms."""
REPRODUCED_RATIO = 0.001
"""A corrected deployment reproduces a pool when it is within this of the printed one, the rounding of the log."""
LAST_DIGIT_BYTES = GIB // 200
"""Half of the last of two printed decimals of a GiB: an estimate within it needs no correction."""


class Estimate(NamedTuple):
    """What the planner computes for a deployment, on its fullest accelerator [bytes] and for one engine rank."""

    memory_bytes: int
    budget_bytes: int
    weights_bytes: int
    activation_bytes: int
    cuda_graph_bytes: int
    outside_bytes: int
    """Communication and runtime: what engines print as memory outside their framework."""
    graphs_outside_bytes: int
    """CUDA graphs that come on top of the budget."""
    kv_cache_bytes: int
    kv_cache_tokens: int | None
    concurrency_ratio: float | None
    verdict: Verdict
    kv_format: KvFormat
    block_size_tokens: int | None = None
    """Block that the engine uses by itself, where it cuts its memory into blocks [tokens]."""
    notes: tuple[Note, ...] = ()
    """Defaults of the engine that were used."""

    @property
    def is_split(self) -> bool:
        """Whether the terms beside weights and cache are modelled one by one."""
        return bool(self.activation_bytes or self.cuda_graph_bytes or self.outside_bytes)

    @property
    def overhead_bytes(self) -> int:
        """Budget - weights - KV cache [bytes]."""
        return self.budget_bytes - self.weights_bytes - self.kv_cache_bytes


Compute = Callable[[Deployment], Estimate]
"""The planner's estimate of a deployment; raises PlannerError for what no engine can run."""


class SettingDifference(Value):
    """A setting that the log prints otherwise than the request gives it."""

    setting: str
    """Field of the deployment."""
    given: str
    """What the request says; `not given` where it leaves the choice to the engine."""
    printed: str
    """What the log says."""
    kv_cache_effect_bytes: int | None
    """What it does to the KV cache pool of one accelerator after the settings above it; None where it cannot be computed [bytes]."""


class Correction(Value):
    """A deployment to plan with, and what the planner computes for it."""

    deployment: Deployment
    """The deployment, with every setting that was printed."""
    measured: list[str]
    """Fields whose values were measured here: they stand for everything that the engine takes beside weights and KV cache."""
    kv_cache_bytes_per_gpu: int
    """KV cache pool of this deployment, computed again [bytes]."""
    kv_capacity_tokens: int | None
    """Token positions of one engine rank, computed again [tokens]."""
    max_concurrency_at_max_len_ratio: float | None
    """Sequences of the longest admitted length, computed again."""
    reproduces: bool
    """Whether this is what the engine printed."""


def settings_as_printed(deployment: Deployment, start: EngineStart) -> dict[str, object]:
    """The settings of a deployment that the log prints otherwise, by field."""
    changed = {name: value for name, value in start.settings().items() if getattr(deployment, name) != value}
    if "prefix_caching" in start.settings() and "prefix_caching" not in deployment.model_fields_set:
        changed["prefix_caching"] = start.prefix_caching
    drafts = start.num_draft_tokens
    if drafts is not None and (deployment.speculative is None or deployment.speculative.num_draft_tokens != drafts):
        known = deployment.speculative
        changed["speculative"] = Speculative(num_draft_tokens=drafts, acceptance_ratio=known.acceptance_ratio if known else 0)
    return changed


def changed_by(deployment: Deployment, changes: dict[str, object]) -> Deployment:
    """The deployment with other settings; experts that were spread over all ranks stay so."""
    changed = deployment.model_copy(update=changes)
    return changed if deployment.ep == 1 else changed.model_copy(update={"ep": changed.tp * changed.dp})


def differences(deployment: Deployment, changes: dict[str, object], compute: Compute) -> list[SettingDifference]:
    """Each printed setting against the request, applied one after the other, with what it does to the pool."""
    found = []
    changed, pool = deployment, _pool_of(deployment, compute)
    for name, value in changes.items():
        before = getattr(deployment, name)
        left_out = before is None or name not in deployment.model_fields_set
        changed = changed_by(changed, {name: value})
        after = _pool_of(changed, compute)
        found.append(
            SettingDifference(
                setting=name,
                given="not given" if left_out else _shown(before),
                printed=_shown(value),
                kv_cache_effect_bytes=None if pool is None or after is None else after - pool,
            )
        )
        pool = after
    return found


def _shown(value: object) -> str:
    if isinstance(value, Speculative):
        return f"{value.num_draft_tokens} draft tokens"
    return plain(value) if isinstance(value, float) else str(value)


def _pool_of(deployment: Deployment, compute: Compute) -> int | None:
    try:
        return compute(deployment).kv_cache_bytes
    except PlannerError:
        return None


def printed_pool_bytes(start: EngineStart) -> int | None:
    """Printed KV cache pool with the pool of states beside it, which engines without common pages print by itself [bytes].

    llama.cpp keeps a state for every slot whatever the cache: it is no part of the pool.
    """
    if start.kv_cache_bytes_per_gpu is None or start.engine == "llama.cpp":
        return start.kv_cache_bytes_per_gpu
    return start.kv_cache_bytes_per_gpu + (start.state_bytes or 0)


def cache_ratio(start: EngineStart, estimate: Estimate) -> float | None:
    """Printed cost of what the cache holds / estimated cost; None where the log does not print enough.

    (printed pool / printed sequences) / (estimated pool / estimated sequences), or the same with tokens. Concurrency is the safer of the
    two: it means the same in all versions of vLLM, and the line of tokens does not. With pipeline stages the pool of any stage may be the
    one that decides: the ratio nearest to 1 counts.
    """
    smallest, estimated = printed_pool_bytes(start), estimate.kv_cache_bytes
    if smallest is None or smallest <= 0 or estimated <= 0:
        return None
    if (start.max_concurrency_at_max_len_ratio or 0) >= 1 and estimate.concurrency_ratio:
        held = (start.max_concurrency_at_max_len_ratio or 0) / estimate.concurrency_ratio
    elif start.kv_cache_tokens and estimate.kv_cache_tokens:
        held = start.kv_cache_tokens / estimate.kv_cache_tokens
    else:
        return None
    pools = [smallest]
    if (start.pp or 1) > 1 and start.largest_kv_cache_bytes_per_gpu is not None:
        pools.append(start.largest_kv_cache_bytes_per_gpu + (start.state_bytes or 0))
    return min((pool / estimated / held for pool in pools), key=lambda ratio: abs(ratio - 1))


def correct(start: EngineStart, deployment: Deployment, compute: Compute) -> Correction | None:
    """The deployment whose pool is the printed one, by a measured reserve; None where the log prints no pool and no tokens.

    reserve = budget - weights - printed pool [bytes]; where that is negative the memory fraction is raised instead. Each is computed
    again and corrected by what is still missing, as engines count in whole blocks and fractions of the whole or of the free memory.
    """
    estimate = compute(deployment)
    target = _target(start, estimate)
    if target is None:
        return None
    deployment = _spelled_out(deployment, estimate)
    estimate = compute(deployment)
    if abs(estimate.kv_cache_bytes - target) <= min(_tolerance(target), LAST_DIGIT_BYTES):
        return _correction(start, deployment, estimate, [], target)
    fraction = deployment.memory_fraction_ratio
    if fraction is None:
        fraction = min(1.0, max(0.01, round(estimate.budget_bytes / estimate.memory_bytes, 4)))
    reserve = max(0, estimate.budget_bytes - estimate.weights_bytes - target)
    for _ in range(3):
        corrected = deployment.model_copy(update={"memory_fraction_ratio": fraction, "reserve_bytes_per_gpu": reserve})
        estimate = compute(corrected)
        missing = target - estimate.kv_cache_bytes
        if missing == 0:
            break
        if missing <= reserve:
            reserve = min(reserve - missing, estimate.memory_bytes)
        else:
            fraction = min(1.0, math.ceil(1e6 * (fraction + (missing - reserve) / estimate.memory_bytes)) / 1e6)
            reserve = 0
    measured = ["reserve_bytes_per_gpu"]
    if fraction != deployment.memory_fraction_ratio:
        measured.append("memory_fraction_ratio")
    return _correction(start, corrected, estimate, measured, target)


def _spelled_out(deployment: Deployment, estimate: Estimate) -> Deployment:
    """The same with every field set, as it comes back when a caller sends the answer's deployment to `/memory`."""
    block = estimate.block_size_tokens or deployment.block_size_tokens
    return Deployment.model_validate(deployment.model_dump() | {"block_size_tokens": block})


def _target(start: EngineStart, estimate: Estimate) -> int | None:
    """The pool to reproduce: the printed bytes, or what the printed tokens need; of pipeline stages the tokens decide [bytes]."""
    pool, tokens = printed_pool_bytes(start), start.kv_cache_tokens
    by_tokens = None
    if tokens and estimate.kv_cache_tokens and estimate.kv_cache_bytes > 0:
        by_tokens = round(tokens * estimate.kv_cache_bytes / estimate.kv_cache_tokens)
    if pool is not None and ((start.pp or 1) == 1 or by_tokens is None):
        return max(0, pool)
    return by_tokens


def _tolerance(target: int) -> float:
    return max(REPRODUCED_RATIO * target, MIB)


def _correction(start: EngineStart, deployment: Deployment, estimate: Estimate, measured: list[str], target: int) -> Correction:
    ratio = cache_ratio(start, estimate)
    return Correction(
        deployment=deployment,
        measured=measured,
        kv_cache_bytes_per_gpu=estimate.kv_cache_bytes,
        kv_capacity_tokens=estimate.kv_cache_tokens,
        max_concurrency_at_max_len_ratio=estimate.concurrency_ratio,
        reproduces=abs(estimate.kv_cache_bytes - target) <= _tolerance(target) and (ratio is None or abs(ratio - 1) <= CLOSE_RATIO),
    )
