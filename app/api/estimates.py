"""The calculations over HTTP: nothing is stored, and the database is not asked."""

import asyncio

from fastapi import APIRouter

from app.api.calculation_route import CalculationRoute
from app.api.deps import CatalogDep
from app.api.simulation import SIMULATION_WORKERS
from app.domain.capacity_answer import CapacityAnswer
from app.domain.concurrency import ConcurrencyAnswer
from app.domain.cost import CostAnswer
from app.domain.kv_answer import KvAnswer
from app.domain.memory_answer import MemoryAnswer
from app.domain.performance_answer import PerformanceAnswer
from app.services import estimates
from app.services.capacity import capacity as plan_capacity
from app.services.cost import cost as price
from app.services.cost_request import CostRequest
from app.services.requests import CapacityRequest, ConcurrencyRequest, KvRequest, MemoryRequest, PerformanceRequest
from app.services.simulated_capacity import simulates

router = APIRouter(tags=["estimates"], route_class=CalculationRoute)


@router.post("/memory")
async def memory(request: MemoryRequest, catalog: CatalogDep) -> MemoryAnswer:
    """Does a replica fit: weights, reserve and KV cache against the memory of each accelerator, and what would fit instead."""
    return estimates.memory(catalog, request)


@router.post("/kv")
async def kv(request: KvRequest, catalog: CatalogDep) -> KvAnswer:
    """How large the KV cache is: per token, per sequence, by length and precision, against other attention kinds."""
    return estimates.kv(catalog, request)


@router.post("/concurrency")
async def concurrency(request: ConcurrencyRequest, catalog: CatalogDep) -> ConcurrencyAnswer:
    """How many requests a replica holds at once: theoretical, safe, and the `max_num_seqs` to start a load test with."""
    return estimates.concurrency(catalog, request)


@router.post("/performance")
async def performance(request: PerformanceRequest, catalog: CatalogDep) -> PerformanceAnswer:
    """How fast a replica serves at a concurrency or a rate: times and rates with their range, what binds, and where it saturates."""
    return estimates.performance(catalog, request)


@router.post("/capacity")
async def capacity(request: CapacityRequest, catalog: CatalogDep) -> CapacityAnswer:
    """How many replicas, accelerators and nodes a workload needs, and which constraint binds.

    With objectives and a named engine, fleets are simulated until their P95 and P99 hold, which takes some seconds; `percentiles` chooses.
    """
    if simulates(request):
        return await asyncio.get_running_loop().run_in_executor(SIMULATION_WORKERS, plan_capacity, catalog, request)
    return plan_capacity(catalog, request)


@router.post("/cost")
async def cost(request: CostRequest, catalog: CatalogDep) -> CostAnswer:
    """What a million tokens, a request and a business task cost at a price and a throughput.

    With model, deployment and workload, input and output are priced by the time that each uses.
    """
    if request.plan is not None and simulates(request.plan):
        return await asyncio.get_running_loop().run_in_executor(SIMULATION_WORKERS, price, catalog, request)
    return price(catalog, request)
