"""Names of checkpoints that others publish of a known model: quantised, converted, uploaded again."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from app.domain.llm import Llm, NativeWeights
from app.domain.precision import GGUF_KINDS, KvFormat, WeightFormat
from app.domain.weight_schemes import native_scheme

BY_NAME = "By its name, "
"""How the note begins that says what a name was taken for."""
_ENDINGS: tuple[tuple[str, WeightFormat | None], ...] = (
    (r"w-mxfp4-a-fp8", None),  # a checkpoint in MXFP4 as published, with activations in FP8
    (r"(?:unsloth-)?bnb-4bit|bnb|nf4", "bnb-4bit"),
    (r"gptq-(?:int8|8bit)", "int8"),
    (r"awq(?:-(?:int4|4bit|w4a16|marlin))?", "awq"),
    (r"gptq(?:-(?:int4|4bit|4b|w4a16))?(?:-\d+g)?", "gptq"),
    (r"(?:quantized\.)?(?:int4|w4a16|4bit)(?:-(?:g\d+|autoround|w4a16|int4))*|autoround(?:-int4|-4bit)?", "int4"),
    (r"(?:quantized\.)?(?:int8|w8a8|w8a16|8bit)(?:-(?:int8|w8a8))?", "int8"),
    (r"fp8(?:-(?:dynamic|kv|block|static|e4m3|w8a8|per-tensor))*", "fp8"),
    (r"nvfp4a?(?:16)?(?:-v\d+)?|fp4(?:-v\d+)?", "nvfp4"),
    (r"mxfp4", "mxfp4"),
    (r"bf16", "bf16"),
    (r"fp16|f16", "fp16"),
    (r"i1|qat|ud|abliterated(?:-v\d+)?|heretic|unquantized", None),
)
"""How names end, and the format that they mean; None for endings that say nothing about size."""
_SUFFIXES = tuple((re.compile(rf"[-.](?:{words})$"), weights) for words, weights in _ENDINGS)
_POOLS = re.compile(r"(?<=^qwen3)-embedding|(?<=^qwen3-vl)-embedding")
"""Families whose embedding models have the layers of their decoders (https://huggingface.co/Qwen/Qwen3-Embedding-8B, config.json)."""
_GGUF_DEFAULT: WeightFormat = "q4_k_m"
"""The kind that llama.cpp downloads where none is named (https://github.com/ggml-org/llama.cpp/blob/master/common/arg.cpp, `-hf`)."""
_VARIANTS = re.compile(r"-(?:instruct|thinking|it|chat|base|hf|pt)(?=-|$)")
"""Words for how a model was trained on, which do not change its layers."""
_NAMES_KV: frozenset[str] = frozenset({"nvidia"})
"""Publishers whose FP8 and NVFP4 checkpoints ask for a cache in FP8 (https://huggingface.co/nvidia/Gemma-4-31B-IT-NVFP4, config.json)."""
_FBGEMM: frozenset[str] = frozenset({"meta-llama", "meta"})
"""Publishers whose FP8 leaves attention in 16 bits (https://huggingface.co/meta-llama/Llama-3.1-405B-Instruct-FP8, config.json)."""


class CheckpointName(NamedTuple):
    """What the name of a repository says."""

    publisher: str
    base: str
    """The name without what it says about formats, in lower case."""
    weights: WeightFormat | None
    pools: bool = False
    """An embedding model made of a decoder: it has no output head."""


def read_name(name: str) -> CheckpointName:
    """Publisher, base name and format of a repository's name.

    >>> read_name("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic")
    CheckpointName(publisher='redhatai', base='llama-3.3-70b-instruct', weights='fp8', pools=False)
    >>> read_name("unsloth/Qwen3-8B-GGUF:Q8_0").weights
    'q8_0'
    """
    whole, _, tag = name.strip().casefold().partition(":")
    publisher, _, base = whole.rpartition("/")
    found: WeightFormat | None = None
    if base.endswith("-gguf"):
        base = base.removesuffix("-gguf")
        kind = tag.removeprefix("ud-")
        found = next((each for each in GGUF_KINDS if each == kind or re.search(rf"[-.]{each}$", base)), None if kind else _GGUF_DEFAULT)
        base = base.removesuffix(f"-{found}").removesuffix(f".{found}")
    base = base.replace("_", "-")
    shortened = True
    while shortened:
        shortened = False
        for ending, weights in _SUFFIXES:
            if match := ending.search(base):
                base, found, shortened = base[: match.start()], found or weights, True
    pools = bool(_POOLS.search(base))
    return CheckpointName(publisher, _POOLS.sub("", base), found, pools)


def names_of_bases(models: Mapping[str, Llm]) -> dict[str, str]:
    """Slugs by the names that others build theirs on: repositories without publisher, slugs, both without `-instruct` and the like."""
    plain: dict[str, str] = {}
    short: dict[str, set[str]] = {}
    for slug, model in models.items():
        ids = [*((model.hf_id,) if model.hf_id else ()), *model.hf_aliases]
        for name in (*(read_name(each).base for each in ids), slug):
            plain.setdefault(name, slug)
            short.setdefault(_shortened(name), set()).add(slug)
    unique = {name: slugs.copy().pop() for name, slugs in short.items() if len(slugs) == 1}
    return unique | plain | {slug: slug for slug in models}


def base_of(named: CheckpointName, bases: Mapping[str, str]) -> str | None:
    """The slug of the model that a checkpoint is made of; None when no name of the catalog matches."""
    return next((bases[name] for name in (named.base, f"meta-{named.base}", _shortened(named.base)) if name in bases), None)


def _shortened(base: str) -> str:
    return _VARIANTS.sub("", base.removeprefix("meta-"))


def as_published(llm: Llm, name: str, named: CheckpointName) -> Llm:
    """The model in the format that the name of a checkpoint says, with a note of what was taken; its size is arithmetic over the format."""
    weights = named.weights
    llm = llm.without_head() if named.pools else llm
    note = f"{BY_NAME}{name} is taken for {llm.slug}"
    if weights is None:
        loaded = "without output head; task embed samples nothing" if named.pools else "as published"
        native = NativeWeights(dtype=llm.native.dtype, weights_bytes=2 * llm.num_params, weights_basis="2 bytes x num_params")
        update = {"notes": (f"{note} {loaded}.", *llm.notes)} | ({"native": native} if named.pools else {})
        return llm.model_copy(update=update)
    sixteen = {"bf16": "bfloat16", "fp16": "float16"}.get(weights)
    words = None if sixteen else _words(llm, weights, named.publisher)
    kv: KvFormat | None = "fp8" if named.publisher in _NAMES_KV and weights in ("fp8", "nvfp4") else None
    native = NativeWeights(dtype=sixteen or llm.native.dtype, quantization=words, kv_cache=kv)
    renamed = llm.model_copy(update={"native": native, "notes": (f"{note} with weights in {words or weights}.", *llm.notes)})
    scheme = native_scheme(renamed)
    counts = renamed.num_params_by_class() if llm.layer_groups and llm.hidden_size and llm.vocab_size else {}
    if scheme is None or sum(counts.values()) != llm.num_params:
        return renamed
    size = round(sum(count * scheme.cost(kind).bits_with_scales / 8 for kind, count in counts.items()))
    sized = native.model_copy(update={"weights_bytes": size, "weights_basis": f"arithmetic: {scheme.name}, as the name says"})
    return renamed.model_copy(update={"native": sized})


def _words(llm: Llm, weights: WeightFormat, publisher: str) -> str:
    """The format with what the recipe of its publisher leaves in another."""
    if weights == "fp8" and publisher in _FBGEMM:
        return "fp8 (per channel, fbgemm)"
    if weights == "nvfp4" and publisher in _NAMES_KV and llm.num_expert_params:
        hybrid = any(group.mixer and group.mixer.kind == "gated_delta_net" for group in llm.layer_groups or ())
        return "nvfp4; fp8: attention, recurrent" if hybrid else "nvfp4; 16 bits: attention"
    return weights
