"""What each start-up log of this folder prints, read by hand: GiB where a size is a decimal number."""

from pathlib import Path

from app.domain.units import GIB, MIB

LOGS = Path(__file__).parent / "start_up_logs"
FIGURES: dict[str, dict[str, object]] = {
    "vllm-0.7.3-qwen2.5-14b-a100-40gb": {
        "engine": "vllm",
        "engine_version": "0.7.3",
        "memory_fraction_ratio": 0.8,
        "memory_bytes": 39.38,
        "weights_bytes_per_gpu": 27.57,
        "activation_bytes": 1.49,
        "non_torch_bytes": 0.11,
        "kv_cache_bytes_per_gpu": 2.33,
        "num_blocks": 796,
        "kv_cache_tokens": 12736,
        "max_concurrency_at_max_len_ratio": 1.55,
    },
    "vllm-0.9.2-deepseek-v2-lite-pp2-tp2-l4": {
        "kv_cache_bytes_per_gpu": 11.33,
        "largest_kv_cache_bytes_per_gpu": 12.13,
        "kv_cache_tokens": 807_792,
        "max_model_len_tokens": 1024,
    },
    "vllm-0.10.0-qwen3-32b-tp8-h100": {
        "tp": 8,
        "kv_cache": "fp8",
        "max_num_batched_tokens": 8192,
        "weights_bytes_per_gpu": 7.6871,
        "kv_cache_bytes_per_gpu": 55.62,
        "largest_kv_cache_bytes_per_gpu": 56.08,
        "kv_cache_tokens": 3_644_816,
        "max_concurrency_at_max_len_ratio": 111.23,
    },
    "vllm-0.10.2-qwen3-30b-a3b-h100": {
        "memory_fraction_ratio": 0.9,
        "memory_bytes": 79.18,
        "free_at_start_bytes": 78.57,
        "budget_bytes": 71.26,
        "activation_bytes": 5.58,
        "cuda_graph_bytes": 0.69,
        "kv_cache_bytes_per_gpu": 9_318_930_329 / GIB,
        "kv_cache_tokens": 94_784,
        "num_blocks": 5924,
    },
    "vllm-0.10.2-llava-awq-two-starts": {"quantization": "awq_marlin", "kv_cache_tokens": 18_400, "free_at_start_bytes": 14.66},
    "vllm-0.19.0-qwen3.5-27b-tp4-rtx-3090": {
        "tp": 4,
        "block_size_tokens": 784,
        "enforce_eager": True,
        "prefix_caching": False,
        "kv_cache_bytes_per_gpu": 7.47,
        "kv_cache_tokens": 122_304,
    },
    "vllm-0.20.0-gemma-4-26b-a4b-gb10": {
        "estimated_cuda_graph_bytes": 1.69,
        "graphs_in_budget": True,
        "cuda_graph_bytes": 0.66,
        "kv_cache_tokens": 177_440,
    },
    "vllm-0.25.1-gemma-4-26b-a4b-nvfp4-gb10": {"max_num_batched_tokens": 2496, "max_num_seqs": 32, "kv_cache_tokens": 3_912_140},
    "vllm-0.25.1-qwen3.8-27b-nvfp4-gb10": {
        "model": "unsloth/Qwen3.8-27B-NVFP4",
        "quantization": "compressed-tensors",
        "num_draft_tokens": 3,
        "block_size_tokens": 1600,
        "kv_cache_bytes_per_gpu": 76.4,
        "max_concurrency_at_max_len_ratio": 8.36,
    },
    "vllm-0.26.1-qwen3-coder-30b-a100": {"consumed_bytes": 57.26, "activation_bytes": 0.23, "kv_cache_bytes_per_gpu": 13.84},
    "sglang-qwen2.5-1.5b-gb10": {
        "engine": "sglang",
        "memory_fraction_ratio": 0.4,
        "memory_bytes": 122_501 * MIB / GIB,
        "free_at_start_bytes": 112.26,
        "weights_bytes_per_gpu": 3.29,
        "cuda_graph_bytes": 2.68 + 0.50,
        "kv_cache_bytes_per_gpu": 2 * 20.78,
        "kv_cache_tokens": 1_556_049,
        "max_num_seqs": 4096,
        "max_model_len_tokens": 32_768,
    },
    "sglang-laguna-int4-draft-gb10": {
        "weights_bytes_per_gpu": 67.56 + 1.58,
        "cuda_graph_bytes": 5.24 + 0.60 + 0.45,
        "kv_cache_bytes_per_gpu": 28.93,
        "kv_cache_tokens": 185_897,
    },
    "tensorrt-llm-0.20.0-llama-3.1-8b-fp8-h100": {
        "engine": "tensorrt-llm",
        "engine_version": "0.20.0",
        "weights_bytes_per_gpu": 8.55,
        "activation_bytes": 1.05,
        "non_torch_bytes": 2.17 - 0.56,  # less the pool of the profile run
        "kv_cache_bytes_per_gpu": 61.18,
        "kv_cache_tokens": 1_002_304,
        "block_size_tokens": 32,
    },
    "llama.cpp-b7780-qwen2.5-7b-q8": {
        "engine": "llama.cpp",
        "engine_version": "7780",
        "quantization": "Q8_0",
        "kv_cache": "fp16",
        "weights_bytes_per_gpu": 7165.44 / 1024,
        "activation_bytes": 382.01 / 1024,
        "kv_cache_bytes_per_gpu": 1.75,
        "kv_cache_tokens": 32_768,
    },
    "llama.cpp-qwen3.5-35b-a3b-q8-two-gpus": {
        "engine_version": "b9469",  # by its format
        "pp": 2,
        "weights_bytes_per_gpu": 17_931.70 / 1024,
        "state_bytes": 134 / 1024,
        "activation_bytes": 637.07 / 1024,
        "kv_cache_bytes_per_gpu": 320 / 1024,
    },
}
"""What each log prints; sizes in GiB."""
FAILURES = {
    "vllm-0.19.0-qwen3.5-9b-tp4-graph-oom": ("graph_capture", None),
    "vllm-0.25.1-laguna-length-refused": ("max_model_len", 121_840),
    "tensorrt-llm-0.20.0-llama-3.1-8b-fp8-oom": ("graph_capture", None),
}
