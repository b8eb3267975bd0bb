"""What the environment may say; read by `main` and `cli` only."""

import ipaddress
import os
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

DRIVER = "postgresql+psycopg://"
SCHEMES = (DRIVER, "postgresql://", "postgres://")


def default_data_dir() -> Path:
    """Return where the embedded database lives: root's is open to the account that runs the server, a user's is at home."""
    return Path("/var/lib/inferplan") if os.name == "posix" and os.geteuid() == 0 else Path("~/.local/share/inferplan").expanduser()


class Settings(BaseSettings):
    """Settings of one process, each from the environment variable of the same name in capitals, except for INFERPLAN_HOST."""

    model_config = SettingsConfigDict(
        env_prefix="",
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,  # the address of the database holds a password
        use_attribute_docstrings=True,
        validate_by_name=True,
    )

    database_url: str | None = None
    """PostgreSQL server to use, `postgresql://user:password@host/name`; without it an embedded server is started."""
    data_dir: Path = Field(default_factory=default_data_dir)
    """Directory of the embedded server."""
    host: str = Field(default="127.0.0.1", validation_alias="INFERPLAN_HOST", min_length=1)
    """Address to listen on; INFERPLAN_HOST in the environment."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    """TCP port to listen on; 0 lets the system choose."""
    max_body_bytes: Annotated[int, Field(gt=0)] = 4 * 2**20
    """Largest request body, but for what follows."""
    max_scrape_body_bytes: Annotated[int, Field(gt=0)] = 32 * 2**20
    """Largest body of `/diagnose`: metrics endpoints answer with megabytes, and two scrapes of several replicas come in one request."""
    log_json: bool | None = None
    """Log lines as JSON; by default when the output is no terminal."""
    require_api_key: bool | None = None
    """Ask every caller for an API key; by default unless the service listens on loopback only."""
    catalog_poll_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 5.0
    """Seconds between looks at the database for catalog changes of other processes."""
    job_workers: Annotated[int, Field(ge=0, le=1024)] | None = None
    """Processes of this service that compute jobs; by default half of the CPUs and at least one, 0 leaves the jobs to other machines."""
    job_retention_days: Annotated[float, Field(gt=0, le=36_500, allow_inf_nan=False)] = 30.0
    """Days after which a job that has ended is deleted with its answer."""
    worker_dead_after_s: Annotated[float, Field(ge=0.5, le=3600, allow_inf_nan=False)] = 20.0
    """Seconds without a sign of life after which a worker counts as dead and others take its work; the same for all of one database."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the signature is given
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read arguments, then the environment without HOST: in conda that is a platform triple, in csh the machine's name."""
        environment = EnvSettingsSource(settings_cls)
        environment.env_vars = {name: value for name, value in environment.env_vars.items() if name != "host"}
        return init_settings, environment

    @field_validator("database_url")
    @classmethod
    def _name_the_driver(cls, url: str | None) -> str | None:
        if url is None:
            return None
        for scheme in SCHEMES:
            if url.startswith(scheme):
                return DRIVER + url.removeprefix(scheme)
        raise ValueError("must be the address of a PostgreSQL server: postgresql://user:password@host:5432/name")

    @property
    def listens_on_loopback(self) -> bool:
        """Whether only processes of this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def api_key_required(self) -> bool:
        """Whether callers need an API key: what `require_api_key` says, else everywhere but on loopback."""
        return not self.listens_on_loopback if self.require_api_key is None else self.require_api_key
