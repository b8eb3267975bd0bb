"""How many replicas a demand needs: constraints, the binding one, redundancy, nodes."""

import math
from dataclasses import dataclass
from typing import Literal

from app.domain.provenance import Basis, weakest
from app.domain.replica_speed import Objective, ReplicaSpeed
from app.domain.rounding import ceil
from app.domain.simulated_search import FoundSize
from app.domain.simulation_answer import SimulatedObjective
from app.domain.sizing import Known, Measured, Sizing
from app.domain.units import plain, seconds
from app.domain.value import Value
from app.domain.workload import Slo

ConstraintName = Literal["throughput", "prefill", "concurrency", "kv_cache", "slo"]
LARGEST_BATCH = 65536


@dataclass(slots=True, unsafe_hash=True)
class Constraint:
    """One limit as a number of replicas."""

    # No Value and not frozen, as steps are: an answer sizes several fleets.
    __pydantic_config__ = Value.model_config

    name: ConstraintName
    """What limits."""
    demand: float | None
    """What the traffic needs, in `unit`."""
    per_replica: float | None
    """What one replica gives, in `unit`."""
    unit: str
    """Unit of both."""
    replicas_exact: float | None
    """demand / per_replica; None when it was not evaluated or cannot be held."""
    replicas: int | None
    """Rounded up."""
    basis: Basis | None
    """The weaker of how demand and per_replica are known; None when one is not."""
    note: str
    """What the figures are, or why there are none."""


class PerReplica(Value):
    """What one replica holds and sustains."""

    gpus: int
    """Accelerators."""
    kv_capacity_tokens: int | None
    """Token positions of one engine rank, of which the replica has dp; None when the model or the accelerator is not given."""
    num_engine_ranks: int
    """Attention data-parallel ranks (dp), each with a KV pool of its own."""
    max_concurrency: int | None
    """Requests of mean length that fit, over all engine ranks."""
    safe_concurrency: int | None
    """floor(max_concurrency x safety_ratio), but one where one fits."""
    concurrency: float | None
    """Requests that run at once in this plan; None when it is not known."""
    output_tokens_per_s: float | None
    """Output tokens per second."""
    input_tokens_per_s: float | None
    """Input tokens per second."""


def constraints_of(sizing: Sizing) -> list[Constraint]:
    """Every limit as replicas = demand / what one replica gives; those that lack a figure say which."""
    return [_throughput(sizing), _prefill(sizing), *_concurrent(sizing), _slo(sizing)]


def _constraint(
    name: ConstraintName, need: "Known | float | None", per_replica: float | None, unit: str, basis: Basis | None, note: str
) -> Constraint:
    demand = need.value if isinstance(need, Known) else need
    if isinstance(need, Known) and basis is not None:
        basis = weakest(need.basis, basis)
    ratio = demand / per_replica if demand is not None and per_replica else None
    replicas = None if ratio is None else max(1, ceil(ratio))
    return Constraint(name, demand, per_replica, unit, ratio, replicas, basis, note)


def _throughput(sizing: Sizing) -> Constraint:
    need = sizing.demand.output_tokens_per_s
    if sizing.measured and sizing.measured.output_tokens_per_s is not None:
        rate = sizing.measured.output_tokens_per_s
        return _constraint("throughput", need, rate, "output tokens/s", "measured", "measured output rate of one replica")
    if sizing.speed is not None:
        return _modelled_throughput(sizing, sizing.speed)
    if sizing.bounds is None or sizing.least is None:
        return _constraint(
            "throughput", need, None, "output tokens/s", None, "not evaluated: no measured rate, and no model with gpu for a bound"
        )
    if sizing.planned_concurrency is None:
        rate, note = sizing.bounds.compute_tokens_per_s(), "arithmetic bound: how many requests run at once is not known"
        return _constraint("throughput", need, rate, "output tokens/s", "bound", note)
    if not sizing.planned_concurrency:
        return _constraint("throughput", need, None, "output tokens/s", None, "not evaluated: one replica holds no request of mean length")
    rate = sizing.running / sizing.least.tpot_s
    note = f"bandwidth bound at {plain(sizing.running)} running requests of {plain(sizing.context_tokens)} tokens: no engine is faster"
    return _constraint("throughput", need, rate, "output tokens/s", "bound", note)


def _modelled_throughput(sizing: Sizing, speed: ReplicaSpeed) -> Constraint:
    need, planned = sizing.demand.output_tokens_per_s, sizing.planned_concurrency
    if not speed.serves or planned == 0:
        return _constraint("throughput", need, None, "output tokens/s", None, "not evaluated: one replica holds no request of mean length")
    concurrency = speed.performance.places if planned is None else planned
    rate = speed.most_rps(concurrency) * sizing.demand.mean_output_tokens
    note = f"modelled at {plain(concurrency)} requests at once, prompts and outputs together"
    return _constraint("throughput", need, rate, "output tokens/s", speed.basis, note)


def _prefill(sizing: Sizing) -> Constraint:
    need = sizing.demand.computed_input_tokens_per_s
    if sizing.measured and sizing.measured.input_tokens_per_s is not None:
        rate = sizing.measured.input_tokens_per_s
        return _constraint("prefill", need, rate, "input tokens/s", "measured", "measured input rate of one replica")
    if sizing.speed is not None:
        rate = sizing.speed.prefill_tokens_per_s
        return _constraint("prefill", need, rate, "input tokens/s", sizing.speed.basis, "modelled: prompts alone, as many as a step takes")
    if sizing.least is None:
        return _constraint(
            "prefill", need, None, "input tokens/s", None, "not evaluated: no measured rate, and no model with gpu for a bound"
        )
    prompt = sizing.demand.mean_input_tokens
    rate = (prompt - sizing.cached_tokens(prompt)) / sizing.least.prefill_s
    return _constraint("prefill", need, rate, "input tokens/s", "bound", "arithmetic bound at 100 % of the dense peak: no engine is faster")


def _concurrent(sizing: Sizing) -> list[Constraint]:
    measured, holds, concurrency = sizing.measured, sizing.holds, sizing.concurrency
    if measured and measured.concurrency is not None:
        running = _constraint(
            "concurrency", concurrency, measured.concurrency, "requests", "measured", "measured concurrency of one replica"
        )
    elif sizing.max_num_seqs is not None:
        running = _constraint("concurrency", concurrency, sizing.max_num_seqs, "requests", "exact", "max_num_seqs of one replica")
    else:
        running = _constraint(
            "concurrency", concurrency, None, "requests", None, "not evaluated: neither a measured concurrency nor max_num_seqs"
        )
    if measured and measured.kv_concurrency is not None:
        held = _constraint(
            "kv_cache", concurrency, measured.kv_concurrency, "requests", "measured", "requests that one replica's KV cache holds"
        )
    elif holds is None:
        held = _constraint("kv_cache", concurrency, None, "requests", None, "not evaluated: the model's layers or the gpu are not given")
    elif not holds.safe_concurrency:
        held = _constraint("kv_cache", concurrency, 0, "requests", "exact", "one replica holds no request of mean length")
    else:
        held = _constraint("kv_cache", concurrency, holds.safe_concurrency, "requests", "exact", "safe_concurrency at the mean length")
    return [running, held]


def _slo(sizing: Sizing) -> Constraint:
    """Requests per replica at which the objectives can hold; a bound above an objective means that no number of replicas holds it."""
    slo, unit, concurrency = sizing.slo, "requests", sizing.concurrency
    if slo is None:
        return _constraint("slo", concurrency, None, unit, None, "not evaluated: no objectives")
    if sizing.speed is not None:
        return _modelled_slo(sizing, sizing.speed)
    broken = [f"{name} {plain(actual)} s > {plain(limit)} s" for name, actual, limit in _objectives(sizing, slo) if actual > limit]
    if broken:
        return _constraint("slo", concurrency, 0, unit, "bound", f"cannot be held by any number of these replicas: {', '.join(broken)}")
    tpot = min((limit for limit in (slo.tpot_p95_s, slo.tpot_p99_s) if limit is not None), default=None)
    if sizing.bounds is None or tpot is None:
        return _constraint(
            "slo", concurrency, None, unit, None, "no limit on the number of requests: needs a TPOT objective, a model and a gpu"
        )
    most = sizing.bounds.largest_batch(tpot, sizing.context_tokens, LARGEST_BATCH)
    return _constraint(
        "slo", concurrency, most, unit, "bound", f"most requests whose TPOT stays within {plain(tpot)} s even at the bandwidth bound"
    )


def _modelled_slo(sizing: Sizing, speed: ReplicaSpeed) -> Constraint:
    """Requests per second at which one replica just holds every objective; measured times are held against theirs as they are."""
    need, unit, measured = sizing.demand.request_rps, "requests/s", sizing.measured or Measured()
    missed = [each for each in measured.objectives(sizing.slo or Slo()) if not each.holds]
    if missed:
        return _constraint("slo", need, 0, unit, "measured", f"cannot be held as measured: {_listed(missed)}")
    if speed.slo is None:
        return _constraint("slo", need, None, unit, None, "no limit on the number of requests: every objective is held as measured")
    if not speed.serves:
        return _constraint("slo", need, None, unit, None, "not evaluated: one replica holds no request of mean length")
    if sizing.simulated is not None:
        return _simulated_slo(sizing.simulated, need, speed)
    held = speed.within_objectives
    if held is not None:
        closest = max(speed.objectives(held), key=lambda each: each.expected_s / each.limit_s)
        note = f"largest rate of one replica that holds the objectives: {_listed(speed.objectives(held))}; {closest.name} is the closest"
        return _constraint("slo", need, held.request_rps, unit, speed.basis, note)
    missed = [] if speed.idle is None else [each for each in speed.objectives(speed.idle) if not each.holds]
    note = f"cannot be held by any number of these replicas: {_listed(missed)} with no other request in it{speed.reason(missed)}"
    return _constraint("slo", need, 0, unit, speed.basis, note)


def _simulated_slo(found: FoundSize, need: float, speed: ReplicaSpeed) -> Constraint:
    if found.needed is not None and found.replicas_exact is not None:
        rows = found.needed.objectives
        listed = ", ".join(f"{each.name.removesuffix('_s')} {simulated_text(each)}" for each in rows)
        note = f"simulated: {plain(found.needed.num_replicas)} replicas hold the objectives: {listed}"
        if found.is_upper:
            note = f"approximated, and by simulation {note.removeprefix('simulated: ')}"
        return _constraint("slo", need, need / found.replicas_exact, "requests/s", speed.basis, note)
    rows = [] if found.idle is None else [each for each in found.idle.objectives if not each.is_within]
    listed = ", ".join(f"{each.name.removesuffix('_s')} {simulated_text(each)}" for each in rows)
    missed = [Objective(each.name.removesuffix("_s"), each.limit_s, math.inf if each.found is None else each.found.value) for each in rows]
    note = f"cannot be held by any number of these replicas: {listed} with next to no other request in it{speed.reason(missed)}"
    return _constraint("slo", need, 0, "requests/s", speed.basis, note)


def simulated_text(each: SimulatedObjective) -> str:
    """A percentile with its interval against its limit, as `1.2 s (1 s to 1.4 s) <= 2 s`."""
    if each.found is None:
        return "of no request: answers have one token" if each.is_within else "not measured: nothing finished"
    found, holds = each.found, each.is_within
    between = "" if found.low is None or found.high is None else f" ({seconds(found.low)} to {seconds(found.high)})"
    return f"{seconds(found.value)}{between} {'<=' if holds else '>'} {seconds(each.limit_s)}"


def _listed(objectives: list[Objective]) -> str:
    return ", ".join(f"{each.name} {seconds(each.expected_s)} {'<=' if each.holds else '>'} {seconds(each.limit_s)}" for each in objectives)


def _objectives(sizing: Sizing, slo: Slo) -> list[tuple[str, float, float]]:
    """(name, best possible or measured time, objective) of every objective that can be judged."""
    measured, bounds, demand = sizing.measured, sizing.bounds, sizing.demand
    pairs: list[tuple[str, float, float]] = []
    prompt = demand.p95_input_tokens or demand.mean_input_tokens
    ttft: float | None = bounds.prefill_s(prompt, sizing.cached_tokens(prompt)) if bounds else None
    if measured and measured.ttft_s is not None:
        ttft = measured.ttft_s
    if ttft is not None and measured and measured.queue_s is not None:
        ttft += measured.queue_s
    if measured and measured.tpot_s is not None:
        tpot: float | None = measured.tpot_s
    else:
        tpot = bounds.tpot_s(1, sizing.context_tokens) if bounds else None
    for level in ("p95", "p99"):
        for name, actual in (("ttft", ttft), ("tpot", tpot)):
            limit = getattr(slo, f"{name}_{level}_s")
            if limit is not None and actual is not None:
                pairs.append((f"{name}_{level}", actual, limit))
        limit = getattr(slo, f"e2e_{level}_s")
        if limit is not None and measured and measured.e2e_s is not None:
            pairs.append((f"e2e_{level}", measured.e2e_s, limit))
        elif limit is not None and ttft is not None and tpot is not None:
            pairs.append((f"e2e_{level}", ttft + demand.mean_output_tokens * tpot, limit))
    return pairs


@dataclass(frozen=True)
class Nodes:
    """Machines that the replicas occupy."""

    gpus_per_node: int
    replicas_per_node: int
    nodes_per_replica: int
    nodes: int


def nodes_for(replicas: int, gpus_per_replica: int, gpus_per_node: int) -> Nodes:
    """Whole nodes: floor(gpus_per_node / gpus_per_replica) replicas each, or ceil(gpus_per_replica / gpus_per_node) nodes per replica.

    >>> nodes_for(5, 4, 8).nodes
    3
    """
    per_node = gpus_per_node // gpus_per_replica
    if per_node:
        return Nodes(gpus_per_node, per_node, 1, -(-replicas // per_node))
    per_replica = -(-gpus_per_replica // gpus_per_node)
    return Nodes(gpus_per_node, 0, per_replica, replicas * per_replica)
