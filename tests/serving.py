"""A real `inferplan serve` in a process of its own, for tests of what only that can show."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CLONE = Path(__file__).parent.parent
READY_WITHIN_S = 60.0
OPEN_TO_OTHERS = all(
    parent.stat().st_mode & 0o001
    for path in (Path(sys.executable).absolute(), Path(sys.executable).resolve(), Path(sys.prefix), Path(__file__).resolve())
    for parent in (path, *path.parents)
    if parent.is_dir()
)
"""Other accounts reach the environment, the interpreter that it links to, and the clone."""


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass(frozen=True)
class Server:
    """A running service."""

    process: "subprocess.Popen[bytes]"
    port: int
    data_dir: Path
    log: Path

    def request(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, body=content, headers={"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read().decode())
        finally:
            connection.close()

    def end(self, number: signal.Signals) -> int:
        """Send the signal and return the exit status."""
        self.process.send_signal(number)
        return self.process.wait(30)

    @property
    def postmaster_pid(self) -> int:
        return int((self.data_dir / "data/postmaster.pid").read_text().split("\n")[0])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of this run without what would configure the service, and with the clone in front of what is installed."""
    foreign = {"DATABASE_URL", "DATA_DIR", "INFERPLAN_HOST", "PORT", "MAX_BODY_BYTES", "LOG_JSON", "REQUIRE_API_KEY", "CATALOG_POLL_S"}
    foreign |= {"JOB_RETENTION_DAYS", "WORKER_DEAD_AFTER_S"}
    kept = {name: value for name, value in os.environ.items() if name not in foreign}
    # Workers only where a test is about them: each is a process more that starts.
    return {**kept, "PYTHONPATH": str(CLONE), "JOB_WORKERS": "0", **(given or {})}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "app.cli", *arguments]


def run(*arguments: str, given: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end."""
    return subprocess.run(command(*arguments), env=environment(given), capture_output=True, text=True, check=False, timeout=120)


@contextmanager
def serving(
    data_dir: Path, *arguments: str, given: Mapping[str, str] | None = None, prefix: Sequence[str] = (), wait: bool = True
) -> Iterator[Server]:
    """Start the service and wait until it is ready; it is killed at the end if it still runs."""
    port = free_port()
    with tempfile.NamedTemporaryFile(prefix="inferplan-serve-", suffix=".log") as log:
        process = subprocess.Popen(
            [*prefix, *command("serve", "--port", str(port), "--data-dir", str(data_dir), *arguments)],
            env=environment(given),
            stdout=log,
            stderr=log,
        )
        server = Server(process, port, data_dir, Path(log.name))
        try:
            if wait:
                wait_until_ready(server)
            yield server
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def wait_until_ready(server: Server) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while True:
        try:
            if server.request("GET", "/readyz").status == 200:
                return
        except OSError:
            pass
        if server.process.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(f"the service did not become ready (exit status {server.process.poll()}):\n{server.log.read_text()}")
        time.sleep(0.05)
