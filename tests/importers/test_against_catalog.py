"""Imported configurations against the bundled catalog: real files, and files that transformers writes for every model type.

`aiconfigurator_core/` holds verbatim config.json files of a published package (see its MANIFEST.json for version and licence).
`written_by_transformers.jsonl` holds what the named version of transformers writes from its configuration class with the given
arguments, and the number of parameters of the model that it builds from them. `published_fields.jsonl` holds the fields of published
files that say something about size, as the sources of the catalog's entries give them; of six models with a tower that the importer
does not read, and of MiMo, whose prediction layer it does not read either, it holds the language model; of two embedding models it
says that the head is shared, as their checkpoints have none.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from app.catalog.loader import load_bundled
from app.domain.llm import LayerGroup, Llm
from app.importers.hf_config import FAMILIES, llm_from_hf_config

HERE = Path(__file__).parent
BUNDLED = load_bundled().models
MANIFEST: dict[str, dict[str, Any]] = json.loads((HERE / "aiconfigurator_core" / "MANIFEST.json").read_text())["files"]
WRITTEN: dict[str, dict[str, Any]] = {
    record["slug"]: record for record in map(json.loads, (HERE / "written_by_transformers.jsonl").read_text().splitlines())
}
FIELDS: dict[str, dict[str, Any]] = {
    record["slug"]: record["config"] for record in map(json.loads, (HERE / "published_fields.jsonl").read_text().splitlines())
}
SIZES = (
    "hidden_size",
    "vocab_size",
    "tie_word_embeddings",
    "num_attention_heads",
    "num_final_norm_params",
    "num_position_embeddings",
    "lm_head_bias",
)


def layers(model: Llm) -> Counter[LayerGroup]:
    """How many layers of each shape the model has."""
    counted: Counter[LayerGroup] = Counter()
    for group in model.layer_groups or ():
        counted[group.model_copy(update={"num_layers": 1})] += group.num_layers
    return counted


def read(file: str) -> tuple[dict[str, Any], Llm]:
    config = json.loads((HERE / "aiconfigurator_core" / file).read_text())
    return config, llm_from_hf_config(config)


@pytest.mark.parametrize("file", MANIFEST)
def test_a_real_file_gives_the_layer_groups_of_the_catalog(file: str) -> None:
    _, model = read(file)
    assert layers(model) == layers(BUNDLED[MANIFEST[file]["slug"]])


@pytest.mark.parametrize("file", MANIFEST)
def test_a_real_file_gives_the_sizes_of_the_catalog(file: str) -> None:
    _, model = read(file)
    expected = BUNDLED[MANIFEST[file]["slug"]]
    differs = MANIFEST[file].get("differs", {})
    found = {name: getattr(model, name) for name in (*SIZES, "num_mtp_layers", "num_mtp_params", "max_model_len_tokens")}
    wanted = {name: getattr(expected, name) for name in found}
    assert {name for name in found if found[name] != wanted[name]} == set(differs)


@pytest.mark.parametrize("file", MANIFEST)
def test_a_real_file_gives_the_parameters_of_the_catalog(file: str) -> None:
    config, model = read(file)
    expected = BUNDLED[MANIFEST[file]["slug"]]
    if "vocab_size" in MANIFEST[file].get("differs", {}):
        assert model.num_params - expected.num_params == 2 * 6144 * (32000 - 32768)
        return
    assert model.num_params - (model.num_vision_params or 0) == expected.num_params - (expected.num_vision_params or 0)
    assert model.num_active_params == expected.num_active_params
    if model.num_vision_params is not None:
        assert model.num_vision_params == expected.num_vision_params
    elif "vision_config" in config:
        assert any("not counted" in note for note in model.notes)


@pytest.mark.parametrize("file", [file for file in MANIFEST if "NVFP4" not in file and "-FP8" not in file])
def test_a_real_file_gives_the_size_of_the_checkpoint_in_the_catalog(file: str) -> None:
    _, model = read(file)
    expected = BUNDLED[MANIFEST[file]["slug"]]
    assert model.native.weights_bytes is not None
    assert expected.native.weights_bytes is not None
    towers = 2 * ((expected.num_vision_params or 0) - (model.num_vision_params or 0))
    assert model.native.weights_bytes + towers == pytest.approx(expected.native.weights_bytes, rel=2e-4)


@pytest.mark.parametrize("slug", WRITTEN)
def test_what_transformers_writes_gives_the_layer_groups_of_the_catalog(slug: str) -> None:
    model = llm_from_hf_config(WRITTEN[slug]["config"])
    expected = BUNDLED[slug]
    assert layers(model) == layers(expected)
    assert {name: getattr(model, name) for name in SIZES} == {name: getattr(expected, name) for name in SIZES}
    assert model.num_params == expected.num_params - (expected.num_vision_params or 0)
    assert sum(extra.num_params for extra in model.extra_weights) == sum(extra.num_params for extra in expected.extra_weights)


@pytest.mark.parametrize("slug", [slug for slug, record in WRITTEN.items() if record["num_parameters"] is not None])
def test_the_arithmetic_counts_what_transformers_builds(slug: str) -> None:
    built, biases = WRITTEN[slug]["num_parameters"], WRITTEN[slug]["num_router_biases"]
    # Router biases are buffers in some implementations and parameters in others; checkpoints hold them either way.
    assert llm_from_hf_config(WRITTEN[slug]["config"]).num_params in (built, built + biases)


@pytest.mark.parametrize("slug", FIELDS)
def test_published_fields_give_the_model_of_the_catalog(slug: str) -> None:
    model, expected = llm_from_hf_config(FIELDS[slug]), BUNDLED[slug]
    assert layers(model) == layers(expected)
    compared = (*SIZES, "max_model_len_tokens", "num_active_params", "extra_weights")
    assert {name: getattr(model, name) for name in compared} == {name: getattr(expected, name) for name in compared}
    assert model.num_language_params() == expected.num_language_params()
    if model.num_vision_params is not None:
        assert model.num_vision_params == expected.num_vision_params


def test_every_model_with_known_layers_but_three_is_checked() -> None:
    """Of one of the three no config.json is published, of two none is in a package; `test_families.py` writes that one by hand."""
    known = {slug for slug, model in BUNDLED.items() if model.layer_groups}
    assert known - {entry["slug"] for entry in MANIFEST.values()} - set(WRITTEN) - set(FIELDS) == {
        "mistral-large-3-675b",
        "step-3.5-flash",
        "step-3.7-flash",
    }


def test_every_family_is_checked_here_or_in_test_families() -> None:
    configs = [json.loads((HERE / "aiconfigurator_core" / file).read_text()) for file in MANIFEST]
    configs += [record["config"] for record in WRITTEN.values()]
    for other in ("variants_built_by_transformers.jsonl", "published_files.jsonl"):
        configs += [json.loads(line)["config"] for line in (HERE / other).read_text().splitlines()]
    names = {config["model_type"] for config in configs}
    names |= {config["text_config"].get("model_type") for config in configs if "text_config" in config}
    second_names = {"deepseek_ref", "minimax_text_01", "minimax_m1", "hunyuan", "qwen3_omni_moe_text"}
    elsewhere = {"step3p5", "qwen2_5_omni_text"}
    assert set(FAMILIES) - names == second_names | elsewhere
