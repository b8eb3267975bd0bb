"""`profile_export_aiperf.json` of AIPerf and `*_genai_perf.json` of GenAI-Perf, its forerunner -> a load point.

Fields as written by AIPerf 0.13.0 (schema 1.4) and GenAI-Perf 0.0.16.
Source: https://github.com/ai-dynamo/aiperf, https://github.com/triton-inference-server/perf_analyzer/tree/main/genai-perf
"""

from collections.abc import Mapping, Sequence

from app.domain.load_point import Latency, LoadPoint
from app.importers.benchmark_fields import ResultFields, expected_object, named

PHASES_MEASURED = frozenset({"profiling"})


def is_aiperf(fields: ResultFields) -> bool:
    """An object of metrics with their units beside `input_config`."""
    return fields.given("input_config") and fields.given("request_throughput")


def load_points(fields: ResultFields) -> Sequence[LoadPoint]:
    """The one point of a file; refuses a run that was cancelled."""
    fields.require("was_cancelled", False)
    fields.require("is_complete", True)
    version = fields.label("aiperf_version")
    config = fields.inside("input_config")
    load = _phase(config) if version else config.inside("perf_analyzer", "stimulus")
    return [
        LoadPoint(
            tool="aiperf" if version else "genai-perf",
            tool_version=version,
            model=_model(config, version),
            concurrency=load.positive("concurrency"),
            requests_offered_per_s=load.positive("rate", "request_rate"),
            num_completed=_completed(fields),
            num_failed=_average(fields, "error_request_count", "requests", "count"),
            duration_s=_average(fields, "benchmark_duration", "sec"),
            mean_input_tokens=_average(fields, "input_sequence_length", "tokens"),
            mean_output_tokens=_average(fields, "output_sequence_length", "tokens"),
            requests_per_s=_average(fields, "request_throughput", "requests/sec"),
            output_tokens_per_s=_average(fields, "output_token_throughput", "tokens/sec"),
            ttft=_latency(fields, "time_to_first_token"),
            # (request latency - TTFT) / (output tokens - 1) of each request: TPOT under another name.
            tpot=_latency(fields, "inter_token_latency"),
            itl=_latency(fields, "inter_chunk_latency"),
            e2e=_latency(fields, "request_latency"),
        )
    ]


def _phase(config: ResultFields) -> ResultFields:
    """The phase that was measured, warm-up left out; nothing when there is not exactly one, as then no load is the file's."""
    _, phases = config.find("phases")
    if phases is not None and not isinstance(phases, list):
        raise config.wrong("phases", "a list")
    found = [expected_object(each, f"{config.at('phases')}/{index}") for index, each in enumerate(phases or ())]
    measured = [each for each in found if each.text("kind") in PHASES_MEASURED]
    return measured[0] if len(measured) == 1 else ResultFields({}, config.at("phases"))


def _model(config: ResultFields, version: str | None) -> str | None:
    _, names = config.inside("models").find("items") if version else config.find("model_names")
    first = names[0] if isinstance(names, list) and names else None
    name = first.get("name") if isinstance(first, Mapping) else first
    return name[:200] if isinstance(name, str) and name else None


def _completed(fields: ResultFields) -> float | None:
    if _average(fields, "request_count", "requests", "count") == 0:
        raise fields.inside("request_count").wrong("avg", "a number above 0")
    return _average(fields, "request_count", "requests", "count")


def _average(fields: ResultFields, name: str, *units: str) -> float | None:
    metric = fields.inside(name)
    if not metric.fields:
        return None
    if metric.text("unit") not in units:
        raise metric.wrong("unit", " or ".join(units))
    return metric.number("avg")


def _latency(fields: ResultFields, name: str) -> Latency:
    return fields.inside(name).latency_with_unit("unit", named("{}", mean="avg"))
