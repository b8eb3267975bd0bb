"""The environment's say, and what it must not say."""

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.settings import Settings
from tests.serving import environment


def read_in_process(**given: str) -> str:
    """The settings that another process with these variables reads."""
    code = "from app.settings import Settings; s = Settings(); print(s.host, s.port, s.data_dir, s.database_url, s.require_api_key)"
    done = subprocess.run([sys.executable, "-c", code], env=environment(given), capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_environment_variables_are_read_by_their_plain_names() -> None:
    given = {"INFERPLAN_HOST": "::1", "PORT": "9000", "DATA_DIR": "/srv/x", "DATABASE_URL": "postgres://u@h/n", "REQUIRE_API_KEY": "true"}
    assert read_in_process(**given) == "::1 9000 /srv/x postgresql+psycopg://u@h/n True"


def test_host_and_empty_variables_are_not_read() -> None:
    given = {"HOST": "x86_64-conda-linux-gnu", "PORT": "", "DATABASE_URL": "", "DATA_DIR": "/srv/x"}
    assert read_in_process(**given) == "127.0.0.1 8000 /srv/x None None"


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_every_form_of_a_server_address_names_the_driver(scheme: str) -> None:
    assert Settings(database_url=f"{scheme}://u:p@h:5433/n").database_url == "postgresql+psycopg://u:p@h:5433/n"


def test_another_database_is_refused_without_telling_the_password() -> None:
    with pytest.raises(ValidationError, match="must be the address of a PostgreSQL server") as caught:
        Settings(database_url="mysql://u:hunter2@h/n")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),  # noqa: S104
        ("::", False),
        ("db.example", False),
    ],
)
def test_keys_are_asked_for_unless_only_this_machine_can_connect(host: str, loopback: bool) -> None:
    assert Settings(host=host).listens_on_loopback is loopback
    assert Settings(host=host).api_key_required is not loopback
    assert Settings(host=host, require_api_key=True).api_key_required


@pytest.mark.parametrize(
    "wrong", [{"port": -1}, {"port": 65536}, {"max_body_bytes": 0}, {"catalog_poll_s": 0}, {"catalog_poll_s": float("inf")}, {"host": ""}]
)
def test_values_that_cannot_work_are_refused(wrong: dict[str, float | str]) -> None:
    with pytest.raises(ValidationError):
        Settings(**wrong)  # type: ignore[arg-type]  # that is the point


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(ValidationError, match="nope"):
        Settings(nope=1)  # type: ignore[call-arg]  # that is the point


def test_the_data_directory_is_absolute() -> None:
    assert Path(Settings().data_dir).is_absolute()
