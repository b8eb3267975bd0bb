"""Every refusal is a problem: its status, its code, its field, and nothing that does not belong into an answer."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from httpx2 import Response
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session, sessionmaker

from app.api.errors import STATUS_OF
from app.api.pointers import pointer_of, repeatable
from app.domain import errors
from app.services.catalog import CatalogHolder
from app.settings import Settings
from tests.api import problems
from tests.api.probe_app import SECRET_TEXT, captured_log, probe_app


@pytest.fixture(scope="module")
def service(settings: Settings, unbound_sessions: sessionmaker[Session]) -> FastAPI:
    """The service with the probe's routes, made once."""
    return probe_app(settings, unbound_sessions)


@pytest.fixture
def probe(service: FastAPI, bundled_catalog: CatalogHolder, session_factory: sessionmaker[Session]) -> Iterator[TestClient]:
    """A client of it, on the database of this test."""
    assert service.state.session_factory is session_factory
    service.state.catalog = bundled_catalog.copy()
    with TestClient(service) as client:
        yield client


def problem(answer: Response, status: int, code: str) -> dict[str, Any]:
    """The problem in an answer, which gives nothing away."""
    assert SECRET_TEXT not in answer.text
    return problems.problem(answer, status, code)


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [
        ("planner", 422, "planner_error"),
        ("invalid", 422, "invalid_input"),
        ("unknown", 422, "unknown_name"),
        ("figure", 422, "missing_figure"),
        ("config", 422, "unsupported_config"),
        ("missing", 404, "not_found"),
        ("exists", 409, "already_exists"),
        ("bundled", 409, "read_only"),
        ("stale", 412, "stale_version"),
        ("replay", 422, "idempotency_conflict"),
    ],
)
def test_what_the_planner_refuses_has_its_own_status_and_code(probe: TestClient, name: str, status: int, code: str) -> None:
    problem(probe.get(f"/probe/refuse/{name}"), status, code)


def test_the_table_covers_every_class_of_planner_errors() -> None:
    assert set(STATUS_OF) == {errors.PlannerError, *errors.PlannerError.__subclasses__()}


def test_a_planner_error_names_field_value_and_what_was_expected(probe: TestClient) -> None:
    body = problem(probe.post("/probe/refuse/invalid", json={}), 422, "invalid_input")
    assert body["detail"] == "tp 3 does not divide 8 heads."
    (field,) = body["errors"]
    assert (field["location"], field["pointer"], field["value"], field["expected"]) == ("body", "/deployment/tp", 3, "a divisor of 8")


def test_a_close_miss_is_answered_with_the_nearest_names(probe: TestClient) -> None:
    (field,) = problem(probe.post("/probe/refuse/unknown", json={}), 422, "unknown_name")["errors"]
    assert field["expected"] == "h100-sxm-80gb, h200"
    assert field["value"] == "h1000"


def test_a_value_that_is_no_scalar_is_not_repeated(probe: TestClient) -> None:
    (field,) = problem(probe.post("/probe/refuse/config", json={}), 422, "unsupported_config")["errors"]
    assert field["value"] is None


INVALID = [
    ({"num_rows": 0}, "/num_rows", "greater_than", 0, "greater than 0"),
    ({"num_rows": "many"}, "/num_rows", "int_parsing", "many", "a whole number"),
    ({"num_rows": 1e30}, "/num_rows", "int_parsing_size", 1e30, "a whole number within the limits that /openapi.json gives for the field"),
    ({"num_rows": 2.5}, "/num_rows", "int_from_float", 2.5, "a valid integer, got a number with a fractional part"),
    ({"rate_per_s": None}, "/rate_per_s", "float_type", None, "a valid number"),
    ({"kind": "c"}, "/kind", "literal_error", "c", "'a' or 'b'"),
    ({"kind": "c" * 101}, "/kind", "literal_error", None, "'a' or 'b'"),
    ({"even": 3}, "/even", "value_error", 3, "must be even"),
    ({"nuM_rows": 1}, "/nuM_rows", "extra_forbidden", 1, "only the fields that /openapi.json describes"),
    ({"a/b~": True}, "/a~1b~0", "extra_forbidden", True, "only the fields that /openapi.json describes"),
    ({"anything": [1]}, "/anything", "dict_type", None, "an object"),
]


@pytest.mark.parametrize(("body", "pointer", "code", "value", "expected"), INVALID, ids=lambda part: str(part)[:30])
def test_an_invalid_field_is_named_with_its_value_and_what_was_expected(
    probe: TestClient, body: Any, pointer: str, code: str, value: object, expected: str
) -> None:
    answer = problem(probe.post("/probe", json=body), 422, "invalid_request")
    (field,) = answer["errors"]
    assert (field["location"], field["pointer"], field["code"], field["value"]) == ("body", pointer, code, value)
    assert field["expected"] == expected
    assert answer["detail"].startswith(f"{pointer}: ")


def test_every_invalid_field_is_named(probe: TestClient) -> None:
    body = problem(probe.post("/probe", json={"num_rows": 0, "rate_per_s": -1, "x": 1}), 422, "invalid_request")
    assert {field["pointer"] for field in body["errors"]} == {"/num_rows", "/rate_per_s", "/x"}


def test_a_pointer_into_a_union_names_no_member_of_it(probe: TestClient) -> None:
    body = problem(probe.post("/probe", json={"gpu": {"memory_bytes": -1}}), 422, "invalid_request")
    assert {"/gpu", "/gpu/memory_bytes"} == {field["pointer"] for field in body["errors"]}
    missing = problem(probe.post("/probe", json={"gpu": {}}), 422, "invalid_request")
    assert "/gpu/memory_bytes" in {field["pointer"] for field in missing["errors"]}


@pytest.mark.parametrize("content", [b"[]", b"1", b'"x"', b"null"])
def test_a_body_that_is_no_object_is_refused(probe: TestClient, content: bytes) -> None:
    body = problem(probe.post("/probe", content=content, headers={"content-type": "application/json"}), 422, "invalid_request")
    assert body["errors"][0]["pointer"] == ""
    assert body["errors"][0]["expected"] in ("an object", "a value")


def test_no_body_at_all_is_refused(probe: TestClient) -> None:
    body = problem(probe.post("/probe"), 422, "invalid_request")
    assert body["errors"] == [
        {"location": "body", "pointer": "", "code": "missing", "detail": "This field is required", "expected": "a value", "value": None}
    ]


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b'{"rate_per_s": NaN}', 422, "not_finite"),
        (b'{"anything": {"deep": [Infinity]}}', 422, "not_finite"),
        (b'{"rate_per_s": 1e999}', 422, "not_finite"),
        (b'{"num_rows": ' + b"9" * 10_000 + b"}", 422, "integer_too_long"),
        (rb'{"gpu": "\u0000"}', 422, "nul_character"),
        (rb'{"gpu": "\ud800"}', 422, "lone_surrogate"),
        (b'{"gpu": "a", "gpu": "b"}', 422, "duplicate_key"),
        (b'{"anything": ' + b"[" * 100_000, 422, "nested_too_deep"),
        (b'{"gpu": "\xff"}', 400, "not_utf8"),
        (b"{", 400, "malformed_json"),
    ],
)
def test_unusable_json_is_refused_before_the_endpoint(probe: TestClient, content: bytes, status: int, code: str) -> None:
    body = problem(probe.post("/probe", content=content, headers={"content-type": "application/json"}), status, code)
    assert len(json.dumps(body)) < 3000


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "application/xml", "json", "application/jsonx", ""]
)
def test_another_content_type_is_refused(probe: TestClient, content_type: str) -> None:
    answer = probe.post("/probe", content=b"{}", headers={"content-type": content_type})
    problem(answer, 415, "unsupported_media_type")
    assert answer.headers["accept"] == "application/json"


@pytest.mark.parametrize(
    "content_type", ["application/json", "application/json; charset=utf-8", "Application/JSON", "application/merge-patch+json"]
)
def test_every_spelling_of_json_is_taken(probe: TestClient, content_type: str) -> None:
    assert probe.post("/probe", content=b"{}", headers={"content-type": content_type}).status_code == 200


def test_a_compressed_body_is_refused(probe: TestClient) -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    problem(probe.post("/probe", content=b"\x1f\x8b", headers=headers), 415, "unsupported_content_coding")


def test_an_invalid_query_parameter_is_named(probe: TestClient) -> None:
    (field,) = problem(probe.get("/probe?limit=0"), 422, "invalid_request")["errors"]
    assert (field["location"], field["pointer"], field["value"]) == ("query", "/limit", "0")


def test_an_invalid_path_parameter_is_named(probe: TestClient) -> None:
    (field,) = problem(probe.put("/probe/items/x"), 422, "invalid_request")["errors"]
    assert (field["location"], field["pointer"], field["value"]) == ("path", "/number", "x")


def test_the_value_of_a_header_is_never_repeated(probe: TestClient) -> None:
    answer = probe.put("/probe/items/1", headers={"X-Secret": SECRET_TEXT})
    (field,) = problem(answer, 422, "invalid_request")["errors"]
    assert (field["location"], field["pointer"], field["value"]) == ("header", "/x-secret", None)


def test_an_unknown_path_is_a_problem(probe: TestClient) -> None:
    problem(probe.get("/nowhere"), 404, "unknown_path")
    problem(probe.get("/livez/"), 404, "unknown_path")


def test_a_wrong_method_names_those_of_every_route_of_the_path(probe: TestClient) -> None:
    answer = probe.delete("/probe")
    problem(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, HEAD, POST, OPTIONS"
    assert probe.get("/probe/items/1").headers["allow"] == "PUT, OPTIONS"


def test_options_is_answered_with_the_methods(probe: TestClient) -> None:
    answer = probe.options("/probe")
    assert (answer.status_code, answer.headers["allow"], answer.content) == (204, "GET, HEAD, POST, OPTIONS", b"")
    problem(probe.options("/nowhere"), 404, "unknown_path")


def test_head_answers_like_get_without_the_body(probe: TestClient) -> None:
    got, head = probe.get("/livez"), probe.head("/livez")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == got.headers["content-length"]
    assert probe.head("/nowhere").status_code == 404
    assert probe.head("/probe/items/1").status_code == 405


def test_an_exception_of_the_framework_keeps_its_status_and_headers(probe: TestClient) -> None:
    answer = probe.get("/probe/teapot")
    problem(answer, 418, "im_a_teapot")
    assert answer.headers["x-handle"] == "left"


def test_an_unforeseen_exception_is_answered_without_its_text(settings: Settings, session_factory: sessionmaker[Session]) -> None:
    with captured_log() as log, TestClient(probe_app(settings, session_factory)) as client:
        body = problem(client.get("/probe/crash"), 500, "internal_error")
    assert SECRET_TEXT in log.getvalue(), "the cause belongs into the log"
    assert body["request_id"] in log.getvalue()


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [("integer", 422, "result_out_of_range"), ("float", 422, "result_out_of_range"), ("other", 500, "internal_error")],
)
def test_a_result_that_no_double_holds_is_the_callers_and_any_other_broken_value_ours(
    settings: Settings, session_factory: sessionmaker[Session], name: str, status: int, code: str
) -> None:
    with captured_log() as log, TestClient(probe_app(settings, session_factory)) as client:
        problem(client.get(f"/probe/overflow/{name}"), status, code)
    assert "Traceback" in log.getvalue()


def test_a_database_that_is_away_is_answered_503_with_the_time_to_retry(settings: Settings) -> None:
    nowhere = create_engine("postgresql+psycopg://nobody@127.0.0.1:1/none", connect_args={"connect_timeout": 2})
    with TestClient(probe_app(settings, sessionmaker(nowhere))) as client:
        answer = client.post("/probe/commit/1")
        assert int(answer.headers["retry-after"]) > 0
        assert "127.0.0.1" not in answer.text
        problem(answer, 503, "database_unavailable")


def test_a_commit_that_fails_is_not_answered_with_success(settings: Settings, engine: Any) -> None:
    with engine.begin() as connection:
        connection.execute(text("create table probe_deferred (value int unique deferrable initially deferred)"))
    try:
        with TestClient(probe_app(settings, sessionmaker(engine))) as client:
            assert client.post("/probe/commit/1").status_code == 201
            problem(client.post("/probe/commit/1"), 409, "conflict")
            assert client.post("/probe/commit/2").status_code == 201
        with engine.connect() as connection:
            assert connection.scalars(text("select value from probe_deferred order by value")).all() == [1, 2]
    finally:
        with engine.begin() as connection:
            connection.execute(text("drop table probe_deferred"))


@pytest.mark.parametrize(
    ("value", "repeated"),
    [
        (True, True),
        (3, 3),
        (2.5, 2.5),
        ("x" * 100, "x" * 100),
        ("x" * 101, None),
        ("a\nb", None),
        ("\ud800", None),
        (float("nan"), None),
        (float("inf"), None),
        (2**63, None),
        ([1], None),
        (None, None),
    ],
)
def test_only_short_printable_scalars_are_repeated(value: object, repeated: object) -> None:
    assert repeatable(value) == repeated


def test_a_pointer_skips_what_the_body_does_not_hold() -> None:
    body = {"gpus": [{"spec": {"memory_bytes": 0}}]}
    assert pointer_of(["gpus", 0, "function-after", "spec", "Spec", "memory_bytes"], body, keep_last=False) == "/gpus/0/spec/memory_bytes"
    assert pointer_of(["gpus", 0, "spec", "Spec", "name"], body, keep_last=True) == "/gpus/0/spec/name"
