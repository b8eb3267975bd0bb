"""Cursor pages: a token says after which entry to go on, and belongs to the filters of the list that gave it."""

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID

from pydantic import Field

from app.api.errors import Refusal
from app.api.pointers import repeatable
from app.domain.problem import FieldProblem
from app.domain.value import Value

DEFAULT_LIMIT = 50
MAX_LIMIT = 200
MAX_TOKEN_CHARACTERS = 1000

Item = TypeVar("Item")


class PageQuery(Value):
    """Query parameters of a list, next to its filters; a parameter of another name is refused."""

    limit: int = Field(default=DEFAULT_LIMIT, ge=1, le=MAX_LIMIT)
    """Entries per page."""
    page_token: str | None = Field(default=None, max_length=MAX_TOKEN_CHARACTERS)
    """`next_page_token` of the page before, with the same filters; absent for the first page."""

    def filters(self) -> dict[str, Any]:
        """The filters that were given, which a page token belongs to."""
        return self.model_dump(exclude={"limit", "page_token"}, exclude_none=True)


def position(page_token: str | None, filters: Mapping[str, object]) -> tuple[str, ...] | None:
    """Keys of the last entry of the page before, None for the first page; refuses a token that another list gave.

    The check finds mistakes, not forgery: use the keys, which are printable ASCII, as parameters of a query only, and parse them with care.
    """
    if page_token is None:
        return None
    try:
        check, *keys = json.loads(base64.b64decode(page_token.encode("ascii"), altchars=b"-_", validate=True))
        plain = all(isinstance(key, str) and key.isascii() and key.isprintable() for key in keys)
        genuine = plain and check == _check(keys, filters)
    except (binascii.Error, UnicodeError, ValueError, TypeError, RecursionError):
        genuine = False
    if not genuine:
        raise invalid_page_token(page_token)
    return tuple(keys)


def created_position(page_token: str | None, filters: Mapping[str, object]) -> tuple[datetime, UUID] | None:
    """Time of creation and id of the last entry of the page before, of a list that is ordered by them; refuses as `position` does."""
    keys = position(page_token, filters)
    if keys is None:
        return None
    try:
        return datetime.fromisoformat(keys[0]).astimezone(UTC), UUID(keys[1])
    except (ValueError, OverflowError, IndexError):
        raise invalid_page_token(page_token) from None


def page(
    found: Sequence[Item], limit: int, filters: Mapping[str, object], keys: Callable[[Item], Sequence[str]]
) -> tuple[Sequence[Item], str | None]:
    """The page and the token of the next one, None at the end, from up to `limit` + 1 entries that were looked up."""
    if len(found) <= limit:
        return found, None
    last = list(keys(found[limit - 1]))
    token = json.dumps([_check(last, filters), *last], separators=(",", ":")).encode()
    return found[:limit], base64.urlsafe_b64encode(token).decode()


def _check(keys: Sequence[str], filters: Mapping[str, object]) -> str:
    text = json.dumps([list(keys), dict(filters)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def invalid_page_token(page_token: str | None) -> Refusal:
    """The refusal of a token that no page of this list gave."""
    detail = "This page token does not belong to this list with these filters."
    expected = "the next_page_token of a page that was asked for with the same filters"
    field = FieldProblem(
        location="query", pointer="/page_token", code="invalid_page_token", detail=detail, expected=expected, value=repeatable(page_token)
    )
    return Refusal(422, "invalid_page_token", "The page token is not valid", detail, fields=(field,))
