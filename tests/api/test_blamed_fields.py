"""Where the service lays the blame: the place in the request that the caller has to change, in whichever form he describes a thing."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

CONFIG = {"model_type": "llama"}
SKETCH = {"params": 70_000_000_000}
LAYERS: dict[str, Any] = {"layer_groups": [{"num_layers": 1}], "hidden_size": 64, "vocab_size": 100}


def blame(client: TestClient, path: str, body: object) -> tuple[str, str, object]:
    """Location, pointer and value of the only fault that the service finds."""
    answer = client.post(path, json=body)
    assert answer.status_code == 422, answer.text
    (found,) = answer.json()["errors"]
    assert answer.json()["detail"].startswith(f"{found['pointer']}: ")
    return found["location"], found["pointer"], found["value"]


@pytest.mark.parametrize(
    ("model", "pointer", "value"),
    [
        ("", "", ""),
        (3, "", 3),
        (SKETCH | {"num_layers": 80}, "", None),
        ({"params": -1}, "/params", -1),
        (SKETCH | {"color": "red"}, "/color", "red"),
        ({"hf_config": 3}, "/hf_config", 3),
        ({"hf_config": CONFIG, "color": "red"}, "/color", "red"),
        ({"hf_config": CONFIG, "safetensors_index": 4}, "/safetensors_index", 4),
        (LAYERS | {"layer_groups": 3}, "/layer_groups", 3),
        (LAYERS | {"hidden_size": 0}, "/hidden_size", 0),
        (LAYERS | {"color": "red"}, "/color", "red"),
    ],
)
def test_a_fault_in_a_model_is_found_at_its_own_field(client: TestClient, model: object, pointer: str, value: object) -> None:
    assert blame(client, "/kv", {"model": model}) == ("body", f"/model{pointer}", value)


@pytest.mark.parametrize(
    ("gpu", "pointer", "value"),
    [
        ({"memory_bytes": 1, "color": "red"}, "/color", "red"),
        ({"memory_bytes": 1, "figures": 2}, "/figures", 2),
        ({"memory_bytes": 1, "peak_flops_per_s": {"bf17": 1}}, "/peak_flops_per_s/bf17", 1),
    ],
)
def test_a_fault_in_an_accelerator_is_found_at_its_own_field(client: TestClient, gpu: object, pointer: str, value: object) -> None:
    assert blame(client, "/memory", {"model": "qwen3-8b", "gpu": gpu}) == ("body", f"/gpu{pointer}", value)


@pytest.mark.parametrize(
    ("kind", "value"), [({"kind": "forecast"}, "forecast"), ({"kind": 3}, 3), ({}, None)], ids=["unknown", "number", "missing"]
)
def test_a_union_is_blamed_on_the_field_that_decides_it(client: TestClient, kind: dict[str, object], value: object) -> None:
    plan = {"name": "n", "owner": "o", "request": {"model": "qwen3-8b"}}
    assert blame(client, "/plans", plan | kind) == ("body", "/kind", value)


def test_a_text_or_a_truth_value_where_a_number_belongs_is_told_so(client: TestClient) -> None:
    for number in ("3", True):
        answer = client.post("/kv", json={"model": "qwen3-8b", "num_sequences": number})
        assert answer.json()["detail"] == "/num_sequences: Input should be a whole number"


@pytest.mark.parametrize(
    ("method", "path", "status", "pointer"),
    [
        ("GET", "/gpus/nobodys", 404, "/slug"),
        ("GET", "/models/nobodys", 404, "/name"),
        ("DELETE", "/gpus/nobodys", 404, "/slug"),
        ("DELETE", "/gpus/h100-sxm-80gb", 409, "/slug"),
    ],
)
def test_a_stored_thing_is_named_in_the_path(client: TestClient, method: str, path: str, status: int, pointer: str) -> None:
    answer = client.request(method, path, headers={"If-Match": "*"})
    assert answer.status_code == status
    assert [(found["location"], found["pointer"]) for found in answer.json()["errors"]] == [("path", pointer)]


def test_what_a_stored_plan_asks_for_is_not_in_the_body_of_a_recomputation(client: TestClient) -> None:
    gpu = {"slug": "house-gpu", "name": "House GPU", "memory_bytes": 2**36}
    assert client.post("/gpus", json=gpu).status_code == 201
    plan = {"kind": "memory", "name": "n", "owner": "o", "request": {"model": "qwen3-8b", "gpu": "house-gpu"}}
    path = client.post("/plans", json=plan).headers["location"]
    client.delete("/gpus/house-gpu", headers={"If-Match": "*"})
    answer = client.post(f"{path}/recompute")
    assert (answer.status_code, answer.json()["code"]) == (422, "unknown_name")
    assert [(found["location"], found["pointer"]) for found in answer.json()["errors"]] == [("request", "/request/gpu")]
