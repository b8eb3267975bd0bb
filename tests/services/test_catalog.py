"""Synchronising the bundled catalog and keeping the snapshot: idempotent, safe side by side, nothing of a team's lost."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session, sessionmaker

from app.catalog.loader import BundledCatalog, load_bundled
from app.db import schema
from app.db.session import open_engine
from app.domain.errors import AlreadyExists, StaleVersion, UnknownName
from app.domain.hardware import Gpu
from app.domain.llm import Llm
from app.services import catalog_entries
from app.services.catalog import CatalogHolder, SyncReport, sync_bundled

BUNDLED = load_bundled()
OWN_GPU = Gpu(slug="our-asic", name="Our ASIC", memory_bytes=2**37)
OWN_MODEL = Llm(slug="our-7b", hf_id="acme/Our-7B", num_params=7 * 10**9, num_active_params=7 * 10**9)


@pytest.fixture
def own_engine(own_database_url: str) -> Iterator[Engine]:
    """Engine on a migrated database without any catalog entry, where commits are real."""
    engine = open_engine(own_database_url)
    schema.upgrade(engine)
    yield engine
    engine.dispose()


def release(*, gpus: dict[str, Gpu] | None = None, models: dict[str, Llm] | None = None) -> BundledCatalog:
    """The bundled catalog of another release."""
    changed = replace(BUNDLED, digest="another release")
    return replace(changed, gpus=BUNDLED.gpus if gpus is None else gpus, models=BUNDLED.models if models is None else models)


def test_the_first_start_stores_everything(own_engine: Engine) -> None:
    with Session(own_engine) as session, session.begin():
        report = sync_bundled(session)
    assert len(report.inserted) == 63 + 342 + 32
    assert "models/llama-3.1-70b" in report.inserted
    assert (report.updated, report.deleted, report.kept_own, report.shared_names, report.revision) == ((), (), (), (), 1)


def test_the_next_start_finds_nothing_to_do(session: Session) -> None:
    first = sync_bundled(session, BUNDLED)
    assert sync_bundled(session, BUNDLED) == first
    assert (first.inserted, first.updated, first.deleted) == ((), (), ())


def test_starts_at_the_same_time_do_it_once(own_engine: Engine) -> None:
    def start(_: int) -> SyncReport:
        with Session(own_engine) as session, session.begin():
            return sync_bundled(session, BUNDLED)

    with ThreadPoolExecutor(6) as starts:
        reports = list(starts.map(start, range(6)))
    assert sorted(len(report.inserted) for report in reports) == [0, 0, 0, 0, 0, 63 + 342 + 32]
    assert {report.revision for report in reports} == {1}


def test_a_release_changes_adds_and_removes(session: Session) -> None:
    before = sync_bundled(session, BUNDLED).revision
    gpus = {slug: gpu for slug, gpu in BUNDLED.gpus.items() if slug != "l2-24gb"}
    gpus["h100-sxm-80gb"] = gpus["h100-sxm-80gb"].model_copy(update={"tdp_watts": 650})
    gpus["h300"] = OWN_GPU.model_copy(update={"slug": "h300", "name": "H300"})
    report = sync_bundled(session, release(gpus=gpus))
    assert (report.inserted, report.updated, report.deleted) == (("gpus/h300",), ("gpus/h100-sxm-80gb",), ("gpus/l2-24gb",))
    assert report.revision == before + 1
    holder = CatalogHolder()
    holder.refresh(session)
    assert holder.current.gpus == gpus
    changed = catalog_entries.get_gpu(session, holder.current, "h100-sxm-80gb")
    assert changed.version == report.revision
    assert catalog_entries.get_gpu(session, holder.current, "t4-16gb").version <= before


def test_a_new_digest_alone_is_another_version(session: Session) -> None:
    before = sync_bundled(session, BUNDLED).revision
    report = sync_bundled(session, release())
    assert (report.inserted, report.updated, report.deleted, report.revision) == ((), (), (), before + 1)


def test_own_entries_outlive_every_release(session: Session) -> None:
    catalog_entries.create_gpu(session, OWN_GPU)
    catalog_entries.create_model(session, OWN_MODEL)
    report = sync_bundled(session, release(gpus={}))
    assert len(report.deleted) == 63
    holder = CatalogHolder()
    holder.refresh(session)
    assert set(holder.current.gpus) == {"our-asic"}
    assert holder.current.model("acme/our-7b").slug == "our-7b"


def test_an_own_entry_is_not_lost_to_a_bundled_one_of_the_same_slug(session: Session) -> None:
    catalog_entries.create_gpu(session, OWN_GPU)
    theirs = OWN_GPU.model_copy(update={"memory_bytes": 1, "name": "Theirs"})
    with_theirs = release(gpus={**BUNDLED.gpus, "our-asic": theirs})
    report = sync_bundled(session, with_theirs)
    assert report.kept_own == ("gpus/our-asic",)
    holder = CatalogHolder()
    holder.refresh(session)
    assert holder.current.gpu("our-asic").memory_bytes == OWN_GPU.memory_bytes
    catalog_entries.delete_gpu(session, "our-asic", None)
    assert sync_bundled(session, with_theirs).inserted == ("gpus/our-asic",)
    holder.refresh(session)
    assert holder.current.gpu("our-asic") == theirs


def test_a_shared_hub_id_goes_on_finding_the_own_model(session: Session) -> None:
    catalog_entries.create_model(session, OWN_MODEL)
    theirs = OWN_MODEL.model_copy(update={"slug": "acme-our-7b", "hf_id": "ACME/our-7B", "num_params": 8 * 10**9})
    report = sync_bundled(session, release(models={**BUNDLED.models, "acme-our-7b": theirs}))
    assert report.inserted == ("models/acme-our-7b",)
    assert report.shared_names == ("models/acme/our-7b",)
    holder = CatalogHolder()
    holder.refresh(session)
    assert holder.current.model("acme/Our-7B").slug == "our-7b"
    assert catalog_entries.get_model(session, holder.current, "acme/Our-7B").slug == "our-7b"
    assert holder.current.model("acme-our-7b").num_params == 8 * 10**9


def test_a_sync_that_is_not_committed_leaves_nothing_behind(own_engine: Engine) -> None:
    with Session(own_engine) as session:
        sync_bundled(session, BUNDLED)
        session.rollback()
    with Session(own_engine) as session:
        assert session.execute(text("select count(*) from models")).scalar_one() == 0
        assert session.execute(text("select revision from catalog_state")).scalar_one() == 0


def test_the_snapshot_is_read_again_only_after_a_change(session: Session) -> None:
    holder = CatalogHolder()
    assert holder.refresh(session)
    first = holder.current
    assert not holder.refresh(session)
    assert holder.current is first
    catalog_entries.create_gpu(session, OWN_GPU)
    assert holder.refresh(session)
    assert holder.current is not first
    assert holder.version == holder.current.version != first.version
    with pytest.raises(UnknownName):
        first.gpu("our-asic")


def test_without_a_database_the_bundled_files_are_the_catalog() -> None:
    holder = CatalogHolder()
    assert holder.version is None
    assert holder.current.model("meta-llama/Llama-3.1-70B-Instruct").num_params == 70553706496
    assert holder.current.version.endswith("-bundled")
    assert holder.current is holder.current


def test_the_snapshot_stays_when_the_database_goes_away(session: Session) -> None:
    holder = CatalogHolder()
    holder.refresh(session)
    before = holder.current
    away = open_engine("postgresql+psycopg://nobody@127.0.0.1:1/nowhere")
    with pytest.raises(OperationalError), Session(away) as lost:
        holder.refresh(lost)
    holder.refresh_from(sessionmaker(away))
    assert holder.current is before


def test_readers_never_wait_for_a_refresh(session_factory: sessionmaker[Session]) -> None:
    loading, go_on = threading.Event(), threading.Event()

    class SlowSession(Session):
        """Stops in its first statement until it is told to go on."""

        def execute(self, *args: object, **kwargs: object) -> object:  # type: ignore[override]
            loading.set()
            assert go_on.wait(10)
            return super().execute(*args, **kwargs)  # type: ignore[call-overload]

    holder = CatalogHolder()
    with session_factory() as session:
        holder.refresh(session)
        before = holder.current
        catalog_entries.create_gpu(session, OWN_GPU)
        slow = SlowSession(session.connection())
        refreshing = threading.Thread(target=holder.refresh, args=(slow,))
        refreshing.start()
        assert loading.wait(10)
        assert holder.current is before
        go_on.set()
        refreshing.join(10)
    assert "our-asic" in holder.current.gpus


def test_of_two_that_take_one_name_at_once_one_gets_it(own_engine: Engine) -> None:
    together = threading.Barrier(4)

    def add(number: int) -> str:
        model = OWN_MODEL.model_copy(update={"slug": f"our-{number}"})
        together.wait(10)
        try:
            with Session(own_engine) as session, session.begin():
                return catalog_entries.create_model(session, model).slug
        except AlreadyExists:
            return "refused"

    with ThreadPoolExecutor(4) as writers:
        results = sorted(writers.map(add, range(4)))
    assert results[1:] == ["refused", "refused", "refused"]


def test_of_two_that_change_one_version_at_once_one_does(own_engine: Engine) -> None:
    with Session(own_engine) as session, session.begin():
        version = catalog_entries.create_gpu(session, OWN_GPU).version
    together = threading.Barrier(4)

    def change(number: int) -> bool:
        together.wait(10)
        try:
            with Session(own_engine) as session, session.begin():
                catalog_entries.replace_gpu(session, "our-asic", OWN_GPU.model_copy(update={"tdp_watts": 100 + number}), {version})
        except StaleVersion:
            return False
        return True

    with ThreadPoolExecutor(4) as writers:
        assert sorted(writers.map(change, range(4))) == [False, False, False, True]
