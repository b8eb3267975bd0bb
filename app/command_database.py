"""The database of a command: the one that DATABASE_URL names, or the embedded server."""

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from sqlalchemy import Engine
from sqlalchemy.exc import ArgumentError, OperationalError, ProgrammingError

from app.db import schema
from app.db.session import open_engine
from app.settings import Settings

DATABASE_PATIENCE_S = 30.0  # a server that is started together with the service needs a moment


class CommandError(Exception):
    """What keeps a command from being carried out; the message says what to do."""


@contextmanager
def opened_database(settings: Settings, *, migrate: bool | None = None, package: str | None = None) -> Iterator[Engine]:
    """Give an engine on DATABASE_URL, or on the embedded server, which is stopped afterwards.

    `migrate` None brings the schema up to date on the embedded server only: another one is changed when asked.
    `package` is the wheel of the embedded server.
    """
    if settings.database_url is not None:
        with engine_on(settings.database_url) as engine:
            wait_for_server(engine)
            if migrate:
                schema.upgrade(engine)
            yield engine
        return
    # Not at the top: it is for POSIX only, and a service with DATABASE_URL does without it.
    from app.embedded_postgres import PACKAGE, EmbeddedPostgres, EmbeddedPostgresError

    with ExitStack() as stack:
        try:
            url = stack.enter_context(EmbeddedPostgres(settings.data_dir, package=package or PACKAGE))
        except EmbeddedPostgresError as error:
            raise CommandError(str(error)) from None
        engine = stack.enter_context(engine_on(url))
        if migrate is not False:
            schema.upgrade(engine)
        yield engine


def address_of(engine: Engine) -> str:
    """The address of the database for another process."""
    return engine.url.render_as_string(hide_password=False)


@contextmanager
def engine_on(url: str) -> Iterator[Engine]:
    """Give an engine whose connections are closed afterwards; raises CommandError for what is no address."""
    try:
        engine = open_engine(url)
    except (ArgumentError, ValueError):  # whose texts hold parts of the address, and with them of the password
        raise CommandError(
            "DATABASE_URL must be the address of a PostgreSQL server, postgresql://user:password@host:5432/name; "
            "in user and password @ : / and % are written %40 %3A %2F and %25"
        ) from None
    try:
        yield engine
    finally:
        engine.dispose()


def wait_for_server(engine: Engine, *, patience_s: float = DATABASE_PATIENCE_S) -> None:
    """Wait until a server answers; raise CommandError when it does not within `patience_s` [s]."""
    deadline = time.monotonic() + patience_s
    told = False
    while True:
        try:
            engine.connect().close()
        except ProgrammingError as error:
            raise CommandError(f"DATABASE_URL is not understood: {error.orig}") from None
        except OperationalError as error:
            if time.monotonic() > deadline:
                raise CommandError(f"the server that DATABASE_URL names does not answer: {error.orig}") from None
            if not told:
                print(f"waiting for the database: {error.orig}", file=sys.stderr)
                told = True
            time.sleep(0.5)
        else:
            return
