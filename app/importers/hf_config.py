"""A Hugging Face config.json -> a model as layer groups, with nothing guessed: what is not understood is refused by name."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import ValidationError

from app.domain.errors import InvalidInput, UnsupportedConfig
from app.domain.llm import Llm, most_attention_heads
from app.domain.tensors import TensorClass
from app.importers import (
    hf_classic,
    hf_delta,
    hf_dense,
    hf_gemma,
    hf_latent,
    hf_llama_like,
    hf_moe,
    hf_moe_shared,
    hf_moe_windows,
    hf_state_space,
)
from app.importers.architecture import Architecture, FamilyReader, grouped
from app.importers.config_fields import ConfigFields, shown
from app.importers.hf_attention import POSITIONS
from app.importers.hf_native import Native, read_native
from app.importers.hf_nesting import AROUND_THE_TOWER, OF_THE_WHOLE, REFUSED, TEXT_DEFAULTS, TEXT_SECTIONS, TEXT_TYPE_OF, UNWRAPPED
from app.importers.hf_vision import TowerParams, count_tower_params
from app.importers.safetensors_index import CheckpointSize, read_index
from app.importers.slugs import slug_of

_MODULES = (
    hf_dense, hf_llama_like, hf_classic, hf_gemma, hf_moe, hf_moe_shared, hf_moe_windows, hf_latent, hf_delta, hf_state_space,
)  # fmt: skip
FAMILIES: Mapping[str, FamilyReader] = {name: reader for module in _MODULES for name, reader in module.FAMILIES.items()}
"""How each `model_type` is read."""

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
    native = read_native(parts.root, parts.text, _layers_with(architecture))
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


def _layers_with(architecture: Architecture) -> Counter[TensorClass]:
    """Layers that have tensors of a class."""
    return Counter(kind for one in architecture.layers for kind in {tensor.kind for tensor in one.tensors(architecture.hidden_size)})


def _parts(config: Mapping[str, object], pointer: str) -> _Parts:
    for name in UNWRAPPED:
        if isinstance(inner := config.get(name), Mapping):
            wrapper = {"quantization_config": config.get("quantization_config"), "torch_dtype": config.get("torch_dtype")}
            config, pointer = wrapper | {key: value for key, value in inner.items() if value is not None}, f"{pointer}/{name}"
    root = ConfigFields(config, pointer)
    model_type = root.text("model_type")
    if model_type is None:
        raise root.missing("model_type")
    if model_type in REFUSED:
        detail = f"model_type {model_type!r} is not counted: {REFUSED[model_type]}."
        raise UnsupportedConfig(detail, field=root.at("model_type"), value=model_type, expected="a decoder-only language model")
    section = next((name for name in TEXT_SECTIONS if isinstance(config.get(name), Mapping)), TEXT_SECTIONS[0])
    nested = root.section(section)
    if nested is None:
        family = FAMILIES.get(model_type)
        if family is None:
            if model_type in TEXT_TYPE_OF:
                raise root.missing("text_config")
            raise _unknown_type(root, model_type)
        text = ConfigFields(config, pointer, defaults=family.defaults)
        return _Parts(text, text, family, model_type)
    if model_type not in TEXT_TYPE_OF:
        raise _unknown_type(root, model_type)
    text_type = nested.text("model_type") or TEXT_TYPE_OF[model_type]
    family = FAMILIES.get(text_type)
    if family is None:
        raise _unknown_type(nested, text_type)
    nested.defaults = {**TEXT_DEFAULTS.get(text_type, {}), **family.defaults}
    return _Parts(root, nested, family, model_type)


def _unknown_type(fields: ConfigFields, model_type: str) -> UnsupportedConfig:
    known = ", ".join(sorted({*FAMILIES, *TEXT_TYPE_OF}))
    detail = f"model_type {shown(model_type)!r} is not known."
    return UnsupportedConfig(detail, field=fields.at("model_type"), value=shown(model_type), expected=f"one of {known}")


def _tied(parts: _Parts, architecture: Architecture) -> bool:
    """The whole file's word before the language model's, then what the configuration class takes."""
    nested = parts.text.flag("tie_word_embeddings", default=architecture.tied_by_default)
    return parts.root.flag("tie_word_embeddings", default=nested)


def _refuse_unread(parts: _Parts) -> None:
    """Refuse the file when it has fields that nobody read and that are not known to say nothing about size."""
    parts.text.skip(*OF_THE_WHOLE)
    parts.root.skip(*OF_THE_WHOLE)
    if parts.root is not parts.text:
        parts.root.skip(*AROUND_THE_TOWER, *POSITIONS, "hidden_size", "vocab_size", "sliding_window")
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
