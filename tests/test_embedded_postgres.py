"""The private server: starts anywhere, stops with its owner, survives every crash, harms nobody."""

import contextlib
import os
import pwd
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from app.embedded_postgres import EmbeddedPostgres, EmbeddedPostgresError
from tests.serving import OPEN_TO_OTHERS

AS_ROOT = os.geteuid() == 0
ROOT_ONLY = pytest.mark.skipif(not AS_ROOT, reason="only root runs the server under another account")

pytestmark = pytest.mark.slow  # the fast tests use the server all the same

OWNER = """
import sys, time
from app.embedded_postgres import EmbeddedPostgres
with EmbeddedPostgres(sys.argv[1]) as url:
    print(url, flush=True)
    time.sleep(120)
"""


@pytest.fixture
def root() -> Iterator[Path]:
    """A directory that other accounts can reach, as pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="inferplan-test-") as directory:
        yield Path(directory)


def execute(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def postmaster_pid(root: Path) -> int:
    return int((root / "data/postmaster.pid").read_text().split("\n")[0])


def alive(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def eventually(condition: Callable[[], bool], *, within_s: float = 20) -> bool:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@contextlib.contextmanager
def owner(root: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Another process that runs the server, and the address it prints."""
    with subprocess.Popen([sys.executable, "-c", OWNER, str(root)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def test_it_stops_with_the_block_and_keeps_what_was_committed(root: Path) -> None:
    with EmbeddedPostgres(root, durable=False) as url:
        execute(url, "create table t as select 42 as x")
        pid = postmaster_pid(root)
        assert alive(pid)
    assert not alive(pid)
    with EmbeddedPostgres(root, durable=False) as again:
        assert again == url
        assert execute(again, "select x from t") == [(42,)]


def test_it_writes_to_the_disk_before_it_confirms(root: Path) -> None:
    with EmbeddedPostgres(root) as url:
        settings = execute(
            url, "select name, setting from pg_settings where name in ('fsync', 'full_page_writes', 'synchronous_commit') order by 1"
        )
    assert settings == [("fsync", "on"), ("full_page_writes", "on"), ("synchronous_commit", "on")]


def test_only_the_owner_can_read_its_files_and_no_port_is_open(root: Path) -> None:
    with EmbeddedPostgres(root, durable=False) as url:
        modes = {name: stat.S_IMODE((root / name).stat().st_mode) for name in ("data", "password", "url")}
        assert modes == {"data": 0o700, "password": 0o600, "url": 0o600}
        assert execute(url, "show listen_addresses") == [("",)]
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(url.replace("+psycopg", "").replace("://inferplan:", "://inferplan:wrong"))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the next start stops an orphan")
def test_a_killed_owner_leaves_no_server_and_loses_no_row(root: Path) -> None:
    with owner(root) as (process, url):
        execute(url, "create table t as select 42 as x")
        pid = postmaster_pid(root)
        process.kill()
        process.wait()
        assert eventually(lambda: not alive(pid))
    with EmbeddedPostgres(root, durable=False) as again:
        assert execute(again, "select x from t") == [(42,)]


def test_a_killed_server_is_recovered(root: Path) -> None:
    with EmbeddedPostgres(root) as url:
        execute(url, "create table t as select 42 as x")
        postmaster = psutil.Process(postmaster_pid(root))
        postmaster.suspend()  # or it would end the others itself when the first one is gone
        for process in (*postmaster.children(recursive=True), postmaster):
            process.kill()
    with EmbeddedPostgres(root) as again:
        assert execute(again, "select x from t") == [(42,)]


def test_it_stops_while_it_recovers_from_a_crashed_backend(root: Path) -> None:
    with EmbeddedPostgres(root) as url:
        execute(url, "create table t as select 42 as x")
        pid = postmaster_pid(root)
        psutil.Process(pid).children()[0].kill()
        assert eventually(lambda: "automatic recovery" in (root / "postgres.log").read_text())
    assert not alive(pid)
    with EmbeddedPostgres(root) as again:
        assert execute(again, "select x from t") == [(42,)]


def test_a_stale_pid_file_harms_nobody(root: Path) -> None:
    with EmbeddedPostgres(root, durable=False):
        pass
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as innocent:
        for content in (f"{innocent.pid}\n{root / 'data'}\n", "", "not a number\n"):
            (root / "data/postmaster.pid").write_text(content)
            with EmbeddedPostgres(root, durable=False) as url:
                assert execute(url, "select 1") == [(1,)]
        assert innocent.poll() is None
        innocent.kill()


def test_a_left_server_is_taken_over(root: Path) -> None:
    with owner(root) as (process, _):
        left = postmaster_pid(root)
        os.kill(process.pid, signal.SIGSTOP)  # its server runs on, while the lock is given to us
        (root / "owner.lock").unlink()
        with EmbeddedPostgres(root, durable=False) as url:
            assert execute(url, "select 1") == [(1,)]
            assert postmaster_pid(root) != left
            assert not alive(left)


def test_a_half_made_cluster_is_made_anew(root: Path) -> None:
    (root / "data.new/base").mkdir(parents=True)
    with EmbeddedPostgres(root, durable=False) as url:
        assert execute(url, "select 1") == [(1,)]
    assert not (root / "data.new").exists()


def test_the_second_process_uses_the_server_and_runs_it_when_the_first_is_gone(root: Path) -> None:
    with owner(root) as (process, url), EmbeddedPostgres(root, durable=False) as shared:
        assert shared == url
        first = postmaster_pid(root)
        execute(shared, "create table t as select 42 as x")
        process.kill()
        process.wait()

        def served_again() -> bool:
            with contextlib.suppress(psycopg.OperationalError):
                return execute(shared, "select x from t") == [(42,)] and postmaster_pid(root) != first
            return False

        assert eventually(served_again)
        second = postmaster_pid(root)
    assert not alive(second)


def test_many_at_once_on_a_cold_directory_share_one_server(root: Path) -> None:
    with contextlib.ExitStack() as stack:
        urls = {stack.enter_context(owner(root))[1] for _ in range(3)}
    assert len(urls) == 1
    assert urls.pop().startswith("postgresql+psycopg://")


def test_a_path_too_long_for_a_socket_gets_the_same_short_one_each_time(root: Path) -> None:
    deep = root / ("d" * 100)
    root.chmod(0o711)
    with EmbeddedPostgres(deep, durable=False) as url:
        assert execute(url, "select 1") == [(1,)]
    with EmbeddedPostgres(deep, durable=False) as again:
        assert again == url
    Path((deep / "socket_dir").read_text()).rmdir()


def test_a_missing_wheel_is_answered_with_both_ways(root: Path) -> None:
    with (
        pytest.raises(EmbeddedPostgresError, match=r"DATABASE_URL .*pip install .*\[embedded\]"),
        EmbeddedPostgres(root, package="no_such_wheel"),
    ):
        pass
    assert list(root.iterdir()) == []


def test_a_file_in_place_of_the_directory_is_named(root: Path) -> None:
    (root / "file").touch()
    with pytest.raises(EmbeddedPostgresError, match=r"file.*set DATA_DIR or DATABASE_URL"), EmbeddedPostgres(root / "file"):
        pass


def test_a_cluster_of_another_major_release_is_refused_and_left_alone(root: Path) -> None:
    (root / "data").mkdir()
    (root / "data/PG_VERSION").write_text("15\n")
    with pytest.raises(EmbeddedPostgresError, match="PostgreSQL 15"), EmbeddedPostgres(root):
        pass
    assert (root / "data/PG_VERSION").read_text() == "15\n"


@ROOT_ONLY
def test_root_runs_it_as_nobody_and_leaves_the_parents_as_they_were(root: Path) -> None:
    before = stat.S_IMODE(root.stat().st_mode)
    root.chmod(0o711)
    with EmbeddedPostgres(root / "data-dir", durable=False):
        assert psutil.Process(postmaster_pid(root / "data-dir")).uids().effective == pwd.getpwnam("nobody").pw_uid
    assert before == 0o700
    assert stat.S_IMODE(root.stat().st_mode) == 0o711


@ROOT_ONLY
def test_root_is_told_of_a_parent_that_nobody_can_enter(root: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match=rf"{root} is closed"), EmbeddedPostgres(root / "data-dir"):
        pass
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


@ROOT_ONLY
@pytest.mark.skipif(not OPEN_TO_OTHERS, reason="this interpreter or clone is closed to other accounts")
def test_another_account_is_told_that_it_cannot_write(root: Path) -> None:
    root.chmod(0o755)
    (root / "own").mkdir(mode=0o755)
    nobody = pwd.getpwnam("nobody")
    done = subprocess.run(
        [sys.executable, "-c", OWNER, str(root / "own")],
        capture_output=True, text=True, check=False, user=nobody.pw_uid, group=nobody.pw_gid, extra_groups=[],
    )  # fmt: skip
    assert "Permission denied" in done.stderr
    assert "set DATA_DIR or DATABASE_URL" in done.stderr
