"""CUDA graphs, context and settings of a deployment that slow every step."""

from collections.abc import Mapping

from app.domain.observation import Absent, Observation, Reading, Sight, Symptom, quotient, single
from app.domain.symptoms_limits import Named, computed, first_known, mean_input


def _disabled(observation: Observation) -> Sight:
    """1 when steps run without CUDA graphs, 0 when they do not: by what the engine captured and ran, else by what it was told."""
    metrics, deployment = observation.metrics, observation.deployment
    if metrics.max_cuda_graph_batch_size is not None:
        disabled = metrics.max_cuda_graph_batch_size == 0
    elif metrics.cuda_graph_step_ratio is not None:
        # Graphs that were replayed before exist: the batch has outgrown them.
        earlier = observation.baseline is not None and (observation.baseline.cuda_graph_step_ratio or 0) > 0
        disabled = metrics.cuda_graph_step_ratio == 0 and not metrics.num_cuda_graph_steps and not (earlier and _told_on(observation))
    elif deployment is not None:
        disabled = deployment.enforce_eager
    else:
        return Absent(("deployment.enforce_eager",))
    return (Reading("cuda_graphs_disabled", float(disabled)),)


def _told_on(observation: Observation) -> bool:
    """Whether nothing that was said switches graphs off."""
    return observation.deployment is None or not observation.deployment.enforce_eager


def decode_batch(observation: Observation) -> Named:
    """Sequences in a decode step: the running ones, else rate x output x TPOT (Little's law), else those in flight up to the cap."""
    metrics = observation.metrics
    if metrics.num_running_requests is not None:
        return "num_running_requests", metrics.num_running_requests
    rate, output = first_known(metrics, "request_rps", "offered_rps")[1], metrics.output_mean_tokens
    pace = first_known(metrics, "tpot_mean_s", "tpot_p50_s", "itl_mean_s", "itl_p50_s")[1]
    cap = observation.max_num_seqs
    if rate is not None and output is not None and pace is not None:
        value = rate * output * pace
        return "requests per second x output tokens x time per token", value if cap is None else min(value, cap)
    in_flight = metrics.num_concurrent_requests
    return "num_running_requests", in_flight if in_flight is None or cap is None else min(in_flight, cap)


def _tokens_per_sequence(observation: Observation) -> Named:
    """Tokens of one sequence in a decode step: one, and each drafted one."""
    drafted = observation.metrics.num_spec_tokens
    if drafted is None and observation.deployment is not None and observation.deployment.speculative is not None:
        drafted = float(observation.deployment.speculative.num_draft_tokens)
    return "num_spec_tokens", drafted or 0.0


def _to_graph(name: str, *, cap: bool) -> Symptom:
    """Decode batch, or the cap on it, in tokens / largest captured graph; 0 without graphs, for then no batch is beyond them."""

    def sight(observation: Observation) -> Sight:
        batch: Named = ("max_num_seqs", observation.max_num_seqs) if cap else decode_batch(observation)
        drafted = _tokens_per_sequence(observation)
        largest = ("max_cuda_graph_batch_size", observation.metrics.max_cuda_graph_batch_size)
        if batch[1] is None or largest[1] is None:
            return Absent(tuple(each for each, value in (batch, largest) if value is None))
        if not largest[1]:
            return (Reading(name, 0.0),)
        value = batch[1] * (1 + (drafted[1] or 0.0)) / largest[1]
        return (computed(name, "{} x (1 + {}) / {}", (batch, drafted, largest), value),)

    return sight


def _accepted_per_step(observation: Observation) -> Sight:
    """Drafted tokens that a step keeps: acceptance x drafted tokens."""
    acceptance = ("spec_decode_acceptance_ratio", observation.metrics.spec_decode_acceptance_ratio)
    drafted = _tokens_per_sequence(observation)
    said = bool(drafted[1]) or observation.metrics.num_spec_tokens is not None
    if acceptance[1] is None or drafted[1] is None or not said:
        return Absent((acceptance[0] if acceptance[1] is None else drafted[0],))
    return (computed("accepted_tokens_per_step", "{} x {}", (acceptance, drafted), acceptance[1] * drafted[1]),)


def _speculation_cost(observation: Observation) -> Sight:
    """Step now / before, / tokens that a step makes with drafts, 1 + accepted ones: above 1, drafting loses more than it brings."""
    accepted = _accepted_per_step(observation)
    before, now = observation.earlier("step_time_mean_s"), observation.metrics.step_time_mean_s
    if isinstance(accepted, Absent):
        return accepted
    if before is None or now is None or not before:
        return Absent(("step_time_mean_s" if now is None else "baseline.step_time_mean_s",))
    parts = (("step_time_mean_s", now), ("earlier step_time_mean_s", before), ("accepted_tokens_per_step", accepted[0].value))
    return (computed("speculation_cost_ratio", "{} / {} / (1 + {})", parts, now / before / (1 + accepted[0].value)),)


def _prompt_to_graph(observation: Observation) -> Sight:
    largest = observation.metrics.max_cuda_graph_batch_size
    return single(quotient("prompt_to_cuda_graph_ratio", mean_input(observation), ("max_cuda_graph_batch_size", largest)))


def _context_growth(observation: Observation) -> Sight:
    """Prompt length now / of the baseline, else of the lowest load."""
    now = ("input_mean_tokens", observation.metrics.input_mean_tokens)
    for source, before in (("baseline", observation.baseline), ("lightest", observation.lightest)):
        if before is not None and before.input_mean_tokens is not None:
            return single(quotient("context_growth_ratio", now, (f"{source}.input_mean_tokens", before.input_mean_tokens)))
    return Absent((*(() if now[1] is not None else (now[0],)), "baseline.input_mean_tokens"))


def _setting(name: str, attribute: str, *, inverted: bool) -> Symptom:
    """1 when a switch of the deployment is on (off, when inverted), else 0."""

    def sight(observation: Observation) -> Sight:
        if observation.deployment is None:
            return Absent((f"deployment.{attribute}",))
        return (Reading(name, float(bool(getattr(observation.deployment, attribute)) is not inverted)),)

    return sight


def _memory_fraction(observation: Observation) -> Sight:
    fraction = observation.deployment.memory_fraction_ratio if observation.deployment else None
    name = "deployment.memory_fraction_ratio"
    return Absent((name,)) if fraction is None else (Reading("memory_fraction_ratio", fraction),)


GRAPH_SYMPTOMS: Mapping[str, Symptom] = {
    "cuda_graphs_disabled": _disabled,
    "batch_to_cuda_graph_ratio": _to_graph("batch_to_cuda_graph_ratio", cap=False),
    "cap_to_cuda_graph_ratio": _to_graph("cap_to_cuda_graph_ratio", cap=True),
    "prompt_to_cuda_graph_ratio": _prompt_to_graph,
    "accepted_tokens_per_step": _accepted_per_step,
    "speculation_cost_ratio": _speculation_cost,
    "context_growth_ratio": _context_growth,
    "chunked_prefill_disabled": _setting("chunked_prefill_disabled", "chunked_prefill", inverted=True),
    "prefix_caching_disabled": _setting("prefix_caching_disabled", "prefix_caching", inverted=True),
    "memory_fraction_ratio": _memory_fraction,
}
"""Symptoms of this module by name."""
