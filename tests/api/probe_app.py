"""The real application with routes of its own that fail in every way an endpoint can, so that the edge is tested apart from the planner."""

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Query
from pydantic import Field, field_validator
from sqlalchemy import text
from sqlalchemy.orm import Session, sessionmaker

from app import log_setup
from app.api.auth import PrincipalDep, require_scope
from app.api.deps import SessionDep
from app.api.route import PlannerRoute
from app.domain import errors
from app.domain.value import Value
from app.main import create_app
from app.settings import Settings

SECRET_TEXT = "the password is hunter2"


class Spec(Value):
    """One member of a union."""

    memory_bytes: Annotated[int, Field(gt=0)]


class ProbeRequest(Value):
    """A body with one field of each kind that a validator treats differently."""

    gpu: str | Spec = "h100"
    rate_per_s: Annotated[float, Field(ge=0)] = 1.0
    num_rows: Annotated[int, Field(gt=0, le=100)] = 1
    kind: Literal["a", "b"] = "a"
    even: int = 2
    anything: dict[str, Any] | None = None

    @field_validator("even")
    @classmethod
    def _is_even(cls, even: int) -> int:
        if even % 2:
            raise ValueError("must be even")
        return even


class ProbeAnswer(Value):
    """The body as it arrived."""

    request: ProbeRequest


REFUSALS: dict[str, errors.PlannerError] = {
    "planner": errors.PlannerError("No."),
    "invalid": errors.InvalidInput("tp 3 does not divide 8 heads.", field="/deployment/tp", value=3, expected="a divisor of 8"),
    "unknown": errors.UnknownName("No GPU h1000.", nearest=("h100-sxm-80gb", "h200"), field="/gpu", value="h1000"),
    "figure": errors.MissingFigure("No FP8 FLOP/s.", field="/gpu"),
    "config": errors.UnsupportedConfig("rope_scaling is not understood.", field="/config/rope_scaling", value={"secret": SECRET_TEXT}),
    "missing": errors.NotFound("No such plan."),
    "exists": errors.AlreadyExists("There is one."),
    "bundled": errors.ReadOnly("Bundled."),
    "stale": errors.StaleVersion("Changed."),
    "replay": errors.IdempotencyConflict("Another payload."),
}

router = APIRouter(prefix="/probe", route_class=PlannerRoute, include_in_schema=False)


@router.post("")
async def echo(request: ProbeRequest) -> ProbeAnswer:
    """Answer what came."""
    return ProbeAnswer(request=request)


@router.get("")
async def listing(limit: Annotated[int, Query(gt=0)] = 1, label: Annotated[list[str] | None, Query(max_length=3)] = None) -> int:
    """Take query parameters."""
    return limit + len(label or ())


@router.put("/items/{number}", dependencies=[Depends(require_scope("write"))])
async def change(number: int, caller: PrincipalDep, x_secret: Annotated[int | None, Header()] = None) -> str:
    """Need the scope write."""
    return caller.name


@router.get("/crash")
async def crash() -> None:
    """Fail in a way nobody foresaw."""
    raise RuntimeError(SECRET_TEXT)


@router.get("/overflow/{name}")
async def overflow(name: str) -> ProbeAnswer:
    """Compute what no double holds, or build a value that is wrong in another way."""
    match name:
        case "integer":
            rate = 10**400 / 3
        case "float":
            rate = 1e300 * 1e300
        case _:
            rate = -1.0
    return ProbeAnswer(request=ProbeRequest(rate_per_s=rate))


@router.get("/teapot")
async def teapot() -> None:
    """Raise the framework's own exception."""
    raise HTTPException(418, "short and stout", headers={"X-Handle": "left"})


@router.get("/refuse/{name}")
async def refuse(name: str) -> None:
    """Refuse as the planner does."""
    raise REFUSALS[name]


@router.post("/refuse/{name}")
async def refuse_body(name: str, _request: ProbeRequest) -> None:
    """Refuse as the planner does, with a body to point into."""
    raise REFUSALS[name]


@router.post("/commit/{value}", status_code=201, dependencies=[Depends(require_scope("write"))])
def commit(value: int, session: SessionDep) -> int:
    """Write a row whose constraint is checked when the transaction commits, not before."""
    session.execute(text("insert into probe_deferred (value) values (:value)"), {"value": value})
    return value


def probe_app(settings: Settings, session_factory: sessionmaker[Session]) -> FastAPI:
    """The application with the probe's routes beside its own."""
    app = create_app(settings, session_factory=session_factory)
    app.include_router(router)
    return app


@contextmanager
def captured_log() -> Iterator[io.StringIO]:
    """What is logged as JSON, line by line; the logging of the test run is put back afterwards."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    stream = io.StringIO()
    log_setup.configure(stream=stream)
    try:
        yield stream
    finally:
        log_setup.reset()
        root.handlers[:] = handlers
        root.setLevel(level)
