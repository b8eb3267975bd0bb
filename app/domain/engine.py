"""Memory accounting of inference engines, as data: one value per engine and range of versions."""

import re
from collections.abc import Iterable, Sequence
from datetime import date
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from app.domain.attention import Count
from app.domain.compute_buffer import ComputeBuffer
from app.domain.deployment import EngineName
from app.domain.errors import UnknownName
from app.domain.paging_rules import PagingRules
from app.domain.precision import KvFormat, WeightFormat
from app.domain.static_reserve import FractionByGpus, StaticReserve
from app.domain.value import Given, Slug

Bytes = Annotated[int, Field(ge=0, le=10**15)]
Factor = Annotated[float, Field(ge=0, le=1000)]
Share = Annotated[float, Field(ge=0, le=1)]
CheckName = Literal[
    "free_memory",
    "weights_load",
    "profile_run",
    "kv_memory",
    "max_model_len",
    "state_blocks",
    "graph_capture",
]
"""Start-up checks of an engine, in the order of its file."""


class Spread(Given):
    """An amount of memory with the range in which it was seen."""

    typical_bytes: Bytes
    """The value that is used [bytes]."""
    low_bytes: Bytes
    """Least that was seen [bytes]."""
    high_bytes: Bytes
    """Most that was seen [bytes]."""


class SchedulerDefaults(Given):
    """What an engine sets when the caller does not, for one class of devices; the first class that matches counts."""

    at_least_memory_bytes: Count = 0
    """The class begins at this much device memory [bytes]."""
    not_named: tuple[str, ...] = ()
    """Devices whose name contains one of these texts are not of the class."""
    max_num_batched_tokens: PositiveInt
    """Tokens of one step of a server."""
    offline_max_num_batched_tokens: PositiveInt | None = None
    """Tokens of one step where a program runs the engine in itself (vLLM's class LLM); None: as a server."""
    max_num_seqs: PositiveInt
    """Sequences that run at once."""
    num_graph_seqs: PositiveInt | None = None
    """Largest batch that CUDA graphs are captured for, tp below 4."""
    num_graph_seqs_wide: PositiveInt | None = None
    """The same for tp 4 and above."""
    reserved_bytes: Bytes | None = None
    """Memory that the class leaves outside the fraction; before `fractions` and `static_reserve` [bytes]."""
    reserved_bytes_per_gpu: Bytes = 0
    """More of it per tp x pp."""


class EncoderPeak(Given):
    """Memory that profiling the vision encoder takes, for models of some `model_type`s."""

    model_types: tuple[str, ...]
    """Beginnings of `model_type`; an empty text matches every model that has a vision tower."""
    fixed_bytes: Bytes
    """Part that tensor parallelism does not divide [bytes]."""
    shared_bytes: Bytes
    """Part that is divided by tp [bytes]."""
    full_length_tokens: PositiveInt | None = None
    """Sequence length at which the largest item is profiled; shorter lengths scale it down. None: independent of length."""


class ActivationModel(Given):
    """Peak of the profile run: the larger of sampler, forward pass and vision encoder."""

    bytes_per_logit: Factor
    """Sampler bytes per (sequence, vocabulary entry)."""
    bytes_per_logit_low: Factor
    """The same with FlashInfer's sampler, which does not sort."""
    lean_if_installed: bool = False
    """FlashInfer's sampler is used wherever it can be imported, unknown from outside; else only where it is asked for."""
    lean_builds: tuple[str, ...] = ()
    """Texts in a version that mark builds which sample with it."""
    num_logit_rows_extra: Count = 0
    """Further single-precision rows of the vocabulary, one per multiprocessor."""
    workspace_persists: bool = False
    """Expert workspaces stay allocated while the sampler runs."""
    bytes_per_inner_element: Factor = 6
    """Forward pass, per token and element of the inner width on one rank."""
    bytes_per_hidden_element: Factor = 4
    """Forward pass, per token and element of the residual stream."""
    gathers_ranks: bool = False
    """Experts of every data-parallel rank work on the tokens of all of them."""
    bytes_per_channel_gated_element: Factor = 14
    """Delta rule with one gate per channel, per token and value element on one rank: its projections, as the profile run skips the core
    (read in 0.11.2 and 0.26.0). The one recorded start of such a model took about 3 GiB more, which is not explained."""
    bytes_per_kept_element: Factor = 2
    """Inputs that stay allocated, per token and element of the residual stream."""
    encoders: tuple[EncoderPeak, ...] = ()
    """Vision encoders, first match counts."""
    unknown: Spread
    """Used when the shape of the model is not known [bytes]."""
    compute_buffer: ComputeBuffer | None = None
    """Where an engine reserves one buffer for the graph of a micro-batch; in place of the terms above."""


class GraphMemory(Given):
    """CUDA graphs: inside the budget or taken beside it."""

    inside_budget: bool
    """Subtracted before the KV cache is sized."""
    estimated_models: Literal["all", "not_dense"] = "all"
    """Models whose graphs are estimated; those of the others come on top of the budget: `not_dense` are models with experts or a
    recurrent state."""
    unestimated_vendors: tuple[str, ...] = ()
    """Makers on whose accelerators no graphs are estimated, so that they come on top as well."""
    fixed_bytes: Bytes
    """Per capture [bytes]."""
    bytes_per_layer_and_graph: Bytes
    """Per layer and captured batch size [bytes]."""
    bytes_per_layer: Bytes = 0
    """Per layer, whatever the number of batch sizes [bytes]."""
    bytes_per_state_layer_and_graph: Bytes = 0
    """Per layer and captured batch size of models that keep a recurrent state, in place of the other terms where it is more."""
    bytes_per_logit: Factor = 0
    """Per sequence and vocabulary entry of the largest captured batch."""


class KvBand(Given):
    """How far recorded KV pools lie from the modelled one, 10th to 90th percentile."""

    below_bytes: Bytes
    """Recorded below modelled [bytes]."""
    above_bytes: Bytes
    """Recorded above modelled [bytes]."""
    relative_ratio: Share = 0
    """The same relative to the budget, for terms that grow with the device; the larger of both is used."""


class EngineMemory(Given):
    """How one engine accounts for memory in a range of versions."""

    slug: Slug
    """Name of the file."""
    engine: EngineName
    """The engine."""
    from_version: str | None = Field(default=None, max_length=20)
    """First version; None is every earlier one."""
    below_version: str | None = Field(default=None, max_length=20)
    """First version that is no longer meant; None is every later one."""
    fraction_basis: Literal["of_total", "of_free_before_load", "of_free_after_load", "exact"]
    """The fraction is of the device, of what is free before or after loading, or the cache is sized by the caller alone."""
    default_fraction_ratio: Annotated[float, Field(gt=0, le=1)] | None = None
    """Fraction when the caller gives none; None where the engine derives it or knows none."""
    runtime: Spread
    """Context, libraries and workspaces outside the tensor allocator, tp 1 [bytes]."""
    runtime_unified: Spread
    """Further memory on devices that share it with the host [bytes]."""
    read_vendors: tuple[str, ...] = ()
    """Makers of the accelerators whose back ends were read; none: whatever the accelerator."""
    unified_devices: tuple[str, ...] = ()
    """Devices whose name contains one of these texts share their memory with the host."""
    runtime_amd: Spread
    """Further memory of the runtime on AMD devices [bytes]."""
    communication_switched: Spread
    """Buffers between GPUs behind a switch with in-network reduction, tp 2 and above [bytes]."""
    communication_other: Spread
    """Buffers between other GPUs, tp 2 and above [bytes]."""
    switched_bandwidth_bytes_per_s: Annotated[float, Field(ge=0)] = 9e11
    """NVLink of at least this bandwidth with four or more GPUs counts as switched [bytes/s]."""
    activation: ActivationModel
    """Peak of the profile run."""
    graphs: GraphMemory
    """CUDA graphs."""
    num_mxfp4_scale_copies: Count = 0
    """Where kernels load MXFP4 experts without padding: how often their scales stay in memory; 0: no such kernels."""
    mxfp4_capabilities: tuple[str, ...] = ()
    """Compute capabilities on which they do."""
    earlier_fraction_ratio: Share | None = None
    """Default fraction of earlier versions, which one that is not known may be."""
    fractions: tuple[FractionByGpus, ...] = ()
    """Default fraction by size of the replica, first match; before `default_fraction_ratio`."""
    static_reserve: StaticReserve | None = None
    """Reserve from which the engine derives its fraction."""
    vision_fraction_ratio: Share = 1
    """Factor on a default fraction for models with a vision tower."""
    class_reserve_speculative_bytes: Bytes = 0
    """With a draft model or layers, more than the reserve of the class [bytes]."""
    paging: PagingRules
    """Blocks."""
    kv_caches: tuple[KvFormat, ...] = ()
    """Precisions of the cache that any of these versions offers; none: not read."""
    sparse_latent_fp8_from_capability: Factor | None = None
    """Compute capability from which `kv_cache` auto keeps latents in 8 bits whose indexer selects tokens; None: as for other caches."""
    fp8_cache_weights: tuple[WeightFormat, ...] = ()
    """Formats whose usual checkpoint of a model that is published in another one asks for a cache in FP8, which `kv_cache` auto follows."""
    defaults: Annotated[tuple[SchedulerDefaults, ...], Field(min_length=1)]
    """Scheduler defaults by device class, first match."""
    whole_prompts_up_to_tokens: Count = 0
    """Lengths up to this are prefilled in one step by default, so max_num_batched_tokens is at least max_model_len_tokens."""
    fits_length: bool = False
    """max_model_len_tokens -1 asks for the longest sequence that fits."""
    limit_batched_to_length: bool = False
    """max_num_batched_tokens is at most max_num_seqs x max_model_len_tokens when defaulted."""
    device_margin_bytes: Bytes = 0
    """Memory that the engine leaves free on the device [bytes]."""
    checks: tuple[CheckName, ...]
    """Start-up checks in order."""
    band: KvBand
    """Errors on recorded starts."""
    notes: tuple[str, ...] = ()
    """Which figures were read and which were fitted."""
    sources: tuple[str, ...]
    """Where the rules and figures come from."""
    checked_on: date
    """Day on which the figures were last checked against the sources."""

    def covers(self, version: tuple[int, ...]) -> bool:
        """Whether the range holds a version."""
        lowest, end = version_key(self.from_version), version_key(self.below_version)
        return (lowest is None or version >= lowest) and (end is None or version < end)


@lru_cache(maxsize=1024)
def version_key(text: str | None) -> tuple[int, int, int] | None:
    """The numbers of a version, or the number of a build, that decide which rules hold; None when the text begins with neither.

    >>> version_key("0.26.1rc1.dev156"), version_key("b7780"), version_key("0.1.dev19754+g3a0914114")
    ((0, 26, 1), (7780, 0, 0), None)
    """
    if build := re.fullmatch(r"b?(\d{1,9})", text or ""):
        return int(build[1]), 0, 0
    if re.match(r"v?0\.1\.dev", text or ""):  # what a build calls itself whose repository was fetched without tags
        return None
    found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", text or "")
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


NEWEST_PATCH = 10**6
"""Beyond the patch number of any release."""


def newest_first(engines: Iterable[EngineMemory]) -> list[EngineMemory]:
    """The values of one engine, newest versions first."""
    return sorted(engines, key=lambda engine: version_key(engine.from_version) or (-1, 0, 0), reverse=True)


def engine_memory(known: Sequence[EngineMemory], name: str, version: str | None, *, field: str) -> EngineMemory:
    """The rules of an engine in a version, the newest known when it is not given or not understood; raises UnknownName.

    `known` are those of the engine, newest first. A version of two numbers names a series and stands for its newest release.
    """
    if not known:
        raise UnknownName(f"no memory accounting of engine {name[:100]!r} in the catalog", field=field, value=name[:100])
    key = version_key(version)
    if key is not None and re.fullmatch(r"v?\d+\.\d+(?!\.?\d).*", version or ""):  # a series: its newest release
        key = *key[:2], NEWEST_PATCH
    return known[0] if key is None else next((engine for engine in known if engine.covers(key)), known[-1])
