"""What surrounds a plan in operation, over HTTP: monitoring and load tests."""

from fastapi import APIRouter

from app.api.deps import CatalogDep, SessionDep
from app.api.route import PlannerRoute
from app.domain.load_test import LoadTestAnswer
from app.domain.monitoring import MonitoringAnswer
from app.services.load_tests import LoadTestRequest
from app.services.load_tests import load_tests as lay_out
from app.services.monitoring import MonitoringRequest
from app.services.monitoring import monitoring as watch

router = APIRouter(tags=["operations"], route_class=PlannerRoute)


@router.post("/monitoring", summary="What watches it?")
def monitoring(body: MonitoringRequest, session: SessionDep, catalog: CatalogDep) -> MonitoringAnswer:
    """Prometheus alert rules and a Grafana dashboard for a plan, the production checklist, and the order of optimisation.

    Thresholds follow from the plan's objectives and capacity; each says from what. A `plan` given in full asks no database.
    """
    return watch(session, catalog, body)


@router.post("/load-tests", summary="How is it proved?")
def load_tests(body: LoadTestRequest, session: SessionDep, catalog: CatalogDep) -> LoadTestAnswer:
    """The four load tests of a plan: one request alone, a ramp past the expected knee, the mix of lengths, and faults.

    Each load comes with the figures to expect, their ranges, and command lines for four benchmark tools.
    """
    return lay_out(session, catalog, body)
