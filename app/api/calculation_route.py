"""The route class of the calculations: a body in, a value out, and nothing of FastAPI's machinery in between.

Dependency graphs, exit stacks and parameter collection cost more CPU time than the calculation that they surround (measured by
`tests/benchmarks/calculations.py`). The signature of the endpoint stays FastAPI's, and so does the OpenAPI document.
"""

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from fastapi import params
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.api.auth import check_scope
from app.api.errors import Refusal
from app.api.json_body import parse
from app.api.route import PlannerRoute, check_media_type

Provider = Callable[[Request], Awaitable[Any]]

_HEEDED_BY_FASTAPI_ONLY = (
    "status_code",
    "response_model_include",
    "response_model_exclude",
    "response_model_exclude_unset",
    "response_model_exclude_defaults",
    "response_model_exclude_none",
    "max_body_size",
)
"""Attributes of a route by which `handle` would answer otherwise than the OpenAPI document says."""


class CalculationRoute(PlannerRoute):
    """For endpoints that are `async def`, take one body and values that depend on the request alone, and return one value.

    Raises TypeError when the route is declared with any other endpoint, or with an option that only FastAPI's own handler heeds.
    """

    def __init__(self, path: str, endpoint: Callable[..., Awaitable[Any]], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        hints = get_type_hints(endpoint, include_extras=True)
        answer_type = hints.pop("return")
        providers = {name: provider for name, hint in hints.items() if (provider := _provider(hint))}
        bodies = {name: hint for name, hint in hints.items() if name not in providers}
        if not inspect.iscoroutinefunction(endpoint) or len(bodies) != 1 or self.dependencies:
            raise TypeError(f"{path}: a calculation is `async def`, takes one body and has no other dependencies than values")
        ((self._body_name, body_type),) = bodies.items()
        if any(isinstance(part, params.Param | params.Body) for part in get_args(body_type)):
            raise TypeError(f"{path}: a calculation takes its body as it is, and neither a query nor a header")
        ignored = [name for name in _HEEDED_BY_FASTAPI_ONLY if getattr(self, name)]
        if self.response_model != answer_type or isinstance(self.response_class, type):
            ignored += ["response_model or response_class"]
        if ignored:
            raise TypeError(f"{path}: a calculation answers 200 with the value it returns; {', '.join(ignored)} would be ignored")
        self._providers = providers
        # As FastAPI does, so that errors have the codes that they have elsewhere.
        self._read: Callable[[object], Any] = partial(TypeAdapter(body_type).validate_python, from_attributes=True)
        self._write: Callable[[Any], bytes] = TypeAdapter(answer_type).dump_json

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; other methods, and tests that replace a dependency, go FastAPI's way."""
        if scope["method"] not in (self.methods or ()) or scope["app"].dependency_overrides:
            await super().handle(scope, receive, send)
            return
        check_scope(scope, self.required_scope)
        check_media_type(scope)
        arguments = {self._body_name: self._validated(await _body(receive))}
        request = Request(scope)
        for name, provide in self._providers.items():
            arguments[name] = await provide(request)
        answer = await self.endpoint(**arguments)
        await Response(self._write(answer), media_type="application/json")(scope, receive, send)

    def _validated(self, body: bytes) -> Any:
        if not body:
            raise RequestValidationError([{"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}])
        value = parse(body)
        try:
            return self._read(value)
        except ValidationError as error:
            found = [{**one, "loc": ("body", *one["loc"])} for one in error.errors(include_url=False)]
            raise RequestValidationError(found, body=value) from None


def _provider(hint: Any) -> Provider | None:
    """The function of a parameter `Annotated[…, Depends(function)]`, None for the body; it may take nothing but the request."""
    depends = [part for part in get_args(hint)[1:] if isinstance(part, params.Depends)] if get_origin(hint) is Annotated else []
    if not depends:
        return None
    provide = depends[0].dependency
    taken = list(get_type_hints(provide).values())[:-1] if provide else []
    if provide is None or taken != [Request] or not inspect.iscoroutinefunction(provide):
        raise TypeError(f"{provide}: a calculation takes values from `async def` functions of the request only")
    return provide


async def _body(receive: Receive) -> bytes:
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body", False):
        body: bytes = message.get("body", b"")
        return body
    chunks = []
    while message["type"] == "http.request":
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(chunks)
        message = await receive()
    raise Refusal(400, "body_incomplete", "The body is incomplete", "The connection was closed before the body had arrived.")
