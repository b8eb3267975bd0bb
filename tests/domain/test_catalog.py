"""Looking names up in the catalog snapshot."""

import pytest

from app.domain.errors import UnknownName
from tests.domain.shapes import BUNDLED, CATALOG


@pytest.mark.parametrize("slug", list(BUNDLED.models))
def test_a_model_is_found_by_each_of_its_names_in_any_case(slug: str) -> None:
    model = BUNDLED.models[slug]
    names = [slug, *([model.hf_id] if model.hf_id else []), *model.hf_aliases]
    assert {CATALOG.model(f" {name.swapcase()} ").slug for name in names} == {slug}


@pytest.mark.parametrize("slug", list(BUNDLED.gpus))
def test_an_accelerator_is_found_by_slug_and_full_name(slug: str) -> None:
    assert CATALOG.gpu(slug.upper()) is CATALOG.gpu(BUNDLED.gpus[slug].name) is BUNDLED.gpus[slug]


def test_a_close_miss_names_the_nearest_and_the_field() -> None:
    with pytest.raises(UnknownName, match="nearest: h100") as refused:
        CATALOG.gpu("h100-sxm", field="/place")
    assert (refused.value.field, refused.value.nearest[0]) == ("/place", "h100-sxm-80gb")
    assert refused.value.expected == ", ".join(refused.value.nearest)


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
