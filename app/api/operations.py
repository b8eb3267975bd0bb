"""What surrounds a plan in operation, over HTTP: monitoring and load tests."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends

from app.api.deps import CatalogDep, SessionDep
from app.api.diagnosis import get_rules
from app.api.route import PlannerRoute
from app.api.simulation import SIMULATION_WORKERS
from app.domain.load_test import LoadTestAnswer
from app.domain.load_test_results import LoadTestAnalysis
from app.domain.monitoring import MonitoringAnswer
from app.domain.rule import Rule
from app.services.load_test_analysis import AnalysisRequest, analyse
from app.services.load_tests import LoadTestRequest
from app.services.load_tests import load_tests as lay_out
from app.services.monitoring import MonitoringRequest
from app.services.monitoring import monitoring as watch

router = APIRouter(tags=["operations"], route_class=PlannerRoute)


@router.post("/monitoring", summary="What watches it?", responses={404: {}})
async def monitoring(body: MonitoringRequest, session: SessionDep, catalog: CatalogDep) -> MonitoringAnswer:
    """Prometheus alert rules and a Grafana dashboard for a plan, the production checklist, and the order of optimisation.

    Thresholds follow from the plan's objectives and capacity; each says from what. A `plan` given in full asks no database.
    """
    return await asyncio.get_running_loop().run_in_executor(SIMULATION_WORKERS, watch, session, catalog, body)


@router.post("/load-tests", summary="How is it proved?", responses={404: {}})
async def load_tests(body: LoadTestRequest, session: SessionDep, catalog: CatalogDep) -> LoadTestAnswer:
    """The four load tests of a plan: one request alone, a ramp past the expected knee, the mix of lengths, and faults.

    Each load comes with the means to expect and their ranges, with simulated percentiles, and with command lines for four benchmark tools.
    """
    return await asyncio.get_running_loop().run_in_executor(SIMULATION_WORKERS, lay_out, session, catalog, body)


@router.post("/load-tests/analysis", summary="What did it prove?", responses={404: {}})
def load_test_analysis(
    body: AnalysisRequest, session: SessionDep, catalog: CatalogDep, rules: Annotated[Sequence[Rule], Depends(get_rules)]
) -> LoadTestAnalysis:
    """What the results files of a ramp say: the knee, the load before it, the load that holds the objectives with headroom.

    Beside them how stable the levels are, each level against the prediction, the calibration of the model, and a diagnosis of what went
    wrong. Nothing is stored.
    """
    return analyse(session, catalog, rules, body)
