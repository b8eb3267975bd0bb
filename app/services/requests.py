"""The bodies of the calculations: what a caller names or describes, before names are resolved."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from app.domain.batching import Batching
from app.domain.calibration import CalibrationChoice
from app.domain.catalog import PriceKind
from app.domain.deployment import Deployment, EngineName, Ratio, Speculative, Tokens
from app.domain.expected_latency import Percentiles
from app.domain.fleet import RollingUpdate
from app.domain.hardware import PeakFlops, Rate
from app.domain.llm import LayerGroup
from app.domain.precision import KvChoice
from app.domain.simulated_search import Splitting
from app.domain.sizing import Measured
from app.domain.value import Given
from app.domain.workload import Length, Lengths, Rps, Slo, Workload

Name = Annotated[str, Field(min_length=1, max_length=200)]
Params = Annotated[int, Field(gt=0, le=10**16)]
Usd = Annotated[float, Field(ge=1e-6, le=1e9)]
SafetyRatio = Annotated[float, Field(ge=0.01, le=1)]


class ModelSketch(Given):
    """A model by its parameter count, and as much of its shape as the calculation needs."""

    params: Params
    """All parameters."""
    active_params: Params | None = None
    """Parameters that work on one token; all of them when left out."""
    num_layers: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Layers, all of one shape."""
    num_attention_heads: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Query heads; num_kv_heads when left out."""
    num_kv_heads: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Key/value heads."""
    head_dim: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Width of a head."""
    hidden_size: Annotated[int, Field(ge=1, le=10**7)] | None = None
    """Width of the residual stream."""
    max_model_len_tokens: Tokens | None = None
    """Longest context that the model was made for."""

    @model_validator(mode="after")
    def _shape_is_whole(self) -> "ModelSketch":
        shape = {"num_layers": self.num_layers, "num_kv_heads": self.num_kv_heads, "head_dim": self.head_dim}
        missing = [name for name, value in shape.items() if value is None]
        if missing and len(missing) < len(shape):
            raise ValueError(f"the KV cache needs num_layers, num_kv_heads and head_dim together; missing: {', '.join(missing)}")
        if self.num_attention_heads is not None and self.num_kv_heads is not None and self.num_attention_heads % self.num_kv_heads:
            raise ValueError(f"num_kv_heads {self.num_kv_heads} does not divide num_attention_heads {self.num_attention_heads}")
        if self.active_params is not None and self.active_params > self.params:
            raise ValueError(f"active_params {self.active_params} is more than params {self.params}")
        return self


class ModelArchitecture(Given):
    """A model by its layers; the parameters are summed over them unless `params` states the total."""

    layer_groups: Annotated[tuple[LayerGroup, ...], Field(min_length=1, max_length=1000)]
    """Layers by shape."""
    hidden_size: Annotated[int, Field(ge=1, le=10**7)]
    """Width of the residual stream."""
    vocab_size: Annotated[int, Field(ge=1, le=10**9)]
    """Rows of the embedding table."""
    tie_word_embeddings: bool = False
    """Embedding and output head share one table."""
    params: Params | None = None
    """All parameters."""
    active_params: Params | None = None
    """Parameters that work on one token."""
    max_model_len_tokens: Tokens | None = None
    """Longest context that the model was made for."""


class ModelFromHfConfig(Given):
    """A model by its Hugging Face configuration."""

    hf_config: dict[str, Any]
    """The content of config.json."""
    safetensors_index: dict[str, Any] | None = None
    """The content of model.safetensors.index.json; its `metadata` is enough."""


def _model_form(value: object) -> str:
    """The form of a reference: no text that is also a field's name, for what is wrong is located by both."""
    if isinstance(value, str):
        return "by name"
    keys = value.keys() if isinstance(value, dict) else type(value).model_fields.keys() if isinstance(value, Given) else ()
    return "by hf_config" if "hf_config" in keys else "by layer_groups" if "layer_groups" in keys else "by params"


ModelRef = Annotated[
    Annotated[Name, Tag("by name")]
    | Annotated[ModelSketch, Tag("by params")]
    | Annotated[ModelArchitecture, Tag("by layer_groups")]
    | Annotated[ModelFromHfConfig, Tag("by hf_config")],
    Discriminator(_model_form),
]
"""A catalog slug, a Hugging Face id, or a model described in the request."""


def _one_peak(value: object) -> object:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return dict.fromkeys(PeakFlops.model_fields, value)
    return value


class GpuSketch(Given):
    """An accelerator by its figures."""

    name: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Name as the vendor writes it: engines have other defaults and buffers for some devices."""
    vendor: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    """Maker; what the name tells when left out."""
    memory_bytes: Annotated[int, Field(gt=0, le=10**15)]
    """Memory [bytes]."""
    memory_bandwidth_bytes_per_s: Rate | None = None
    """Memory bandwidth [bytes/s]."""
    peak_flops_per_s: Annotated[PeakFlops | None, BeforeValidator(_one_peak, json_schema_input_type=PeakFlops | float | None)] = None
    """Dense peak rate: one number for the format that is used, or a rate per format [FLOP/s]."""


def _gpu_form(value: object) -> str:
    return "by name" if isinstance(value, str) else "by figures"


GpuRef = Annotated[Annotated[Name, Tag("by name")] | Annotated[GpuSketch, Tag("by figures")], Discriminator(_gpu_form)]
"""A catalog slug, or an accelerator described in the request."""


class MemoryRequest(Given):
    """Does a replica fit."""

    model: ModelRef
    """The model."""
    gpu: GpuRef
    """The accelerator."""
    deployment: Deployment = Deployment()
    """How one replica runs."""


def _as_list(value: object) -> object:
    return value if isinstance(value, (list, tuple)) else [value]


class KvRequest(Given):
    """How large the KV cache is."""

    model: ModelRef
    """The model."""
    kv_cache: KvChoice = "auto"
    """Precision of the cache."""
    tp: Annotated[int, Field(ge=1, le=1024)] = 1
    """Tensor-parallel degree."""
    context_tokens: Annotated[
        Sequence[Tokens], Field(min_length=1, max_length=100), BeforeValidator(_as_list, json_schema_input_type=list[Tokens] | Tokens)
    ] = (4096, 8192, 32768, 131072)
    """Lengths of a sequence, prompt and output together: one or a list [tokens]."""
    num_sequences: Annotated[int, Field(ge=1, le=10**7)] = 1
    """Sequences of that length."""
    engine: EngineName = "generic"
    """Inference engine whose blocks, groups and windows `in_engine` counts."""
    engine_version: str | None = Field(default=None, max_length=50)
    """Version of the engine."""
    max_num_batched_tokens: Tokens | None = None
    """Tokens of one step, which windowed layers of some engines keep beside their window."""
    speculative: Speculative | None = None
    """Speculative decoding: draft layers and tokens take part of the cache."""
    block_size_tokens: Annotated[int, Field(ge=1, le=65536)] = 16
    """Tokens of one cache block."""


class ConcurrencyRequest(Given):
    """How many requests a replica holds at once."""

    model: ModelRef
    """The model."""
    gpu: GpuRef
    """The accelerator."""
    deployment: Deployment = Deployment()
    """How one replica runs."""
    tokens_per_sequence: Lengths | None = None
    """Length of a request, prompt and output together; or give a workload [tokens]."""
    workload: Workload | None = None
    """Traffic whose lengths are used."""
    safety_ratio: SafetyRatio = 0.7
    """Share of the theoretical maximum to plan with."""
    prefix_cache_reserve_ratio: Annotated[float, Field(ge=0, le=0.9)] = 0
    """Share of the KV cache that is kept for cached prefixes that no running request uses; a workload's shared_prefix_tokens are kept
    once beside it, whatever this is."""

    @model_validator(mode="after")
    def _one_length(self) -> "ConcurrencyRequest":
        if (self.tokens_per_sequence is None) == (self.workload is None):
            raise ValueError("give either tokens_per_sequence or workload")
        return self


class PerformanceRequest(Given):
    """How fast a replica serves."""

    model: ModelRef
    """The model."""
    gpu: GpuRef
    """The accelerator."""
    deployment: Deployment = Deployment()
    """How one replica runs."""
    input_tokens: Length
    """Mean prompt [tokens]."""
    output_tokens: Length
    """Mean output [tokens]."""
    concurrency: Annotated[int, Field(ge=1, le=10**6)] | None = None
    """Requests in the system, each followed by the next as it ends; or give request_rps."""
    request_rps: Rps | None = None
    """Requests that arrive at one replica, at random (Poisson); or give concurrency [requests/s]."""
    shared_prefix_tokens: Annotated[float, Field(ge=0, le=1e9)] | None = None
    """Beginning of the prompts that all requests have in common, whose cache running requests hold once where it is found [tokens]."""
    prefix_hit_ratio: Ratio = 0
    """Share of the shared prefix, of the whole prompt where none is given, that is found in the prefix cache."""
    batching: Batching = "continuous"
    """continuous: requests join and leave at every step; dynamic: the next batch is what arrived meanwhile; static: full batches only."""
    num_requests: Annotated[int, Field(ge=1, le=10**9)] | None = None
    """Requests of a closed-loop run that sends `concurrency` of them at once and then keeps as many; left out: ten times the
    concurrency, as benchmarks do. A very large number is the steady state."""
    length_width_ratio: Annotated[float, Field(ge=0, le=2)] = 0
    """Of such a run: width of the range from which output lengths are drawn / mean; 0: all outputs are equally long."""
    calibration: CalibrationChoice = None
    """Id of the calibration whose constants the steps take, or `none`; left out: that of this very set-up, where there is one."""

    @model_validator(mode="after")
    def _one_load(self) -> "PerformanceRequest":
        if (self.concurrency is None) == (self.request_rps is None):
            raise ValueError("give either concurrency or request_rps")
        if self.num_requests is not None and (self.concurrency is None or self.num_requests < self.concurrency):
            raise ValueError("num_requests belongs to a run of at least as many requests as its concurrency")
        return self

    @model_validator(mode="after")
    def _prefix_within(self) -> "PerformanceRequest":
        if self.shared_prefix_tokens is not None and self.shared_prefix_tokens > self.input_tokens:
            raise ValueError(
                f"shared_prefix_tokens {self.shared_prefix_tokens:g} is more than the mean prompt of {self.input_tokens:g} tokens"
            )
        return self


class CapacityRequest(Given):
    """How many replicas a workload needs."""

    model: ModelRef | None = None
    """The model; may be left out when everything is measured."""
    gpu: GpuRef | None = None
    """The accelerator; may be left out when everything is measured."""
    deployment: Deployment = Deployment()
    """How one replica runs."""
    workload: Workload
    """The traffic."""
    slo: Slo | None = None
    """Latency objectives."""
    measured: Measured | None = None
    """Figures measured on one replica, in place of modelled ones and bounds."""
    percentiles: Percentiles = "simulated"
    """simulated: with objectives and a named engine, fleets of different sizes are simulated step by step until one holds (some seconds);
    approximated: by queueing theory."""
    balancing: Splitting = "least_loaded"
    """How requests are shared out among simulated replicas: to the one with fewest requests, in turn, or at random."""
    redundancy_ratio: Annotated[float, Field(ge=1, le=100)] = 1.25
    """Factor on the largest constraint: failures, rolling updates, bursts."""
    spare_replicas: Annotated[int, Field(ge=0, le=10_000)] = 0
    """Replicas added on top."""
    rolling_update: RollingUpdate | None = None
    """How replicas are exchanged for new ones; those that may be missing meanwhile are added where redundancy does not cover them."""
    safety_ratio: SafetyRatio = 0.7
    """Share of the theoretical concurrency to plan with."""
    gpus_per_node: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Accelerators of one machine; 8 when left out."""
    usd_per_gpu_hour: Usd | None = None
    """Price of one accelerator; the catalog's price of the kind that `price_kind` names when left out [USD/hour]."""
    price_kind: PriceKind = "on_demand"
    """Which price of the catalog is used, or what kind the given price is."""
    calibration: CalibrationChoice = None
    """Id of the calibration whose constants the steps take, or `none`; left out: that of this very set-up, where there is one."""
