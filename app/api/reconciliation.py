"""Reconciling a start-up log over HTTP."""

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool

from app.api.calculation_route import CalculationRoute
from app.api.deps import CatalogDep
from app.domain.reconciliation_answer import ReconciliationAnswer
from app.services import reconciliation
from app.services.reconciliation import ReconcileRequest

router = APIRouter(tags=["estimates"], route_class=CalculationRoute)


@router.post("/memory/reconcile", summary="Why does the engine print something else?")
async def reconcile(request: ReconcileRequest, catalog: CatalogDep) -> ReconciliationAnswer:
    """Printed start-up figures against the estimate, term by term, with what explains each gap and a deployment that reproduces them.

    Paste the log of vLLM, SGLang, TensorRT-LLM or llama.cpp, or name the figures. Settings that the log prints go before those of the
    request. The corrected deployment holds a measured reserve: `/memory`, `/concurrency` and `/capacity` then plan with what was printed.
    """
    return await run_in_threadpool(reconciliation.reconcile, catalog, request)
