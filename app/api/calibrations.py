"""`/calibrations`: measured sweeps that later estimates of the same set-up follow."""

from functools import partial
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field

from app.api.auth import PrincipalDep
from app.api.catalog_changes import CHANGES, CREATED_HEADERS, ETAG_HEADER
from app.api.deps import CatalogDep, SessionDep
from app.api.etags import IfMatchDep, etag
from app.api.idempotency import IdempotencyKey, created
from app.api.pages import PageQuery, created_position, page
from app.api.route import PlannerRoute
from app.db import calibrations as stored
from app.domain.calibration_answer import Calibration, CalibrationPage
from app.domain.deployment import EngineName
from app.domain.idempotency import RecordedAnswer
from app.domain.plan import OwnerName
from app.services import calibrations
from app.services.calibrations import VERSION, NewCalibration
from app.services.plans import wanted_plans

router = APIRouter(prefix="/calibrations", tags=["calibrations"], route_class=PlannerRoute)

CalibrationId = Annotated[UUID, Path(description="Id of the calibration.")]


class CalibrationQuery(PageQuery):
    """What the list can be asked for; all that is given must be met."""

    owner: OwnerName | None = None
    """The owner, exactly."""
    model: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Model by slug or Hugging Face id, in any case."""
    gpu: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Accelerator by slug or full name, in any case."""
    engine: EngineName | None = None
    """The engine."""


@router.post(
    "",
    status_code=201,
    summary="Calibrate a set-up by a measured sweep",
    dependencies=CHANGES,
    response_model=Calibration,
    responses={201: {"headers": CREATED_HEADERS}},
)
def create_calibration(
    session: SessionDep, catalog: CatalogDep, principal: PrincipalDep, body: NewCalibration, idempotency_key: IdempotencyKey = None
) -> Response:
    """Fits the constants of the step to the results files of one sweep and keeps them: `/performance`, `/capacity` and `/recommend` follow
    them for this model, accelerator, engine, layout and precisions, and say so. What is refused stores nothing."""
    return created(session, principal, idempotency_key, "POST /calibrations", body, partial(_created, session, catalog, body))


def _created(session: SessionDep, catalog: CatalogDep, body: NewCalibration) -> RecordedAnswer:
    found = calibrations.create(session, catalog, body)
    headers = {"Location": f"/calibrations/{found.id}", "ETag": etag(VERSION)}
    return RecordedAnswer(status=201, headers=headers, body=found.model_dump(mode="json"))


@router.get("", summary="List calibrations")
def list_calibrations(session: SessionDep, catalog: CatalogDep, query: Annotated[CalibrationQuery, Query()]) -> CalibrationPage:
    """Newest first."""
    filters = query.filters()
    named = wanted_plans(catalog, owner=query.owner, labels=(), model=query.model, gpu=query.gpu, kind=None)
    wanted = stored.CalibrationFilter(query.owner, named.model, named.gpu, query.engine)
    found = stored.list_calibrations(session, wanted, created_position(query.page_token, filters), query.limit + 1)
    items, next_page_token = page(found, query.limit, filters, lambda each: (each.created_at.isoformat(), str(each.id)))
    return CalibrationPage(items=items, next_page_token=next_page_token)


@router.get("/{calibration_id}", summary="Read a calibration", responses={200: {"headers": ETAG_HEADER}, 404: {}})
def get_calibration(session: SessionDep, calibration_id: CalibrationId, response: Response) -> Calibration:
    """What moved, how well it fits, and every row. A calibration is never changed: measure again and delete the old one."""
    found = calibrations.get(session, calibration_id)
    response.headers["ETag"] = etag(VERSION)
    return found


@router.delete(
    "/{calibration_id}",
    status_code=204,
    summary="Delete a calibration",
    dependencies=CHANGES,
    responses={404: {}, 412: {}, 428: {}},
)
def delete_calibration(session: SessionDep, calibration_id: CalibrationId, expected: IfMatchDep) -> None:
    """Later estimates no longer follow it. Plans that were saved with it keep their answers."""
    calibrations.delete(session, calibration_id, expected)
