"""The OpenAPI document is the contract: committed, valid, complete, and its examples work."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts
from fastapi.testclient import TestClient
from openapi_spec_validator import OpenAPIV31SpecValidator
from sqlalchemy.orm import sessionmaker

from app.api.auth import OPEN_PATHS
from app.api.errors import MEDIA_TYPE
from app.api.openapi import document
from app.api.route import PlannerRoute
from app.main import create_app
from app.settings import Settings

COMMITTED = Path(__file__).parents[2] / "openapi" / "openapi.json"
Operation = dict[str, Any]

DOCUMENT: dict[str, Any] = json.loads(COMMITTED.read_text())


def _operations() -> Iterator[tuple[str, str, Operation]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


OPERATIONS = list(_operations())
IDS = [f"{method} {path}" for method, path, _ in OPERATIONS]
WITH_BODY = [item for item in OPERATIONS if "requestBody" in item[2]]


def test_the_committed_document_is_the_one_that_the_code_makes(application: FastAPI) -> None:
    assert COMMITTED.read_text() == document(application), "run `inferplan openapi` and commit openapi/openapi.json"


def test_the_document_is_the_same_every_time(application: FastAPI) -> None:
    again = create_app(Settings(host="127.0.0.1", port=8000), session_factory=sessionmaker())
    assert document(again) == document(application) == document(application)


def test_the_document_is_valid_openapi_3_1() -> None:
    assert DOCUMENT["openapi"].startswith("3.1")
    assert list(OpenAPIV31SpecValidator(DOCUMENT).iter_errors()) == []


def test_the_document_served_is_the_committed_one(client: TestClient) -> None:
    assert client.get("/openapi.json").json() == json.loads(COMMITTED.read_text())


def test_operation_ids_are_unique_names() -> None:
    ids = [operation["operationId"] for _, _, operation in OPERATIONS]
    assert len(set(ids)) == len(ids)
    assert all(name.isidentifier() for name in ids)


def test_every_tag_is_explained() -> None:
    used = {tag for _, _, operation in OPERATIONS for tag in operation["tags"]}
    assert used == {tag["name"] for tag in DOCUMENT["tags"]}


@pytest.mark.parametrize(("method", "path", "operation"), OPERATIONS, ids=IDS)
def test_an_operation_says_what_it_does_and_how_it_refuses(method: str, path: str, operation: Operation) -> None:
    assert operation["summary"]
    assert operation["description"]
    refused = {status: answer for status, answer in operation["responses"].items() if status[0] in "45"}
    for status, answer in refused.items():
        content = _resolved(answer)["content"]
        assert set(content) == {MEDIA_TYPE}, status
        assert content[MEDIA_TYPE]["schema"] == {"$ref": "#/components/schemas/Problem"}
    wanted = {"500"}
    if path in OPEN_PATHS:
        assert "security" not in operation
    else:
        wanted |= {"401", "403", "503"}
        (scope,) = {tuple(scopes) for requirement in operation["security"] for scopes in requirement.values()}
        assert scope in (("read",), ("write",))
        assert {name for requirement in operation["security"] for name in requirement} == set(DOCUMENT["components"]["securitySchemes"])
    if "requestBody" in operation:
        wanted |= {"400", "413", "415", "422"}
    if operation.get("parameters"):
        wanted |= {"414", "422"}
    assert wanted <= refused.keys()


def _resolved(answer: Operation) -> Operation:
    if "$ref" not in answer:
        return answer
    found: Operation = DOCUMENT["components"]["responses"][answer["$ref"].rpartition("/")[2]]
    return found


def test_what_changes_stored_things_needs_the_scope_write() -> None:
    reading = {(method, path) for method, path, operation in OPERATIONS if operation.get("security", [{}])[0].get("bearer") == ["read"]}
    stored = [(method, path) for method, path, _ in OPERATIONS if path.startswith(("/gpus", "/models", "/plans", "/diagnosis-profiles"))]
    changing = {(method, path) for method, path in stored if method != "GET" and not path.endswith("/recompute")}
    assert changing
    assert not changing & reading


def test_no_route_forgoes_the_checks_of_scope_and_body(application: FastAPI) -> None:
    unguarded = {
        context.path
        for context in iter_route_contexts(application.routes)
        if isinstance(context.original_route, APIRoute) and not isinstance(context.original_route, PlannerRoute)
    }
    assert unguarded <= OPEN_PATHS
    assert len(unguarded) == 4  # the walk reaches the routes


def test_the_frameworks_own_error_schema_is_gone() -> None:
    assert "HTTPValidationError" not in json.dumps(DOCUMENT)
    assert set(DOCUMENT["components"]["schemas"]["Problem"]["required"]) >= {"type", "title", "status", "detail", "code", "errors"}


def test_every_schema_is_used() -> None:
    text = json.dumps(DOCUMENT)
    unused = [name for name in DOCUMENT["components"]["schemas"] if f'"#/components/schemas/{name}"' not in text]
    assert unused == []


def _examples() -> Iterator[Any]:
    for method, path, operation in WITH_BODY:
        for name, example in operation["requestBody"]["content"]["application/json"].get("examples", {}).items():
            yield pytest.param(method, path, example["value"], id=f"{method} {path} {name}")


def test_every_body_has_an_example() -> None:
    without = [path for _, path, operation in WITH_BODY if not operation["requestBody"]["content"]["application/json"].get("examples")]
    assert without == []


@pytest.mark.parametrize(("method", "path", "body"), list(_examples()))
def test_an_example_is_answered(client: TestClient, method: str, path: str, body: dict[str, Any]) -> None:
    headers = {}
    if method == "PUT":
        collection = path.rpartition("/")[0]
        created = client.post(collection, json=body)
        assert created.status_code == 201, created.text
        path = created.headers["location"]
        headers = {"If-Match": created.headers["etag"]}
    answer = client.request(method, path, json=body, headers=headers)
    assert answer.is_success, answer.text
