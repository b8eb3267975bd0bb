"""`POST /models/import`: a Hugging Face config.json becomes an own catalog entry."""

from functools import partial

from fastapi import APIRouter, Response

from app.api.auth import PrincipalDep
from app.api.catalog_changes import CHANGES, CREATED_HEADERS, new_entry
from app.api.deps import SessionDep
from app.api.idempotency import IdempotencyKey, created
from app.api.route import PlannerRoute
from app.domain.catalog_entry import ModelEntry
from app.domain.llm import Llm
from app.services import model_import
from app.services.model_import import ModelImport

router = APIRouter(prefix="/models", tags=["models"], route_class=PlannerRoute)


@router.post(
    "/import",
    status_code=201,
    summary="Import a model from its config.json",
    dependencies=CHANGES,
    response_model=ModelEntry | Llm,
    responses={
        200: {"model": Llm, "description": "The model as it was read; nothing was stored (`save` is false)."},
        201: {"model": ModelEntry, "headers": CREATED_HEADERS},
        409: {},
    },
)
def import_model(
    session: SessionDep, principal: PrincipalDep, asked: ModelImport, response: Response, idempotency_key: IdempotencyKey = None
) -> Response | Llm:
    """Reads layer groups, parameter counts and precision from the configuration. What is not understood is refused by its name.

    Some published files hold `Infinity`, which is not JSON: the answer names the field, and the file can be sent without it.
    """
    if not asked.save:
        response.status_code = 200
        return model_import.read_model(asked)
    create = partial(model_import.import_model, session, asked)
    return created(session, principal, idempotency_key, "POST /models/import", asked, lambda: new_entry(create(), "/models"))
