"""Names of the metrics of vLLM and SGLang in PromQL: current names first, those of older versions after `or`.

Sources: https://github.com/vllm-project/vllm/blob/main/vllm/v1/metrics/loggers.py,
https://github.com/vllm-project/vllm/blob/v0.7.0/vllm/engine/metrics.py (old names),
https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/observability/metrics_collector.py,
https://github.com/NVIDIA/dcgm-exporter/blob/main/etc/default-counters.csv. A test holds every name against scrapes of released versions.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from app.domain.deployment import EngineName

WINDOW = "5m"
"""Over which rates are taken: at least four scrapes of a minute (https://www.robustperception.io/what-range-should-i-use-with-rate/)."""


@dataclass(frozen=True)
class Ratio:
    """A share of two counters."""

    part: str
    whole: str

    @property
    def expr(self) -> str:
        """rate of the part / rate of the whole."""
        return f"sum(rate({self.part}[{WINDOW}])) / sum(rate({self.whole}[{WINDOW}]))"


@dataclass(frozen=True)
class EngineMetrics:
    """What one engine calls what is watched; tuples hold the current name and its older ones."""

    ttft: tuple[str, ...]
    tpot: tuple[str, ...]
    """Of a request where the version has it, else of the gaps between tokens."""
    e2e: tuple[str, ...]
    queue_time: tuple[str, ...]
    running: str
    waiting: str
    kv_usage: tuple[str, ...]
    preemptions: str
    input_tokens: str
    output_tokens: str
    finished: str
    failed: str
    """Selector of what did not end well."""
    prefix_hits: tuple[Ratio, ...]
    acceptance: str
    """Accepted / proposed draft tokens."""

    def quantile(self, names: tuple[str, ...], level: float) -> str:
        """The quantile of a histogram over the fleet [s]."""
        return _either(f"histogram_quantile({level:g}, sum by (le) (rate({name}_bucket[{WINDOW}])))" for name in names)

    def gauge(self, names: tuple[str, ...], how: str = "max") -> str:
        """An aggregate of a gauge over the engines."""
        return _either(f"{how}({name})" for name in names)

    def rate(self, counter: str) -> str:
        """Sum of the rates of a counter over the fleet [1/s]."""
        return f"sum(rate({counter}[{WINDOW}]))"

    @property
    def hit_ratio(self) -> str:
        """Share of the prompt tokens that the prefix cache serves."""
        return _either(each.expr for each in self.prefix_hits)

    @property
    def failed_ratio(self) -> str:
        """Share of the requests that ended in an error or were aborted."""
        return f"{self.rate(self.failed)} / {self.rate(self.finished)}"

    @property
    def num_engines(self) -> str:
        """Engine ranks that report."""
        return f"count({self.running})"


def _either(expressions: Iterable[str]) -> str:
    """The first that a fleet reports: outermost, so that buckets of two histograms are never added up."""
    return " or ".join(f"({each})" for each in expressions)


ENGINES: Mapping[EngineName, EngineMetrics] = {
    "vllm": EngineMetrics(
        ttft=("vllm:time_to_first_token_seconds",),
        tpot=("vllm:request_time_per_output_token_seconds", "vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
        e2e=("vllm:e2e_request_latency_seconds",),
        queue_time=("vllm:request_queue_time_seconds",),
        running="vllm:num_requests_running",
        waiting="vllm:num_requests_waiting",
        kv_usage=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        preemptions="vllm:num_preemptions_total",
        input_tokens="vllm:prompt_tokens_total",
        output_tokens="vllm:generation_tokens_total",
        finished="vllm:request_success_total",
        failed='vllm:request_success_total{finished_reason=~"abort|error"}',
        prefix_hits=(
            Ratio("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"),
            Ratio("vllm:gpu_prefix_cache_hits_total", "vllm:gpu_prefix_cache_queries_total"),
        ),
        acceptance=Ratio("vllm:spec_decode_num_accepted_tokens_total", "vllm:spec_decode_num_draft_tokens_total").expr,
    ),
    "sglang": EngineMetrics(
        ttft=("sglang:time_to_first_token_seconds",),
        tpot=("sglang:request_time_per_output_token_seconds", "sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds"),
        e2e=("sglang:e2e_request_latency_seconds",),
        queue_time=("sglang:queue_time_seconds",),
        running="sglang:num_running_reqs",
        waiting="sglang:num_queue_reqs",
        kv_usage=("sglang:token_usage",),
        preemptions="sglang:num_retracted_requests_total",
        input_tokens="sglang:prompt_tokens_total",
        output_tokens="sglang:generation_tokens_total",
        finished="sglang:num_requests_total",
        failed="sglang:num_aborted_requests_total",
        prefix_hits=(Ratio("sglang:cached_tokens_total", "sglang:prompt_tokens_total"),),
        acceptance="avg(sglang:spec_accept_rate)",
    ),
}
