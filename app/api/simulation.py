"""The simulation over HTTP: small ones at once, off the event loop and a few at a time; larger ones and sweeps as jobs."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from app.api.auth import PrincipalDep
from app.api.deps import CatalogDep, SessionDep
from app.api.idempotency import IdempotencyKey
from app.api.jobs import ACCEPTED, ACCEPTED_ALWAYS, accepted
from app.api.long_calls import CallerGone, Prefer, unless_gone, wants_job
from app.api.route import PlannerRoute
from app.domain.simulation_answer import SimulationAnswer
from app.services.job_work import SimulationWork, SweepWork
from app.services.simulation import direct_answer
from app.services.simulation_request import SimulationRequest
from app.services.simulation_sweep import SweepRequest
from app.services.simulation_work import MOST_DIRECT_CPU_S, work_s

router = APIRouter(tags=["estimates"], route_class=PlannerRoute)

CLIENT_CLOSED_REQUEST = 499
"""Nobody reads it; logs and metrics do."""
SIMULATION_WORKERS = ThreadPoolExecutor(max(1, (os.cpu_count() or 2) // 2), thread_name_prefix="simulation")
"""As many simulations at once as half of the cores: the rest wait, and other requests do not wait for them."""


@router.post("/simulate", summary="What happens in the tail?", response_model=SimulationAnswer, responses=ACCEPTED)
async def simulate(
    body: SimulationRequest,
    catalog: CatalogDep,
    session: SessionDep,
    principal: PrincipalDep,
    request: Request,
    prefer: Prefer = None,
    idempotency_key: IdempotencyKey = None,
) -> SimulationAnswer | Response:
    """Percentiles of queue, TTFT, TPOT, ITL and end-to-end time of a fleet, simulated step by step with the step times of `/performance`.

    Bursts, traces, mixes, load balancing, replicas that are lost, doubled traffic, retries, flushed caches, floods of long prompts. Every
    figure has its confidence interval over the seeds. More work than a few seconds of computing becomes a job, which has the same answer;
    more than an hour is refused with what would be answered.
    """
    work = await run_in_threadpool(SimulationWork, catalog, body)
    if wants_job(prefer) or work_s(work.found.scenario) > MOST_DIRECT_CPU_S:
        return await run_in_threadpool(accepted, session, principal, idempotency_key, "simulation", body, work, prefer)

    def compute(is_gone: Callable[[], bool]) -> SimulationAnswer:
        def tell(_: float) -> None:
            if is_gone():
                raise CallerGone

        tell(0.0)
        return direct_answer(work.found, tell)

    try:
        return await unless_gone(request, SIMULATION_WORKERS, compute)
    except CallerGone:
        return Response(status_code=CLIENT_CLOSED_REQUEST)


@router.post("/simulate/sweep", status_code=202, summary="Which fleet holds which rate?", responses=ACCEPTED_ALWAYS)
def sweep(
    body: SweepRequest,
    catalog: CatalogDep,
    session: SessionDep,
    principal: PrincipalDep,
    prefer: Prefer = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Simulations of every combination of deployments, replicas and rates, each with all seeds: always a job, spread over all workers.

    Its answer has the figures of every point with their intervals, which points hold the objectives, and the highest rate that each fleet
    holds.
    """
    return accepted(session, principal, idempotency_key, "sweep", body, SweepWork(catalog, body), prefer)
