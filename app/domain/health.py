"""Whether the service can do its work."""

from collections.abc import Sequence
from typing import Literal

from app.domain.value import Value

Part = Literal["database", "migrations", "catalog"]


class Check(Value):
    """One thing that has to be in order."""

    name: Part
    """What was looked at."""
    ok: bool
    """Whether it is in order."""
    detail: str
    """What was found, for people."""


class Readiness(Value):
    """Whether the service is ready for every request."""

    ready: bool
    """Whether every check passed."""
    checks: Sequence[Check]
    """What was looked at."""


class Liveness(Value):
    """The process answers; says nothing about the database."""

    status: Literal["alive"]
    """Always `alive`."""
    version: str
    """Version of Inferplan."""
