"""Single entries of the catalog: filtered lists, look-up by name, and the changes of own entries (under `app.db.catalog.lock`)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, ColumnElement, and_, cast, delete, func, insert, literal, or_, select, update
from sqlalchemy.dialects.postgresql import JSONPATH
from sqlalchemy.orm import Session

from app.db.catalog import row_values
from app.db.rows import CatalogEntryRow, GpuRow, ModelRow
from app.domain.catalog_entry import AttentionKind, GpuEntry, GpuFilter, ModelEntry, ModelFilter, Origin
from app.domain.hardware import Gpu
from app.domain.llm import Llm

# Query, key and value heads tell mha, gqa and mqa apart as `app.domain.kv_cache.attention_kind` does.
_LAYERS_OF_KIND: Mapping[AttentionKind, str] = {
    "mha": '@.kind == "attention" && @.num_kv_heads == @.num_heads',
    "gqa": '@.kind == "attention" && @.num_kv_heads > 1 && @.num_kv_heads < @.num_heads',
    "mqa": '@.kind == "attention" && @.num_kv_heads == 1 && @.num_heads > 1',
    "mla": '@.kind == "latent_attention"',
    "compressed": '@.kind == "compressed_attention"',
    "sliding_window": "@.window_tokens > 0",
    "recurrent": '!(@.kind like_regex "attention$") || @.kind == "kimi_delta_attention" || @.kind == "lightning_attention"',
}


class Named(NamedTuple):
    """An entry and everything that it is found by."""

    slug: str
    origin: Origin
    names: tuple[str, ...]


def list_gpus(session: Session, wanted: GpuFilter, after: str | None, limit: int) -> Sequence[GpuEntry]:
    """Accelerators that the filter lets through, by slug, from the one behind `after`."""
    entry = GpuRow.entry
    conditions = _origin_and_place(GpuRow, wanted.origin, after)
    if wanted.q is not None:
        conditions.append(or_(GpuRow.slug.icontains(wanted.q, autoescape=True), entry["name"].astext.icontains(wanted.q, autoescape=True)))
    if wanted.vendor is not None:
        conditions.append(func.lower(entry["vendor"].astext) == wanted.vendor.lower())
    if wanted.architecture is not None:
        conditions.append(func.lower(entry["architecture"].astext) == wanted.architecture.lower())
    if wanted.min_memory_bytes is not None:
        conditions.append(_integer(GpuRow, "memory_bytes") >= wanted.min_memory_bytes)
    rows = session.scalars(select(GpuRow).where(*conditions).order_by(_by_bytes(GpuRow)).limit(limit))
    return [_gpu_entry(row) for row in rows]


def list_models(session: Session, wanted: ModelFilter, after: str | None, limit: int) -> Sequence[ModelEntry]:
    """Models that the filter lets through, by slug, from the one behind `after`."""
    entry = ModelRow.entry
    conditions = _origin_and_place(ModelRow, wanted.origin, after)
    if wanted.q is not None:
        searched = (ModelRow.slug, ModelRow.hf_id, entry["family"].astext, entry["hf_aliases"].astext)
        conditions.append(or_(*(text.icontains(wanted.q, autoescape=True) for text in searched)))
    if wanted.family is not None:
        conditions.append(func.lower(entry["family"].astext) == wanted.family.lower())
    if wanted.attention is not None:
        conditions.append(_path_exists(f"$.layer_groups[*].mixer ? ({_LAYERS_OF_KIND[wanted.attention]})"))
    if wanted.moe is not None:
        conditions.append(_is_moe() if wanted.moe else ~_is_moe())
    if wanted.min_num_params is not None:
        conditions.append(_integer(ModelRow, "num_params") >= wanted.min_num_params)
    if wanted.max_num_params is not None:
        conditions.append(_integer(ModelRow, "num_params") <= wanted.max_num_params)
    rows = session.scalars(select(ModelRow).where(*conditions).order_by(_by_bytes(ModelRow)).limit(limit))
    return [_model_entry(row) for row in rows]


def find_gpu(session: Session, slug: str) -> GpuEntry | None:
    """The accelerator of that slug."""
    row = session.scalars(select(GpuRow).where(GpuRow.slug == slug)).one_or_none()
    return None if row is None else _gpu_entry(row)


def find_model(session: Session, slug: str) -> ModelEntry | None:
    """The model of that slug."""
    row = session.scalars(select(ModelRow).where(ModelRow.slug == slug)).one_or_none()
    return None if row is None else _model_entry(row)


def model_slug_of_hf_id(session: Session, hf_id: str) -> str | None:
    """Slug of the model with that Hugging Face id, in any case; of several the own one."""
    statement = select(ModelRow.slug).where(func.lower(ModelRow.hf_id) == hf_id.lower()).order_by(ModelRow.origin.desc()).limit(1)
    return session.scalars(statement).one_or_none()


def gpu_names(session: Session) -> Iterable[Named]:
    """What every accelerator is found by."""
    rows = session.execute(select(GpuRow.slug, GpuRow.origin, GpuRow.entry["name"].astext.label("name")))
    return [Named(row.slug, row.origin, (row.slug, row.name)) for row in rows]


def model_names(session: Session) -> Iterable[Named]:
    """What every model is found by."""
    rows = session.execute(select(ModelRow.slug, ModelRow.origin, ModelRow.hf_id, ModelRow.entry["hf_aliases"].label("aliases")))
    return [Named(row.slug, row.origin, tuple(name for name in (row.slug, row.hf_id, *(row.aliases or ())) if name)) for row in rows]


def insert_gpu(session: Session, gpu: Gpu, version: int) -> GpuEntry:
    """Store an own accelerator."""
    statement = insert(GpuRow).values(**row_values(gpu), origin="own", version=version).returning(GpuRow)
    return _gpu_entry(session.scalars(statement).one())


def insert_model(session: Session, model: Llm, version: int) -> ModelEntry:
    """Store an own model."""
    statement = insert(ModelRow).values(**row_values(model), origin="own", version=version).returning(ModelRow)
    return _model_entry(session.scalars(statement).one())


def update_gpu(session: Session, gpu: Gpu, version: int) -> GpuEntry:
    """Replace the own accelerator of the same slug."""
    statement = update(GpuRow).where(GpuRow.slug == gpu.slug, GpuRow.origin == "own").values(**row_values(gpu), version=version)
    return _gpu_entry(session.scalars(statement.returning(GpuRow), execution_options=_FRESH).one())


def update_model(session: Session, model: Llm, version: int) -> ModelEntry:
    """Replace the own model of the same slug."""
    statement = update(ModelRow).where(ModelRow.slug == model.slug, ModelRow.origin == "own").values(**row_values(model), version=version)
    return _model_entry(session.scalars(statement.returning(ModelRow), execution_options=_FRESH).one())


def delete_own(session: Session, table: type[GpuRow] | type[ModelRow], slug: str) -> None:
    """Remove an own entry."""
    session.execute(delete(table).where(table.slug == slug, table.origin == "own"))


_FRESH = {"synchronize_session": False, "populate_existing": True}


def _origin_and_place(table: type[CatalogEntryRow], origin: Origin | None, after: str | None) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if origin is not None:
        conditions.append(table.origin == origin)
    if after is not None:
        conditions.append(_by_bytes(table) > after)
    return conditions


def _by_bytes(table: type[CatalogEntryRow]) -> ColumnElement[str]:
    """The slug in an order that is the same on every server, whatever its locale."""
    return table.slug.collate("C")


def _integer(table: type[CatalogEntryRow], name: str) -> ColumnElement[int]:
    return cast(table.entry[name].astext, BigInteger)


def _path_exists(path: str) -> ColumnElement[bool]:
    return func.jsonb_path_exists(ModelRow.entry, cast(literal(path), JSONPATH), type_=None)


def _is_moe() -> ColumnElement[bool]:
    """Some layer has experts; where the layers are not known, not all parameters work on a token."""
    inactive = _integer(ModelRow, "num_active_params") < _integer(ModelRow, "num_params")
    layers_unknown = ~ModelRow.entry.has_key("layer_groups")
    return or_(_path_exists('$.layer_groups[*].feed_forward[*] ? (@.kind == "moe")'), and_(layers_unknown, inactive))


def _fields(row: CatalogEntryRow) -> dict[str, Any]:
    return {
        "slug": row.slug,
        "origin": row.origin,
        "version": row.version,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "entry": row.entry,
    }


def _gpu_entry(row: GpuRow) -> GpuEntry:
    return GpuEntry.model_validate(_fields(row))


def _model_entry(row: ModelRow) -> ModelEntry:
    return ModelEntry.model_validate(_fields(row))
