"""`benchmarks.json` of GuideLLM -> one load point a benchmark. Fields as written by GuideLLM 0.8.1.

Source: https://github.com/vllm-project/guidellm/tree/main/src/guidellm
"""

from collections.abc import Sequence

from app.domain.load_point import MAX_SECONDS, Latency, LoadPoint
from app.importers.benchmark_fields import ResultFields, expected_object, named

FILE_VERSION = 2
MAX_BENCHMARKS = 1000


def is_guidellm(fields: ResultFields) -> bool:
    """A list of benchmarks under metadata."""
    return fields.given("benchmarks") and fields.given("metadata")


def load_points(fields: ResultFields) -> Sequence[LoadPoint]:
    """A point for each benchmark of the sweep; refuses another version of the file, whose fields may mean something else."""
    metadata = fields.inside("metadata")
    metadata.require("version", FILE_VERSION)
    _, benchmarks = fields.find("benchmarks")
    if not isinstance(benchmarks, list) or not 0 < len(benchmarks) <= MAX_BENCHMARKS:
        raise fields.wrong("benchmarks", f"a list of 1 to {MAX_BENCHMARKS} benchmarks")
    version = metadata.label("guidellm_version")
    model = fields.inside("config", "spec", "backend").label("model")
    return [_point(expected_object(each, f"{fields.at('benchmarks')}/{index}"), version, model) for index, each in enumerate(benchmarks)]


def _point(benchmark: ResultFields, version: str | None, model: str | None) -> LoadPoint:
    strategy, metrics = benchmark.inside("config", "strategy"), benchmark.inside("metrics")
    totals = metrics.inside("request_totals")
    return LoadPoint(
        tool="guidellm",
        tool_version=version,
        model=model,
        concurrency=_concurrency(strategy),
        requests_offered_per_s=strategy.positive("rate"),
        num_completed=totals.count("successful"),
        num_failed=totals.number("errored"),
        duration_s=benchmark.number("duration", maximum=MAX_SECONDS),
        mean_input_tokens=_mean(metrics, "prompt_token_count"),
        mean_output_tokens=_mean(metrics, "output_token_count"),
        requests_per_s=_mean(metrics, "requests_per_second"),
        output_tokens_per_s=_mean(metrics, "output_tokens_per_second"),
        ttft=_latency(metrics, "time_to_first_token_ms", 1e-3),
        # GuideLLM's time_per_output_token_ms is E2E over all output tokens and so contains the TTFT; its inter_token_latency_ms is
        # (last - first token) / (tokens - 1) of a request, what other tools call TPOT.
        tpot=_latency(metrics, "inter_token_latency_ms", 1e-3),
        e2e=_latency(metrics, "request_latency", 1),
    )


def _concurrency(strategy: ResultFields) -> float | None:
    """`max_concurrency` of a strategy that follows a rate is the size of GuideLLM's own queue, not a load."""
    kind = strategy.text("type_")
    if kind == "synchronous":
        return 1
    return strategy.positive("max_concurrency") if kind == "throughput" else strategy.positive("streams")


def _mean(metrics: ResultFields, name: str) -> float | None:
    return metrics.inside(name, "successful").number("mean")


def _latency(metrics: ResultFields, name: str, seconds_per_unit: float) -> Latency:
    summary = metrics.inside(name, "successful")
    mean = summary.latency({"mean": "mean"}, seconds_per_unit=seconds_per_unit)
    if mean.mean_s is None:
        return mean
    percentiles = {each: name for each, name in named("{}").items() if each != "mean"}
    rest = summary.inside("percentiles").latency(percentiles, seconds_per_unit=seconds_per_unit)
    return rest.model_copy(update={"mean_s": mean.mean_s})
