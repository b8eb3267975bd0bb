"""Names and units that operators, engines and benchmark tools use for the metrics of a diagnosis."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from app.domain.metrics_latency import LATENCIES

_UNITS: Mapping[str, tuple[str, float]] = {
    "ms": ("s", 1e-3),
    "milliseconds": ("s", 1e-3),
    "us": ("s", 1e-6),
    "sec": ("s", 1),
    "secs": ("s", 1),
    "seconds": ("s", 1),
    "pct": ("ratio", 0.01),
    "percent": ("ratio", 0.01),
    "percentage": ("ratio", 0.01),
    "frac": ("ratio", 1),
    "fraction": ("ratio", 1),
    "tps": ("tokens_per_s", 1),
    "toks_per_s": ("tokens_per_s", 1),
    "tok_per_s": ("tokens_per_s", 1),
    "tok_s": ("tokens_per_s", 1),
    "tokens_per_second": ("tokens_per_s", 1),
    "tokens_per_sec": ("tokens_per_s", 1),
    "qps": ("rps", 1),
    "req_per_s": ("rps", 1),
    "requests_per_s": ("rps", 1),
    "requests_per_second": ("rps", 1),
}
"""Written unit: base unit, and what one of it is in that."""

_STATISTICS: Mapping[str, str] = {
    "p50": "p50", "median": "p50", "p90": "p90", "p95": "p95", "p99": "p99", "mean": "mean", "avg": "mean", "average": "mean",
}  # fmt: skip

_FAMILIES: Mapping[str, str] = {
    **{family: family for family in LATENCIES},
    "time_to_first_token": "ttft",
    "ttfa": "ttft",  # time to first audio: what speech models stream first
    "first_token_latency": "ttft",
    "time_per_output_token": "tpot",
    "inter_token_latency": "itl",
    "e2el": "e2e",
    "e2e_latency": "e2e",
    "end_to_end_latency": "e2e",
    "request_latency": "e2e",
    "latency": "e2e",
    "queue": "queue_time",
    "queue_wait": "queue_time",
    "queueing_time": "queue_time",
    "queue_latency": "queue_time",
    "prefill": "prefill_time",
    "prefill_latency": "prefill_time",
    "client_time_to_first_token": "client_ttft",
    "client_inter_token_latency": "client_itl",
    "client_latency": "client_e2e",
    "preprocess": "preprocess_time",
    "preprocessing_time": "preprocess_time",
    "preprocess_total": "preprocess_time",
    "grammar_compile": "grammar_time",
    "grammar_compile_time": "grammar_time",
    "kv_load": "kv_load_time",
    "kv_offload_load": "kv_load_time",
    "kv_transfer": "kv_load_time",
    "kv_transfer_time": "kv_load_time",
}
"""Written latency: the latency of ours. A latency without a statistic is read as its mean."""

_NAMES: Mapping[str, str] = {
    "running": "num_running_requests",
    "running_requests": "num_running_requests",
    "requests_running": "num_running_requests",
    "num_requests_running": "num_running_requests",
    "num_running_reqs": "num_running_requests",
    "waiting": "num_waiting_requests",
    "waiting_requests": "num_waiting_requests",
    "requests_waiting": "num_waiting_requests",
    "num_requests_waiting": "num_waiting_requests",
    "num_queue_reqs": "num_waiting_requests",
    "queue_depth": "num_waiting_requests",
    "queue_size": "num_waiting_requests",
    "concurrency": "num_concurrent_requests",
    "client_concurrency": "num_concurrent_requests",
    "rps": "request_rps",
    "achieved_rps": "request_rps",
    "request_throughput": "request_rps",
    "offered_rate": "offered_rps",
    "request_rate": "offered_rps",
    "output_throughput": "output_tokens_per_s",
    "generation_tokens_per_s": "output_tokens_per_s",
    "generation_throughput": "output_tokens_per_s",
    "gen_throughput": "output_tokens_per_s",
    "decode_tokens_per_s": "output_tokens_per_s",
    "input_throughput": "input_tokens_per_s",
    "prompt_tokens_per_s": "input_tokens_per_s",
    "prompt_throughput": "input_tokens_per_s",
    "prefill_tokens_per_s": "input_tokens_per_s",
    "total_token_throughput": "total_tokens_per_s",
    "total_throughput": "total_tokens_per_s",
    "input_tokens": "input_mean_tokens",
    "prompt_tokens": "input_mean_tokens",
    "output_tokens": "output_mean_tokens",
    "generation_tokens": "output_mean_tokens",
    "kv_usage": "kv_cache_usage_ratio",
    "kv_usage_ratio": "kv_cache_usage_ratio",
    "kv_cache_usage": "kv_cache_usage_ratio",
    "kv_cache_usage_perc": "kv_cache_usage_ratio",
    "gpu_cache_usage_perc": "kv_cache_usage_ratio",
    "kv_cache_utilization": "kv_cache_usage_ratio",
    "kv_cache_utilization_ratio": "kv_cache_usage_ratio",
    "token_usage": "kv_cache_usage_ratio",
    "kv_cache_tokens": "num_kv_cache_tokens",
    "max_total_num_tokens": "num_kv_cache_tokens",
    "preemptions_per_request": "num_preemptions_per_request",
    "preemption_rate": "preemptions_per_s",
    "prefix_hit_ratio": "prefix_cache_hit_ratio",
    "prefix_cache_hit_rate": "prefix_cache_hit_ratio",
    "prefix_hit_rate": "prefix_cache_hit_ratio",
    "cache_hit_rate": "prefix_cache_hit_ratio",
    "cache_hit_ratio": "prefix_cache_hit_ratio",
    "spec_accept_ratio": "spec_decode_acceptance_ratio",
    "spec_accept_rate": "spec_decode_acceptance_ratio",
    "spec_acceptance_ratio": "spec_decode_acceptance_ratio",
    "acceptance_rate": "spec_decode_acceptance_ratio",
    "acceptance_ratio": "spec_decode_acceptance_ratio",
    "draft_acceptance_rate": "spec_decode_acceptance_ratio",
    "num_speculative_tokens": "num_spec_tokens",
    "gpu_util": "gpu_utilization_ratio",
    "gpu_util_ratio": "gpu_utilization_ratio",
    "gpu_utilization": "gpu_utilization_ratio",
    "sm_active": "sm_active_ratio",
    "dram_active": "dram_active_ratio",
    "tensor_active": "tensor_active_ratio",
    "cpu_throttle_ratio": "cpu_throttled_ratio",
    "cpu_throttled": "cpu_throttled_ratio",
    "cpu_limit_cores": "num_cpu_cores_limit",
    "vcpu": "num_cpu_cores_limit",
    "threads": "num_cpu_threads",
    "omp_num_threads": "num_cpu_threads",
    "engine_cpu_ratio": "num_engine_cpu_cores_used",
    "jit_kernels": "num_jit_compilations",
    "engine_init_s": "start_up_s",
    "gc_period_s": "stall_period_s",
    "numa_local": "numa_local_ratio",
    "oom_count": "num_oom_events",
    "oom_events": "num_oom_events",
    "error_rate": "failed_request_ratio",
    "error_ratio": "failed_request_ratio",
    "stream_stall_s": "stall_max_s",
    "stall_s": "stall_max_s",
    "gc_pause_s": "gc_pause_max_s",
    "step_time_s": "step_time_mean_s",
    "ttft_first_s": "first_request_ttft_s",
    "ttft_second_s": "repeated_request_ttft_s",
    "e2e_first_s": "first_request_e2e_s",
    "e2e_repeat_s": "repeated_request_e2e_s",
    "max_cudagraph_capture_size": "max_cuda_graph_batch_size",
    "cuda_graph_max_bs": "max_cuda_graph_batch_size",
}
"""Other names of one metric, after the unit was brought to its base."""

_PREFIX = re.compile(r"^(?:vllm|sglang|trtllm|tgi)[:_]")
_UNIT = re.compile(rf"^(.*?)_({'|'.join(sorted(_UNITS, key=len, reverse=True))})$")
_LENGTH = re.compile(r"^(input|prompt|output|generation)_(?:tokens_|length_)?(\w+?)_?(?:tokens|length)?$")


@dataclass(frozen=True)
class ReadAs:
    """How a written name was understood: value x factor is the metric called `name`."""

    name: str
    factor: float


@lru_cache(maxsize=2048)  # names come from callers
def read_as(written: str, known: frozenset[str]) -> ReadAs | None:
    """The metric of `known` that a written name means, with the factor to its base unit; None for a name that is not understood.

    >>> read_as("p99_ttft_ms", frozenset({"ttft_p99_s"}))
    ReadAs(name='ttft_p99_s', factor=0.001)
    """
    if written in known:
        return ReadAs(written, 1)
    name, factor = re.sub(r"[^a-z0-9:]+", "_", written[:100].casefold()).strip("_"), 1.0
    name = _PREFIX.sub("", name).removesuffix("_total")
    if unit := _UNIT.match(name):
        base, factor = _UNITS[unit[2]]
        name = f"{unit[1]}_{base}"
    candidates = (name, f"num_{name}", _NAMES.get(name), _NAMES.get(name.removesuffix("_ratio")), _latency(name), _length(name))
    return next((ReadAs(each, factor) for each in candidates if each in known and each is not None), None)


def _latency(name: str) -> str | None:
    """The latency of a name in base units: family and statistic in either order."""
    words = name.removesuffix("_s").split("_")
    if name.endswith("_s"):
        for position, word in ((0, words[0]), (len(words) - 1, words[-1])):
            family = _FAMILIES.get("_".join(words[:position] + words[position + 1 :]))
            if word in _STATISTICS and family is not None:
                return f"{family}_{_STATISTICS[word]}_s"
        if (family := _FAMILIES.get("_".join(words))) is not None:
            return f"{family}_mean_s"
    return None


def _length(name: str) -> str | None:
    found = _LENGTH.match(name)
    if found is None or found[2] not in _STATISTICS:
        return None
    side = "input" if found[1] in ("input", "prompt") else "output"
    return f"{side}_{_STATISTICS[found[2]]}_tokens"
