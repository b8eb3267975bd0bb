"""A real PostgreSQL for the whole run, built by the migrations; each test works in a transaction that is rolled back."""

import gc
import os
import tempfile
from collections.abc import Iterator
from uuid import uuid4

import hypothesis
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import Engine, make_url, text
from sqlalchemy.orm import Session, sessionmaker

from app.db import schema
from app.db.session import open_engine
from app.embedded_postgres import EmbeddedPostgres
from app.main import create_app
from app.services.catalog import CatalogHolder, sync_bundled
from app.settings import Settings

# A busy machine is no failure, and CI tries the same examples each time; elsewhere every run tries new ones.
hypothesis.settings.register_profile("steady", deadline=None, derandomize="CI" in os.environ, print_blob=True)
hypothesis.settings.load_profile("steady")

MOST_WORKERS = 8
"""Each has a PostgreSQL and a collection of its own, so that more would spare little time."""


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """A run of the whole suite has a process for each CPU, unless -n says otherwise, where pytest-xdist is installed.

    What names files or folders runs in one: others would take longer to start. A file's tests stay together, since they share fixtures.
    """
    if not config.pluginmanager.hasplugin("xdist") or hasattr(config, "workerinput"):
        return
    option = config.option
    if option.numprocesses is None:
        option.numprocesses = 0 if option.file_or_dir or option.usepdb else min(os.cpu_count() or 1, MOST_WORKERS)
    if option.numprocesses:
        option.dist, option.loadscopereorder = "loadfile", False


def pytest_collection_finish() -> None:
    """What is collected stays to the end of the run: the garbage collector need not walk through it at every full pass."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def database_url() -> Iterator[str]:
    """Address of a server: TEST_DATABASE_URL (its database is migrated and written to), else one started for this run."""
    if given := os.environ.get("TEST_DATABASE_URL"):
        url = Settings(database_url=given).database_url
        assert url is not None
        yield url
        return
    # Not pytest's own temporary directory: it is closed to the account that runs the server when the tests run as root.
    with tempfile.TemporaryDirectory(prefix="inferplan-test-") as directory, EmbeddedPostgres(directory, durable=False) as url:
        yield url


@pytest.fixture(scope="session")
def engine(database_url: str) -> Iterator[Engine]:
    """Engine on a database at the newest revision that holds the bundled catalogs."""
    engine = open_engine(database_url)
    schema.upgrade(engine)
    with Session(engine) as session, session.begin():
        sync_bundled(session)
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def unbound_sessions() -> sessionmaker[Session]:
    """The one maker of sessions of this run, bound to another connection for each test, so that one application serves them all."""
    return sessionmaker(expire_on_commit=False, join_transaction_mode="create_savepoint")


@pytest.fixture
def session_factory(engine: Engine, unbound_sessions: sessionmaker[Session]) -> Iterator[sessionmaker[Session]]:
    """Maker of sessions on one connection: what they commit is seen by the later ones and rolled back after the test."""
    with engine.connect() as connection:
        outer = connection.begin()
        unbound_sessions.configure(bind=connection)
        yield unbound_sessions
        unbound_sessions.configure(bind=None)
        outer.rollback()


@pytest.fixture
def session(session_factory: sessionmaker[Session]) -> Iterator[Session]:
    """One session, rolled back after the test."""
    with session_factory() as session:
        yield session


@pytest.fixture(scope="session")
def settings(database_url: str) -> Settings:
    """Settings of a service on loopback, whatever the environment of the run says."""
    return Settings(
        database_url=database_url,
        host="127.0.0.1",
        port=8000,
        max_body_bytes=4 * 2**20,
        max_scrape_body_bytes=32 * 2**20,
        log_json=True,
        require_api_key=None,
        catalog_poll_s=3600,
    )


@pytest.fixture(scope="session")
def application(settings: Settings, unbound_sessions: sessionmaker[Session]) -> FastAPI:
    """The service, made once: its routes take a quarter of a second."""
    return create_app(settings, session_factory=unbound_sessions)


@pytest.fixture(scope="session")
def bundled_catalog(engine: Engine) -> CatalogHolder:
    """The snapshot that every test begins with, read once: that takes longer than most tests."""
    holder = CatalogHolder()
    with Session(engine) as session:
        holder.refresh(session)
    return holder


@pytest.fixture
def client(application: FastAPI, bundled_catalog: CatalogHolder, session_factory: sessionmaker[Session]) -> Iterator[TestClient]:
    """The service in this process, with the bundled catalogs, on the database of this test."""
    assert application.state.session_factory is session_factory
    application.state.catalog = bundled_catalog.copy()  # that of the last test may hold entries that were rolled back
    with TestClient(application) as client:
        yield client
    application.dependency_overrides.clear()


@pytest.fixture
def own_database_url(database_url: str) -> Iterator[str]:
    """Address of an empty database, for tests that need commits, other processes or another schema."""
    server = open_engine(database_url)
    name = f"test_{uuid4().hex}"
    with server.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"create database {name}"))
    yield make_url(database_url).set(database=name).render_as_string(hide_password=False)
    with server.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"drop database {name} with (force)"))
    server.dispose()
