"""Calibrations: what estimates need (`entry`, read into the catalog snapshot) beside the whole answer."""

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Row, func, insert, select, tuple_, update
from sqlalchemy.orm import Session

from app.db.rows import CalibrationRow
from app.domain.calibration import AppliedCalibration, Setup
from app.domain.calibration_answer import Calibration, CalibrationHead, CalibrationResult
from app.domain.calibration_findings import Fitted
from app.domain.provenance import Versions


class NewRow(NamedTuple):
    """What is kept of a fit."""

    id: UUID
    name: str
    owner: str
    setup: Setup
    found: Fitted
    constants_of: date
    versions: Versions


HEAD_COLUMNS = (
    CalibrationRow.id,
    CalibrationRow.name,
    CalibrationRow.owner,
    CalibrationRow.result["setup"].label("setup"),
    CalibrationRow.result["num_rows"].label("num_rows"),
    CalibrationRow.result["summary"].label("summary"),
    CalibrationRow.planner_version,
    CalibrationRow.catalog_version,
    CalibrationRow.created_at,
)


def insert_calibration(session: Session, new: NewRow) -> Calibration:
    """Store a calibration."""
    created_at = session.execute(select(func.now())).scalar_one()
    result = new.found.result
    entry = AppliedCalibration(
        id=new.id,
        name=new.name,
        setup=new.setup,
        factors=new.found.factors,
        bands=new.found.bands,
        num_rows=result.num_rows,
        concurrency=result.concurrency,
        constants_of=new.constants_of,
        created_at=created_at,
    )
    session.execute(
        insert(CalibrationRow).values(
            id=new.id,
            name=new.name,
            owner=new.owner,
            model_slug=new.setup.model,
            gpu_slug=new.setup.gpu,
            engine=new.setup.engine,
            entry=entry.model_dump(mode="json"),
            result=result.model_dump(mode="json"),
            planner_version=new.versions.planner,
            catalog_version=new.versions.catalog,
            created_at=created_at,
        )
    )
    found = find(session, new.id)
    assert found is not None  # noqa: S101 - inserted in this transaction
    return found


def find(session: Session, calibration_id: UUID) -> Calibration | None:
    """One that is not deleted."""
    statement = select(*HEAD_COLUMNS, CalibrationRow.result).where(CalibrationRow.id == calibration_id, CalibrationRow.deleted_at.is_(None))
    row = session.execute(statement).one_or_none()
    return None if row is None else Calibration(**_head_fields(row), result=CalibrationResult.model_validate(row.result))


def mark_deleted(session: Session, calibration_id: UUID) -> bool:
    """Take one out of everything that reads calibrations; whether there was one."""
    statement = (
        update(CalibrationRow)
        .where(CalibrationRow.id == calibration_id, CalibrationRow.deleted_at.is_(None))
        .values(deleted_at=func.now())
        .returning(CalibrationRow.id)
        .execution_options(synchronize_session=False)
    )
    return session.execute(statement).one_or_none() is not None


class CalibrationFilter(NamedTuple):
    """What a list is narrowed to; None is anything."""

    owner: str | None
    model: str | None
    gpu: str | None
    engine: str | None


def list_calibrations(
    session: Session, wanted: CalibrationFilter, after: tuple[datetime, UUID] | None, limit: int
) -> Sequence[CalibrationHead]:
    """Those that the filter lets through, newest first, from the one behind `after`."""
    statement = select(*HEAD_COLUMNS).where(CalibrationRow.deleted_at.is_(None))
    for column, value in (
        (CalibrationRow.owner, wanted.owner),
        (CalibrationRow.model_slug, wanted.model),
        (CalibrationRow.gpu_slug, wanted.gpu),
        (CalibrationRow.engine, wanted.engine),
    ):
        if value is not None:
            statement = statement.where(column == value)
    if after is not None:
        statement = statement.where(tuple_(CalibrationRow.created_at, CalibrationRow.id) < tuple_(*after))
    statement = statement.order_by(CalibrationRow.created_at.desc(), CalibrationRow.id.desc()).limit(limit)
    return [CalibrationHead(**_head_fields(row)) for row in session.execute(statement)]


def _head_fields(row: Row[Any]) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": row.name,
        "owner": row.owner,
        "setup": Setup.model_validate(row.setup),
        "num_rows": row.num_rows,
        "summary": row.summary,
        "versions": Versions(planner=row.planner_version, catalog=row.catalog_version),
        "created_at": row.created_at,
    }
