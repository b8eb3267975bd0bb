"""The migrations, run and checked from inside the service."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

import migrations

MIGRATION_LOCK = 0x494E_4645_5250_4C4E  # "INFERPLN": the advisory lock that concurrent migrations wait for


def alembic_config(connection: Connection | None = None) -> Config:
    """Return Alembic's configuration for the installed `migrations` package, on an open connection if given."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def upgrade(engine: Engine) -> None:
    """Bring the schema to the newest revision in one transaction; processes that start at once do it one after another."""
    with engine.begin() as connection:
        connection.execute(text("select pg_advisory_xact_lock(:lock)"), {"lock": MIGRATION_LOCK})
        command.upgrade(alembic_config(connection), "head")


def head() -> str | None:
    """Return the newest revision that this version of the service knows."""
    return ScriptDirectory.from_config(alembic_config()).get_current_head()


def current(connection: Connection) -> str | None:
    """Return the revision of the database, None when it was never migrated."""
    return MigrationContext.configure(connection).get_current_revision()
