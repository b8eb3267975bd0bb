"""The answer of `/capacity`: demand, what one replica gives, the constraints, and the fleet, with the working."""

from app.domain.bounds import attention_flops, causal_attention_flops, linear_flops
from app.domain.capacity import Constraint, ConstraintName, PerReplica, constraints_of, nodes_for, replicas_with_redundancy
from app.domain.capacity_notes import capacity_warnings
from app.domain.capacity_working import bound_steps, fleet_steps, replica_steps
from app.domain.concurrency import concurrency_steps
from app.domain.cost import HOURS_PER_MONTH, usd_per_million
from app.domain.cost import SOURCE as COST_SOURCE
from app.domain.demand import Demand, demand_steps
from app.domain.deployment import Deployment
from app.domain.hardware import Gpu
from app.domain.llm import Llm
from app.domain.memory_fit import Fit
from app.domain.memory_working import memory_steps
from app.domain.provenance import Answer, Basis, Note, Step, Versions, step
from app.domain.sizing import Latency, Sizing
from app.domain.units import exact, plain, seconds, tidy
from app.domain.value import Value
from app.domain.workload import Workload


class SpeedLimits(Value):
    """Arithmetic of the model at this workload; all of it bounds, before any engine inefficiency."""

    prefill_flops: float
    """2 x active parameters x mean prompt, without the tokens that the prefix cache serves [FLOP]."""
    attention_full_flops: float
    """Attention over the full matrix of the mean prompt [FLOP]."""
    attention_causal_flops: float
    """What causal masking and the prefix cache leave of it: half, where every token sees all before it [FLOP]."""
    decode_flops_per_token: float
    """2 x active parameters [FLOP/token]."""
    prefill_s: float | None
    """Least prefill time of the mean prompt on one replica [s]."""
    decode_step_s: float | None
    """Least time of one decode step at the running concurrency, of one request where that is not known [s]."""
    single_stream_output_tokens_per_s: float | None
    """Bandwidth / weights per GPU: best rate of one stream when only weights are read [tokens/s]."""
    prefill_chunks_iterations: int | None
    """Steps that the mean prompt takes: ceil(prompt / max_num_batched_tokens); None without that limit or without chunking."""
    decode_iterations: float
    """Steps of the model per request: output / tokens per step (1 without speculation)."""


class FleetCost(Value):
    """Price of the fleet at the demand of the peak."""

    usd_per_gpu_hour: float
    """Price of one accelerator [USD/hour]."""
    price_source: str
    """Where the price comes from."""
    usd_per_hour: float
    """All accelerators [USD/hour]."""
    usd_per_month: float
    """730 hours [USD]."""
    usd_per_request: float
    """At the peak rate [USD]."""
    usd_per_million_output_tokens: float
    """The whole price on the output tokens of the peak [USD]."""
    usd_per_million_blended_tokens: float
    """The whole price on input and output tokens of the peak [USD]."""


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
    safety_ratio: float,
    redundancy_ratio: float,
    spare_replicas: int,
    gpus_per_node: int,
    usd_per_gpu_hour: float | None,
    price_source: str,
    assumptions: list[Note],
    versions: Versions,
) -> CapacityAnswer:
    """Replicas for a workload: ceil(max over constraints of ceil(demand / per replica) x redundancy) + spare.

    Constraints: output rate, input rate, concurrency (Little: rps x time in system), KV cache, objectives. Rates per second, times in
    seconds. Measured figures replace bounds; a constraint that lacks its figures says so and takes no part.
    """
    constraints = constraints_of(sizing)
    replicas = replicas_with_redundancy(constraints, redundancy_ratio, spare_replicas)
    evaluated = [item for item in constraints if item.replicas_exact is not None]
    binding = max(evaluated, key=lambda item: item.replicas_exact or 0, default=None)
    per_replica = deployment.num_gpus
    nodes = nodes_for(replicas, per_replica, gpus_per_node)
    demand = sizing.demand
    latency = sizing.latency
    rates = {item.name: item.per_replica for item in constraints}
    sized = binding is not None and (found is None or found.holds_requests)
    utilization = binding.replicas_exact / replicas if sized and binding is not None and binding.replicas_exact is not None else None
    gpus = replicas * per_replica
    cost = _cost(demand, gpus, usd_per_gpu_hour, price_source) if sized and usd_per_gpu_hour is not None else None
    return CapacityAnswer(
        summary=_summary(llm, gpu, demand, binding, replicas if sized else None, per_replica, latency) + _cannot(found, constraints),
        working=[
            *demand_steps(workload, demand),
            *(memory_steps(llm, gpu, deployment, found) if llm and gpu and found else []),
            *(concurrency_steps(found, deployment, sizing.holds, safety_ratio) if found and found.cost and sizing.holds else []),
            *(bound_steps(llm, sizing, sizing.bounds, sizing.least) if llm and sizing.bounds and sizing.least else []),
            *replica_steps(sizing, constraints, binding, replicas if sized else None, redundancy_ratio, spare_replicas),
            *(fleet_steps(deployment, nodes, replicas, binding) if sized else []),
            *([] if cost is None else _cost_steps(demand, gpus, cost)),
        ],
        assumptions=assumptions,
        warnings=capacity_warnings(llm, workload, sizing, constraints, found, utilization, deployment),
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
        limits=_limits(llm, deployment, sizing) if llm else None,
        latency=latency,
        constraints=constraints,
        binding=None if binding is None else binding.name,
        redundancy_ratio=redundancy_ratio,
        spare_replicas=spare_replicas,
        replicas=replicas if sized else None,
        gpus_per_replica=per_replica,
        gpus=gpus if sized else None,
        gpus_per_node=nodes.gpus_per_node,
        replicas_per_node=nodes.replicas_per_node,
        nodes_per_replica=nodes.nodes_per_replica,
        nodes=nodes.nodes if sized else None,
        utilization_ratio=utilization,
        cost=cost,
    )


def _limits(llm: Llm, deployment: Deployment, sizing: Sizing) -> SpeedLimits:
    prompt, output = sizing.demand.mean_input_tokens, sizing.demand.mean_output_tokens
    bounds, least = sizing.bounds, sizing.least
    budget = deployment.max_num_batched_tokens if deployment.chunked_prefill else None
    cached = sizing.cached_tokens(prompt)
    return SpeedLimits(
        prefill_flops=exact(linear_flops(llm, prompt - cached)),
        attention_full_flops=exact(attention_flops(llm, prompt)),
        attention_causal_flops=exact(least.causal_flops if least else causal_attention_flops(llm, prompt, cached)),
        decode_flops_per_token=exact(linear_flops(llm, 1)),
        prefill_s=least.prefill_s if least else None,
        decode_step_s=least.decode_step_s if least else None,
        single_stream_output_tokens_per_s=bounds.weights_only_tokens_per_s() if bounds else None,
        prefill_chunks_iterations=None if budget is None else -int(-prompt // budget),
        decode_iterations=output / (deployment.speculative.tokens_per_iteration if deployment.speculative else 1),
    )


def _cost(demand: Demand, gpus: int, usd_per_gpu_hour: float, source: str) -> FleetCost:
    hourly = tidy(gpus * usd_per_gpu_hour)
    return FleetCost(
        usd_per_gpu_hour=usd_per_gpu_hour,
        price_source=source,
        usd_per_hour=hourly,
        usd_per_month=tidy(hourly * HOURS_PER_MONTH),
        usd_per_request=hourly / (demand.request_rps * 3600),
        usd_per_million_output_tokens=usd_per_million(hourly, demand.output_tokens_per_s),
        usd_per_million_blended_tokens=usd_per_million(hourly, demand.input_tokens_per_s + demand.output_tokens_per_s),
    )


def _cost_steps(demand: Demand, gpus: int, cost: FleetCost) -> list[Step]:
    hourly, rps, source = plain(cost.usd_per_hour), plain(demand.request_rps), cost.price_source
    inputs, outputs = plain(demand.input_tokens_per_s), plain(demand.output_tokens_per_s)
    price = f"{gpus} x {plain(cost.usd_per_gpu_hour)}"
    basis: Basis = "exact" if source == "request" else "datasheet"
    return [
        step("usd_per_hour", "gpus x usd_per_gpu_hour", price, cost.usd_per_hour, "USD/hour", source, basis=basis),
        step("usd_per_month", "usd_per_hour x 730", f"{hourly} x {HOURS_PER_MONTH}", cost.usd_per_month, "USD", COST_SOURCE),
        step(
            "usd_per_request", "usd_per_hour / (request_rps x 3600)", f"{hourly} / ({rps} x 3600)", cost.usd_per_request, "USD", COST_SOURCE
        ),
        step(
            "usd_per_million_output_tokens",
            "usd_per_hour / (output_tokens_per_s x 3600) x 1e6",
            f"{hourly} / ({outputs} x 3600) x 1e6",
            cost.usd_per_million_output_tokens,
            "USD",
            COST_SOURCE,
        ),
        step(
            "usd_per_million_blended_tokens",
            "usd_per_hour / ((input_tokens_per_s + output_tokens_per_s) x 3600) x 1e6",
            f"{hourly} / (({inputs} + {outputs}) x 3600) x 1e6",
            cost.usd_per_million_blended_tokens,
            "USD",
            COST_SOURCE,
        ),
    ]


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
    if latency is not None:
        tail += f"; a request takes {'at least ' if latency.basis == 'bound' else ''}{seconds(latency.e2e_s)}"
    return head + tail + "."
