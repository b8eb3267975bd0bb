"""Every default that an answer rests on is named in it, and none that the caller gave."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

REPLICA: dict[str, Any] = {"model": "llama-3.1-70b", "gpu": "h100-sxm-80gb"}
DEPLOYMENT = {"tp": 4, "pp": 1, "dp": 1, "ep": 1, "engine": "generic", "weights": "fp8", "kv_cache": "bf16", "max_model_len_tokens": 8192}
MEMORY = {"memory_fraction_ratio": 0.9, "reserve_bytes_per_gpu": 10**9}
TRAFFIC = {"peak_rps": 10, "input_tokens": 1000, "output_tokens": 100}
FACTORS = {"burst_ratio": 1, "prefix_hit_ratio": 0, "token_growth_ratio": 1}
LAYOUT = {"tp", "pp", "dp", "ep", "engine", "weights", "max_model_len_tokens", "reserve"}
CASES: dict[str, tuple[dict[str, Any], set[str], dict[str, Any]]] = {
    "/memory": (REPLICA, LAYOUT, {"deployment": DEPLOYMENT | MEMORY}),
    "/kv": (
        {"model": "llama-3.1-70b"},
        {"tp", "context_tokens", "num_sequences", "block_size_tokens"},
        {"tp": 1, "num_sequences": 1, "block_size_tokens": 16, "kv_cache": "bf16", "context_tokens": 8},
    ),
    "/concurrency": (
        REPLICA | {"workload": TRAFFIC},
        LAYOUT | {"safety_ratio", "token_growth_ratio"},
        {"deployment": DEPLOYMENT | MEMORY, "safety_ratio": 0.7, "workload": TRAFFIC | FACTORS},
    ),
    "/performance": (
        REPLICA | {"input_tokens": 1000, "output_tokens": 100, "concurrency": 8},
        LAYOUT | {"prefix_hit_ratio", "batching", "num_requests"},
        {"deployment": DEPLOYMENT | MEMORY, "prefix_hit_ratio": 0, "batching": "continuous", "num_requests": 80},
    ),
    "/capacity": (
        REPLICA | {"deployment": {"tp": 4}, "workload": TRAFFIC},
        LAYOUT - {"tp"} | {"safety_ratio", "redundancy_ratio", "spare_replicas", "gpus_per_node", *FACTORS},
        {
            "deployment": DEPLOYMENT | MEMORY, "workload": TRAFFIC | FACTORS, "safety_ratio": 0.7, "redundancy_ratio": 1.25,
            "spare_replicas": 0, "gpus_per_node": 8, "usd_per_gpu_hour": 2,
        },
    ),
    "/cost": (
        {"replica_usd_per_hour": 20, "workload": TRAFFIC},
        {"replicas", "success_ratio", "requests_per_task", "attempts_per_task", "token_growth_ratio"},
        {"replicas": 1, "success_ratio": 1, "requests_per_task": 1, "attempts_per_task": 1, "workload": TRAFFIC | FACTORS},
    ),
}  # fmt: skip


def defaults(client: TestClient, path: str, body: dict[str, Any]) -> set[str]:
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return {code.removeprefix("default_") for note in answer.json()["assumptions"] if (code := note["code"]).startswith("default_")}


@pytest.mark.parametrize("path", CASES)
def test_a_default_that_is_used_is_named_and_what_was_given_is_not(client: TestClient, path: str) -> None:
    short, named, spelled_out = CASES[path]
    assert defaults(client, path, short) == named
    assert defaults(client, path, short | spelled_out) == set()


def test_nothing_is_found_in_a_prefix_cache_that_is_off(client: TestClient) -> None:
    workload = TRAFFIC | {"prefix_hit_ratio": 0.5}
    body = REPLICA | {"deployment": {"tp": 4, "prefix_caching": False}, "workload": workload}
    answer = client.post("/capacity", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")
    (found,) = answer.json()["errors"]
    assert (found["pointer"], found["value"]) == ("/workload/prefix_hit_ratio", 0.5)
    assert client.post("/capacity", json=body | {"workload": TRAFFIC}).status_code == 200


def test_a_shared_prefix_names_its_defaults_and_a_reserve_needs_a_cache(client: TestClient) -> None:
    body = REPLICA | {"deployment": DEPLOYMENT | MEMORY, "safety_ratio": 0.7}
    short = body | {"workload": TRAFFIC | {"token_growth_ratio": 1, "shared_prefix_tokens": 800}}
    assert defaults(client, "/concurrency", short) == {"prefix_cache_reserve_ratio", "prefix_hit_ratio"}
    whole = short["workload"] | {"prefix_hit_ratio": 1}
    assert defaults(client, "/concurrency", short | {"workload": whole, "prefix_cache_reserve_ratio": 0}) == set()
    answer = client.post("/concurrency", json=short).json()
    use = answer["prefix_cache"]
    assert use["shared_prefix_tokens"] == 800
    assert answer["max_concurrency"] == use["max_concurrency"] > use["unshared_max_concurrency"]
    off = {"deployment": DEPLOYMENT | MEMORY | {"prefix_caching": False}}
    unshared = client.post("/concurrency", json=short | off).json()
    assert unshared["prefix_cache"] is None
    assert unshared["max_concurrency"] == use["unshared_max_concurrency"]
    assert "prefix_not_shared" in {note["code"] for note in unshared["assumptions"]}
    for refused in (off | {"prefix_cache_reserve_ratio": 0.1}, {"prefix_cache_reserve_ratio": 0.95}):
        answered = client.post("/concurrency", json=short | refused)
        assert answered.status_code == 422
        (found,) = answered.json()["errors"]
        assert (found["pointer"], found["value"]) == ("/prefix_cache_reserve_ratio", refused["prefix_cache_reserve_ratio"])


@pytest.mark.parametrize(
    ("workload", "served_by", "is_named"),
    [
        (TRAFFIC | {"input_tokens": {"mean": 1000, "p95": 3000}}, "vllm", True),
        (TRAFFIC | {"input_tokens": 1000, "output_tokens": 100}, "vllm", False),
        (TRAFFIC | {"input_tokens": {"mean": 1000, "p95": 3000}}, "generic", False),
    ],
    ids=["tail", "constant", "not modelled"],
)
def test_the_shape_of_a_tail_is_named(client: TestClient, workload: dict[str, Any], served_by: str, is_named: bool) -> None:
    answer = client.post("/capacity", json=REPLICA | {"deployment": {"tp": 4, "engine": served_by}, "workload": workload})
    assert answer.status_code == 200, answer.text
    assert ("lengths_lognormal" in {note["code"] for note in answer.json()["assumptions"]}) == is_named
