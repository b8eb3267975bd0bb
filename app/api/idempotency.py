"""Creations that may be sent again: the header that makes them one, and the answer that is replayed."""

from collections.abc import Callable
from typing import Annotated

from fastapi import Header
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy.orm import Session

from app.domain.access import Principal
from app.domain.idempotency import RecordedAnswer
from app.services import idempotency

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=255,
        pattern=r"^[!-~]([ -~]*[!-~])?$",
        description=(
            "Any text that the caller makes up for this creation. The same key with the same body gets the same answer for 24 hours, "
            "and creates nothing."
        ),
    ),
]
REPLAYED_HEADER = {
    "Idempotency-Replayed": {
        "description": "`true` when this answer was given before to the same Idempotency-Key.",
        "schema": {"type": "string"},
    }
}


def created(
    session: Session, principal: Principal, key: str | None, operation: str, body: BaseModel, create: Callable[[], RecordedAnswer]
) -> JSONResponse:
    """The answer of `create`, or the one that this caller got before with the same key and body; without a key always the former."""
    if key is None:
        answer, replayed = create(), False
    else:
        answer, replayed = idempotency.once(session, principal.identity, key, operation, body, create)
    headers = {**answer.headers, "Idempotency-Replayed": "true"} if replayed else answer.headers
    return JSONResponse(answer.body, answer.status, headers)
