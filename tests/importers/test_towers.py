"""Parameters of vision towers and projectors against those of the catalog; the numbers are those of the published configurations."""

from typing import Any

import pytest

from app.catalog.loader import load_bundled
from app.domain.errors import UnsupportedConfig
from app.importers.hf_config import llm_from_hf_config

BUNDLED = load_bundled().models
PIXTRAL = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_channels": 3, "patch_size": 14, "image_size": 1540}
SIGLIP = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "image_size": 896,
    "patch_size": 14,
    "vision_use_head": False,
}
LLAMA4 = {
    "hidden_size": 1408,
    "intermediate_size": 5632,
    "num_hidden_layers": 34,
    "image_size": 336,
    "patch_size": 14,
    "projector_input_dim": 4096,
    "projector_output_dim": 4096,
    "vision_output_dim": 4096,
}
MINIMAX = {
    "hidden_size": 1280,
    "intermediate_size": 5120,
    "num_hidden_layers": 32,
    "patch_size": 14,
    "img_token_compression_config": {"spatial_merge_size": 2, "temporal_patch_size": 2},
}
MUSE = {
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 50,
    "patch_size": 14,
    "patch_temporal": 2,
    "pos_emb_height": 32,
    "pos_emb_width": 32,
}
GLM = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "depth": 24,
    "num_heads": 16,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
    "out_hidden_size": 1536,
    "projection_intermediate_size": 10240,
}
TOWERS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "mistral-small-3.1-24b": ("mistral3", PIXTRAL, {"spatial_merge_size": 2}),
    "ministral-3-3b": ("mistral3", PIXTRAL, {"spatial_merge_size": 2}),
    "gemma-3-4b": ("gemma3", SIGLIP, {}),
    "gemma-3-27b": ("gemma3", SIGLIP, {}),
    "llama-4-scout": ("llama4", LLAMA4, {}),
    "minimax-m3": ("minimax_m3_vl", MINIMAX, {"projector_hidden_size": 6144}),
    "muse-glimmer-30b": ("muse_glimmer", MUSE, {"projector_hidden_size": 4096, "out_hidden_size": 6144}),
    "glm-5.3-flash": ("glm5_next", GLM, {}),
}


def multimodal(model_type: str, hidden_size: int, **whole: Any) -> dict[str, Any]:
    """A small language model of the given width inside a multimodal file."""
    text = {
        "model_type": "llama",
        "hidden_size": hidden_size,
        "intermediate_size": 1024,
        "num_hidden_layers": 1,
        "num_attention_heads": 8,
        "head_dim": 64,
        "vocab_size": 1000,
    }
    return {"model_type": model_type, "text_config": text, **whole}


@pytest.mark.parametrize("slug", TOWERS)
def test_towers_have_the_parameters_of_the_catalog(slug: str) -> None:
    model_type, tower, around = TOWERS[slug]
    expected = BUNDLED[slug]
    assert expected.hidden_size is not None
    model = llm_from_hf_config(multimodal(model_type, expected.hidden_size, vision_config=tower, **around))
    assert model.num_vision_params == expected.num_vision_params
    assert model.num_language_params() == model.num_params - (expected.num_vision_params or 0)


def test_patches_and_audio_frames_without_a_tower_are_counted_as_projections() -> None:
    vision = {"mm_embed_dim": 3840, "mm_posemb_size": 1120, "model_patch_size": 48}
    model = llm_from_hf_config(multimodal("gemma4_unified", 3840, vision_config=vision, audio_config={"audio_embed_dim": 640}))
    # The catalog's figure is a difference of totals: it has one scale for each of the 48 layers more.
    assert model.num_vision_params == (BUNDLED["gemma-4-12b"].num_vision_params or 0) - 48


def test_a_field_that_a_known_tower_needs_is_named() -> None:
    tower = {key: value for key, value in SIGLIP.items() if key != "image_size"}
    with pytest.raises(UnsupportedConfig) as refused:
        llm_from_hf_config(multimodal("gemma3", 2560, vision_config=tower))
    assert refused.value.field == "/hf_config/vision_config/image_size"
