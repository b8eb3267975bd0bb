"""The queue that hands parts of jobs to workers: Procrastinate (https://procrastinate.readthedocs.io) in a schema of the same database.

A part is deferred in the transaction that writes it, so that neither is ever without the other.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

import psycopg
from procrastinate import App, PsycopgConnector, RetryStrategy, SyncPsycopgConnector
from procrastinate.types import JSONDict
from sqlalchemy import URL, text
from sqlalchemy.orm import Session

from app.db.session import POOL_TIMEOUT_S

SCHEMA = "job_queue"
"""Where migration 0004 makes Procrastinate's tables, whose SQL names no schema."""
QUEUE = "parts"
TASK = "compute"
UPKEEP_LOCK = 0x494E_4645_5155_4555
"""The advisory lock of who puts back what dead workers held: "INFEQUEU"."""
FAULT_PAUSE_S = 5
"""After a fault of the database, not of the job, a part is tried again so much later [s]."""

_PATH = f"set_config('search_path', '{SCHEMA}, ' || current_setting('search_path'), "
_deferring = App(connector=SyncPsycopgConnector())
"""Never opened: it defers on the connections of sessions."""


def defer(session: Session, job_id: UUID, numbers: Sequence[int], *, priority: int) -> None:
    """Queue parts of a job with the session's transaction; higher priorities first, then the older."""
    before = session.execute(text("select current_setting('search_path')")).scalar_one()
    session.execute(text(f"select {_PATH} true)"))
    connection = session.connection().connection.driver_connection
    deferrer = _deferring.configure_task(TASK, queue=QUEUE, priority=priority, connection=connection)
    arguments: list[JSONDict] = [{"job_id": str(job_id), "number": number} for number in numbers]
    deferrer.batch_defer(*arguments)
    session.execute(text("select set_config('search_path', :before, true)"), {"before": before})


def num_workers(session: Session, alive_within_s: float) -> int:
    """Workers whose last sign of life is no older."""
    statement = f"select count(*) from {SCHEMA}.procrastinate_workers where last_heartbeat > now() - make_interval(secs => :within_s)"  # noqa: S608 - a constant
    return int(session.execute(text(statement), {"within_s": alive_within_s}).scalar_one())


def queue_on(url: URL, compute: Callable[..., Awaitable[None]]) -> App:
    """The queue as a worker takes from it, with connections of its own; `compute` is called with `job_id` and `number` of a part."""
    address = url.set(drivername="postgresql").render_as_string(hide_password=False)
    app = App(connector=PsycopgConnector(conninfo=address, min_size=1, max_size=4, timeout=POOL_TIMEOUT_S, configure=_see_schema))
    app.task(name=TASK, queue=QUEUE, retry=RetryStrategy(wait=FAULT_PAUSE_S), pass_context=True)(compute)
    return app


@asynccontextmanager
async def exclusive(queue: App) -> AsyncIterator[bool]:
    """Whether this process alone looks after the queue for the time being; others that ask meanwhile do not."""
    connector = queue.connector
    assert isinstance(connector, PsycopgConnector)  # noqa: S101 - queue_on makes no other
    async with connector.pool.connection() as connection, connection.transaction():
        found = await (await connection.execute("select pg_try_advisory_xact_lock(%s)", [UPKEEP_LOCK])).fetchone()
        yield bool(found and found[0])


async def _see_schema(connection: "psycopg.AsyncConnection[tuple[object, ...]]") -> None:
    await connection.execute(f"select {_PATH} false)")
    if not connection.autocommit:
        await connection.commit()
