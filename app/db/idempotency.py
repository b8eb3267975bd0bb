"""Recorded answers by principal and idempotency key."""

from datetime import timedelta

from sqlalchemy import delete, func, select, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from app.db.rows import IdempotencyKeyRow
from app.domain.idempotency import RecordedAnswer

PURGED_AT_ONCE = 100


def lock(session: Session, principal: str, key: str) -> None:
    """Wait until no other transaction works on this key, and keep others waiting until this one ends."""
    session.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(f"{principal}\n{key}", 0))))


def find(session: Session, principal: str, key: str) -> tuple[str, RecordedAnswer] | None:
    """Fingerprint of the request and the answer to it; None when there is none or it has expired."""
    row = session.execute(
        select(IdempotencyKeyRow.fingerprint, IdempotencyKeyRow.status, IdempotencyKeyRow.headers, IdempotencyKeyRow.body).where(
            IdempotencyKeyRow.principal == principal, IdempotencyKeyRow.key == key, IdempotencyKeyRow.expires_at > func.now()
        )
    ).one_or_none()
    return None if row is None else (row.fingerprint, RecordedAnswer(status=row.status, headers=row.headers, body=row.body))


def record(session: Session, principal: str, key: str, fingerprint: str, answer: RecordedAnswer, lifetime: timedelta) -> None:
    """Keep the answer for `lifetime`, in place of an expired one of the same key."""
    values = {
        "fingerprint": fingerprint,
        "status": answer.status,
        "headers": dict(answer.headers),
        "body": answer.body,
        "created_at": func.now(),
        "expires_at": func.now() + lifetime,
    }
    statement = insert(IdempotencyKeyRow).values(principal=principal, key=key, **values)
    session.execute(statement.on_conflict_do_update(index_elements=["principal", "key"], set_=values))


def delete_expired(session: Session) -> None:
    """Delete some of the expired answers; those that another transaction is deleting are left to it."""
    expired = (
        select(IdempotencyKeyRow.principal, IdempotencyKeyRow.key)
        .where(IdempotencyKeyRow.expires_at <= func.now())
        .limit(PURGED_AT_ONCE)
        .with_for_update(skip_locked=True)
    )
    session.execute(
        delete(IdempotencyKeyRow)
        .where(tuple_(IdempotencyKeyRow.principal, IdempotencyKeyRow.key).in_(expired))
        .execution_options(synchronize_session=False)
    )
