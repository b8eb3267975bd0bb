"""Looking at single catalog entries, and adding, replacing and removing own ones.

Bundled entries are read-only, and no own entry may take a name that another entry is found by (slug, full name, Hugging Face id, in any
case). Changes happen one after another, so that two of them cannot take one name.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NoReturn, TypeVar

from sqlalchemy.orm import Session

from app.db import catalog, catalog_entries
from app.db.catalog_entries import Named
from app.db.rows import GpuRow, ModelRow
from app.domain.catalog import Catalog
from app.domain.catalog_entry import OWN_ENTRY_SOURCE, GpuEntry, ModelEntry, StoredEntry
from app.domain.errors import AlreadyExists, InvalidInput, NotFound, ReadOnly, StaleVersion, UnknownName
from app.domain.hardware import Gpu
from app.domain.llm import Llm

Value = TypeVar("Value", Gpu, Llm)
Expected = Collection[int] | None
"""Versions that the caller has seen and is willing to change; None for any."""


def get_gpu(session: Session, snapshot: Catalog, name: str) -> GpuEntry:
    """The accelerator of that slug or full name, in any case; raises NotFound with the nearest slugs."""
    wanted = name.strip()
    found = catalog_entries.find_gpu(session, wanted.casefold())
    if found is None:
        try:
            found = catalog_entries.find_gpu(session, snapshot.gpu(wanted).slug)
        except UnknownName as unknown:
            _not_found(unknown.detail, "/slug", name, unknown.nearest)
    return found or _gone("GPU", name, "/slug")


def get_model(session: Session, snapshot: Catalog, name: str) -> ModelEntry:
    """The model of that slug or Hugging Face id, in any case; raises NotFound with the nearest slugs."""
    wanted = name.strip()
    slug = catalog_entries.model_slug_of_hf_id(session, wanted) or wanted.casefold()
    found = catalog_entries.find_model(session, slug)
    if found is None:
        try:
            found = catalog_entries.find_model(session, snapshot.model(wanted).slug)
        except UnknownName as unknown:
            _not_found(unknown.detail, "/name", name, unknown.nearest)
    return found or _gone("model", name, "/name")


def create_gpu(session: Session, gpu: Gpu) -> GpuEntry:
    """Add an own accelerator; raises AlreadyExists when one of its names is taken."""
    catalog.lock(session)
    _refuse_taken_names("GPU", _gpu_names(gpu), catalog_entries.gpu_names(session), except_slug=None)
    return catalog_entries.insert_gpu(session, _with_source(gpu), catalog.advance(session))


def create_model(session: Session, model: Llm) -> ModelEntry:
    """Add an own model; raises AlreadyExists when one of its names is taken."""
    catalog.lock(session)
    _refuse_taken_names("model", _model_names(model), catalog_entries.model_names(session), except_slug=None)
    return catalog_entries.insert_model(session, _with_source(model), catalog.advance(session))


def replace_gpu(session: Session, slug: str, gpu: Gpu, expected: Expected) -> GpuEntry:
    """Replace an own accelerator; raises NotFound, ReadOnly, StaleVersion, or AlreadyExists when one of its new names is taken."""
    catalog.lock(session)
    _check_changeable("GPU", slug, catalog_entries.find_gpu(session, slug), expected)
    _check_same_slug(slug, gpu)
    _refuse_taken_names("GPU", _gpu_names(gpu), catalog_entries.gpu_names(session), except_slug=slug)
    return catalog_entries.update_gpu(session, _with_source(gpu), catalog.advance(session))


def replace_model(session: Session, slug: str, model: Llm, expected: Expected) -> ModelEntry:
    """Replace an own model; raises NotFound, ReadOnly, StaleVersion, or AlreadyExists when one of its new names is taken."""
    catalog.lock(session)
    _check_changeable("model", slug, catalog_entries.find_model(session, slug), expected)
    _check_same_slug(slug, model)
    _refuse_taken_names("model", _model_names(model), catalog_entries.model_names(session), except_slug=slug)
    return catalog_entries.update_model(session, _with_source(model), catalog.advance(session))


def delete_gpu(session: Session, slug: str, expected: Expected) -> None:
    """Remove an own accelerator; raises NotFound, ReadOnly or StaleVersion."""
    catalog.lock(session)
    _check_changeable("GPU", slug, catalog_entries.find_gpu(session, slug), expected)
    catalog_entries.delete_own(session, GpuRow, slug)
    catalog.advance(session)


def delete_model(session: Session, slug: str, expected: Expected) -> None:
    """Remove an own model; raises NotFound, ReadOnly or StaleVersion."""
    catalog.lock(session)
    _check_changeable("model", slug, catalog_entries.find_model(session, slug), expected)
    catalog_entries.delete_own(session, ModelRow, slug)
    catalog.advance(session)


def _gpu_names(gpu: Gpu) -> dict[str, str]:
    return {"/slug": gpu.slug, "/name": gpu.name}


def _model_names(model: Llm) -> dict[str, str]:
    names = {"/slug": model.slug}
    if model.hf_id:
        names["/hf_id"] = model.hf_id
    return names | {f"/hf_aliases/{position}": alias for position, alias in enumerate(model.hf_aliases)}


def _refuse_taken_names(kind: str, names: dict[str, str], others: Iterable[Named], *, except_slug: str | None) -> None:
    taken = {name.strip().casefold(): other for other in others if other.slug != except_slug for name in other.names}
    for field, name in names.items():
        other = taken.get(name.strip().casefold())
        if other is not None:
            whose = "bundled" if other.origin == "bundled" else "own"
            detail = f"{name!r} is a name of the {whose} {kind} {other.slug!r}; an own entry may not shadow it"
            raise AlreadyExists(detail, field=field, value=name, expected="a name that no entry has")


def _check_changeable(kind: str, slug: str, found: StoredEntry | None, expected: Expected) -> None:
    if found is None:
        _gone(kind, slug, "/slug")
    if found.origin == "bundled":
        raise ReadOnly(f"{slug!r} is a bundled {kind}; add an own one under another slug", field="/slug", value=slug)
    if expected is not None and found.version not in expected:
        detail = f"the {kind} {slug!r} was changed since it was read: it is at version {found.version}"
        raise StaleVersion(detail, field="/slug", value=slug, expected=f"If-Match with the version that GET gives now, {found.version}")


def _check_same_slug(slug: str, value: Gpu | Llm) -> None:
    if value.slug != slug:
        raise InvalidInput("the slug of an entry cannot be changed", field="/slug", value=value.slug, expected=slug)


def _with_source(value: Value) -> Value:
    """An answer that uses the entry says whose figures they are, even when whoever added it did not."""
    return value if value.sources else value.model_copy(update={"sources": (OWN_ENTRY_SOURCE,)})


def _gone(kind: str, name: str, field: str) -> NoReturn:
    _not_found(f"no {kind} called {name[:100]!r} in the catalog", field, name, ())


def _not_found(detail: str, field: str, name: str, nearest: Sequence[str]) -> NoReturn:
    raise NotFound(detail, field=field, value=name[:100], expected=", ".join(nearest) or None)
