"""Looking names up in the catalog snapshot."""

import pytest

from app.domain.errors import UnknownName
from tests.domain.shapes import BUNDLED, CATALOG


def test_every_model_is_found_by_each_of_its_names_in_any_case() -> None:
    for slug, model in BUNDLED.models.items():
        names = [slug, *([model.hf_id] if model.hf_id else []), *model.hf_aliases]
        assert {CATALOG.model(f" {name.swapcase()} ").slug for name in names} == {slug}


def test_every_accelerator_is_found_by_slug_and_full_name() -> None:
    for slug, gpu in BUNDLED.gpus.items():
        assert CATALOG.gpu(slug.upper()) is CATALOG.gpu(gpu.name) is gpu


@pytest.mark.parametrize(
    ("missed", "meant"), [("h100", "h100-sxm-80gb"), ("h100-sxm", "h100-sxm-80gb"), ("h200-sxm-140gb", "h200-sxm-141gb")]
)
def test_a_close_miss_names_the_nearest_and_the_field(missed: str, meant: str) -> None:
    with pytest.raises(UnknownName, match="nearest: ") as refused:
        CATALOG.gpu(missed, field="/place")
    assert (refused.value.field, refused.value.value) == ("/place", missed)
    assert meant in refused.value.nearest
    assert refused.value.expected == ", ".join(refused.value.nearest)


def test_a_close_miss_of_a_hub_id_names_the_slug() -> None:
    with pytest.raises(UnknownName) as refused:
        CATALOG.model("meta-llama/Llama-3.1-70B-Instrct")
    assert "llama-3.1-70b" in refused.value.nearest


def test_a_name_like_none_is_refused_without_a_guess() -> None:
    with pytest.raises(UnknownName) as refused:
        CATALOG.model("zzz" * 100)
    assert (refused.value.nearest, refused.value.expected) == ((), None)
    assert len(refused.value.detail) < 200


def test_the_price_is_that_of_the_accelerator() -> None:
    priced = CATALOG.price("h100-sxm-80gb")
    assert priced is not None
    assert priced.gpu == "h100-sxm-80gb"
    assert CATALOG.price("inline") is None
