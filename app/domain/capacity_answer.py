"""The answer of `/capacity`: demand, what one replica gives, the constraints, and the fleet, with the working."""

from dataclasses import replace

from app.domain.capacity import Constraint, ConstraintName, PerReplica, nodes_for
from app.domain.capacity_notes import capacity_warnings, modelled_warnings
from app.domain.capacity_variants import Pools, PrefixCacheEffect, pools_of, prefix_effects
from app.domain.capacity_working import bound_steps, fleet_steps, modelled_steps, replica_steps
from app.domain.concurrency import concurrency_steps
from app.domain.demand import Demand, demand_steps
from app.domain.deployment import Deployment
from app.domain.engine_arguments import EngineArguments
from app.domain.expected_latency import ExpectedLatency, expected_latency, expected_steps
from app.domain.fleet import Reserve, RollingUpdate, Situation, situations_of, sized
from app.domain.fleet_cost import FleetCost, fleet_cost
from app.domain.hardware import Gpu
from app.domain.llm import Llm
from app.domain.memory_fit import Fit
from app.domain.memory_working import memory_steps
from app.domain.prefix_cache import shared_prefix
from app.domain.provenance import Answer, Note, Versions
from app.domain.simulated_capacity import Simulated, SimulatedCapacity, simulated_notes, simulated_steps, simulated_warnings
from app.domain.sizing import Latency, Sizing
from app.domain.speed_limits import SpeedLimits, speed_limits
from app.domain.units import plain, seconds
from app.domain.workload import Workload


class CapacityAnswer(Answer):
    """Replicas, accelerators and nodes for a workload."""

    model: str | None
    """Catalog slug, `inline`, or None when not given."""
    gpu: str | None
    """Catalog slug, `inline`, or None when not given."""
    demand: Demand
    """What the traffic needs."""
    time_in_system_s: float | None
    """Mean time of a request in the system, as used for the concurrency [s]."""
    concurrency: float | None
    """Requests in the system at the peak: request_rps x time_in_system_s."""
    per_replica: PerReplica
    """What one replica gives."""
    limits: SpeedLimits | None
    """FLOPs and least times; None without a model."""
    latency: Latency | None
    """Expected times of one request; None when nothing is known about the speed."""
    constraints: list[Constraint]
    """Every limit as a number of replicas."""
    binding: ConstraintName | None
    """The constraint that needs most replicas."""
    redundancy_ratio: float
    """Factor on the largest constraint."""
    spare_replicas: int
    """Replicas added on top."""
    replicas: int | None
    """Replicas in all; None, as what follows from it, when no constraint could be evaluated, or when one replica cannot hold a single
    request and no number of them helps."""
    gpus_per_replica: int
    """Accelerators of one replica."""
    gpus: int | None
    """Accelerators in all: replicas x gpus_per_replica."""
    gpus_per_node: int
    """Accelerators of one machine."""
    replicas_per_node: int
    """Replicas that share a machine; 0 when one replica spans several."""
    nodes_per_replica: int
    """Machines of one replica."""
    nodes: int | None
    """Machines in all."""
    utilization_ratio: float | None
    """Largest constraint / replicas."""
    expected: ExpectedLatency | None
    """Times with all replicas serving the peak; None without a modelled replica (name an engine), and where requests outrun the fleet."""
    simulated: SimulatedCapacity | None
    """The fleet that holds the objectives by simulation, its neighbours and its reserve; None where percentiles are approximated."""
    situations: list[Situation]
    """The peak while replicas are away or exchanged."""
    pools: Pools | None
    """Long prompts on replicas of their own; None where no prompts are far longer than the rest, the objectives do not decide the size, or
    nothing is modelled."""
    prefix_cache_effect: list[PrefixCacheEffect]
    """The same traffic at other prefix hits; empty where nothing is modelled, or figures were measured."""
    engine_args: EngineArguments | None
    """The command that starts one replica as it was sized; None without a model, and for engines other than vLLM and SGLang."""
    cost: FleetCost | None
    """None when no price is known."""


def answer_capacity(
    llm: Llm | None,
    gpu: Gpu | None,
    deployment: Deployment,
    workload: Workload,
    sizing: Sizing,
    *,
    found: Fit | None,
    simulated: Simulated | None,
    safety_ratio: float,
    reserve: Reserve,
    rolling_update: RollingUpdate | None,
    engine_args: EngineArguments | None,
    gpus_per_node: int,
    usd_per_gpu_hour: float | None,
    price_source: str,
    assumptions: list[Note],
    warnings: list[Note],
    versions: Versions,
) -> CapacityAnswer:
    """Replicas for a workload: see `fleet.Reserve`.

    Constraints: output rate, input rate, concurrency (Little: rps x time in system), KV cache, objectives. Rates per second, times in
    seconds. Measured figures replace modelled ones, which replace bounds where an engine is named; a constraint that lacks its figures
    says so and takes no part.
    """
    found_fleet = sized(sizing, reserve)
    constraints, binding, replicas = found_fleet.constraints, found_fleet.binding, found_fleet.replicas
    per_replica, prefix = deployment.num_gpus, shared_prefix(workload, deployment)
    nodes = nodes_for(replicas, per_replica, gpus_per_node)
    demand, latency, speed = sizing.demand, sizing.latency, sizing.speed
    rates = {item.name: item.per_replica for item in constraints}
    is_sized = binding is not None and (found is None or found.holds_requests)
    utilization = binding.replicas_exact / replicas if is_sized and binding is not None and binding.replicas_exact is not None else None
    gpus = replicas * per_replica
    loaded = speed.at_rate(demand.request_rps / replicas) if is_sized and speed is not None else None
    cost, cost_steps = (
        fleet_cost(workload, demand, gpus, replicas, usd_per_gpu_hour, price_source, speed, loaded)
        if is_sized and usd_per_gpu_hour is not None
        else (None, [])
    )
    expected = expected_latency(speed, loaded) if speed is not None and loaded is not None else None
    approximated, simulation = found_fleet, None
    if simulated is not None and speed is not None:
        if is_sized and simulated.trials.is_long_enough(replicas):
            expected = simulated.expected(speed, replicas)
        held = speed.within_objectives
        simulation = simulated.answer(held and demand.request_rps / held.request_rps, replicas if is_sized else None)
        approximated = sized(replace(sizing, simulated=None), reserve)
    pools = pools_of(workload, approximated, reserve, safety_ratio, per_replica) if is_sized else None
    return CapacityAnswer(
        summary=_summary(llm, gpu, demand, binding, replicas if is_sized else None, per_replica, latency, expected)
        + _cannot(found, constraints),
        working=[
            *demand_steps(workload, demand),
            *(memory_steps(llm, gpu, deployment, found) if llm and gpu and found else []),
            *(concurrency_steps(found, deployment, sizing.holds, safety_ratio, prefix) if found and found.cost and sizing.holds else []),
            *(bound_steps(llm, sizing, sizing.bounds, sizing.least) if llm and sizing.bounds and sizing.least else []),
            *modelled_steps(sizing, constraints),
            *(simulated_steps(simulated, speed.basis) if simulated and speed else []),
            *replica_steps(sizing, constraints, binding, replicas if is_sized else None, reserve),
            *(expected_steps(speed, loaded, demand.request_rps, replicas) if speed and loaded and not simulated else []),
            *(fleet_steps(deployment, nodes, replicas, binding) if is_sized else []),
            *cost_steps,
        ],
        assumptions=[*assumptions, *(simulated_notes(simulated) if simulated else [])],
        warnings=[
            *capacity_warnings(llm, workload, sizing, constraints, found, utilization, deployment),
            *modelled_warnings(sizing, loaded, expected, is_sized=is_sized),
            *(simulated_warnings(simulation) if simulation else []),
            *warnings,
        ],
        versions=versions,
        model=llm.slug if llm else None,
        gpu=gpu.slug if gpu else None,
        demand=demand,
        time_in_system_s=sizing.time_in_system_s and sizing.time_in_system_s.value,
        concurrency=sizing.concurrency and sizing.concurrency.value,
        per_replica=PerReplica(
            gpus=per_replica,
            kv_capacity_tokens=found.capacity_tokens() if found else None,
            num_engine_ranks=deployment.dp,
            max_concurrency=sizing.holds.max_concurrency if sizing.holds else None,
            safe_concurrency=sizing.holds.safe_concurrency if sizing.holds else None,
            concurrency=sizing.planned_concurrency,
            output_tokens_per_s=rates["throughput"],
            input_tokens_per_s=rates["prefill"],
        ),
        limits=speed_limits(llm, deployment, sizing) if llm else None,
        latency=latency,
        constraints=constraints,
        binding=None if binding is None else binding.name,
        redundancy_ratio=reserve.redundancy_ratio,
        spare_replicas=reserve.spare_replicas,
        replicas=replicas if is_sized else None,
        gpus_per_replica=per_replica,
        gpus=gpus if is_sized else None,
        gpus_per_node=nodes.gpus_per_node,
        replicas_per_node=nodes.replicas_per_node,
        nodes_per_replica=nodes.nodes_per_replica,
        nodes=nodes.nodes if is_sized else None,
        utilization_ratio=utilization,
        expected=expected,
        simulated=simulation,
        situations=situations_of(found_fleet, per_replica, gpus_per_node, rolling_update) if is_sized else [],
        pools=pools,
        prefix_cache_effect=prefix_effects(workload, approximated, reserve, safety_ratio, per_replica) if is_sized else [],
        engine_args=engine_args,
        cost=cost,
    )


def _cannot(found: Fit | None, constraints: list[Constraint]) -> str:
    """What no number of replicas can do, as a sentence that travels with the summary."""
    if found is not None and found.verdict != "serves":
        return f" But one replica does not serve ({found.verdict}, limited by {found.limiting}): no number of replicas helps."
    broken = [item for item in constraints if item.per_replica == 0]
    return "".join(f" But {item.name} {item.note}." for item in broken)


def _summary(
    llm: Llm | None,
    gpu: Gpu | None,
    demand: Demand,
    binding: Constraint | None,
    replicas: int | None,
    per_replica: int,
    latency: Latency | None,
    expected: ExpectedLatency | None,
) -> str:
    what = f"{llm.slug} for " if llm else ""
    where = f" {gpu.slug}" if gpu else ""
    head = (
        f"{what}{plain(demand.request_rps)} requests/s "
        f"({demand.input_tokens_per_s:,.0f} input and {demand.output_tokens_per_s:,.0f} output tokens/s)"
    )
    if replicas is None or binding is None:
        return f"{head}: not sized" + ("." if binding is not None else ", because no constraint could be evaluated.")
    head += f": {replicas * per_replica}{where} GPUs = {replicas} replicas x {per_replica}"
    tail = f", bound by {binding.name} ({binding.replicas_exact:.3g} replicas before redundancy)"
    if expected is not None:
        tail += f"; TTFT P95 {seconds(expected.ttft.p95_s.value)}, TPOT P95 {seconds(expected.tpot.p95_s.value)} at that size"
    elif latency is not None:
        tail += f"; a request takes {'at least ' if latency.basis == 'bound' else ''}{seconds(latency.e2e_s)}"
    return head + tail + "."
