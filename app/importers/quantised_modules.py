"""Which classes of tensors a checkpoint's recipe names: patterns of modules that it leaves in 16 bits or puts in another format.

Pattern styles: https://github.com/vllm-project/compressed-tensors (`ignore`, `re:` prefix),
https://github.com/NVIDIA/Model-Optimizer (`exclude_modules`, wildcards), `modules_to_not_convert` of
https://github.com/huggingface/transformers/tree/main/src/transformers/quantizers, `dynamic` of https://github.com/ModelCloud/GPTQModel.
"""

import re
from collections.abc import Iterable, Mapping

from app.domain.tensors import TensorClass

_ONE_PROJECTION = re.compile(r"kv_a_|kv_b_|q_a_|weights_proj|indexer|norm|rotary|sinks|scale|bias|conv1d|in_proj_[ab]\b|\bA_log|dt_")
_CLASSES: tuple[tuple[TensorClass, re.Pattern[str]], ...] = (
    ("recurrent", re.compile(r"linear_attn|mamba|in_proj|out_proj|\.kda")),
    ("attention", re.compile(r"attn|attention|[qkvo]_proj|qkv")),
    ("router", re.compile(r"router|gate\b(?!_)|e_score|shared_expert_gate")),
    ("shared", re.compile(r"shared_expert")),
    ("experts", re.compile(r"expert")),
    ("dense", re.compile(r"mlp|feed_forward|ffn|(gate|up|down)_proj")),
)
_ELSEWHERE = re.compile(r"vis|lm_head|embed|mtp|audio|projector|multi_modal|eh_proj|^model$|^re:.*mtp")
_LAYER = re.compile(r"layers?\.(\d+)")
MOST = 0.5
"""Share of the layers that must be named for a class to count as named."""
NAMED: tuple[TensorClass, ...] = ("attention", "recurrent", "shared", "experts", "dense")


def class_of_module(pattern: str) -> TensorClass | None:
    """The class that a name or pattern means; None for what is never quantised anyway, or only one small projection.

    >>> class_of_module("model.layers.3.self_attn*"), class_of_module("re:.*linear_attn.*"), class_of_module("lm_head")
    ('attention', 'recurrent', None)
    """
    plain = pattern.replace("\\", "")
    if _ELSEWHERE.search(plain) or _ONE_PROJECTION.search(plain):
        return None
    return next((kind for kind, words in _CLASSES if words.search(plain)), None)


def named_classes(patterns: Iterable[object], layers_with: Mapping[TensorClass, int]) -> tuple[TensorClass, ...]:
    """Classes that the patterns name in most of the layers that have them, `layers_with`; a pattern without a number names all layers."""
    layers: dict[TensorClass, set[int]] = {}
    for pattern in patterns:
        if not isinstance(pattern, str) or len(pattern) > 500:
            continue
        kind = class_of_module(pattern)
        if kind is None:
            continue
        numbered = _LAYER.search(pattern.replace("\\", ""))
        layers.setdefault(kind, set()).update({int(numbered[1])} if numbered else range(layers_with.get(kind, 0)))
    return tuple(kind for kind in NAMED if len(layers.get(kind, ())) >= MOST * layers_with.get(kind, 0) > 0)


def formats_by_class(algorithms: Mapping[object, object], layers_with: Mapping[TensorClass, int]) -> dict[TensorClass, str]:
    """The format of each class in a recipe that names one for every module: the one that most layers have."""
    by_format: dict[str, list[object]] = {}
    for module, entry in algorithms.items():
        algorithm = entry.get("quant_algo") if isinstance(entry, Mapping) else None
        if isinstance(algorithm, str):
            by_format.setdefault(algorithm.lower(), []).append(module)
    return {kind: name for name, modules in by_format.items() for kind in named_classes(modules, layers_with)}
