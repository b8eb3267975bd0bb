"""Metric names of the Kubernetes inference gateway's endpoint picker, which llm-d runs in front of its engines."""

import re

from app.importers.scrape_map import ScrapeMap
from app.importers.scrape_readings import Distribution, Rate, Ratio, series
from app.importers.scrape_window import Series

_RECEIVED = Series("inference_objective_request")

GATEWAY = ScrapeMap(
    engine="inference-gateway",
    pattern=re.compile(r"inference_(?:objective|model)_(?P<name>\w+)"),  # `inference_model_…` before 1.0
    prefix="inference_objective_",
    is_companion=True,
    readings=(
        # It stands between client and engine: what it measures is seen from outside of the engine.
        Distribution("client_e2e_{}_s", series("inference_objective_request_duration_seconds")),
        Distribution("input_{}_tokens", series("inference_objective_input_tokens")),
        Distribution("output_{}_tokens", series("inference_objective_output_tokens")),
        Rate("offered_rps", (_RECEIVED,)),
        Ratio("failed_request_ratio", [(Series("inference_objective_request_error"), _RECEIVED)]),
    ),
    sources=("https://github.com/kubernetes-sigs/gateway-api-inference-extension/blob/main/site-src/guides/metrics-and-observability.md",),
)
