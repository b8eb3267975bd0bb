"""Diagnosis over HTTP."""

import asyncio
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
    """Probable bottlenecks behind what one engine shows, most confident first.

    Takes metrics by name, scrapes of the engine and of the accelerators (two with the seconds between them for rates and percentiles of
    that window), figures of several replicas, or the results files of a benchmark. Each finding shows its evidence with numbers and
    thresholds, what speaks for and against it, what is missing, what to look at first, and remedies with their price. A latency is high
    when it exceeds its SLO or 1.5 times its baseline; without both, what the planner expects of `model` on `gpu`; else a default applies
    and is named.
    """
    if body.is_large:
        # Reading megabytes of text would keep every other request waiting.
        return await asyncio.to_thread(diagnosis.diagnose, catalog, rules, body)
    return diagnosis.diagnose(catalog, rules, body)
