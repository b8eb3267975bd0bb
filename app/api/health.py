"""Liveness, readiness and metrics: open to everyone, asked by machines every few seconds."""

from typing import Annotated

import anyio
from fastapi import APIRouter, Depends, Request, Response
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest

from app import __version__
from app.api.errors import RETRY_AFTER_S, Refusal
from app.domain.health import Liveness, Readiness
from app.domain.problem import FieldProblem
from app.services.readiness import readiness

READINESS_TIMEOUT_S = 4.0
"""Probes give up after a few seconds; an answer in time says more than a broken connection."""

router = APIRouter(tags=["service"])
_PROBES = anyio.CapacityLimiter(2)
"""Threads for probes alone, so that requests which wait for a dead database do not keep the probe from saying so."""


@router.get("/livez", summary="Is the process alive?")
async def livez() -> Liveness:
    """Answers as long as the process does; never asks the database, so that an orchestrator does not restart what waits for it."""
    return Liveness(status="alive", version=__version__)


@router.get("/healthz", summary="Is the process alive? (alias of /livez)")
async def healthz() -> Liveness:
    """The older name of `/livez`."""
    return await livez()


@router.get("/readyz", summary="Can every request be answered?", responses={503: {}})
async def readyz(request: Request) -> Readiness:
    """Database reachable, schema at the revision this version needs, catalog loaded; 503 names what is not."""
    state = request.app.state
    found = None
    with anyio.move_on_after(READINESS_TIMEOUT_S):
        found = await anyio.to_thread.run_sync(
            lambda: readiness(state.session_factory, catalog_version=state.catalog.version),
            abandon_on_cancel=True,
            limiter=_PROBES,
        )
    if found is None:
        raise _not_ready([_fault("database", f"did not answer within {READINESS_TIMEOUT_S:g} s")])
    if not found.ready:
        raise _not_ready([_fault(check.name, check.detail) for check in found.checks if not check.ok])
    return found


async def _registry(request: Request) -> CollectorRegistry:
    registry: CollectorRegistry = request.app.state.metrics
    return registry


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={200: {"description": "Prometheus text format", "content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(registry: Annotated[CollectorRegistry, Depends(_registry)]) -> Response:
    """Durations and counts of requests by method, route template and status, in the text format 0.0.4 of Prometheus."""
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)


def _fault(part: str, detail: str) -> FieldProblem:
    return FieldProblem(location="service", pointer=f"/{part}", code="not_ready", detail=detail, expected=None, value=None)


def _not_ready(faults: list[FieldProblem]) -> Refusal:
    detail = "; ".join(f"{fault.pointer[1:]}: {fault.detail}" for fault in faults)
    headers = {"Retry-After": str(RETRY_AFTER_S)}
    return Refusal(503, "not_ready", "The service is not ready", detail, fields=faults, headers=headers)
