"""`/gpus`: the catalog of accelerators."""

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
from app.domain.catalog_entry import GpuEntry, GpuFilter, GpuPage
from app.domain.hardware import Gpu
from app.services import catalog_entries

router = APIRouter(prefix="/gpus", tags=["gpus"], route_class=PlannerRoute)

SlugPath = Annotated[str, Path(max_length=200, description="Slug of the accelerator.")]


class GpuQuery(GpuFilter, PageQuery):
    """What the list can be asked for."""


@router.get("", summary="List accelerators")
def list_gpus(session: SessionDep, query: Annotated[GpuQuery, Query()]) -> GpuPage:
    """Accelerators by slug, bundled and own ones; all filters that are given must be met."""
    filters = query.filters()
    after = position(query.page_token, filters)
    found = stored.list_gpus(session, query, after[0] if after else None, query.limit + 1)
    items, next_page_token = page(found, query.limit, filters, lambda entry: (entry.slug,))
    return GpuPage(items=items, next_page_token=next_page_token)


@router.post(
    "",
    status_code=201,
    summary="Add an accelerator",
    dependencies=CHANGES,
    response_model=GpuEntry,
    responses={201: {"headers": CREATED_HEADERS}, 409: {}},
)
def create_gpu(session: SessionDep, principal: PrincipalDep, gpu: Gpu, idempotency_key: IdempotencyKey = None) -> Response:
    """Adds an own accelerator. A figure that is not known stays out; a calculation that needs it is then refused by its name."""
    return created(
        session, principal, idempotency_key, "POST /gpus", gpu, lambda: new_entry(catalog_entries.create_gpu(session, gpu), "/gpus")
    )


@router.get("/{slug}", summary="Read an accelerator", responses={200: {"headers": ETAG_HEADER}, 404: {}})
def get_gpu(session: SessionDep, catalog: CatalogDep, slug: SlugPath, response: Response) -> GpuEntry:
    """One accelerator by slug or full name, in any case; a close miss is answered with the nearest slugs."""
    entry = catalog_entries.get_gpu(session, catalog, slug)
    with_etag(response, entry)
    return entry


@router.put(
    "/{slug}",
    summary="Replace an own accelerator",
    dependencies=CHANGES,
    responses={200: {"headers": ETAG_HEADER}, 404: {}, 409: {}, 412: {}, 428: {}},
)
def replace_gpu(session: SessionDep, slug: SlugPath, expected: IfMatchDep, gpu: Gpu, response: Response) -> GpuEntry:
    """Replaces the whole entry; what the body leaves out is no longer known. Bundled entries are read-only."""
    entry = catalog_entries.replace_gpu(session, slug, gpu, expected)
    with_etag(response, entry)
    return entry


@router.delete(
    "/{slug}", status_code=204, summary="Remove an own accelerator", dependencies=CHANGES, responses={404: {}, 409: {}, 412: {}, 428: {}}
)
def delete_gpu(session: SessionDep, slug: SlugPath, expected: IfMatchDep) -> None:
    """Removes the entry. Plans that were saved with it keep their answers. Bundled entries are read-only."""
    catalog_entries.delete_gpu(session, slug, expected)
