"""Who may call: keys are asked for off loopback, checked before the body, and outlive a short absence of the database."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session, sessionmaker
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from app.api.auth import FRESH_S, GRACE_S, MAX_KEPT_KEYS, OPEN_PATHS, PRINCIPAL_KEY, Authentication
from app.domain.access import ApiKey
from app.domain.access import Scope as KeyScope
from app.services import api_keys
from app.settings import Settings
from tests.api.probe_app import probe_app

BODY = {"num_rows": 1}
Make = Callable[..., str]


@pytest.fixture
def guarded(settings: Settings, session_factory: sessionmaker[Session]) -> Iterator[TestClient]:
    """The service as it runs when it listens on every address."""
    with TestClient(probe_app(settings.model_copy(update={"host": "0.0.0.0"}), session_factory)) as client:  # noqa: S104
        yield client


@pytest.fixture
def make_key(session_factory: sessionmaker[Session]) -> Make:
    """Makes a key of the given scopes and returns its secret."""

    def make(*scopes: KeyScope) -> str:
        with session_factory.begin() as session:
            return api_keys.create(session, name="test", scopes=scopes)[1]

    return make


def test_on_loopback_no_key_is_asked_for(settings: Settings, session_factory: sessionmaker[Session]) -> None:
    with TestClient(probe_app(settings, session_factory)) as client:
        assert client.post("/probe", json=BODY).status_code == 200
        assert client.put("/probe/items/1").json() == "local"


def test_on_loopback_a_wrong_key_is_refused_all_the_same(settings: Settings, session_factory: sessionmaker[Session]) -> None:
    with TestClient(probe_app(settings, session_factory)) as client:
        assert client.post("/probe", json=BODY, headers={"X-API-Key": "wrong"}).status_code == 401


@pytest.mark.parametrize("path", sorted(OPEN_PATHS - {"/readyz"}))
def test_health_metrics_and_documentation_are_open(guarded: TestClient, path: str) -> None:
    assert guarded.get(path).status_code == 200


@pytest.mark.parametrize("path", ["/probe", "/gpus", "/nowhere", "/livez/", "/docs/oauth2-redirect", "//livez"])
def test_everything_else_needs_a_key_even_what_does_not_exist(guarded: TestClient, path: str) -> None:
    answer = guarded.get(f"http://testserver{path}")
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="inferplan"'
    assert answer.json()["code"] == "api_key_missing"


@pytest.mark.parametrize(
    "header",
    [{"Authorization": "Bearer {}"}, {"Authorization": "bearer  {}"}, {"X-API-Key": "{}"}],
    ids=["bearer", "lower-case", "x-api-key"],
)
def test_a_key_is_taken_from_either_header(guarded: TestClient, make_key: Make, header: dict[str, str]) -> None:
    secret = make_key("read")
    headers = {name: value.format(secret) for name, value in header.items()}
    assert guarded.post("/probe", json=BODY, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "value",
    ["Basic dXNlcjpwYXNz", "Bearer", "Bearer ", "Bearer inferplan_short", "Bearer inferplan_" + "A" * 43, "Bearer inferplan_" + "é" * 43],
)
def test_what_is_no_valid_key_is_refused(guarded: TestClient, value: str) -> None:
    answer = guarded.post("/probe", json=BODY, headers=[(b"authorization", value.encode("latin-1"))])
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"
    assert value.split()[-1] not in answer.json()["detail"]


@pytest.mark.parametrize("body", [b"{", b"x" * 100, b'{"unknown": 1}'])
def test_the_key_is_asked_for_before_the_body_is_looked_at(guarded: TestClient, body: bytes) -> None:
    assert guarded.post("/probe", content=body).status_code == 401


def test_a_key_that_may_read_may_not_write(guarded: TestClient, make_key: Make) -> None:
    headers = {"X-API-Key": make_key("read")}
    assert guarded.post("/probe", json=BODY, headers=headers).status_code == 200
    refused = guarded.put("/probe/items/1", headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (403, "scope_missing")
    assert 'error="insufficient_scope", scope="write"' in refused.headers["www-authenticate"]


def test_a_key_that_may_write_may_not_read(guarded: TestClient, make_key: Make) -> None:
    headers = {"X-API-Key": make_key("write")}
    assert guarded.put("/probe/items/1", headers=headers).json() == "test"
    assert guarded.post("/probe", json=BODY, headers=headers).status_code == 403
    assert guarded.get("/gpus", headers=headers).status_code == 403
    assert guarded.post("/kv", json={"model": "llama-3.1-70b"}, headers=headers).status_code == 403


def test_a_key_with_both_scopes_may_do_both(guarded: TestClient, make_key: Make) -> None:
    headers = {"X-API-Key": make_key("read", "write")}
    assert guarded.put("/probe/items/1", headers=headers).status_code == 200
    assert guarded.post("/probe", json=BODY, headers=headers).status_code == 200


class Keys:
    """The database's side of the look-up, with a switch."""

    def __init__(self) -> None:
        self.valid = True
        self.away = False
        self.num_queries = 0

    def __call__(self, digest: str) -> ApiKey | None:
        self.num_queries += 1
        if self.away:
            raise OperationalError("select", {}, Exception("connection refused"))
        if not self.valid:
            return None
        return ApiKey(id=uuid4(), name=digest[:8], scopes=("read",), created_at=datetime.now(UTC), revoked_at=None)


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


async def _inner(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse(scope[PRINCIPAL_KEY].name)(scope, receive, send)


def _secret(number: int = 0) -> str:
    return api_keys.PREFIX + f"{number:043}"


def _status(edge: Authentication, secret: str) -> int:
    statuses = []

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async def receive() -> Message:
        raise AssertionError("the body must not be read")

    asyncio.run(edge({"type": "http", "path": "/kv", "headers": [(b"x-api-key", secret.encode())]}, receive, send))
    return int(statuses[0])


@pytest.fixture
def keys() -> Keys:
    return Keys()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def edge(keys: Keys, clock: Clock) -> Authentication:
    return Authentication(_inner, required=True, lookup=keys, clock=clock)


def test_a_key_is_looked_up_once_in_a_while_and_not_for_every_request(edge: Authentication, keys: Keys, clock: Clock) -> None:
    assert [_status(edge, _secret()) for _ in range(5)] == [200] * 5
    assert keys.num_queries == 1
    clock.now_s += FRESH_S
    assert _status(edge, _secret()) == 200
    assert keys.num_queries == 2


def test_a_revoked_key_stops_working_after_the_fresh_time(edge: Authentication, keys: Keys, clock: Clock) -> None:
    assert _status(edge, _secret()) == 200
    keys.valid = False
    clock.now_s += FRESH_S - 0.1
    assert _status(edge, _secret()) == 200
    clock.now_s += 0.2
    assert _status(edge, _secret()) == 401
    keys.away = True
    assert _status(edge, _secret()) == 503


def test_while_the_database_is_away_known_keys_work_for_a_while_and_new_ones_do_not(edge: Authentication, keys: Keys, clock: Clock) -> None:
    assert _status(edge, _secret(1)) == 200
    keys.away = True
    clock.now_s += GRACE_S - 1
    assert (_status(edge, _secret(1)), _status(edge, _secret(2))) == (200, 503)
    clock.now_s += 2
    assert _status(edge, _secret(1)) == 503


def test_what_cannot_be_a_key_costs_no_query(edge: Authentication, keys: Keys) -> None:
    assert _status(edge, "inferplan_'; drop table api_keys") == 401
    assert keys.num_queries == 0


def test_the_number_of_kept_keys_is_bounded(edge: Authentication) -> None:
    for number in range(MAX_KEPT_KEYS + 3):
        _status(edge, _secret(number))
    assert len(edge.seen) == MAX_KEPT_KEYS
