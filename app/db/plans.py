"""Plans and their revisions: `plans` holds what is current and what is searched, `plan_revisions` every state that a plan was in."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Row, Select, func, insert, select, tuple_, update
from sqlalchemy.orm import Session

from app.db.rows import PlanRevisionRow, PlanRow
from app.domain.plan import Kind, Plan, PlanContents, PlanFilter, PlanHead
from app.domain.provenance import Versions

HEAD_COLUMNS = (
    PlanRow.id,
    PlanRow.kind,
    PlanRow.created_at.label("plan_created_at"),
    PlanRevisionRow.revision,
    PlanRevisionRow.name,
    PlanRevisionRow.owner,
    PlanRevisionRow.labels,
    PlanRevisionRow.model_slug,
    PlanRevisionRow.gpu_slug,
    PlanRevisionRow.answer["summary"].as_string().label("summary"),
    PlanRevisionRow.planner_version,
    PlanRevisionRow.catalog_version,
    PlanRevisionRow.created_at,
)


class Locked(NamedTuple):
    """What a change needs to know of the plan that it has locked."""

    kind: Kind
    revision: int


def insert_plan(session: Session, plan_id: UUID, contents: PlanContents) -> Plan:
    """Store a new plan with its first revision."""
    revision = 1
    created_at = session.execute(
        insert(PlanRow).values(id=plan_id, kind=contents.kind, revision=revision, **_searched(contents)).returning(PlanRow.created_at)
    ).scalar_one()
    return _insert_revision(session, plan_id, revision, contents, created_at)


def insert_revision(session: Session, plan_id: UUID, revision: int, contents: PlanContents) -> Plan:
    """Store the next revision of a plan that `lock` has locked; `revision` is the number of the new one."""
    created_at = session.execute(
        update(PlanRow)
        .where(PlanRow.id == plan_id, PlanRow.revision == revision - 1)
        .values(revision=revision, updated_at=func.now(), **_searched(contents))
        .returning(PlanRow.created_at)
        .execution_options(synchronize_session=False)
    ).scalar_one()
    return _insert_revision(session, plan_id, revision, contents, created_at)


def lock(session: Session, plan_id: UUID) -> Locked | None:
    """Keep everybody else from changing the plan until the transaction ends; None when there is no such plan."""
    found = session.execute(
        select(PlanRow.kind, PlanRow.revision).where(PlanRow.id == plan_id, PlanRow.deleted_at.is_(None)).with_for_update()
    ).one_or_none()
    return None if found is None else Locked(found.kind, found.revision)


def mark_deleted(session: Session, plan_id: UUID) -> None:
    """Take a locked plan out of everything that reads plans; its rows stay."""
    session.execute(update(PlanRow).where(PlanRow.id == plan_id).values(deleted_at=func.now()).execution_options(synchronize_session=False))


def find(session: Session, plan_id: UUID, revision: int | None) -> Plan | None:
    """One revision of a plan, the current one when `revision` is None."""
    wanted = PlanRow.revision if revision is None else revision
    statement = _of_plans(
        select(*HEAD_COLUMNS, PlanRevisionRow.notes, PlanRevisionRow.request, PlanRevisionRow.inputs, PlanRevisionRow.answer)
    ).where(PlanRow.id == plan_id, PlanRevisionRow.revision == wanted)
    row = session.execute(statement).one_or_none()
    return None if row is None else _plan(row)


def list_plans(session: Session, wanted: PlanFilter, after: tuple[datetime, UUID] | None, limit: int) -> Sequence[PlanHead]:
    """Current revisions of the plans that the filter lets through, newest first, from the one behind `after`."""
    statement = _of_plans(select(*HEAD_COLUMNS)).where(PlanRevisionRow.revision == PlanRow.revision)
    if wanted.owner is not None:
        statement = statement.where(PlanRow.owner == wanted.owner)
    if wanted.labels:
        statement = statement.where(PlanRow.labels.contains(list(wanted.labels)))
    if wanted.model is not None:
        statement = statement.where(PlanRow.model_slug == wanted.model)
    if wanted.gpu is not None:
        statement = statement.where(PlanRow.gpu_slug == wanted.gpu)
    if wanted.kind is not None:
        statement = statement.where(PlanRow.kind == wanted.kind)
    if after is not None:
        statement = statement.where(tuple_(PlanRow.created_at, PlanRow.id) < tuple_(*after))
    statement = statement.order_by(PlanRow.created_at.desc(), PlanRow.id.desc()).limit(limit)
    return [_head(row) for row in session.execute(statement)]


def list_revisions(session: Session, plan_id: UUID, before: int | None, limit: int) -> Sequence[PlanHead]:
    """Revisions of a plan, newest first, from the one older than `before`."""
    statement = _of_plans(select(*HEAD_COLUMNS)).where(PlanRow.id == plan_id)
    if before is not None:
        statement = statement.where(PlanRevisionRow.revision < before)
    return [_head(row) for row in session.execute(statement.order_by(PlanRevisionRow.revision.desc()).limit(limit))]


def _of_plans(statement: Select[Any]) -> Select[Any]:
    return statement.join_from(PlanRow, PlanRevisionRow, PlanRevisionRow.plan_id == PlanRow.id).where(PlanRow.deleted_at.is_(None))


def _searched(contents: PlanContents) -> dict[str, object]:
    return {
        "name": contents.name,
        "owner": contents.owner,
        "labels": list(contents.labels),
        "notes": contents.notes,
        "model_slug": contents.model,
        "gpu_slug": contents.gpu,
    }


def _insert_revision(session: Session, plan_id: UUID, revision: int, contents: PlanContents, plan_created_at: datetime) -> Plan:
    written_at = session.execute(
        insert(PlanRevisionRow)
        .values(
            plan_id=plan_id,
            revision=revision,
            request=contents.request,
            inputs=contents.inputs,
            answer=contents.answer,
            planner_version=contents.versions.planner,
            catalog_version=contents.versions.catalog,
            **_searched(contents),
        )
        .returning(PlanRevisionRow.created_at)
    ).scalar_one()
    return Plan(
        id=plan_id,
        revision=revision,
        summary=str(contents.answer["summary"]),
        created_at=plan_created_at,
        updated_at=written_at,
        **dict(contents),
    )


def _head_fields(row: Row[Any]) -> dict[str, Any]:
    return {
        "id": row.id,
        "revision": row.revision,
        "kind": row.kind,
        "name": row.name,
        "owner": row.owner,
        "labels": tuple(row.labels),
        "model": row.model_slug,
        "gpu": row.gpu_slug,
        "summary": row.summary,
        "versions": Versions(planner=row.planner_version, catalog=row.catalog_version),
        "created_at": row.plan_created_at,
        "updated_at": row.created_at,
    }


def _head(row: Row[Any]) -> PlanHead:
    return PlanHead(**_head_fields(row))


def _plan(row: Row[Any]) -> Plan:
    return Plan(**_head_fields(row), notes=row.notes, request=row.request, inputs=row.inputs, answer=row.answer)
