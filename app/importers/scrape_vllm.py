"""Metric names of vLLM, from 0.4 (V0 engine) to 0.33."""

import re

from app.importers.scrape_gauges import Amount, Level
from app.importers.scrape_map import Fact, Known, ScrapeMap
from app.importers.scrape_readings import Distribution, Mean, Occupancy, Rate, Ratio, series
from app.importers.scrape_window import Series

_CONFIG = Series("vllm:cache_config_info")
_FINISHED = Series("vllm:request_success")

VLLM = ScrapeMap(
    engine="vllm",
    pattern=re.compile(r"(?:ray_)?vllm[:_](?P<name>\w+)"),  # Ray exports `ray_vllm_…`, exporters without colons `vllm_…`
    prefix="vllm:",
    finished=_FINISHED,
    engine_labels=("engine",),
    readings=(
        Distribution("ttft_{}_s", series("vllm:time_to_first_token_seconds")),
        Distribution("tpot_{}_s", series("vllm:request_time_per_output_token_seconds")),
        # The old name is of the time between two tokens as well, not of a request's mean.
        Distribution("itl_{}_s", series("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")),
        Distribution("e2e_{}_s", series("vllm:e2e_request_latency_seconds")),
        Distribution("queue_time_{}_s", series("vllm:request_queue_time_seconds", "vllm:time_in_queue_requests")),
        Distribution("prefill_time_{}_s", series("vllm:request_prefill_time_seconds")),
        Distribution("input_{}_tokens", series("vllm:request_prompt_tokens")),
        Distribution("output_{}_tokens", series("vllm:request_generation_tokens")),
        Rate("request_rps", (_FINISHED,)),
        Rate("input_tokens_per_s", series("vllm:prompt_tokens")),
        Rate("output_tokens_per_s", series("vllm:generation_tokens")),
        Amount("input_tokens_per_s", series("vllm:avg_prompt_throughput_toks_per_s")),
        Amount("output_tokens_per_s", series("vllm:avg_generation_throughput_toks_per_s")),
        Ratio("failed_request_ratio", [(Series(_FINISHED.name, {"finished_reason": ["abort", "error"]}), _FINISHED)]),
        Occupancy("num_running_requests", series("vllm:request_inference_time_seconds")),
        Amount("num_running_requests", series("vllm:num_requests_running")),
        Amount("num_waiting_requests", series("vllm:num_requests_waiting")),
        Amount("num_deferred_requests", (Series("vllm:num_requests_waiting_by_reason", {"reason": ["deferred"]}),)),
        Level("kv_cache_usage_ratio", series("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")),
        Mean("tokens_per_step", series("vllm:iteration_tokens_total", "vllm:iteration_tokens")),
        Rate("preemptions_per_s", series("vllm:num_preemptions")),
        Ratio("num_preemptions_per_request", [(Series("vllm:num_preemptions"), _FINISHED)]),
        Ratio(
            "prefix_cache_hit_ratio",
            [
                (Series("vllm:prefix_cache_hits"), Series("vllm:prefix_cache_queries")),
                (Series("vllm:gpu_prefix_cache_hits"), Series("vllm:gpu_prefix_cache_queries")),
            ],
        ),
        Level("prefix_cache_hit_ratio", series("vllm:gpu_prefix_cache_hit_rate")),
        Ratio(
            "external_prefix_cache_hit_ratio",
            [(Series("vllm:external_prefix_cache_hits"), Series("vllm:external_prefix_cache_queries"))],
        ),
        Ratio(
            "spec_decode_acceptance_ratio",
            [(Series("vllm:spec_decode_num_accepted_tokens"), Series("vllm:spec_decode_num_draft_tokens"))],
        ),
        Level("spec_decode_acceptance_ratio", series("vllm:spec_decode_draft_acceptance_rate"), is_positive=True),
        Ratio("num_spec_tokens", [(Series("vllm:spec_decode_num_draft_tokens"), Series("vllm:spec_decode_num_drafts"))]),
        # The process that answers /metrics is the API server: the engine runs in others since V1.
        Rate("num_frontend_cpu_cores_used", series("process_cpu_seconds"), is_per_series=True),
    ),
    facts=(
        Fact("kv_cache_tokens", _CONFIG, "kv_cache_size_tokens"),
        Fact("num_blocks", _CONFIG, "num_gpu_blocks"),
        Fact("block_size_tokens", _CONFIG, "block_size"),
        Fact("max_concurrency_at_max_len_ratio", _CONFIG, "kv_cache_max_concurrency"),
        Fact("memory_fraction_ratio", _CONFIG, "gpu_memory_utilization"),
        Fact("kv_cache", _CONFIG, "cache_dtype", is_text=True),
        Fact("prefix_caching", _CONFIG, "enable_prefix_caching", is_text=True),
    ),
    known=(
        Known("num_kv_cache_tokens", ("kv_cache_tokens",)),
        Known(
            "num_kv_cache_tokens",
            ("num_blocks", "block_size_tokens"),
            "blocks x tokens of a block, which is too much for models with several kinds of attention",
        ),
    ),
    sources=(
        "https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/v1/metrics/loggers.py",
        "https://github.com/vllm-project/vllm/blob/v0.6.3/vllm/engine/metrics.py",
    ),
)
