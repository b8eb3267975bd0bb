"""GGUF kinds: bits per weight of Llama 3.1 8B as llama.cpp publishes them, and mixes of other shapes."""

import pytest

from app.domain.gguf import gguf_bits
from app.domain.llm import Llm
from app.domain.precision import WEIGHTS, GgufKind
from tests.domain.shapes import BUNDLED

PUBLISHED: dict[GgufKind, float] = {
    "iq2_xxs": 2.3824, "iq2_m": 2.9294, "iq3_xxs": 3.2548, "iq3_m": 3.7628, "q2_k": 3.1593, "q3_k_s": 3.6429, "q3_k_l": 4.2979,
    "q4_k_s": 4.6672, "q4_k_m": 4.8944, "q5_k_s": 5.5704, "q5_k_m": 5.7036, "q6_k": 6.5633, "q8_0": 8.5008,
}  # fmt: skip
"""https://github.com/ggml-org/llama.cpp/blob/master/tools/quantize/README.md"""
WITHOUT_MATRIX: dict[GgufKind, float] = {"iq4_xs": 4.4597, "iq4_nl": 4.6818}
"""The same table: kinds that raise the first down projections where no importance matrix was used."""


def bits_per_weight(llm: Llm, kind: GgufKind, *, importance_matrix: bool = True) -> float:
    bits = gguf_bits(llm, kind, importance_matrix=importance_matrix)
    return sum(count * bits.get(what, 16) for what, count in llm.num_params_by_class().items()) / llm.num_params


@pytest.mark.parametrize(("kind", "published"), [pytest.param(*each, id=each[0]) for each in PUBLISHED.items()])
def test_bits_per_weight_are_those_that_llama_cpp_publishes(kind: GgufKind, published: float) -> None:
    assert round(bits_per_weight(BUNDLED.models["llama-3.1-8b"], kind), 4) == published


@pytest.mark.parametrize(("kind", "published"), [pytest.param(*each, id=each[0]) for each in WITHOUT_MATRIX.items()])
def test_some_kinds_are_larger_without_an_importance_matrix(kind: GgufKind, published: float) -> None:
    llm = BUNDLED.models["llama-3.1-8b"]
    assert round(bits_per_weight(llm, kind, importance_matrix=False), 4) == published > bits_per_weight(llm, kind)


@pytest.mark.parametrize(
    ("kind", "bits"), [pytest.param(each, WEIGHTS[each].bytes_per_element * 8, id=each) for each in ("q5_0", "q4_1", "q4_0", "q3_k_m")]
)
def test_the_plain_cost_of_kinds_that_are_not_published_is_their_mix(kind: GgufKind, bits: float) -> None:
    assert bits_per_weight(BUNDLED.models["llama-3.1-8b"], kind) == pytest.approx(bits, abs=5e-5)


@pytest.mark.parametrize(
    ("slug", "gigabytes"),
    [
        pytest.param("llama-3.1-70b", 42.52, id="70B: values of 4 bits in 5"),  # https://huggingface.co/bartowski/Meta-Llama-3.1-70B-Instruct-GGUF
        pytest.param("qwen3-30b-a3b", 18.56, id="experts"),  # https://huggingface.co/Qwen/Qwen3-30B-A3B-GGUF
        pytest.param("qwen2.5-0.5b", 0.398, id="rows that 256 does not divide"),  # https://huggingface.co/bartowski/Qwen2.5-0.5B-Instruct-GGUF
    ],
)  # fmt: skip
def test_whole_files_of_q4_k_m(slug: str, gigabytes: float) -> None:
    llm = BUNDLED.models[slug]
    assert bits_per_weight(llm, "q4_k_m") * llm.num_params / 8e9 == pytest.approx(gigabytes, rel=0.02)
