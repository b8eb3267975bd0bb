"""The working of `/capacity`: bounds of speed, time in the system, concurrency, and the replicas of each constraint."""

from collections.abc import Iterator, Sequence

from app.domain.bounds import (
    ATTENTION_SOURCE,
    BANDWIDTH_SOURCE,
    PREFILL_SOURCE,
    AttentionTerm,
    SpeedBounds,
    attention_terms,
    linear_flops,
)
from app.domain.capacity import Constraint, Nodes
from app.domain.demand import LITTLE_SOURCE
from app.domain.deployment import Deployment
from app.domain.fleet import Reserve
from app.domain.kv_working import sequence_step
from app.domain.latency_tail import SOURCE as TAIL_SOURCE
from app.domain.llm import Llm
from app.domain.provenance import Step, step
from app.domain.sizing import Known, LeastTimes, Sizing
from app.domain.units import exact, plain


def bound_steps(llm: Llm, sizing: Sizing, bounds: SpeedBounds, least: LeastTimes) -> list[Step]:
    """The working of the least prefill and decode times."""
    prompt, running, context = sizing.demand.mean_input_tokens, sizing.running, sizing.context_tokens
    cached = sizing.cached_tokens(prompt)
    deployment, found, positions = bounds.deployment, bounds.found, bounds.positions_per_step
    flops = f"{deployment.num_gpus} x {plain(bounds.peak_flops_per_s)}"
    computed = f"({plain(prompt)} - {plain(cached)})" if cached else plain(prompt)
    linear, causal = linear_flops(llm, prompt - cached), least.causal_flops
    terms = _attention(llm, prompt) + (f" - ({_attention(llm, cached)})" if cached else "")
    steps = [
        step(
            "prefill_flops",
            "2 x active params x prompt tokens" + " that are not cached" * bool(cached),
            f"2 x {llm.num_active_params} x {computed}",
            exact(linear),
            "FLOP",
            PREFILL_SOURCE,
        ),
        step(
            "attention_causal_flops",
            "sum over layers of 2 x heads x (key_dim + value_dim) x reach x (tokens - tokens until the reach is full / 2)"
            + ", less that of the cached tokens" * bool(cached),
            terms,
            exact(causal),
            "FLOP",
            ATTENTION_SOURCE,
        ),
        step(
            "prefill_s",
            f"(prefill_flops + attention_causal_flops) / (GPUs x dense peak in {bounds.number_format})",
            f"({plain(linear)} + {plain(causal)}) / ({flops})",
            least.prefill_s,
            "s",
            PREFILL_SOURCE,
            basis="bound",
        ),
    ]
    sequence = 0
    if bounds.read_cost is not None:
        sequence = bounds.read_cost.sequence_bytes(context)
        steps.append(sequence_step(bounds.read_cost, context, sequence, "kv_bytes_read_per_request_per_gpu"))
    read = bounds.read_ratio(running)
    if read != 1:
        steps.append(_read_step(llm, running * positions, deployment.dp, read))
    drafts = f" x {positions}" if positions > 1 else ""
    steps.append(
        step(
            "decode_step_s",
            "max((pp x weights per GPU x share read + requests / dp x KV read per request) / bandwidth, "
            f"2 x active params x requests{' x (1 + drafts)' if drafts else ''} / (GPUs x peak))",
            f"max(({deployment.pp} x {found.weights_bytes_per_gpu} x {plain(read)} "
            f"+ {plain(running)} / {deployment.dp} x {sequence}) / {plain(bounds.bandwidth_bytes_per_s)}, "
            f"2 x {llm.num_active_params} x {plain(running)}{drafts} / ({flops}))",
            least.decode_step_s,
            "s",
            BANDWIDTH_SOURCE,
            basis="bound",
        )
    )
    if bounds.tokens_per_step != 1:
        per_step = plain(bounds.tokens_per_step)
        steps.append(
            step(
                "tpot_s",
                "decode_step_s / (1 + drafts x acceptance)",
                f"{plain(least.decode_step_s)} / {per_step}",
                least.tpot_s,
                "s",
                BANDWIDTH_SOURCE,
                basis="bound",
            )
        )
    return steps


def _attention(llm: Llm, tokens: float) -> str:
    return " + ".join(_attention_term(term, tokens) for term in attention_terms(llm, tokens)) or "0"


def _attention_term(term: AttentionTerm, tokens: float) -> str:
    return f"{term.layers} x 2 x {term.width} x {plain(term.reach)} x ({plain(tokens)} - {plain(term.filling_tokens)} / 2)"


def _read_step(llm: Llm, tokens: float, dp: int, ratio: float) -> Step:
    """The share of the weights that a step over `tokens` tokens reads."""
    if not llm.num_expert_params:
        return step(
            "weights_read_ratio",
            "1 - (1 - active params / params)^tokens",
            f"1 - (1 - {llm.num_active_params} / {llm.num_params})^{plain(tokens)}",
            ratio,
            "ratio",
            "the layers are not known: what is not active on every token counts as experts, chosen evenly and independently",
            basis="assumed",
        )
    untouched = " + ".join(
        f"{group.num_layers} x {part.num_expert_params(llm.hidden_size or 0)} x (1 - {part.num_experts_per_token} / {part.num_experts})"
        f"^{plain(tokens)}"
        for group in llm.layer_groups or ()
        for part in group.feed_forward
        if part.kind == "moe"
    )
    held = f"{llm.num_params}" if dp == 1 else f"({llm.num_params} - {llm.num_expert_params} + {llm.num_expert_params} / {dp})"
    return step(
        "weights_read_ratio",
        "1 - sum over layers with experts of expert params x (1 - experts per token / experts)^tokens / params"
        + (" (experts are spread over dp)" if dp > 1 else ""),
        f"1 - ({untouched}) / {f'{dp} / ' if dp > 1 else ''}{held}",
        ratio,
        "ratio",
        "experts chosen evenly and independently",
        basis="assumed",
    )


def replica_steps(
    sizing: Sizing,
    constraints: Sequence[Constraint],
    binding: Constraint | None,
    replicas: int | None,
    reserve: Reserve,
) -> list[Step]:
    """From the time in the system to the replicas of each constraint, and of the fleet unless it cannot be sized."""
    steps = []
    if sizing.time_in_system_s is not None and sizing.concurrency is not None:
        steps = [
            _known("time_in_system_s", sizing.time_in_system_s, "s", "definition of end-to-end latency"),
            _known("concurrency", sizing.concurrency, "requests", LITTLE_SOURCE),
        ]
    steps += _rate_steps(sizing, constraints)
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
    if replicas is None:
        return steps
    whole = [str(item.replicas) for item in constraints if item.replicas is not None] or ["1"]
    largest = f"max({', '.join(whole)})" if len(whole) > 1 else whole[0]
    redundant, away = f"ceil({largest} x {plain(reserve.redundancy_ratio)})", reserve.unavailable_replicas
    steps.append(
        step(
            "replicas",
            f"{'max(' * bool(away)}ceil(max of the constraints, each rounded up, x redundancy_ratio)"
            f"{', max of the constraints + unavailable_replicas)' * bool(away)} + spare_replicas",
            f"max({redundant}, {largest} + {away}) + {reserve.spare_replicas}" if away else f"{redundant} + {reserve.spare_replicas}",
            replicas,
            "replicas",
            "the binding constraint decides how sure this is",
            basis=binding.basis or "assumed" if binding else "assumed",
        )
    )
    return steps


def _rate_steps(sizing: Sizing, constraints: Sequence[Constraint]) -> Iterator[Step]:
    """What one replica sustains where that is a bound and not measured."""
    bounds, least, prompt = sizing.bounds, sizing.least, sizing.demand.mean_input_tokens
    if bounds is None or least is None:
        return
    for item in constraints:
        if item.per_replica is None or item.basis != "bound":
            continue
        name, rate = f"{item.name}_per_replica", item.per_replica
        if item.name == "prefill":
            tokens = f"({plain(prompt)} - {plain(cached)})" if (cached := sizing.cached_tokens(prompt)) else plain(prompt)
            formula, substituted = "computed prompt tokens / prefill_s", f"{tokens} / {plain(least.prefill_s)}"
        elif item.name == "throughput" and sizing.planned_concurrency:
            formula, substituted = "requests / time per output token", f"{plain(sizing.running)} / {plain(least.tpot_s)}"
        elif item.name == "throughput":
            peak = f"{bounds.deployment.num_gpus} x {plain(bounds.peak_flops_per_s)}"
            formula = "GPUs x dense peak / (2 x active params) x tokens per step / (1 + drafts)"
            substituted = f"{peak} / (2 x {bounds.llm.num_active_params}) x {plain(bounds.tokens_per_step)} / {bounds.positions_per_step}"
        else:
            continue
        yield step(name, formula, substituted, rate, item.unit, item.note, basis="bound")


def modelled_steps(sizing: Sizing, constraints: Sequence[Constraint]) -> Iterator[Step]:
    """What one modelled replica sustains, from states whose own working `/performance` gives."""
    speed, demand = sizing.speed, sizing.demand
    rates = {item.name: item for item in constraints if item.per_replica and item.basis not in (None, "bound", "measured")}
    if speed is None:
        return
    if "throughput" in rates:
        concurrency = sizing.planned_concurrency or speed.performance.places
        state = speed.performance.closed(concurrency)
        yield _modelled(
            "throughput_per_replica",
            "requests with a place / (TTFT without admission + (output tokens - 1) x TPOT) x output tokens",
            f"{plain(state.admitted)} / ({plain(state.waiting.ttft_s)} - {plain(state.waiting.admission_s)} "
            f"+ ({plain(speed.serving.output_tokens)} - 1) x {plain(state.tpot_s)}) x {plain(demand.mean_output_tokens)}",
            rates["throughput"],
            f"POST /performance with concurrency {plain(concurrency)}",
        )
    if "prefill" in rates:
        serving = speed.serving
        per_prompt = serving.groups * serving.computed_tokens / speed.prefill_tokens_per_s
        yield _modelled(
            "prefill_per_replica",
            "pipeline stages x computed prompt tokens / time of a prompt among as many as a step takes",
            f"{serving.groups} x {plain(serving.computed_tokens)} / {plain(per_prompt)}",
            rates["prefill"],
            "step-time model: steps of prompts alone",
        )
    held = speed.within_objectives if "slo" in rates and sizing.simulated is None else None
    if held is not None:
        yield _modelled(
            "slo_per_replica",
            "requests in the replica / time in it, at the largest rate that holds the objectives",
            f"{plain(held.state.concurrency)} / {plain(held.state.e2e_s)}",
            rates["slo"],
            f"{LITTLE_SOURCE}; POST /performance with request_rps {plain(held.request_rps)}; percentiles: {TAIL_SOURCE}",
        )


def _modelled(name: str, formula: str, substituted: str, item: Constraint, source: str) -> Step:
    return step(name, formula, substituted, item.per_replica or 0, item.unit, source, basis=item.basis or "assumed")


def fleet_steps(deployment: Deployment, fleet: Nodes, replicas: int, binding: Constraint | None) -> list[Step]:
    """The working from replicas to accelerators, machines and the load on them."""
    gpus, each = deployment.num_gpus * replicas, deployment.num_gpus
    steps = [
        step(
            "gpus",
            "replicas x tp x pp x dp",
            f"{replicas} x {deployment.tp} x {deployment.pp} x {deployment.dp}",
            gpus,
            "GPUs",
            "definition of a replica",
        ),
        step(
            "nodes",
            "ceil(replicas / floor(gpus_per_node / gpus_per_replica))"
            if fleet.replicas_per_node
            else "replicas x ceil(gpus_per_replica / gpus_per_node)",
            f"ceil({replicas} / floor({fleet.gpus_per_node} / {each}))"
            if fleet.replicas_per_node
            else f"{replicas} x ceil({each} / {fleet.gpus_per_node})",
            fleet.nodes,
            "nodes",
            "a replica is kept on as few machines as hold it",
        ),
    ]
    if binding is not None and binding.replicas_exact is not None:
        steps.append(
            step(
                "utilization_ratio",
                "replicas of the binding constraint, before rounding, / replicas",
                f"{plain(binding.replicas_exact)} / {replicas}",
                binding.replicas_exact / replicas,
                "ratio",
                "the binding constraint decides how sure this is",
                basis=binding.basis or "assumed",
            )
        )
    return steps


def _known(name: str, known: Known, unit: str, source: str) -> Step:
    return step(name, known.formula, known.substituted, known.value, unit, source, basis=known.basis)
