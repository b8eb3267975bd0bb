"""`GET /gpus`: pages, filters, and tokens that belong to their list."""

import base64
import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.api.examples import OWN_GPU
from app.catalog.loader import load_bundled


def pages(client: TestClient, path: str, **query: Any) -> Iterator[dict[str, Any]]:
    token: str | None = None
    while True:
        answer = client.get(path, params=query if token is None else {**query, "page_token": token})
        assert answer.status_code == 200, answer.text
        yield answer.json()
        token = answer.json()["next_page_token"]
        if token is None:
            return


def slugs(client: TestClient, path: str, **query: Any) -> list[str]:
    return [item["slug"] for page in pages(client, path, **query) for item in page["items"]]


def test_pages_hold_every_accelerator_once(client: TestClient) -> None:
    sizes = [len(page["items"]) for page in pages(client, "/gpus", limit=25)]
    assert sizes == [25, 25, 13]
    listed = slugs(client, "/gpus", limit=25)
    assert listed == sorted(listed, key=str.encode)
    assert set(listed) == set(load_bundled().gpus)


def test_a_page_that_ends_with_the_list_has_no_next(client: TestClient) -> None:
    assert [len(page["items"]) for page in pages(client, "/gpus", limit=63)] == [63]


def test_the_default_page_has_fifty_entries(client: TestClient) -> None:
    assert len(client.get("/gpus").json()["items"]) == 50


def test_an_entry_added_between_two_pages_shifts_none(client: TestClient) -> None:
    first = client.get("/gpus", params={"limit": 25}).json()
    assert client.post("/gpus", json={**OWN_GPU, "slug": "a-first"}).status_code == 201
    second = client.get("/gpus", params={"limit": 25, "page_token": first["next_page_token"]}).json()
    assert {item["slug"] for item in first["items"]}.isdisjoint(item["slug"] for item in second["items"])


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"vendor": "amd", "min_memory_bytes": 200 * 10**9}, ["mi300x-192gb", "mi325x-256gb", "mi350x-288gb", "mi355x-288gb"]),
        ({"architecture": "hopper", "q": "H200"}, ["h200-nvl-141gb", "h200-sxm-141gb"]),
        ({"q": "dgx SPARK"}, ["gb10-dgx-spark-128gb"]),
        ({"origin": "own"}, []),
        ({"q": "%"}, []),
        ({"q": "_"}, []),
    ],
)
def test_filters(client: TestClient, query: dict[str, Any], expected: list[str]) -> None:
    assert sorted(slugs(client, "/gpus", **query)) == expected


def test_unknown_memory_does_not_pass_the_least(client: TestClient) -> None:
    assert "gaudi3-128gb" in slugs(client, "/gpus")
    assert "gaudi3-128gb" not in slugs(client, "/gpus", min_memory_bytes=0)


def test_a_token_belongs_to_its_filters(client: TestClient) -> None:
    token = client.get("/gpus", params={"limit": 1, "vendor": "NVIDIA"}).json()["next_page_token"]
    assert client.get("/gpus", params={"limit": 5, "vendor": "NVIDIA", "page_token": token}).status_code == 200
    for query in ({"vendor": "AMD", "page_token": token}, {"page_token": token}):
        answer = client.get("/gpus", params=query)
        assert answer.status_code == 422
        assert answer.json()["code"] == "invalid_page_token"
        assert answer.json()["errors"][0]["pointer"] == "/page_token"


@pytest.mark.parametrize("token", ["", "x", "e30=", "bnVsbA==", "W10=", "WzFd", "WyJ4IiwgMV0=", "é", "AAAA", "W1siYSJdXQ=="])
def test_a_made_up_token_is_refused(client: TestClient, token: str) -> None:
    answer = client.get("/gpus", params={"page_token": token})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_page_token")


def test_a_forged_token_reaches_no_database(client: TestClient) -> None:
    keys = ["a\0b"]
    check = hashlib.sha256(json.dumps([keys, {}], sort_keys=True).encode()).hexdigest()[:16]
    token = base64.urlsafe_b64encode(json.dumps([check, *keys]).encode()).decode()
    assert client.get("/gpus", params={"page_token": token}).status_code == 422


@pytest.mark.parametrize(
    "query", [{"limit": 0}, {"limit": 201}, {"limit": "many"}, {"min_memory_bytes": -1}, {"origin": "theirs"}, {"q": ""}, {"colour": "red"}]
)
def test_invalid_queries_name_the_parameter(client: TestClient, query: dict[str, Any]) -> None:
    answer = client.get("/gpus", params=query)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == f"/{next(iter(query))}"
