"""Results of `python -m sglang.benchmark.serving --output-file` (JSON lines) -> a load point. Fields as written by SGLang 0.5.23.

Source: https://github.com/sgl-project/sglang/blob/main/python/sglang/bench_serving.py
"""

from collections.abc import Sequence

from app.domain.load_point import MAX_SECONDS, LoadPoint
from app.importers.benchmark_fields import ResultFields, ratio, serve_latency


def is_sglang(fields: ResultFields) -> bool:
    """The flat object of SGLang's script, one a line."""
    return fields.given("total_throughput") and fields.given("mean_e2e_latency_ms")


def load_points(fields: ResultFields) -> Sequence[LoadPoint]:
    """The one point of a line; `server_info` is what the server said of itself when it was an SGLang server."""
    completed = fields.count("completed")
    return [
        LoadPoint(
            tool="sglang",
            model=fields.inside("server_info").label("model_path"),
            concurrency=fields.positive("max_concurrency"),
            requests_offered_per_s=fields.positive("request_rate"),
            num_completed=completed,
            duration_s=fields.number("duration", maximum=MAX_SECONDS),
            mean_input_tokens=ratio(fields.number("total_input_tokens"), completed),
            mean_output_tokens=ratio(fields.number("total_output_tokens"), completed),
            requests_per_s=fields.number("request_throughput"),
            output_tokens_per_s=fields.number("output_throughput"),
            ttft=serve_latency(fields, "ttft"),
            tpot=serve_latency(fields, "tpot"),
            itl=serve_latency(fields, "itl"),
            e2e=serve_latency(fields, "e2e_latency"),
        )
    ]
