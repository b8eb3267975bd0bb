"""Host, process, accelerators and kernels: what was set, and how much of the time a part of them takes."""

from collections.abc import Mapping

from app.domain.observation import NEVER, Absent, Observation, Reading, Sight, Symptom, quotient, single
from app.domain.provenance import Step
from app.domain.units import plain

FULL_WIDTH = frozenset({"auto", "fp32", "bf16", "fp16"})
"""Precisions that a kernel reads without unpacking; `auto` of the KV cache is 16 bits unless the checkpoint says otherwise."""


def _first_to_steady(observation: Observation) -> Sight:
    """First request after a start / the same request again; without that, / the first one of the baseline or its steady figure, then
    that of the window."""
    metrics, baseline = observation.metrics, observation.baseline
    for family in ("ttft", "e2e"):
        first = metrics.get(f"first_request_{family}_s")
        if first is None:
            continue
        earlier_first = None if baseline is None else baseline.get(f"first_request_{family}_s")
        steady = [(f"repeated_request_{family}_s", metrics.get(f"repeated_request_{family}_s"))]
        steady.append((f"baseline.first_request_{family}_s", earlier_first))
        for statistic in ("p50", "mean", "p90", "p95", "p99"):
            before = None if baseline is None else baseline.latency(family, statistic)
            steady.append((f"baseline.{family}_{statistic}_s", before))
        steady += [(f"{family}_{statistic}_s", metrics.latency(family, statistic)) for statistic in ("p50", "mean")]
        under = next(((name, value) for name, value in steady if value is not None), steady[0])
        return single(quotient("first_to_steady_ratio", (f"first_request_{family}_s", first), under))
    return Absent(tuple(name for name in ("first_request_ttft_s", "repeated_request_ttft_s") if metrics.get(name) is None))


def _first_to_tail(observation: Observation) -> Sight:
    """TTFT of the first request / P99 of the window: near 1, the percentile is that one request."""
    metrics = observation.metrics
    return single(
        quotient("first_to_tail_ratio", ("first_request_ttft_s", metrics.first_request_ttft_s), ("ttft_p99_s", metrics.ttft_p99_s))
    )


def _collection_share(observation: Observation) -> Sight:
    """Longest garbage collection / longest pause of all streams."""
    metrics = observation.metrics
    return single(quotient("gc_share_of_stall_ratio", ("gc_pause_max_s", metrics.gc_pause_max_s), ("stall_max_s", metrics.stall_max_s)))


def _longest_input(observation: Observation) -> Sight:
    """Longest prompt that is known of: the maximum, else the highest percentile, else the mean; of the workload where none was measured."""
    metrics = observation.metrics
    for statistic in ("max", "p99", "p95", "p90", "mean"):
        name = f"input_{statistic}_tokens"
        if (value := metrics.get(name)) is not None:
            return (Reading(name, value),)
    if observation.workload is not None:
        lengths = observation.workload.lengths("input_tokens")
        return (Reading("workload.input_tokens", lengths.p99 or lengths.p95 or lengths.mean),)
    return Absent(("input_max_tokens",))


def _tensor_parallel(observation: Observation) -> Sight:
    """Ranks of a replica; unknown where the deployment does not say, for one that only names its engine may have several."""
    if observation.deployment is None or "tp" not in observation.deployment.model_fields_set:
        return Absent(("deployment.tp",))
    return (Reading("tensor_parallel_degree", float(observation.deployment.tp)),)


def _quantised_weights(observation: Observation) -> Sight:
    """1 when the deployment's weights are in fewer than 16 bits; unknown where it does not say, for the checkpoint decides."""
    if observation.deployment is None or observation.deployment.weights is None:
        return Absent(("deployment.weights",))
    return (Reading("weights_quantised", float(observation.deployment.weights not in FULL_WIDTH)),)


def _quantised_cache(observation: Observation) -> Sight:
    """1 when the KV cache is kept in fewer than 16 bits; unknown where the engine chooses."""
    if observation.deployment is None or observation.deployment.kv_cache == "auto":
        return Absent(("deployment.kv_cache",))
    return (Reading("kv_cache_quantised", float(observation.deployment.kv_cache not in FULL_WIDTH)),)


def _quantisation_growth(observation: Observation) -> Sight:
    """Slowdown by quantisation now / at the lowest level of a sweep, of context or of load."""
    now, light = observation.metrics.quantization_slowdown_ratio, observation.lightest
    below = None if light is None else light.quantization_slowdown_ratio
    over, under = ("quantization_slowdown_ratio", now), ("lightest.quantization_slowdown_ratio", below)
    return single(quotient("quantization_slowdown_growth_ratio", over, under))


def _beyond_communication(observation: Observation) -> Sight:
    """Slowdown of generation that would remain if collectives took no time: slowdown x (1 - their share of a step)."""
    metrics = observation.metrics
    name = "tpot_p50_s" if metrics.tpot_mean_s is None else "tpot_mean_s"
    share, now, before = metrics.communication_time_ratio, metrics.get(name), observation.earlier(name)
    if share is None or now is None or before is None:
        parts = (("communication_time_ratio", share), (name, now), (f"baseline.{name}", before))
        return Absent(tuple(each for each, value in parts if value is None))
    value = min(now / before, NEVER) * (1 - share) if before else NEVER  # the cap first: an infinite quotient times 0 is no number
    step = Step(
        name="slowdown_without_communication_ratio",
        formula=f"{name} / earlier {name} x (1 - communication_time_ratio)",
        substituted=f"{plain(now)} / {plain(before)} x (1 - {plain(share)})",
        value=value,
        unit="ratio",
        basis="exact",
        source="arithmetic on the metrics given (Amdahl's law)",
    )
    return (Reading("slowdown_without_communication_ratio", value, working=step),)


HOST_SYMPTOMS: Mapping[str, Symptom] = {
    "first_to_steady_ratio": _first_to_steady,
    "first_to_tail_ratio": _first_to_tail,
    "gc_share_of_stall_ratio": _collection_share,
    "longest_input_tokens": _longest_input,
    "tensor_parallel_degree": _tensor_parallel,
    "weights_quantised": _quantised_weights,
    "kv_cache_quantised": _quantised_cache,
    "quantization_slowdown_growth_ratio": _quantisation_growth,
    "slowdown_without_communication_ratio": _beyond_communication,
}
"""Symptoms of this module by name."""
