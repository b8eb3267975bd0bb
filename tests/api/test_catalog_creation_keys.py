"""`Idempotency-Key` on what adds catalog entries: a creation that is sent again is answered again and adds nothing."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

GPU = {"slug": "house-gpu", "name": "House GPU", "memory_bytes": 2**36}
MODEL = {"slug": "house-model", "num_params": 10**9, "num_active_params": 10**9}
CONFIG = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 512,
}  # fmt: skip
IMPORT = {"slug": "house-import", "config": CONFIG}
KEY = {"Idempotency-Key": "once"}
CREATIONS = pytest.mark.parametrize(
    ("path", "body", "entry"),
    [("/gpus", GPU, "/gpus/house-gpu"), ("/models", MODEL, "/models/house-model"), ("/models/import", IMPORT, "/models/house-import")],
    ids=["gpus", "models", "import"],
)


@CREATIONS
def test_a_creation_that_is_sent_again_is_answered_again(client: TestClient, path: str, body: dict[str, Any], entry: str) -> None:
    first, again = client.post(path, json=body, headers=KEY), client.post(path, json=body, headers=KEY)
    assert (first.status_code, again.status_code) == (201, 201), again.text
    assert (again.json(), again.headers["etag"], again.headers["location"]) == (first.json(), first.headers["etag"], entry)
    assert [answer.headers.get("idempotency-replayed") for answer in (first, again)] == [None, "true"]
    assert client.get(entry).json() == first.json()


@CREATIONS
def test_without_a_key_or_with_another_the_name_is_taken(client: TestClient, path: str, body: dict[str, Any], entry: str) -> None:
    assert client.post(path, json=body, headers=KEY).status_code == 201
    for headers in ({}, {"Idempotency-Key": "another"}):
        answer = client.post(path, json=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (409, "already_exists")
    assert client.get(entry).status_code == 200


def test_a_key_belongs_to_one_body_and_one_path(client: TestClient) -> None:
    assert client.post("/gpus", json=GPU, headers=KEY).status_code == 201
    for path, body in (("/gpus", GPU | {"memory_bytes": 1}), ("/models", MODEL), ("/models/import", IMPORT)):
        answer = client.post(path, json=body, headers=KEY)
        assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_conflict")


def test_what_is_only_read_uses_no_key_up(client: TestClient) -> None:
    assert client.post("/models/import", json=IMPORT | {"save": False}, headers=KEY).status_code == 200
    assert client.post("/models/import", json=IMPORT, headers=KEY).status_code == 201
