"""Every 4xx and 5xx answer: RFC 9457 problem details, rendered here and nowhere else (https://www.rfc-editor.org/rfc/rfc9457)."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import ValidationError
from sqlalchemy.exc import IntegrityError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import Scope

from app.api.pointers import blamed, expectation, pointer_of, repeatable
from app.domain import errors
from app.domain.json_pointer import json_pointer
from app.domain.problem import FieldProblem, Location, Problem

MEDIA_TYPE = "application/problem+json"
REQUEST_ID_KEY = "inferplan.request_id"
PROBLEM_CODE_KEY = "inferplan.problem_code"
MAX_DETAIL_CHARACTERS = 1000
MAX_REPORTED_ERRORS = 50
RETRY_AFTER_S = 5
QUEUE_RETRY_AFTER_S = 60
DATABASE_AWAY = (OperationalError, InterfaceError, PoolTimeout)
"""What SQLAlchemy raises when the server cannot be reached, or has no connection left."""
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")

STATUS_OF: Mapping[type[errors.PlannerError], int] = {
    errors.PlannerError: 422,
    errors.InvalidInput: 422,
    errors.UnknownName: 422,
    errors.MissingFigure: 422,
    errors.UnsupportedConfig: 422,
    errors.NotFound: 404,
    errors.AlreadyExists: 409,
    errors.ReadOnly: 409,
    errors.JobEnded: 409,
    errors.JobNotEnded: 409,
    errors.StaleVersion: 412,
    errors.IdempotencyConflict: 422,
    errors.QueueFull: 503,
}
"""The one table from what the planner refuses to an HTTP status; a class that is not listed takes its nearest ancestor's."""


class Refusal(HTTPException):
    """A request that HTTP itself refuses (limits, authentication, preconditions), raised by the API layer only."""

    def __init__(
        self,
        status: int,
        code: str,
        title: str,
        detail: str,
        *,
        fields: Sequence[FieldProblem] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, detail, headers)
        self.code = code
        self.title = title
        self.text = detail
        self.fields = fields


def problem_response(
    scope: Scope,
    status: int,
    code: str,
    title: str,
    detail: str,
    *,
    fields: Sequence[FieldProblem] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The answer for one problem; also leaves its code in the scope for the request log."""
    scope[PROBLEM_CODE_KEY] = code
    problem = Problem(
        type=f"/problems/{code}",
        title=title,
        status=status,
        detail=printable(detail),
        code=code,
        request_id=scope.get(REQUEST_ID_KEY, ""),
        errors=tuple(fields[:MAX_REPORTED_ERRORS]),
    )
    return Response(problem.model_dump_json(), status, headers, MEDIA_TYPE)


def refusal_response(scope: Scope, refusal: Refusal) -> Response:
    """The answer for a refusal that a middleware raised outside the router's own handlers."""
    return problem_response(
        scope, refusal.status_code, refusal.code, refusal.title, refusal.text, fields=refusal.fields, headers=refusal.headers
    )


def internal_error_response(scope: Scope) -> Response:
    """The answer for an exception nobody foresaw: its text stays in the log, found there by the request id."""
    detail = "The service failed to answer. The cause is in its log under this request id."
    return problem_response(scope, 500, "internal_error", "Internal error", detail)


def printable(text: str) -> str:
    """Text of bounded length that can be encoded, whatever the caller sent."""
    cut = text if len(text) <= MAX_DETAIL_CHARACTERS else text[:MAX_DETAIL_CHARACTERS] + "…"
    return cut.encode("utf-8", "replace").decode("utf-8")


def install(app: FastAPI) -> None:
    """Register every handler."""
    app.exception_handler(errors.PlannerError)(_planner_error)
    app.exception_handler(HTTPException)(_http_error)
    app.exception_handler(RequestValidationError)(_invalid_request)
    for unavailable in DATABASE_AWAY:
        app.exception_handler(unavailable)(_database_unavailable)
    app.exception_handler(IntegrityError)(_conflict)
    app.exception_handler(OverflowError)(_out_of_range)
    app.exception_handler(ValidationError)(_unusable_result)


def status_of(error: type[errors.PlannerError]) -> int:
    """HTTP status of a class of planner errors: its own entry of the table or its nearest ancestor's."""
    return next(STATUS_OF[ancestor] for ancestor in error.__mro__ if ancestor in STATUS_OF)


async def _planner_error(request: Request, error: errors.PlannerError) -> Response:
    fields: tuple[FieldProblem, ...] = ()
    if error.field is not None:
        fields = (
            FieldProblem(
                location=_location(request, error),
                pointer=printable(error.field),
                code=error.code,
                detail=printable(error.detail),
                expected=None if error.expected is None else printable(error.expected),
                value=repeatable(error.value),
            ),
        )
    status = status_of(type(error))
    headers = {"Retry-After": str(QUEUE_RETRY_AFTER_S)} if status == 503 else None
    return problem_response(request.scope, status, error.code, error.title, error.detail, fields=fields, headers=headers)


def _location(request: Request, error: errors.PlannerError) -> Location:
    """A stored thing is named in the path, what is computed in the body, or in what is stored already when the request has none."""
    if isinstance(error, errors.NotFound | errors.ReadOnly | errors.StaleVersion):
        return "path"
    return "request" if getattr(request.scope.get("route"), "body_field", None) is None else "body"


async def _http_error(request: Request, error: HTTPException) -> Response:
    if isinstance(error, Refusal):
        return refusal_response(request.scope, error)
    status = HTTPStatus(error.status_code)
    phrase = status.phrase
    if error.status_code == 404 and error.detail == phrase:
        detail = "Nothing lies at this path; /openapi.json lists what does."
        return problem_response(request.scope, 404, "unknown_path", "Unknown path", detail, headers=error.headers)
    if error.status_code == 405:
        return _method_not_allowed(request)
    return problem_response(request.scope, status, status.name.lower(), phrase, str(error.detail), headers=error.headers)


def _method_not_allowed(request: Request) -> Response:
    """Starlette names the methods of the first route of that path only; RFC 9110 wants those of all (section 15.5.6)."""
    allowed = [method for method in METHODS if _answers(request, method)]
    if "GET" in allowed:
        allowed.insert(1, "HEAD")
    headers = {"Allow": ", ".join([*allowed, "OPTIONS"])}
    if request.method == "OPTIONS":
        return Response(status_code=204, headers=headers)
    detail = f"This path answers {', '.join(allowed)}."
    return problem_response(request.scope, 405, "method_not_allowed", "Method not allowed", detail, headers=headers)


def _answers(request: Request, method: str) -> bool:
    probe = {"type": "http", "method": method, "path": request.scope["path"], "root_path": request.scope.get("root_path", "")}
    return any(route.matches(probe)[0] is Match.FULL for route in request.app.router.routes)


async def _invalid_request(request: Request, error: RequestValidationError) -> Response:
    faults = error.errors()
    fields = [_field_problem(found, error.body) for found in faults[:MAX_REPORTED_ERRORS]]
    first = fields[0]
    where = first.pointer or f"the {first.location}"
    more = f" ({len(faults) - 1} more)" if len(faults) > 1 else ""
    return problem_response(
        request.scope, 422, "invalid_request", "The request is not valid", f"{where}: {first.detail}{more}", fields=fields
    )


def _field_problem(found: Mapping[str, Any], body: object) -> FieldProblem:
    place, (path, value) = found["loc"][0], blamed(found)
    location: Location = place if place in ("body", "query", "path", "header") else "request"
    missing = found["type"] in ("missing", "union_tag_not_found")
    pointer = pointer_of(path, body, keep_last=missing) if location == "body" else json_pointer(*path)
    message, expected = expectation(found)
    return FieldProblem(
        location=location,
        pointer=printable(pointer),
        code=found["type"],
        detail=printable(message),
        expected=printable(expected),
        # A missing field's "value" would be its parent, and headers may hold secrets.
        value=None if missing or location == "header" else repeatable(value),
    )


async def _out_of_range(request: Request, error: Exception) -> Response:
    """Each input is within its bounds, but together they lead beyond what a double holds: the caller's figures, not a failure."""
    structlog.get_logger().warning("result_out_of_range", exc_info=error)
    detail = "These figures lead to a result beyond 1.8e308. Look for a rate, a price or a count that is off by orders of magnitude."
    return problem_response(request.scope, 422, "result_out_of_range", "The result is out of range", detail)


async def _unusable_result(request: Request, error: ValidationError) -> Response:
    if any(found["type"] != "finite_number" for found in error.errors(include_url=False, include_input=False, include_context=False)):
        raise error
    return await _out_of_range(request, error)


async def _database_unavailable(request: Request, error: Exception) -> Response:
    structlog.get_logger().warning("database_unavailable", error=type(error).__name__, cause=str(error.__cause__ or error)[:500])
    detail = f"What is stored cannot be reached at the moment; try again in {RETRY_AFTER_S} seconds. Calculations go on."
    headers = {"Retry-After": str(RETRY_AFTER_S)}
    return problem_response(request.scope, 503, "database_unavailable", "The database cannot be reached", detail, headers=headers)


async def _conflict(request: Request, error: IntegrityError) -> Response:
    structlog.get_logger().warning("integrity_error", cause=str(error.orig)[:500])
    detail = "The change contradicts what is stored, most likely a change made at the same time; read it again and retry."
    return problem_response(request.scope, 409, "conflict", "The change conflicts with what is stored", detail)
