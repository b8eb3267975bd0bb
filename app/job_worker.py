"""A process that computes parts of jobs, one at a time: `python -m app.job_worker`, started by `app.worker_processes`.

The main thread keeps the queue's heartbeat and listens for new parts; a thread computes. The process ends in order at SIGTERM, and when its
standard input ends, which is when the process that started it has ended, however that came.
"""

import asyncio
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from datetime import timedelta
from uuid import UUID

import structlog
from procrastinate import App, JobContext
from procrastinate.exceptions import ConnectorException
from sqlalchemy import Engine
from sqlalchemy.orm import Session, sessionmaker

from app import log_setup
from app.db.job_queue import QUEUE, exclusive, queue_on
from app.db.session import open_engine, session_factory
from app.services.catalog import CatalogHolder
from app.services.jobs import compute_part, delete_old
from app.settings import Settings

NICENESS = 5
"""Workers give way to what answers requests on the same machine."""
HEARTBEATS = 4
"""Signs of life within the time after which a worker counts as dead."""
ORPHAN_ENDS_WITHIN_S = 5.0
LONGEST_POLL_S = 2.0
"""New parts are announced; those of a dead worker are only found [s]."""
CLEANING_INTERVAL_S = 600.0


def main() -> None:
    """Work until told to end."""
    settings = Settings()
    log_setup.configure(as_json=settings.log_json)
    if settings.database_url is None:
        sys.exit("a worker needs DATABASE_URL")
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    engine = open_engine(settings.database_url)
    try:
        asyncio.run(Worker(settings, engine).work())
    finally:
        engine.dispose()


class Worker:
    """One worker."""

    def __init__(self, settings: Settings, engine: Engine) -> None:
        self.settings = settings
        self.make_session: sessionmaker[Session] = session_factory(engine)
        self.catalog = CatalogHolder()
        self.stopping = threading.Event()
        self.queue: App = queue_on(engine.url, self._compute)

    async def work(self) -> None:
        """Take parts until told to end; raises what keeps the queue from working, and then another process starts afresh."""
        dead_after_s = self.settings.worker_dead_after_s
        async with self.queue.open_async():
            working = asyncio.create_task(
                self.queue.run_worker_async(
                    queues=[QUEUE],
                    name=f"worker-{os.getpid()}",
                    concurrency=1,
                    delete_jobs="always",
                    install_signal_handlers=False,
                    fetch_job_polling_interval=min(LONGEST_POLL_S, dead_after_s),
                    update_heartbeat_interval=dead_after_s / HEARTBEATS,
                    stalled_worker_timeout=dead_after_s,
                )
            )
            self._end_on_signals(working)
            upkeep = asyncio.create_task(self._keep_up(dead_after_s))
            structlog.get_logger().info("worker_started", pid=os.getpid())
            with suppress(asyncio.CancelledError):
                await working
            upkeep.cancel()
            with suppress(asyncio.CancelledError):
                await upkeep
        structlog.get_logger().info("worker_ended", pid=os.getpid())

    async def _compute(self, _context: JobContext, job_id: str, number: int) -> None:
        await asyncio.to_thread(self._computed, UUID(job_id), number)

    def _computed(self, job_id: UUID, number: int) -> None:
        self.catalog.refresh_from(self.make_session)
        compute_part(self.make_session, lambda: self.catalog.current, self.stopping, job_id, number)

    def _end_on_signals(self, working: "asyncio.Task[None]") -> None:
        loop = asyncio.get_running_loop()

        def end() -> None:
            self.stopping.set()
            working.cancel()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, end)

        def wait_for_parent() -> None:
            sys.stdin.buffer.read()
            with suppress(RuntimeError):  # the loop has ended already
                loop.call_soon_threadsafe(end)
            time.sleep(ORPHAN_ENDS_WITHIN_S)
            os._exit(1)  # the database may have gone, too, and what is tried with it takes its time

        threading.Thread(target=wait_for_parent, name="parent", daemon=True).start()

    async def _keep_up(self, dead_after_s: float) -> None:
        """Put back what dead workers held, and delete old jobs; one worker at a time does, and each could."""
        cleaned_at_s, loop = 0.0, asyncio.get_running_loop()
        while True:
            await asyncio.sleep(dead_after_s / HEARTBEATS)
            try:
                async with exclusive(self.queue) as mine:
                    if mine:
                        await self._put_back(dead_after_s)
                if loop.time() - cleaned_at_s > CLEANING_INTERVAL_S:
                    cleaned_at_s = loop.time()
                    await asyncio.to_thread(delete_old, self.make_session, timedelta(days=self.settings.job_retention_days))
            except Exception as error:
                structlog.get_logger().warning("upkeep_failed", error=type(error).__name__)

    async def _put_back(self, dead_after_s: float) -> None:
        manager = self.queue.job_manager
        for part in await manager.get_stalled_jobs(seconds_since_heartbeat=dead_after_s):
            structlog.get_logger().warning("worker_lost", **part.task_kwargs)
            with suppress(ConnectorException):  # it has ended meanwhile
                await manager.retry_job(part)
        await manager.prune_stalled_workers(dead_after_s)


if __name__ == "__main__":
    main()
