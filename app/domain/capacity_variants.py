"""What other prefix hits, and pools of their own for long prompts, would change in a fleet."""

from dataclasses import replace
from typing import Literal

from app.domain.capacity import ConstraintName
from app.domain.concurrency import ConcurrencyAtLength, at_length
from app.domain.demand import Demand, demand_of
from app.domain.fleet import Reserve, Sized, sized
from app.domain.length_spread import Part, natural_split, parts_at, spread_of
from app.domain.performance import Lengths, Performance
from app.domain.prefix_cache import PrefixCache, shared_prefix
from app.domain.replica_speed import ReplicaSpeed
from app.domain.sizing import Sizing, cached_tokens
from app.domain.units import exact, plain
from app.domain.value import Value
from app.domain.workload import Slo, TokenLengths, Workload

PREFIX_HITS = (0.0, 0.5, 0.8)
"""Hit ratios at which the effect of the prefix cache is shown."""
FAR_RATIO = 2.0
"""Prompts this many times the mean, or classes as far apart, are looked at as a pool of their own."""


class PrefixCacheEffect(Value):
    """The same traffic at another share of the shared prefix tokens (of the whole prompt where none are stated) found in the cache."""

    prefix_hit_ratio: float
    """Share that is found."""
    computed_input_tokens_per_s: float
    """Prompt tokens left to compute in the fleet [tokens/s]."""
    replicas_exact: float | None
    """Of the binding constraint."""
    replicas: int | None
    """With redundancy and spare replicas; None where the objectives cannot be held."""
    gpus: int | None
    """replicas x gpus_per_replica."""
    binding: ConstraintName | None
    """The constraint that needs most replicas."""
    ttft_p95_s: float | None
    """With as many replicas as this answer says; None where requests outrun them [s]."""
    tpot_p95_s: float | None
    """The same of the time per output token [s]."""


class Pool(Value):
    """Replicas that serve the prompts of one side of the split alone."""

    name: Literal["short", "long"]
    """Which side."""
    share_ratio: float
    """Share of the requests."""
    request_rps: float
    """Requests of the pool [requests/s]."""
    mean_input_tokens: float
    """Mean prompt [tokens]."""
    p95_input_tokens: float
    """95th percentile of its prompts [tokens]."""
    mean_output_tokens: float
    """Mean output [tokens]."""
    replicas: int | None
    """With redundancy and spare replicas; None where the objectives cannot be held."""
    gpus: int | None
    """replicas x gpus_per_replica."""
    binding: ConstraintName | None
    """The constraint that needs most replicas."""
    ttft_p95_s: float | None
    """Of the requests of this pool at that size [s]."""
    tpot_p95_s: float | None
    """The same of the time per output token [s]."""


class Pools(Value):
    """Short and long prompts on replicas of their own, against one pool for all. Objectives are held by each pool on its own."""

    split_tokens: float
    """Longest prompt of the short pool [tokens]."""
    pools: list[Pool]
    """Short and long."""
    replicas: int | None
    """Of both pools together."""
    gpus: int | None
    """Of both pools together."""
    one_pool_replicas: int | None
    """Replicas of one pool for all, as in this answer; None where it cannot hold the objectives."""
    recommended: bool
    """Whether the split needs fewer replicas, or holds objectives that one pool does not."""
    reason: str
    """Why, or why not."""


def speed_of(performance: Performance, workload: Workload, demand: Demand, slo: Slo | None) -> ReplicaSpeed:
    """A modelled replica under a workload; `performance` has its mean lengths and prefix hits."""
    cached = cached_tokens(demand, demand.mean_input_tokens)
    return ReplicaSpeed(performance, spread_of(workload, "input_tokens"), spread_of(workload, "output_tokens"), cached, slo)


def lengths_of(demand: Demand, shared: PrefixCache | None = None) -> Lengths:
    """Mean lengths of a demand, with the share of the mean prompt that the prefix cache serves; `shared` is what requests hold once."""
    prompt = demand.mean_input_tokens
    return Lengths(prompt, max(1.0, demand.mean_output_tokens), cached_tokens(demand, prompt) / prompt, shared)


def prefix_effects(
    workload: Workload, found: Sized, reserve: Reserve, safety_ratio: float, gpus_per_replica: int
) -> list[PrefixCacheEffect]:
    """The fleet at prefix hits of 0, 50 and 80 %, and at those of the workload.

    Empty without a modelled replica, and where figures were measured: they hold at the hits at which they were measured.
    """
    sizing, own = found.sizing, workload.prefix_hit_ratio
    if sizing.speed is None or not sizing.speed.serves or sizing.measured is not None:
        return []
    rows = []
    for ratio in sorted({*PREFIX_HITS, own}):
        at = found
        if ratio != own:
            at = sized(_at_hits(workload.model_copy(update={"prefix_hit_ratio": ratio}), sizing, sizing.speed, safety_ratio), reserve)
        speed = at.sizing.speed
        loaded = None if speed is None else speed.at_rate(at.sizing.demand.request_rps / found.replicas)
        replicas = at.replicas if at.holds_objectives else None
        rows.append(
            PrefixCacheEffect(
                prefix_hit_ratio=ratio,
                computed_input_tokens_per_s=at.sizing.demand.computed_input_tokens_per_s,
                replicas_exact=None if at.binding is None else at.binding.replicas_exact,
                replicas=replicas,
                gpus=None if replicas is None else replicas * gpus_per_replica,
                binding=None if at.binding is None else at.binding.name,
                ttft_p95_s=None if loaded is None else loaded.tails.percentile("ttft", "p95"),
                tpot_p95_s=None if loaded is None else loaded.tails.percentile("tpot", "p95"),
            )
        )
    return rows


def _at_hits(workload: Workload, sizing: Sizing, speed: ReplicaSpeed, safety_ratio: float) -> Sizing:
    demand, performance, holds = demand_of(workload), speed.performance, sizing.holds
    lengths = lengths_of(demand, shared_prefix(workload, performance.deployment))
    if not workload.shared_prefix_tokens:
        performance = performance.with_lengths(lengths)
    else:  # requests hold more or less in common
        performance = performance.at_lengths(lengths)
        holds = holds and _holds(performance, lengths, safety_ratio)
    cached = lengths.input_tokens * lengths.prefix_hit_ratio
    own = ReplicaSpeed(performance, speed.inputs, speed.outputs, cached, speed.slo)
    return replace(sizing, demand=demand, holds=holds, speed=own, bounds=None)


def _holds(performance: Performance, lengths: Lengths, safety_ratio: float) -> ConcurrencyAtLength:
    tokens = lengths.input_tokens + lengths.output_tokens
    return at_length(performance.found, performance.deployment, tokens, safety_ratio, lengths.held_once)


def pools_of(workload: Workload, found: Sized, reserve: Reserve, safety_ratio: float, gpus_per_replica: int) -> Pools | None:
    """Short and long prompts apart, where some prompts are far longer than the rest; None where none are, and where figures were measured.

    Also None where the objectives do not decide the size: a step takes what its tokens take, so that without them a split saves nothing.
    Each pool has the deployment, objectives and reserve of the whole, its own lengths and its share of the requests.
    """
    sizing = found.sizing
    if found.binding is None or (found.binding.name != "slo" and found.holds_objectives):
        return None
    split = natural_split(workload, FAR_RATIO)
    parts = None if split is None else parts_at(workload, split)
    if parts is None or split is None or sizing.speed is None or not sizing.speed.serves or sizing.measured is not None:
        return None
    both = [_pool_sized(workload, sizing, part, reserve, safety_ratio) for part in parts]
    pools = [_pool(name, part, each, gpus_per_replica) for name, part, each in zip(("short", "long"), parts, both, strict=True)]
    needed = [each.replicas for each in pools]
    total = None if None in needed else sum(each for each in needed if each is not None)
    single = found.replicas if found.holds_objectives else None
    recommended, reason = _verdict(pools, total, single)
    return Pools(
        split_tokens=exact(split * workload.token_growth_ratio),
        pools=pools,
        replicas=total,
        gpus=None if total is None else total * gpus_per_replica,
        one_pool_replicas=single,
        recommended=recommended,
        reason=reason,
    )


def _verdict(pools: list[Pool], total: int | None, single: int | None) -> tuple[bool, str]:
    short, long = pools
    if single is None:
        if total is not None:
            return True, "One pool cannot hold the objectives, two can."
        if short.replicas is not None:
            prompts = f"prompts of {plain(round(long.p95_input_tokens))} tokens (P95)"
            return True, f"One pool cannot hold the objectives; the short pool can, the long one cannot for {prompts}."
        return False, "Neither one pool nor a short one holds the objectives."
    if total is None:
        missing = "long" if short.replicas is not None else "short"
        return False, f"The {missing} pool alone cannot hold the objectives that all requests together hold."
    if total < single:
        return True, f"{total} replicas in two pools against {single} in one: short requests no longer wait behind long prompts."
    strict = " The objectives are stricter for the long pool alone than for all requests together." * (long.binding == "slo")
    return False, f"{total} replicas in two pools against {single} in one: the split saves none.{strict}"


def _pool_sized(workload: Workload, whole: Sizing, part: Part, reserve: Reserve, safety_ratio: float) -> Sized:
    inputs, outputs = part.inputs, part.outputs
    shared = workload.shared_prefix_tokens
    own = workload.model_copy(
        update={
            "peak_rps": whole.demand.request_rps * part.share_ratio,
            "mean_rps": None,
            "burst_ratio": 1,
            "token_growth_ratio": 1,
            "classes": (),
            "input_tokens": TokenLengths.model_construct(mean=inputs.mean, p50=None, p95=inputs.p95, p99=inputs.p99),
            "output_tokens": TokenLengths.model_construct(mean=outputs.mean, p50=None, p95=outputs.p95, p99=outputs.p99),
            "shared_prefix_tokens": None if shared is None else min(shared * workload.token_growth_ratio, inputs.mean),
        }
    )
    demand, speed = demand_of(own), whole.speed
    assert speed is not None  # noqa: S101 - the caller asks for pools of modelled replicas only
    lengths = lengths_of(demand, shared_prefix(own, speed.performance.deployment))
    performance = speed.performance.at_lengths(lengths)
    holds = whole.holds and _holds(performance, lengths, safety_ratio)
    cached = lengths.input_tokens * lengths.prefix_hit_ratio
    own_speed = ReplicaSpeed(performance, inputs, outputs, cached, speed.slo)
    return sized(replace(whole, demand=demand, holds=holds, speed=own_speed, bounds=None), reserve)


def _pool(name: str, part: Part, found: Sized, gpus_per_replica: int) -> Pool:
    demand, speed = found.sizing.demand, found.sizing.speed
    replicas = found.replicas if found.holds_objectives and found.binding is not None else None
    loaded = None if speed is None or replicas is None else speed.at_rate(demand.request_rps / replicas)
    return Pool.model_validate(
        {
            "name": name,
            "share_ratio": part.share_ratio,
            "request_rps": demand.request_rps,
            "mean_input_tokens": part.inputs.mean,
            "p95_input_tokens": part.inputs.p95,
            "mean_output_tokens": part.outputs.mean,
            "replicas": replicas,
            "gpus": None if replicas is None else replicas * gpus_per_replica,
            "binding": None if found.binding is None else found.binding.name,
            "ttft_p95_s": None if loaded is None else loaded.tails.percentile("ttft", "p95"),
            "tpot_p95_s": None if loaded is None else loaded.tails.percentile("tpot", "p95"),
        }
    )
