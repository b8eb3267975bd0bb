"""Whether the service is ready: the database answers, its schema is the one this version knows, a catalog snapshot is loaded."""

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session, sessionmaker

from app.db import schema
from app.domain.health import Check, Readiness


def readiness(session_factory: sessionmaker[Session], *, catalog_version: str | None) -> Readiness:
    """Look at the database and its schema; `catalog_version` is that of the loaded snapshot, None when there is none."""
    database, migrations = _database_checks(session_factory)
    catalog = Check(
        name="catalog",
        ok=catalog_version is not None,
        detail="no snapshot is loaded" if catalog_version is None else f"snapshot {catalog_version} is loaded",
    )
    checks = (database, migrations, catalog)
    return Readiness(ready=all(check.ok for check in checks), checks=checks)


def _database_checks(session_factory: sessionmaker[Session]) -> tuple[Check, Check]:
    head = schema.head()
    try:
        with session_factory() as session:
            revision = schema.current(session.connection())
    except SQLAlchemyError as error:
        unknown = Check(name="migrations", ok=False, detail="unknown while the database does not answer")
        return Check(name="database", ok=False, detail=f"does not answer ({type(error).__name__})"), unknown
    answers = Check(name="database", ok=True, detail="answers")
    if revision == head:
        return answers, Check(name="migrations", ok=True, detail=f"the schema is at revision {revision}")
    detail = f"the schema is at revision {revision or 'none'}, this version needs {head}: run `inferplan migrate`"
    return answers, Check(name="migrations", ok=False, detail=detail)
