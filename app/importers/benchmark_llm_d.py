"""An llm-d benchmark report (YAML or JSON, version 0.2 or 0.2.1) -> a load point.

Source: https://github.com/llm-d/llm-d-benchmark/tree/main/llmdbenchmark/analysis/benchmark_report
"""

from collections.abc import Mapping, Sequence

from app.domain.load_point import Latency, LoadPoint
from app.importers.benchmark_fields import ResultFields, named

VERSIONS = ("0.2", "0.2.1")

TPOT_IS_CALLED: Mapping[str, str] = {"guidellm": "inter_token_latency", "aiperf": "inter_token_latency"}
"""The field that holds (E2E - TTFT) / (tokens - 1), by the tool that measured; time_per_output_token for the others.

The converters copy each tool's figures under the tool's own names (`native_to_br0_2.py`): GuideLLM's time per output token contains the
TTFT, AIPerf writes none, and what both call inter-token latency is one value a request.
"""


def is_llm_d(fields: ResultFields) -> bool:
    """A report of any version: version 0.1 kept its results under `metrics`."""
    return fields.given("version") and fields.given("scenario") and (fields.given("results") or fields.given("metrics"))


def load_points(fields: ResultFields) -> Sequence[LoadPoint]:
    """The one point of a report; refuses version 0.1, which the project replaced."""
    fields.require("version", *VERSIONS)
    load = fields.inside("scenario", "load", "standardized")
    results = fields.inside("results", "request_performance", "aggregate")
    requests, rates = results.inside("requests"), results.inside("throughput")
    measured_by = load.label("tool") or ""
    tpot = TPOT_IS_CALLED.get(measured_by, "time_per_output_token")
    failed = requests.number("failures") or 0
    return [
        LoadPoint(
            tool="llm-d",
            tool_version=load.label("tool_version"),
            model=_model(fields),
            concurrency=load.positive("concurrency"),
            requests_offered_per_s=load.positive("rate_qps"),
            num_completed=_completed(requests, measured_by, failed),
            num_failed=failed,
            mean_input_tokens=requests.inside("input_length").number("mean"),
            mean_output_tokens=requests.inside("output_length").number("mean"),
            requests_per_s=rates.inside("request_rate").number("mean"),
            output_tokens_per_s=rates.inside("output_token_rate").number("mean"),
            ttft=_latency(results, "time_to_first_token"),
            tpot=_latency(results, tpot),
            itl=_latency(results, "inter_token_latency") if tpot != "inter_token_latency" else Latency(),
            e2e=_latency(results, "request_latency"),
        )
    ]


def _completed(requests: ResultFields, measured_by: str, failed: float) -> float:
    """Requests that succeeded: AIPerf's converter writes them as `total`, and as `failures` the number of distinct errors."""
    total = requests.required("total")
    if measured_by == "aiperf":
        return total
    unfinished = failed + (requests.number("incomplete") or 0)
    if unfinished >= total:
        raise requests.wrong("failures", f"fewer than the total of {total:g}")
    return total - unfinished


def _latency(results: ResultFields, name: str) -> Latency:
    return results.inside("latency", name).latency_with_unit("units", named("{}"))


def _model(fields: ResultFields) -> str | None:
    """Name of the model of the first component of the stack that has one."""
    _, stack = fields.inside("scenario").find("stack")
    for index, each in enumerate(stack if isinstance(stack, list) else ()):
        if isinstance(each, Mapping):
            name = ResultFields(each, f"{fields.at('scenario')}/stack/{index}").inside("standardized", "model").label("name")
            if name:
                return name
    return None
