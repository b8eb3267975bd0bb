"""The command line: opens the database, calls one function, prints."""

import gc
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn, get_args
from uuid import UUID

import structlog
import typer
import uvicorn
from pydantic import ValidationError
from sqlalchemy.exc import OperationalError, ProgrammingError
from sqlalchemy.orm import Session

from app import __version__, log_setup
from app.accuracy.commands import accuracy
from app.accuracy.records import RecordsUnreadable
from app.api.openapi import document
from app.command_database import CommandError, address_of, opened_database
from app.db import api_keys as stored_keys
from app.db import schema
from app.db.session import open_engine, session_factory
from app.domain.access import Scope
from app.domain.errors import PlannerError
from app.listening import CannotListen, bound_sockets
from app.main import create_app
from app.services import api_keys
from app.services.catalog import sync_bundled
from app.settings import Settings
from app.worker_processes import usual_number, worker_processes

GRACEFUL_STOP_S = 10
SCOPES: tuple[Scope, ...] = get_args(Scope)
OPENAPI_FILE = Path("openapi/openapi.json")

cli = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="Capacity planning for LLM inference.")
keys = typer.Typer(no_args_is_help=True, help="Make, list and revoke API keys.")
cli.add_typer(keys, name="keys")
cli.add_typer(accuracy, name="accuracy")

DataDir = Annotated[Path | None, typer.Option(help="Directory of the embedded database, used without DATABASE_URL.")]


@cli.command()
def serve(
    *,
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(help="TCP port to listen on.", show_default="8000")] = None,
    data_dir: DataDir = None,
    migrate: Annotated[bool, typer.Option(help="Bring the schema of the database up to date first.")] = True,
) -> None:
    """Answer requests, on DATABASE_URL or an embedded database, until Ctrl-C or SIGTERM."""
    settings = read_settings(host=host, port=port, data_dir=data_dir)
    log_setup.configure(as_json=settings.log_json)
    sockets = bound_sockets(settings.host, settings.port)
    database = "DATABASE_URL" if settings.database_url else f"embedded in {settings.data_dir}"
    structlog.get_logger().info("starting", version=__version__, database=database)
    with ending_on_signals(), opened_database(settings, migrate=migrate) as engine:
        make_session = session_factory(engine)
        with make_session.begin() as session:
            refuse_open_door(settings, num_keys=sum(key.revoked_at is None for key in stored_keys.list_keys(session)))
            sync_bundled(session)
        service = create_app(settings, session_factory=make_session)
        service.state.catalog.refresh_from(make_session)
        # Code and catalog live as long as the process: frozen, they are not walked again by every full collection of garbage.
        gc.collect()
        gc.freeze()
        server = uvicorn.Server(
            uvicorn.Config(
                service,
                http="httptools",
                loop="asyncio",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=GRACEFUL_STOP_S,
            )
        )
        structlog.get_logger().info(
            "serving",
            address=f"http://{settings.host}:{sockets[0].getsockname()[1]}",
            docs="/docs",
            database=database,
            api_keys="required" if settings.api_key_required else "not required",
        )
        number = usual_number() if settings.job_workers is None else settings.job_workers
        with worker_processes(number, address_of(engine)):
            server.run(sockets=list(sockets))
        if not server.started:
            raise CommandError("the service did not start: see the log above")


@cli.command()
def worker(
    *,
    processes: Annotated[
        int | None, typer.Option(help="Processes that compute, one part of a job each.", show_default="half of the CPUs", min=1, max=1024)
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Compute jobs of the service on DATABASE_URL, until Ctrl-C or SIGTERM: for further machines."""
    settings = read_settings(data_dir=data_dir)
    log_setup.configure(as_json=settings.log_json)
    with ending_on_signals(), opened_database(settings) as engine:
        with engine.connect() as connection:
            if schema.current(connection) != schema.head():
                raise CommandError(f"the schema is not at revision {schema.head()}, which this version needs: inferplan migrate")
        with worker_processes(processes or usual_number(), address_of(engine)):
            while True:
                time.sleep(60.0)  # until a signal ends it


@cli.command()
def migrate(data_dir: DataDir = None) -> None:
    """Bring the schema of the database up to date."""
    with opened_database(read_settings(data_dir=data_dir), migrate=True) as engine, engine.connect() as connection:
        print(f"the schema is at revision {schema.current(connection)}")


@cli.command()
def sync_catalog(data_dir: DataDir = None) -> None:
    """Write the bundled GPUs, models and prices to the database; `serve` does it at every start."""
    with opened_database(read_settings(data_dir=data_dir)) as engine, Session(engine) as session, session.begin():
        sync_bundled(session)


@cli.command()
def openapi(
    *,
    check: Annotated[bool, typer.Option("--check", help="Only compare; exit with 1 when the file is not up to date.")] = False,
    file: Annotated[Path, typer.Option(help="The committed document.")] = OPENAPI_FILE,
) -> None:
    """Write the OpenAPI document of the service to its file."""
    engine = open_engine("postgresql+psycopg://")  # never connected
    written = document(create_app(Settings(), session_factory=session_factory(engine)))
    if not check:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(written, encoding="utf-8")
    elif not file.exists() or file.read_text(encoding="utf-8") != written:
        raise CommandError(f"{file} is not what the service would write: run `inferplan openapi`")


@keys.command("create")
def create_key(
    name: Annotated[str, typer.Option(help="What or whom the key is for.")],
    scope: Annotated[list[str], typer.Option(help=f"What it permits: {' or '.join(SCOPES)}; may be given twice.")],
    data_dir: DataDir = None,
) -> None:
    """Make an API key and print it; it cannot be shown again."""
    scopes = [known for known in SCOPES if known in scope]
    if unknown := set(scope).difference(SCOPES):
        raise CommandError(f"unknown scope {', '.join(sorted(unknown))}: give {' or '.join(SCOPES)}")
    with opened_database(read_settings(data_dir=data_dir)) as engine, Session(engine) as session, session.begin():
        key, secret = api_keys.create(session, name=name, scopes=scopes)
    print(f"key {key.id} ({', '.join(key.scopes)}); it is shown this once:", file=sys.stderr)
    print(secret)


@keys.command("list")
def list_keys(data_dir: DataDir = None) -> None:
    """List every API key, oldest first."""
    with opened_database(read_settings(data_dir=data_dir)) as engine, Session(engine) as session:
        for key in stored_keys.list_keys(session):
            state = "valid" if key.revoked_at is None else f"revoked {key.revoked_at:%Y-%m-%d %H:%M}"
            print(f"{key.id}  {','.join(key.scopes):10}  {key.created_at:%Y-%m-%d %H:%M}  {state:24}  {key.name}")


@keys.command("revoke")
def revoke_key(key_id: Annotated[UUID, typer.Argument(help="The id that `inferplan keys list` shows.")], data_dir: DataDir = None) -> None:
    """End the validity of an API key."""
    with opened_database(read_settings(data_dir=data_dir)) as engine, Session(engine) as session, session.begin():
        key = api_keys.revoke(session, key_id)
    print(f"revoked {key.id} ({key.name})", file=sys.stderr)


def read_settings(**given: object) -> Settings:
    """Return the settings: what the command line gives, then the environment, then the defaults."""
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]  # checked by pydantic
    except ValidationError as error:
        reasons = "; ".join(f"{str(e['loc'][0]).upper()} {e['msg'].removeprefix('Value error, ')}" for e in error.errors())
        raise CommandError(reasons) from None


def refuse_open_door(settings: Settings, *, num_keys: int) -> None:
    """Raise CommandError when other machines could connect without a key, or when nobody has the key that is asked for."""
    if not settings.listens_on_loopback and not settings.api_key_required:
        raise CommandError(f"REQUIRE_API_KEY=false is for loopback addresses only: on {settings.host} everybody could change the plans")
    if settings.api_key_required and num_keys == 0:
        where = (
            "API keys are required"
            if settings.listens_on_loopback
            else f"{settings.host} is open to other machines, so API keys are required"
        )
        raise CommandError(f"{where}, and there are none: inferplan keys create --name me --scope read --scope write")


@contextmanager
def ending_on_signals() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM unwind the command, so that the database is stopped in order; once begun, that is not interrupted."""

    def end(_number: int, _frame: FrameType | None) -> NoReturn:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        raise SystemExit(0)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main() -> None:
    """Run the command that the arguments name."""
    try:
        cli()
    except (CommandError, CannotListen, PlannerError, RecordsUnreadable) as error:
        sys.exit(f"inferplan: {error}")
    except ProgrammingError as error:
        sys.exit(f"inferplan: the database refuses ({str(error.orig).splitlines()[0]}); is the schema up to date? inferplan migrate")
    except OperationalError as error:
        sys.exit(f"inferplan: the database does not answer: {error.orig}")


if __name__ == "__main__":
    main()
