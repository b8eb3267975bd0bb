"""Turns what a request names or describes into the domain's models and accelerators."""

from pydantic import ValidationError

from app.domain.attention import Attention
from app.domain.catalog import Catalog
from app.domain.deployment import Deployment
from app.domain.engine import EngineMemory
from app.domain.engine_defaults import with_engine_cache
from app.domain.errors import InvalidInput, UnknownName
from app.domain.hardware import Gpu, PeakFlops, vendor_of
from app.domain.llm import ExtraWeights, LayerGroup, Llm, most_attention_heads
from app.domain.provenance import Note
from app.importers.hf_config import llm_from_hf_config
from app.services.requests import GpuRef, GpuSketch, ModelArchitecture, ModelFromHfConfig, ModelRef, ModelSketch

INLINE = "inline"
"""What answers call a model or an accelerator that the request describes."""


def resolve_model(catalog: Catalog, reference: ModelRef) -> Llm:
    """The model that a request means; raises UnknownName with the nearest names, UnsupportedConfig, InvalidInput."""
    if isinstance(reference, str):
        return catalog.checkpoint(reference)
    if isinstance(reference, ModelFromHfConfig):
        return llm_from_hf_config(
            reference.hf_config,
            slug=INLINE,
            safetensors_index=reference.safetensors_index,
            pointer="/model/hf_config",
            index_pointer="/model/safetensors_index",
        )
    if isinstance(reference, ModelArchitecture):
        return _from_architecture(reference)
    return _from_sketch(reference)


def resolve_served(catalog: Catalog, reference: ModelRef, deployment: Deployment) -> Llm:
    """The model as the deployment loads it: without its output head where it only pools, without a vision tower for text alone.

    Raises as `resolve_model` does.
    """
    llm = resolve_model(catalog, reference)
    llm = llm.without_vision() if deployment.language_model_only else llm
    return llm.without_head() if deployment.task == "embed" else llm


def resolve_gpu(catalog: Catalog, reference: GpuRef) -> Gpu:
    """The accelerator that a request means; raises UnknownName with the nearest names."""
    if isinstance(reference, GpuSketch):
        return Gpu(
            slug=INLINE,
            name=reference.name or INLINE,
            vendor=reference.vendor or vendor_of(reference.name),
            memory_bytes=reference.memory_bytes,
            memory_bandwidth_bytes_per_s=reference.memory_bandwidth_bytes_per_s,
            peak_flops_per_s=reference.peak_flops_per_s or PeakFlops(),
        )
    return catalog.gpu(reference)


def engine_of(catalog: Catalog, deployment: Deployment) -> EngineMemory | None:
    """The memory accounting of the deployment's engine; None for the generic engine. Raises UnknownName."""
    return catalog.engine(deployment.engine, deployment.engine_version)


def with_draft(catalog: Catalog, deployment: Deployment) -> Deployment:
    """The deployment with its draft model resolved; a repository that the catalog does not know stays uncounted, with a warning.

    Raises UnknownName for a slug that the catalog does not have.
    """
    speculative = deployment.speculative
    if speculative is None or speculative.draft_model is None:
        return deployment
    try:
        draft = catalog.checkpoint(speculative.draft_model, field="/deployment/speculative/draft_model")
    except UnknownName:
        if "/" in speculative.draft_model:  # heads such as EAGLE's are repositories of their own
            return deployment
        raise
    return deployment.model_copy(update={"speculative": speculative.with_draft(draft)})


def as_deployed(catalog: Catalog, deployment: Deployment, llm: Llm, gpu: Gpu) -> tuple[Deployment, list[Note]]:
    """The deployment with its draft model and with the cache that its engine takes on this device, and what that assumes.

    Raises as `with_draft` does.
    """
    return with_engine_cache(with_draft(catalog, deployment), engine_of(catalog, deployment), llm, gpu)


def _from_sketch(sketch: ModelSketch) -> Llm:
    groups = None
    if sketch.num_layers is not None and sketch.num_kv_heads is not None and sketch.head_dim is not None:
        attention = Attention(
            num_heads=sketch.num_attention_heads or sketch.num_kv_heads,
            num_kv_heads=sketch.num_kv_heads,
            key_head_dim=sketch.head_dim,
            value_head_dim=sketch.head_dim,
        )
        groups = (LayerGroup(num_layers=sketch.num_layers, mixer=attention),)
    return Llm(
        slug=INLINE,
        num_params=sketch.params,
        num_active_params=sketch.active_params or sketch.params,
        hidden_size=sketch.hidden_size,
        num_attention_heads=sketch.num_attention_heads or sketch.num_kv_heads,
        max_model_len_tokens=sketch.max_model_len_tokens,
        layer_groups=groups,
    )


def _from_architecture(architecture: ModelArchitecture) -> Llm:
    shape = Llm(
        slug=INLINE,
        num_params=architecture.params or 10**16,
        num_active_params=1,
        hidden_size=architecture.hidden_size,
        vocab_size=architecture.vocab_size,
        tie_word_embeddings=architecture.tie_word_embeddings,
        num_attention_heads=most_attention_heads(architecture.layer_groups),
        max_model_len_tokens=architecture.max_model_len_tokens,
        layer_groups=architecture.layer_groups,
    )
    in_layers, active_in_layers = shape.num_language_params(), shape.num_language_params(active=True)
    assert in_layers is not None and active_in_layers is not None  # noqa: S101, PT018 - the request type asks for the sizes
    total = architecture.params or in_layers
    active = architecture.active_params or min(total, active_in_layers)
    outside = (ExtraWeights(what="parameters beyond the layers", num_params=total - in_layers),) if total > in_layers else ()
    try:
        return Llm.model_validate({**dict(shape), "num_params": total, "num_active_params": active, "extra_weights": outside})
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidInput(
            f"the model is not consistent: {first['msg']}", field="/model", expected="params >= active_params, at most 1e16"
        ) from error
