"""Metric names of SGLang, from 0.4 to 0.5.23 (`--enable-metrics`)."""

import re

from app.domain.units import GIB
from app.importers.scrape_gauges import Amount, Level, SinceStart
from app.importers.scrape_map import Fact, Known, ScrapeMap
from app.importers.scrape_readings import Distribution, Rate, Ratio, series
from app.importers.scrape_window import Series

_FINISHED = Series("sglang:num_requests")
_EFFECTIVE = "sglang:prefill_effective_tokens"
_REALTIME = "sglang:realtime_tokens"
_PASSES = "sglang:cuda_graph_passes"

SGLANG = ScrapeMap(
    engine="sglang",
    pattern=re.compile(r"sglang[:_](?P<name>\w+)"),
    prefix="sglang:",
    finished=_FINISHED,
    engine_labels=("dp_rank",),
    rank_labels=("pp_rank", "tp_rank", "moe_ep_rank"),
    only_empty=("priority",),
    readings=(
        Distribution("ttft_{}_s", series("sglang:time_to_first_token_seconds")),
        Distribution("tpot_{}_s", series("sglang:request_time_per_output_token_seconds")),
        Distribution("itl_{}_s", series("sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds")),
        Distribution("e2e_{}_s", series("sglang:e2e_request_latency_seconds")),
        Distribution("queue_time_{}_s", series("sglang:queue_time_seconds", "sglang:queue_time_s")),
        Level("queue_time_mean_s", series("sglang:avg_request_queue_latency")),
        Distribution("prefill_time_{}_s", (Series("sglang:per_stage_req_latency_seconds", {"stage": ["prefill_forward"]}),)),
        Distribution("grammar_time_{}_s", series("sglang:grammar_compilation_time_seconds")),
        Distribution("kv_load_time_{}_s", series("sglang:load_back_duration_seconds")),
        Distribution("input_{}_tokens", series("sglang:prompt_tokens_histogram")),
        Distribution("output_{}_tokens", series("sglang:generation_tokens_histogram")),
        Rate("request_rps", (_FINISHED,)),
        Rate("input_tokens_per_s", (Series(_REALTIME, {"mode": ["prefill_compute", "prefill_cache"]}), Series("sglang:prompt_tokens"))),
        Rate("output_tokens_per_s", (Series(_REALTIME, {"mode": ["decode"]}), Series("sglang:generation_tokens"))),
        Amount("output_tokens_per_s", series("sglang:gen_throughput")),
        Ratio("failed_request_ratio", [(Series("sglang:num_aborted_requests"), _FINISHED)]),
        Ratio("structured_output_request_ratio", [(Series("sglang:num_so_requests"), _FINISHED)]),
        Amount("num_running_requests", series("sglang:num_running_reqs")),
        Amount("num_waiting_requests", series("sglang:num_queue_reqs")),
        Amount("num_deferred_requests", series("sglang:num_grammar_queue_reqs")),
        Level("kv_cache_usage_ratio", series("sglang:token_usage")),
        Rate("preemptions_per_s", series("sglang:num_retracted_requests")),
        Ratio("num_preemptions_per_request", [(Series("sglang:num_retracted_requests"), _FINISHED)]),
        Ratio(
            "prefix_cache_hit_ratio",
            [
                (Series(_EFFECTIVE, {"mode": ["device_hit", "host_hit", "storage_hit"]}), Series(_EFFECTIVE)),
                (
                    Series(_REALTIME, {"mode": ["prefill_cache"]}),
                    Series(_REALTIME, {"mode": ["prefill_cache", "prefill_compute"]}),
                ),
                (Series("sglang:cached_tokens"), Series("sglang:prompt_tokens")),
            ],
        ),
        Level("prefix_cache_hit_ratio", series("sglang:cache_hit_rate")),
        Ratio(
            "cuda_graph_step_ratio",
            [(Series(_PASSES, {"mode": ["decode_cuda_graph"]}), Series(_PASSES, {"mode": ["decode_cuda_graph", "decode_none"]}))],
        ),
        SinceStart("num_cuda_graph_steps", [Series(_PASSES, {"mode": ["decode_cuda_graph"]})]),
        Level("spec_decode_acceptance_ratio", series("sglang:spec_accept_rate"), is_positive=True),
        Level("num_spec_tokens", series("sglang:spec_num_draft_tokens"), is_positive=True),
        Level("num_kv_cache_tokens", series("sglang:max_total_num_tokens"), is_positive=True),
        Rate("num_engine_cpu_cores_used", series("sglang:scheduler_process_cpu_seconds")),
    ),
    facts=(
        Fact("kv_cache_tokens", Series("sglang:max_total_num_tokens")),
        Fact("max_model_len_tokens", Series("sglang:context_len")),
        Fact("block_size_tokens", Series("sglang:page_size")),
        Fact("num_blocks", Series("sglang:num_pages")),
        Fact("weights_bytes_per_gpu", Series("sglang:weight_memory_usage_gb"), factor=GIB),
        Fact("kv_cache_bytes_per_gpu", Series("sglang:kv_cache_memory_usage_gb"), factor=GIB),
    ),
    known=(Known("num_kv_cache_tokens", ("num_blocks", "block_size_tokens")),),
    sources=(
        "https://github.com/sgl-project/sglang/blob/v0.5.23/python/sglang/srt/observability/metrics_collector.py",
        "https://github.com/sgl-project/sglang/blob/v0.4.6/python/sglang/srt/metrics/collector.py",
    ),
)
