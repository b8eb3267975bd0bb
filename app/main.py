"""Puts the service together: settings, database, catalog snapshot, routers, and what lies around every request."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from sqlalchemy.orm import Session, sessionmaker
from starlette.concurrency import run_in_threadpool

from app import __version__, log_setup
from app.api import (
    calibrations,
    diagnosis,
    diagnosis_profiles,
    errors,
    estimates,
    gpus,
    health,
    jobs,
    model_import,
    models,
    operations,
    plans,
    recommendation,
    reconciliation,
    simulation,
)
from app.api.auth import Authentication, key_lookup
from app.api.metering import RequestMetrics
from app.api.openapi import DocumentedApp
from app.api.request_edge import HeadAsGet, RequestLimits, RequestRecord
from app.domain.rule import Rule
from app.rules.loader import load_rules
from app.services.catalog import CatalogHolder
from app.services.jobs import queue_state
from app.settings import Settings

# The calculations come first: a request is matched against the routes in this order.
ROUTERS: tuple[APIRouter, ...] = (
    estimates.router,
    simulation.router,
    recommendation.router,
    reconciliation.router,
    diagnosis.router,
    diagnosis_profiles.router,
    gpus.router,
    model_import.router,
    models.router,
    plans.router,
    calibrations.router,
    jobs.router,
    operations.router,
    health.router,
)

DESCRIPTION = """Capacity planning for LLM inference: memory, KV cache, concurrency, replicas, cost and diagnosis, each with its working.

Numbers are in base units, and the unit is the suffix of the name: bytes, seconds, tokens, FLOP/s, ratios from 0 to 1, USD.
Unknown fields are an error. Every 4xx and 5xx answer is an RFC 9457 problem (`application/problem+json`) with a stable `code`.
`X-Request-ID` is taken over when it is sent and stands on every answer. API keys are asked for unless the service listens on
loopback only: `read` permits calculations and reading, `write` permits changing what is stored."""

TAGS: list[dict[str, Any]] = [
    {"name": "estimates", "description": "Calculations: nothing is stored."},
    {"name": "diagnosis", "description": "What limits a running deployment, from its metrics, by the thresholds of the rules or your own."},
    {"name": "operations", "description": "Load tests that prove a plan, what their results say, and what watches the fleet."},
    {"name": "gpus", "description": "The catalog of accelerators: bundled entries and your own."},
    {"name": "models", "description": "The catalog of models: bundled entries, your own, and the import of a Hugging Face config.json."},
    {"name": "calibrations", "description": "Measured sweeps that estimates of the same set-up follow."},
    {"name": "plans", "description": "Saved plans with their revisions."},
    {"name": "jobs", "description": "Calculations that take longer than a request should: how far they are, and their answers."},
    {"name": "service", "description": "Health and metrics, open to everyone."},
]


def create_app(settings: Settings, *, session_factory: sessionmaker[Session]) -> FastAPI:
    """The service on an open database; also starts while the database is away."""
    log_setup.without_locals()
    metrics = RequestMetrics()
    app = DocumentedApp(
        title="Inferplan",
        version=__version__,
        description=DESCRIPTION,
        openapi_tags=TAGS,
        lifespan=_lifespan,
        telemetry={"metrics": False, "logs": False},
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        redirect_slashes=False,
        generate_unique_id_function=_operation_id,
    )
    app.state.settings = settings
    app.state.session_factory = session_factory
    app.state.catalog = CatalogHolder()
    app.state.rules = _bundled_rules()
    app.state.metrics = metrics.registry
    app.state.show_queue = metrics.show_queue
    errors.install(app)
    # The last one added is the outermost.
    app.add_middleware(HeadAsGet)
    app.add_middleware(Authentication, required=settings.api_key_required, lookup=key_lookup(session_factory))
    app.add_middleware(
        RequestLimits, max_body_bytes=settings.max_body_bytes, max_body_bytes_of={"/diagnose": settings.max_scrape_body_bytes}
    )
    app.add_middleware(RequestRecord, log_line=log_setup.log_request, metrics=metrics)
    for router in ROUTERS:
        app.include_router(router)
    return app


@cache
def _bundled_rules() -> Sequence[Rule]:
    return load_rules()


def _operation_id(route: APIRoute) -> str:
    return route.name


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    catalog: CatalogHolder = app.state.catalog
    await run_in_threadpool(catalog.refresh_from, app.state.session_factory)
    poller = asyncio.create_task(_poll(app, catalog))
    yield
    poller.cancel()
    with suppress(asyncio.CancelledError):
        await poller


async def _poll(app: FastAPI, catalog: CatalogHolder) -> None:
    """Take over what other processes changed, and see how the jobs stand."""
    settings: Settings = app.state.settings
    while True:
        await asyncio.sleep(settings.catalog_poll_s)
        await run_in_threadpool(catalog.refresh_from, app.state.session_factory)
        app.state.show_queue(await run_in_threadpool(queue_state, app.state.session_factory, settings.worker_dead_after_s))
