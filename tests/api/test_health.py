"""Health, readiness and metrics: open, cheap, and right while the database is away."""

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session, sessionmaker

from app import __version__
from app.main import create_app
from app.services.readiness import readiness
from app.settings import Settings
from tests.api.probe_app import captured_log, probe_app

NOWHERE = "postgresql+psycopg://nobody@127.0.0.1:1/none"


@pytest.fixture
def away(settings: Settings) -> Iterator[TestClient]:
    """The service as it starts while its database is away."""
    factory = sessionmaker(create_engine(NOWHERE, connect_args={"connect_timeout": 2}))
    with TestClient(create_app(settings, session_factory=factory)) as client:
        yield client


@pytest.mark.parametrize("path", ["/livez", "/healthz"])
def test_the_process_is_alive_whatever_the_database_does(client: TestClient, away: TestClient, path: str) -> None:
    for service in (client, away):
        answer = service.get(path)
        assert (answer.status_code, answer.json()) == (200, {"status": "alive", "version": __version__})


def test_it_is_ready_when_database_schema_and_catalog_are_in_order(client: TestClient) -> None:
    answer = client.get("/readyz")
    assert answer.status_code == 200
    assert answer.json()["ready"] is True
    assert {check["name"]: check["ok"] for check in answer.json()["checks"]} == {"database": True, "migrations": True, "catalog": True}


def test_without_its_database_it_says_that_it_is_not_ready_and_why(away: TestClient) -> None:
    answer = away.get("/readyz")
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/problem+json"
    assert int(answer.headers["retry-after"]) > 0
    assert answer.json()["code"] == "not_ready"
    assert {"/database", "/migrations"} <= {field["pointer"] for field in answer.json()["errors"]}
    assert "127.0.0.1" not in answer.text


def test_a_database_at_another_revision_is_not_ready(session_factory: sessionmaker[Session]) -> None:
    with session_factory.begin() as session:
        session.execute(text("update alembic_version set version_num = 'older'"))
    found = {check.name: check for check in readiness(session_factory, catalog_version="1").checks}
    assert not found["migrations"].ok
    assert "older" in found["migrations"].detail
    assert "inferplan migrate" in found["migrations"].detail
    assert found["database"].ok


def test_a_database_that_was_never_migrated_is_not_ready(engine: Engine) -> None:
    with engine.connect() as connection:
        connection.execute(text("create schema empty"))
        connection.execute(text("set local search_path to empty"))
        found = readiness(sessionmaker(connection, join_transaction_mode="create_savepoint"), catalog_version=None)
        connection.rollback()
    assert [check.name for check in found.checks if not check.ok] == ["migrations", "catalog"]


def test_metrics_name_route_templates_and_leave_out_the_probes(settings: Settings, session_factory: sessionmaker[Session]) -> None:
    with captured_log(), TestClient(probe_app(settings, session_factory)) as client:
        for number in range(30):
            client.put(f"/probe/items/{number}")
            client.get(f"/nowhere/{number}")
            client.request(f"X{number}", "/probe")
        client.get("/probe/crash")
        for path in ("/livez", "/readyz", "/metrics"):
            client.get(path)
        answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    counts = [line for line in answer.text.splitlines() if line.startswith("http_server_request_duration_seconds_count")]
    assert len(counts) == 4, "one series each for the template, the unknown paths, the unknown methods and the failure"
    assert sum(float(line.rpartition(" ")[2]) for line in counts) == 91
    (items,) = [line for line in counts if 'http_route="/probe/items/{number}"' in line]
    assert 'http_request_method="PUT"' in items
    assert 'http_response_status_code="200"' in items
    assert items.endswith(" 30.0")
    assert "livez" not in answer.text
    assert "/metrics" not in answer.text


def test_each_application_has_metrics_of_its_own(client: TestClient, settings: Settings, session_factory: sessionmaker[Session]) -> None:
    client.get("/nowhere")
    with TestClient(create_app(settings, session_factory=session_factory)) as other:
        assert "http_server_request_duration_seconds_count" not in other.get("/metrics").text
    assert "http_server_request_duration_seconds_count" in client.get("/metrics").text
