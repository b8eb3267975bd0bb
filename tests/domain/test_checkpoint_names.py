"""Checkpoints that others publish of a known model: which model, which format, and what is said about it."""

import pytest

from app.domain.checkpoint_names import BY_NAME
from app.domain.errors import UnknownName
from app.domain.kv_cache import resolve_kv_format
from app.domain.loaded_weights import loaded_weights_bytes_per_gpu
from tests.domain.shapes import CATALOG, GIB

NAMES = [
    ("Qwen/Qwen2.5-72B-Instruct-AWQ", "qwen2.5-72b", "awq"),
    ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "qwen2.5-7b", "gptq"),
    ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8", "qwen2.5-7b", "int8"),
    ("Qwen/Qwen3-32B-FP8", "qwen3-32b", "fp8"),
    ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "llama-3.3-70b", "fp8"),
    ("neuralmagic/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "llama-3.1-8b", "int4"),
    ("RedHatAI/Llama-3.3-70B-Instruct-quantized.w8a8", "llama-3.3-70b", "int8"),
    ("hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", "llama-3.1-70b", "awq"),
    ("unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit", "llama-3.1-8b", "bnb-4bit"),
    ("unsloth/Qwen3-8B-unsloth-bnb-4bit", "qwen3-8b", "bnb-4bit"),
    ("cyankiwi/gemma-4-26B-A4B-it-qat-AWQ-INT4", "gemma-4-26b-a4b", "awq"),
    ("nvidia/DeepSeek-R1-0528-FP4-v2", "deepseek-r1-0528", "nvfp4; 16 bits: attention"),
    ("nvidia/Qwen3.6-35B-A3B-NVFP4", "qwen3.6-35b-a3b", "nvfp4; fp8: attention, recurrent"),
    ("meta-llama/Llama-3.1-405B-Instruct-FP8", "llama-3.1-405b", "fp8 (per channel, fbgemm)"),
    ("amd/DeepSeek-R1-MXFP4", "deepseek-r1", "mxfp4"),
    ("Intel/Qwen3-32B-int4-AutoRound", "qwen3-32b", "int4"),
    ("bartowski/Meta-Llama-3.1-70B-Instruct-GGUF", "llama-3.1-70b", "q4_k_m"),
    ("unsloth/gpt-oss-20b-GGUF:Q8_0", "gpt-oss-20b", "q8_0"),
    ("google/gemma-3-27b-it-qat-q4_0-gguf", "gemma-3-27b", "q4_0"),
    ("cpatonn/Qwen3-30B-A3B-Thinking-2507-AWQ-4bit", "qwen3-30b-a3b-2507", "awq"),
    ("ISTA-DASLab/gemma-3-27b-it-GPTQ-4b-128g", "gemma-3-27b", "gptq"),
    ("llava-hf/llava-1.5-7b-hf-AWQ", "llava-1.5-7b", "awq"),
    ("unsloth/Qwen2.5-VL-7B-Instruct-unsloth-bnb-4bit", "qwen2.5-vl-7b", "bnb-4bit"),
    ("TheBloke/Mistral-7B-Instruct-v0.2-AWQ", "mistral-7b-v0.2", "awq"),
    ("amd/gpt-oss-120b-w-mxfp4-a-fp8", "gpt-oss-120b", "mxfp4 (MoE experts)"),
    ("unsloth/DeepSeek-R1-BF16", "deepseek-r1", None),
    ("unsloth/Llama-3.2-3B-Instruct", "llama-3.2-3b", None),
]


@pytest.mark.parametrize(("name", "slug", "words"), [pytest.param(*each, id=each[0]) for each in NAMES])
def test_a_name_gives_the_model_and_its_format(name: str, slug: str, words: str | None) -> None:
    llm = CATALOG.checkpoint(name)
    assert (llm.slug, llm.native.quantization) == (slug, words)
    assert llm.notes[0].startswith(f"{BY_NAME}{name} is taken for {slug}")


def test_an_embedding_model_has_the_layers_of_its_decoder_and_no_head() -> None:
    """14.1062 GiB were printed for Qwen3-Embedding-8B, about 1.2 GiB less than for the decoder."""
    loaded = loaded_weights_bytes_per_gpu(CATALOG.checkpoint("Qwen/Qwen3-Embedding-8B"), None, tp=1)
    assert loaded.bytes_per_gpu / GIB == pytest.approx(14.1062, rel=0.005)


def test_what_the_catalog_lists_is_taken_as_it_stands() -> None:
    assert CATALOG.checkpoint("meta-llama/Llama-3.1-8B-Instruct") is CATALOG.model("llama-3.1-8b")


@pytest.mark.parametrize("name", ["acme/Hyena-7B-AWQ", "mlx-community/Qwen3-32B-3bit", "acme/qwen3-32b-experiment"])
def test_another_model_is_not_guessed(name: str) -> None:
    with pytest.raises(UnknownName):
        CATALOG.checkpoint(name)


@pytest.mark.parametrize(
    ("name", "kv"),
    [("nvidia/Llama-3.3-70B-Instruct-FP8", "fp8"), ("RedHatAI/Llama-3.3-70B-Instruct-FP8", "bf16")],
    ids=["nvidia", "redhat"],
)
def test_auto_follows_the_cache_that_the_publisher_asks_for(name: str, kv: str) -> None:
    assert resolve_kv_format(CATALOG.checkpoint(name), "auto") == kv


def test_fbgemm_leaves_attention_in_16_bits() -> None:
    """57.752 GiB were printed for eight key/value heads more than today's file has (https://github.com/vllm-project/vllm/issues/6746)."""
    loaded = loaded_weights_bytes_per_gpu(CATALOG.checkpoint("meta-llama/Llama-3.1-405B-Instruct-FP8"), None, tp=8)
    more_heads = 126 * 2 * 8 * 128 * 16384 * 2 / 8
    assert (loaded.bytes_per_gpu + more_heads) / GIB == pytest.approx(57.752, rel=0.012)
    assert loaded.basis == "assumed"
