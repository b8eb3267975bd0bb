"""Files of published models against the parameter counts of their repositories, and model types refused on purpose."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.domain.errors import UnsupportedConfig
from app.importers.hf_config import llm_from_hf_config
from app.importers.hf_nesting import REFUSED

PUBLISHED: list[dict[str, Any]] = [json.loads(line) for line in (Path(__file__).parent / "published_files.jsonl").read_text().splitlines()]
"""Fields of config.json and the count of the safetensors files, written down from memory of the repositories and not fetched from them:
what vouches for the fields is that they add up to the count, to the integer."""


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda each: each["hf_id"])
def test_language_model_and_tower_add_up_to_the_published_count(published: dict[str, Any]) -> None:
    model = llm_from_hf_config(published["config"])
    assert model.num_params == published["num_params"]
    assert bool(model.num_vision_params) is ("vision_config" in published["config"])


def test_what_answers_in_text_is_read_out_of_a_model_that_also_speaks() -> None:
    vl = PUBLISHED[1]["config"]
    text = {name: value for name, value in vl.items() if name not in ("vision_config", "model_type")} | {"model_type": "qwen2_5_omni_text"}
    thinker = {"model_type": "qwen2_5_omni_thinker", "text_config": text, "vision_config": vl["vision_config"], "audio_config": {}}
    model = llm_from_hf_config({"model_type": "qwen2_5_omni", "thinker_config": thinker, "talker_config": {"vocab_size": 8448}})
    assert model.layer_groups == llm_from_hf_config(vl).layer_groups
    assert any("audio" in note for note in model.notes)


@pytest.mark.parametrize("model_type", sorted(REFUSED))
def test_what_is_not_modelled_is_refused_with_the_reason(model_type: str) -> None:
    with pytest.raises(UnsupportedConfig, match="is not counted: ") as refused:
        llm_from_hf_config({"model_type": model_type})
    assert refused.value.field == "/hf_config/model_type"
