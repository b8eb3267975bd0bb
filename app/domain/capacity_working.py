"""The working of `/capacity`: bounds of speed, time in the system, concurrency, and the replicas of each constraint."""

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
from app.domain.capacity import Constraint
from app.domain.demand import LITTLE_SOURCE
from app.domain.llm import Llm
from app.domain.provenance import Step, step
from app.domain.sizing import Known, Sizing
from app.domain.units import exact, plain


def bound_steps(llm: Llm, sizing: Sizing, bounds: SpeedBounds) -> list[Step]:
    """From FLOPs to the least prefill and decode times of one replica."""
    prompt, running, context = sizing.demand.mean_input_tokens, sizing.running, sizing.context_tokens
    deployment, found = bounds.deployment, bounds.found
    flops = f"{deployment.num_gpus} x {plain(bounds.peak_flops_per_s)}"
    causal = attention_flops(llm, prompt) / 2
    terms = " + ".join(
        f"{layers} x 2 x {width} x {plain(prompt)} x {plain(reach)}" for layers, width, reach in attention_terms(llm, prompt)
    )
    sequence = found.cost.sequence_bytes(context) if found.cost else 0
    return [
        step(
            "prefill_flops",
            "2 x active params x prompt tokens",
            f"2 x {llm.num_active_params} x {plain(prompt)}",
            exact(linear_flops(llm, prompt)),
            "FLOP",
            PREFILL_SOURCE,
        ),
        step(
            "attention_causal_flops",
            "half of sum over layers of 2 x heads x (key_dim + value_dim) x tokens x min(tokens, window)",
            f"({terms or 0}) / 2",
            exact(causal),
            "FLOP",
            ATTENTION_SOURCE,
        ),
        step(
            "prefill_s",
            "(prefill_flops + attention_causal_flops) / (GPUs x dense peak)",
            f"({plain(linear_flops(llm, prompt))} + {plain(causal)}) / ({flops}) in {bounds.number_format}",
            sizing.mean_prefill_s,
            "s",
            PREFILL_SOURCE,
            basis="bound",
        ),
        step(
            "decode_step_s",
            "max((pp x weights per GPU read + requests / dp x KV per request) / bandwidth, 2 x active params x requests / (GPUs x peak))",
            f"max(({deployment.pp} x {found.weights_bytes_per_gpu} x {plain(weights_read_ratio(llm, running))} "
            f"+ {plain(running)} / {deployment.dp} x {sequence}) / {plain(bounds.bandwidth_bytes_per_s)}, "
            f"2 x {llm.num_active_params} x {plain(running)} / ({flops}))",
            sizing.decode_step_s,
            "s",
            BANDWIDTH_SOURCE,
            basis="bound",
        ),
    ]


def replica_steps(
    sizing: Sizing,
    constraints: Sequence[Constraint],
    binding: Constraint | None,
    replicas: int,
    redundancy_ratio: float,
    spare_replicas: int,
) -> list[Step]:
    """From the time in the system to the replicas of each constraint, and of the fleet."""
    steps = []
    if sizing.time_in_system_s is not None and sizing.concurrency is not None:
        steps = [
            _known(
                "time_in_system_s", "queue + TTFT + output tokens x TPOT", sizing.time_in_system_s, "s", "definition of end-to-end latency"
            ),
            _known("concurrency", "request_rps x time_in_system_s", sizing.concurrency, "requests", LITTLE_SOURCE),
        ]
    steps += [
        step(
            f"replicas_{item.name}",
            "demand / per replica",
            f"{plain(item.demand)} / {plain(item.per_replica)}",
            item.replicas_exact,
            "replicas",
            item.note,
            basis=item.basis,
        )
        for item in constraints
        if item.replicas_exact is not None and item.demand is not None and item.per_replica is not None and item.basis is not None
    ]
    whole = [str(item.replicas) for item in constraints if item.replicas is not None]
    steps.append(
        step(
            "replicas",
            "ceil(max of the constraints, each rounded up, x redundancy_ratio) + spare_replicas",
            f"ceil(max({', '.join(whole) or '1'}) x {plain(redundancy_ratio)}) + {spare_replicas}",
            replicas,
            "replicas",
            "the binding constraint decides how sure this is",
            basis=binding.basis or "assumed" if binding else "assumed",
        )
    )
    return steps


def _known(name: str, formula: str, known: Known, unit: str, source: str) -> Step:
    return step(name, formula, known.substituted, known.value, unit, source, basis=known.basis)
