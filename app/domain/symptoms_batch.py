"""Batch, queue, KV cache and what the engine was set to."""

from collections.abc import Mapping

from app.domain.observation import Absent, Observation, Reading, Sight, Symptom, quotient, single
from app.domain.provenance import Step
from app.domain.units import plain

PREALLOCATING_ENGINES = frozenset({"vllm", "sglang", "tensorrt-llm", "llama.cpp"})
"""Engines that take the memory of the KV cache when they start: an exhausted pool makes requests wait, it does not end the process.

Sources: https://docs.vllm.ai/en/stable/configuration/optimization/ (preemption),
https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md (context size is allocated at load).
"""


def _running_to_cap(observation: Observation) -> Sight:
    running = ("num_running_requests", observation.metrics.num_running_requests)
    return single(quotient("running_to_cap_ratio", running, ("max_num_seqs", observation.max_num_seqs)))


def _queue_drain(observation: Observation) -> Sight:
    """Seconds until the queue is empty at the present rate, if nobody else came."""
    metrics = observation.metrics
    waiting, rate = ("num_waiting_requests", metrics.num_waiting_requests), ("request_rps", metrics.request_rps)
    return single(quotient("queue_drain_s", waiting, rate))


def _preemptions_per_request(observation: Observation) -> Sight:
    metrics = observation.metrics
    if metrics.num_preemptions_per_request is not None:
        return (Reading("num_preemptions_per_request", metrics.num_preemptions_per_request),)
    if metrics.preemptions_per_s is None:
        return Absent(("num_preemptions_per_request",))
    preemptions, rate = ("preemptions_per_s", metrics.preemptions_per_s), ("request_rps", metrics.request_rps)
    return single(quotient("num_preemptions_per_request", preemptions, rate))


def _output_per_request(observation: Observation) -> Sight:
    metrics = observation.metrics
    if metrics.output_mean_tokens is not None:
        return (Reading("output_mean_tokens", metrics.output_mean_tokens),)
    tokens, rate = ("output_tokens_per_s", metrics.output_tokens_per_s), ("request_rps", metrics.request_rps)
    return single(quotient("output_per_request_tokens", tokens, rate))


def _gpu_busy(observation: Observation) -> Sight:
    """SM activity, or without it the driver's utilisation, which is an upper bound of it: low is proof, high is not."""
    metrics = observation.metrics
    if metrics.sm_active_ratio is not None:
        return (Reading("sm_active_ratio", metrics.sm_active_ratio),)
    if metrics.gpu_utilization_ratio is not None:
        return (Reading("gpu_utilization_ratio", metrics.gpu_utilization_ratio, overstates=True),)
    return Absent(("sm_active_ratio",))


def _kv_pool_is_preallocated(observation: Observation) -> Sight:
    """1 when the engine takes the KV cache's memory at start; unknown for an engine that is not named."""
    if observation.deployment is None or observation.deployment.engine not in PREALLOCATING_ENGINES:
        return Absent(("deployment.engine",))
    return (Reading("kv_pool_is_preallocated", 1.0),)


def _expected_prefix_hits(observation: Observation) -> Sight:
    """Share of prompt tokens that ought to be found in the prefix cache: as before, as prompts share, or as the workload says."""
    if observation.baseline is not None and observation.baseline.prefix_cache_hit_ratio is not None:
        return (Reading("baseline.prefix_cache_hit_ratio", observation.baseline.prefix_cache_hit_ratio),)
    if observation.metrics.shared_prefix_ratio is not None:
        return (Reading("shared_prefix_ratio", observation.metrics.shared_prefix_ratio),)
    workload = observation.workload
    if workload is None or workload.shared_prefix_tokens is None or not workload.prefix_hit_ratio:
        return Absent(("workload.prefix_hit_ratio",))
    shared, mean = workload.shared_prefix_tokens, workload.lengths("input_tokens").mean
    value = workload.prefix_hit_ratio * shared / mean
    step = Step(
        name="expected_prefix_hit_ratio",
        formula="prefix_hit_ratio x shared_prefix_tokens / mean input_tokens",
        substituted=f"{plain(workload.prefix_hit_ratio)} x {plain(shared)} / {plain(mean)}",
        value=value,
        unit="ratio",
        basis="exact",
        source="arithmetic on the workload given",
    )
    return (Reading("expected_prefix_hit_ratio", value, working=step),)


BATCH_SYMPTOMS: Mapping[str, Symptom] = {
    "max_num_seqs": lambda seen: Absent(("max_num_seqs",)) if seen.max_num_seqs is None else (Reading("max_num_seqs", seen.max_num_seqs),),
    "running_to_cap_ratio": _running_to_cap,
    "queue_drain_s": _queue_drain,
    "num_preemptions_per_request": _preemptions_per_request,
    "output_per_request_tokens": _output_per_request,
    "gpu_busy_ratio": _gpu_busy,
    "kv_pool_is_preallocated": _kv_pool_is_preallocated,
    "expected_prefix_hit_ratio": _expected_prefix_hits,
}
"""Symptoms of this module by name."""
