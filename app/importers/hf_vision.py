"""Vision and audio towers beside a language model: how many parameters they have.

Layer definitions: https://github.com/huggingface/transformers/tree/main/src/transformers/models (one folder per model type).
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from app.importers.config_fields import ConfigFields
from app.importers.hf_tower_parts import Tower, linear, siglip_encoder, tower_block
from app.importers.hf_vision_encoders import ENCODERS


class TowerParams(NamedTuple):
    """Parameters of the towers, and what could not be counted."""

    num_params: int | None
    notes: tuple[str, ...]


def _qwen(given: Tower) -> int:
    hidden, merged = given.own.count("hidden_size"), given.own.count("hidden_size") * given.own.count("spatial_merge_size") ** 2
    patch = given.own.count("in_channels", default=3) * given.own.count("temporal_patch_size") * given.own.count("patch_size") ** 2
    out = given.own.count("out_hidden_size")
    blocks = given.own.count("depth") * tower_block(hidden, given.own.count("intermediate_size"), norms=4 * hidden)
    projection = linear(merged, merged) + linear(merged, out)
    mergers = 2 * hidden + projection + len(given.own.counts("deepstack_visual_indexes") or ()) * (2 * merged + projection)
    return linear(patch, hidden) + given.own.count("num_position_embeddings") * hidden + blocks + mergers


def _siglip(given: Tower) -> int:
    hidden = given.own.count("hidden_size")
    return siglip_encoder(given.own) + hidden * given.text_width + hidden


def _pixtral(given: Tower) -> int:
    hidden, patch = given.own.count("hidden_size"), given.own.count("patch_size")
    merge = given.root.count("spatial_merge_size", default=2)
    block = tower_block(hidden, given.own.count("intermediate_size"), num_matrices=3, bias=False, norms=2 * hidden)
    embeddings = given.own.count("num_channels", default=3) * patch**2 * hidden + hidden
    bias = given.root.flag("multimodal_projector_bias", default=False)
    projector = (
        hidden
        + hidden * merge**2 * hidden
        + linear(hidden, given.text_width, bias=bias)
        + linear(given.text_width, given.text_width, bias=bias)
    )
    return embeddings + given.own.count("num_hidden_layers") * block + projector


def _llama4(given: Tower) -> int:
    hidden, patch, inner = given.own.count("hidden_size"), given.own.count("patch_size"), given.own.count("intermediate_size")
    positions = (given.own.count("image_size") // patch) ** 2 + 1
    blocks = given.own.count("num_hidden_layers") * tower_block(hidden, inner, norms=4 * hidden)
    embeddings = hidden * (1 + positions + given.own.count("num_channels", default=3) * patch**2) + 4 * hidden
    wide, out = given.own.count("projector_input_dim"), given.own.count("projector_output_dim")
    return embeddings + blocks + inner * wide + out * out + given.own.count("vision_output_dim") * given.text_width


def _minimax_m3(given: Tower) -> int:
    hidden, wide = given.own.count("hidden_size"), given.root.count("projector_hidden_size")
    merging = given.own.section("img_token_compression_config", refuse_unread=False) or given.own
    merge, frames = merging.count("spatial_merge_size"), merging.count("temporal_patch_size")
    blocks = given.own.count("num_hidden_layers") * tower_block(hidden, given.own.count("intermediate_size"), norms=4 * hidden)
    patches = given.own.count("num_channels", default=3) * frames * given.own.count("patch_size") ** 2 * hidden
    projector = (
        linear(hidden, wide) + linear(wide, given.text_width) + linear(given.text_width * merge**2, wide) + linear(wide, given.text_width)
    )
    return patches + 2 * hidden + blocks + projector


def _kimi_k25(given: Tower) -> int:
    hidden = given.own.count("vt_hidden_size", "hidden_size")
    kernel = given.own.counts("merge_kernel_size", minimum=1, maximum=64, lengths=(2,)) or (2, 2)
    merged = hidden * kernel[0] * kernel[1]
    layers = given.own.count("vt_num_hidden_layers", "num_hidden_layers")
    blocks = layers * tower_block(hidden, given.own.count("vt_intermediate_size", "intermediate_size"), norms=4 * hidden)
    grid = given.own.count("init_pos_emb_height", "pos_emb_height") * given.own.count("init_pos_emb_width", "pos_emb_width")
    embeddings = linear(3 * given.own.count("patch_size") ** 2, hidden) + grid * hidden
    return embeddings + blocks + 2 * hidden + 2 * hidden + linear(merged, merged) + linear(merged, given.text_width)


def _muse_glimmer(given: Tower) -> int:
    hidden = given.own.count("hidden_size")
    blocks = given.own.count("num_hidden_layers") * tower_block(hidden, given.own.count("intermediate_size"), norms=4 * hidden)
    patch = 3 * given.own.count("patch_temporal") * given.own.count("patch_size") ** 2
    embeddings = hidden * (patch + given.own.count("pos_emb_height") * given.own.count("pos_emb_width")) + 4 * hidden
    wide = given.root.count("projector_hidden_size")
    return embeddings + blocks + given.root.count("out_hidden_size") * wide + wide * wide + wide * given.text_width


def _glm5_next(given: Tower) -> int:
    hidden, out = given.own.count("hidden_size"), given.own.count("out_hidden_size")
    bias = given.own.flag("attention_bias", default=True)
    norms = 2 * hidden + 2 * (hidden // given.own.count("num_heads"))
    blocks = given.own.count("depth") * tower_block(hidden, given.own.count("intermediate_size"), num_matrices=3, bias=bias, norms=norms)
    patch = given.own.count("in_channels", default=3) * given.own.count("temporal_patch_size") * given.own.count("patch_size") ** 2
    downsample = linear(hidden * given.own.count("spatial_merge_size") ** 2, out)
    merger = out * out + 2 * out + 3 * out * given.own.count("projection_intermediate_size")
    return linear(patch, hidden) + blocks + hidden + downsample + merger


def _gemma4(given: Tower) -> int:
    hidden, heads, head_dim = given.own.count("hidden_size"), given.own.count("num_attention_heads"), given.own.count("head_dim")
    given.own.require("use_clipped_linears", False)
    kv_heads = given.own.count("num_key_value_heads", default=heads)
    attention = 2 * hidden * head_dim * (heads + kv_heads) + 2 * head_dim
    block = attention + 3 * hidden * given.own.count("intermediate_size") + 4 * hidden
    patch = 3 * given.own.count("patch_size") ** 2
    embeddings = hidden * (2 * given.own.count("position_embedding_size") + patch)
    return embeddings + given.own.count("num_hidden_layers") * block + hidden * given.text_width


def _gemma4_unified(given: Tower) -> int:
    """No tower: patches and audio frames are projected into the language model."""
    width, patch = given.own.count("mm_embed_dim"), 3 * given.own.count("model_patch_size") ** 2
    positions = 2 * given.own.count("mm_posemb_size") * width
    vision = positions + 2 * patch + linear(patch, width) + 4 * width + width * given.text_width
    return vision + (given.audio.count("audio_embed_dim") * given.text_width if given.audio else 0)


_WITH_AUDIO = frozenset({"gemma4_unified"})
_TOWERS: Mapping[str, Callable[[Tower], int]] = {
    **ENCODERS,
    "qwen3_vl": _qwen,
    "qwen3_vl_moe": _qwen,
    "qwen3_5": _qwen,
    "qwen3_5_moe": _qwen,
    "gemma3": _siglip,
    "mistral3": _pixtral,
    "llama4": _llama4,
    "minimax_m3_vl": _minimax_m3,
    "kimi_k25": _kimi_k25,
    "muse_glimmer": _muse_glimmer,
    "glm5_next": _glm5_next,
    "gemma4": _gemma4,
    "gemma4_unified": _gemma4_unified,
    "kimi_vl": _kimi_k25,
    "qwen3_omni_moe_thinker": _qwen,
}


def count_tower_params(root: ConfigFields, text: ConfigFields, model_type: str) -> TowerParams:
    """Parameters of tower and projector [parameters]; None when there is none, or when its layout is not known (a note says so)."""
    tower, audio = (root.section(name, refuse_unread=False) for name in ("vision_config", "audio_config"))
    if tower is None and audio is None:
        return TowerParams(None, ())
    if audio is not None and model_type not in _WITH_AUDIO:
        return TowerParams(None, ("The vision and audio towers are not counted in num_params: their layout is not known here.",))
    count = _TOWERS.get(model_type)
    if count is None or tower is None:
        return TowerParams(None, (f"The vision tower of {model_type} is not counted in num_params: its layout is not known here.",))
    return TowerParams(count(Tower(tower, root, audio, text.count("hidden_size"))), ())
