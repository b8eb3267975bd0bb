"""The OpenAPI document: FastAPI's own, with the problems, limits and keys that apply to every operation said once."""

import json
from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from app.api.auth import OPEN_PATHS
from app.api.errors import MEDIA_TYPE
from app.api.examples import EXAMPLES
from app.api.route import PlannerRoute
from app.domain.problem import FieldProblem, Problem

Document = dict[str, Any]

SECURITY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key of the service, `inferplan_…`."},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "The same key, for clients that cannot send Bearer."},
}

PROBLEMS = {
    "400": ("Malformed", "The body is no UTF-8 or no JSON.", "malformed_json", "The body is not usable JSON"),
    "401": ("Unauthenticated", "No API key, or one that is unknown or revoked.", "api_key_missing", "Not authenticated"),
    "403": ("Forbidden", "The API key lacks the scope that this operation needs.", "scope_missing", "The API key does not permit this"),
    "404": ("NotFound", "There is nothing of this name.", "not_found", "Not found"),
    "409": ("Conflict", "The change conflicts with what is stored.", "already_exists", "Already exists"),
    "412": ("StaleVersion", "What is stored has changed since it was read.", "stale_version", "The stored version has changed"),
    "413": ("TooLarge", "The body is larger than the service accepts.", "body_too_large", "The body is too large"),
    "414": ("UriTooLong", "The path or the query is longer than the service accepts.", "query_too_long", "The query is too long"),
    "415": ("UnsupportedMediaType", "The body is not application/json.", "unsupported_media_type", "Unsupported media type"),
    "422": ("Invalid", "A value is not valid; `errors` names each.", "invalid_request", "The request is not valid"),
    "428": ("PreconditionRequired", "The request needs If-Match.", "precondition_required", "The request needs If-Match"),
    "500": ("InternalError", "The service failed; its log says why under the request id.", "internal_error", "Internal error"),
    "503": ("Unavailable", "The database cannot be reached; see Retry-After.", "database_unavailable", "The database cannot be reached"),
}
"""Status: name of the response component, description, and code and title of its example."""


class DocumentedApp(FastAPI):
    """FastAPI whose document describes what the service does around its routes."""

    _amended: Document | None = None

    def openapi(self) -> Document:
        """The document, built once."""
        document = super().openapi()
        if document is not self._amended:
            _amend(document, self)
            self._amended = document
        return document


def document(app: FastAPI) -> str:
    """The document as text, the same for the same code: what `openapi/openapi.json` holds."""
    return json.dumps(app.openapi(), indent=2, ensure_ascii=False) + "\n"


def _amend(document: Document, app: FastAPI) -> None:
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for replaced in ("HTTPValidationError", "ValidationError"):
        schemas.pop(replaced, None)
    schemas["FieldProblem"] = FieldProblem.model_json_schema()
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    problem.pop("$defs")
    schemas["Problem"] = problem
    components["schemas"] = dict(sorted(schemas.items()))
    components["securitySchemes"] = SECURITY_SCHEMES
    components["responses"] = {name: _component(status, *rest) for status, (name, *rest) in PROBLEMS.items()}
    scopes = {(context.path_format, method): _scope_of(context.original_route) for context, method in _operations(app)}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            scope = None if path in OPEN_PATHS else scopes[path, method.upper()]
            _amend_operation(operation, scope)


def _operations(app: FastAPI) -> Iterator[tuple[Any, str]]:
    for context in iter_route_contexts(app.routes):
        for method in context.methods or ():
            yield context, method


def _scope_of(route: object) -> str | None:
    return route.required_scope if isinstance(route, PlannerRoute) else None


def _amend_operation(operation: Document, scope: str | None) -> None:
    responses: Document = operation["responses"]
    statuses = {status for status in responses if status[0] in "45"} - {"422"}
    statuses |= {"500"}
    if scope is not None:
        operation["security"] = [{name: [scope]} for name in SECURITY_SCHEMES]
        statuses |= {"401", "403", "503"}
    if "requestBody" in operation:
        _add_examples(operation)
        statuses |= {"400", "413", "415", "422"}
    if operation.get("parameters"):
        statuses |= {"414", "422"}
    succeeded = {status: answer for status, answer in responses.items() if status[0] not in "45"}
    described = {status: responses[status].get("description") for status in statuses & responses.keys()}
    operation["responses"] = succeeded | {status: _problem_answer(status, described.get(status)) for status in sorted(statuses)}


def _add_examples(operation: Document) -> None:
    examples = EXAMPLES.get(operation["operationId"], {})
    if examples:
        content = operation["requestBody"]["content"]["application/json"]
        content["examples"] = {name: {"summary": summary, "value": value} for name, (summary, value) in examples.items()}


def _problem_answer(status: str, description: str | None) -> Document:
    if status not in PROBLEMS:
        return {"description": description or "Refused", "content": _problem_content()}
    return {"$ref": f"#/components/responses/{PROBLEMS[status][0]}"}


def _component(status: str, description: str, code: str, title: str) -> Document:
    content = _problem_content()
    content[MEDIA_TYPE]["example"] = {
        "type": f"/problems/{code}",
        "title": title,
        "status": int(status),
        "detail": description,
        "code": code,
        "request_id": "5f1d2c0f9a6b4b7e8c3d2a1b0f9e8d7c",
        "errors": [],
    }
    return {"description": description, "content": content, "headers": {"X-Request-ID": _REQUEST_ID_HEADER}}


def _problem_content() -> Document:
    return {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}


_REQUEST_ID_HEADER: Document = {"description": "The id of the request in the service's logs.", "schema": {"type": "string"}}
