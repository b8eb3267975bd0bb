"""Commands that end by themselves."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli import OPENAPI_FILE, cli, read_settings, refuse_open_door
from app.command_database import CommandError, engine_on, opened_database, wait_for_server
from app.domain.errors import NotFound
from app.settings import Settings

SILENT_SERVER = "postgresql+psycopg://nobody:hunter2@/none?host=/nonexistent"


def run(*arguments: str, database_url: str) -> str:
    """Standard output of a command on that database; what it raises is raised."""
    result = CliRunner().invoke(cli, arguments, env={"DATABASE_URL": database_url}, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_migrate_says_which_revision_the_schema_has(own_database_url: str) -> None:
    assert run("migrate", database_url=own_database_url) == "the schema is at revision 0004\n"
    assert run("migrate", database_url=own_database_url) == "the schema is at revision 0004\n"


def test_a_key_is_shown_once_listed_and_revoked(own_database_url: str) -> None:
    run("migrate", database_url=own_database_url)
    secret = run("keys", "create", "--name", "ci", "--scope", "read", "--scope", "write", database_url=own_database_url).strip()
    assert secret.startswith("inferplan_")
    listed = run("keys", "list", database_url=own_database_url)
    assert "read,write" in listed
    assert "valid" in listed
    assert secret not in listed
    key_id = listed.split()[0]
    run("keys", "revoke", key_id, database_url=own_database_url)
    assert "revoked 20" in run("keys", "list", database_url=own_database_url)


def test_revoking_an_unknown_key_is_refused(own_database_url: str) -> None:
    run("migrate", database_url=own_database_url)
    with pytest.raises(NotFound, match="no API key of id"):
        run("keys", "revoke", "00000000-0000-0000-0000-000000000000", database_url=own_database_url)


def test_an_unknown_scope_is_refused(own_database_url: str) -> None:
    with pytest.raises(CommandError, match="unknown scope root: give read or write"):
        run("keys", "create", "--name", "x", "--scope", "root", database_url=own_database_url)


def test_the_catalog_is_synced_as_often_as_one_likes(own_database_url: str) -> None:
    run("migrate", database_url=own_database_url)
    run("sync-catalog", database_url=own_database_url)
    run("sync-catalog", database_url=own_database_url)


def test_the_openapi_file_is_written_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "openapi.json"
    check = ["openapi", "--check", "--file", str(file)]
    run("openapi", "--file", str(file), database_url=SILENT_SERVER)
    written = file.read_text()
    assert written == (Path(__file__).parents[1] / OPENAPI_FILE).read_text()
    monkeypatch.setattr("app.cli.document", lambda _: written)  # which takes seconds to make
    run(*check, database_url=SILENT_SERVER)
    file.unlink()
    with pytest.raises(CommandError, match="run `inferplan openapi`"):
        run(*check, database_url=SILENT_SERVER)
    run("openapi", "--file", str(file), database_url=SILENT_SERVER)
    run(*check, database_url=SILENT_SERVER)
    file.write_text(file.read_text() + " ")
    with pytest.raises(CommandError, match="run `inferplan openapi`"):
        run(*check, database_url=SILENT_SERVER)


def test_without_a_database_both_ways_to_one_are_named(tmp_path: Path) -> None:
    settings = Settings(database_url=None, data_dir=tmp_path)
    with pytest.raises(CommandError) as caught, opened_database(settings, package="no_such_wheel"):
        pass
    assert "DATABASE_URL" in str(caught.value)
    assert "pip install" in str(caught.value)


def test_a_server_that_does_not_answer_is_named_without_the_password() -> None:
    with engine_on(SILENT_SERVER) as engine, pytest.raises(CommandError, match="DATABASE_URL names does not answer") as caught:
        wait_for_server(engine, patience_s=0)
    assert "/nonexistent" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("address", ["nobody:hunter2@[::1/none", "nobody:hunter2@host:port/none"])
def test_what_is_no_address_is_refused_without_the_password(address: str) -> None:
    with (
        pytest.raises(CommandError, match="must be the address of a PostgreSQL server") as caught,
        engine_on(f"postgresql+psycopg://{address}"),
    ):
        pass
    assert "hunter2" not in str(caught.value)


def test_an_option_that_the_driver_does_not_know_is_named_at_once() -> None:
    with engine_on(SILENT_SERVER + "&colour=red") as engine, pytest.raises(CommandError, match=r"not understood: .*colour"):
        wait_for_server(engine)


def test_a_wrong_setting_is_named() -> None:
    with pytest.raises(CommandError, match=r"PORT .*less than or equal to 65535"):
        read_settings(port=70000)


@pytest.mark.parametrize(
    ("settings", "num_keys", "refusal"),
    [
        ({"host": "0.0.0.0"}, 0, "inferplan keys create"),  # noqa: S104
        ({"host": "0.0.0.0"}, 1, None),  # noqa: S104
        ({"host": "0.0.0.0", "require_api_key": False}, 1, "for loopback addresses only"),  # noqa: S104
        ({"host": "127.0.0.1"}, 0, None),
        ({"host": "127.0.0.1", "require_api_key": False}, 0, None),
        ({"host": "127.0.0.1", "require_api_key": True}, 0, "inferplan keys create"),
    ],
)
def test_no_door_is_opened_without_keys(settings: dict[str, str | bool], num_keys: int, refusal: str | None) -> None:
    given = Settings(**settings)  # type: ignore[arg-type]  # checked by pydantic
    if refusal is None:
        refuse_open_door(given, num_keys=num_keys)
        return
    with pytest.raises(CommandError, match=refusal):
        refuse_open_door(given, num_keys=num_keys)


def test_the_environment_of_the_run_is_not_changed(own_database_url: str) -> None:
    before = dict(os.environ)
    run("migrate", database_url=own_database_url)
    assert dict(os.environ) == before
