"""The answer of `/capacity`: demand, what one replica gives, the constraints, and the fleet, with the working."""

from collections.abc import Sequence

from app.domain.bounds import (
    ATTENTION_SOURCE,
    BANDWIDTH_SOURCE,
    PREFILL_SOURCE,
    SpeedBounds,
    attention_flops,
    attention_terms,
    linear_flops,
    weights_read_ratio,
)
from app.domain.capacity import (
    Constraint,
    ConstraintName,
    Known,
    Latency,
    PerReplica,
    Sizing,
    constraints_of,
    nodes_for,
    replicas_with_redundancy,
)
from app.domain.concurrency import concurrency_steps
from app.domain.cost import HOURS_PER_MONTH, usd_per_million
from app.domain.demand import LITTLE_SOURCE, Demand, demand_steps
from app.domain.deployment import Deployment
from app.domain.hardware import Gpu
from app.domain.llm import Llm
from app.domain.memory import Fit
from app.domain.memory_answer import memory_steps
from app.domain.provenance import Answer, Note, Step, Versions
from app.domain.units import exact, plain, seconds, tidy
from app.domain.value import Value
from app.domain.workload import Slo, Workload

WARN_UTILIZATION_RATIO = 0.9
"""Above this share of the capacity queues grow quickly: waiting grows with 1 / (1 - utilisation), https://doi.org/10.1002/9781119453765."""


class SpeedLimits(Value):
    """Arithmetic of the model at this workload; all of it bounds, before any engine inefficiency."""

    prefill_flops: float
    """2 x active parameters x mean prompt [FLOP]."""
    attention_full_flops: float
    """Attention over the full matrix of the mean prompt [FLOP]."""
    attention_causal_flops: float
    """Half of it: what causal masking leaves [FLOP]."""
    decode_flops_per_token: float
    """2 x active parameters [FLOP/token]."""
    prefill_s: float | None
    """Least prefill time of the mean prompt on one replica [s]."""
    decode_step_s: float | None
    """Least time of one decode step at the running concurrency [s]."""
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
    replicas: int
    """Replicas in all."""
    gpus_per_replica: int
    """Accelerators of one replica."""
    gpus: int
    """Accelerators in all: replicas x gpus_per_replica."""
    gpus_per_node: int
    """Accelerators of one machine."""
    replicas_per_node: int
    """Replicas that share a machine; 0 when one replica spans several."""
    nodes_per_replica: int
    """Machines of one replica."""
    nodes: int
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
    slo: Slo | None,
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
    utilization = None if binding is None or binding.replicas_exact is None else binding.replicas_exact / replicas
    gpus = replicas * per_replica
    return CapacityAnswer(
        summary=_summary(llm, gpu, demand, binding, replicas, per_replica, gpus, latency),
        working=[
            *demand_steps(workload, demand),
            *(memory_steps(llm, gpu, deployment, found) if llm and gpu and found else []),
            *(concurrency_steps(found, deployment, sizing.holds, safety_ratio) if found and found.cost and sizing.holds else []),
            *(_bound_steps(llm, sizing, sizing.bounds) if llm and sizing.bounds else []),
            *_replica_steps(sizing, constraints, binding, replicas, redundancy_ratio, spare_replicas),
            Step(
                name="gpus",
                formula="replicas x tp x pp x dp",
                substituted=f"{replicas} x {deployment.tp} x {deployment.pp} x {deployment.dp}",
                value=gpus,
                unit="GPUs",
                basis="exact",
                source="definition of a replica",
            ),
        ],
        assumptions=assumptions,
        warnings=_warnings(workload, sizing, constraints, found, utilization, slo, deployment),
        versions=versions,
        model=llm.slug if llm else None,
        gpu=gpu.slug if gpu else None,
        demand=demand,
        time_in_system_s=sizing.time_in_system_s and sizing.time_in_system_s.value,
        concurrency=sizing.concurrency and sizing.concurrency.value,
        per_replica=PerReplica(
            gpus=per_replica,
            kv_capacity_tokens=found.capacity_tokens() if found else None,
            max_concurrency=sizing.holds.max_concurrency if sizing.holds else None,
            safe_concurrency=sizing.holds.safe_concurrency if sizing.holds else None,
            concurrency=sizing.running,
            output_tokens_per_s=rates["throughput"],
            input_tokens_per_s=rates["prefill"],
        ),
        limits=_limits(llm, deployment, sizing) if llm else None,
        latency=latency,
        constraints=constraints,
        binding=None if binding is None else binding.name,
        redundancy_ratio=redundancy_ratio,
        spare_replicas=spare_replicas,
        replicas=replicas,
        gpus_per_replica=per_replica,
        gpus=gpus,
        gpus_per_node=nodes.gpus_per_node,
        replicas_per_node=nodes.replicas_per_node,
        nodes_per_replica=nodes.nodes_per_replica,
        nodes=nodes.nodes,
        utilization_ratio=utilization,
        cost=None if usd_per_gpu_hour is None else _cost(demand, gpus, usd_per_gpu_hour, price_source),
    )


def _limits(llm: Llm, deployment: Deployment, sizing: Sizing) -> SpeedLimits:
    prompt, output, bounds = sizing.demand.mean_input_tokens, sizing.demand.mean_output_tokens, sizing.bounds
    budget = deployment.max_num_batched_tokens if deployment.chunked_prefill else None
    full = attention_flops(llm, prompt)
    return SpeedLimits(
        prefill_flops=exact(linear_flops(llm, prompt)),
        attention_full_flops=exact(full),
        attention_causal_flops=exact(full / 2),
        decode_flops_per_token=exact(linear_flops(llm, 1)),
        prefill_s=bounds.prefill_s(prompt) if bounds else None,
        decode_step_s=bounds.decode_step_s(sizing.running, sizing.context_tokens) if bounds else None,
        single_stream_output_tokens_per_s=bounds.weights_only_tokens_per_s() if bounds else None,
        prefill_chunks_iterations=None if budget is None else -int(-prompt // budget),
        decode_iterations=output / (deployment.speculative.tokens_per_iteration if deployment.speculative else 1),
    )


def _bound_steps(llm: Llm, sizing: Sizing, bounds: SpeedBounds) -> list[Step]:
    prompt, running, context = sizing.demand.mean_input_tokens, sizing.running, sizing.context_tokens
    gpus, found = bounds.deployment.num_gpus, bounds.found
    causal = attention_flops(llm, prompt) / 2
    terms = " + ".join(
        f"{layers} x 2 x {width} x {plain(prompt)} x {plain(reach)}" for layers, width, reach in attention_terms(llm, prompt)
    )
    sequence = found.cost.sequence_bytes(context) if found.cost else 0
    step_s = bounds.decode_step_s(running, context)
    return [
        Step(
            name="prefill_flops", formula="2 x active params x prompt tokens", substituted=f"2 x {llm.num_active_params} x {plain(prompt)}",
            value=exact(linear_flops(llm, prompt)), unit="FLOP", basis="exact", source=PREFILL_SOURCE,
        ),
        Step(
            name="attention_causal_flops", formula="half of sum over layers of 2 x heads x (key_dim + value_dim) x tokens x min(tokens, window)",
            substituted=f"({terms or 0}) / 2", value=exact(causal), unit="FLOP", basis="exact", source=ATTENTION_SOURCE,
        ),
        Step(
            name="prefill_s", formula="(prefill_flops + attention_causal_flops) / (GPUs x dense peak)", unit="s", basis="bound",
            substituted=f"({plain(linear_flops(llm, prompt))} + {plain(causal)}) / ({gpus} x {plain(bounds.peak_flops_per_s)}) in {bounds.number_format}",
            value=bounds.prefill_s(prompt), source=PREFILL_SOURCE,
        ),
        Step(
            name="decode_step_s", unit="s", basis="bound", value=step_s, source=BANDWIDTH_SOURCE,
            formula="max((pp x weights per GPU read + requests / dp x KV per request) / bandwidth, 2 x active params x requests / (GPUs x peak))",
            substituted=(
                f"max(({bounds.deployment.pp} x {found.weights_bytes_per_gpu} x {plain(weights_read_ratio(llm, running))} + {plain(running)} / {bounds.deployment.dp} "
                f"x {sequence}) / {plain(bounds.bandwidth_bytes_per_s)}, 2 x {llm.num_active_params} x {plain(running)} / ({gpus} x {plain(bounds.peak_flops_per_s)}))"
            ),
        ),
    ]  # fmt: skip


def _replica_steps(
    sizing: Sizing,
    constraints: Sequence[Constraint],
    binding: Constraint | None,
    replicas: int,
    redundancy_ratio: float,
    spare_replicas: int,
) -> list[Step]:
    steps = []
    if sizing.time_in_system_s is not None and sizing.concurrency is not None:
        steps = [
            _known(
                "time_in_system_s", "queue + TTFT + output tokens x TPOT", sizing.time_in_system_s, "s", "definition of end-to-end latency"
            ),
            _known("concurrency", "request_rps x time_in_system_s", sizing.concurrency, "requests", LITTLE_SOURCE),
        ]
    steps += [
        Step(
            name=f"replicas_{item.name}", formula="demand / per replica", substituted=f"{plain(item.demand)} / {plain(item.per_replica)}",
            value=item.replicas_exact, unit="replicas", basis=item.basis, source=item.note,
        )
        for item in constraints
        if item.replicas_exact is not None and item.demand is not None and item.per_replica is not None and item.basis is not None
    ]  # fmt: skip
    whole = [str(item.replicas) for item in constraints if item.replicas is not None]
    steps.append(
        Step(
            name="replicas",
            formula="ceil(max of the constraints, each rounded up, x redundancy_ratio) + spare_replicas",
            unit="replicas",
            substituted=f"ceil(max({', '.join(whole) or '1'}) x {plain(redundancy_ratio)}) + {spare_replicas}",
            value=replicas,
            basis=binding.basis or "assumed" if binding else "assumed",
            source="the binding constraint decides how sure this is",
        )  # fmt: skip
    )
    return steps


def _known(name: str, formula: str, known: Known, unit: str, source: str) -> Step:
    return Step(name=name, formula=formula, substituted=known.substituted, value=known.value, unit=unit, basis=known.basis, source=source)


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


def _summary(
    llm: Llm | None, gpu: Gpu | None, demand: Demand, binding: Constraint | None, replicas: int, per_replica: int, gpus: int,
    latency: Latency | None,
) -> str:  # fmt: skip
    what = f"{llm.slug} for " if llm else ""
    where = f" {gpu.slug}" if gpu else ""
    head = (
        f"{what}{plain(demand.request_rps)} requests/s ({demand.input_tokens_per_s:,.0f} input and {demand.output_tokens_per_s:,.0f} output tokens/s): "
        f"{gpus}{where} GPUs = {replicas} replicas x {per_replica}"
    )
    if binding is None:
        return f"{head}; no constraint could be evaluated, so this is one replica with its redundancy."
    tail = f", bound by {binding.name} ({binding.replicas_exact:.3g} replicas before redundancy)"
    if latency is not None:
        tail += f"; a request takes {'at least ' if latency.basis == 'bound' else ''}{seconds(latency.e2e_s)}"
    return head + tail + "."


def _warnings(
    workload: Workload, sizing: Sizing, constraints: Sequence[Constraint], found: Fit | None, utilization: float | None, slo: Slo | None,
    deployment: Deployment,
) -> list[Note]:  # fmt: skip
    warnings: list[Note] = []

    def warn(code: str, message: str) -> None:
        warnings.append(Note(code=code, message=message))

    if found is not None and found.verdict != "serves":
        warn(found.verdict, f"One replica does not serve ({found.verdict}, limited by {found.limiting}): no number of replicas helps.")
    if any(item.basis == "bound" for item in constraints):
        warn(
            "speed_is_a_bound",
            "Speeds are physical bounds, not estimates: real engines need more replicas. Give measured figures for a plan to rely on.",
        )
    for item in constraints:
        if item.demand is not None and item.per_replica == 0:
            warn(f"{item.name}_unattainable", f"The {item.name} constraint {item.note}; it takes no part in the replica count.")
    if utilization is not None and utilization > WARN_UTILIZATION_RATIO:
        warn("high_utilization", f"The fleet runs at {utilization:.0%} of its capacity: above 90 % queues grow quickly.")
    warnings += _traffic_notes(workload, sizing, deployment, slo)
    return warnings


def _traffic_notes(workload: Workload, sizing: Sizing, deployment: Deployment, slo: Slo | None) -> list[Note]:
    """What the shape of the traffic means for the plan."""
    demand, notes = sizing.demand, []
    prompt, output = demand.mean_input_tokens, demand.mean_output_tokens
    if prompt >= 4 * output:
        notes.append(
            Note(
                code="prefill_heavy",
                message=f"Prompts of {plain(prompt)} tokens against outputs of {plain(output)}: prefill is the heavy part and TTFT the objective at risk.",
            )
        )
        if prompt >= 1000 and not workload.prefix_hit_ratio:
            notes.append(
                Note(
                    code="prefix_cache_opportunity",
                    message="Long prompts without a prefix hit ratio: repeated system prompts or documents would be served from the prefix cache.",
                )
            )
    if output >= 200 and prompt >= 4 * output:
        notes.append(
            Note(
                code="decode_not_negligible",
                message=f"{plain(output)} output tokens still hold a decode slot for most of a request's time.",
            )
        )
    if demand.p95_input_tokens is not None and demand.p95_input_tokens >= 2 * prompt:
        notes.append(
            Note(
                code="long_input_tail",
                message=f"P95 prompts of {plain(demand.p95_input_tokens)} tokens are {demand.p95_input_tokens / prompt:.3g} times the mean: KV cache and tail latency are at risk.",
            )
        )
    if demand.p95_input_tokens is None and slo is not None:
        notes.append(
            Note(code="no_percentiles", message="Objectives are percentiles but the lengths are means only: the tail is not judged.")
        )
    if deployment.speculative is not None and prompt >= 4 * output:
        notes.append(
            Note(code="speculation_helps_decode_only", message="Speculative decoding does not shorten prefill, the heavy part here.")
        )
    return notes
