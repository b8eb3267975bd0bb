"""Logs: one line a request, as JSON for machines; the server's and libraries' messages come out the same way."""

import io
import json
import logging
import warnings
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
import structlog
from fastapi.testclient import TestClient
from sqlalchemy.orm import Session, sessionmaker

from app import log_setup
from app.settings import Settings
from tests.api.probe_app import SECRET_TEXT, captured_log, probe_app


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What is logged as JSON."""
    with captured_log() as stream:
        yield stream


def _events(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.fixture
def probe(lines: io.StringIO, settings: Settings, session_factory: sessionmaker[Session]) -> Iterator[TestClient]:
    """The service, logging to `lines`."""
    with TestClient(probe_app(settings, session_factory)) as client:
        yield client


def test_a_request_is_one_line_with_its_route_and_id(probe: TestClient, lines: io.StringIO) -> None:
    probe.put("/probe/items/7?token=private", headers={"X-Request-ID": "abc"})
    (event,) = [event for event in _events(lines) if event["event"] == "request"]
    duration_s = event.pop("duration_s")
    assert isinstance(duration_s, float)
    assert 0 < duration_s < 10
    assert datetime.fromisoformat(str(event.pop("at"))).utcoffset() == timedelta(0)
    assert event == {
        "event": "request",
        "level": "info",
        "method": "PUT",
        "route": "/probe/items/{number}",
        "status": 200,
        "request_id": "abc",
    }


def test_a_refused_request_is_logged_with_the_code_of_its_problem(probe: TestClient, lines: io.StringIO) -> None:
    probe.get("/probe/refuse/stale")
    probe.post("/probe", content=b"{", headers={"content-type": "application/json"})
    assert [event["problem"] for event in _events(lines) if event["event"] == "request"] == ["stale_version", "malformed_json"]


def test_an_unforeseen_exception_is_logged_once_with_its_traceback_and_the_request(probe: TestClient, lines: io.StringIO) -> None:
    answer = probe.get("/probe/crash")
    failures = [event for event in _events(lines) if "exception" in event]
    (failure,) = failures
    assert failure["request_id"] == answer.headers["x-request-id"]
    assert failure["level"] == "error"
    assert SECRET_TEXT in str(failure["exception"])
    assert "test_log_setup" not in str(failure["exception"])


@pytest.fixture
def unconfigured() -> Iterator[None]:
    """Logging of a service that something other than the command starts, and that has not set it up."""
    structlog.reset_defaults()
    yield
    log_setup.reset()


def test_without_set_up_a_traceback_has_no_local_variables(
    unconfigured: None, settings: Settings, session_factory: sessionmaker[Session], capsys: pytest.CaptureFixture[str]
) -> None:
    with TestClient(probe_app(settings, session_factory)) as client:
        assert client.get("/probe/crash").status_code == 500
    printed = "".join(capsys.readouterr())
    assert "Traceback (most recent call last)" in printed
    assert SECRET_TEXT in printed
    assert "locals" not in printed
    assert str(settings.database_url) not in printed


def test_probes_that_succeed_are_not_logged(probe: TestClient, lines: io.StringIO) -> None:
    for path in ("/livez", "/readyz", "/metrics"):
        assert probe.get(path).status_code == 200
    assert not [event for event in _events(lines) if not str(event.get("logger")).startswith("httpx")]


def test_a_caller_cannot_write_lines_of_his_own(probe: TestClient, lines: io.StringIO) -> None:
    probe.get('/nowhere%0a{"event":"forged"}')
    probe.request("GET", "/probe", headers={"X-Request-ID": "x\ty"})
    probe.request('GET","forged":"yes', "/probe")
    ours = [event for event in _events(lines) if not str(event.get("logger")).startswith("httpx")]
    assert [event["event"] for event in ours] == ["request"] * 3
    assert ours[-1]["method"] == 'GET","FORGED":"YES'


def test_what_a_migration_does_is_logged_and_its_introduction_is_not(lines: io.StringIO) -> None:
    alembic = logging.getLogger("alembic.runtime.migration")
    for message in ("Context impl %s.", "Will assume %s DDL.", "Running upgrade %s"):
        alembic.info(message, "x")
    assert [event["event"] for event in _events(lines)] == ["Running upgrade x"]


def test_messages_of_libraries_and_warnings_come_out_as_json(lines: io.StringIO) -> None:
    logging.getLogger("uvicorn.error").info("Started %s", "process")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", UserWarning, stacklevel=1)
    try:
        raise ValueError("cause")
    except ValueError:
        logging.getLogger("sqlalchemy.pool").exception("failed")
    started, warned, failed = _events(lines)
    assert (started["event"], started["level"], started["logger"]) == ("Started process", "info", "uvicorn.error")
    assert "old" in str(warned["event"])
    assert "ValueError: cause" in str(failed["exception"])


def test_people_get_columns(lines: io.StringIO) -> None:
    stream = io.StringIO()
    log_setup.configure(as_json=False, stream=stream)
    structlog.get_logger().info("hello", num_rows=3)
    log_setup.log_request(request_id="abc", method="GET", route="/gpus", status=404, duration_s=0.25, problem="not_found")
    logging.getLogger("uvicorn.error").info("there")
    assert "hello" in stream.getvalue()
    assert "num_rows=3" in stream.getvalue()
    assert "there" in stream.getvalue()
    assert "problem=not_found" in stream.getvalue()
    assert "{" not in stream.getvalue()
