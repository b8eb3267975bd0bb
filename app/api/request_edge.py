"""What happens around every request: its id, its line in the log, its limits. Pure ASGI, because each layer is paid by every request."""

import itertools
import re
import secrets
import time
from collections.abc import Mapping
from typing import Protocol

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.errors import PROBLEM_CODE_KEY, REQUEST_ID_KEY, Refusal, internal_error_response, refusal_response
from app.api.metering import RequestMetrics

MAX_QUERY_BYTES = 8192
MAX_QUERY_PARAMETERS = 100
MAX_PATH_CHARACTERS = 2048
QUIET_PATHS = frozenset({"/livez", "/healthz", "/readyz", "/metrics"})
"""Asked every few seconds by machines: not measured, and logged only when they fail."""
_REQUEST_ID = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:/+=-]{0,127}")


class RequestLine(Protocol):
    """Logs that a request has ended."""

    def __call__(self, *, request_id: str, method: str, route: str | None, status: int, duration_s: float, problem: str | None) -> object:
        """Write one line."""


class RequestRecord:
    """Gives each request an id, logs and measures it, and turns an unforeseen exception into a problem without its text.

    The log names the route's template, never the path itself: names that callers chose stay out of it.
    """

    def __init__(self, app: ASGIApp, *, log_line: RequestLine, metrics: RequestMetrics) -> None:
        self.app = app
        self.log_line = log_line
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started_s = time.perf_counter()
        request_id = _request_id(scope)
        header = (b"x-request-id", request_id.encode("ascii"))
        scope[REQUEST_ID_KEY] = request_id
        method = scope["method"]
        measured = scope["path"] not in QUIET_PATHS
        if measured:
            self.metrics.started()
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), header]
            await send(message)

        tokens = structlog.contextvars.bind_contextvars(request_id=request_id)
        try:
            await self.app(scope, receive, send_with_id)
        except Exception:
            structlog.get_logger().exception("unforeseen_error", method=method, route=_route_template(scope))
            if status:
                # Half an answer is out: only a broken connection tells the caller so.
                raise
            await internal_error_response(scope)(scope, receive, send_with_id)
        finally:
            duration_s = time.perf_counter() - started_s
            route = _route_template(scope)
            if measured:
                self.metrics.ended(method, route, status, duration_s)
            problem = scope.get(PROBLEM_CODE_KEY)
            if measured or status >= 400:
                self.log_line(request_id=request_id, method=method, route=route, status=status, duration_s=duration_s, problem=problem)
            structlog.contextvars.reset_contextvars(**tokens)


class RequestLimits:
    """Refuses what is too large before anything reads it, and what no database could store."""

    def __init__(self, app: ASGIApp, *, max_body_bytes: int, max_body_bytes_of: Mapping[str, int] | None = None) -> None:
        self.app = app
        self.max_body_bytes = max_body_bytes
        self.max_body_bytes_of = max_body_bytes_of or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its body counted."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            self._check_head(scope)
        except Refusal as refusal:
            await refusal_response(scope, refusal)(scope, receive, send)
            return
        received_bytes = 0
        allowed_bytes = self._allowed_bytes(scope)

        async def receive_counted() -> Message:
            nonlocal received_bytes
            message = await receive()
            if message["type"] == "http.request":
                received_bytes += len(message.get("body", b""))
                if received_bytes > allowed_bytes:
                    raise _too_large(allowed_bytes)
            return message

        await self.app(scope, receive_counted, send)

    def _check_head(self, scope: Scope) -> None:
        path, query = scope["path"], scope["query_string"]
        if len(path) > MAX_PATH_CHARACTERS:
            detail = f"The path is longer than {MAX_PATH_CHARACTERS} characters."
            raise Refusal(414, "path_too_long", "The path is too long", detail)
        if query:
            _check_query(query)
        if "\0" in path or b"%00" in query:
            detail = "The path or the query holds the character U+0000, which the database cannot store."
            raise Refusal(422, "nul_character", "The request is not valid", detail)
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit():
                allowed_bytes = self._allowed_bytes(scope)
                if len(value) > 18 or int(value) > allowed_bytes:
                    raise _too_large(allowed_bytes)

    def _allowed_bytes(self, scope: Scope) -> int:
        return self.max_body_bytes_of.get(scope["path"], self.max_body_bytes)


def _too_large(allowed_bytes: int) -> Refusal:
    return Refusal(413, "body_too_large", "The body is too large", f"The body has more than {allowed_bytes} bytes.")


class HeadAsGet:
    """Answers HEAD as GET without the body (RFC 9110 section 9.3.2)."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return

        async def send_head(message: Message) -> None:
            if message["type"] == "http.response.start":
                # The server looks here to know that no body follows the announced length.
                scope["method"] = "HEAD"
                await send(message)
            elif message["type"] == "http.response.body" and not message.get("more_body", False):
                await send({"type": "http.response.body", "body": b""})

        scope["method"] = "GET"
        await self.app(scope, receive, send_head)


# Distinct across processes by the random half, within one by the counter; nobody has to guess them, so the counter may be seen.
_PROCESS = secrets.token_hex(8)
_numbers = itertools.count(1)


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return str(value.decode("ascii"))
    return f"{_PROCESS}{next(_numbers):016x}"


def _route_template(scope: Scope) -> str | None:
    template: str | None = getattr(scope.get("route"), "path_format", None)
    return template


def _check_query(query: bytes) -> None:
    if len(query) > MAX_QUERY_BYTES:
        raise Refusal(414, "query_too_long", "The query is too long", f"The query string has more than {MAX_QUERY_BYTES} bytes.")
    if query.count(b"&") >= MAX_QUERY_PARAMETERS:
        detail = f"The query string has more than {MAX_QUERY_PARAMETERS} parameters."
        raise Refusal(414, "too_many_query_parameters", "The query has too many parameters", detail)
