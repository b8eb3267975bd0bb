"""The schema's history: one line, both directions, and no drift from the tables that the code believes in."""

from collections.abc import Iterator

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect

from app.db import schema
from app.db.rows import Row
from app.db.session import open_engine


@pytest.fixture
def empty(own_database_url: str) -> Iterator[Engine]:
    """Engine on a database of its own with nothing in it."""
    engine = open_engine(own_database_url)
    yield engine
    engine.dispose()


def tables(engine: Engine) -> set[str]:
    return set(inspect(engine).get_table_names()) - {"alembic_version"}


def test_the_history_has_one_head() -> None:
    assert len(ScriptDirectory.from_config(schema.alembic_config()).get_heads()) == 1


def test_up_down_up(empty: Engine) -> None:
    schema.upgrade(empty)
    assert tables(empty) == set(Row.metadata.tables)
    with empty.begin() as connection:
        command.downgrade(schema.alembic_config(connection), "base")
    assert tables(empty) == set()
    schema.upgrade(empty)
    assert tables(empty) == set(Row.metadata.tables)


def test_the_tables_are_those_of_the_code(empty: Engine) -> None:
    schema.upgrade(empty)
    with empty.begin() as connection:
        command.check(schema.alembic_config(connection))


def test_every_revision_can_be_taken_back(empty: Engine) -> None:
    revisions = list(ScriptDirectory.from_config(schema.alembic_config()).walk_revisions("base", "heads"))
    for revision in reversed(revisions):
        with empty.begin() as connection:
            command.upgrade(schema.alembic_config(connection), revision.revision)
            command.downgrade(schema.alembic_config(connection), "-1")
            command.upgrade(schema.alembic_config(connection), revision.revision)


def test_current_and_head_agree_after_the_upgrade(empty: Engine) -> None:
    with empty.connect() as connection:
        assert schema.current(connection) is None
    schema.upgrade(empty)
    with empty.connect() as connection:
        assert schema.current(connection) == schema.head()
