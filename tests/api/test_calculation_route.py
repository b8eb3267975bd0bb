"""The calculations' own way through a request answers as FastAPI's does."""

from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Body, Depends, Query, Request
from fastapi.responses import PlainTextResponse
from fastapi.routing import iter_route_contexts
from fastapi.testclient import TestClient
from sqlalchemy.orm import Session, sessionmaker
from starlette.types import Receive, Scope, Send

from app.api.calculation_route import CalculationRoute
from app.api.route import PlannerRoute
from app.main import create_app
from app.settings import Settings
from tests.api.probe_app import REFUSALS, ProbeAnswer, ProbeRequest


async def _factor(request: Request) -> float:
    return float(request.app.state.factor)


Factor = Annotated[float, Depends(_factor)]


async def echo(body: ProbeRequest, factor: Factor) -> ProbeAnswer:
    """Answer what came, or refuse it."""
    if body.gpu == "refuse":
        raise REFUSALS["invalid"]
    return ProbeAnswer(request=body.model_copy(update={"rate_per_s": body.rate_per_s * factor}))


@pytest.fixture(scope="module")
def probe(settings: Settings, unbound_sessions: sessionmaker[Session]) -> Iterator[TestClient]:
    """The same endpoint both ways; no test asks the database."""
    app = create_app(settings, session_factory=unbound_sessions)
    app.state.factor = 2
    for path, route_class in (("/short", CalculationRoute), ("/long", PlannerRoute)):
        router = APIRouter(route_class=route_class)
        router.add_api_route(path, echo, methods=["POST"], operation_id=path[1:])
        app.include_router(router)
    with TestClient(app) as client:
        yield client


JSON = {"content-type": "application/json"}
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("defaults", {"json": {}}),
    ("everything", {"json": {"gpu": {"memory_bytes": 3}, "rate_per_s": 1.5, "num_rows": 7, "kind": "b", "anything": {"a": [1, None]}}}),
    ("not ascii", {"json": {"gpu": "größer"}}),
    ("coerced", {"json": {"num_rows": "7", "rate_per_s": 3}}),
    ("refused", {"json": {"gpu": "refuse"}}),
    ("invalid", {"json": {"num_rows": 0, "kind": "c", "more": 1}}),
    ("union", {"json": {"gpu": {"memory_bytes": -1}}}),
    ("overflow", {"json": {"rate_per_s": 1e308}}),
    ("list", {"content": b"[]", "headers": JSON}),
    ("null", {"content": b"null", "headers": JSON}),
    ("nothing", {"headers": JSON}),
    ("nothing without type", {}),
    ("malformed", {"content": b"{", "headers": JSON}),
    ("nan", {"content": b'{"rate_per_s": NaN}', "headers": JSON}),
    ("wrong type", {"content": b"{}", "headers": {"content-type": "text/plain"}}),
    ("compressed", {"content": b"{}", "headers": JSON | {"content-encoding": "br"}}),
    ("wrong key", {"json": {}, "headers": {"X-API-Key": "x"}}),
    ("chunked", {"content": iter([b'{"num', b'_rows"', b": 5}"]), "headers": JSON}),
]


@pytest.mark.parametrize("request_", [parts for _, parts in REQUESTS], ids=[name for name, _ in REQUESTS])
def test_both_ways_answer_the_same(probe: TestClient, request_: dict[str, Any]) -> None:
    parts = dict(request_)
    if "content" in parts and not isinstance(parts["content"], bytes):
        chunks = list(parts.pop("content"))
        short = probe.post("/short", content=iter(chunks), **parts)
        long = probe.post("/long", content=iter(chunks), **parts)
    else:
        short, long = probe.post("/short", **parts), probe.post("/long", **parts)
    assert short.status_code == long.status_code
    assert {**short.json(), "request_id": None} == {**long.json(), "request_id": None}
    ours, theirs = (sorted(name for name in answer.headers if name != "x-request-id") for answer in (short, long))
    assert ours == theirs
    assert short.headers["content-type"] == long.headers["content-type"]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS"])
def test_other_methods_are_answered_the_same(probe: TestClient, method: str) -> None:
    short, long = probe.request(method, "/short"), probe.request(method, "/long")
    assert short.status_code == long.status_code
    assert short.headers["allow"] == long.headers["allow"] == "POST, OPTIONS"


def test_the_result_is_that_of_the_endpoint(probe: TestClient) -> None:
    assert probe.post("/short", json={"rate_per_s": 1.5}).json()["request"]["rate_per_s"] == 3.0


def test_a_test_may_replace_a_dependency(probe: TestClient) -> None:
    probe.app.dependency_overrides[_factor] = lambda: 10.0  # type: ignore[attr-defined]
    assert probe.post("/short", json={"rate_per_s": 1.5}).json()["request"]["rate_per_s"] == 15.0


def test_the_document_is_the_same(probe: TestClient) -> None:
    paths = probe.get("/openapi.json").json()["paths"]
    short, long = ({**paths[path]["post"], "operationId": None} for path in ("/short", "/long"))
    for operation in (short, long):
        reference = operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
        assert reference.endswith("/ProbeAnswer")
    assert short == long


def test_the_service_calculates_this_way(client: TestClient) -> None:
    routes = {"/memory", "/kv", "/concurrency", "/capacity", "/cost", "/diagnose"}
    found = {
        route.path
        for included in client.app.router.routes  # type: ignore[attr-defined]
        for route in getattr(getattr(included, "original_router", None), "routes", ())
        if isinstance(route, CalculationRoute)
    }
    assert routes <= found


def test_the_router_hands_its_requests_over(settings: Settings, session_factory: sessionmaker[Session]) -> None:
    handled: list[str] = []

    class WatchedRoute(CalculationRoute):
        async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
            handled.append(scope["path"])
            await super().handle(scope, receive, send)

    app = create_app(settings, session_factory=session_factory)
    app.state.factor = 1
    router = APIRouter(route_class=WatchedRoute)
    router.add_api_route("/probe", echo, methods=["POST"])
    app.include_router(router)
    with TestClient(app) as client:
        assert client.post("/probe", json={}).status_code == 200
    assert handled == ["/probe"]


def test_nothing_is_asked_for_where_the_calculations_are_included(client: TestClient) -> None:
    contexts = [
        context
        for context in iter_route_contexts(client.app.routes)  # type: ignore[attr-defined]
        if isinstance(context.original_route, CalculationRoute)
    ]
    assert len(contexts) >= 6
    assert [context.path for context in contexts if context.dependencies or context.max_body_size] == []


async def _needs_a_query(factor: float) -> float:
    return factor


def _plain(request: Request) -> float:
    return 1.0


async def _two_bodies(body: ProbeRequest, other: ProbeRequest) -> ProbeAnswer:
    return ProbeAnswer(request=body)


async def _no_body(factor: Factor) -> float:
    return factor


async def _query(body: Annotated[int, Query()]) -> float:
    return body


async def _embedded(body: Annotated[ProbeRequest, Body(embed=True)]) -> ProbeAnswer:
    return ProbeAnswer(request=body)


def _threaded(body: ProbeRequest) -> ProbeAnswer:
    return ProbeAnswer(request=body)


async def _deep(body: ProbeRequest, factor: Annotated[float, Depends(_needs_a_query)]) -> ProbeAnswer:
    return ProbeAnswer(request=body)


async def _blocking(body: ProbeRequest, factor: Annotated[float, Depends(_plain)]) -> ProbeAnswer:
    return ProbeAnswer(request=body)


@pytest.mark.parametrize("endpoint", [_two_bodies, _no_body, _query, _embedded, _threaded, _deep, _blocking])
def test_an_endpoint_that_needs_more_is_refused_when_it_is_declared(endpoint: Any) -> None:
    router = APIRouter(route_class=CalculationRoute)
    with pytest.raises(TypeError, match="a calculation"):
        router.add_api_route("/probe", endpoint, methods=["POST"])


@pytest.mark.parametrize(
    "option",
    [
        {"status_code": 201},
        {"response_model": ProbeRequest},
        {"response_model_exclude_none": True},
        {"response_class": PlainTextResponse},
        {"max_body_size": 10},
    ],
    ids=lambda option: next(iter(option)),
)
def test_an_option_that_would_be_ignored_is_refused_when_it_is_declared(option: dict[str, Any]) -> None:
    router = APIRouter(route_class=CalculationRoute)
    with pytest.raises(TypeError, match="would be ignored"):
        router.add_api_route("/probe", echo, methods=["POST"], **option)


def test_a_route_that_asks_for_a_scope_is_refused_when_it_is_declared() -> None:
    router = APIRouter(route_class=CalculationRoute)
    with pytest.raises(TypeError, match="a calculation"):
        router.add_api_route("/probe", echo, methods=["POST"], dependencies=[Depends(_plain)])
