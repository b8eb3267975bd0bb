"""`/models`: the catalog of LLMs. A Hugging Face id holds a slash, so that reading takes the rest of the path as the name."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from app.api.auth import PrincipalDep
from app.api.catalog_changes import CHANGES, CREATED_HEADERS, ETAG_HEADER, new_entry, with_etag
from app.api.deps import CatalogDep, SessionDep
from app.api.etags import IfMatchDep
from app.api.idempotency import IdempotencyKey, created
from app.api.pages import PageQuery, page, position
from app.api.route import PlannerRoute
from app.db import catalog_entries as stored
from app.domain.catalog_entry import ModelEntry, ModelFilter, ModelPage
from app.domain.llm import Llm
from app.services import catalog_entries

router = APIRouter(prefix="/models", tags=["models"], route_class=PlannerRoute)

SlugPath = Annotated[str, Path(max_length=200, description="Slug of the model.")]
NamePath = Annotated[str, Path(max_length=300, description="Slug or Hugging Face id of the model, with its slash, in any case.")]


class ModelQuery(ModelFilter, PageQuery):
    """What the list can be asked for."""


@router.get("", summary="List models")
def list_models(session: SessionDep, query: Annotated[ModelQuery, Query()]) -> ModelPage:
    """Models by slug, bundled and own ones; all filters that are given must be met."""
    filters = query.filters()
    after = position(query.page_token, filters)
    found = stored.list_models(session, query, after[0] if after else None, query.limit + 1)
    items, next_page_token = page(found, query.limit, filters, lambda entry: (entry.slug,))
    return ModelPage(items=items, next_page_token=next_page_token)


@router.post(
    "",
    status_code=201,
    summary="Add a model",
    dependencies=CHANGES,
    response_model=ModelEntry,
    responses={201: {"headers": CREATED_HEADERS}, 409: {}},
)
def create_model(session: SessionDep, principal: PrincipalDep, model: Llm, idempotency_key: IdempotencyKey = None) -> Response:
    """Adds an own model as layer groups. From a Hugging Face config.json, `POST /models/import` makes them."""
    return created(
        session,
        principal,
        idempotency_key,
        "POST /models",
        model,
        lambda: new_entry(catalog_entries.create_model(session, model), "/models"),
    )


@router.get("/{name:path}", summary="Read a model", responses={200: {"headers": ETAG_HEADER}, 404: {}})
def get_model(session: SessionDep, catalog: CatalogDep, name: NamePath, response: Response) -> ModelEntry:
    """One model by slug or Hugging Face id, in any case; a close miss is answered with the nearest slugs."""
    entry = catalog_entries.get_model(session, catalog, name)
    with_etag(response, entry)
    return entry


@router.put(
    "/{slug}",
    summary="Replace an own model",
    dependencies=CHANGES,
    responses={200: {"headers": ETAG_HEADER}, 404: {}, 409: {}, 412: {}, 428: {}},
)
def replace_model(session: SessionDep, slug: SlugPath, expected: IfMatchDep, model: Llm, response: Response) -> ModelEntry:
    """Replaces the whole entry; what the body leaves out is no longer known. Bundled entries are read-only."""
    entry = catalog_entries.replace_model(session, slug, model, expected)
    with_etag(response, entry)
    return entry


@router.delete(
    "/{slug}", status_code=204, summary="Remove an own model", dependencies=CHANGES, responses={404: {}, 409: {}, 412: {}, 428: {}}
)
def delete_model(session: SessionDep, slug: SlugPath, expected: IfMatchDep) -> None:
    """Removes the entry. Plans that were saved with it keep their answers. Bundled entries are read-only."""
    catalog_entries.delete_model(session, slug, expected)
