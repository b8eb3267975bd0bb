"""The checkpoint's own precision from a configuration: element type and quantisation."""

from collections.abc import Mapping

from app.domain.llm import NativeWeights
from app.importers.config_fields import ConfigFields

_SOURCE = "config.json"


def read_native(root: ConfigFields, text: ConfigFields) -> tuple[NativeWeights, tuple[str, ...]]:
    """Element type and quantisation, with notes on what the file leaves open.

    Raises UnsupportedConfig for a quantisation that does not name its method.
    """
    dtype = next((name for fields in (root, text) if (name := fields.text("dtype", "torch_dtype")) is not None), None)
    dtype = dtype.removeprefix("torch.") if dtype else None
    quantization = next(
        (described for fields in (root, text) for name in ("quantization_config", "compression_config") if (described := _described(fields, name))),
        None,
    )
    notes = ()
    if quantization is not None:
        notes = (f"The checkpoint is quantised ({quantization}); its size is known only with model.safetensors.index.json.",)
    return NativeWeights(dtype=dtype, dtype_source=_SOURCE if dtype else None, quantization=quantization), notes


def _described(fields: ConfigFields, name: str) -> str | None:
    _, section = fields.find(name)
    if section is None:
        return None
    if not isinstance(section, Mapping):
        raise fields.wrong(name, "an object")
    method = section.get("quant_method")
    if not isinstance(method, str):
        producer = section.get("producer")
        method = producer.get("name") if isinstance(producer, Mapping) else None
    if not isinstance(method, str):
        raise ConfigFields(section, fields.at(name)).missing("quant_method")
    if method == "fp8":
        block = section.get("weight_block_size")
        if isinstance(block, list | tuple) and block:
            return f"fp8 e4m3, {'x'.join(str(side) for side in block)} block scales"
        return f"fp8 ({section.get('activation_scheme') or 'dynamic'}, per tensor)"
    if method == "mxfp4":
        return "mxfp4 (MoE experts)"
    if method == "compressed-tensors":
        return _compressed_tensors(section)
    if method == "modelopt":
        algorithm = section.get("quant_algo")
        nested = section.get("quantization")
        if algorithm is None and isinstance(nested, Mapping):
            algorithm = nested.get("quant_algo")
        return f"{str(algorithm).lower()} (modelopt)" if algorithm else "modelopt"
    bits, group = section.get("bits", section.get("w_bit")), section.get("group_size", section.get("q_group_size"))
    details = [f"int{bits}"] if isinstance(bits, int) else []
    details += [f"group {group}"] if isinstance(group, int) and group > 0 else []
    return f"{method[:40]} ({', '.join(details)})" if details else method[:40]


def _compressed_tensors(section: Mapping[str, object]) -> str:
    groups = section.get("config_groups")
    for group in groups.values() if isinstance(groups, Mapping) else ():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if isinstance(weights, Mapping) and isinstance(weights.get("num_bits"), int):
            kind = "fp" if weights.get("type") == "float" else "int"
            name = f"{kind}{weights['num_bits']}"
            if "mxfp4" in str(section.get("format")):
                name = "mxfp4"
            size = weights.get("group_size")
            where = f"group {size}" if isinstance(size, int) and size > 0 else f"per {weights.get('strategy') or 'channel'}"
            return f"{name} ({where}, compressed-tensors)"
    return f"{section.get('format') or 'compressed-tensors'}"
