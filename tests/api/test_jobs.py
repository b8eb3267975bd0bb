"""`/jobs`, and the paths that start them: 202 and where to look, refusals with their codes, whose job it is, and without a database."""

import threading
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from httpx2 import Response
from sqlalchemy import create_engine
from sqlalchemy.orm import Session, sessionmaker

from app.api.long_calls import wants_job
from app.domain.access import Scope
from app.main import create_app
from app.services import api_keys, jobs
from app.services.catalog import CatalogHolder
from app.settings import Settings
from tests.api.problems import problem

SIMULATION: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "gpu": "h100-sxm-80gb",
    "deployment": {"engine": "vllm"},
    "workload": {"peak_rps": 8, "input_tokens": 1000, "output_tokens": 200},
    "duration_s": 20,
    "seeds": [1, 2],
}
POOLED = SIMULATION | {"pools": [{"name": "short", "max_input_tokens": 500}, {"name": "long"}]}
SWEEP = {"base": SIMULATION, "peak_rps": [4, 8]}
SEARCH: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "gpus": ["h100-sxm-80gb"],
    "prices": {"h100-sxm-80gb": 2},
    "workload": SIMULATION["workload"],
    "slo": {"ttft_p95_s": 1},
}
ASYNC = {"Prefer": "respond-async"}
Compute = Callable[[str], dict[str, Any]]


def started(answer: Response) -> str:
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == f"/jobs/{answer.json()['id']}"
    assert answer.json()["state"] == "queued"
    return str(answer.headers["location"])


@pytest.fixture
def compute(client: TestClient, application: FastAPI, session_factory: sessionmaker[Session]) -> Compute:
    """Compute a job as workers do, and read it."""

    def run(location: str) -> dict[str, Any]:
        for number in range(client.get(location).json()["num_parts"]):
            job_id = UUID(location.rpartition("/")[2])
            jobs.compute_part(session_factory, lambda: application.state.catalog.current, threading.Event(), job_id, number)
        found: dict[str, Any] = client.get(location).json()
        return found

    return run


@pytest.fixture
def guarded(settings: Settings, bundled_catalog: CatalogHolder, session_factory: sessionmaker[Session]) -> Iterator[TestClient]:
    """The service as it runs when it listens on every address."""
    app = create_app(settings.model_copy(update={"host": "0.0.0.0"}), session_factory=session_factory)  # noqa: S104
    app.state.catalog = bundled_catalog.copy()
    with TestClient(app) as client:
        yield client


@pytest.fixture
def key(session_factory: sessionmaker[Session]) -> Callable[..., dict[str, str]]:
    def make(*scopes: Scope) -> dict[str, str]:
        with session_factory.begin() as session:
            return {"X-API-Key": api_keys.create(session, name="test", scopes=scopes)[1]}

    return make


@pytest.mark.parametrize(
    ("path", "body", "num_parts"), [("/simulate", SIMULATION, 2), ("/recommend", SEARCH, 1)], ids=["simulation", "recommendation"]
)
def test_who_prefers_it_gets_a_job_with_the_same_answer(
    client: TestClient, compute: Compute, path: str, body: dict[str, Any], num_parts: int
) -> None:
    answer = client.post(path, json=body, headers=ASYNC)
    assert answer.headers["preference-applied"] == "respond-async"
    job = compute(started(answer))
    assert (job["state"], job["num_parts"], job["num_parts_done"], job["progress_ratio"]) == ("succeeded", num_parts, num_parts, 1)
    assert job["created_by"] == "local"
    direct = client.post(path, json=body).json()
    for each in (job["answer"], direct):
        each.get("search", {}).pop("searched_s", None)
    assert {**job["answer"], "summary": ""} == {**direct, "summary": ""}


def test_a_sweep_is_always_a_job(client: TestClient, compute: Compute) -> None:
    job = compute(started(client.post("/simulate/sweep", json=SWEEP)))
    assert (job["kind"], job["state"], job["num_parts"]) == ("sweep", "succeeded", 4)
    assert [point["peak_rps"] for point in job["answer"]["points"]] == [4, 8]
    assert job["answer"]["fleets"] == []
    pooled = compute(started(client.post("/simulate/sweep", json={"base": POOLED, "peak_rps": [4]})))
    assert [point["replicas"] for point in pooled["answer"]["points"]] == [2]


def test_small_calls_are_answered_at_once_and_large_ones_become_jobs(client: TestClient) -> None:
    assert client.post("/simulate", json=SIMULATION).status_code == 200
    started(client.post("/simulate", json=SIMULATION | {"duration_s": 20_000}))
    assert client.post("/recommend", json=SEARCH).status_code == 200
    started(client.post("/recommend", json=SEARCH | {"limits": {"max_search_s": 61}}))
    started(client.post("/recommend", json=SEARCH | {"limits": {"max_candidates": 2_000_000}}))


def test_more_than_a_job_may_be_is_refused_with_what_would_fit(client: TestClient) -> None:
    found = problem(client.post("/simulate", json=SIMULATION | {"duration_s": 1e6}), 422, "invalid_input")
    assert found["errors"][0]["pointer"] == "/duration_s"
    offered = float(found["errors"][0]["expected"].split("at most ")[1].split(",")[0])
    started(client.post("/simulate", json=SIMULATION | {"duration_s": offered}))


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("/simulate", SIMULATION | {"gpu": "nothing"}, "/gpu"),
        ("/simulate/sweep", {"base": SIMULATION | {"gpu": "nothing"}, "replicas": [2]}, "/base/gpu"),
        ("/simulate/sweep", {"base": SIMULATION}, ""),
        ("/simulate/sweep", {"base": POOLED, "replicas": [2]}, ""),
        ("/simulate/sweep", {"base": SIMULATION, "peak_rps": [4, 4]}, ""),
        ("/simulate/sweep", {"base": SIMULATION | {"duration_s": None, "concurrency": 4}, "peak_rps": [4]}, ""),
        ("/simulate/sweep", {"base": SIMULATION, "peak_rps": [0]}, "/peak_rps/0"),
        ("/recommend", SEARCH | {"limits": {"max_search_s": 3601}}, "/limits/max_search_s"),
        ("/recommend", SEARCH | {"limits": {"max_candidates": 1}}, "/limits/max_candidates"),
    ],
    ids=["gpu", "base", "nothing", "pools", "twice", "closed-loop", "rate", "time", "candidates"],
)
def test_no_job_is_made_of_what_cannot_be_computed(client: TestClient, path: str, body: dict[str, Any], pointer: str) -> None:
    answer = client.post(path, json=body, headers=ASYNC)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert client.get("/jobs").json()["items"] == []


def test_the_same_key_starts_one_job(client: TestClient) -> None:
    headers = ASYNC | {"Idempotency-Key": "once"}
    first, second = (client.post("/simulate", json=SIMULATION, headers=headers) for _ in range(2))
    assert started(first) == started(second)
    assert second.headers["idempotency-replayed"] == "true"
    other = client.post("/simulate", json=SIMULATION | {"seeds": [3]}, headers=headers)
    problem(other, 422, "idempotency_conflict")
    assert len(client.get("/jobs").json()["items"]) == 1


def test_a_job_is_cancelled_once_and_deleted_then(client: TestClient, compute: Compute) -> None:
    location = started(client.post("/simulate", json=SIMULATION, headers=ASYNC))
    problem(client.delete(location), 409, "job_not_ended")
    for _ in range(2):
        answer = client.post(f"{location}/cancel")
        assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
    assert compute(location)["state"] == "cancelled"
    assert client.delete(location).status_code == 204
    for answer in (client.get(location), client.delete(location), client.post(f"{location}/cancel")):
        problem(answer, 404, "not_found")


def test_what_has_succeeded_is_not_cancelled(client: TestClient, compute: Compute) -> None:
    location = started(client.post("/simulate", json=SIMULATION, headers=ASYNC))
    compute(location)
    problem(client.post(f"{location}/cancel"), 409, "job_ended")
    assert client.get(location).json()["answer"]


def test_lists_have_pages_and_filters(client: TestClient) -> None:
    simulations = {started(client.post("/simulate", json=SIMULATION, headers=ASYNC)) for _ in range(3)}
    sweep = started(client.post("/simulate/sweep", json=SWEEP))
    first = client.get("/jobs", params={"limit": 2, "kind": "simulation"}).json()
    rest = client.get("/jobs", params={"limit": 2, "kind": "simulation", "page_token": first["next_page_token"]}).json()
    assert {f"/jobs/{each['id']}" for each in first["items"] + rest["items"]} == simulations
    assert rest["next_page_token"] is None
    client.post(f"{sweep}/cancel")
    assert [f"/jobs/{each['id']}" for each in client.get("/jobs?state=cancelled").json()["items"]] == [sweep]
    assert "answer" not in first["items"][0]
    problem(client.get("/jobs?state=lost"), 422, "invalid_request")
    problem(client.get("/jobs?page_token=x"), 422, "invalid_page_token")
    problem(client.get(f"/jobs/{uuid4()}"), 404, "not_found")
    problem(client.get("/jobs/1"), 422, "invalid_request")


def test_one_ends_ones_own_jobs_and_with_write_those_of_others(guarded: TestClient, key: Callable[..., dict[str, str]]) -> None:
    own, other, writer = key("read"), key("read"), key("read", "write")
    first, second = (started(guarded.post("/simulate", json=SIMULATION, headers=ASYNC | own)) for _ in range(2))
    problem(guarded.post(f"{first}/cancel", headers=other), 403, "scope_missing")
    assert guarded.get(first, headers=other).json()["state"] == "queued"
    assert guarded.post(f"{first}/cancel", headers=own).status_code == 200
    problem(guarded.delete(first, headers=other), 403, "scope_missing")
    assert guarded.delete(first, headers=own).status_code == 204
    assert guarded.post(f"{second}/cancel", headers=writer).status_code == 200
    assert guarded.delete(second, headers=writer).status_code == 204
    problem(guarded.post("/simulate", json=SIMULATION, headers=ASYNC | key("write")), 403, "scope_missing")


def test_too_many_jobs_are_refused_for_the_time_being(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "MOST_OPEN_JOBS", 1)
    location = started(client.post("/simulate", json=SIMULATION, headers=ASYNC))
    answer = client.post("/simulate", json=SIMULATION, headers=ASYNC)
    problem(answer, 503, "job_queue_full")
    assert int(answer.headers["retry-after"]) > 0
    client.post(f"{location}/cancel")
    started(client.post("/simulate", json=SIMULATION, headers=ASYNC))


def test_without_its_database_small_calls_are_answered_and_jobs_put_off(settings: Settings) -> None:
    factory = sessionmaker(create_engine("postgresql+psycopg://nobody@127.0.0.1:1/none", connect_args={"connect_timeout": 2}))
    with TestClient(create_app(settings, session_factory=factory)) as client:
        assert client.post("/simulate", json=SIMULATION).status_code == 200
        for answer in (
            client.post("/simulate", json=SIMULATION, headers=ASYNC),
            client.get("/jobs"),
            client.post("/simulate/sweep", json=SWEEP),
        ):
            problem(answer, 503, "database_unavailable")
            assert int(answer.headers["retry-after"]) > 0


@pytest.mark.parametrize(
    ("prefer", "wanted"),
    [
        (None, False),
        (["respond-async"], True),
        (["Respond-Async; wait=10"], True),
        (["return=minimal, respond-async"], True),
        (["wait=10", "respond-async"], True),
        (["respond-asynchronously"], False),
    ],
    ids=["none", "alone", "parameter", "list", "two-headers", "other"],
)
def test_the_preference_is_found_among_others(prefer: list[str] | None, wanted: bool) -> None:
    assert wants_job(prefer) is wanted
