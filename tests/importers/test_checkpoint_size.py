"""Precision and size of the published checkpoint, from quantization_config and from the safetensors index."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.domain.errors import InvalidInput, PlannerError, UnsupportedConfig
from app.importers.hf_config import llm_from_hf_config

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
NUM_PARAMS = 8_030_261_248
MATRICES = 32 * (4096 * (4096 + 2 * 1024 + 4096) + 3 * 4096 * 14336)


def quantised(**quantization: Any) -> tuple[str | None, int | None]:
    native = llm_from_hf_config(LLAMA | {"quantization_config": quantization}).native
    return native.quantization, native.weights_bytes


def test_sixteen_bits_are_two_bytes_a_parameter() -> None:
    model = llm_from_hf_config(LLAMA)
    assert model.num_params == NUM_PARAMS
    assert (model.native.dtype, model.native.weights_bytes, model.native.quantization) == ("bfloat16", 2 * NUM_PARAMS, None)


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("torch.float16", 2), ("bfloat16", 2)])
def test_the_element_type_is_read_from_either_name(dtype: str, size: int) -> None:
    without = {key: value for key, value in LLAMA.items() if key != "torch_dtype"}
    model = llm_from_hf_config(without | {"dtype": dtype})
    assert model.native.dtype == dtype.removeprefix("torch.")
    assert model.native.weights_bytes == size * NUM_PARAMS


def test_an_element_type_without_known_width_leaves_the_size_open() -> None:
    model = llm_from_hf_config(LLAMA | {"torch_dtype": "float8_e4m3fn"})
    assert model.native.weights_bytes is None
    assert any("not known without" in note for note in model.notes)


@pytest.mark.parametrize(
    ("quantization", "description", "bytes_per_param"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8 e4m3, 128x128 block scales", 1 + 4 / 16384),
        ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8 (per tensor)", 1),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "awq (int4, group 128)", (4 + 20 / 128) / 8),
        ({"quant_method": "gptq", "bits": 8, "group_size": 32}, "gptq (int8, group 32)", (8 + 24 / 32) / 8),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4 (modelopt)", 4.5 / 8),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": {"num_bits": 8, "type": "float", "strategy": "tensor"}}},
            },
            "fp8 (per tensor, compressed-tensors)",
            1,
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_quantised_matrices_shrink_and_the_rest_stays(quantization: dict[str, Any], description: str, bytes_per_param: float) -> None:
    assert quantised(**quantization) == (description, int(MATRICES * bytes_per_param + (NUM_PARAMS - MATRICES) * 2))


def test_an_estimate_is_said_to_be_one() -> None:
    model = llm_from_hf_config(LLAMA | {"quantization_config": {"quant_method": "fp8"}})
    assert any("is an estimate" in note for note in model.notes)
    assert str(model.native.weights_basis).startswith("arithmetic")


@pytest.mark.parametrize("quantization", [{"quant_method": "vptq"}, {"quant_method": "awq"}])
def test_a_method_without_known_width_leaves_the_size_open(quantization: dict[str, Any]) -> None:
    description, size = quantised(**quantization)
    assert description == quantization["quant_method"]
    assert size is None


@pytest.mark.parametrize(
    ("quantization", "field"), [({}, "/quantization_config/quant_method"), ([1], "/quantization_config"), ("fp8", "/quantization_config")]
)
def test_a_quantisation_that_does_not_say_how_is_refused(quantization: object, field: str) -> None:
    with pytest.raises(PlannerError) as refused:
        llm_from_hf_config(LLAMA | {"quantization_config": quantization})
    assert refused.value.field == f"/hf_config{field}"


def test_the_index_gives_the_exact_size() -> None:
    index = {"metadata": {"total_size": 9_000_000_000}, "weight_map": {"a": "model-00001-of-00002.safetensors"}}
    model = llm_from_hf_config(LLAMA | {"quantization_config": {"quant_method": "fp8"}}, safetensors_index=index)
    assert model.native.weights_bytes == 9_000_000_000
    assert "total_size" in str(model.native.weights_basis)
    assert not any("estimate" in note for note in model.notes)


def test_an_equal_parameter_count_needs_no_words() -> None:
    metadata = {"total_size": 2 * NUM_PARAMS, "total_parameters": NUM_PARAMS}
    assert llm_from_hf_config(LLAMA, safetensors_index={"metadata": metadata}).notes == ()


def test_another_parameter_count_is_stated() -> None:
    metadata = {"total_size": 2 * NUM_PARAMS, "total_parameters": NUM_PARAMS + 2048}
    (note,) = llm_from_hf_config(LLAMA, safetensors_index={"metadata": metadata}).notes
    assert f"{NUM_PARAMS + 2048} parameters, 2048 more" in note


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({"total_size": 1000}, "total_size"),
        ({"total_size": 100 * NUM_PARAMS}, "total_size"),
        ({"total_size": -1}, "total_size"),
        ({"total_size": "16 GB"}, "total_size"),
        ({"total_size": 1.6e10}, "total_size"),
        ({"total_size": True}, "total_size"),
        ({"total_size": 2 * NUM_PARAMS, "total_parameters": 10 * NUM_PARAMS}, "total_parameters"),
        ({"total_size": 2 * NUM_PARAMS, "total_parameters": 1000}, "total_parameters"),
    ],
)
def test_an_index_of_another_model_is_refused(metadata: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        llm_from_hf_config(LLAMA, safetensors_index={"metadata": metadata}, index_pointer="/safetensors_index")
    assert refused.value.field == f"/safetensors_index/metadata/{field}"


@pytest.mark.parametrize(
    ("index", "field"),
    [({}, "/metadata"), ({"metadata": {}}, "/metadata/total_size"), ({"metadata": {"format": "pt"}}, "/metadata/total_size")],
)
def test_an_index_without_a_size_is_refused(index: dict[str, Any], field: str) -> None:
    with pytest.raises(UnsupportedConfig) as refused:
        llm_from_hf_config(LLAMA, safetensors_index=index)
    assert refused.value.field == f"/safetensors_index{field}"


HERE = Path(__file__).parent / "aiconfigurator_core"
RECIPES = [
    ("nvidia--Gemma-4-26B-A4B-NVFP4", "nvfp4 (modelopt); 16 bits: attention, dense", "fp8"),
    ("nvidia--Kimi-K2.6-NVFP4", "nvfp4 (modelopt); 16 bits: attention, shared", "fp8"),
    ("nvidia--Qwen3.6-27B-NVFP4", "mixed (modelopt); fp8: attention, recurrent; w4a16_nvfp4: dense", "fp8"),
    ("nvidia--Qwen3.6-35B-A3B-NVFP4", "mixed (modelopt); fp8: attention, recurrent; w4a16_nvfp4: shared, experts", None),
    ("zai-org--GLM-5-FP8", "fp8 e4m3, 128x128 block scales", None),
]


@pytest.mark.parametrize(("file", "words", "kv_cache"), [pytest.param(*each, id=each[0]) for each in RECIPES])
def test_a_published_recipe_says_what_stays_in_16_bits_and_which_cache_it_asks_for(file: str, words: str, kv_cache: str | None) -> None:
    native = llm_from_hf_config(json.loads((HERE / f"{file}_config.json").read_text())).native
    assert (native.quantization, native.kv_cache) == (words, kv_cache)


@pytest.mark.parametrize(
    ("quantization", "words"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bnb-4bit (nf4)"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8 (bitsandbytes)"),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4"}}}, "mxfp4 (quark)"),
        ({"quant_method": "fp8", "modules_to_not_convert": ["lm_head", "re:.*self_attn.*"]}, "fp8 (per tensor); 16 bits: attention"),
        ({"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0.self_attn"]}, "fp8 (per tensor)"),
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"-:.*attn.*": {}}},
            "gptq (int4, group 128); 16 bits: attention",
        ),
    ],
    ids=["nf4", "bitsandbytes 8", "quark", "all attention", "one layer only", "dynamic"],
)
def test_recipes_of_other_tools(quantization: dict[str, Any], words: str) -> None:
    assert quantised(**quantization)[0] == words
