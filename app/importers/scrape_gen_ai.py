"""Metric names of OpenTelemetry's conventions for generative AI, as Prometheus writes them (dots become underscores, units are added)."""

import re

from app.importers.scrape_map import ScrapeMap
from app.importers.scrape_readings import Distribution, Rate, series
from app.importers.scrape_window import Series

_SERVER, _CLIENT = "gen_ai_server", "gen_ai_client"
_USAGE = f"{_CLIENT}_token_usage"


def _named(name: str) -> tuple[Series, ...]:
    return series(f"{name}_seconds", name)


def _tokens(kind: str, part: str = "") -> tuple[Series, ...]:
    of = {"gen_ai_token_type": [kind]}
    return tuple(Series(f"{name}{part}", of) for name in (_USAGE, f"{_USAGE}_tokens", f"{_USAGE}_token"))


GEN_AI = ScrapeMap(
    engine="gen_ai",
    pattern=re.compile(r"gen_ai_(?P<name>\w+)"),
    prefix="gen_ai_",
    finished=Series(f"{_SERVER}_request_duration_seconds_count"),
    readings=(
        Distribution("ttft_{}_s", _named(f"{_SERVER}_time_to_first_token")),
        Distribution("tpot_{}_s", _named(f"{_SERVER}_time_per_output_token")),
        Distribution("e2e_{}_s", _named(f"{_SERVER}_request_duration")),
        Distribution("client_ttft_{}_s", _named(f"{_CLIENT}_operation_time_to_first_chunk")),
        Distribution("client_itl_{}_s", _named(f"{_CLIENT}_operation_time_per_output_chunk")),
        Distribution("client_e2e_{}_s", _named(f"{_CLIENT}_operation_duration")),
        Distribution("input_{}_tokens", _tokens("input")),
        Distribution("output_{}_tokens", _tokens("output")),
        Rate("request_rps", series(*(f"{name}_count" for name in (f"{_SERVER}_request_duration_seconds", f"{_SERVER}_request_duration")))),
        Rate("input_tokens_per_s", _tokens("input", "_sum")),
        Rate("output_tokens_per_s", _tokens("output", "_sum")),
    ),
    sources=("https://github.com/open-telemetry/semantic-conventions/blob/v1.36.0/docs/gen-ai/gen-ai-metrics.md",),
)
