"""Requests that arrive at once, each on a connection of its own that commits."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response
from sqlalchemy import Engine, text
from sqlalchemy.orm import sessionmaker

from app.main import create_app
from app.settings import Settings

OWNER = "race-over-http"
KEY = "race-over-http"


def body(name: str) -> dict[str, Any]:
    return {"kind": "kv", "name": name, "owner": OWNER, "request": {"model": "llama-3.1-70b"}}


@pytest.fixture
def committing(settings: Settings, engine: Engine) -> Iterator[TestClient]:
    """The service on the database itself; what these tests leave there is deleted."""
    with TestClient(create_app(settings, session_factory=sessionmaker(engine, expire_on_commit=False))) as client:
        yield client
    with engine.begin() as connection:
        mine = {"owner": OWNER, "key": KEY}
        connection.execute(text("delete from plan_revisions where plan_id in (select id from plans where owner = :owner)"), mine)
        connection.execute(text("delete from plans where owner = :owner"), mine)
        connection.execute(text("delete from idempotency_keys where key = :key"), mine)


def at_once(number: int, send: Callable[[int], Response]) -> list[Response]:
    barrier = Barrier(number)

    def run(index: int) -> Response:
        barrier.wait()
        return send(index)

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(run, range(number)))


def test_of_changes_at_once_one_is_kept_and_the_others_are_stale(committing: TestClient) -> None:
    path = committing.post("/plans", json=body("first")).headers["location"]
    answers = at_once(4, lambda index: committing.put(path, json=body(f"change {index}"), headers={"If-Match": '"1"'}))
    assert sorted(answer.status_code for answer in answers) == [200, 412, 412, 412]
    kept = next(answer for answer in answers if answer.status_code == 200)
    assert committing.get(path).json() == kept.json()
    assert [each["revision"] for each in committing.get(f"{path}/revisions").json()["items"]] == [2, 1]


def test_of_creations_at_once_under_one_key_one_is_made_and_all_get_it(committing: TestClient) -> None:
    answers = at_once(5, lambda _: committing.post("/plans", json=body("once"), headers={"Idempotency-Key": KEY}))
    assert [answer.status_code for answer in answers] == [201] * 5
    assert len({answer.content for answer in answers}) == 1
    assert sum("idempotency-replayed" in answer.headers for answer in answers) == 4
    assert len(committing.get("/plans", params={"owner": OWNER}).json()["items"]) == 1


def test_of_different_creations_at_once_under_one_key_one_is_made(committing: TestClient) -> None:
    answers = at_once(4, lambda index: committing.post("/plans", json=body(f"{index}"), headers={"Idempotency-Key": KEY}))
    assert sorted(answer.status_code for answer in answers) == [201, 422, 422, 422]
    assert len(committing.get("/plans", params={"owner": OWNER}).json()["items"]) == 1
