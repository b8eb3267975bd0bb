"""A plan with something of everything that an answer can hold."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from app.domain.plan import Plan
from app.domain.provenance import Versions

ANSWER: dict[str, Any] = {
    "summary": "5 replicas of 4 GPUs carry 100 requests/s.",
    "working": [
        {
            "name": "weights_bytes",
            "formula": "params x bytes",
            "substituted": "70e9 x 1",
            "value": 70_000_000_000,
            "unit": "bytes",
            "basis": "exact",
            "source": "https://example.org/model_card",
        },
        {
            "name": "replicas",
            "formula": "ceil(demand | per replica)",
            "substituted": "ceil(4.2)",
            "value": 5,
            "unit": "replicas",
            "basis": "exact",
            "source": "arithmetic",
        },
    ],
    "assumptions": [{"code": "kv_cache_default", "message": "KV cache in 16 bits <unless> said otherwise."}],
    "warnings": [],
    "versions": {"planner": "0.1.0", "catalog": "c-7"},
    "model": "llama-3.1-70b",
    "weights_bytes": 70_000_000_000,
    "utilization_ratio": 0.84,
    "tpot_s": 0.04,
    "fits": True,
    "limiting": None,
    "per_gpu": {"kv_cache_bytes": 2**34, "bytes_per_token": 327680},
    "constraints": [{"name": "throughput", "replicas": 5, "demand_tokens_per_s": 50000.0}, {"name": "slo", "replicas": 4}],
    "what_would_fit": [{"change": "tp 8", "deployment": {f"option_{index}": index for index in range(10)}, "then": [{"step": 1}]}],
    "load_test_concurrency": [1, 2, 4],
    "check_first": ["clock, power", "queue"],
    "gpus": [],
}
INPUTS: dict[str, Any] = {"model": "llama-3.1-70b", "deployment": {"tp": 4}, "workload": {"input_tokens": {"mean": 4000.0}}}


@pytest.fixture
def make_plan() -> Callable[..., Plan]:
    """A plan, changed where the test says."""

    def make(**changes: Any) -> Plan:
        fields: dict[str, Any] = {
            "id": UUID("6a5c0d4e-7a0f-4a9c-9f0e-1d6f7c1b2a33"),
            "revision": 3,
            "kind": "capacity",
            "name": "Chat, spring",
            "owner": "platform",
            "labels": ("prod", "eu"),
            "notes": "",
            "model": "llama-3.1-70b",
            "gpu": "h100-sxm-80gb",
            "summary": ANSWER["summary"],
            "versions": Versions(planner="0.1.0", catalog="c-7"),
            "created_at": datetime(2026, 3, 1, 12, 0, tzinfo=UTC),
            "updated_at": datetime(2026, 3, 2, 8, 30, tzinfo=UTC),
            "request": {"model": "llama-3.1-70b"},
            "inputs": INPUTS,
            "answer": ANSWER,
        }
        return Plan(**(fields | changes))

    return make
