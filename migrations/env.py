"""How Alembic reaches the database: on the connection that the caller opened, else on DATABASE_URL."""

from alembic import context
from sqlalchemy import Connection

from app.db.rows import Row
from app.db.session import open_engine


def migrate(connection: Connection) -> None:
    """Run the migrations on an open connection."""
    context.configure(connection=connection, target_metadata=Row.metadata, compare_server_default=True)
    with context.begin_transaction():
        context.run_migrations()


def migrate_offline() -> None:
    """Print the statements instead of running them."""
    context.configure(dialect_name="postgresql", target_metadata=Row.metadata, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()


def connect_and_migrate() -> None:
    """Run the migrations for the `alembic` command, which opens no connection itself."""
    from app.settings import Settings

    url = Settings().database_url
    if url is None:
        raise SystemExit("set DATABASE_URL, or use `inferplan migrate` for the embedded database")
    engine = open_engine(url)
    with engine.begin() as connection:
        migrate(connection)
    engine.dispose()


if context.is_offline_mode():
    migrate_offline()
elif connection := context.config.attributes.get("connection"):
    migrate(connection)
else:
    connect_and_migrate()
