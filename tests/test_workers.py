"""Workers as processes: they take jobs, are killed in mid-job without loss, and end with what started them."""

import contextlib
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.serving import Server, command, environment, run, serving

pytestmark = pytest.mark.slow

WITHIN_S = 120.0
ONE_WORKER = {"JOB_WORKERS": "1", "WORKER_DEAD_AFTER_S": "1"}
SHORT: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "gpu": "h100-sxm-80gb",
    "workload": {"peak_rps": 10, "input_tokens": 1000, "output_tokens": 200},
    "duration_s": 30,
    "seeds": [1],
}
SECONDS = SHORT | {"duration_s": 4000}
"""A few seconds of computing for one seed."""
MINUTES = SHORT | {"duration_s": 30_000}


@pytest.fixture
def data_dir() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="inferplan-test-") as directory:
        yield Path(directory)


def until(found: Callable[[], Any]) -> Any:
    """What `found` returns once that is true."""
    deadline = time.monotonic() + WITHIN_S
    while not (value := found()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
    return value


def started(server: Server, body: dict[str, Any]) -> str:
    answer = server.request("POST", "/simulate", body, {"Prefer": "respond-async"})
    assert answer.status == 202, answer.text
    return str(answer.headers["location"])


def job(server: Server, location: str) -> dict[str, Any]:
    found: dict[str, Any] = server.request("GET", location).json
    return found


def ended(server: Server, location: str) -> dict[str, Any]:
    found: dict[str, Any] = until(lambda: (one := job(server, location))["ended_at"] and one)
    return found


def in_mid_run(server: Server, location: str) -> None:
    until(lambda: job(server, location)["progress_ratio"] > 0)


def workers_of(process: "subprocess.Popen[bytes]") -> list[psutil.Process]:
    return [child for child in psutil.Process(process.pid).children() if is_worker(child)]


def is_worker(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):  # it has just ended
        return "app.job_worker" in process.cmdline()
    return False


def gone(processes: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(processes, timeout=15)[1]


def test_a_worker_that_is_killed_in_mid_job_loses_nothing(data_dir: Path) -> None:
    with serving(data_dir, given=ONE_WORKER) as server:
        location = started(server, SECONDS | {"seeds": [1, 2]})
        in_mid_run(server, location)
        (killed,) = workers_of(server.process)
        killed.kill()
        found = ended(server, location)
        assert found["state"] == "succeeded", found["problem"]
        assert found["answer"]["measured_s"]["value"] == pytest.approx(3600)
        (successor,) = until(lambda: workers_of(server.process))
        assert successor.pid != killed.pid
        log = server.log.read_text()
        assert "worker_died" in log
        assert '"attempt": 2' in log
        assert server.end(signal.SIGTERM) == 0, log
        assert gone([successor])


def test_a_running_job_is_cancelled_within_seconds(data_dir: Path) -> None:
    with serving(data_dir, given=ONE_WORKER) as server:
        location = started(server, MINUTES)
        in_mid_run(server, location)
        assert server.request("POST", f"{location}/cancel").json["state"] == "cancelled"
        following = started(server, SHORT)
        assert ended(server, following)["state"] == "succeeded"
        assert "job_part_dropped" in server.log.read_text()
        assert job(server, location)["state"] == "cancelled"


def test_a_service_that_stops_hands_its_work_back_and_goes_on_with_it_later(data_dir: Path) -> None:
    with serving(data_dir, given=ONE_WORKER) as server:
        location = started(server, SECONDS)
        in_mid_run(server, location)
        workers = workers_of(server.process)
        assert server.end(signal.SIGTERM) == 0, server.log.read_text()
        assert gone(workers)
        assert "job_part_handed_back" in server.log.read_text()
    with serving(data_dir, given=ONE_WORKER) as server:
        assert ended(server, location)["state"] == "succeeded"
        assert '"attempt": 1' in server.log.read_text()


def test_workers_end_when_their_service_is_killed(data_dir: Path) -> None:
    with serving(data_dir, given=ONE_WORKER) as server:
        location = started(server, MINUTES)
        in_mid_run(server, location)
        workers = workers_of(server.process)
        assert workers
        server.process.kill()
        assert gone(workers)


def test_by_default_a_service_has_workers_and_they_answer_as_it_does(data_dir: Path) -> None:
    with serving(data_dir, given={"JOB_WORKERS": ""}) as server:
        until(lambda: workers_of(server.process))
        location = started(server, SHORT)
        assert ended(server, location)["answer"] == server.request("POST", "/simulate", SHORT).json


def test_workers_elsewhere_take_their_share(own_database_url: str, data_dir: Path) -> None:
    given = {"DATABASE_URL": own_database_url}
    refused = run("worker", given=given)
    assert refused.returncode == 1
    assert "inferplan migrate" in refused.stderr
    assert run("migrate", given=given).returncode == 0
    with serving(data_dir, given=given) as server:
        location = started(server, SHORT | {"seeds": [1, 2, 3]})
        assert workers_of(server.process) == []
        with tempfile.TemporaryFile() as log:
            elsewhere = subprocess.Popen(command("worker", "--processes", "2"), env=environment(given), stdout=log, stderr=log)
            try:
                assert ended(server, location)["state"] == "succeeded"
                workers = workers_of(elsewhere)
                assert len(workers) == 2
            finally:
                elsewhere.terminate()
                status = elsewhere.wait(30)
            assert status == 0
            assert gone(workers)
