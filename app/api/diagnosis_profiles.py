"""`/diagnosis-profiles`: thresholds and objectives of the diagnosis, kept under a name."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Response

from app.api.auth import PrincipalDep
from app.api.catalog_changes import CHANGES, CREATED_HEADERS, ETAG_HEADER
from app.api.deps import CatalogDep, SessionDep
from app.api.diagnosis import get_rules
from app.api.etags import IfMatchDep, etag
from app.api.idempotency import IdempotencyKey, created
from app.api.pages import PageQuery, page, position
from app.api.route import PlannerRoute
from app.db import diagnosis_profiles as stored
from app.domain.diagnosis_profile import DiagnosisProfile, ProfileInput, ProfilePage
from app.domain.idempotency import RecordedAnswer
from app.domain.plan import OwnerName
from app.domain.rule import Rule
from app.services import diagnosis_profiles

router = APIRouter(prefix="/diagnosis-profiles", tags=["diagnosis"], route_class=PlannerRoute)

NamePath = Annotated[str, Path(max_length=200, description="Name of the profile.")]
RulesDep = Annotated[Sequence[Rule], Depends(get_rules)]


class ProfileQuery(PageQuery):
    """What the list can be asked for."""

    owner: OwnerName | None = None
    """The owner, exactly."""


@router.post(
    "",
    status_code=201,
    summary="Save a diagnosis profile",
    dependencies=CHANGES,
    response_model=DiagnosisProfile,
    responses={201: {"headers": CREATED_HEADERS}, 409: {}},
)
def create_diagnosis_profile(
    session: SessionDep, rules: RulesDep, principal: PrincipalDep, body: ProfileInput, idempotency_key: IdempotencyKey = None
) -> Response:
    """Keeps thresholds, and latency objectives if wanted, for every later `POST /diagnose` that names the profile. A threshold that no
    rule has is refused with the nearest names."""
    return created(session, principal, idempotency_key, "POST /diagnosis-profiles", body, partial(_created, session, rules, body))


def _created(session: SessionDep, rules: Sequence[Rule], body: ProfileInput) -> RecordedAnswer:
    found = diagnosis_profiles.create(session, rules, body)
    headers = {"Location": f"/diagnosis-profiles/{found.name}", "ETag": etag(found.version)}
    return RecordedAnswer(status=201, headers=headers, body=found.model_dump(mode="json"))


@router.get("", summary="List diagnosis profiles")
def list_diagnosis_profiles(session: SessionDep, query: Annotated[ProfileQuery, Query()]) -> ProfilePage:
    """By name."""
    filters = query.filters()
    after = position(query.page_token, filters)
    found = stored.list_profiles(session, query.owner, after[0] if after else None, query.limit + 1)
    items, next_page_token = page(found, query.limit, filters, lambda each: (each.name,))
    return ProfilePage(items=items, next_page_token=next_page_token)


@router.get("/{name}", summary="Read a diagnosis profile", responses={200: {"headers": ETAG_HEADER}, 404: {}})
def get_diagnosis_profile(session: SessionDep, catalog: CatalogDep, name: NamePath, response: Response) -> DiagnosisProfile:
    """One profile by name, in any case; a close miss is answered with the nearest names."""
    found = diagnosis_profiles.get(session, catalog, name)
    response.headers["ETag"] = etag(found.version)
    return found


@router.put(
    "/{name}",
    summary="Replace a diagnosis profile",
    dependencies=CHANGES,
    responses={200: {"headers": ETAG_HEADER}, 404: {}, 412: {}, 428: {}},
)
def replace_diagnosis_profile(
    session: SessionDep, rules: RulesDep, name: NamePath, expected: IfMatchDep, body: ProfileInput, response: Response
) -> DiagnosisProfile:
    """Replaces the whole profile: a threshold that the body leaves out is that of its rule again."""
    found = diagnosis_profiles.replace(session, rules, name, body, expected)
    response.headers["ETag"] = etag(found.version)
    return found


@router.delete(
    "/{name}", status_code=204, summary="Delete a diagnosis profile", dependencies=CHANGES, responses={404: {}, 412: {}, 428: {}}
)
def delete_diagnosis_profile(session: SessionDep, name: NamePath, expected: IfMatchDep) -> None:
    """Later diagnoses can no longer name it. Plans that were saved with it keep their answers."""
    diagnosis_profiles.delete(session, name, expected)
