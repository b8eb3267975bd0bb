"""Metric names of TensorRT-LLM: `trtllm-serve` (`/prometheus/metrics`) and its Triton backend."""

import re

from app.importers.scrape_gauges import Amount, Level
from app.importers.scrape_map import Fact, Known, ScrapeMap
from app.importers.scrape_readings import Distribution, Occupancy, Rate, Ratio, series
from app.importers.scrape_window import Series

_FINISHED = Series("trtllm_request_success")
_REUSED, _MISSED = Series("trtllm_kv_cache_reused_blocks"), Series("trtllm_kv_cache_missed_blocks")
_KV_SIZE = (Known("num_kv_cache_tokens", ("num_blocks", "block_size_tokens")),)

TRTLLM_SERVE = ScrapeMap(
    engine="tensorrt-llm",
    pattern=re.compile(r"trtllm[:_](?P<name>\w+)"),
    prefix="trtllm_",
    finished=_FINISHED,
    readings=(
        Distribution("ttft_{}_s", series("trtllm_time_to_first_token_seconds")),
        Distribution("tpot_{}_s", series("trtllm_time_per_output_token_seconds")),
        Distribution("e2e_{}_s", series("trtllm_e2e_request_latency_seconds")),
        Distribution("queue_time_{}_s", series("trtllm_request_queue_time_seconds")),
        Distribution("prefill_time_{}_s", series("trtllm_request_prefill_time_seconds")),
        Rate("request_rps", (_FINISHED, Series("trtllm_num_requests_completed"))),
        Rate("input_tokens_per_s", series("trtllm_prompt_tokens")),
        Rate("output_tokens_per_s", series("trtllm_generation_tokens")),
        Ratio("input_mean_tokens", [(Series("trtllm_prompt_tokens"), _FINISHED)]),
        Ratio("output_mean_tokens", [(Series("trtllm_generation_tokens"), _FINISHED)]),
        Occupancy("num_running_requests", series("trtllm_request_inference_time_seconds")),
        Amount("num_running_requests", series("trtllm_num_requests_running")),
        Amount("num_waiting_requests", series("trtllm_num_requests_waiting")),
        Amount("num_deferred_requests", series("trtllm_num_paused_requests")),
        Level("max_num_seqs", series("trtllm_max_batch_size_runtime", "trtllm_max_num_active_requests"), is_positive=True),
        Level("max_num_batched_tokens", series("trtllm_max_num_tokens_runtime"), is_positive=True),
        Level("kv_cache_usage_ratio", series("trtllm_kv_cache_utilization")),
        Ratio("prefix_cache_hit_ratio", [(Series("trtllm_prompt_cached_tokens"), Series("trtllm_prompt_tokens"))]),
        Level("prefix_cache_hit_ratio", series("trtllm_kv_cache_hit_rate")),
        Ratio(
            "spec_decode_acceptance_ratio",
            [
                (Series("trtllm_spec_decode_num_accepted_tokens"), Series("trtllm_spec_decode_num_draft_tokens")),
                (Series("trtllm_spec_decode_accepted_tokens"), Series("trtllm_spec_decode_drafted_tokens")),
            ],
        ),
    ),
    facts=(
        Fact("num_blocks", Series("trtllm_kv_cache_max_blocks")),
        Fact("block_size_tokens", Series("trtllm_kv_cache_tokens_per_block")),
        Fact("max_num_seqs", Series("trtllm_max_batch_size_runtime")),
        Fact("max_num_batched_tokens", Series("trtllm_max_num_tokens_runtime")),
        Fact("quantization", Series("trtllm_model_config_info"), "quantization", is_text=True),
        Fact("tp", Series("trtllm_parallel_config_info"), "tp_size"),
        Fact("pp", Series("trtllm_parallel_config_info"), "pp_size"),
    ),
    known=_KV_SIZE,
    sources=("https://github.com/NVIDIA/TensorRT-LLM/blob/main/tensorrt_llm/metrics/collector.py",),
)

_REQUESTS, _BLOCKS, _BATCHER = "nv_trt_llm_request_metrics", "nv_trt_llm_kv_cache_block_metrics", "nv_trt_llm_inflight_batcher_metrics"
_SUCCESS, _FAILURE = Series("nv_inference_request_success"), Series("nv_inference_request_failure")
_MICROSECONDS = 1e-6


def _requests(kind: str) -> tuple[Series]:
    return (Series(_REQUESTS, {"request_type": [kind]}),)


def _blocks(kind: str) -> Series:
    return Series(_BLOCKS, {"kv_cache_block_type": [kind]})


TRITON = ScrapeMap(
    engine="tensorrt-llm",
    pattern=re.compile(r"nv_(?P<name>(?:trt_llm|inference)_\w+)"),
    prefix="nv_",
    finished=_SUCCESS,
    readings=(
        Rate("request_rps", (_SUCCESS,)),
        Ratio("e2e_mean_s", [(Series("nv_inference_request_duration_us"), _SUCCESS)], factor=_MICROSECONDS),
        # Triton's own queue, in front of the one of the batcher.
        Ratio("preprocess_time_mean_s", [(Series("nv_inference_queue_duration_us"), _SUCCESS)], factor=_MICROSECONDS),
        Amount("num_running_requests", _requests("scheduled")),
        Amount("num_waiting_requests", _requests("waiting")),
        Level("max_num_seqs", _requests("max"), is_positive=True),
        Level("kv_cache_usage_ratio", (_blocks("fraction"),)),
    ),
    facts=(Fact("num_blocks", _blocks("max")), Fact("block_size_tokens", _blocks("tokens_per"))),
    known=_KV_SIZE,
    sources=(
        "https://github.com/triton-inference-server/tensorrtllm_backend/blob/v0.18.2/README.md#triton-metrics",
        "https://github.com/triton-inference-server/server/blob/r24.04/docs/user_guide/metrics.md",
    ),
)
