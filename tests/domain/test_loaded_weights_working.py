"""The working of weights as loaded can be redone by hand."""

import pytest

from app.domain.deployment import Deployment
from app.domain.loaded_weights import loaded_weights_bytes_per_gpu
from app.domain.loaded_weights_working import loaded_weights_steps, weights_note
from tests.domain.shapes import BUNDLED, dense


@pytest.mark.parametrize(("slug", "tp"), [("llama-3.1-8b", 1), ("deepseek-r1", 8), ("qwen3.5-27b", 4)])
def test_the_sum_of_the_working_is_its_value(slug: str, tp: int) -> None:
    loaded = loaded_weights_bytes_per_gpu(BUNDLED.models[slug], "fp8", tp=tp)
    whole, share = loaded_weights_steps(loaded, Deployment(tp=tp))
    assert sum(int(term) for term in share.substituted.split(" + ")) == share.value == loaded.bytes_per_gpu
    products = [term.removesuffix(" / 8").split(" x ") for term in whole.substituted.split(" + ")]
    assert sum(int(count) * float(bits) / 8 for count, bits in products) == pytest.approx(whole.value, rel=1e-6)


def test_a_divided_size_says_so() -> None:
    loaded = loaded_weights_bytes_per_gpu(dense(params=8 * 10**9), "fp8", tp=2)
    assert [line.substituted for line in loaded_weights_steps(loaded, Deployment(tp=2))] == ["ceil(8000000000 x 1)", "8000000000 / 2"]


def test_the_note_names_the_scheme_and_its_range() -> None:
    model = BUNDLED.models["gpt-oss-20b"]
    note = weights_note(loaded_weights_bytes_per_gpu(model, None, tp=1))
    assert note is not None
    assert note.code == "weights_scheme"
    assert note.message.startswith("The weights are taken as mxfp4 routed experts, other tensors in 16 bits: 13.65 GB (12.71 GiB) to ")
    assert weights_note(loaded_weights_bytes_per_gpu(model, "bf16", tp=1)) is None
