"""Results of `vllm bench serve --save-result` -> a load point. Fields as written by vLLM 0.33.

Source: https://github.com/vllm-project/vllm/blob/main/vllm/benchmarks/serve.py
"""

from collections.abc import Sequence

from app.domain.load_point import MAX_SECONDS, Latency, LoadPoint
from app.importers.benchmark_fields import ResultFields, ratio, serve_latency


def is_vllm(fields: ResultFields) -> bool:
    """The flat object of `vllm bench serve`; SGLang, which began as the same script, says `total_throughput`."""
    return fields.given("total_token_throughput") and fields.given("completed") and not fields.given("total_throughput")


def load_points(fields: ResultFields) -> Sequence[LoadPoint]:
    """The one point of an object."""
    completed = fields.count("completed")
    failed = fields.number("failed")
    return [
        LoadPoint(
            tool="vllm",
            model=fields.label("model_id"),
            concurrency=fields.positive("max_concurrency"),
            requests_offered_per_s=fields.positive("request_rate"),
            num_completed=completed,
            num_failed=failed,
            duration_s=fields.number("duration", maximum=MAX_SECONDS),
            mean_input_tokens=ratio(fields.number("total_input_tokens"), completed),
            mean_output_tokens=ratio(fields.number("total_output_tokens"), completed),
            requests_per_s=fields.number("request_throughput"),
            output_tokens_per_s=fields.number("output_throughput"),
            ttft=serve_latency(fields, "ttft"),
            tpot=serve_latency(fields, "tpot"),
            itl=serve_latency(fields, "itl"),
            e2e=serve_latency(fields, "e2el") if fields.given("mean_e2el_ms") else _mean_of_latencies(fields, completed, failed),
        )
    ]


def _mean_of_latencies(fields: ResultFields, completed: float, failed: float | None) -> Latency:
    """E2E is summarised only when asked for (--percentile-metrics e2el), yet `latencies` [s] lists every request.

    Failed requests stand in the list as 0, so it is used only where there are none.
    """
    _, values = fields.find("latencies")
    if not isinstance(values, list) or failed or len(values) != completed:
        return Latency()
    if not all(isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_SECONDS for value in values):
        raise fields.wrong("latencies", f"a list of numbers from 0 to {MAX_SECONDS:g}")
    return Latency(mean_s=sum(values) / len(values))
