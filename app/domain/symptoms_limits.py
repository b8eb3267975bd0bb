"""Which limit a deployment meets: slots, KV cache, token budget, captured graphs, and what its replicas share."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from app.domain.metrics import Metrics, metric_unit
from app.domain.metrics_latency import STATISTICS
from app.domain.observation import NEVER, Absent, Observation, Reading, Sight, Symptom, quotient, single
from app.domain.provenance import Step
from app.domain.units import plain

Named = tuple[str, float | None]


def computed(name: str, formula: str, parts: Sequence[Named], value: float, *, source: str = "arithmetic on the metrics given") -> Reading:
    """A derived figure with its working; `formula` holds one {} for each part, in order."""
    value = min(max(value, 0.0), NEVER)
    step = Step(
        name=name,
        formula=formula.format(*(part for part, _ in parts)),
        substituted=formula.format(*(plain(number or 0) for _, number in parts)),
        value=value,
        unit=metric_unit(name),
        basis="exact",
        source=source,
    )
    return Reading(name, value, working=step)


def absent(*parts: Named) -> Absent:
    """The parts that have no value."""
    return Absent(tuple(name for name, value in parts if value is None))


def first_known(metrics: Metrics, *names: str) -> Named:
    """The first of these metrics that was measured; the first name without a value when none was."""
    return next(((name, value) for name in names if (value := metrics.get(name)) is not None), (names[0], None))


def step_time(metrics: Metrics) -> Named:
    """Duration of one step [s]; while steps make one token for each sequence, the time between tokens is the same."""
    return first_known(metrics, "step_time_mean_s", "itl_p50_s", "itl_mean_s", "tpot_p50_s", "tpot_mean_s")


def mean_input(observation: Observation) -> Named:
    """Mean prompt length [tokens], of the metrics or else of the workload."""
    if observation.metrics.input_mean_tokens is None and observation.workload is not None:
        return "workload.input_tokens.mean", observation.workload.lengths("input_tokens").mean
    return "input_mean_tokens", observation.metrics.input_mean_tokens


def budget(observation: Observation) -> Named:
    """Token budget of one step, as the engine reports it or as the deployment says."""
    configured = observation.deployment.max_num_batched_tokens if observation.deployment else None
    reported = observation.metrics.max_num_batched_tokens
    return "max_num_batched_tokens", configured if reported is None else reported


def _fitting_sequences(observation: Observation) -> Reading | Absent:
    """Sequences of mean length that the KV cache holds: tokens of the cache / (prompt + half of the output).

    A running sequence has on average made half of its output. Without a known output length the prompt alone counts, an upper bound.
    """
    metrics = observation.metrics
    cache, prompt = ("num_kv_cache_tokens", metrics.num_kv_cache_tokens), mean_input(observation)
    if cache[1] is None or prompt[1] is None:
        return absent(cache, prompt)
    output: Named = ("output_mean_tokens", metrics.output_mean_tokens or 0.0)
    length = prompt[1] + (output[1] or 0.0) / 2
    value = cache[1] / length if length else NEVER
    return computed("num_fitting_sequences", "{} / ({} + {} / 2)", (cache, prompt, output), value)


def _fitting_to(name: str, of: str) -> Symptom:
    """Sequences that the KV cache holds / the cap on sequences, or requests / those that it holds."""

    def sight(observation: Observation) -> Sight:
        fitting = _fitting_sequences(observation)
        other: Named = (of, observation.max_num_seqs if of == "max_num_seqs" else observation.metrics.get(of))
        if isinstance(fitting, Absent):
            return Absent((*fitting.missing, *absent(other).missing))
        known: Named = ("num_fitting_sequences", fitting.value)
        return single(quotient(name, known, other) if of == "max_num_seqs" else quotient(name, other, known))

    return sight


def _to_expected(observation: Observation) -> Sight:
    """TPOT, of each statistic, / what the planner expects of this deployment under this load."""
    expected = None if observation.expectation is None else observation.expectation.typical
    families = [f"{family}_{statistic}_s" for family in ("tpot", "itl") for statistic in STATISTICS]
    readings = (
        quotient("tpot_to_expected_ratio", (name, observation.metrics.get(name)), (f"expected {name}", expected.get(name)))
        for name in families
        if expected is not None
    )
    found = tuple(each for each in readings if isinstance(each, Reading))
    return found or Absent(("model", "gpu") if expected is None else ("tpot_p50_s",))


def _growth(name: str, *metrics: str) -> Symptom:
    """A figure now / at the lowest load of the sweep, of the first that both have."""

    def sight(observation: Observation) -> Sight:
        light = observation.lightest
        known = [each for each in metrics if observation.metrics.get(each) is not None]
        both = [each for each in known if light is not None and light.get(each) is not None]
        if light is None or not both:
            return Absent((f"lightest.{known[0]}",) if known else (metrics[0],))
        return single(quotient(name, (both[0], observation.metrics.get(both[0])), (f"{both[0]} of the lowest load", light.get(both[0]))))

    return sight


def _service_growth(observation: Observation) -> Sight:
    """Time in service, E2E - queue time, now / at the lowest load of the sweep."""
    light = observation.lightest or Metrics()
    for statistic in ("mean", "p50"):
        names = f"e2e_{statistic}_s", f"queue_time_{statistic}_s"
        (whole, wait), (light_whole, light_wait) = ([each.get(name) for name in names] for each in (observation.metrics, light))
        if whole is not None and wait is not None and light_whole is not None and light_wait is not None:
            over = (f"{names[0]} - {names[1]}", max(whole - wait, 0.0))
            return single(
                quotient("service_time_growth_ratio", over, (f"{over[0]} of the lowest load", max(light_whole - light_wait, 0.0)))
            )
    return Absent(("e2e_mean_s", "queue_time_mean_s") if observation.lightest else ("lightest.e2e_mean_s", "lightest.queue_time_mean_s"))


REPLICA_METRICS = (
    "num_running_requests", "num_waiting_requests", "request_rps", "input_tokens_per_s", "output_tokens_per_s", "kv_cache_usage_ratio",
    "sm_active_ratio",
)  # fmt: skip
LEAST_LOAD = {
    "num_running_requests": 4.0, "num_waiting_requests": 4.0, "request_rps": 0.1, "input_tokens_per_s": 100.0, "output_tokens_per_s": 10.0,
    "kv_cache_usage_ratio": 0.2, "sm_active_ratio": 0.3,
}  # fmt: skip
"""Load of the busiest replica from which its distance to the others means anything: single requests are never shared evenly."""


def _replica_skew(observation: Observation) -> Sight:
    """Busiest replica / mean of all: by each load that every replica reports, else by the busiest one's share of the traffic."""
    replicas, metrics = observation.replicas, observation.metrics
    found = []
    for name in REPLICA_METRICS if len(replicas) > 1 else ():
        loads = [load for each in replicas if (load := each.get(name)) is not None]
        if len(loads) == len(replicas) and max(loads) >= LEAST_LOAD[name]:
            reading = quotient("replica_skew_ratio", (f"largest {name} of a replica", max(loads)), (f"mean {name}", fmean(loads)))
            found += [reading] if isinstance(reading, Reading) else []
    if found:
        return tuple(found)
    share, number = ("max_replica_traffic_ratio", metrics.max_replica_traffic_ratio), ("num_replicas", metrics.num_replicas)
    if share[1] is None or number[1] is None:
        return absent(share, number)
    return (computed("replica_skew_ratio", "{} x {}", (share, number), share[1] * number[1]),)


def _short_to_long(observation: Observation) -> Sight:
    metrics = observation.metrics
    short, long = (f"{kind}_request_ttft_p99_s" for kind in ("short", "long"))
    return single(quotient("short_to_long_ttft_ratio", (short, metrics.get(short)), (long, metrics.get(long))))


def _step_budget(observation: Observation) -> Sight:
    name, limit = budget(observation)
    return Absent((name,)) if limit is None else (Reading("step_budget_tokens", limit),)


def _prompts_per_step(observation: Observation) -> Sight:
    """Prompts of mean length that the token budget of one step takes."""
    return single(quotient("prompts_per_step_ratio", budget(observation), mean_input(observation)))


def _budget_share(observation: Observation) -> Sight:
    """Steps that the prompts in flight need under the token budget, times the duration of a step, / the longest known TTFT."""
    metrics = observation.metrics
    requests = first_known(metrics, "num_concurrent_requests", "num_running_requests")
    ttft = first_known(metrics, "ttft_p99_s", "ttft_p95_s", "ttft_p90_s", "ttft_mean_s", "ttft_p50_s")
    prompt, most, step = mean_input(observation), budget(observation), step_time(metrics)
    parts = (requests, prompt, most, step, ttft)
    (_, number), (_, length), (_, limit), (_, seconds), (_, late) = parts
    if number is None or length is None or limit is None or seconds is None or late is None:
        return absent(*parts)
    value = number * length / limit * seconds / late if late else 0.0
    return (computed("budget_share_of_ttft_ratio", "{} x {} / {} x {} / {}", parts, value),)


def _budget_use(observation: Observation) -> Sight:
    return single(quotient("step_to_budget_ratio", ("tokens_per_step", observation.metrics.tokens_per_step), budget(observation)))


def _pause_to_prefill(observation: Observation) -> Sight:
    """Longest known pause of a stream / longest known prefill."""
    pause = first_known(observation.metrics, "stall_max_s", "itl_p99_s", "itl_p95_s")
    prefill = first_known(observation.metrics, "prefill_time_p99_s", "prefill_time_p95_s")
    return single(quotient("pause_to_prefill_ratio", pause, prefill))


def _effective_cap(observation: Observation) -> Sight:
    """Cap on sequences that the engine reports / the one that the deployment says."""
    configured = observation.deployment.max_num_seqs if observation.deployment else None
    effective = ("max_num_seqs", observation.metrics.max_num_seqs)
    return single(quotient("effective_to_configured_cap_ratio", effective, ("deployment.max_num_seqs", configured)))


def _threads(observation: Observation) -> Sight:
    threads = ("num_cpu_threads", observation.metrics.num_cpu_threads)
    return single(quotient("threads_to_quota_ratio", threads, ("num_cpu_cores_limit", observation.metrics.num_cpu_cores_limit)))


LIMIT_SYMPTOMS: Mapping[str, Symptom] = {
    "kv_fit_to_cap_ratio": _fitting_to("kv_fit_to_cap_ratio", "max_num_seqs"),
    "running_to_kv_fit_ratio": _fitting_to("running_to_kv_fit_ratio", "num_running_requests"),
    "demand_to_kv_fit_ratio": _fitting_to("demand_to_kv_fit_ratio", "num_concurrent_requests"),
    "tpot_to_expected_ratio": _to_expected,
    "throughput_growth_ratio": _growth("throughput_growth_ratio", "request_rps", "output_tokens_per_s", "total_tokens_per_s"),
    "offered_growth_ratio": _growth("offered_growth_ratio", "offered_rps", "num_concurrent_requests"),
    "tpot_growth_ratio": _growth("tpot_growth_ratio", "tpot_p50_s", "itl_p50_s", "tpot_mean_s", "itl_mean_s", "tpot_p95_s", "tpot_p99_s"),
    "service_time_growth_ratio": _service_growth,
    "replica_skew_ratio": _replica_skew,
    "short_to_long_ttft_ratio": _short_to_long,
    "step_budget_tokens": _step_budget,
    "prompts_per_step_ratio": _prompts_per_step,
    "budget_share_of_ttft_ratio": _budget_share,
    "step_to_budget_ratio": _budget_use,
    "pause_to_prefill_ratio": _pause_to_prefill,
    "effective_to_configured_cap_ratio": _effective_cap,
    "threads_to_quota_ratio": _threads,
}
"""Symptoms of this module by name."""
