"""Who calls, and whether they may.

The middleware answers 401 before a byte of the body is read; the route class (`app.api.route`) and `require_scope` answer 403.
A key is looked up by the SHA-256 of its secret: one indexed query, whose result is kept for FRESH_S, so that a revoked key works
for at most that long in every process. When the database cannot be reached, a key that was found valid within the last GRACE_S goes
on working, because the calculations need no database either; a key not seen before is answered 503.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy.orm import Session, sessionmaker
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from app.api.errors import DATABASE_AWAY, RETRY_AFTER_S, Refusal, refusal_response
from app.db import api_keys as stored_keys
from app.domain.access import LOCAL, ApiKey, Principal, Scope
from app.services import api_keys

OPEN_PATHS = frozenset({"/livez", "/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"})
FRESH_S = 10.0
GRACE_S = 900.0
MAX_KEPT_KEYS = 1024
PRINCIPAL_KEY = "inferplan.principal"

Lookup = Callable[[str], ApiKey | None]


@dataclass(frozen=True, slots=True)
class _Seen:
    principal: Principal
    at_s: float


class Authentication:
    """ASGI middleware that puts the caller into the scope or answers 401."""

    def __init__(self, app: ASGIApp, *, required: bool, lookup: Lookup, clock: Callable[[], float] = time.monotonic) -> None:
        self.app = app
        self.required = required
        self.lookup = lookup
        self.clock = clock
        self.seen: OrderedDict[str, _Seen] = OrderedDict()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Pass the request on with its caller known."""
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            try:
                scope[PRINCIPAL_KEY] = await self._principal(scope)
            except Refusal as refusal:
                await refusal_response(scope, refusal)(scope, receive, send)
                return
        await self.app(scope, receive, send)

    async def _principal(self, scope: AsgiScope) -> Principal:
        secret = _secret(scope)
        if secret is None:
            if self.required:
                raise _unauthenticated("api_key_missing", "An API key is needed: `Authorization: Bearer <key>` or `X-API-Key: <key>`.")
            return LOCAL
        if not api_keys.is_well_formed(secret):
            raise _unauthenticated("api_key_invalid", "This is no API key of this service.")
        digest = api_keys.digest(secret)
        now_s = self.clock()
        seen = self.seen.get(digest)
        if seen is not None and now_s - seen.at_s < FRESH_S:
            return seen.principal
        try:
            key = await run_in_threadpool(self.lookup, digest)
        except DATABASE_AWAY:
            if seen is not None and now_s - seen.at_s < GRACE_S:
                return seen.principal
            detail = "The API key cannot be checked, because the database cannot be reached at the moment."
            headers = {"Retry-After": str(RETRY_AFTER_S)}
            raise Refusal(503, "database_unavailable", "The database cannot be reached", detail, headers=headers) from None
        self.seen.pop(digest, None)
        if key is None:
            raise _unauthenticated("api_key_invalid", "This API key is unknown or revoked.")
        principal = Principal(identity=str(key.id), name=key.name, scopes=frozenset(key.scopes))
        self.seen[digest] = _Seen(principal, now_s)
        if len(self.seen) > MAX_KEPT_KEYS:
            self.seen.popitem(last=False)
        return principal


def key_lookup(session_factory: sessionmaker[Session]) -> Lookup:
    """The look-up of a key's digest in the database."""

    def lookup(digest: str) -> ApiKey | None:
        with session_factory() as session:
            return stored_keys.find_valid(session, digest)

    return lookup


def check_scope(scope: AsgiScope, wanted: Scope) -> None:
    """Raise Refusal 403 unless the caller may do what `wanted` covers."""
    if wanted not in scope[PRINCIPAL_KEY].scopes:
        detail = f"This API key does not have the scope `{wanted}`."
        headers = {"WWW-Authenticate": f'Bearer realm="inferplan", error="insufficient_scope", scope="{wanted}"'}
        raise Refusal(403, "scope_missing", "The API key does not permit this", detail, headers=headers)


class RequiredScope:
    """Dependency that refuses callers without one scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope: Scope = scope

    async def __call__(self, request: Request) -> None:
        """Raise Refusal 403 unless the caller has the scope."""
        check_scope(request.scope, self.scope)


def require_scope(scope: Scope) -> RequiredScope:
    """For a route's `dependencies=[Depends(require_scope("write"))]`; `read` needs no mention (`app.api.route.PlannerRoute`)."""
    return RequiredScope(scope)


async def _caller(request: Request) -> Principal:
    principal: Principal = request.scope[PRINCIPAL_KEY]
    return principal


PrincipalDep = Annotated[Principal, Depends(_caller)]
"""The caller of the request."""


def _secret(scope: AsgiScope) -> str | None:
    given: str | None = None
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, credentials = value.decode("latin-1").partition(" ")
            if scheme.lower() == "bearer":
                return str(credentials.strip())
        elif name == b"x-api-key":
            given = value.decode("latin-1").strip()
    return given


def _unauthenticated(code: str, detail: str) -> Refusal:
    challenge = 'Bearer realm="inferplan"' + (', error="invalid_token"' if code == "api_key_invalid" else "")
    return Refusal(401, code, "Not authenticated", detail, headers={"WWW-Authenticate": challenge})
