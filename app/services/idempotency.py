"""A creation with an idempotency key happens once, however often it is sent."""

import hashlib
from collections.abc import Callable
from datetime import timedelta

from pydantic import BaseModel
from sqlalchemy.orm import Session

from app.db import idempotency
from app.domain.errors import IdempotencyConflict
from app.domain.idempotency import RecordedAnswer

LIFETIME = timedelta(hours=24)


def once(
    session: Session, principal: str, key: str, operation: str, payload: BaseModel, create: Callable[[], RecordedAnswer]
) -> tuple[RecordedAnswer, bool]:
    """The answer of `create`, or the one recorded when this principal sent the same key and payload before, and whether it is a replay.

    The record is written in the transaction of the creation: both are kept or neither. Of requests with one key that arrive at once, the
    later ones wait for the first and then replay its answer; when it was refused they are tried in turn, for a refusal is not recorded.
    Raises IdempotencyConflict when the key came with another payload. After LIFETIME the key is as good as new.
    """
    fingerprint = _fingerprint(operation, payload)
    idempotency.lock(session, principal, key)
    found = idempotency.find(session, principal, key)
    if found is not None:
        recorded_fingerprint, answer = found
        if recorded_fingerprint != fingerprint:
            raise IdempotencyConflict(
                "this Idempotency-Key was sent before with another request; send the same request again, or a new key with a new one"
            )
        return answer, True
    idempotency.delete_expired(session)
    answer = create()
    idempotency.record(session, principal, key, fingerprint, answer, LIFETIME)
    return answer, False


def _fingerprint(operation: str, payload: BaseModel) -> str:
    """Digest of what was asked for; spelling of the JSON and defaults that were left out do not matter."""
    return hashlib.sha256(f"{operation}\n{payload.model_dump_json()}".encode()).hexdigest()
