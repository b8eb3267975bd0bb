"""Examples of simulations for the OpenAPI document, and the mix of classes that other examples share."""

from typing import Any

Example = dict[str, Any]

MIXED_WORKLOAD: Example = {
    "peak_rps": 10,
    "classes": [
        {"share_ratio": 0.8, "input_tokens": 1000, "output_tokens": 200},
        {"share_ratio": 0.15, "input_tokens": 8000, "output_tokens": 500},
        {"share_ratio": 0.05, "input_tokens": 32000, "output_tokens": 1000},
    ],
}
LOSS: Example = {
    "model": "llama-3.1-70b",
    "gpu": "h100-sxm-80gb",
    "deployment": {"weights": "fp8", "kv_cache": "fp8", "tp": 4, "engine": "vllm"},
    "workload": MIXED_WORKLOAD,
    "replicas": 6,
    "faults": [{"kind": "replica_loss", "at_s": 40, "duration_s": 30}],
    "slo": {"ttft_p95_s": 2.5, "tpot_p99_s": 0.05},
    "duration_s": 120,
}
RATES: Example = {
    "base": {
        "model": "llama-3.1-8b",
        "gpu": "h100-sxm-80gb",
        "workload": {"peak_rps": 8, "input_tokens": 1000, "output_tokens": 200},
        "slo": {"ttft_p99_s": 1, "tpot_p99_s": 0.03},
        "duration_s": 120,
    },
    "peak_rps": [4, 8, 12, 16, 20],
    "deployments": [
        {"name": "usual", "deployment": {"engine": "vllm"}},
        {"name": "small batches", "deployment": {"engine": "vllm", "max_num_seqs": 64}},
    ],
}
