"""What an engine sets when the deployment does not say: the inputs that decide the answer and that callers forget."""

from bisect import bisect_right
from typing import NamedTuple

from app.domain.attention import LatentAttention
from app.domain.deployment import Deployment
from app.domain.engine import EngineMemory, SchedulerDefaults, version_key
from app.domain.hardware import Gpu
from app.domain.llm import Llm
from app.domain.precision import WeightFormat
from app.domain.provenance import Note
from app.domain.static_reserve import reserve_bytes
from app.domain.weight_schemes import native_scheme


class Settings(NamedTuple):
    """Limits of the engine after its defaults are filled in."""

    max_num_seqs: int
    max_num_batched_tokens: int
    fraction: float | None
    """Share of the memory; None where the engine knows none."""
    num_graph_seqs: int
    """Largest batch for which CUDA graphs are captured."""
    defaulted: frozenset[str]
    """Names of the fields that the deployment left out."""


def device_class(engine: EngineMemory, gpu: Gpu) -> SchedulerDefaults:
    """The engine's defaults for a device: the first class whose memory it has and whose excluded names it does not bear."""
    name = f"{gpu.slug} {gpu.name}".casefold()
    memory = gpu.require_memory_bytes()
    matching = (
        each for each in engine.defaults if memory >= each.at_least_memory_bytes and not any(part in name for part in each.not_named)
    )
    return next(matching, engine.defaults[-1])


def settings_of(engine: EngineMemory, gpu: Gpu, deployment: Deployment, length: int | None, llm: Llm | None = None) -> Settings:
    """max_num_seqs, max_num_batched_tokens and fraction of a deployment, the engine's defaults where it says nothing.

    Whole prompts of moderate length are one step on engines without chunked prefill; a defaulted max_num_seqs is at most the batched
    tokens. `length` is max_model_len [tokens]; `llm` decides on the fraction where the engine's depends on the model.
    """
    usual = device_class(engine, gpu)
    tokens, sequences = deployment.max_num_batched_tokens, deployment.max_num_seqs
    defaulted = {name for name in ("max_num_seqs", "max_num_batched_tokens", "memory_fraction_ratio") if getattr(deployment, name) is None}
    by_usage = usual.offline_max_num_batched_tokens if deployment.usage_context == "offline" else None
    batched = (by_usage or usual.max_num_batched_tokens) if tokens is None else tokens
    if tokens is None and length is not None and (not deployment.chunked_prefill or length <= engine.whole_prompts_up_to_tokens):
        batched = max(batched, length)
    running = min(usual.max_num_seqs, batched) if sequences is None else sequences
    if tokens is None and engine.limit_batched_to_length and length is not None:
        batched = min(batched, running * length)
    fraction = deployment.memory_fraction_ratio
    if fraction is None:
        fraction = _default_fraction(engine, gpu, deployment, batched, usual, llm)
    wide = usual.num_graph_seqs_wide if deployment.tp >= 4 else usual.num_graph_seqs
    return Settings(running, batched, fraction, min(wide or 512, running), frozenset(defaulted))


def _default_fraction(
    engine: EngineMemory, gpu: Gpu, deployment: Deployment, chunk: int, usual: SchedulerDefaults, llm: Llm | None
) -> float | None:
    """The engine's own fraction: round((memory - reserve) / memory, 3) with the reserve of the device class or of the settings, else by
    the size of the replica, else one number; a vision tower multiplies it."""
    memory, ranks = gpu.require_memory_bytes(), deployment.tp * deployment.pp
    drafts = deployment.speculative is not None
    reserve = engine.static_reserve
    if usual.reserved_bytes is not None:
        kept = usual.reserved_bytes + usual.reserved_bytes_per_gpu * ranks
        kept += engine.class_reserve_speculative_bytes if drafts else 0
    elif engine.fractions or reserve is None:
        by_size = next((each.fraction_ratio for each in engine.fractions if ranks >= each.num_gpus), engine.default_fraction_ratio)
        return None if by_size is None else by_size * _vision_ratio(engine, llm)
    else:
        kept = reserve_bytes(
            reserve,
            memory_bytes=memory,
            ranks=ranks,
            dp=deployment.dp,
            chunk_tokens=chunk,
            graph_seqs=(usual.num_graph_seqs_wide if deployment.tp >= 4 else usual.num_graph_seqs) or 0,
            latent=llm is not None and any(isinstance(group.mixer, LatentAttention) for group in llm.layer_groups or ()),
            drafts=drafts,
        )
    return max(0.01, round((memory - kept) / memory, 3)) * _vision_ratio(engine, llm)


def _vision_ratio(engine: EngineMemory, llm: Llm | None) -> float:
    return engine.vision_fraction_ratio if llm is not None and llm.num_vision_params else 1


def with_engine_cache(deployment: Deployment, engine: EngineMemory | None, llm: Llm, gpu: Gpu) -> tuple[Deployment, list[Note]]:
    """The deployment with the precision that its engine takes for `kv_cache` auto on a device, where it is not that of other caches.

    Sparse latents from a compute capability on are kept in 8 bits; so are caches of weights in a format whose usual checkpoint asks for
    it, unless the model itself is published in that format and says nothing. The note says so. Sources:
    https://github.com/sgl-project/sglang/blob/v0.5.23/python/sglang/srt/arg_groups/overrides.py (_dsa_kv_cache_dtype_default),
    https://github.com/vllm-project/vllm/pull/29980 (kv_cache_quant_algo of the checkpoint).
    """
    if deployment.kv_cache != "auto" or engine is None:
        return deployment, []
    least = engine.sparse_latent_fp8_from_capability
    sparse = any(isinstance(group.mixer, LatentAttention) and group.mixer.indexer is not None for group in llm.layer_groups or ())
    if least is not None and sparse and _capability(gpu) >= least:
        why = f"which {engine.slug} takes for sparse latents from compute capability {least:g} on"
    elif deployment.weights in engine.fp8_cache_weights and llm.native.kv_cache is None and not _is_published(llm, deployment.weights):
        why = f"which NVIDIA's {deployment.weights} checkpoints ask for and {engine.slug} follows; give bf16 if yours does not"
    else:
        return deployment, []
    note = Note(code="kv_cache_auto", message=f"kv_cache auto: fp8, {why}.")
    return deployment.model_copy(update={"kv_cache": "fp8"}), [note]


def _is_published(llm: Llm, weights: WeightFormat | None) -> bool:
    """Whether a format is the model's own."""
    own = native_scheme(llm)
    return own is not None and own.name.split()[0] == weights


def _capability(gpu: Gpu) -> float:
    """Compute capability of a CUDA device; 0 for another maker's target name."""
    text = gpu.compute_capability or ""
    return float(text) if text.replace(".", "", 1).isdecimal() else 0.0


_CAPTURED = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))


def num_captured_graphs(settings: Settings) -> int:
    """Batch sizes for which graphs are captured: 1, 2, 4, 8 to 248 in steps of 8, then in steps of 16, at most twice the sequences.

    Source: https://github.com/vllm-project/vllm/blob/v0.19.1/vllm/config/vllm.py (cudagraph_capture_sizes).
    """
    return bisect_right(_CAPTURED, min(2 * settings.max_num_seqs, 512, settings.max_num_batched_tokens))


def default_notes(engine: EngineMemory, deployment: Deployment, settings: Settings, costs: dict[str, str]) -> list[Note]:
    """One note per default that decides the answer, with what not knowing it costs (`costs`, by field)."""
    notes = []
    which = f"from {engine.from_version}" if engine.from_version else "of every version"
    version = deployment.engine_version
    if version is None or version_key(version) is None:
        code, what = ("default", "was not given") if version is None else ("unknown", f"{version!r} names no release")
        message = f"engine_version {what}: the rules {which} of {engine.engine} are used, the newest known."
        notes.append(Note(code=f"{code}_engine_version", message=message))
    values = {
        "max_num_seqs": settings.max_num_seqs,
        "max_num_batched_tokens": settings.max_num_batched_tokens,
        "memory_fraction_ratio": settings.fraction,
    }
    for name, value in values.items():
        if name in settings.defaulted and value is not None:
            cost = f" {costs[name]}" if name in costs else ""
            notes.append(
                Note(code=f"default_{name}", message=f"{name} was not given: {value}, the default of {engine.slug} on this device.{cost}")
            )
    return notes
