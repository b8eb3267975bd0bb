"""A Hugging Face config.json -> a model as layer groups, with nothing guessed: what is not understood is refused by name."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import ValidationError

from app.domain.errors import InvalidInput, UnsupportedConfig
from app.domain.llm import Llm, most_attention_heads
from app.importers import hf_classic, hf_delta, hf_dense, hf_gemma, hf_latent, hf_moe, hf_moe_windows, hf_state_space
from app.importers.architecture import Architecture, FamilyReader, grouped
from app.importers.config_fields import ConfigFields, shown
from app.importers.hf_attention import POSITIONS
from app.importers.hf_native import Native, read_native
from app.importers.hf_vision import TowerParams, count_tower_params
from app.importers.safetensors_index import CheckpointSize, read_index
from app.importers.slugs import slug_of

FAMILIES: Mapping[str, FamilyReader] = {
    name: reader
    for module in (hf_dense, hf_classic, hf_gemma, hf_moe, hf_moe_windows, hf_latent, hf_delta, hf_state_space)
    for name, reader in module.FAMILIES.items()
}
"""How each `model_type` is read."""

_TEXT_TYPE_OF = {
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "gemma4_unified": "gemma4_unified_text",
    "glm5_next": "glm5_next_text",
    "kimi_k25": "kimi_k2",
    "kimi_k3": "kimi_linear",
    "llama4": "llama4_text",
    "minimax_m3_vl": "minimax_m3_vl_text",
    "mistral3": "mistral",
    "muse_glimmer": "muse_glimmer_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "step3p7": "step3p5",
}
"""Model types that nest the language model in `text_config`, and its type where the nested object does not say."""

_OF_THE_WHOLE = (
    "text_config",
    "vision_config",
    "audio_config",
    "quantization_config",
    "compression_config",
    "expert_dtype",
    "tie_word_embeddings",
)
_AROUND_THE_TOWER = (
    "img_token_compression_config",
    "image_grid_pinpoints",
    "multimodal_projector_bias",
    "num_reward_heads",
    "process_image_mode",
    "projector_bias",
    "projector_hidden_act",
    "projector_hidden_size",
    "out_hidden_size",
    "spatial_merge_size",
    "understand_projector_stride",
    "image_token_len",
    "patch_token_len",
    "vision_feature_layer",
    "vision_feature_select_strategy",
)
_MAX_PARAMS = 10**16


class _Parts(NamedTuple):
    """The file as a whole, and the part that describes the language model."""

    root: ConfigFields
    text: ConfigFields
    family: FamilyReader
    model_type: str


def llm_from_hf_config(
    config: Mapping[str, object],
    *,
    slug: str | None = None,
    hf_id: str | None = None,
    safetensors_index: Mapping[str, object] | None = None,
    pointer: str = "/hf_config",
    index_pointer: str = "/safetensors_index",
) -> Llm:
    """The model that a config.json describes; `safetensors_index` adds the size of the checkpoint.

    num_params is arithmetic over the layer groups, embeddings, head and (where it is understood) vision tower [parameters];
    weights_bytes is `metadata.total_size` of the index [bytes] where it is given. `pointer` and `index_pointer` say where the two
    objects stand in the request. Raises UnsupportedConfig for an unknown model type, a missing field, a field or value that is not
    understood, and InvalidInput for a value that cannot be right; each names the field. Valid for the model types in FAMILIES, as
    their public implementations read the file (https://github.com/huggingface/transformers/tree/main/src/transformers/models).
    """
    parts = _parts(config, pointer)
    architecture = parts.family.read(parts.text)
    towers = count_tower_params(parts.root, parts.text, parts.model_type)
    tied = _tied(parts, architecture)
    checkpoint = read_index(safetensors_index, index_pointer) if safetensors_index is not None else None
    native = read_native(parts.root, parts.text)
    positions = [size for name in POSITIONS if (size := parts.text.optional_count(name)) is not None]
    _refuse_unread(parts)
    notes = [*architecture.notes, *towers.notes]
    notes += [f"{name} is not in the file: {value}, as the configuration class has it." for name, value in parts.text.defaulted.items()]
    try:
        sizes = Llm(
            slug=slug or slug_of(hf_id or parts.model_type),
            hf_id=hf_id,
            num_params=1,
            num_active_params=1,
            num_mtp_params=architecture.mtp.num_params(architecture.hidden_size, architecture.vocab_size) if architecture.mtp else None,
            num_mtp_layers=architecture.mtp.num_layers if architecture.mtp else None,
            hidden_size=architecture.hidden_size,
            vocab_size=architecture.vocab_size,
            num_attention_heads=most_attention_heads(architecture.layers),
            max_model_len_tokens=min(positions, default=None),
            tie_word_embeddings=tied,
            layer_groups=grouped(architecture.layers),
            num_final_norm_params=architecture.num_final_norm_params,
            num_position_embeddings=architecture.num_position_embeddings,
            lm_head_bias=architecture.lm_head_bias,
            extra_weights=architecture.extra_weights,
            model_type=parts.model_type,
        )
        return _weighed(sizes, towers, native, checkpoint, notes, pointer, index_pointer)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidInput(f"The configuration makes no model: {where}: {first['msg']}.", field=pointer) from error


def _parts(config: Mapping[str, object], pointer: str) -> _Parts:
    root = ConfigFields(config, pointer)
    model_type = root.text("model_type")
    if model_type is None:
        raise root.missing("model_type")
    nested = root.section("text_config")
    if nested is None:
        family = FAMILIES.get(model_type)
        if family is None:
            if model_type in _TEXT_TYPE_OF:
                raise root.missing("text_config")
            raise _unknown_type(root, model_type)
        text = ConfigFields(config, pointer, defaults=family.defaults)
        return _Parts(text, text, family, model_type)
    if model_type not in _TEXT_TYPE_OF:
        raise _unknown_type(root, model_type)
    text_type = nested.text("model_type") or _TEXT_TYPE_OF[model_type]
    family = FAMILIES.get(text_type)
    if family is None:
        raise _unknown_type(nested, text_type)
    nested.defaults = family.defaults
    return _Parts(root, nested, family, model_type)


def _unknown_type(fields: ConfigFields, model_type: str) -> UnsupportedConfig:
    known = ", ".join(sorted({*FAMILIES, *_TEXT_TYPE_OF}))
    detail = f"model_type {shown(model_type)!r} is not known."
    return UnsupportedConfig(detail, field=fields.at("model_type"), value=shown(model_type), expected=f"one of {known}")


def _tied(parts: _Parts, architecture: Architecture) -> bool:
    """The whole file's word before the language model's, then what the configuration class takes."""
    nested = parts.text.flag("tie_word_embeddings", default=architecture.tied_by_default)
    return parts.root.flag("tie_word_embeddings", default=nested)


def _refuse_unread(parts: _Parts) -> None:
    """Refuse the file when it has fields that nobody read and that are not known to say nothing about size."""
    parts.text.skip(*_OF_THE_WHOLE)
    parts.root.skip(*_OF_THE_WHOLE)
    if parts.root is not parts.text:
        parts.root.skip(*_AROUND_THE_TOWER, *POSITIONS, "hidden_size", "vocab_size", "sliding_window")
    unread = list(dict.fromkeys((*parts.text.unread(), *parts.root.unread())))
    if unread:
        names = ", ".join(pointer.rpartition("/")[2] for pointer in unread[:20])
        more = f" and {len(unread) - 20} more" if len(unread) > 20 else ""
        raise UnsupportedConfig(
            f"The configuration has fields that are not understood for model_type {parts.model_type}: {names}{more}.",
            field=unread[0],
            value=names,
            expected="only fields whose effect on size is known; drop a field that has none",
        )


def _weighed(
    sizes: Llm,
    towers: TowerParams,
    native: Native,
    checkpoint: CheckpointSize | None,
    notes: Sequence[str],
    pointer: str,
    index_pointer: str,
) -> Llm:
    """The model with its parameter counts and the size of its checkpoint."""
    in_layers = sizes.num_language_params()
    assert in_layers is not None  # noqa: S101 - every importer reads the sizes
    num_params = in_layers + (towers.num_params or 0)
    if num_params > _MAX_PARAMS:
        detail = f"The configuration adds up to {num_params} parameters."
        raise InvalidInput(detail, field=pointer, expected=f"at most {_MAX_PARAMS} parameters")
    counted = Llm.model_validate(
        dict(sizes)
        | {
            "num_params": num_params,
            "num_active_params": sizes.num_language_params(active=True),
            "num_vision_params": towers.num_params,
            "sources": ("config.json", "model.safetensors.index.json") if checkpoint else ("config.json",),
        }
    )
    all_notes = list(notes)
    if checkpoint is not None:
        checkpoint.refuse_absurd(num_params, sizes.num_mtp_params or 0, index_pointer)
        all_notes += checkpoint.notes(num_params, sizes.num_mtp_params or 0)
    weights = native.weights(counted, checkpoint.total_size_bytes if checkpoint else None)
    return counted.model_copy(update={"native": weights, "notes": (*all_notes, *native.notes(weights))})
