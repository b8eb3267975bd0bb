"""Worker processes that are started, watched and ended together with this process."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
"""Before a worker that ended is started again; doubled from time to time while it ends early [s]."""
EARLY_S = 60.0
STOP_WITHIN_S = 10.0
LOOK_INTERVAL_S = 0.2


@dataclass
class _Place:
    """One worker, and the next in its place."""

    process: "subprocess.Popen[bytes] | None" = None
    started_at_s: float = 0.0
    start_at_s: float = 0.0
    pause_s: float = FIRST_PAUSE_S


def usual_number() -> int:
    """Half of the CPUs that this process may use, at least one: the rest answers requests."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cpus // 2)


@contextmanager
def worker_processes(number: int, database_url: str) -> Iterator[None]:
    """Keep so many workers going on a database; ended in order afterwards, or killed where they do not."""
    if number == 0:
        yield
        return
    stop = threading.Event()
    keeper = threading.Thread(target=_keep_going, args=(number, database_url, stop), name="workers")
    keeper.start()
    try:
        yield
    finally:
        stop.set()
        keeper.join()


def _keep_going(number: int, database_url: str, stop: threading.Event) -> None:
    places = [_Place() for _ in range(number)]
    while not stop.wait(LOOK_INTERVAL_S):
        for place in places:
            _look_after(place, database_url)
    _end([place.process for place in places if place.process is not None])


def _look_after(place: _Place, database_url: str) -> None:
    now = time.monotonic()
    if place.process is not None:
        status = place.process.poll()
        if status is None:
            return
        _close(place.process)
        place.process = None
        place.pause_s = FIRST_PAUSE_S if now - place.started_at_s > EARLY_S else min(LONGEST_PAUSE_S, 2 * place.pause_s)
        place.start_at_s = now + place.pause_s
        structlog.get_logger().warning("worker_died", status=status, again_in_s=place.pause_s)
    elif now >= place.start_at_s:
        place.process, place.started_at_s = _started(database_url), now


def _started(database_url: str) -> "subprocess.Popen[bytes]":
    """A worker. The address is in its environment, which other accounts cannot read; it ends when our end of its input is closed."""
    return subprocess.Popen(
        [sys.executable, "-m", "app.job_worker"],
        env={**os.environ, "DATABASE_URL": database_url},
        stdin=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for the service, which then ends its workers itself
    )


def _end(processes: "list[subprocess.Popen[bytes]]") -> None:
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + STOP_WITHIN_S
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        _close(process)


def _close(process: "subprocess.Popen[bytes]") -> None:
    if process.stdin is not None:
        process.stdin.close()
