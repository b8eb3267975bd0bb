"""Metric names of llama.cpp's server (`--metrics`)."""

import re

from app.importers.scrape_gauges import Amount, Level
from app.importers.scrape_map import ScrapeMap
from app.importers.scrape_readings import Rate, Ratio, series
from app.importers.scrape_window import Series

_PROMPT, _PREDICTED = Series("llamacpp:prompt_tokens"), Series("llamacpp:tokens_predicted")
_DRAFTED = Series("llamacpp:spec_decode_num_draft_tokens")

LLAMA_CPP = ScrapeMap(
    engine="llama.cpp",
    pattern=re.compile(r"llamacpp[:_](?P<name>\w+)"),
    prefix="llamacpp:",
    readings=(
        # It has no histograms and counts no requests: means over tokens, and no latency of a request.
        Ratio("tpot_mean_s", [(Series("llamacpp:tokens_predicted_seconds"), _PREDICTED)]),
        Rate("input_tokens_per_s", (_PROMPT,)),
        Rate("output_tokens_per_s", (_PREDICTED,)),
        Amount("num_running_requests", series("llamacpp:requests_processing")),
        Amount("num_waiting_requests", series("llamacpp:requests_deferred")),
        Ratio("spec_decode_acceptance_ratio", [(Series("llamacpp:spec_decode_num_accepted_tokens"), _DRAFTED)]),
        Ratio("num_spec_tokens", [(_DRAFTED, Series("llamacpp:spec_decode_num_drafts"))]),
        Level("kv_cache_usage_ratio", series("llamacpp:kv_cache_usage_ratio")),
    ),
    sources=("https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md",),
)
