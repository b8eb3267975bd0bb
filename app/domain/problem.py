"""A problem document (https://www.rfc-editor.org/rfc/rfc9457): why a request was not answered, or a job has no answer."""

from collections.abc import Sequence
from typing import Literal

from app.domain.value import Value

Location = Literal["body", "query", "path", "header", "request", "service"]


class FieldProblem(Value):
    """One field that was refused."""

    location: Location
    """Part of the request that holds the field; `request` for the request as a whole, `service` for no part of it."""
    pointer: str
    """JSON pointer (RFC 6901) to the field; of a query, path or header parameter, its name after a slash; empty for the whole."""
    code: str
    """Stable machine-readable code."""
    detail: str
    """What is wrong, for people."""
    expected: str | None
    """What would have been accepted; null when there is nothing to add to `detail`."""
    value: bool | int | float | str | None
    """The refused value when it is short and printable, else null."""


class Problem(Value):
    """Why the request was not answered (RFC 9457)."""

    type: str
    """Stable relative URI of the kind of problem."""
    title: str
    """The kind of problem, for people; the same for every occurrence."""
    status: int
    """HTTP status; of a job, the one that a direct answer would have had."""
    detail: str
    """This occurrence, for people."""
    code: str
    """Stable machine-readable code, the last segment of `type`."""
    request_id: str
    """Identifies the request in the service's logs; also in the header X-Request-ID. Of a job, its id, which the worker's logs have."""
    errors: Sequence[FieldProblem]
    """The fields at fault; empty when the problem lies in no field."""
