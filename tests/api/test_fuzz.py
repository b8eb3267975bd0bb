"""Every operation of the OpenAPI document, with inputs that fit it and inputs that do not: no 5xx, no answer that the document does not
describe, and nothing that contradicts the document is taken.

The same inputs every time. For a longer search, raise the numbers below or point `schemathesis run` at a running service.
"""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.config import GenerationConfig, ProjectConfig, ProjectsConfig, SchemathesisConfig
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from sqlalchemy import Engine
from sqlalchemy.orm import sessionmaker

from app.main import create_app
from app.services import api_keys
from app.settings import Settings
from tests.api.probe_app import captured_log

pytestmark = pytest.mark.slow

NUM_FITTING = 8
NUM_CONTRADICTING = 6
CONTRACT = [status_code_conformance, content_type_conformance, response_headers_conformance, response_schema_conformance]

COMMITTED = Path(__file__).parents[2] / "openapi" / "openapi.json"
SETTINGS = Settings(host="0.0.0.0", port=8000, catalog_poll_s=3600)  # noqa: S104 - nothing listens; this asks for API keys
DOCUMENT: dict[str, Any] = json.loads(COMMITTED.read_text())
"""The committed document, which another test holds against the code: the fast subset need not make it to leave these tests out."""
DESCRIBED: dict[str, dict[str, Any]] = {
    f"{method.upper()} {path}": operation for path, methods in DOCUMENT["paths"].items() for method, operation in methods.items()
}
TAKING_INPUT = [label for label, operation in DESCRIBED.items() if "requestBody" in operation or operation.get("parameters")]
TAKING_A_BODY = [label for label, operation in DESCRIBED.items() if "requestBody" in operation]


@pytest.fixture(scope="module")
def operations() -> dict[str, Any]:
    """The operations of the document as Schemathesis reads them."""
    generation = GenerationConfig(with_security_parameters=False)
    config = SchemathesisConfig(projects=ProjectsConfig(default=ProjectConfig(generation=generation)))
    schema = schemathesis.openapi.from_dict(DOCUMENT, config=config)
    schema.config.base_url = "http://testserver"
    read: list[Any] = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
    return {operation.label: operation for operation in read}


def test_every_operation_of_the_document_is_searched(operations: dict[str, Any]) -> None:
    assert operations.keys() == DESCRIBED.keys()
    read = {label for label, each in operations.items() if each.body or each.query or each.path_parameters or each.headers}
    assert read == set(TAKING_INPUT)


@pytest.fixture(scope="module")
def service(engine: Engine) -> Iterator[TestClient]:
    """The service as it runs off loopback, and a caller whose key permits everything; made once, since that costs more than a search."""
    with engine.connect() as connection, captured_log() as log:
        outer = connection.begin()
        factory = sessionmaker(connection, expire_on_commit=False, join_transaction_mode="create_savepoint")
        with factory.begin() as session:
            _, secret = api_keys.create(session, name="fuzz", scopes=["read", "write"])
        with TestClient(create_app(SETTINGS, session_factory=factory), headers={"X-API-Key": secret}) as client:
            logging.getLogger("httpx2").setLevel(logging.WARNING)
            yield client
        outer.rollback()
    assert "unforeseen_error" not in log.getvalue()


def _search(client: TestClient, operation: Any, mode: schemathesis.GenerationMode, num_examples: int, checks: list[Any]) -> int:
    num_answers = 0

    @settings(
        max_examples=num_examples,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(mode))
    def answer(case: Any) -> None:
        nonlocal num_answers
        request = case.as_transport_kwargs()
        request.pop("cookies", None)
        if "data" in request:
            request["content"] = request.pop("data")
        response = client.request(**request)
        num_answers += 1
        assert response.status_code < 500, f"{case.as_curl_command()}\n{response.text}"
        # What a limit refuses was not read, and so not judged.
        case.validate_response(response, checks=CONTRACT if response.status_code in (413, 414) else checks)

    answer()
    return num_answers


@pytest.mark.parametrize("label", DESCRIBED)
def test_what_fits_the_document_is_answered_by_it(service: TestClient, operations: dict[str, Any], label: str) -> None:
    assert _search(service, operations[label], schemathesis.GenerationMode.POSITIVE, NUM_FITTING, CONTRACT)


@pytest.mark.parametrize("label", TAKING_INPUT)
def test_what_contradicts_the_document_is_refused_by_it(service: TestClient, operations: dict[str, Any], label: str) -> None:
    assert _search(
        service, operations[label], schemathesis.GenerationMode.NEGATIVE, NUM_CONTRADICTING, [*CONTRACT, negative_data_rejection]
    )


HOSTILE: list[Any] = [None, True, 0, -1, 1e-300, 1e300, 10**18, "", "x" * 1000, "\u2028", [1], {"x": 1}]
"""Values that are good JSON and rarely what a field wants."""


@pytest.mark.parametrize("label", TAKING_A_BODY)
def test_an_example_with_one_hostile_value_is_never_a_failure(service: TestClient, label: str) -> None:
    described = DESCRIBED[label]
    method, template = label.split()
    for example in described["requestBody"]["content"]["application/json"]["examples"].values():
        for place in _places(example["value"]):
            if template.startswith("/plans") and place[0] == "request" and len(place) > 1:
                continue  # the calculation's own path is asked with the same
            for value in HOSTILE:
                body = json.loads(json.dumps(example["value"]))
                _put(body, place, value)
                path = template.replace("{slug}", "none").replace("{plan_id}", str(UUID(int=0)))
                answer = service.request(method, path, json=body, headers={"If-Match": '"1"'})
                assert str(answer.status_code) in described["responses"], f"{label} {place} = {value!r:.100}: {answer.text:.500}"
                assert answer.status_code < 500, f"{label} {place} = {value!r:.100}: {answer.text:.500}"


def _places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, member in inner:
        yield from _places(member, (*path, name))


def _put(body: Any, place: tuple[str | int, ...], value: Any) -> None:
    for part in place[:-1]:
        body = body[part]
    body[place[-1]] = value
