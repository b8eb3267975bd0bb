"""API keys: made and revoked; what only reads them is in `app.db.api_keys`.

A secret is 256 random bits, so a fast digest is enough: there is nothing to guess that a slow one would protect
(https://cheatsheetseries.owasp.org/cheatsheets/Password_Storage_Cheat_Sheet.html is about what people choose).
"""

import hashlib
import re
import secrets
from collections.abc import Sequence
from uuid import UUID, uuid4

from sqlalchemy.orm import Session

from app.db import api_keys as stored
from app.domain.access import ApiKey, Scope
from app.domain.errors import InvalidInput, NotFound

PREFIX = "inferplan_"
"""Tells people and secret scanners what a leaked text is."""
NUM_SECRET_BYTES = 32
MAX_NAME_CHARACTERS = 200
_WELL_FORMED = re.compile(PREFIX + "[A-Za-z0-9_-]{43}")


def create(session: Session, *, name: str, scopes: Sequence[Scope]) -> tuple[ApiKey, str]:
    """Make a key; returns it with its secret, which is kept nowhere and cannot be shown again."""
    if not name.strip() or len(name) > MAX_NAME_CHARACTERS or not name.isprintable():
        expected = f"1 to {MAX_NAME_CHARACTERS} printable characters"
        raise InvalidInput("The name of the key is empty, too long or not printable.", field="/name", value=name, expected=expected)
    if not scopes:
        raise InvalidInput("A key without a scope permits nothing.", field="/scopes", expected="read, write or both")
    secret = PREFIX + secrets.token_urlsafe(NUM_SECRET_BYTES)
    key = stored.insert_key(session, key_id=uuid4(), name=name, key_sha256=digest(secret), scopes=sorted(set(scopes)))
    return key, secret


def revoke(session: Session, key_id: UUID) -> ApiKey:
    """End a key's validity; doing so twice changes nothing. Raises NotFound."""
    key = stored.revoke(session, key_id)
    if key is None:
        raise NotFound(f"There is no API key of id {key_id}.", value=str(key_id), expected="an id that `inferplan keys list` shows")
    return key


def digest(secret: str) -> str:
    """SHA-256 of a secret, as it is stored [64 hexadecimal digits]."""
    return hashlib.sha256(secret.encode()).hexdigest()


def is_well_formed(secret: str) -> bool:
    """Whether a text can be a key at all: others are refused without asking the database."""
    return _WELL_FORMED.fullmatch(secret) is not None
