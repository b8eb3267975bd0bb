"""Limits: each has a code of its own, and holds whether or not the caller says how much it sends."""

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy.orm import Session, sessionmaker

from app.api.request_edge import MAX_PATH_CHARACTERS, MAX_QUERY_BYTES, MAX_QUERY_PARAMETERS
from app.services.catalog import CatalogHolder
from app.settings import Settings
from tests.api.probe_app import probe_app
from tests.api.problems import problem

JSON = {"content-type": "application/json"}
MAX_BODY_BYTES = 1000
MAX_SCRAPE_BODY_BYTES = 3000


@pytest.fixture(scope="module")
def service(settings: Settings, unbound_sessions: sessionmaker[Session]) -> FastAPI:
    """The service with a small limit on bodies, made once."""
    limits = {"max_body_bytes": MAX_BODY_BYTES, "max_scrape_body_bytes": MAX_SCRAPE_BODY_BYTES}
    return probe_app(settings.model_copy(update=limits), unbound_sessions)


@pytest.fixture
def probe(service: FastAPI, bundled_catalog: CatalogHolder, session_factory: sessionmaker[Session]) -> Iterator[TestClient]:
    """A client of it, on the database of this test."""
    assert service.state.session_factory is session_factory
    service.state.catalog = bundled_catalog.copy()
    with TestClient(service) as client:
        yield client


def _body(num_bytes: int) -> bytes:
    return b'{"gpu": "' + b"x" * (num_bytes - 11) + b'"}'


def _chunks(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), 100):
        yield body[start : start + 100]


def test_a_body_of_exactly_the_limit_is_taken(probe: TestClient) -> None:
    assert len(_body(MAX_BODY_BYTES)) == MAX_BODY_BYTES
    assert probe.post("/probe", content=_body(MAX_BODY_BYTES), headers=JSON).status_code == 200
    assert probe.post("/probe", content=_chunks(_body(MAX_BODY_BYTES)), headers=JSON).status_code == 200


def test_a_body_that_announces_its_size_is_refused_unread(probe: TestClient) -> None:
    problem(probe.post("/probe", content=_body(MAX_BODY_BYTES + 1), headers=JSON), 413, "body_too_large")
    problem(probe.post("/probe", content=b"", headers=JSON | {"content-length": "9" * 5000}), 413, "body_too_large")


def test_a_body_in_chunks_is_refused_when_it_passes_the_limit(probe: TestClient) -> None:
    problem(probe.post("/probe", content=_chunks(_body(MAX_BODY_BYTES + 1)), headers=JSON), 413, "body_too_large")


def test_a_body_that_is_longer_than_it_says_isproblem(probe: TestClient) -> None:
    problem(probe.post("/probe", content=_body(MAX_BODY_BYTES + 1), headers=JSON | {"content-length": "10"}), 413, "body_too_large")


def test_scrapes_may_be_larger(probe: TestClient) -> None:
    text = "# " + "x" * (MAX_SCRAPE_BODY_BYTES - len('{"prometheus": "# "}'))
    body = b'{"prometheus": "' + text.encode() + b'"}'
    assert len(body) == MAX_SCRAPE_BODY_BYTES
    problem(probe.post("/diagnose", content=_chunks(body), headers=JSON), 422, "invalid_input")
    problem(probe.post("/diagnose", content=body + b" ", headers=JSON), 413, "body_too_large")
    problem(probe.post("/diagnose", content=_chunks(body + b" "), headers=JSON), 413, "body_too_large")


def test_a_long_query_isproblem(probe: TestClient) -> None:
    room = MAX_QUERY_BYTES - len("label=")
    assert probe.get("/probe?label=" + "x" * room).status_code == 200
    problem(probe.get("/probe?label=" + "x" * (room + 1)), 414, "query_too_long")


def test_too_many_query_parameters_areproblem(probe: TestClient) -> None:
    at_limit = probe.get("/probe?" + "&".join(["limit=1"] * MAX_QUERY_PARAMETERS))
    assert at_limit.status_code == 200
    problem(probe.get("/probe?" + "&".join(["limit=1"] * (MAX_QUERY_PARAMETERS + 1))), 414, "too_many_query_parameters")


def test_a_list_in_the_query_has_its_own_limit(probe: TestClient) -> None:
    assert probe.get("/probe?label=a&label=b&label=c").status_code == 200
    answer = probe.get("/probe?label=a&label=b&label=c&label=d")
    problem(answer, 422, "invalid_request")
    assert answer.json()["errors"][0]["code"] == "too_long"


def test_a_long_path_isproblem(probe: TestClient) -> None:
    assert probe.get("/" + "x" * (MAX_PATH_CHARACTERS - 1)).status_code == 404
    problem(probe.get("/" + "x" * MAX_PATH_CHARACTERS), 414, "path_too_long")


@pytest.mark.parametrize("url", ["/gpus/a%00b", "/gpus?family=%00", "/%00"])
def test_the_character_that_postgres_cannot_store_is_refused_in_the_address(probe: TestClient, url: str) -> None:
    problem(probe.get(url), 422, "nul_character")


@pytest.mark.parametrize("given", ["abc", "a" * 128, "0c1f-4a.b_c:d/e+f="])
def test_a_request_id_is_taken_over(probe: TestClient, given: str) -> None:
    answer = probe.get("/nowhere", headers={"X-Request-ID": given})
    assert answer.headers.get_list("x-request-id") == [given]
    assert answer.json()["request_id"] == given


@pytest.mark.parametrize("given", ["", "a" * 129, "a b", "-a", 'a"b', "ä"])
def test_an_unusable_request_id_is_replaced(probe: TestClient, given: str) -> None:
    headers: Any = {"X-Request-ID": given.encode("latin-1")}
    first, second = (probe.get("/livez", headers=headers).headers["x-request-id"] for _ in range(2))
    assert len(first) == 32
    assert given not in (first, second)
    assert first != second
