"""API keys: only the digest of a secret is ever here."""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from app.db.rows import ApiKeyRow
from app.domain.access import ApiKey, Scope


def insert_key(session: Session, *, key_id: UUID, name: str, key_sha256: str, scopes: Sequence[Scope]) -> ApiKey:
    """Store a new key."""
    statement = insert(ApiKeyRow).values(id=key_id, name=name, key_sha256=key_sha256, scopes=list(scopes)).returning(ApiKeyRow)
    return _key(session.scalars(statement).one())


def find_valid(session: Session, key_sha256: str) -> ApiKey | None:
    """The key of that digest unless it is unknown or revoked."""
    row = session.scalars(select(ApiKeyRow).where(ApiKeyRow.key_sha256 == key_sha256, ApiKeyRow.revoked_at.is_(None))).one_or_none()
    return None if row is None else _key(row)


def list_keys(session: Session) -> Sequence[ApiKey]:
    """Every key, revoked ones too, oldest first."""
    return [_key(row) for row in session.scalars(select(ApiKeyRow).order_by(ApiKeyRow.created_at, ApiKeyRow.id))]


def revoke(session: Session, key_id: UUID) -> ApiKey | None:
    """Mark a key revoked, None when there is none of that id; the time of the first revocation stays."""
    statement = (
        update(ApiKeyRow)
        .where(ApiKeyRow.id == key_id)
        .values(revoked_at=func.coalesce(ApiKeyRow.revoked_at, func.now()))
        .returning(ApiKeyRow)
        .execution_options(populate_existing=True)
    )
    row = session.scalars(statement).one_or_none()
    return None if row is None else _key(row)


def _key(row: ApiKeyRow) -> ApiKey:
    return ApiKey.model_validate(
        {"id": row.id, "name": row.name, "scopes": row.scopes, "created_at": row.created_at, "revoked_at": row.revoked_at}
    )
