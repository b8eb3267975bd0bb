"""Request examples of the OpenAPI document, by operation; a test sends each of them to the service."""

import json
from typing import Any

from app.api.simulation_examples import LOSS, RATES, Example

CHAT_WORKLOAD: Example = {"peak_rps": 100, "input_tokens": {"mean": 4000, "p95": 8000}, "output_tokens": {"mean": 500, "p95": 1000}}
LLAMA_FP8: Example = {"weights": "fp8", "kv_cache": "fp8", "tp": 4}
FOUR_H100: Example = {"model": "llama-3.1-70b", "gpu": "h100-sxm-80gb", "deployment": LLAMA_FP8}
INLINE_MODEL: Example = {"params": 70_000_000_000, "num_layers": 80, "num_attention_heads": 64, "num_kv_heads": 8, "head_dim": 128}
INLINE_GPU: Example = {"memory_bytes": 80_000_000_000, "memory_bandwidth_bytes_per_s": 3.35e12, "peak_flops_per_s": {"bf16": 989e12}}
OWN_GPU: Example = {
    "slug": "lab-accelerator-96gb",
    "name": "Lab accelerator 96 GB",
    "memory_bytes": 96_000_000_000,
    "memory_bandwidth_bytes_per_s": 4.0e12,
    "peak_flops_per_s": {"bf16": 800e12, "fp8": 1600e12},
    "sources": ["measured in the lab"],
}
OWN_MODEL: Example = {
    "slug": "house-7b",
    "hf_id": "example/house-7b",
    "num_params": 6_476_005_376,
    "num_active_params": 6_476_005_376,
    "hidden_size": 4096,
    "vocab_size": 32_000,
    "num_attention_heads": 32,
    "max_model_len_tokens": 32_768,
    "tie_word_embeddings": True,
    "layer_groups": [
        {
            "num_layers": 32,
            "mixer": {"kind": "attention", "num_heads": 32, "num_kv_heads": 8, "key_head_dim": 128, "value_head_dim": 128},
            "feed_forward": [{"kind": "dense", "intermediate_size": 12_288}],
            "num_norm_params": 8192,
        }
    ],
    "num_final_norm_params": 4096,
}
HF_CONFIG: Example = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 128_256,
    "max_position_embeddings": 131_072,
    "tie_word_embeddings": True,
}
PROFILE: Example = {
    "name": "chat",
    "owner": "platform",
    "thresholds": {"kv_near_full.kv_full": 0.98, "objective.tpot_s": 0.05},
    "slo": {"ttft_p95_s": 1},
}
DECODE_METRICS: Example = {
    "ttft_p95_s": 0.4,
    "tpot_p95_s": 0.09,
    "kv_cache_usage_ratio": 0.55,
    "num_running_requests": 240,
    "num_waiting_requests": 0,
}
START_UP_LOG = """\
INFO [core.py:76] Initializing a V1 LLM engine (v0.10.2) with config: model='Qwen/Qwen3-30B-A3B-Instruct-2507', max_seq_len=6144, \
tensor_parallel_size=1, pipeline_parallel_size=1, quantization=None, enforce_eager=False, kv_cache_dtype=auto
INFO [scheduler.py:222] Chunked prefill is enabled with max_num_batched_tokens=8192.
INFO [gpu_model_runner.py:2392] Model loading took 56.9342 GiB and 13.398206 seconds
INFO [gpu_worker.py:298] Available KV cache memory: 8.68 GiB
INFO [kv_cache_utils.py:864] GPU KV cache size: 94,784 tokens
INFO [kv_cache_utils.py:868] Maximum concurrency for 6,144 tokens per request: 15.43x
INFO [gpu_worker.py:391] Free memory on device (78.57/79.18 GiB) on startup. Desired GPU memory utilization is (0.9, 71.26 GiB). Actual \
usage is 56.93 GiB for weight, 5.58 GiB for peak activation, 0.07 GiB for non-torch memory, and 0.69 GiB for CUDAGraph memory.
"""
CAPACITY: Example = {
    **FOUR_H100,
    "workload": CHAT_WORKLOAD,
    "slo": {"ttft_p95_s": 2, "tpot_p95_s": 0.04},
    "measured": {"output_tokens_per_s": 12_500, "concurrency": 600},
}


def _plan(kind: str, name: str, request: Example, **details: Any) -> Example:
    return {"kind": kind, "name": name, "owner": "platform", **details, "request": request}


CAPACITY_PLAN = _plan(
    "capacity", "Chat, 100 requests/s", CAPACITY, labels=["chat", "2026-q4"], notes="Rates measured in the load test of the launch week."
)
PLANS: dict[str, tuple[str, Example]] = {
    "capacity": ("Replicas for a chat service", CAPACITY_PLAN),
    "memory": ("Does a replica fit", _plan("memory", "70B FP8 on four H100", FOUR_H100)),
    "kv": ("KV cache at 32k tokens", _plan("kv", "KV at 32k", {"model": "meta-llama/Llama-3.1-70B", "context_tokens": 32_768})),
    "concurrency": ("Requests of one replica", _plan("concurrency", "Chat, one replica", {**FOUR_H100, "tokens_per_sequence": 4500})),
    "performance": (
        "Speed at a concurrency",
        _plan("performance", "Chat, 64 at once", {**FOUR_H100, "input_tokens": 4000, "output_tokens": 500, "concurrency": 64}),
    ),
    "cost": ("Price of a million tokens", _plan("cost", "Chat, price", {"replica_usd_per_hour": 32, "output_tokens_per_s": 12_500})),
    "diagnose": ("Why it is slow", _plan("diagnose", "Slow tokens", {"metrics": DECODE_METRICS, "slo": {"tpot_p95_s": 0.04}})),
}

BENCH_SERVE: str = json.dumps(
    {
        "model_id": "meta-llama/Llama-3.1-8B-Instruct",
        "request_rate": "inf",
        "max_concurrency": 32,
        "completed": 320,
        "failed": 0,
        "duration": 37.6,
        "total_input_tokens": 327_680,
        "total_output_tokens": 81_920,
        "request_throughput": 8.51,
        "output_throughput": 2179,
        "total_token_throughput": 10_894,
        "mean_ttft_ms": 121,
        "mean_tpot_ms": 14.1,
    }
)
"""A result as `vllm bench serve --save-result` writes it, without what a calibration does not read; the figures are made up."""

SERVED_PLAN: Example = {
    "model": "llama-3.1-70b",
    "gpu": "h100-sxm-80gb",
    "deployment": {"tp": 4, "weights": "fp8", "engine": "vllm"},
    "workload": CHAT_WORKLOAD,
    "slo": {"ttft_p95_s": 2, "tpot_p95_s": 0.05},
}

EXAMPLES: dict[str, dict[str, tuple[str, Example]]] = {
    "memory": {
        "catalog": ("A catalog model in FP8 on four H100", FOUR_H100),
        "inline": (
            "A model and an accelerator by their figures, with the reserve stated",
            {"model": INLINE_MODEL, "gpu": INLINE_GPU, "deployment": {"weights": "bf16", "tp": 4, "reserve_bytes_per_gpu": 12_000_000_000}},
        ),
    },
    "reconcile": {
        "log": (
            "A vLLM log against the estimate",
            {"model": "Qwen/Qwen3-30B-A3B-Instruct-2507", "gpu": "h100-sxm-80gb", "log": START_UP_LOG},
        ),
        "figures": (
            "Printed figures by name",
            {
                "model": "llama-3.1-8b",
                "gpu": "a100-sxm-80gb",
                "deployment": {"engine": "vllm", "engine_version": "0.17.1", "memory_fraction_ratio": 0.9},
                "printed": {"kv_cache_bytes_per_gpu": 59_904_051_282, "kv_cache_tokens": 457_024},
            },
        ),
    },
    "kv": {
        "catalog": ("Several lengths", {"model": "llama-3.1-70b", "context_tokens": [4096, 32_768], "num_sequences": 32}),
        "hub": ("A Hugging Face id, cache in FP8", {"model": "meta-llama/Llama-3.1-70B", "kv_cache": "fp8", "context_tokens": 8192}),
    },
    "concurrency": {
        "length": ("By the length of a sequence", {**FOUR_H100, "tokens_per_sequence": 4500}),
        "workload": ("By the lengths of the traffic", {**FOUR_H100, "workload": CHAT_WORKLOAD}),
    },
    "performance": {
        "concurrency": ("64 requests at once", {**FOUR_H100, "input_tokens": 4000, "output_tokens": 500, "concurrency": 64}),
        "rate": (
            "Two requests per second on vLLM, half of the prompt in the prefix cache",
            {
                **FOUR_H100,
                "deployment": {**LLAMA_FP8, "engine": "vllm"},
                "input_tokens": 4000,
                "output_tokens": 500,
                "request_rps": 2,
                "prefix_hit_ratio": 0.5,
            },
        ),
    },
    "capacity": {
        "measured": ("100 requests per second, with figures measured on one replica", CAPACITY),
        "bounds": ("The same by bounds, as long as nothing is measured", {**FOUR_H100, "workload": CHAT_WORKLOAD}),
    },
    "recommend": {
        "chat": (
            "The cheapest FP8 deployment for a chat service",
            {
                "model": "llama-3.1-70b",
                "weights": ["fp8"],
                "workload": CHAT_WORKLOAD,
                "slo": {"ttft_p95_s": 2, "tpot_p95_s": 0.04},
            },
        ),
    },
    "cost": {
        "replica": ("A replica's price and its measured rate", {"replica_usd_per_hour": 32, "output_tokens_per_s": 12_500}),
        "task": (
            "A business task of several requests, with retries",
            {
                "replica_usd_per_hour": 32,
                "output_tokens_per_s": 12_500,
                "workload": CHAT_WORKLOAD,
                "success_ratio": 0.95,
                "requests_per_task": 3,
                "attempts_per_task": 1.2,
            },
        ),
        "plan": (
            "A fleet as /capacity sizes it",
            {
                "plan": SERVED_PLAN,
                "success_ratio": 0.95,
            },
        ),
        "split": (
            "Input and output priced by the time that each uses, on spot capacity",
            {
                "model": "llama-3.1-70b",
                "gpu": "h100-sxm-80gb",
                "price_kind": "spot",
                "deployment": {"tp": 4, "weights": "fp8", "engine": "vllm"},
                "workload": CHAT_WORKLOAD,
            },
        ),
    },
    "simulate": {"loss": ("A mix of three classes on six replicas, of which one restarts", LOSS)},
    "sweep": {"rates": ("The highest rate that a replica holds with two limits of its batch", RATES)},
    "monitoring": {"plan": ("Alerts and a dashboard for a chat service", {"plan": SERVED_PLAN})},
    "load_tests": {"plan": ("The load tests of a chat service", {"plan": SERVED_PLAN, "base_url": "http://replica-0:8000"})},
    "load_test_analysis": {
        "run": (
            "One run of vLLM bench serve against a plan",
            {
                "plan": {
                    "model": "llama-3.1-8b",
                    "gpu": "a100-sxm-80gb",
                    "deployment": {"engine": "vllm", "engine_version": "0.19.1"},
                    "workload": {"peak_rps": 20, "input_tokens": 1024, "output_tokens": 256},
                },
                "files": [BENCH_SERVE],
            },
        ),
    },
    "diagnose": {
        "decode": ("Slow tokens at a large batch", {"metrics": DECODE_METRICS, "slo": {"ttft_p95_s": 2, "tpot_p95_s": 0.04}}),
    },
    "create_diagnosis_profile": {"chat": ("Thresholds and objectives of a chat service", PROFILE)},
    "replace_diagnosis_profile": {"slower": ("The same with a longer time to the first token", PROFILE | {"slo": {"ttft_p95_s": 2}})},
    "create_plan": PLANS,
    "change_plan": {"reserve": ("The same with more in reserve", CAPACITY_PLAN | {"request": CAPACITY | {"redundancy_ratio": 1.5}})},
    "create_calibration": {
        "sweep": (
            "One run of vLLM bench serve",
            {
                "name": "8B on one A100",
                "owner": "platform",
                "model": "llama-3.1-8b",
                "gpu": "a100-sxm-80gb",
                "deployment": {"engine": "vllm", "engine_version": "0.19.1"},
                "files": [BENCH_SERVE],
            },
        ),
    },
    "create_gpu": {"own": ("An accelerator of your own", OWN_GPU)},
    "replace_gpu": {"own": ("The same with more memory", OWN_GPU | {"memory_bytes": 128_000_000_000})},
    "create_model": {"own": ("A model of your own by its layers", OWN_MODEL)},
    "import_model": {
        "stored": (
            "A config.json with the sizes of the checkpoint, stored as an own entry",
            {
                "slug": "house-1b",
                "hf_id": "example/house-1b",
                "config": HF_CONFIG,
                "safetensors_index": {"metadata": {"total_size": 2_471_645_608}},
            },
        ),
        "read": ("Only read, nothing stored", {"slug": "house-1b", "config": HF_CONFIG, "save": False}),
    },
    "replace_model": {"own": ("The same with a longer context", OWN_MODEL | {"max_model_len_tokens": 65_536})},
}
"""Operation: name of the example, its summary, its body."""
