"""Diagnosis over HTTP."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Request

from app.api.calculation_route import CalculationRoute
from app.api.deps import CatalogDep
from app.domain.finding import Diagnosis
from app.domain.rule import Rule
from app.services import diagnosis
from app.services.diagnosis import DiagnoseRequest

router = APIRouter(tags=["diagnosis"], route_class=CalculationRoute)


async def get_rules(request: Request) -> Sequence[Rule]:
    """The rules, loaded when the service started."""
    rules: Sequence[Rule] = request.app.state.rules
    return rules


@router.post("/diagnose", summary="Why is it slow?")
async def diagnose(body: DiagnoseRequest, catalog: CatalogDep, rules: Annotated[Sequence[Rule], Depends(get_rules)]) -> Diagnosis:
    """Probable bottlenecks behind the metrics of one engine, most confident first.

    Each finding shows its evidence with numbers and thresholds, what speaks against it, what is missing, what to look at first, and
    remedies with their price. A latency is high when it exceeds its SLO or 1.5 times its baseline; without both a default applies and is
    named.
    """
    return diagnosis.diagnose(catalog, rules, body)
