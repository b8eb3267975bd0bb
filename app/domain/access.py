"""Who may call: API keys, their scopes, and the caller that a request is answered for."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from app.domain.value import Value

Scope = Literal["read", "write"]
"""read: calculations and reading what is stored; write: creating, changing and deleting what is stored."""


class ApiKey(Value):
    """An API key as it is kept: everything but the secret, of which only a digest is stored."""

    id: UUID
    """Identifies the key on the command line; not a secret."""
    name: str
    """What or whom the key is for."""
    scopes: tuple[Scope, ...]
    """What the key permits; write does not include read."""
    created_at: datetime
    """When it was created."""
    revoked_at: datetime | None
    """When it was revoked; null while it is valid."""


class Principal(Value):
    """The caller of a request."""

    identity: str
    """Stable text that tells callers apart: the id of the key, or `local` for a caller without one."""
    name: str
    """Name for people."""
    scopes: frozenset[Scope]
    """What the caller may do."""


LOCAL = Principal(identity="local", name="local", scopes=frozenset({"read", "write"}))
"""Whoever reaches a service that asks for no key: it listens on loopback, or its operator said so."""
