"""The closed vocabulary of what a diagnosis reads: names, units, ranges."""

import difflib
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from app.domain.units import unit_of
from app.domain.value import Given

Seconds = Annotated[float, Field(ge=0, le=1e7)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[float, Field(ge=0, le=1e9)]
Rate = Annotated[float, Field(ge=0, le=1e12)]
Length = Annotated[float, Field(ge=0, le=1e9)]

PERCENTILES = ("p50", "p95", "p99")
STATISTICS = (*PERCENTILES, "mean")
LATENCIES = ("ttft", "tpot", "e2e", "queue_time", "prefill_time")
LENGTHS = ("input", "output")

MAX_NAMED_UNKNOWN = 20
"""Unknown names that are answered with their nearest neighbours; a search for each of thousands would cost seconds."""


class Metrics(Given):
    """What one engine (one replica) showed over one window of time; leave out what was not measured.

    Rates and percentiles are of the window, not since the start of the process. Gauges (running, waiting, KV usage) are means over it.
    """

    ttft_p50_s: Seconds | None = None
    """Time to first token as the engine measures it, median [s]."""
    ttft_p95_s: Seconds | None = None
    """Time to first token, 95th percentile [s]."""
    ttft_p99_s: Seconds | None = None
    """Time to first token, 99th percentile [s]."""
    ttft_mean_s: Seconds | None = None
    """Time to first token, mean [s]; percentiles are better evidence."""
    tpot_p50_s: Seconds | None = None
    """Time per output token, (E2E - TTFT) / (output tokens - 1) of a request, median [s]."""
    tpot_p95_s: Seconds | None = None
    """Time per output token, 95th percentile [s]."""
    tpot_p99_s: Seconds | None = None
    """Time per output token, 99th percentile [s]."""
    tpot_mean_s: Seconds | None = None
    """Time per output token, mean [s]; percentiles are better evidence."""
    e2e_p50_s: Seconds | None = None
    """End-to-end latency of a request, median [s]."""
    e2e_p95_s: Seconds | None = None
    """End-to-end latency, 95th percentile [s]."""
    e2e_p99_s: Seconds | None = None
    """End-to-end latency, 99th percentile [s]."""
    e2e_mean_s: Seconds | None = None
    """End-to-end latency, mean [s]; percentiles are better evidence."""
    queue_time_p50_s: Seconds | None = None
    """Time between arrival at the engine and first scheduling, median [s]."""
    queue_time_p95_s: Seconds | None = None
    """Time in the engine's queue, 95th percentile [s]."""
    queue_time_p99_s: Seconds | None = None
    """Time in the engine's queue, 99th percentile [s]."""
    queue_time_mean_s: Seconds | None = None
    """Time in the engine's queue, mean [s]; percentiles are better evidence."""
    prefill_time_p50_s: Seconds | None = None
    """Time between first scheduling and first token, median [s]."""
    prefill_time_p95_s: Seconds | None = None
    """Time in prefill, 95th percentile [s]."""
    prefill_time_p99_s: Seconds | None = None
    """Time in prefill, 99th percentile [s]."""
    prefill_time_mean_s: Seconds | None = None
    """Time in prefill, mean [s]; percentiles are better evidence."""

    request_rps: Rate | None = None
    """Requests finished per second."""
    offered_rps: Rate | None = None
    """Requests sent per second by all clients, finished or not."""
    input_tokens_per_s: Rate | None = None
    """Prompt tokens processed per second: the load on prefill."""
    output_tokens_per_s: Rate | None = None
    """Tokens generated per second over all requests: the load on decode."""
    input_p50_tokens: Length | None = None
    """Prompt length, median [tokens]."""
    input_p95_tokens: Length | None = None
    """Prompt length, 95th percentile [tokens]."""
    input_p99_tokens: Length | None = None
    """Prompt length, 99th percentile [tokens]."""
    input_mean_tokens: Length | None = None
    """Prompt length, mean [tokens]."""
    output_p50_tokens: Length | None = None
    """Output length, median [tokens]."""
    output_p95_tokens: Length | None = None
    """Output length, 95th percentile [tokens]."""
    output_p99_tokens: Length | None = None
    """Output length, 99th percentile [tokens]."""
    output_mean_tokens: Length | None = None
    """Output length, mean [tokens]."""

    num_running_requests: Count | None = None
    """Requests in the running batch of the engine."""
    num_waiting_requests: Count | None = None
    """Requests in the queue of the engine."""
    max_num_seqs: Annotated[float, Field(ge=1, le=1e6)] | None = None
    """Most sequences that the engine runs at once, as it reports it; the deployment's own figure is used when this is left out."""
    kv_cache_usage_ratio: Share | None = None
    """KV cache blocks in use / all KV cache blocks."""
    preemptions_per_s: Rate | None = None
    """Requests thrown out of the running batch per second to free KV cache (SGLang: retractions)."""
    num_preemptions_per_request: Count | None = None
    """Preemptions / finished requests; computed from preemptions_per_s and request_rps when left out."""
    prefix_cache_hit_ratio: Share | None = None
    """Prompt tokens found in the prefix cache / prompt tokens looked up."""

    gpu_utilization_ratio: Share | None = None
    """Share of time in which any kernel ran, as nvidia-smi reports it; says little about work done when it is high."""
    sm_active_ratio: Share | None = None
    """Share of cycles in which a streaming multiprocessor had work (DCGM_FI_PROF_SM_ACTIVE)."""
    dram_active_ratio: Share | None = None
    """Share of cycles in which device memory moved data (DCGM_FI_PROF_DRAM_ACTIVE); about 0.8 is the most that is reached."""
    cpu_throttled_ratio: Share | None = None
    """Scheduling periods in which the container was throttled / all periods (nr_throttled / nr_periods of cpu.stat)."""
    num_oom_events: Count | None = None
    """Times the process ran out of device memory in the window."""
    gpu_memory_reserved_unallocated_ratio: Share | None = None
    """Memory that the allocator holds without using it, as the out-of-memory message states it / device memory."""

    @model_validator(mode="before")
    @classmethod
    def _name_the_nearest(cls, given: object) -> object:
        if isinstance(given, dict) and (unknown := [name for name in given if name not in cls.model_fields]):
            errors = [
                InitErrorDetails(type=_unknown_metric(str(name)), loc=(str(name),), input=given[name])
                for name in unknown[:MAX_NAMED_UNKNOWN]
            ]
            raise ValidationError.from_exception_data(cls.__name__, errors)
        return given

    def get(self, name: str) -> float | None:
        """The metric of that name, or None when it was not measured."""
        value: float | None = getattr(self, name)
        return value

    def latency(self, family: str, statistic: str) -> float | None:
        """One statistic of a latency of LATENCIES [s]."""
        return self.get(f"{family}_{statistic}_s")

    def high_percentile(self, family: str) -> float | None:
        """P95 of a latency, or P99 where only that was measured [s]."""
        p95 = self.latency(family, "p95")
        return self.latency(family, "p99") if p95 is None else p95

    def length(self, family: str, statistic: str) -> float | None:
        """One statistic of a length of LENGTHS [tokens]."""
        return self.get(f"{family}_{statistic}_tokens")

    def measured(self) -> Iterator[str]:
        """Names of the metrics that were given."""
        return (name for name in Metrics.model_fields if self.get(name) is not None)


def metric_unit(name: str) -> str:
    """Unit that the name of a metric or a symptom stands for."""
    return unit_of(name) or "count"


def _unknown_metric(name: str) -> PydanticCustomError:
    shown = name[:60]
    nearest = difflib.get_close_matches(shown.casefold(), Metrics.model_fields, n=4, cutoff=0.5)
    wanted = ", ".join(nearest) if nearest else "one of the metrics that /openapi.json lists under Metrics"
    return PydanticCustomError(
        "unknown_metric", "There is no metric {name}. Input should be {wanted}", {"name": repr(shown), "wanted": wanted}
    )
