"""What the planner refuses, and why. The HTTP layer maps each class to a status in one table (`app/api/errors.py`)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar


class PlannerError(Exception):
    """A refusal that names the field, the value and what was expected.

    `field` is a JSON pointer into the request (`/deployment/tp`) or None when no single field is at fault.
    """

    code: ClassVar[str] = "planner_error"
    title: ClassVar[str] = "The planner cannot answer"

    def __init__(self, detail: str, *, field: str | None = None, value: object = None, expected: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.field = field
        self.value = value
        self.expected = expected


class InvalidInput(PlannerError):
    """Well-formed values that contradict each other or the model (tp 3 with 8 heads), or a text that is not what the field is for."""

    code = "invalid_input"
    title = "The input cannot be used"


class UnknownName(PlannerError):
    """A GPU, model or price that the catalog does not hold; `nearest` lists the closest names."""

    code = "unknown_name"
    title = "Not in the catalog"

    def __init__(self, detail: str, *, nearest: tuple[str, ...] = (), field: str | None = None, value: object = None) -> None:
        super().__init__(detail, field=field, value=value, expected=", ".join(nearest) or None)
        self.nearest = nearest


class MissingFigure(PlannerError):
    """The catalog entry exists but lacks the figure that this calculation needs; the figure is named, never guessed."""

    code = "missing_figure"
    title = "A figure is missing"


class UnsupportedConfig(PlannerError):
    """An imported configuration that holds a field or value which the importer does not understand."""

    code = "unsupported_config"
    title = "The configuration is not understood"


class NotFound(PlannerError):
    """A stored thing that does not exist."""

    code = "not_found"
    title = "Not found"


class AlreadyExists(PlannerError):
    """A stored thing of that name exists, or a bundled entry would be shadowed."""

    code = "already_exists"
    title = "Already exists"


class ReadOnly(PlannerError):
    """A bundled catalog entry cannot be changed or deleted."""

    code = "read_only"
    title = "Bundled entries are read-only"


class StaleVersion(PlannerError):
    """The stored thing changed since it was read."""

    code = "stale_version"
    title = "The stored version has changed"


class JobEnded(PlannerError):
    """The job has ended: there is nothing left to cancel."""

    code = "job_ended"
    title = "The job has ended"


class JobNotEnded(PlannerError):
    """The job is queued or running: only what has ended can be deleted."""

    code = "job_not_ended"
    title = "The job has not ended"


class QueueFull(PlannerError):
    """More jobs wait than the service takes."""

    code = "job_queue_full"
    title = "Too many jobs wait"


class IdempotencyConflict(PlannerError):
    """The idempotency key was used before with another payload."""

    code = "idempotency_conflict"
    title = "The idempotency key was used for another request"


@contextmanager
def under(pointer: str) -> Iterator[None]:
    """Let refusals point into a larger request, in which what is refused is the field at `pointer`."""
    try:
        yield
    except PlannerError as error:
        if error.field is not None:
            error.field = pointer + error.field
        raise
