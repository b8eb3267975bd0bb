"""`inferplan serve` as people and orchestrators meet it: a process that starts, answers, stops and is killed."""

import contextlib
import json
import os
import pwd
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.serving import OPEN_TO_OTHERS, Server, run, serving

pytestmark = pytest.mark.slow

ALL = "0.0.0.0"  # noqa: S104


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A directory that other accounts can reach, as pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="inferplan-test-") as directory:
        yield Path(directory)


def alive(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def gone(pid: int, *, within_s: float = 10) -> bool:
    deadline = time.monotonic() + within_s
    while alive(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def works(server: Server) -> bool:
    """Whether the catalog is there and a calculation is answered."""
    return server.request("GET", "/gpus/h100-sxm-80gb").status == 200 and server.request("GET", "/livez").status == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_answers_and_stops_in_order(data_dir: Path, number: signal.Signals) -> None:
    with serving(data_dir) as server:
        assert works(server)
        postmaster = server.postmaster_pid
        assert alive(postmaster)
        assert server.end(number) == 0, server.log.read_text()
        assert not alive(postmaster)
        told = [json.loads(line)["event"] for line in server.log.read_text().splitlines()]
        assert told.index("starting") < told.index("serving")
    assert not (data_dir / "data/postmaster.pid").exists()


def test_a_second_signal_does_not_cut_the_stop_short(data_dir: Path) -> None:
    with serving(data_dir) as server:
        postmaster = server.postmaster_pid
        server.process.send_signal(signal.SIGINT)
        server.process.send_signal(signal.SIGTERM)
        assert server.end(signal.SIGINT) == 0, server.log.read_text()
        assert not alive(postmaster)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the next start stops what is left")
def test_a_kill_leaves_no_server_and_keeps_what_was_committed(data_dir: Path) -> None:
    with serving(data_dir) as server:
        made = run("keys", "create", "--name", "kept", "--scope", "read", "--data-dir", str(data_dir))
        assert made.returncode == 0, made.stderr
        postmaster = server.postmaster_pid
        server.process.kill()
        assert gone(postmaster)
    with serving(data_dir) as server:
        assert works(server)
        assert "kept" in run("keys", "list", "--data-dir", str(data_dir)).stdout


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the next start stops what is left")
@pytest.mark.parametrize("after_s", [0.3, 0.8, 1.2, 1.6, 2.0, 2.5])
def test_a_kill_at_any_moment_of_the_first_start_does_no_harm(data_dir: Path, after_s: float) -> None:
    with serving(data_dir, wait=False) as server:
        time.sleep(after_s)
        server.process.kill()
        server.process.wait()
    left = [process.pid for process in psutil.process_iter() if works_in(process, data_dir)]
    assert all(gone(pid) for pid in left)
    with serving(data_dir) as server:
        assert works(server)


def works_in(process: psutil.Process, directory: Path) -> bool:
    with contextlib.suppress(psutil.Error):
        return Path(process.cwd()).is_relative_to(directory)
    return False


def test_two_at_once_share_the_data_and_the_second_goes_on_alone(data_dir: Path) -> None:
    with serving(data_dir) as first, serving(data_dir) as second:
        assert works(first)
        assert works(second)
        assert first.end(signal.SIGTERM) == 0
        deadline = time.monotonic() + 20
        while second.request("GET", "/readyz").status != 200 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert second.request("GET", "/readyz").status == 200
        postmaster = second.postmaster_pid
        assert second.end(signal.SIGTERM) == 0, second.log.read_text()
        assert not alive(postmaster)


def test_a_given_server_is_used_and_left_running(own_database_url: str, data_dir: Path) -> None:
    given = {"DATABASE_URL": own_database_url}
    with serving(data_dir, given=given) as server:
        assert works(server)
        assert server.end(signal.SIGTERM) == 0, server.log.read_text()
    assert list(data_dir.iterdir()) == []
    assert run("migrate", given=given).returncode == 0


def test_without_migrations_it_does_not_start(own_database_url: str) -> None:
    done = run("serve", "--no-migrate", "--port", "0", given={"DATABASE_URL": own_database_url})
    assert done.returncode == 1
    assert "inferplan migrate" in done.stderr
    assert "Traceback" not in done.stderr


def test_other_machines_are_let_in_with_a_key_only(own_database_url: str, data_dir: Path) -> None:
    given = {"DATABASE_URL": own_database_url}
    run("migrate", given=given)
    refused = run("serve", "--host", ALL, "--port", "0", given=given)
    assert refused.returncode == 1
    assert "inferplan keys create" in refused.stderr
    key = run("keys", "create", "--name", "me", "--scope", "read", given=given).stdout.strip()
    refused = run("serve", "--host", ALL, "--port", "0", given={**given, "REQUIRE_API_KEY": "false"})
    assert refused.returncode == 1
    assert "REQUIRE_API_KEY" in refused.stderr
    with serving(data_dir, "--host", ALL, given=given) as server:
        assert server.request("GET", "/gpus").status == 401
        assert server.request("GET", "/gpus", headers={"Authorization": f"Bearer {key}"}).status == 200


def test_a_taken_port_is_told_before_anything_is_started(data_dir: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = run("serve", "--port", str(taken.getsockname()[1]), "--data-dir", str(data_dir))
    assert done.returncode == 1
    assert "Address already in use" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(data_dir.iterdir()) == []


def test_a_directory_that_cannot_be_used_is_named(data_dir: Path) -> None:
    (data_dir / "file").touch()
    done = run("serve", "--port", "0", "--data-dir", str(data_dir / "file"))
    assert done.returncode == 1
    assert str(data_dir / "file") in done.stderr
    assert "DATABASE_URL" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else; otherwise every test here runs as a normal user")
@pytest.mark.skipif(not OPEN_TO_OTHERS, reason="this interpreter or clone is closed to other accounts")
def test_a_normal_user_needs_nothing_else(data_dir: Path) -> None:
    user = pwd.getpwnam("nobody")
    shutil.chown(data_dir, user.pw_uid, user.pw_gid)
    prefix = ("setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--")
    with serving(data_dir, prefix=prefix, given={"HOME": str(data_dir)}) as server:
        assert works(server)
        assert psutil.Process(server.postmaster_pid).uids().effective == user.pw_uid
        assert server.end(signal.SIGTERM) == 0, server.log.read_text()
