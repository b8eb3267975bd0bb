"""The checkpoint's own precision from a configuration: element type, quantisation, and the size that follows from them."""

from collections.abc import Mapping
from typing import NamedTuple

from app.domain.llm import Llm, NativeWeights
from app.domain.precision import WEIGHTS, KvFormat
from app.domain.tensors import TensorClass
from app.importers.config_fields import ConfigFields
from app.importers.quantised_modules import formats_by_class, named_classes

_BYTES_PER_ELEMENT = {"bfloat16": 2, "float16": 2, "float32": 4}
_SOURCE = "config.json"
_MXFP4 = WEIGHTS["mxfp4"].bytes_per_element


class Quantization(NamedTuple):
    """How a checkpoint is quantised."""

    description: str
    bytes_per_param: float | None
    """Size of a parameter of the layers' matrices with its scales; None when the file does not say enough [bytes]."""
    bytes_per_expert_param: float | None = None
    """The same for routed experts, where they differ [bytes]."""


class Native(NamedTuple):
    """Element type and quantisation of the published checkpoint."""

    dtype: str | None
    quantization: Quantization | None
    kv_cache: KvFormat | None = None
    """Precision of the cache that the quantisation names."""

    def weights(self, llm: Llm, total_size_bytes: int | None) -> NativeWeights:
        """The published checkpoint: its stated size, else the arithmetic over its precision.

        weights = routed experts x bytes_per_expert_param + other matrices of the layers x bytes_per_param + the rest x bytes of the
        element type [bytes]. Ignores prediction layers, and matrices that a checkpoint leaves unquantised.
        """
        element = _BYTES_PER_ELEMENT.get(self.dtype or "bfloat16")
        size, basis = total_size_bytes, "metadata.total_size of model.safetensors.index.json"
        if size is None and element is not None:
            if self.quantization is None:
                size, basis = element * llm.num_params, f"arithmetic: {element} bytes x num_params"
            elif (matrix := self.quantization.bytes_per_param) is not None:
                expert = self.quantization.bytes_per_expert_param or matrix
                experts, matrices = _expert_matrix_params(llm), _matrix_params(llm)
                size = int(experts * expert + (matrices - experts) * matrix + (llm.num_params - matrices) * element)
                basis = (
                    f"arithmetic: routed experts {expert:.5g} bytes, other matrices of the layers {matrix:.5g} bytes, the rest"
                    f" {element} bytes; excludes prediction layers"
                )
        return NativeWeights(
            dtype=self.dtype,
            dtype_source=_SOURCE if self.dtype else None,
            quantization=self.quantization.description if self.quantization else None,
            kv_cache=self.kv_cache,
            weights_bytes=size,
            weights_basis=basis if size is not None else None,
        )

    def notes(self, weights: NativeWeights) -> tuple[str, ...]:
        """What the file leaves open."""
        if weights.weights_bytes is None:
            return ("The size of the checkpoint is not known without model.safetensors.index.json.",)
        if self.quantization is not None and str(weights.weights_basis).startswith("arithmetic"):
            return ("The size of the quantised checkpoint is an estimate; model.safetensors.index.json gives the exact one.",)
        return ()


def _expert_matrix_params(llm: Llm) -> int:
    """Parameters of the routed experts' matrices, without their biases."""
    return sum(
        group.num_layers * part.num_experts * part.num_matrices * (part.latent_size or llm.hidden_size or 0) * part.intermediate_size
        for group in llm.layer_groups or ()
        for part in group.feed_forward
        if part.kind == "moe"
    )


def _matrix_params(llm: Llm) -> int:
    """Parameters of the layers but for norms, other extras, routers and biases of experts."""
    hidden = llm.hidden_size or 0
    total = _expert_matrix_params(llm) - llm.num_expert_params
    for group in llm.layer_groups or ():
        total += group.num_params(hidden) - group.num_layers * (group.num_norm_params + group.num_extra_params)
        total -= group.num_layers * sum(part.num_experts * hidden for part in group.feed_forward if part.kind == "moe")
    return total


def read_native(root: ConfigFields, text: ConfigFields, layers_with: Mapping[TensorClass, int]) -> Native:
    """Element type, quantisation and precision of the cache; raises UnsupportedConfig for a quantisation that does not name its method."""
    dtype = next((name for fields in (root, text) if (name := fields.text("dtype", "torch_dtype")) is not None), None)
    places = [(fields, name) for fields in (root, text) for name in ("quantization_config", "compression_config")]
    found = next(((fields, name) for fields, name in places if fields.find(name)[1] is not None), None)
    for fields, name in places:
        fields.skip(name)
    element = dtype.removeprefix("torch.") if dtype else None
    if found is None:
        return Native(element, None)
    section = found[0].find(found[1])[1]
    quantization = _read(*found)
    if quantization is None or not isinstance(section, Mapping):
        return Native(element, quantization)
    return Native(element, _with_exceptions(quantization, section, layers_with), _kv_cache(section))


_KEPT = ("ignore", "modules_to_not_convert", "exclude_modules", "exclude", "llm_int8_skip_modules")


def _with_exceptions(quantization: Quantization, section: Mapping[str, object], layers_with: Mapping[TensorClass, int]) -> Quantization:
    """The description with the classes that the recipe leaves in 16 bits or puts in another format."""
    nested = section.get("quantization")
    places = [section, nested] if isinstance(nested, Mapping) else [section]
    patterns = [each for place in places for name in _KEPT if isinstance(given := place.get(name), list | tuple) for each in given]
    dynamic = section.get("dynamic")
    patterns += [str(key)[2:] for key in dynamic if str(key).startswith("-:")] if isinstance(dynamic, Mapping) else []
    described = quantization.description
    others: dict[str, list[str]] = {}
    for place in places:
        if isinstance(layers := place.get("quantized_layers"), Mapping):
            for kind, name in formats_by_class(layers, layers_with).items():
                others.setdefault(name, []).append(kind)
    if kept := named_classes(patterns, layers_with):
        others["16 bits"] = [*kept]
    words = "".join(f"; {name}: {', '.join(kinds)}" for name, kinds in others.items())
    return quantization._replace(description=described + words)


def _kv_cache(section: Mapping[str, object]) -> KvFormat | None:
    """The precision that `kv_cache_quant_algo` or `kv_cache_scheme` names: engines follow it where they are asked for `auto`.

    Source: https://github.com/vllm-project/vllm/blob/main/vllm/utils/torch_utils.py (resolve_kv_cache_dtype_string).
    """
    nested = section.get("quantization")
    for place in (section, nested):
        if not isinstance(place, Mapping):
            continue
        algorithm, scheme = place.get("kv_cache_quant_algo"), place.get("kv_cache_scheme")
        if isinstance(algorithm, str):
            return {"FP8": "fp8", "NVFP4": "fp4", "INT8": "int8"}.get(algorithm.upper())  # type: ignore[return-value]
        if isinstance(scheme, Mapping) and scheme.get("type") == "float" and not scheme.get("dynamic"):
            bits = scheme.get("num_bits")
            return "fp8" if bits == 8 else "fp4" if bits == 4 else None
    return None


def _read(fields: ConfigFields, name: str) -> Quantization | None:
    _, section = fields.find(name)
    if section is None:
        return None
    if not isinstance(section, Mapping):
        raise fields.wrong(name, "an object")
    method = section.get("quant_method")
    producer = section.get("producer")
    if method is None and isinstance(producer, Mapping):
        method = producer.get("name")
    if not isinstance(method, str):
        raise ConfigFields(section, fields.at(name)).missing("quant_method")
    if method == "fp8":
        block = section.get("weight_block_size")
        if isinstance(block, list | tuple) and len(block) == 2 and all(isinstance(side, int) and side > 0 for side in block):
            described, cost = f"fp8 e4m3, {block[0]}x{block[1]} block scales", 1 + 4 / (block[0] * block[1])
            experts = section.get("expert_dtype") or fields.text("expert_dtype")
            if experts == "fp4":
                return Quantization(f"{described}; routed experts fp4", cost, _MXFP4)
            return Quantization(described, cost)
        return Quantization("fp8 (per tensor)", 1)
    if method == "fbgemm_fp8":
        return Quantization("fp8 (per channel, fbgemm)", 1)
    if method == "mxfp4":
        return Quantization("mxfp4 (MoE experts)", 2, _MXFP4)
    if method == "bitsandbytes":
        four = section.get("load_in_4bit") is True or section.get("_load_in_4bit") is True
        return Quantization("bnb-4bit (nf4)", WEIGHTS["bnb-4bit"].bytes_per_element) if four else Quantization("int8 (bitsandbytes)", 1)
    if method == "quark":
        return _quark(section)
    if method == "compressed-tensors":
        return _compressed_tensors(section)
    if method == "modelopt":
        return _modelopt(section)
    bits, group = section.get("bits", section.get("w_bit")), section.get("group_size", section.get("q_group_size"))
    if method in ("awq", "gptq") and isinstance(bits, int) and isinstance(group, int) and 0 < bits <= 16 and group > 0:
        return Quantization(f"{method} (int{bits}, group {group})", (bits + (16 + bits) / group) / 8)
    return Quantization(method[:60], None)


def _modelopt(section: Mapping[str, object]) -> Quantization:
    nested = section.get("quantization")
    algorithm = section.get("quant_algo") or (nested.get("quant_algo") if isinstance(nested, Mapping) else None)
    if algorithm == "MIXED_PRECISION":
        return Quantization("mixed (modelopt)", None)
    costs = {"FP8": 1.0, "NVFP4": WEIGHTS["nvfp4"].bytes_per_element, "MXFP8": 1 + 1 / 32}
    cost = costs.get(algorithm) if isinstance(algorithm, str) else None
    return Quantization(f"{algorithm.lower()[:40]} (modelopt)" if isinstance(algorithm, str) else "modelopt", cost)


def _quark(section: Mapping[str, object]) -> Quantization:
    """AMD Quark: the element type of the weights in the configuration of all layers."""
    general = section.get("global_quant_config")
    weight = general.get("weight") if isinstance(general, Mapping) else None
    weight = weight[0] if isinstance(weight, list | tuple) and weight else weight
    kind = str(weight.get("dtype") or "") if isinstance(weight, Mapping) else ""
    for prefix, name, cost in (("fp8", "fp8", 1.0), ("fp4", "mxfp4", _MXFP4), ("int8", "int8", 1.0)):
        if kind.startswith(prefix):
            return Quantization(f"{name} (quark)", cost)
    return Quantization("quark", None)


def _compressed_tensors(section: Mapping[str, object]) -> Quantization:
    groups, ignored = section.get("config_groups"), section.get("ignore")
    experts_only = isinstance(ignored, list | tuple) and any("attn" in str(pattern) for pattern in ignored)
    for group in groups.values() if isinstance(groups, Mapping) else ():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        bits = weights.get("num_bits") if isinstance(weights, Mapping) else None
        if not isinstance(weights, Mapping) or not isinstance(bits, int) or not 0 < bits <= 16:
            continue
        size = weights.get("group_size")
        grouped = isinstance(size, int) and size > 0
        mx = "mxfp4" in str(section.get("format"))
        name = "mxfp4" if mx else f"{'fp' if weights.get('type') == 'float' else 'int'}{bits}"
        small_scales = mx or (weights.get("type") == "float" and bits == 4)
        scale_bits = (8 if small_scales else 16) / size if isinstance(size, int) and size > 0 else 0
        where = f"group {size}" if grouped else f"per {weights.get('strategy') or 'channel'}"
        only = ", routed experts" if experts_only else ""
        cost = (bits + scale_bits) / 8
        return Quantization(f"{name} ({where}{only}, compressed-tensors)", 2 if experts_only else cost, cost)
    return Quantization("compressed-tensors", None)
