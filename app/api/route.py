"""The route class of every router but health: what one kind of caller sends at another's expense is refused before the endpoint runs."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.types import Scope as AsgiScope

from app.api.auth import RequiredScope, check_scope
from app.api.errors import Refusal
from app.api.json_body import parse
from app.domain.access import Scope

_EMPTY_CODINGS = ("", "identity")


class StrictJsonRequest(Request):
    """A request whose JSON is read by `app.api.json_body`."""

    async def json(self) -> object:
        """The parsed body; raises Refusal for what is no strict JSON."""
        return parse(await self.body())


class PlannerRoute(APIRoute):
    """Asks for the scope `read` unless the route asks for another, for `application/json`, and for strict JSON.

    Done here because a dependency that does no more than compare two strings costs more than a calculation.
    """

    @property
    def required_scope(self) -> Scope:
        """The scope that a caller needs."""
        asked = (marker.dependency for marker in self.dependencies)
        return next((dependency.scope for dependency in asked if isinstance(dependency, RequiredScope)), "read")

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler behind the checks."""
        handle = super().get_route_handler()
        takes_body = self.body_field is not None
        reads = self.required_scope == "read"

        async def checked(request: Request) -> Response:
            if reads:
                check_scope(request.scope, "read")
            if takes_body:
                check_media_type(request.scope)
                request = StrictJsonRequest(request.scope, request.receive)
            return await handle(request)

        return checked


def check_media_type(scope: AsgiScope) -> None:
    """Raise Refusal 415 unless the body, if there is one, is plain JSON."""
    content_type = coding = length = b""
    chunked = False
    for name, value in scope["headers"]:
        if name == b"content-type":
            content_type = value
        elif name == b"content-encoding":
            coding = value
        elif name == b"content-length":
            length = value
        elif name == b"transfer-encoding":
            chunked = True
    if content_type == b"application/json" and not coding:
        return
    if not chunked and length in (b"", b"0"):
        return
    essence = content_type.partition(b";")[0].strip().lower()
    if not (essence == b"application/json" or (essence.startswith(b"application/") and essence.endswith(b"+json"))):
        got = f"not {essence.decode('latin-1')!r}" if essence else "and the request names none"
        raise Refusal(
            415,
            "unsupported_media_type",
            "Unsupported media type",
            f"The body has to be application/json, {got}.",
            headers={"Accept": "application/json"},
        )
    if coding.decode("latin-1").strip().lower() not in _EMPTY_CODINGS:
        detail = f"The body has to come without a content coding, not as {coding.decode('latin-1')!r}."
        raise Refusal(415, "unsupported_content_coding", "Unsupported content coding", detail, headers={"Accept-Encoding": "identity"})
