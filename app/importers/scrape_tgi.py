"""Metric names of Text Generation Inference."""

import re

from app.importers.scrape_gauges import Amount
from app.importers.scrape_map import Fact, ScrapeMap
from app.importers.scrape_readings import Distribution, Mean, Occupancy, Rate, Ratio, series
from app.importers.scrape_window import Series

_FINISHED = Series("tgi_request_success")
_RECEIVED = Series("tgi_request_count")
_STEP = "tgi_batch_inference_duration"

TGI = ScrapeMap(
    engine="tgi",
    pattern=re.compile(r"tgi_(?P<name>\w+)"),
    prefix="tgi_",
    finished=_FINISHED,
    readings=(
        # There is no TTFT, and the mean time per token holds the prefill too (inference time / tokens): neither is read.
        # A decode step gives every running request one token: its duration is the time between two tokens.
        Distribution("itl_{}_s", (Series(_STEP, {"method": ["decode"]}),)),
        Mean("step_time_mean_s", (Series(_STEP),)),
        Distribution("e2e_{}_s", series("tgi_request_duration")),
        Distribution("queue_time_{}_s", series("tgi_request_queue_duration")),
        Distribution("prefill_time_{}_s", (Series(_STEP, {"method": ["prefill"]}),)),
        Distribution("preprocess_time_{}_s", series("tgi_request_validation_duration")),
        Distribution("input_{}_tokens", series("tgi_request_input_length")),
        Distribution("output_{}_tokens", series("tgi_request_generated_tokens")),
        Rate("request_rps", (_FINISHED,)),
        Rate("offered_rps", (_RECEIVED,)),
        Rate("input_tokens_per_s", series("tgi_request_input_length_sum")),
        Rate("output_tokens_per_s", series("tgi_request_generated_tokens_sum")),
        Ratio("failed_request_ratio", [(Series("tgi_request_failure"), _RECEIVED)]),
        Occupancy("num_running_requests", series("tgi_request_inference_duration")),
        Amount("num_running_requests", series("tgi_batch_current_size")),
        Amount("num_waiting_requests", series("tgi_queue_size")),
    ),
    facts=(Fact("kv_cache_tokens", Series("tgi_batch_max_total_tokens")),),
    sources=(
        "https://github.com/huggingface/text-generation-inference/blob/v3.3.4/docs/source/reference/metrics.md",
        "https://github.com/huggingface/text-generation-inference/blob/v3.3.4/router/src/server.rs",
    ),
)
