"""The plan that monitoring and load tests are for: given in full, or the id of a saved one."""

from typing import Annotated
from uuid import UUID

from pydantic import Field, ValidationError, model_validator
from sqlalchemy.orm import Session

from app.domain.catalog import Catalog
from app.domain.deployment import Deployment
from app.domain.errors import InvalidInput
from app.domain.json_pointer import json_pointer
from app.domain.value import Given
from app.services import plans
from app.services.references import as_deployed, resolve_gpu, resolve_served, with_draft
from app.services.requests import CapacityRequest

ServedName = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9._:/@+-]+$")]


class ForPlan(Given):
    """What names a plan."""

    plan_id: UUID | None = None
    """Id of a saved plan of the kind `capacity`; its current revision counts."""
    plan: CapacityRequest | None = None
    """Or what `/capacity` takes."""

    @model_validator(mode="after")
    def _one_plan(self) -> "ForPlan":
        if (self.plan_id is None) == (self.plan is None):
            raise ValueError("give either plan_id or plan")
        return self

    @property
    def pointer(self) -> str:
        """Where the plan stands in the request."""
        return "/plan" if self.plan is not None else "/plan_id"


def planned(session: Session, request: ForPlan) -> CapacityRequest:
    """The plan of a request; raises NotFound, and InvalidInput for a plan of another kind."""
    if request.plan is not None:
        return request.plan
    assert request.plan_id is not None  # noqa: S101 - the request has one of the two
    stored = plans.get(session, request.plan_id)
    if stored.kind != "capacity":
        detail = f"plan {request.plan_id} is one of /{stored.kind}"
        raise InvalidInput(detail, field="/plan_id", value=str(request.plan_id), expected="a plan of the kind capacity")
    try:
        return CapacityRequest.model_validate(stored.request)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = json_pointer("request", *first["loc"])
        detail = f"this version of the planner does not take the stored request any more: {where} {first['msg']}"
        raise InvalidInput(detail, field="/plan_id", value=str(request.plan_id)) from error


def deployed(catalog: Catalog, plan: CapacityRequest) -> Deployment:
    """The deployment as its engine runs it: `auto` resolved where the plan names model and accelerator."""
    deployment = with_draft(catalog, plan.deployment)
    if plan.model is None or plan.gpu is None:
        return deployment
    llm, gpu = resolve_served(catalog, plan.model, plan.deployment), resolve_gpu(catalog, plan.gpu)
    return as_deployed(catalog, deployment, llm, gpu)[0]
