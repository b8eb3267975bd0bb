"""Weights as an engine loads them: by class of tensor, with scales, padding, copies, and the allocator's rounding."""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from app.domain.checkpoint_names import BY_NAME
from app.domain.engine_buffers import UNIFIED_LOAD_BYTES, deepstack_bytes, rotary_table_bytes
from app.domain.llm import Llm
from app.domain.precision import WEIGHTS, WeightFormat
from app.domain.provenance import Basis
from app.domain.tensors import Tensor
from app.domain.units import plain
from app.domain.weight_schemes import SIXTEEN, Cost, Costs, Scheme, scheme_of, without_padding
from app.domain.weights import weights_bytes_per_gpu, weights_size

VOCAB_MULTIPLE = 64
"""Rows of embedding and head are padded to a multiple of this before they are divided.
https://github.com/vllm-project/vllm/blob/main/vllm/model_executor/layers/vocab_parallel_embedding.py (DEFAULT_VOCAB_PADDING_SIZE)."""
LARGE_BYTES, SEGMENT_BYTES, UNSPLIT_BYTES = 10 * 2**20, 2 * 2**20, 2**20
"""Allocations from 10 MiB are rounded up to 2 MiB; a rest of at most 1 MiB is not given to anyone else.
https://github.com/pytorch/pytorch/blob/main/c10/cuda/CUDACachingAllocator.cpp (kMinLargeAlloc, kRoundLarge, kSmallSize)."""
LOW_RATIO, HIGH_RATIO = 0.99, 1.025
"""Printed over computed weights of 50 recorded starts whose checkpoints are known by tensor: from 1 % less to 2.1 % more, the latter
where vLLM measures free memory of the device instead of its own allocations, on AMD accelerators."""
DIVIDED_LOW_RATIO, DIVIDED_HIGH_RATIOS = 0.97, ((2, 1.03), (1, 1.2), (0, 1.6))
"""The same where only the parameter count is known and every parameter is taken to be in the format, by bytes per parameter: 63 recorded
starts divided so come out short by at most 3 % (16 bits), 18 % (8 bits) and 40 % (4 bits), SGLang on shared memory left aside."""
TORCH_ENGINES = ("vllm", "sglang", "tensorrt-llm")
FOLDS_LATENT = ("vllm", "sglang")
"""Engines that keep 16-bit up-projections of the latent beside the quantised ones; SGLang copies 16-bit ones too.
https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/models/deepseek_v2.py (post_load_weights),
https://github.com/vllm-project/vllm/blob/main/vllm/model_executor/layers/attention/mla_attention.py (process_weights_after_loading)."""
KEPT_LAYOUTS = 256
"""Layouts of one model whose weights are remembered."""

LEAST_MTP_BITS = 8
"""Checkpoints below 8 bits leave the multi-token prediction layers in 16 bits.
https://github.com/vllm-project/llm-compressor/tree/main/examples (recipes ignore mtp), https://huggingface.co/Qwen/Qwen3.6-27B-FP8."""


class LoadedPart(NamedTuple):
    """The tensors of one class on the fullest accelerator."""

    what: str
    """Class of tensors, or `rotary`, `deepstack`, `folded_latent`, `host`, `mtp`, `draft`."""
    bytes_per_gpu: int


class LoadedWeights(NamedTuple):
    """Weights after loading, as the engine prints them, and how they are known."""

    num_bytes: int
    """The whole model in this format, without copies and padding [bytes]."""
    bytes_per_gpu: int
    """On the fullest accelerator [bytes]."""
    low_bytes_per_gpu: int
    """The lower end of what checkpoints of this format were seen with, on the emptiest pipeline stage [bytes]."""
    high_bytes_per_gpu: int
    """The upper end [bytes]."""
    basis: Basis
    source: str
    substituted: str
    scheme: str
    """What is quantised and how, for people."""
    parts: tuple[LoadedPart, ...]
    """What `bytes_per_gpu` consists of; empty where only the parameter count is known."""
    stage_bytes: tuple[int, ...]
    """One accelerator of each pipeline stage [bytes]."""


class _Layout(NamedTuple):
    """How the tensors of one layer are divided."""

    tp: int
    expert_shards: int
    whole_experts: bool
    redundant_experts: int
    rounds: bool


def loaded_weights_bytes_per_gpu(
    llm: Llm,
    weights: WeightFormat | None,
    *,
    tp: int,
    pp: int = 1,
    dp: int = 1,
    ep: int = 1,
    redundant_experts: int = 0,
    engine: str = "vllm",
    mtp: bool = False,
    max_num_batched_tokens: int = 0,
    unified_memory: bool = False,
    num_mxfp4_scale_copies: int = 0,
    draft: Llm | None = None,
) -> LoadedWeights:
    """Weights on the fullest accelerator after loading [bytes].

    sum over tensors of allocated(elements on the rank x bits / 8) + scales, for the layers of the fullest pipeline stage, embeddings on
    the first and head on the last; experts are divided by tp x dp, everything else by tp; norms, routers and down projections of latent
    attention are on every rank. With ep > 1 ranks hold whole experts, `redundant_experts` of each layer twice. `mtp` loads the
    multi-token prediction layers, `draft` a draft model beside it; `max_num_batched_tokens` sizes buffers of some vision models,
    `unified_memory` adds what loading takes of memory that host and device share, `num_mxfp4_scale_copies` stands for kernels
    that do not pad. Layers are spread over stages evenly, groups that alternate in proportion. Valid for models whose layer groups and
    sizes are known; else the checkpoint's size is divided, as `weights.weights_bytes_per_gpu` does. Adapters (LoRA) are not counted.
    """
    known = llm.loaded_weights_by_layout
    layout = (weights, tp, pp, dp, ep, redundant_experts, engine, mtp, max_num_batched_tokens, unified_memory, num_mxfp4_scale_copies)
    if draft is None and layout in known:
        found: LoadedWeights = known[layout]
        return found
    found = _load(llm, *layout, draft)
    if draft is None:
        if len(known) >= KEPT_LAYOUTS:
            known.clear()
        known[layout] = found
    return found


def _load(
    llm: Llm,
    weights: WeightFormat | None,
    tp: int,
    pp: int,
    dp: int,
    ep: int,
    redundant_experts: int,
    engine: str,
    mtp: bool,
    max_num_batched_tokens: int,
    unified_memory: bool,
    num_mxfp4_scale_copies: int,
    draft: Llm | None,
) -> LoadedWeights:
    scheme = scheme_of(llm, weights, engine)
    scheme = without_padding(scheme, num_mxfp4_scale_copies) if scheme is not None and num_mxfp4_scale_copies else scheme
    by_class = llm.num_params_by_class() if llm.layer_groups and llm.hidden_size and llm.vocab_size else {}
    if scheme is None or sum(by_class.values()) != llm.num_params:
        return _divided(llm, weights, tp=tp, pp=pp, dp=dp)
    if engine == "llama.cpp":
        tp, pp = 1, min(tp * pp, llm.num_layers)
    layout = _Layout(tp, tp * dp, ep > 1, redundant_experts, engine in TORCH_ENGINES)
    stages = _stages(llm, scheme, layout, pp, engine)
    if buffers := deepstack_bytes(llm, engine, max_num_batched_tokens):
        stages[0]["deepstack"] = buffers
    if unified_memory and engine in UNIFIED_LOAD_BYTES:
        for stage in stages:
            stage["host"] = UNIFIED_LOAD_BYTES[engine]
    last = stages[-1]
    if mtp and llm.num_mtp_params:
        expert_share = llm.num_expert_params / llm.num_params
        share = expert_share / layout.expert_shards + (1 - expert_share) / tp
        own = scheme.cost("experts" if llm.num_expert_params else "dense")
        bits = own.bits_with_scales if own.bits >= LEAST_MTP_BITS else SIXTEEN.bits
        last["mtp"] = math.ceil(llm.num_mtp_params * share * bits / 8)
    if draft is not None:
        last["draft"] = loaded_weights_bytes_per_gpu(draft, None, tp=tp, engine=engine).bytes_per_gpu
    totals = tuple(sum(stage.values()) for stage in stages)
    fullest = max(stages, key=lambda stage: sum(stage.values()))
    worst, by_name = max(totals), any(note.startswith(BY_NAME) for note in llm.notes)
    return LoadedWeights(
        num_bytes=math.ceil(sum(count * scheme.cost(kind).bits_with_scales / 8 for kind, count in by_class.items())),
        bytes_per_gpu=worst,
        low_bytes_per_gpu=math.floor(LOW_RATIO * _as_if(min(stages, key=lambda stage: sum(stage.values())), scheme, scheme.leanest)),
        high_bytes_per_gpu=math.ceil(HIGH_RATIO * _as_if(fullest, scheme, scheme.fullest)),
        basis="exact"
        if not scheme.costs
        else "datasheet"
        if llm.native.quantization is not None and weights is None and not by_name
        else "assumed",
        source=scheme.source,
        substituted=" + ".join(f"{count} x {plain(scheme.cost(kind).bits_with_scales)} / 8" for kind, count in by_class.items()),
        scheme=scheme.name,
        parts=tuple(LoadedPart(what, size) for what, size in fullest.items()),
        stage_bytes=totals,
    )


def _as_if(stage: Mapping[str, int], scheme: Scheme, costs: Costs | None) -> float:
    """Bytes of a stage if its tensors had other costs."""
    if costs is None:
        return sum(stage.values())
    other = scheme._replace(costs=costs)
    ratios = {kind: other.cost(kind).bits_with_scales / scheme.cost(kind).bits_with_scales for kind in {*scheme.costs, *costs}}
    return sum(size * ratios.get(what, 1) for what, size in stage.items())  # type: ignore[call-overload]


def _divided(llm: Llm, weights: WeightFormat | None, *, tp: int, pp: int, dp: int) -> LoadedWeights:
    size = weights_size(llm, weights)
    one = weights_bytes_per_gpu(llm, size.num_bytes, tp=tp, pp=pp, dp=dp)
    width = 2 if weights is None else WEIGHTS[weights].bytes_per_element
    more = next(ratio for least, ratio in DIVIDED_HIGH_RATIOS if width >= least)
    low, high = math.floor(one * DIVIDED_LOW_RATIO), math.ceil(one * more)
    return LoadedWeights(
        size.num_bytes, one, low, high, size.basis, size.source, size.substituted, weights or "checkpoint", (), (one,) * pp
    )


def _stages(llm: Llm, scheme: Scheme, layout: _Layout, pp: int, engine: str) -> list[dict[str, int]]:
    """Bytes by class on one accelerator of every pipeline stage."""
    hidden = llm.hidden_size or 0
    groups = [(group.num_layers, _by_class(group.tensors(hidden), scheme, layout, engine=engine)) for group in llm.layer_groups or ()]
    stages = []
    for layers in _layers_of_stages(llm, pp):
        stage: dict[str, int] = {}
        for share, (_, one) in zip(layers, groups, strict=True):
            for what, size in one.items():
                stage[what] = stage.get(what, 0) + math.ceil(share * size)
        stages.append(stage)
    for tensor in llm.tensors_outside_layers():
        tensor = _padded(tensor, llm)
        for what, size in _by_class((tensor,), scheme, layout, engine=engine).items():
            for at in {"head": (pp - 1,), "extra": (0,), "vision": (0,), "embedding": (0,)}.get(what, (pp - 1,)):
                if what != "embedding" or engine != "llama.cpp":
                    stages[at][what] = stages[at].get(what, 0) + size
            if what == "embedding" and llm.tie_word_embeddings and (pp > 1 or engine == "llama.cpp"):
                head = Tensor("head", split=tensor.split)
                stages[-1] |= _by_class((head,), scheme, layout, engine=engine)
    if rotary := rotary_table_bytes(llm, engine):
        for stage in stages:
            stage["rotary"] = rotary
    return stages


def _by_class(tensors: Iterable[Tensor], scheme: Scheme, layout: _Layout, *, engine: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for tensor in tensors:
        cost = scheme.cost(tensor.kind)
        found[tensor.kind] = found.get(tensor.kind, 0) + _tensor_bytes(tensor, cost, layout)
        if tensor.expands_latent and (cost.bits < SIXTEEN.bits or engine == "sglang") and engine in FOLDS_LATENT:
            found["folded_latent"] = found.get("folded_latent", 0) + 2 * tensor.on_rank(layout.tp)
    return {what: size for what, size in found.items() if size}


def _tensor_bytes(tensor: Tensor, cost: Cost, layout: _Layout) -> int:
    """allocated(elements x bits / 8) + elements x scale_bits / 8, stacks of experts padded first."""
    if tensor.stack is not None:
        stack = tensor.stack
        experts, inner = stack.num_experts, stack.inner_dim
        if layout.whole_experts:
            experts = -(-(experts + layout.redundant_experts) // layout.expert_shards)
        else:
            inner = -(-inner // layout.expert_shards)
        outer = -(-stack.outer_dim // cost.outer_multiple) * cost.outer_multiple
        inner = -(-inner // cost.inner_multiple) * cost.inner_multiple
        elements = experts * stack.num_matrices * outer * inner
    elif tensor.kind == "expert_bias":
        elements = -(-tensor.split // layout.expert_shards)
    else:
        elements = tensor.on_rank(layout.tp)
    size = math.ceil(elements * cost.bits / 8)
    return (allocated_bytes(size) if layout.rounds and tensor.kind not in ("vision", "small", "extra") else size) + math.ceil(
        elements * cost.scale_bits / 8
    )


def allocated_bytes(size: int) -> int:
    """What PyTorch's caching allocator takes for a tensor of `size` bytes [bytes].

    From 10 MiB the segment is rounded up to 2 MiB, and a rest of at most 1 MiB stays with the tensor; smaller ones share segments.

    >>> allocated_bytes(135 * 2**20) // 2**20
    136
    """
    if size < LARGE_BYTES:
        return size
    segment = -(-size // SEGMENT_BYTES) * SEGMENT_BYTES
    return segment if segment - size <= UNSPLIT_BYTES else size


def _padded(tensor: Tensor, llm: Llm) -> Tensor:
    if tensor.kind not in ("embedding", "head"):
        return tensor
    rows = -(-(llm.vocab_size or 0) // VOCAB_MULTIPLE) * VOCAB_MULTIPLE
    return tensor._replace(split=rows * (llm.hidden_size or 0))


def _layers_of_stages(llm: Llm, pp: int) -> list[list[float]]:
    """Layers of every group in every stage.

    Stages get floor(layers / pp) layers, and those before the last one more each while some are left over
    (https://github.com/vllm-project/vllm/blob/main/vllm/distributed/utils.py, get_pp_indices). A leading group without experts in a
    model of experts comes first; groups otherwise alternate and are shared in proportion.
    """
    counts = [group.num_layers for group in llm.layer_groups or ()]
    sizes = [llm.num_layers // pp] * pp
    for back in range(2, llm.num_layers % pp + 2):
        sizes[-back] += 1
    first = (llm.layer_groups or ())[0]
    leading = bool(llm.num_expert_params) and not first.num_expert_params(llm.hidden_size or 0) and len(counts) > 1
    dense, rest = (counts[0], counts[1:]) if leading else (0, counts)
    stages = []
    for size in sizes:
        here = min(dense, size)
        dense -= here
        shared = [(size - here) * count / sum(rest) for count in rest]
        stages.append([here, *shared] if leading else shared)
    return stages
