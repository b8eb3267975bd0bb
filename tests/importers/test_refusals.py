"""What the import refuses, and that each refusal names the field."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import InvalidInput, PlannerError, UnsupportedConfig
from app.importers.hf_config import llm_from_hf_config

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
MOE: dict[str, Any] = LLAMA | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
REQUIRED = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
ABSURD = [0, -1, 1.5, 4096.0, 1e30, 10**30, True, False, "4096", [], {}]


@pytest.mark.parametrize("name", REQUIRED)
def test_a_missing_field_is_named(name: str) -> None:
    with pytest.raises(UnsupportedConfig) as refused:
        llm_from_hf_config({key: value for key, value in LLAMA.items() if key != name})
    assert refused.value.field == f"/hf_config/{name}"
    assert "missing" in refused.value.detail


@pytest.mark.parametrize("value", ABSURD, ids=repr)
@pytest.mark.parametrize("name", [*REQUIRED, "num_key_value_heads", "head_dim", "max_position_embeddings"])
def test_an_absurd_size_is_named_with_what_was_expected(name: str, value: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        llm_from_hf_config(LLAMA | {name: value})
    assert refused.value.field == f"/hf_config/{name}"
    assert refused.value.expected is not None
    assert "an integer" in refused.value.expected


def test_too_many_layers_are_refused_before_they_are_built() -> None:
    with pytest.raises(InvalidInput) as refused:
        llm_from_hf_config(LLAMA | {"num_hidden_layers": 10**9})
    assert refused.value.field == "/hf_config/num_hidden_layers"


def test_too_many_parameters_are_refused() -> None:
    with pytest.raises(InvalidInput, match="parameters"):
        llm_from_hf_config(LLAMA | {"hidden_size": 10**9, "vocab_size": 10**9, "head_dim": 64})


@pytest.mark.parametrize("value", [1, 0, "true", []], ids=repr)
def test_a_flag_is_true_or_false(value: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        llm_from_hf_config(LLAMA | {"attention_bias": value})
    assert (refused.value.field, refused.value.expected) == ("/hf_config/attention_bias", "true or false")


def test_heads_divide_the_hidden_size() -> None:
    with pytest.raises(InvalidInput, match="divisor of hidden_size 512") as refused:
        llm_from_hf_config(LLAMA | {"num_attention_heads": 7, "num_key_value_heads": 1})
    assert refused.value.field == "/hf_config/num_attention_heads"


def test_key_value_heads_divide_the_query_heads() -> None:
    with pytest.raises(InvalidInput) as refused:
        llm_from_hf_config(LLAMA | {"num_key_value_heads": 3})
    assert (refused.value.field, refused.value.value) == ("/hf_config/num_key_value_heads", 3)


def test_no_more_experts_are_chosen_than_there_are() -> None:
    with pytest.raises(InvalidInput) as refused:
        llm_from_hf_config(MOE | {"num_experts_per_tok": 9})
    assert refused.value.field == "/hf_config/num_experts_per_tok"


def test_two_spellings_that_contradict_each_other_are_refused() -> None:
    assert llm_from_hf_config(MOE | {"num_experts": 8}) == llm_from_hf_config(MOE)
    with pytest.raises(InvalidInput, match="the same as num_experts"):
        llm_from_hf_config(MOE | {"num_experts": 16})


def test_an_unknown_model_type_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedConfig) as refused:
        llm_from_hf_config(LLAMA | {"model_type": "hyena"})
    assert refused.value.field == "/hf_config/model_type"
    assert refused.value.expected is not None
    assert "llama, " in refused.value.expected


@pytest.mark.parametrize("model_type", [None, 3, ["llama"], True], ids=repr)
def test_the_model_type_is_required_and_a_string(model_type: object) -> None:
    with pytest.raises(PlannerError) as refused:
        llm_from_hf_config(LLAMA | {"model_type": model_type})
    assert refused.value.field == "/hf_config/model_type"


def test_unknown_fields_are_listed() -> None:
    with pytest.raises(UnsupportedConfig, match="layer_sharing, num_memory_slots") as refused:
        llm_from_hf_config(LLAMA | {"layer_sharing": 2, "num_memory_slots": 64, "unused": None})
    assert refused.value.field == "/hf_config/layer_sharing"


def test_a_field_of_another_family_is_not_ignored() -> None:
    """`use_qk_norm` is read for Cohere; nothing says that a Llama with it has no norms on queries and keys."""
    with pytest.raises(UnsupportedConfig, match="use_qk_norm"):
        llm_from_hf_config(LLAMA | {"use_qk_norm": True})


@pytest.mark.parametrize("name", ["add_cross_attention", "is_encoder_decoder", "tie_encoder_decoder"])
def test_fields_that_are_harmless_only_when_unused(name: str) -> None:
    assert llm_from_hf_config(LLAMA | {name: False, "pruned_heads": {}}) == llm_from_hf_config(LLAMA)
    with pytest.raises(UnsupportedConfig) as refused:
        llm_from_hf_config(LLAMA | {name: True})
    assert refused.value.field == f"/hf_config/{name}"


def test_unknown_fields_inside_objects_are_found() -> None:
    config = {
        "model_type": "dbrx",
        "d_model": 512,
        "n_heads": 8,
        "n_layers": 2,
        "vocab_size": 1000,
        "attn_config": {"kv_n_heads": 2, "sink_tokens": 4},
        "ffn_config": {"ffn_hidden_size": 512, "moe_num_experts": 4, "moe_top_k": 2},
    }
    with pytest.raises(UnsupportedConfig) as refused:
        llm_from_hf_config(config)
    assert refused.value.field == "/hf_config/attn_config/sink_tokens"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"layer_types": ["full_attention"] * 3}, "/hf_config/layer_types"),
        ({"layer_types": ["full_attention"] * 3 + ["mamba"]}, "/hf_config/layer_types/3"),
        ({"layer_types": ["full_attention"] * 3 + [7]}, "/hf_config/layer_types/3"),
        ({"layer_types": ["full_attention"] * 3 + [["x"]]}, "/hf_config/layer_types/3"),
        ({"layer_types": "full_attention"}, "/hf_config/layer_types"),
    ],
)
def test_layer_types_are_one_known_kind_per_layer(change: dict[str, Any], field: str) -> None:
    with pytest.raises(PlannerError) as refused:
        llm_from_hf_config(LLAMA | {"model_type": "qwen3", "head_dim": 64} | change)
    assert refused.value.field == field


def test_a_value_that_changes_the_architecture_is_refused() -> None:
    with pytest.raises(UnsupportedConfig) as refused:
        llm_from_hf_config(LLAMA | {"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
                                    "shared_expert_intermediate_size": 128})  # fmt: skip
    assert (refused.value.field, refused.value.expected) == ("/hf_config/shared_expert_intermediate_size", "0")


def test_a_nested_field_is_named_where_it_stands() -> None:
    text = {key: value for key, value in LLAMA.items() if key != "vocab_size"} | {"model_type": "ministral3"}
    with pytest.raises(UnsupportedConfig) as refused:
        llm_from_hf_config({"model_type": "mistral3", "text_config": text}, pointer="/model/hf_config")
    assert refused.value.field == "/model/hf_config/text_config/vocab_size"


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"model_type": "qwen3_vl"}, "/hf_config/text_config"),
        ({"model_type": "qwen3_vl", "text_config": []}, "/hf_config/text_config"),
        ({"model_type": "qwen3_vl", "text_config": {"model_type": "hyena"}}, "/hf_config/text_config/model_type"),
        ({"model_type": "llama", "text_config": LLAMA}, "/hf_config/model_type"),
        ({}, "/hf_config/model_type"),
    ],
)
def test_nesting_that_is_not_understood(config: dict[str, Any], field: str) -> None:
    with pytest.raises(PlannerError) as refused:
        llm_from_hf_config(config)
    assert refused.value.field == field


def test_a_field_beside_the_nested_model_is_not_ignored() -> None:
    with pytest.raises(UnsupportedConfig) as refused:
        llm_from_hf_config({"model_type": "mistral3", "text_config": LLAMA, "extra_tower_config": {"depth": 3}})
    assert refused.value.field == "/hf_config/extra_tower_config"


def test_pointers_are_escaped() -> None:
    with pytest.raises(UnsupportedConfig) as refused:
        llm_from_hf_config(LLAMA | {"a/b~c": 1})
    assert refused.value.field == "/hf_config/a~1b~0c"


CONFIGS = [json.loads(path.read_text()) for path in sorted((Path(__file__).parent / "aiconfigurator_core").glob("*_config.json"))]
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=5
)


@given(data=st.data())
def test_any_value_in_any_field_is_read_or_refused_in_words(data: st.DataObject) -> None:
    """Real files with one to three values replaced: a model, or a refusal that names a field of the file; nothing else."""
    config = json.loads(json.dumps(data.draw(st.sampled_from(CONFIGS))))
    places = [config, *(value for value in config.values() if isinstance(value, dict))]
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(places))
        place[data.draw(st.sampled_from(sorted(place)) if place else st.just("x"))] = data.draw(JSON)
    refusal: PlannerError | None = None
    try:
        model = llm_from_hf_config(config)
    except (UnsupportedConfig, InvalidInput) as refused:
        refusal = refused
    if refusal is None:
        assert 0 < model.num_active_params <= model.num_params
    else:
        assert refusal.detail
        assert refusal.field is not None
        assert refusal.field.startswith("/hf_config")
