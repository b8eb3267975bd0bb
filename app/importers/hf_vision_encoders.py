"""Further vision towers and their projectors: Qwen2-VL, CLIP and SigLIP behind LLaVA, InternViT, GLM-V, Idefics.

Layer definitions: https://github.com/huggingface/transformers/tree/main/src/transformers/models (one folder per model type); for
InternVL's own files, https://github.com/vllm-project/vllm/blob/main/vllm/model_executor/models/intern_vit.py.
"""

from collections.abc import Callable, Mapping

from app.importers.config_fields import ConfigFields
from app.importers.hf_tower_parts import Tower, linear, siglip_encoder, tower_block


def _qwen2(given: Tower) -> int:
    """LayerNorms and a feed-forward part of two matrices; `hidden_size` is the width of the language model here."""
    own = given.own
    hidden, out = own.count("embed_dim", default=1280), own.count("hidden_size")
    _, ratio = own.find("mlp_ratio")
    inner = int(hidden * (ratio if isinstance(ratio, int | float) and not isinstance(ratio, bool) and 0 < ratio <= 64 else 4))
    blocks = own.count("depth", default=32) * tower_block(hidden, inner, norms=4 * hidden)
    return _qwen_patches(own) * hidden + blocks + _qwen_merger(own, hidden, out, norm=2 * hidden)


def _qwen2_5(given: Tower) -> int:
    """RMS norms and a gated feed-forward part with biases."""
    own = given.own
    hidden, out = own.count("hidden_size", default=1280), own.count("out_hidden_size", default=given.text_width)
    block = tower_block(hidden, own.count("intermediate_size", default=3420), num_matrices=3, norms=2 * hidden)
    return _qwen_patches(own) * hidden + own.count("depth", default=32) * block + _qwen_merger(own, hidden, out, norm=hidden)


def _qwen_patches(own: ConfigFields) -> int:
    """Values of one patch over two frames."""
    channels = own.count("in_channels", "in_chans", default=3)
    return channels * own.count("temporal_patch_size", default=2) * own.count("patch_size", default=14) ** 2


def _qwen_merger(own: ConfigFields, hidden: int, out: int, *, norm: int) -> int:
    merged = hidden * own.count("spatial_merge_size", default=2) ** 2
    return norm + linear(merged, merged) + linear(merged, out)


def _clip(own: ConfigFields) -> int:
    """Class token, patches without bias, positions, norms before and after."""
    hidden, patch = own.count("hidden_size"), own.count("patch_size")
    positions = (own.count("image_size") // patch) ** 2 + 1
    blocks = own.count("num_hidden_layers") * tower_block(hidden, own.count("intermediate_size"), norms=4 * hidden)
    return hidden * (1 + own.count("num_channels", default=3) * patch**2 + positions) + 4 * hidden + blocks


def _pixtral_encoder(own: ConfigFields) -> int:
    hidden = own.count("hidden_size")
    block = tower_block(hidden, own.count("intermediate_size"), num_matrices=3, bias=False, norms=2 * hidden)
    patches = own.count("num_channels", default=3) * own.count("patch_size") ** 2 * hidden
    return patches + hidden + own.count("num_hidden_layers") * block


_ENCODERS: Mapping[str, Callable[[ConfigFields], int]] = {
    "clip_vision_model": _clip,
    "siglip_vision_model": siglip_encoder,
    "pixtral": _pixtral_encoder,
}


def _encoder(given: Tower) -> int:
    """The encoder that the tower's own `model_type` names."""
    kind = given.own.text("model_type") or "clip_vision_model"
    if kind not in _ENCODERS:
        raise given.own.unsupported("model_type", " or ".join(_ENCODERS))
    return _ENCODERS[kind](given.own)


def _two_layers(given: Tower) -> int:
    """LLaVA's projector: two linear layers with biases."""
    bias = given.root.flag("multimodal_projector_bias", default=True)
    hidden = given.own.count("hidden_size")
    return linear(hidden, given.text_width, bias=bias) + linear(given.text_width, given.text_width, bias=bias)


def _llava(given: Tower) -> int:
    return _encoder(given) + _two_layers(given)


def _llava_with_newline(given: Tower) -> int:
    """A learned vector ends each row of image tiles."""
    return _llava(given) + given.text_width


def _vipllava(given: Tower) -> int:
    layers = given.root.counts("vision_feature_layers", minimum=-100) or (-2, -5, -8, -11, 6)
    wide = len(layers) * given.own.count("hidden_size")
    return _encoder(given) + 2 * wide + linear(wide, given.text_width) + linear(given.text_width, given.text_width)


def _paligemma(given: Tower) -> int:
    return siglip_encoder(given.own) + linear(given.own.count("hidden_size"), given.own.count("projection_dim"))


def _aya(given: Tower) -> int:
    """SigLIP, a norm over the joined patches, and a gated projector."""
    wide = given.own.count("hidden_size") * given.root.count("downsample_factor", default=2) ** 2
    return 2 * wide + _gated_projector(given, wide)


def _cohere2(given: Tower) -> int:
    wide = given.own.count("hidden_size") * given.root.count("downsample_factor", default=2) ** 2
    return _gated_projector(given, wide)


def _gated_projector(given: Tower, wide: int) -> int:
    inner = given.root.count("alignment_intermediate_size", default=36864)
    return siglip_encoder(given.own) + linear(wide, inner) + linear(inner // 2, given.text_width)


def _idefics3(given: Tower) -> int:
    hidden = given.own.count("hidden_size")
    scale = given.root.count("scale_factor", default=2)
    return siglip_encoder(given.own) + hidden * scale**2 * given.text_width


def _intern(given: Tower) -> int:
    """InternViT: scales behind both parts of a block; patches are joined by four before the projector."""
    own = given.own
    hidden, patch, size = own.count("hidden_size"), _side(own, "patch_size"), _side(own, "image_size")
    bias = own.flag("qkv_bias", "attention_bias", default=False)
    normed = own.flag("qk_normalization", "use_qk_norm", default=False)
    norm = hidden if own.text("norm_type") == "rms_norm" else 2 * hidden
    attention = 3 * linear(hidden, hidden, bias=bias) + linear(hidden, hidden) + 2 * hidden * normed
    inner = own.count("intermediate_size")
    block = attention + linear(hidden, inner) + linear(inner, hidden) + 2 * norm + 2 * hidden
    embeddings = hidden + linear(own.count("num_channels", default=3) * patch**2, hidden) + ((size // patch) ** 2 + 1) * hidden
    joined = 4 * hidden
    projector = 2 * joined + linear(joined, given.text_width) + linear(given.text_width, given.text_width)
    return embeddings + own.count("num_hidden_layers") * block + projector


def _side(own: ConfigFields, name: str) -> int:
    """A length that is stated once or for both sides of a square."""
    _, value = own.find(name)
    if not isinstance(value, list | tuple):
        return own.count(name)
    sides = own.counts(name, minimum=1, lengths=(2,)) or ()
    if sides[0] != sides[1]:
        raise own.unsupported(name, "two equal sides")
    return sides[0]


def _glm4v(given: Tower) -> int:
    """Gated blocks as wide as the language model, positions of one image, and a gated merger."""
    own = given.own
    hidden, out, merge = own.count("hidden_size"), own.count("out_hidden_size"), own.count("spatial_merge_size", default=2)
    attention = 3 * linear(hidden, hidden, bias=own.flag("attention_bias", default=False)) + hidden * hidden
    block = attention + 3 * hidden * out + 2 * hidden
    positions = (own.count("image_size", default=336) // own.count("patch_size", default=14)) ** 2
    inner = own.count("intermediate_size")
    merger = out * out + 2 * out + 3 * out * inner
    embeddings = linear(_qwen_patches(own), hidden) + positions * hidden
    return embeddings + own.count("depth") * block + 2 * hidden + linear(hidden * merge**2, out) + merger


ENCODERS: Mapping[str, Callable[[Tower], int]] = {
    "qwen2_vl": _qwen2,
    "qwen2_5_vl": _qwen2_5,
    "qwen2_5_omni_thinker": _qwen2_5,
    "llava": _llava,
    "llava_next": _llava_with_newline,
    "llava_onevision": _llava_with_newline,
    "vipllava": _vipllava,
    "paligemma": _paligemma,
    "aya_vision": _aya,
    "cohere2_vision": _cohere2,
    "idefics3": _idefics3,
    "smolvlm": _idefics3,
    "internvl": _intern,
    "internvl_chat": _intern,
    "glm4v": _glm4v,
    "glm4v_moe": _glm4v,
}
