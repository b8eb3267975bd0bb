"""`/plans`: saved plans, their revisions, and what they look like as JSON, Markdown and CSV."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Body, Depends, Header, Path, Query, Request, Response
from pydantic import Field

from app.api.auth import PrincipalDep, check_scope, require_scope
from app.api.deps import CatalogDep, SessionDep
from app.api.diagnosis import get_rules
from app.api.errors import Refusal
from app.api.etags import IfMatchDep, etag, if_match
from app.api.idempotency import REPLAYED_HEADER, IdempotencyKey, created
from app.api.pages import PageQuery, created_position, invalid_page_token, page, position
from app.api.representations import already_has, preferred
from app.api.route import PlannerRoute
from app.db import plans as stored
from app.domain.idempotency import RecordedAnswer
from app.domain.plan import Comparison, Kind, Label, OwnerName, Plan, PlanPage, Recomputation
from app.domain.rule import Rule
from app.domain.value import Value
from app.exporters import plan_csv, plan_markdown
from app.services import plans
from app.services.diagnosis import DiagnoseRequest, diagnose
from app.services.estimates import CALCULATIONS
from app.services.plan_inputs import NewPlan
from app.services.plans import Calculations

MAX_REVISION = 2**31 - 1
WRITES = [Depends(require_scope("write"))]

router = APIRouter(prefix="/plans", tags=["plans"], route_class=PlannerRoute)

PlanId = Annotated[UUID, Path(description="Id of the plan.")]
Revision = Annotated[int, Field(ge=1, le=MAX_REVISION)]
PlanBody = Annotated[NewPlan, Body()]
OptionalIfMatch = Annotated[
    str | None,
    Header(alias="If-Match", max_length=1000, description="ETag of the revision that is computed again; absent for whatever is current."),
]
ETAG_HEADER = {"ETag": {"description": "Revision of the plan, for If-Match and If-None-Match.", "schema": {"type": "string"}}}
CREATED_HEADERS = (
    ETAG_HEADER
    | {
        "Location": {"description": "Path of the plan.", "schema": {"type": "string"}},
    }
    | REPLAYED_HEADER
)
RENDERERS: Mapping[str, tuple[str, Callable[[Plan], str]]] = {
    "application/json": ("", Plan.model_dump_json),
    "text/markdown": (".md", plan_markdown.render),
    "text/csv": (".csv", plan_csv.render),
}
"""Media type: what its entity tag ends in, since a strong tag names one form of a revision (RFC 9110 section 8.8.1), and who writes it."""
CONTENT_TYPES = {"text/markdown": "text/markdown; charset=utf-8; variant=GFM", "text/csv": "text/csv; charset=utf-8; header=present"}


class PlanQuery(PageQuery):
    """What the list of plans can be asked for; all that is given must be met."""

    owner: OwnerName | None = None
    """The owner, exactly."""
    label: Annotated[Sequence[Label], Field(max_length=20)] = ()
    """A label that the plan has; several times for several labels that it has all of."""
    model: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Model by slug or Hugging Face id, in any case."""
    gpu: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Accelerator by slug or full name, in any case."""
    kind: Kind | None = None
    """The calculation."""


class RevisionQuery(Value):
    """Which revision of a plan is meant."""

    revision: Revision | None = None
    """Number of the revision; the current one when absent."""


class CompareQuery(RevisionQuery):
    """Which revisions of two plans are compared."""

    other_revision: Revision | None = None
    """Number of the other plan's revision; its current one when absent."""


class RecomputeQuery(Value):
    """What becomes of the new answer."""

    save: bool = False
    """Keep the new answer as a new revision, unless nothing changed; needs the scope `write`."""


def get_calculations(rules: Annotated[Sequence[Rule], Depends(get_rules)]) -> Calculations:
    """What a plan may hold: the estimates, and the diagnosis by the rules that this service has loaded."""

    def diagnose_by_rules(catalog: Any, request: DiagnoseRequest) -> Any:
        return diagnose(catalog, rules, request)

    return {**CALCULATIONS, "diagnose": (DiagnoseRequest, diagnose_by_rules)}


CalculationsDep = Annotated[Calculations, Depends(get_calculations)]


@router.post(
    "",
    status_code=201,
    summary="Save a plan",
    dependencies=WRITES,
    response_model=Plan,
    responses={201: {"headers": CREATED_HEADERS}},
)
def create_plan(
    session: SessionDep,
    catalog: CatalogDep,
    calculations: CalculationsDep,
    principal: PrincipalDep,
    body: PlanBody,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Computes the answer and keeps it with the request, the versions of planner and catalog, a name, an owner, labels and notes.

    A request that the calculation refuses stores nothing. What the caller's key was sent with before is answered again by that answer.
    """
    create = partial(_created, session, catalog, calculations, body)
    return created(session, principal, idempotency_key, "POST /plans", body, create)


def _created(session: SessionDep, catalog: CatalogDep, calculations: Calculations, body: plans.AnyPlanInput) -> RecordedAnswer:
    plan = plans.create(session, catalog, calculations, body)
    headers = {"Location": f"/plans/{plan.id}", "ETag": etag(plan.revision)}
    return RecordedAnswer(status=201, headers=headers, body=plan.model_dump(mode="json"))


@router.get("", summary="List plans")
def list_plans(session: SessionDep, catalog: CatalogDep, query: Annotated[PlanQuery, Query()]) -> PlanPage:
    """Current revisions, newest plan first; a plan whose request describes its model or accelerator inline is under no name."""
    filters = query.filters()
    wanted = plans.wanted_plans(catalog, owner=query.owner, labels=query.label, model=query.model, gpu=query.gpu, kind=query.kind)
    found = stored.list_plans(session, wanted, created_position(query.page_token, filters), query.limit + 1)
    items, next_page_token = page(found, query.limit, filters, lambda plan: (plan.created_at.isoformat(), str(plan.id)))
    return PlanPage(items=items, next_page_token=next_page_token)


@router.get(
    "/{plan_id}",
    summary="Read a plan as JSON, Markdown or CSV",
    response_model=Plan,
    responses={
        200: {
            "headers": ETAG_HEADER | {"Vary": {"description": "`Accept`", "schema": {"type": "string"}}},
            "content": {"text/markdown": {"schema": {"type": "string"}}, "text/csv": {"schema": {"type": "string"}}},
        },
        304: {"description": "The caller has this revision in this form."},
        404: {},
        406: {"description": "None of the forms that the plan has is acceptable."},
    },
)
def get_plan(
    request: Request,
    session: SessionDep,
    plan_id: PlanId,
    query: Annotated[RevisionQuery, Query()],
    if_none_match: Annotated[str | None, Header(max_length=1000, description="ETag of what the caller has already.")] = None,
) -> Response:
    """One revision in the form that `Accept` asks for: `application/json`, `text/markdown` for a document, `text/csv` for a spreadsheet."""
    media_type = preferred(",".join(request.headers.getlist("accept")), tuple(RENDERERS))
    if media_type is None:
        raise Refusal(
            406,
            "not_acceptable",
            "Not available in that form",
            f"A plan is available as {', '.join(RENDERERS)}.",
            headers={"Vary": "Accept"},
        )
    plan = plans.get(session, plan_id, query.revision)
    ending, write = RENDERERS[media_type]
    headers = {"ETag": etag(plan.revision, ending), "Vary": "Accept"}
    if already_has(if_none_match, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(write(plan), headers=headers | {"Content-Type": CONTENT_TYPES.get(media_type, media_type)})


@router.put(
    "/{plan_id}",
    summary="Change a plan",
    dependencies=WRITES,
    responses={200: {"headers": ETAG_HEADER}, 404: {}, 412: {}, 428: {}},
)
def change_plan(
    session: SessionDep,
    catalog: CatalogDep,
    calculations: CalculationsDep,
    plan_id: PlanId,
    expected: IfMatchDep,
    body: PlanBody,
    response: Response,
) -> Plan:
    """Keeps a new revision with a freshly computed answer; earlier ones stay readable. A plan keeps its kind."""
    plan = plans.change(session, catalog, calculations, plan_id, expected, body)
    response.headers["ETag"] = etag(plan.revision)
    return plan


@router.delete("/{plan_id}", status_code=204, summary="Delete a plan", dependencies=WRITES, responses={404: {}, 412: {}, 428: {}})
def delete_plan(session: SessionDep, plan_id: PlanId, expected: IfMatchDep) -> None:
    """The plan and its revisions are found no more, and its id is never used again. The database keeps the rows, for an operator who has to
    explain a decision or undo a mistake."""
    plans.delete(session, plan_id, expected)


@router.get("/{plan_id}/revisions", summary="List the revisions of a plan", responses={404: {}})
def list_revisions(session: SessionDep, plan_id: PlanId, query: Annotated[PageQuery, Query()]) -> PlanPage:
    """Newest first; each is read with `GET /plans/{plan_id}?revision=…`."""
    filters = {"plan": str(plan_id)}
    found = plans.revisions(session, plan_id, _revision_position(query.page_token, filters), query.limit + 1)
    items, next_page_token = page(found, query.limit, filters, lambda plan: (str(plan.revision),))
    return PlanPage(items=items, next_page_token=next_page_token)


@router.post("/{plan_id}/recompute", summary="Compute a plan again", responses={200: {"headers": ETAG_HEADER}, 404: {}, 412: {}})
def recompute_plan(
    request: Request,
    session: SessionDep,
    catalog: CatalogDep,
    calculations: CalculationsDep,
    plan_id: PlanId,
    query: Annotated[RecomputeQuery, Query()],
    response: Response,
    if_match_header: OptionalIfMatch = None,
) -> Recomputation:
    """What this version of the planner and the catalog answer to the stored request now, field by field where it differs.

    With `save=true` the new answer is kept as a new revision. If-Match is heeded when it is sent.
    """
    if query.save:
        check_scope(request.scope, "write")
    expected = None if if_match_header is None else if_match(if_match_header)
    found = plans.recompute(session, catalog, calculations, plan_id, save=query.save, expected=expected)
    response.headers["ETag"] = etag(found.saved_revision or found.revision)
    return found


@router.get("/{plan_id}/compare/{other_id}", summary="Compare two plans", responses={404: {}})
def compare_plans(
    session: SessionDep,
    plan_id: PlanId,
    other_id: Annotated[UUID, Path(description="Id of the other plan; the same id to compare two revisions of one plan.")],
    query: Annotated[CompareQuery, Query()],
) -> Comparison:
    """Inputs and answers that differ, with both values. Plans of different kinds are compared on the fields that both have."""
    return plans.comparison(session, plan_id, query.revision, other_id, query.other_revision)


def _revision_position(page_token: str | None, filters: Mapping[str, object]) -> int | None:
    keys = position(page_token, filters)
    if keys is None:
        return None
    try:
        return int(keys[0])
    except (ValueError, IndexError):
        raise invalid_page_token(page_token) from None
