"""What single fields of a configuration do to the layers, beyond what the models of the catalog use."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.catalog.loader import load_bundled
from app.domain.attention import Attention
from app.domain.errors import InvalidInput
from app.domain.feed_forward import DenseFeedForward, MoeFeedForward
from app.domain.llm import Llm
from app.importers.hf_config import llm_from_hf_config

VARIANTS: list[dict[str, Any]] = [
    json.loads(line) for line in (Path(__file__).parent / "variants_built_by_transformers.jsonl").read_text().splitlines()
]
BUNDLED = load_bundled().models
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "vocab_size": 1000,
    "max_position_embeddings": 8192,
}


def windows(model: Llm) -> dict[int | None, int]:
    """Layers by the window of their attention."""
    found: dict[int | None, int] = {}
    for group in model.layer_groups or ():
        assert isinstance(group.mixer, Attention)
        found[group.mixer.window_tokens] = found.get(group.mixer.window_tokens, 0) + group.num_layers
    return found


def only_mixer(model: Llm) -> Attention:
    (group,) = model.layer_groups or ()
    assert isinstance(group.mixer, Attention)
    return group.mixer


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: f"{variant['model_type']}-{len(variant['arguments'])}")
def test_the_arithmetic_counts_what_transformers_builds(variant: dict[str, Any]) -> None:
    """Small models with biases, other norms, other steps: as many parameters as transformers 5.24.0 makes of the same file."""
    built, biases = variant["num_parameters"], variant["num_router_biases"]
    assert llm_from_hf_config(variant["config"]).num_params in (built, built + biases)


def test_key_value_heads_default_to_the_query_heads() -> None:
    assert only_mixer(llm_from_hf_config(LLAMA)).num_kv_heads == 8


def test_a_null_field_counts_as_left_out() -> None:
    assert llm_from_hf_config(LLAMA | {"num_key_value_heads": None, "head_dim": None}) == llm_from_hf_config(LLAMA)


def test_head_width_is_hidden_size_over_heads_unless_given() -> None:
    assert only_mixer(llm_from_hf_config(LLAMA)).key_head_dim == 64
    assert only_mixer(llm_from_hf_config(LLAMA | {"head_dim": 128})).key_head_dim == 128


def test_biases_are_counted() -> None:
    mixer = only_mixer(llm_from_hf_config(LLAMA | {"attention_bias": True}))
    assert (mixer.qkv_bias, mixer.output_bias) == (True, True)
    (group,) = llm_from_hf_config(LLAMA | {"mlp_bias": True}).layer_groups or ()
    assert group.feed_forward == (DenseFeedForward(intermediate_size=1024, bias=True),)


@pytest.mark.parametrize(("model_type", "tied"), [("llama", False), ("smollm3", True), ("gemma", True), ("qwen2", False), ("cohere", True)])
def test_tying_defaults_by_model_type(model_type: str, tied: bool) -> None:
    config = LLAMA | {"model_type": model_type, "head_dim": 64}
    assert llm_from_hf_config(config).tie_word_embeddings is tied
    assert llm_from_hf_config(config | {"tie_word_embeddings": not tied}).tie_word_embeddings is not tied


def test_the_whole_file_decides_on_tying_before_the_language_model() -> None:
    text = {**LLAMA, "model_type": "ministral3", "tie_word_embeddings": True}
    assert llm_from_hf_config({"model_type": "mistral3", "text_config": text}).tie_word_embeddings is True
    assert llm_from_hf_config({"model_type": "mistral3", "text_config": text, "tie_word_embeddings": False}).tie_word_embeddings is False


def test_a_window_left_out_is_that_of_the_configuration_class_and_said() -> None:
    model = llm_from_hf_config(LLAMA | {"model_type": "mistral"})
    assert windows(model) == {4096: 4}
    assert model.notes == ("sliding_window is not in the file: 4096, as the configuration class has it.", *model.notes[1:])


def test_a_null_window_is_full_attention() -> None:
    assert windows(llm_from_hf_config(LLAMA | {"model_type": "mistral", "sliding_window": None})) == {None: 4}


def test_a_window_as_long_as_the_context_is_full_attention() -> None:
    assert windows(llm_from_hf_config(LLAMA | {"model_type": "phi3", "sliding_window": 8192})) == {None: 4}
    assert windows(llm_from_hf_config(LLAMA | {"model_type": "phi3", "sliding_window": 8191})) == {8191: 4}


def test_qwen_windows_begin_at_max_window_layers_and_only_when_used() -> None:
    config = LLAMA | {"model_type": "qwen2", "sliding_window": 1024, "max_window_layers": 3}
    assert windows(llm_from_hf_config(config | {"use_sliding_window": False})) == {None: 4}
    assert windows(llm_from_hf_config(config | {"use_sliding_window": True})) == {None: 3, 1024: 1}


def test_layer_types_name_the_windowed_layers() -> None:
    types = ["sliding_attention", "full_attention", "full_attention", "full_attention"]
    model = llm_from_hf_config(LLAMA | {"model_type": "olmo3", "sliding_window": 256, "layer_types": types})
    assert windows(model) == {256: 1, None: 3}


@pytest.mark.parametrize(("model_type", "expected"), [("gemma2", {1024: 2, None: 2}), ("olmo3", {1024: 3, None: 1})])
def test_patterns_without_layer_types(model_type: str, expected: dict[int | None, int]) -> None:
    assert windows(llm_from_hf_config(LLAMA | {"model_type": model_type, "sliding_window": 1024})) == expected


def test_gemma_3_takes_what_its_files_leave_out_from_the_configuration_class() -> None:
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}
    model = llm_from_hf_config({"model_type": "gemma3", "text_config": text})
    expected = BUNDLED["gemma-3-4b"]
    assert model.layer_groups == expected.layer_groups
    assert model.num_language_params() == expected.num_params - (expected.num_vision_params or 0)
    assert {note.split(" ")[0] for note in model.notes if "configuration class" in note} == {
        "vocab_size",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "max_position_embeddings",
    }


def test_experts_by_step_and_by_exception() -> None:
    config = LLAMA | {
        "model_type": "qwen3_moe",
        "head_dim": 64,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 128,
        "decoder_sparse_step": 2,
        "mlp_only_layers": [1],
    }
    kinds = {part.kind: group.num_layers for group in llm_from_hf_config(config).layer_groups or () for part in group.feed_forward}
    assert kinds == {"dense": 3, "moe": 1}


def test_step_reads_the_heads_of_sliding_layers_and_one_table_per_prediction_layer() -> None:
    """Field names as in https://github.com/vllm-project/vllm/blob/main/vllm/transformers_utils/configs/step3p5.py."""
    kinds = ["full_attention", *["sliding_attention"] * 3] * 12
    text = {
        "model_type": "step3p5",
        "hidden_size": 4096,
        "intermediate_size": 11264,
        "num_hidden_layers": 45,
        "num_attention_heads": 64,
        "num_attention_groups": 8,
        "head_dim": 128,
        "vocab_size": 128896,
        "max_position_embeddings": 262144,
        "sliding_window": 512,
        "layer_types": kinds,
        "attention_other_setting": {
            "attention_type": "sliding_attention",
            "num_attention_heads": 96,
            "num_attention_groups": 8,
            "head_dim": 128,
            "true_head_dim": 128,
        },
        "use_head_wise_attn_gate": True,
        "moe_layers_enum": ",".join(str(index) for index in range(3, 45)),
        "moe_num_experts": 288,
        "moe_top_k": 8,
        "moe_intermediate_size": 1280,
        "share_expert_dim": 1280,
        "use_moe_router_bias": True,
        "num_nextn_predict_layers": 3,
    }
    model = llm_from_hf_config({"model_type": "step3p7", "text_config": text, "vision_config": {"width": 1536}})
    expected = BUNDLED["step-3.7-flash"]
    assert model.layer_groups == expected.layer_groups
    assert model.num_language_params() == expected.num_params - (expected.num_vision_params or 0)
    assert (model.num_mtp_layers, model.num_mtp_params) == (3, expected.num_mtp_params)
    assert any("vision tower of step3p7 is not counted" in note for note in model.notes)


def test_an_audio_tower_is_said_not_to_be_counted() -> None:
    model = llm_from_hf_config({"model_type": "mistral3", "text_config": LLAMA, "audio_config": {"hidden_size": 8}})
    assert model.num_vision_params is None
    assert model.num_params == llm_from_hf_config(LLAMA).num_params
    assert any("audio towers are not counted" in note for note in model.notes)


def test_the_context_is_the_smallest_length_that_the_file_names() -> None:
    assert llm_from_hf_config(LLAMA | {"model_max_length": 4096}).max_model_len_tokens == 4096


def test_names_come_from_the_repository_or_the_model_type() -> None:
    assert llm_from_hf_config(LLAMA, hf_id="Acme/Llama_7B (v2)").slug == "llama_7b-v2"
    assert llm_from_hf_config(LLAMA).slug == "llama"
    assert llm_from_hf_config(LLAMA, slug="own", hf_id="acme/x").slug == "own"


def test_fields_without_effect_on_size_change_nothing() -> None:
    harmless = {
        "rope_theta": 10000.0,
        "rope_scaling": {"type": "yarn", "factor": 8},
        "bos_token_id": 1,
        "audio_end_token_id": [1, 2],
        "hidden_act": "silu",
        "attention_dropout": 0.1,
        "initializer_range": 0.02,
        "use_cache": True,
        "architectures": ["LlamaForCausalLM"],
        "auto_map": {},
        "pretraining_tp": 1,
    }
    assert llm_from_hf_config(LLAMA | harmless) == llm_from_hf_config(LLAMA)


def test_shared_experts_and_their_widths() -> None:
    config = LLAMA | {
        "model_type": "glm4_moe",
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 128,
        "n_shared_experts": 2,
        "first_k_dense_replace": 1,
        "num_nextn_predict_layers": 1,
    }
    model = llm_from_hf_config(config)
    parts = [part for group in model.layer_groups or () for part in group.feed_forward if isinstance(part, MoeFeedForward)]
    assert [part.shared_intermediate_size for part in parts] == [256]
    last = (model.layer_groups or ())[-1]
    assert model.num_mtp_params == last.num_params(512) // last.num_layers + 2 * 512**2 + 3 * 512 + 2 * 1000 * 512


def test_exaone_lists_its_mixtures_layer_by_layer() -> None:
    config = LLAMA | {
        "model_type": "exaone_moe",
        "sliding_window": 128,
        "sliding_window_pattern": "LLLG",
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 128,
        "num_shared_experts": 1,
        "first_last_k_dense_replace": 1,
        "is_moe_layer": [False, True, True, False],
    }
    model = llm_from_hf_config(config)
    assert windows(model) == {128: 3, None: 1}
    assert sum(group.num_layers for group in model.layer_groups or () if group.feed_forward[0].kind == "dense") == 2
    agreeing = config | {"mlp_layer_types": ["dense", "sparse", "sparse", "dense"]}
    assert llm_from_hf_config(agreeing).layer_groups == model.layer_groups
    with pytest.raises(InvalidInput, match="the same layers as mlp_layer_types"):
        llm_from_hf_config(config | {"mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]})


def test_latent_layers_without_an_indexer_reuse_the_choice_of_the_one_before() -> None:
    config = json.loads((Path(__file__).parent / "aiconfigurator_core" / "zai-org--GLM-5_config.json").read_text())
    by_frequency = llm_from_hf_config(config | {"index_topk_freq": 4, "index_skip_topk_offset": 3})
    assert by_frequency.layer_groups == BUNDLED["glm-5.2"].layer_groups
    pattern = "".join("F" if max(index - 2, 0) % 4 == 0 else "S" for index in range(78))
    assert llm_from_hf_config(config | {"index_topk_pattern": pattern}).layer_groups == by_frequency.layer_groups
