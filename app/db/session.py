"""Connections: one engine a process, one session a transaction."""

from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import Session, sessionmaker

POOL_SIZE = 10
POOL_OVERFLOW = 10
POOL_TIMEOUT_S = 5
CONNECT_TIMEOUT_S = 5


def open_engine(database_url: str) -> Engine:
    """Return an engine on a PostgreSQL server that fails within seconds, not minutes, when the server is away."""
    return create_engine(
        database_url,
        pool_size=POOL_SIZE,
        max_overflow=POOL_OVERFLOW,
        pool_timeout=POOL_TIMEOUT_S,
        pool_pre_ping=True,  # a restarted server costs a new connection, not a failed request
        connect_args={"connect_timeout": CONNECT_TIMEOUT_S, "application_name": "inferplan"},
    )


def session_factory(engine: Engine) -> sessionmaker[Session]:
    """Return the maker of sessions; values are read out before the commit, so nothing expires with it."""
    return sessionmaker(engine, expire_on_commit=False)
