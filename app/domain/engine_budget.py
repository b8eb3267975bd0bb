"""The memory budget of an engine on one accelerator: what comes off before the KV cache, and what the rest is cut into."""

import math
from typing import NamedTuple

from app.domain.activation import ActivationPeak, activation_peak
from app.domain.attention import CompressedAttention
from app.domain.compressed_pages import compressed_pool
from app.domain.compute_buffer import compute_buffer_bytes
from app.domain.deployment import Deployment
from app.domain.engine import ActivationModel, EngineMemory, Spread
from app.domain.engine_defaults import Settings, num_captured_graphs
from app.domain.hardware import Gpu
from app.domain.kv_cache import resolve_kv_format
from app.domain.layer_kinds import layer_kinds
from app.domain.llm import Llm
from app.domain.paging import Pool, cell_pool, paged_pool
from app.domain.precision import KV_CACHE, KvFormat

FEW_SEQUENCES = 64
"""What callers set who lower max_num_seqs; the band of an unknown max_num_seqs reaches to it. Median of the recorded starts that print it
(tests/accuracy/memory_cases.jsonl: 1 to 4096, 32 and 256 most often)."""


class Terms(NamedTuple):
    """What an engine takes beside weights and KV cache, on one accelerator [bytes]."""

    activation_bytes: int
    cuda_graph_bytes: int
    """CUDA graphs inside the budget."""
    communication_bytes: int
    runtime_bytes: int
    graphs_outside_bytes: int = 0
    """CUDA graphs that the budget does not count."""

    @property
    def total_bytes(self) -> int:
        """Sum of the terms inside the budget [bytes]."""
        return self.activation_bytes + self.cuda_graph_bytes + self.communication_bytes + self.runtime_bytes


NO_TERMS = Terms(0, 0, 0, 0)


class Budget(NamedTuple):
    """Budget and room of one accelerator [bytes]."""

    budget_bytes: int
    reserve_bytes: int
    room_bytes: int


def is_unified(engine: EngineMemory, gpu: Gpu) -> bool:
    """Whether the device shares its memory with the host."""
    name = f"{gpu.slug} {gpu.name}".casefold()
    return any(part in name for part in engine.unified_devices)


def communication_of(engine: EngineMemory, gpu: Gpu) -> Spread:
    """Buffers between accelerators by how they are linked."""
    link = gpu.interconnect
    switched = (
        link is not None
        and link.kind == "nvlink"
        and (link.bandwidth_bytes_per_s or 0) >= engine.switched_bandwidth_bytes_per_s
        and (link.num_gpus_per_domain or 0) >= 4
    )
    return engine.communication_switched if switched else engine.communication_other


def samples_lean(engine: EngineMemory, deployment: Deployment) -> bool | None:
    """Whether the engine samples with FlashInfer instead of a sort: as stated, else by its build; None where the image decides."""
    if deployment.flashinfer_sampler is not None:
        return deployment.flashinfer_sampler
    if any(part in (deployment.engine_version or "") for part in engine.activation.lean_builds):
        return True
    return None if engine.activation.lean_if_installed else False


def peak_of(llm: Llm, engine: EngineMemory, deployment: Deployment, settings: Settings, length: int | None) -> ActivationPeak:
    """The profile run of the deployment, or the compute buffer of its micro-batch."""
    if engine.activation.compute_buffer is not None:
        return _compute_buffer(llm, engine.activation, deployment, settings, length)
    return activation_peak(
        llm,
        engine.activation,
        leanest=samples_lean(engine, deployment) is True,
        max_num_seqs=0 if deployment.task == "embed" else settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        max_model_len_tokens=length,
        tp=deployment.tp,
        dp=deployment.dp,
        whole_experts=deployment.ep > 1,
    )


def _compute_buffer(llm: Llm, model: ActivationModel, deployment: Deployment, settings: Settings, length: int | None) -> ActivationPeak:
    found = None
    if model.compute_buffer is not None and length is not None:
        found = compute_buffer_bytes(
            llm,
            model.compute_buffer,
            micro_batch_tokens=settings.max_num_batched_tokens,
            num_seqs=settings.max_num_seqs,
            length_tokens=length,
            num_devices=deployment.pp,
            narrow_cache=KV_CACHE[resolve_kv_format(llm, deployment.kv_cache)].bytes_per_element < KV_CACHE["fp16"].bytes_per_element,
        )
    if found is None:
        return ActivationPeak(0, model.unknown.typical_bytes, 0, 0, False)
    head, layer = found
    return ActivationPeak(head, layer, 0, 0, True)


def most_lean_peak_bytes(llm: Llm, engine: EngineMemory, deployment: Deployment, settings: Settings, length: int | None) -> int:
    """Peak with what the deployment does not say at its leanest: few sequences, the leaner sampler [bytes]."""
    if engine.activation.compute_buffer is not None:
        return peak_of(llm, engine, deployment, settings, length).total_bytes
    few = min(settings.max_num_seqs, FEW_SEQUENCES) if "max_num_seqs" in settings.defaulted else settings.max_num_seqs
    return activation_peak(
        llm,
        engine.activation,
        max_num_seqs=0 if deployment.task == "embed" else few,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        max_model_len_tokens=length,
        tp=deployment.tp,
        dp=deployment.dp,
        whole_experts=deployment.ep > 1,
        leanest=samples_lean(engine, deployment) is not False,
    ).total_bytes


def terms_of(llm: Llm, gpu: Gpu, engine: EngineMemory, deployment: Deployment, settings: Settings, peak: ActivationPeak) -> Terms:
    """Activation, graphs, communication and runtime of a deployment [bytes].

    graphs = fixed + per layer and captured size, or per layer, on the layers of one stage; none when eager.
    """
    layers = -(-llm.num_layers // deployment.pp)
    graphs = 0
    if not deployment.enforce_eager:
        model = engine.graphs
        each = model.bytes_per_layer_and_graph * num_captured_graphs(settings) + model.bytes_per_layer
        if llm.keeps_state:
            each = max(each, model.bytes_per_state_layer_and_graph * num_captured_graphs(settings))
        graphs = model.fixed_bytes + layers * each + int(model.bytes_per_logit * settings.max_num_seqs * (llm.vocab_size or 0))
    runtime = engine.runtime.typical_bytes + (engine.runtime_unified.typical_bytes if is_unified(engine, gpu) else 0)
    runtime += engine.runtime_amd.typical_bytes if (gpu.vendor or "").startswith("AMD") else 0
    runtime += _state_beside_blocks(llm, engine, deployment, settings)
    communication = communication_of(engine, gpu).typical_bytes if deployment.tp > 1 else 0
    inside = _counts_graphs(llm, gpu, engine)
    return Terms(peak.total_bytes, graphs if inside else 0, communication, runtime, 0 if inside else graphs)


def _counts_graphs(llm: Llm, gpu: Gpu, engine: EngineMemory) -> bool:
    """Whether CUDA graphs are estimated for this model on this accelerator and subtracted from the budget."""
    model = engine.graphs
    if not model.inside_budget or (gpu.vendor is not None and gpu.vendor.startswith(model.unestimated_vendors)):
        return False
    return model.estimated_models == "all" or llm.keeps_state or llm.has_experts


def _state_beside_blocks(llm: Llm, engine: EngineMemory, deployment: Deployment, settings: Settings) -> int:
    """Recurrent state of every sequence that may run, where it does not live in the blocks [bytes]: layers x state x sequences."""
    rules = engine.paging
    if rules.state_in_blocks or not llm.keeps_state:
        return 0
    kinds = layer_kinds(llm, "bf16", rules, tp=deployment.tp)
    sequences = settings.max_num_seqs if rules.paged else deployment.max_num_seqs or rules.num_slots
    return sequences * sum(-(-kind.num_layers // deployment.pp) * kind.state_bytes for kind in kinds)


def budget_of(memory_bytes: int, engine: EngineMemory, fraction: float | None, weights_bytes: int, terms: Terms) -> Budget:
    """Budget, everything beside weights and KV cache, and the room for the KV cache [bytes].

    of_total: budget = ceil(u T), room = budget - weights - terms; of_free_before_load: room = u (T - runtime - communication) - weights;
    of_free_after_load: room = u (T - weights - terms); exact: room = T - margin - weights - terms.
    """
    share = 1.0 if fraction is None else fraction
    if engine.fraction_basis == "of_free_before_load":
        outside = terms.runtime_bytes + terms.communication_bytes
        budget = math.floor(share * (memory_bytes - outside)) + outside
        return Budget(budget, outside, budget - outside - weights_bytes)
    if engine.fraction_basis == "of_free_after_load":
        free = memory_bytes - weights_bytes - terms.total_bytes
        room = math.floor(share * free) if free > 0 else free
        return Budget(weights_bytes + terms.total_bytes + room, terms.total_bytes, room)
    budget = math.ceil(share * memory_bytes) if engine.fraction_basis == "of_total" else memory_bytes - engine.device_margin_bytes
    return Budget(budget, terms.total_bytes, budget - weights_bytes - terms.total_bytes)


def budget_with_reserve(memory_bytes: int, fraction: float | None, weights_bytes: int, reserve_bytes: int) -> Budget:
    """Budget where one given reserve replaces the engine's own terms: room = memory x fraction - weights - reserve [bytes]."""
    budget = memory_bytes if fraction is None else int(memory_bytes * fraction)
    return Budget(budget, reserve_bytes, budget - weights_bytes - reserve_bytes)


def pool_of(llm: Llm, engine: EngineMemory, deployment: Deployment, settings: Settings, kv_format: KvFormat) -> Pool | None:
    """How the engine cuts its KV memory for this model; None for a model whose layers are not known or cache nothing."""
    if llm.layer_groups is None:
        return None
    rules, drafts = engine.paging, deployment.speculative
    given = deployment.model_fields_set
    kinds = layer_kinds(llm, kv_format, rules, tp=deployment.tp, speculative=drafts)
    compressed = any(isinstance(group.mixer, CompressedAttention) for group in llm.layer_groups)
    if not kinds:
        return None
    if engine.engine == "vllm" and compressed:
        own = compressed_pool(
            llm, rules, pp=deployment.pp, max_num_batched_tokens=settings.max_num_batched_tokens, with_drafts=drafts is not None
        )
        if own is not None:
            return own
    usual = rules.latent_block_tokens if all(kind.latent for kind in kinds) else None
    block = deployment.block_size_tokens if "block_size_tokens" in given else usual or rules.default_block_tokens
    if engine.engine == "vllm" and not compressed:
        return paged_pool(
            kinds,
            rules,
            block_size_tokens=block,
            pp=deployment.pp,
            max_num_batched_tokens=settings.max_num_batched_tokens,
            prefix_caching=deployment.prefix_caching if "prefix_caching" in given else None,
            num_draft_tokens=drafts.num_draft_tokens if drafts else 0,
            num_context_ranks=deployment.dcp,
        )
    return cell_pool(
        kinds,
        rules,
        block_size_tokens=block,
        pp=deployment.pp,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        num_seqs=deployment.max_num_seqs,
        num_states=None if deployment.prefix_caching else deployment.max_num_seqs,
    )
