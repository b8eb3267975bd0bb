"""The catalog that calculations look names up in: bundled files into the database, the database into an immutable snapshot."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import structlog
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session, sessionmaker

from app.catalog.loader import BundledCatalog, load_bundled
from app.db import catalog as rows
from app.db.catalog_entries import gpu_names, model_names
from app.db.rows import GpuRow, ModelRow, PriceRow
from app.domain.calibration import Calibrations
from app.domain.catalog import Catalog

DIGEST_CHARACTERS = 12


@dataclass(frozen=True)
class SyncReport:
    """What a synchronisation did, each entry as `gpus/h100-sxm-80gb`.

    `kept_own` are own entries that a bundled one would replace, `shared_names` full names and Hugging Face ids that several entries have.
    """

    inserted: tuple[str, ...]
    updated: tuple[str, ...]
    deleted: tuple[str, ...]
    kept_own: tuple[str, ...]
    shared_names: tuple[str, ...]
    revision: int


@dataclass(frozen=True)
class _Difference:
    """What distinguishes one table from the bundled files."""

    part: str
    table: rows.Table
    entries: Mapping[str, rows.Entry]
    found: Mapping[str, rows.Stored]

    @property
    def inserted(self) -> list[str]:
        return [slug for slug in self.entries if slug not in self.found]

    @property
    def updated(self) -> list[str]:
        return [
            slug
            for slug, entry in self.entries.items()
            if slug in self.found and self.found[slug].origin == "bundled" and self.found[slug].entry != rows.row_values(entry)["entry"]
        ]

    @property
    def deleted(self) -> list[str]:
        return [slug for slug, row in self.found.items() if row.origin == "bundled" and slug not in self.entries]

    @property
    def kept_own(self) -> list[str]:
        return [slug for slug, row in self.found.items() if row.origin == "own" and slug in self.entries]


def sync_bundled(session: Session, bundled: BundledCatalog | None = None) -> SyncReport:
    """Make the bundled entries of the database those of the release: insert, update, delete, in the caller's transaction.

    Own entries are never touched. Where a release brings an entry whose slug a team has taken before, the team's stays and the bundled
    one is left out as long as it does; where only a further name is shared (Hugging Face id, full name), both are stored and the name finds
    the team's. Both are reported and logged. Processes that start at once do it one after another; the second finds nothing to do.
    """
    bundled = bundled or load_bundled()
    rows.lock(session)
    parts: tuple[tuple[str, rows.Table, Mapping[str, rows.Entry]], ...] = (
        ("gpus", GpuRow, bundled.gpus),
        ("models", ModelRow, bundled.models),
        ("prices", PriceRow, bundled.prices),
    )
    differences = [_Difference(part, table, entries, rows.stored(session, table)) for part, table, entries in parts]
    inserted, updated, deleted, kept_own = (
        tuple(f"{of.part}/{slug}" for of in differences for slug in getattr(of, kind))
        for kind in ("inserted", "updated", "deleted", "kept_own")
    )
    revision, digest = rows.state(session)
    if inserted or updated or deleted or digest != bundled.digest:
        revision = rows.advance(session, bundled.digest)
        for of in differences:
            rows.delete_bundled(session, of.table, of.deleted)
            rows.write_bundled(session, of.table, [of.entries[slug] for slug in (*of.inserted, *of.updated)], revision)
    shared_names = _shared_names(session)
    log = structlog.get_logger()
    for name in kept_own:
        log.warning("own_entry_kept", entry=name, consequence="the bundled entry of the same slug is left out")
    for name in shared_names:
        log.warning("name_shared", name=name, consequence="the name finds the own entry")
    return SyncReport(inserted, updated, deleted, kept_own, shared_names, revision)


def _shared_names(session: Session) -> tuple[str, ...]:
    shared: list[str] = []
    for part, named in (("gpus", gpu_names(session)), ("models", model_names(session))):
        holders = Counter(name for entry in named for name in {name.casefold() for name in entry.names})
        shared.extend(f"{part}/{name}" for name, count in holders.items() if count > 1)
    return tuple(sorted(shared))


class CatalogHolder:
    """The snapshot of this process. Reading it is free; it is replaced as a whole and kept when the database is away.

    Until the database was read once, the bundled files alone are the catalog: a service that starts while its database is away calculates.
    """

    def __init__(self, load: Callable[[], BundledCatalog] = load_bundled) -> None:
        self._load = load
        self._refreshing = threading.Lock()
        self._state: rows.State | None = None
        self._snapshot: Catalog | None = None
        self._fallback: Catalog | None = None

    @property
    def current(self) -> Catalog:
        """The catalog as it was last read."""
        return self._snapshot or self._bundled()

    @property
    def version(self) -> str | None:
        """Version of the snapshot, None until the database was read once."""
        return None if self._snapshot is None else self._snapshot.version

    def copy(self) -> "CatalogHolder":
        """Another holder that begins with what this one holds."""
        other = CatalogHolder(load=lambda: self._bundled_files)
        other._snapshot, other._state = self._snapshot, self._state
        return other

    def refresh(self, session: Session) -> bool:
        """Read the catalog again if its revision is another one; whether it was. A failure leaves the snapshot as it is."""
        with self._refreshing:
            if rows.state(session) == self._state:
                return False
            read = rows.contents(session)
            for name in read.unreadable:
                structlog.get_logger().warning("catalog_entry_unreadable", entry=name)
            version = f"{read.state.bundled_digest[:DIGEST_CHARACTERS]}-{read.state.revision}"
            self._snapshot = Catalog(
                gpus=read.gpus,
                models=read.models,
                prices=read.prices,
                version=version,
                engines=tuple(self._bundled_files.engines.values()),
                steps=self._bundled_files.steps,
                calibrations=Calibrations(read.calibrations),
                profiles=read.profiles,
            )
            self._state = read.state
            return True

    def refresh_from(self, session_factory: sessionmaker[Session]) -> None:
        """Like `refresh`, in a session of its own; what goes wrong is logged, the old snapshot answers on, the next look may succeed."""
        try:
            with session_factory() as session:
                self.refresh(session)
        except SQLAlchemyError as error:
            structlog.get_logger().warning("catalog_not_refreshed", error=type(error).__name__)
        except Exception:
            structlog.get_logger().exception("catalog_not_refreshed")

    @cached_property
    def _bundled_files(self) -> BundledCatalog:
        return self._load()

    def _bundled(self) -> Catalog:
        if self._fallback is None:
            bundled = self._bundled_files
            self._fallback = bundled.snapshot(f"{bundled.digest[:DIGEST_CHARACTERS]}-bundled")
        return self._fallback
