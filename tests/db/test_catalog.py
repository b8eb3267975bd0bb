"""The catalog tables: one revision for all of them, one look at everything, bundled and own entries kept apart."""

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from app.catalog.loader import load_bundled
from app.db import catalog, catalog_entries
from app.db.rows import GpuRow, ModelRow, PriceRow
from app.domain.catalog_entry import GpuFilter, ModelFilter
from app.domain.hardware import Gpu, PeakFlops
from app.domain.llm import Llm

BUNDLED = load_bundled()
OWN_GPU = Gpu(slug="our-asic", name="Our ASIC", memory_bytes=2**37, peak_flops_per_s=PeakFlops(bf16=66.9e12))
OWN_MODEL = Llm(slug="our-7b", hf_id="acme/Our-7B", hf_aliases=("acme/Ours",), num_params=7 * 10**9, num_active_params=10**9)


def test_everything_comes_back_as_it_is_bundled(session: Session) -> None:
    found = catalog.contents(session)
    assert found.gpus == BUNDLED.gpus
    assert found.models == BUNDLED.models
    assert found.prices == BUNDLED.prices
    assert found.state.bundled_digest == BUNDLED.digest
    assert found.unreadable == ()


def test_the_revision_counts_changes(session: Session) -> None:
    before = catalog.state(session)
    assert catalog.advance(session) == before.revision + 1
    assert catalog.advance(session, "other files") == before.revision + 2
    assert catalog.state(session) == catalog.State(before.revision + 2, "other files")
    assert catalog.contents(session).state == catalog.state(session)


def test_own_entries_come_last_so_that_their_names_win(session: Session) -> None:
    catalog_entries.insert_gpu(session, OWN_GPU.model_copy(update={"slug": "aaa"}), version=7)
    assert list(catalog.contents(session).gpus)[-1] == "aaa"


def test_an_entry_that_this_version_does_not_understand_is_named(session: Session) -> None:
    catalog_entries.insert_gpu(session, OWN_GPU, version=7)
    session.execute(text("""update gpus set entry = entry || '{"num_photons": 1}' where slug = 'our-asic'"""))
    found = catalog.contents(session)
    assert found.unreadable == ("gpus/our-asic",)
    assert set(found.gpus) == set(BUNDLED.gpus)


def test_bundled_entries_are_written_over_bundled_ones_only(session: Session) -> None:
    catalog_entries.insert_gpu(session, OWN_GPU, version=7)
    h100 = BUNDLED.gpus["h100-sxm-80gb"].model_copy(update={"tdp_watts": 1})
    catalog.write_bundled(session, GpuRow, [h100, OWN_GPU.model_copy(update={"name": "theirs"})], version=8)
    written = catalog_entries.find_gpu(session, "h100-sxm-80gb")
    kept = catalog_entries.find_gpu(session, "our-asic")
    assert written is not None
    assert kept is not None
    assert (written.entry, written.origin, written.version) == (h100, "bundled", 8)
    assert (kept.entry, kept.origin, kept.version) == (OWN_GPU, "own", 7)


def test_writing_nothing_is_no_statement_about_the_rest(session: Session) -> None:
    catalog.write_bundled(session, PriceRow, [], version=8)
    catalog.delete_bundled(session, PriceRow, [])
    assert set(catalog.stored(session, PriceRow)) == set(BUNDLED.prices)


def test_only_bundled_entries_are_deleted_as_bundled(session: Session) -> None:
    catalog_entries.insert_model(session, OWN_MODEL, version=7)
    catalog.delete_bundled(session, ModelRow, ["our-7b", "dbrx"])
    left = catalog.stored(session, ModelRow)
    assert left["our-7b"].origin == "own"
    assert set(BUNDLED.models) - set(left) == {"dbrx"}


def test_a_bundled_entry_is_not_changed_as_an_own_one(session: Session) -> None:
    catalog_entries.delete_own(session, GpuRow, "h100-sxm-80gb")
    assert catalog_entries.find_gpu(session, "h100-sxm-80gb") is not None


def test_an_own_entry_changes_with_its_version_and_time(session: Session) -> None:
    created = catalog_entries.insert_gpu(session, OWN_GPU, version=7)
    changed = catalog_entries.update_gpu(session, OWN_GPU.model_copy(update={"tdp_watts": 300}), version=9)
    assert (created.version, changed.version) == (7, 9)
    assert changed.entry.tdp_watts == 300
    assert changed.created_at == created.created_at
    assert changed.updated_at >= created.updated_at
    assert catalog_entries.find_gpu(session, "our-asic") == changed


def test_a_model_is_replaced_with_its_hub_id(session: Session) -> None:
    catalog_entries.insert_model(session, OWN_MODEL, version=7)
    assert catalog_entries.model_slug_of_hf_id(session, "ACME/our-7b") == "our-7b"
    catalog_entries.update_model(session, OWN_MODEL.model_copy(update={"hf_id": "acme/New"}), version=8)
    assert catalog_entries.model_slug_of_hf_id(session, "acme/Our-7B") is None
    assert catalog_entries.model_slug_of_hf_id(session, "acme/new") == "our-7b"


def test_names_are_all_that_an_entry_is_found_by(session: Session) -> None:
    catalog_entries.insert_gpu(session, OWN_GPU, version=7)
    catalog_entries.insert_model(session, OWN_MODEL, version=7)
    assert catalog_entries.Named("our-asic", "own", ("our-asic", "Our ASIC")) in catalog_entries.gpu_names(session)
    assert catalog_entries.Named("our-7b", "own", ("our-7b", "acme/Our-7B", "acme/Ours")) in catalog_entries.model_names(session)


@pytest.mark.parametrize("wildcard", ["%", "_", "\\", "'"])
def test_searched_text_is_text(session: Session, wildcard: str) -> None:
    assert catalog_entries.list_gpus(session, GpuFilter(q=wildcard), None, 10) == []
    named = OWN_GPU.model_copy(update={"name": f"a{wildcard}b"})
    catalog_entries.insert_gpu(session, named, version=7)
    assert [found.slug for found in catalog_entries.list_gpus(session, GpuFilter(q=wildcard), None, 10)] == ["our-asic"]


def test_a_model_without_layers_counts_as_experts_when_part_of_it_rests(session: Session) -> None:
    catalog_entries.insert_model(session, OWN_MODEL, version=7)
    dense = OWN_MODEL.model_copy(update={"slug": "our-dense", "num_active_params": OWN_MODEL.num_params})
    catalog_entries.insert_model(session, dense, version=7)
    listed = [found.slug for found in catalog_entries.list_models(session, ModelFilter(origin="own", moe=True), None, 10)]
    assert listed == ["our-7b"]


def test_slugs_are_ordered_by_their_bytes_on_every_server(session: Session) -> None:
    for slug in ("a-c", "a.b", "ab", "a_d"):
        catalog_entries.insert_gpu(session, OWN_GPU.model_copy(update={"slug": slug}), version=7)
    listed = [found.slug for found in catalog_entries.list_gpus(session, GpuFilter(origin="own"), None, 10)]
    assert listed == ["a-c", "a.b", "a_d", "ab"]
    assert [found.slug for found in catalog_entries.list_gpus(session, GpuFilter(origin="own"), "a.b", 10)] == ["a_d", "ab"]
