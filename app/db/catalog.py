"""The catalog as a whole: its revision, everything in one consistent look, and the entries that the release brings along."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError
from sqlalchemy import Text, cast, delete, func, literal, select, text, union_all, update
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.orm import Session

from app.db import diagnosis_profiles
from app.db.rows import CalibrationRow, CatalogStateRow, DiagnosisProfileRow, GpuRow, ModelRow, PriceRow
from app.domain.calibration import AppliedCalibration
from app.domain.catalog import GpuPrice
from app.domain.catalog_entry import Origin
from app.domain.diagnosis_profile import DiagnosisProfile
from app.domain.hardware import Gpu
from app.domain.llm import Llm
from app.domain.value import Value

CATALOG_LOCK = 0x494E_4645_5250_4341  # "INFERPCA": the advisory lock that changes of the catalog wait for

Table = type[GpuRow] | type[ModelRow] | type[PriceRow]
Entry = Gpu | Llm | GpuPrice
JsonObject = dict[str, Any]


class State(NamedTuple):
    """Which catalog the tables hold: every change of them is another revision."""

    revision: int
    bundled_digest: str


class Contents(NamedTuple):
    """Everything in the catalog at one moment; own entries come last. `unreadable` are rows that this version does not understand."""

    state: State
    gpus: Mapping[str, Gpu]
    models: Mapping[str, Llm]
    prices: Mapping[str, GpuPrice]
    calibrations: tuple[AppliedCalibration, ...]
    profiles: Mapping[str, DiagnosisProfile]
    unreadable: tuple[str, ...]


class Stored(NamedTuple):
    """A row as the comparison with the bundled files needs it."""

    origin: Origin
    entry: JsonObject


def lock(session: Session) -> None:
    """Let changes of the catalog happen one after another, until the transaction ends."""
    session.execute(text("select pg_advisory_xact_lock(:lock)"), {"lock": CATALOG_LOCK})


def state(session: Session) -> State:
    """The revision and the digest of the bundled files: cheap enough to be asked every few seconds."""
    row = session.execute(select(CatalogStateRow.revision, CatalogStateRow.bundled_digest)).one()
    return State(row.revision, row.bundled_digest)


def advance(session: Session, bundled_digest: str | None = None) -> int:
    """Count one change of the catalog and return its revision; optionally note which bundled files are stored."""
    values: dict[str, Any] = {"revision": CatalogStateRow.revision + 1}
    if bundled_digest is not None:
        values["bundled_digest"] = bundled_digest
    statement = update(CatalogStateRow).values(values).returning(CatalogStateRow.revision)
    return session.execute(statement.execution_options(synchronize_session=False)).scalar_one()


def contents(session: Session) -> Contents:
    """The whole catalog in one statement, so that no change falls between its parts."""
    found_state = func.jsonb_build_array(CatalogStateRow.revision, CatalogStateRow.bundled_digest, type_=JSONB)
    parts = [select(literal(part).label("part"), row.slug, row.origin, row.entry) for part, (row, _) in _PARTS.items()]
    parts.append(
        select(literal("calibrations").label("part"), cast(CalibrationRow.id, Text), literal("own"), CalibrationRow.entry).where(
            CalibrationRow.deleted_at.is_(None)
        )
    )
    parts.append(select(literal("profiles").label("part"), DiagnosisProfileRow.name, literal("own"), diagnosis_profiles.whole()))
    everything = union_all(
        select(literal("state").label("part"), literal("").label("slug"), literal("").label("origin"), found_state), *parts
    )
    types: dict[str, type[Value]] = {part: entry_type for part, (_, entry_type) in _PARTS.items()}
    types |= {"calibrations": AppliedCalibration, "profiles": DiagnosisProfile}
    values: dict[str, dict[str, Any]] = {part: {} for part in types}
    found = State(0, "")
    unreadable = []
    for part, slug, _, entry in session.execute(everything.order_by("origin", "slug")):
        if part == "state":
            found = State(*entry)
            continue
        try:
            values[part][slug] = types[part].model_validate(entry)
        except ValidationError:
            unreadable.append(f"{part}/{slug}")
    return Contents(
        found,
        values["gpus"],
        values["models"],
        values["prices"],
        tuple(values["calibrations"].values()),
        values["profiles"],
        tuple(unreadable),
    )


def stored(session: Session, table: Table) -> Mapping[str, Stored]:
    """Origin and value of every row of a table, by slug."""
    rows = session.execute(select(table.slug, table.origin, table.entry))
    return {row.slug: Stored(row.origin, row.entry) for row in rows}


def write_bundled(session: Session, table: Table, entries: Collection[Entry], version: int) -> None:
    """Insert bundled entries or replace what is bundled under their slugs; an own entry of that slug stays."""
    if not entries:
        return
    statement = insert(table).values([{**row_values(entry), "origin": "bundled", "version": version} for entry in entries])
    replaced = {name: statement.excluded[name] for name in (*row_values(next(iter(entries))), "version") if name != "slug"}
    session.execute(
        statement.on_conflict_do_update(
            index_elements=["slug"], set_={**replaced, "updated_at": func.now()}, where=table.origin == "bundled"
        )
    )


def delete_bundled(session: Session, table: Table, slugs: Collection[str]) -> None:
    """Remove bundled entries that the release no longer brings along."""
    if slugs:
        statement = delete(table).where(table.slug.in_(slugs), table.origin == "bundled")
        session.execute(statement.execution_options(synchronize_session=False))


def row_values(entry: Entry) -> dict[str, Any]:
    """A domain value as columns; what is None is left out of the JSON."""
    columns: dict[str, Any] = {"slug": entry.slug, "entry": entry.model_dump(mode="json", exclude_none=True)}
    if isinstance(entry, Llm):
        columns["hf_id"] = entry.hf_id
    return columns


_PARTS: Mapping[str, tuple[Table, type[Entry]]] = {"gpus": (GpuRow, Gpu), "models": (ModelRow, Llm), "prices": (PriceRow, GpuPrice)}
