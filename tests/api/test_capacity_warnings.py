"""What `/capacity` warns of when its replica count cannot be taken at its word."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

TRAFFIC = {"peak_rps": 10, "input_tokens": 2000, "output_tokens": 300}
MEASURED = {"output_tokens_per_s": 3000, "input_tokens_per_s": 20_000}
REPLICA = {"model": "llama-3.1-70b", "gpu": "h100-sxm-80gb"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"not_sized"}),
        ({"model": "qwen3-8b"}, {"not_sized"}),
        ({"gpu": "h100-sxm-80gb"}, {"not_sized"}),
        ({"measured": MEASURED}, set()),
        (REPLICA | {"deployment": {"tp": 4}}, set()),
        (REPLICA, {"does_not_fit", "kv_cache_unattainable"}),
        (REPLICA | {"deployment": {"tp": 2, "memory_fraction_ratio": 0.8}}, {"loads_only", "kv_cache_unattainable"}),
    ],
    ids=["traffic alone", "model alone", "gpu alone", "measured", "replica", "replica that does not fit", "replica without a cache"],
)
def test_a_count_that_holds_nothing_up_is_warned_of(client: TestClient, given: dict[str, Any], expected: set[str]) -> None:
    answer = client.post("/capacity", json={"workload": TRAFFIC, **given})
    assert answer.status_code == 200, answer.text
    found = {note["code"] for note in answer.json()["warnings"]}
    assert found & {"not_sized", "does_not_fit", "loads_only", "kv_cache_unattainable"} == expected
    sized = [answer.json()[name] is not None for name in ("replicas", "gpus", "nodes", "utilization_ratio")]
    assert sized == [not expected] * 4  # a count that says nothing is not given
    assert not expected or answer.json()["cost"] is None
