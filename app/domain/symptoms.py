"""What rules speak of: metrics, families of percentiles, figures derived from several metrics.

All arithmetic of the diagnosis is here, so that rules hold none.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from app.domain.deployment import Deployment
from app.domain.metrics import Metrics, metric_unit
from app.domain.metrics_latency import STATISTICS
from app.domain.provenance import Step
from app.domain.units import plain
from app.domain.workload import Slo, Workload

NEVER = 1e7
"""Stands for a quotient that has no end (requests wait and none finishes), so that answers hold finite numbers only."""

PREALLOCATING_ENGINES = frozenset({"vllm", "sglang", "tensorrt-llm", "llama.cpp"})
"""Engines that take the memory of the KV cache when they start: an exhausted pool makes requests wait, it does not end the process.

Sources: https://docs.vllm.ai/en/stable/configuration/optimization/ (preemption),
https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md (context size is allocated at load).
"""


@dataclass(frozen=True)
class Observation:
    """Everything one diagnosis may look at."""

    metrics: Metrics
    baseline: Metrics | None = None
    slo: Slo | None = None
    deployment: Deployment | None = None
    workload: Workload | None = None
    _seen: dict[str, "Sight"] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def max_num_seqs(self) -> float | None:
        """Cap on running sequences [count]: what the engine reports, else what the deployment says."""
        configured = self.deployment.max_num_seqs if self.deployment else None
        return self.metrics.max_num_seqs if self.metrics.max_num_seqs is not None else configured

    @cached_property
    def before(self) -> "Observation | None":
        """The baseline seen as an observation of its own; None without one."""
        return None if self.baseline is None else Observation(self.baseline, deployment=self.deployment, workload=self.workload)


@dataclass(frozen=True)
class Reading:
    """One value of a symptom."""

    name: str
    """Metric, or name of the derived figure."""
    value: float
    statistic: str | None = None
    """p50, p95, p99 or mean where the symptom is a family."""
    overstates: bool = False
    """The metric reads high without useful work, so that a high value proves little."""
    working: Step | None = None
    """How a derived figure was computed."""


@dataclass(frozen=True)
class Absent:
    """The symptom cannot be read."""

    missing: tuple[str, ...]
    """What to measure so that it can."""


Sight = tuple[Reading, ...] | Absent
Symptom = Callable[[Observation], Sight]


def read(symptom: str, observation: Observation) -> Sight:
    """The readings of a symptom (several for a family of percentiles), or what is missing; raises KeyError for a name outside SYMPTOMS."""
    seen = observation._seen
    if symptom not in seen:  # many rules ask for the same symptom
        seen[symptom] = SYMPTOMS[symptom](observation)
    return seen[symptom]


def _metric(name: str) -> Symptom:
    def sight(observation: Observation) -> Sight:
        value = observation.metrics.get(name)
        return Absent((name,)) if value is None else (Reading(name, value),)

    return sight


def _latency(family: str) -> Symptom:
    """All given statistics of a latency."""

    def sight(observation: Observation) -> Sight:
        found = tuple(
            Reading(f"{family}_{statistic}_s", value, statistic)
            for statistic in STATISTICS
            if (value := observation.metrics.latency(family, statistic)) is not None
        )
        return found or Absent((f"{family}_p95_s",))

    return sight


def _quotient(
    name: str, over: tuple[str, float | None], under: tuple[str, float | None], *, statistic: str | None = None
) -> Reading | Absent:
    """over / under; NEVER when only the divisor is zero, 0 when both are."""
    (over_name, numerator), (under_name, divisor) = over, under
    if numerator is None or divisor is None:
        return Absent(tuple(each for each, value in (over, under) if value is None))
    value = min(numerator / divisor, NEVER) if divisor else (NEVER if numerator else 0.0)
    step = Step(
        name=name,
        formula=f"{over_name} / {under_name}",
        substituted=f"{plain(numerator)} / {plain(divisor)}",
        value=value,
        unit=metric_unit(name),
        basis="exact",
        source="arithmetic on the metrics given" + ("" if divisor else f"; {plain(NEVER)} stands for no end, 0 for 0 / 0"),
    )
    return Reading(name, value, statistic, working=step)


def _single(found: Reading | Absent) -> Sight:
    return found if isinstance(found, Absent) else (found,)


def _share_of_ttft(part: str, statistics: Sequence[str] = STATISTICS) -> Symptom:
    """Share of a part of the time to first token, at each high percentile that was measured of both.

    Of the medians where TTFT is known by its median only, of the means where nothing else is. The percentile of a part is not the part of
    the percentile: the share is an indication, exact only where one request is typical of all.
    """

    def sight(observation: Observation) -> Sight:
        metrics = observation.metrics
        found: list[Reading] = []
        for statistic in statistics:
            inner, ttft = metrics.latency(part, statistic), metrics.latency("ttft", statistic)
            if inner is None or ttft is None or (statistic == "mean" and found):
                continue
            if statistic == "p50" and len(statistics) > 1 and metrics.high_percentile("ttft") is not None:
                continue  # the median request says nothing about what delays the slow ones
            name = f"{part}_share_of_ttft_{statistic}_ratio"
            reading = _quotient(name, (f"{part}_{statistic}_s", inner), (f"ttft_{statistic}_s", ttft), statistic=statistic)
            if isinstance(reading, Reading):
                found.append(reading)
        if found:
            return tuple(found)
        order = [statistic for statistic in ("p95", "p99", "p50", "mean") if statistic in statistics]
        known = (statistic for latency in ("ttft", part) for statistic in order if metrics.latency(latency, statistic) is not None)
        wanted = next(known, order[0])
        return Absent(tuple(f"{each}_{wanted}_s" for each in ("ttft", part) if metrics.latency(each, wanted) is None))

    return sight


def _latency_tail(family: str) -> Symptom:
    def sight(observation: Observation) -> Sight:
        top, middle = f"{family}_p99_s", f"{family}_p50_s"
        metrics = observation.metrics
        return _single(_quotient(f"{family}_tail_ratio", (top, metrics.get(top)), (middle, metrics.get(middle))))

    return sight


def _length_tail(family: str) -> Symptom:
    """P99 / P50 of a length, of the metrics or else of the workload."""

    def sight(observation: Observation) -> Sight:
        top, middle = (observation.metrics.length(family, level) for level in ("p99", "p50"))
        names = f"{family}_p99_tokens", f"{family}_p50_tokens"
        if top is None and middle is None and observation.workload is not None:
            lengths = observation.workload.lengths(f"{family}_tokens")
            top, middle = lengths.p99, lengths.p50
            if top is not None and middle is not None:
                names = f"workload.{family}_tokens.p99", f"workload.{family}_tokens.p50"
        return _single(_quotient(f"{family}_tail_ratio", (names[0], top), (names[1], middle)))

    return sight


def _running_to_cap(observation: Observation) -> Sight:
    running = ("num_running_requests", observation.metrics.num_running_requests)
    return _single(_quotient("running_to_cap_ratio", running, ("max_num_seqs", observation.max_num_seqs)))


def _queue_drain(observation: Observation) -> Sight:
    """Seconds until the queue is empty at the present rate, if nobody else came."""
    metrics = observation.metrics
    waiting, rate = ("num_waiting_requests", metrics.num_waiting_requests), ("request_rps", metrics.request_rps)
    return _single(_quotient("queue_drain_s", waiting, rate))


def _preemptions_per_request(observation: Observation) -> Sight:
    metrics = observation.metrics
    if metrics.num_preemptions_per_request is not None:
        return (Reading("num_preemptions_per_request", metrics.num_preemptions_per_request),)
    if metrics.preemptions_per_s is None:
        return Absent(("num_preemptions_per_request",))
    preemptions, rate = ("preemptions_per_s", metrics.preemptions_per_s), ("request_rps", metrics.request_rps)
    return _single(_quotient("num_preemptions_per_request", preemptions, rate))


def _output_per_request(observation: Observation) -> Sight:
    metrics = observation.metrics
    if metrics.output_mean_tokens is not None:
        return (Reading("output_mean_tokens", metrics.output_mean_tokens),)
    tokens, rate = ("output_tokens_per_s", metrics.output_tokens_per_s), ("request_rps", metrics.request_rps)
    return _single(_quotient("output_per_request_tokens", tokens, rate))


def _input_to_output(observation: Observation) -> Sight:
    """Prompt tokens processed per token generated."""
    metrics = observation.metrics
    prompt, generated = ("input_tokens_per_s", metrics.input_tokens_per_s), ("output_tokens_per_s", metrics.output_tokens_per_s)
    return _single(_quotient("input_to_output_ratio", prompt, generated))


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


def _cuda_graphs_disabled(observation: Observation) -> Sight:
    """1 when the engine was told to run without CUDA graphs, 0 when it was not."""
    if observation.deployment is None:
        return Absent(("deployment.enforce_eager",))
    return (Reading("cuda_graphs_disabled", float(observation.deployment.enforce_eager)),)


def _expected_prefix_hits(observation: Observation) -> Sight:
    """Share of prompt tokens that ought to be found in the prefix cache: as in the baseline, else what the workload promises."""
    if observation.baseline is not None and observation.baseline.prefix_cache_hit_ratio is not None:
        return (Reading("baseline.prefix_cache_hit_ratio", observation.baseline.prefix_cache_hit_ratio),)
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


SYMPTOMS: Mapping[str, Symptom] = {
    **{name: _metric(name) for name in Metrics.model_fields},
    **{family: _latency(family) for family in ("ttft", "tpot", "e2e", "queue_time")},
    **{f"{part}_share_of_ttft": _share_of_ttft(part) for part in ("queue_time", "prefill_time")},
    "queue_time_share_of_ttft_p50": _share_of_ttft("queue_time", ("p50",)),
    **{f"{family}_tail_ratio": _latency_tail(family) for family in ("ttft", "tpot", "e2e")},
    **{f"{family}_tail_ratio": _length_tail(family) for family in ("input", "output")},
    "max_num_seqs": lambda seen: Absent(("max_num_seqs",)) if seen.max_num_seqs is None else (Reading("max_num_seqs", seen.max_num_seqs),),
    "running_to_cap_ratio": _running_to_cap,
    "queue_drain_s": _queue_drain,
    "num_preemptions_per_request": _preemptions_per_request,
    "output_per_request_tokens": _output_per_request,
    "input_to_output_ratio": _input_to_output,
    "gpu_busy_ratio": _gpu_busy,
    "kv_pool_is_preallocated": _kv_pool_is_preallocated,
    "cuda_graphs_disabled": _cuda_graphs_disabled,
    "expected_prefix_hit_ratio": _expected_prefix_hits,
}
"""Every name that a rule may compare."""
