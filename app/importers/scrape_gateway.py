"""Metric names of what stands between clients and engines: latencies as they are seen from outside of the engine.

The endpoint picker of the Kubernetes inference gateway, which llm-d runs, and the HTTP frontend of Dynamo.
"""

import re

from app.importers.scrape_gauges import Amount, Level
from app.importers.scrape_map import Fact, Known, ScrapeMap
from app.importers.scrape_readings import Distribution, Rate, Ratio, series
from app.importers.scrape_window import Series

_RECEIVED = Series("inference_objective_request")

GATEWAY = ScrapeMap(
    engine="inference-gateway",
    pattern=re.compile(r"inference_(?:objective|model)_(?P<name>\w+)"),  # `inference_model_…` before 1.0
    prefix="inference_objective_",
    is_companion=True,
    readings=(
        Distribution("client_e2e_{}_s", series("inference_objective_request_duration_seconds")),
        Distribution("input_{}_tokens", series("inference_objective_input_tokens")),
        Distribution("output_{}_tokens", series("inference_objective_output_tokens")),
        Rate("offered_rps", (_RECEIVED,)),
        Ratio("failed_request_ratio", [(Series("inference_objective_request_error"), _RECEIVED)]),
    ),
    sources=("https://github.com/kubernetes-sigs/gateway-api-inference-extension/blob/main/site-src/guides/metrics-and-observability.md",),
)

_WORKER = "dynamo_frontend_model"

DYNAMO_FRONTEND = ScrapeMap(
    engine="dynamo-frontend",
    pattern=re.compile(r"dynamo_frontend_(?P<name>\w+)"),
    prefix="dynamo_frontend_",
    is_companion=True,
    readings=(
        Distribution("client_ttft_{}_s", series("dynamo_frontend_time_to_first_token_seconds")),
        Distribution("client_itl_{}_s", series("dynamo_frontend_inter_token_latency_seconds")),
        Distribution("client_e2e_{}_s", series("dynamo_frontend_request_duration_seconds")),
        Distribution("input_{}_tokens", series("dynamo_frontend_input_sequence_tokens")),
        Distribution("output_{}_tokens", series("dynamo_frontend_output_sequence_tokens")),
        Amount("num_concurrent_requests", series("dynamo_frontend_inflight_requests")),
        Level("max_num_seqs", series(f"{_WORKER}_max_num_seqs"), is_positive=True),
        Level("max_num_batched_tokens", series(f"{_WORKER}_max_num_batched_tokens"), is_positive=True),
    ),
    facts=(
        Fact("num_blocks", Series(f"{_WORKER}_total_kv_blocks")),
        Fact("block_size_tokens", Series(f"{_WORKER}_kv_cache_block_size")),
        Fact("max_model_len_tokens", Series(f"{_WORKER}_context_length")),
        Fact("max_num_seqs", Series(f"{_WORKER}_max_num_seqs")),
        Fact("max_num_batched_tokens", Series(f"{_WORKER}_max_num_batched_tokens")),
    ),
    known=(Known("num_kv_cache_tokens", ("num_blocks", "block_size_tokens")),),
    sources=("https://github.com/ai-dynamo/dynamo/blob/main/docs/observability/metrics.md",),
)
