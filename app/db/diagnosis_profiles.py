"""Saved diagnosis profiles; they change under `app.db.catalog.lock`, because the catalog snapshot holds them."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, delete, func, insert, select, update
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Session

from app.db.rows import DiagnosisProfileRow
from app.domain.diagnosis_profile import DiagnosisProfile, ProfileInput


def list_profiles(session: Session, owner: str | None, after: str | None, limit: int) -> Sequence[DiagnosisProfile]:
    """Profiles of that owner, of any where it is None, by name, from the one behind `after`."""
    by_bytes = DiagnosisProfileRow.name.collate("C")  # the same order on every server, whatever its locale
    statement = select(DiagnosisProfileRow).order_by(by_bytes).limit(limit)
    if owner is not None:
        statement = statement.where(DiagnosisProfileRow.owner == owner)
    if after is not None:
        statement = statement.where(by_bytes > after)
    return [_profile(row) for row in session.scalars(statement)]


def find(session: Session, name: str) -> DiagnosisProfile | None:
    """The profile of that name."""
    row = session.scalars(select(DiagnosisProfileRow).where(DiagnosisProfileRow.name == name)).one_or_none()
    return None if row is None else _profile(row)


def whole() -> ColumnElement[Any]:
    """A profile as one JSON object, for statements that read several kinds of things."""
    columns = (each for name in _COLUMNS for each in (name, getattr(DiagnosisProfileRow, name)))
    return DiagnosisProfileRow.entry.op("||")(func.jsonb_build_object(*columns, type_=JSONB))


def insert_profile(session: Session, new: ProfileInput, version: int) -> DiagnosisProfile:
    """Store a profile under a name that none has."""
    statement = insert(DiagnosisProfileRow).values(name=new.name, **_values(new, version)).returning(DiagnosisProfileRow)
    return _profile(session.scalars(statement).one())


def update_profile(session: Session, new: ProfileInput, version: int) -> DiagnosisProfile:
    """Replace the profile of that name."""
    statement = (
        update(DiagnosisProfileRow)
        .where(DiagnosisProfileRow.name == new.name)
        .values(**_values(new, version))
        .returning(DiagnosisProfileRow)
        .execution_options(synchronize_session=False, populate_existing=True)
    )
    return _profile(session.scalars(statement).one())


def delete_profile(session: Session, name: str) -> None:
    """Remove the profile of that name."""
    statement = delete(DiagnosisProfileRow).where(DiagnosisProfileRow.name == name)
    session.execute(statement.execution_options(synchronize_session=False))


def _values(new: ProfileInput, version: int) -> dict[str, Any]:
    kept = new.model_dump(mode="json", include={"notes", "thresholds", "slo"}, exclude_none=True)
    return {"owner": new.owner, "entry": kept, "version": version}


def _profile(row: DiagnosisProfileRow) -> DiagnosisProfile:
    return DiagnosisProfile.model_validate({**row.entry, **{name: getattr(row, name) for name in _COLUMNS}})


_COLUMNS = ("name", "owner", "version", "created_at", "updated_at")
