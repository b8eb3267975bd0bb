"""`POST /models/import`: a config.json becomes an own entry that calculations find by its names; refusals name the field."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
    "torch_dtype": "bfloat16",
}
NUM_PARAMS = 8_030_261_248
BODY: dict[str, Any] = {"config": CONFIG, "slug": "our-8b", "hf_id": "acme/Our-8B"}


def test_an_imported_model_is_an_own_entry(client: TestClient) -> None:
    answer = client.post("/models/import", json=BODY)
    assert answer.status_code == 201, answer.text
    assert answer.headers["Location"] == "/models/our-8b"
    stored = client.get("/models/ACME/our-8b")
    assert stored.json() == answer.json()
    assert stored.headers["ETag"] == answer.headers["ETag"]
    assert (answer.json()["origin"], answer.json()["slug"]) == ("own", "our-8b")
    entry = answer.json()["entry"]
    assert entry["num_params"] == NUM_PARAMS
    assert entry["layer_groups"][0]["num_layers"] == 32
    assert entry["native"]["weights_bytes"] == 2 * NUM_PARAMS


def test_calculations_find_it_at_once(client: TestClient) -> None:
    client.post("/models/import", json=BODY)
    answer = client.post("/kv", json={"model": "acme/our-8b", "context_tokens": 1000})
    assert answer.status_code == 200, answer.text
    assert answer.json()["bytes_per_token"] == 32 * 2 * 8 * 128 * 2


def test_without_saving_the_model_is_only_returned(client: TestClient) -> None:
    answer = client.post("/models/import", json=BODY | {"save": False})
    assert answer.status_code == 200, answer.text
    assert (answer.json()["slug"], answer.json()["num_params"]) == ("our-8b", NUM_PARAMS)
    assert "Location" not in answer.headers
    assert client.get("/models/our-8b").status_code == 404


def test_what_was_returned_can_be_posted_as_a_model(client: TestClient) -> None:
    model = client.post("/models/import", json=BODY | {"save": False}).json()
    answer = client.post("/models", json=model)
    assert answer.status_code == 201, answer.text
    assert answer.json()["entry"] == model


def test_the_index_gives_the_size_of_the_checkpoint(client: TestClient) -> None:
    index = {"metadata": {"total_size": 16_060_522_496, "total_parameters": NUM_PARAMS}, "weight_map": {}}
    entry = client.post("/models/import", json=BODY | {"safetensors_index": index}).json()["entry"]
    assert entry["native"]["weights_bytes"] == 16_060_522_496
    assert entry["sources"] == ["config.json", "model.safetensors.index.json"]


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        ({"config": CONFIG | {"num_key_value_heads": 5}}, "/config/num_key_value_heads", "invalid_input"),
        ({"config": CONFIG | {"memory_layers": 4}}, "/config/memory_layers", "unsupported_config"),
        ({"config": CONFIG | {"model_type": "hyena"}}, "/config/model_type", "unsupported_config"),
        ({"safetensors_index": {"metadata": {"total_size": 10}}}, "/safetensors_index/metadata/total_size", "invalid_input"),
    ],
)
def test_a_refusal_names_the_field_in_the_request(client: TestClient, change: dict[str, Any], pointer: str, code: str) -> None:
    answer = client.post("/models/import", json=BODY | change)
    assert answer.status_code == 422, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert problem["code"] == code
    assert [error["pointer"] for error in problem["errors"]] == [pointer]
    assert client.get("/models/our-8b").status_code == 404


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"slug": "llama-3.1-8b"}, "/slug"),
        ({"hf_id": "meta-llama/llama-3.1-8b"}, "/hf_id"),
    ],
)
def test_no_bundled_name_is_taken(client: TestClient, change: dict[str, str], pointer: str) -> None:
    answer = client.post("/models/import", json=BODY | change)
    assert answer.status_code == 409, answer.text
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]


def test_a_second_import_of_the_same_name_is_refused(client: TestClient) -> None:
    assert client.post("/models/import", json=BODY).status_code == 201
    assert client.post("/models/import", json=BODY).status_code == 409


@pytest.mark.parametrize(
    "body", [{"slug": "x"}, {"config": CONFIG}, BODY | {"config": "text"}, BODY | {"slug": "Not A Slug"}, BODY | {"x": 1}]
)
def test_a_malformed_request_is_refused(client: TestClient, body: dict[str, Any]) -> None:
    assert client.post("/models/import", json=body).status_code == 422


def test_a_calculation_takes_the_configuration_in_place(client: TestClient) -> None:
    answer = client.post("/kv", json={"model": {"hf_config": CONFIG}, "context_tokens": 1000})
    assert answer.status_code == 200, answer.text
    assert answer.json()["bytes_per_token"] == 32 * 2 * 8 * 128 * 2


def test_a_calculation_names_the_field_of_the_configuration(client: TestClient) -> None:
    answer = client.post("/kv", json={"model": {"hf_config": CONFIG | {"head_dim": 0}}, "context_tokens": 1000})
    assert answer.status_code == 422, answer.text
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/model/hf_config/head_dim"]
