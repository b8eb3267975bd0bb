"""What an answer says about inputs that it was not given, and how far its range reaches for them."""

from typing import Any

import pytest

from app.domain.deployment import Deployment
from app.domain.engine_notes import engine_warnings
from app.domain.errors import InvalidInput
from app.domain.hardware import Gpu, vendor_of
from app.domain.llm import Llm
from app.domain.memory import fit
from app.domain.memory_fit import Fit
from tests.domain.engines import engine
from tests.domain.shapes import BUNDLED, H100

LLAMA = BUNDLED.models["llama-3.1-8b"]


def found(gpu: Gpu = H100, llm: Llm = LLAMA, **given: Any) -> Fit:
    deployment = Deployment.model_validate({"engine": "vllm", **given})
    return fit(llm, gpu, deployment, engine("vllm", deployment.engine_version))


def range_of(fitted: Fit) -> tuple[int, int]:
    assert fitted.kv_low_bytes is not None and fitted.kv_high_bytes is not None  # noqa: PT018 - both are of fits of an engine
    return fitted.kv_low_bytes, fitted.kv_high_bytes


def codes(fitted: Fit) -> set[str]:
    return {note.code for note in fitted.notes}


def message(fitted: Fit, code: str) -> str:
    return next(note.message for note in fitted.notes if note.code == code)


@pytest.mark.parametrize("version", [None, "0.1.dev19754+g3a0914114"], ids=["left-out", "without-tags"])
def test_an_unknown_version_may_have_another_fraction_and_count_no_graphs(version: str | None) -> None:
    known, unknown = found(engine_version="0.33.0"), found(engine_version=version)
    assert unknown.kv_room_bytes == known.kv_room_bytes
    (known_low, known_high), (low, high) = range_of(known), range_of(unknown)
    assert known_low - low == pytest.approx(0.02 * H100.require_memory_bytes(), abs=1)
    assert high - known_high == unknown.terms.cuda_graph_bytes > 0
    assert codes(unknown) - codes(known) == {"default_engine_version" if version is None else "unknown_engine_version"}


def test_a_fraction_that_is_given_is_not_in_doubt() -> None:
    known, unknown = (found(memory_fraction_ratio=0.9, engine_version=version) for version in ("0.33.0", None))
    assert range_of(known)[0] == range_of(unknown)[0]


@pytest.mark.parametrize(
    ("version", "told"),
    [("0.11.0", True), ("0.11.2", False), ("0.10.2+nv25.09", False), ("0.19.1", False)],
    ids=["if-installed", "opt-in", "brings-it", "does-not-sort"],
)
def test_an_image_that_may_bring_another_sampler_is_told(version: str, told: bool) -> None:
    assert ("unknown_image" in codes(found(engine_version=version, max_num_seqs=1024))) == told


@pytest.mark.parametrize("version", ["0.10.2", "0.12.0"])
def test_a_stated_sampler_is_believed(version: str) -> None:
    """(38.5 - 14) bytes x sequences x vocabulary, with a range that no longer holds the other sampler."""
    sorts, lean = (found(engine_version=version, max_num_seqs=1024, flashinfer_sampler=given) for given in (False, True))
    freed = int((38.5 - 14) * 1024 * 128_256)
    assert lean.kv_room_bytes - sorts.kv_room_bytes == pytest.approx(freed, abs=1)
    assert range_of(lean)[1] - range_of(sorts)[1] == pytest.approx(freed, abs=1)
    assert "unknown_image" not in codes(sorts) | codes(lean)


@pytest.mark.parametrize("code", ["max_num_seqs", "max_num_batched_tokens", "memory_fraction_ratio"])
def test_a_default_says_what_it_costs(code: str) -> None:
    assert message(found(engine_version="0.19.1"), f"default_{code}").count(".") >= 2


def test_terms_of_a_back_end_that_was_not_read_may_be_none() -> None:
    tpu, gpu = (Gpu(slug="device", name="device", vendor=maker, memory_bytes=40 * 2**30) for maker in ("Google", "NVIDIA"))
    read, unread = (found(device, engine_version="0.10.0") for device in (gpu, tpu))
    assert range_of(unread)[1] - range_of(read)[1] == read.terms.total_bytes
    assert codes(unread) - codes(read) == {"back_end_not_read"}


@pytest.mark.parametrize(
    ("name", "maker"),
    [("AMD Instinct MI300X", "AMD"), ("mi355x", "AMD"), ("Radeon PRO W7900", "AMD"), ("RX 9070 XT (16 GB)", "AMD"),
     ("RTX 4090", "NVIDIA"), ("H100 NVL", "NVIDIA"), ("A800 80GB", "NVIDIA"), ("TPU v5e-8", "Google"), ("48GB card", None), (None, None)],
)  # fmt: skip
def test_names_tell_the_maker(name: str | None, maker: str | None) -> None:
    assert vendor_of(name) == maker


def test_the_fitted_length_is_the_longest_that_serves() -> None:
    gpu = BUNDLED.gpus["rtx-4090-24gb"]
    fitted = found(gpu, engine_version="0.33.0", max_model_len_tokens=-1)
    length = fitted.max_model_len_tokens
    assert length is not None
    assert (fitted.verdict, "fitted_max_model_len" in codes(fitted)) == ("serves", True)
    assert found(gpu, engine_version="0.33.0", max_model_len_tokens=length).verdict == "serves"
    assert found(gpu, engine_version="0.33.0", max_model_len_tokens=length + 1).limiting == "max_model_len"


def test_the_fitted_length_is_at_most_the_models_own() -> None:
    assert found(engine_version="0.14.0", max_model_len_tokens=-1).max_model_len_tokens == LLAMA.max_model_len_tokens


def test_where_nothing_fits_no_length_does() -> None:
    fitted = found(BUNDLED.gpus["t4-16gb"], engine_version="0.33.0", max_model_len_tokens=-1)
    assert fitted.verdict != "serves"
    assert "no sequence fits" in message(fitted, "fitted_max_model_len")


@pytest.mark.parametrize(
    ("name", "version", "llm"),
    [("vllm", "0.13.0", LLAMA), ("sglang", None, LLAMA), ("vllm", "0.33.0", Llm(slug="m", num_params=10**9, num_active_params=10**9))],
    ids=["too-old", "other-engine", "no-limit"],
)
def test_a_length_that_cannot_be_fitted_is_refused(name: str, version: str | None, llm: Llm) -> None:
    with pytest.raises(InvalidInput) as caught:
        fit(llm, H100, Deployment.model_validate({"engine": name, "max_model_len_tokens": -1}), engine(name, version))
    assert (caught.value.field, caught.value.value) == ("/deployment/max_model_len_tokens", -1)


@pytest.mark.parametrize(
    ("name", "version", "kv_cache", "told"),
    [
        ("llama.cpp", None, "fp8", True),
        ("llama.cpp", None, "q8_0", False),
        ("sglang", None, "int8", True),
        ("sglang", None, "fp8", False),
        ("tensorrt-llm", None, "q8_0", True),
        ("tensorrt-llm", None, "fp4", False),
        ("vllm", "0.6.3", "fp4", True),
        ("vllm", "0.6.3", "fp8", False),
        ("vllm", "0.6.3", "auto", False),
        ("vllm", "0.11.0", "int8", True),
        ("vllm", "0.12.0", "int8", False),  # not read
        ("vllm", "0.33.0", "int8", False),
        ("vllm", "0.33.0", "q8_0", True),
    ],
)
def test_a_cache_that_the_engine_does_not_keep_is_told(name: str, version: str | None, kv_cache: str, told: bool) -> None:
    deployment = Deployment.model_validate({"engine": name, "engine_version": version, "kv_cache": kv_cache})
    warnings = engine_warnings(deployment, fit(LLAMA, H100, deployment, engine(deployment.engine, version)))
    assert ("kv_cache_not_offered" in {note.code for note in warnings}) is told


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"max_num_batched_tokens": 100, "max_num_seqs": 256}, {"batch_below_sequences"}),
        ({"max_num_batched_tokens": 256, "max_num_seqs": 256}, set()),
        ({"max_num_batched_tokens": 100}, set()),
        ({"max_num_batched_tokens": 4096, "chunked_prefill": False, "max_model_len_tokens": 8192}, {"batch_below_length"}),
        ({"chunked_prefill": False, "max_model_len_tokens": 8192}, set()),
    ],
    ids=["below-sequences", "as-many", "sequences-follow", "below-length", "tokens-follow"],
)
def test_a_batch_that_the_engine_refuses_is_told(given: dict[str, Any], told: set[str]) -> None:
    deployment = Deployment.model_validate({"engine": "vllm", "engine_version": "0.6.3", **given})
    warnings = engine_warnings(deployment, fit(LLAMA, H100, deployment, engine("vllm", "0.6.3")))
    assert {note.code for note in warnings if note.code.startswith("batch_")} == told
