"""The simulation over HTTP: off the event loop, and a few at a time."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor

from fastapi import APIRouter

from app.api.calculation_route import CalculationRoute
from app.api.deps import CatalogDep
from app.domain.simulation_answer import SimulationAnswer
from app.services.simulation import simulation
from app.services.simulation_request import SimulationRequest

router = APIRouter(tags=["estimates"], route_class=CalculationRoute)


SIMULATION_WORKERS = ThreadPoolExecutor(max(1, (os.cpu_count() or 2) // 2), thread_name_prefix="simulation")
"""As many simulations at once as half of the cores: the rest wait, and other requests do not wait for them."""


@router.post("/simulate", summary="What happens in the tail?")
async def simulate(request: SimulationRequest, catalog: CatalogDep) -> SimulationAnswer:
    """Percentiles of queue, TTFT, TPOT, ITL and end-to-end time of a fleet, simulated step by step with the step times of `/performance`.

    Bursts, traces, mixes, load balancing, replicas that are lost, doubled traffic, retries, flushed caches, floods of long prompts. Every
    figure has its confidence interval over the seeds. More work than a few seconds of computing is refused with what would be answered.
    """
    return await asyncio.get_running_loop().run_in_executor(SIMULATION_WORKERS, simulation, catalog, request)
