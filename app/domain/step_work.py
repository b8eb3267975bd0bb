"""What one iteration of an engine reads, computes and sends on each accelerator, before any inefficiency."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from app.domain.deployment import Deployment
from app.domain.hardware import Gpu, NumberFormat
from app.domain.kv_cache import KvCost, kv_cost, kv_is_known, kv_read_cost, resolve_kv_format
from app.domain.links import Link, link_between
from app.domain.llm import Llm
from app.domain.loaded_weights import loaded_weights_bytes_per_gpu
from app.domain.model_work import DENSE, EXPERTS, MIXERS, SMALL, ExpertWork, ModelWork, model_work
from app.domain.precision import product_format
from app.domain.tensors import TensorClass
from app.domain.weight_schemes import SIXTEEN, scheme_of

WeightClass = Literal["16", "8", "4", "w4"]
"""Formats that run on like kernels: 16 bits, 8 bits, 4 bits multiplied as such, 4 bits widened to 16 before the product."""
ACTIVATION_BYTES = 2
"""Activations travel between accelerators in 16 bits."""
READ: tuple[TensorClass, ...] = (*MIXERS, *DENSE, *SMALL, "head")
"""Tensors that every step reads; an embedding gives single rows, unless it is the head as well."""


class Products(NamedTuple):
    """Dense peaks of one accelerator in the formats that the products of a model run in [FLOP/s], and those formats."""

    mixer_flops_per_s: float
    dense_flops_per_s: float
    expert_flops_per_s: float
    sixteen_flops_per_s: float
    """Attention and head."""
    mixer_format: NumberFormat
    dense_format: NumberFormat
    expert_format: NumberFormat
    weight_class: WeightClass
    """Of the experts where there are any, else of the dense parts."""
    dense_class: WeightClass
    """Of the mixers."""


class Contexts(NamedTuple):
    """What follows from the lengths alone."""

    decode_tokens: float
    """Mean context of a decoding sequence [tokens]."""
    prompt_tokens: float
    """Mean context of a prompt token [tokens]."""
    kv_bytes: float
    """Cache that one decoding sequence reads on one accelerator [bytes]."""
    prompt_kv_bytes: float
    """Cache that a prompt reads [bytes]."""
    decode_attention_flops: float
    """Scores and values of one decoding position on one accelerator [FLOP]."""
    prompt_attention_flops: float
    """The same of one prompt token [FLOP]."""


NO_CONTEXTS = Contexts(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""Of steps that attend to nothing."""


@dataclass(frozen=True, slots=True)
class StepWork:
    """One engine rank group (tp x dp accelerators) of a replica; pipeline stages follow one another within the step."""

    model: ModelWork
    tp: int
    pp: int
    dp: int
    ep: int
    positions_per_sequence: int
    """Tokens that a step computes per sequence: 1, and with speculation all drafts beside it."""
    dense_bytes: float
    """Weights on one accelerator that every step reads [bytes]."""
    expert_bytes: float
    """Weights of experts on one accelerator, of which a step reads a share [bytes]."""
    kv: KvCost | None
    """What a step reads of a sequence on one accelerator; None where the layers are not known."""
    reads_weights_of: str
    """How the weights are known, for people."""
    products: Products
    bandwidth_bytes_per_s: float
    tensor_link: Link
    """Between tensor-parallel ranks."""
    expert_link: Link
    """Between all accelerators of the group."""
    stage_link: Link
    """Between pipeline stages."""

    @property
    def num_gpus(self) -> int:
        """Accelerators that work on one step at a time: tp x dp."""
        return self.tp * self.dp

    def contexts(self, decode_tokens: float, prompt_tokens: float) -> Contexts:
        """Bytes and FLOPs that depend on the mean contexts [tokens] of decoding sequences and of prompt tokens."""
        reaches = self.model.reaches
        return Contexts(
            decode_tokens,
            prompt_tokens,
            self.kv_bytes(decode_tokens),
            self.kv_bytes(prompt_tokens),
            sum(reach.decode_flops_per_token(decode_tokens) for reach in reaches) / self.tp,
            sum(reach.prompt_flops_per_token(prompt_tokens) for reach in reaches) / self.tp,
        )

    def kv_bytes(self, context_tokens: float) -> float:
        """Cache that a step moves for one sequence on one accelerator: keys and values read, recurrent state read and written [bytes]."""
        return 0.0 if self.kv is None else self.kv.sequence_bytes(context_tokens) + self.kv.state_bytes

    def expert_copies(self, experts: ExpertWork) -> float:
        """Accelerators that a token is sent to: one for each of its experts at most."""
        return min(max(1.0, experts.num_experts_per_token), self.num_gpus)

    def expert_width(self, experts: ExpertWork) -> float:
        """Inner width of one expert on one accelerator: divided by all of them unless they hold whole experts [elements]."""
        return experts.intermediate_size / (1 if self.ep > 1 else self.num_gpus)


def step_work(llm: Llm, gpu: Gpu, deployment: Deployment) -> StepWork:
    """Work of one iteration of a deployment; raises MissingFigure naming the bandwidth or the peak that the catalog lacks."""
    model, tp, dp, pp = model_work(llm), deployment.tp, deployment.dp, deployment.pp
    dense_bytes, expert_bytes, how = _weights(llm, model, deployment)
    speculative = deployment.speculative
    return StepWork(
        model=model,
        tp=tp,
        pp=pp,
        dp=dp,
        ep=deployment.ep,
        positions_per_sequence=1 + speculative.num_draft_tokens if speculative else 1,
        dense_bytes=dense_bytes,
        expert_bytes=expert_bytes,
        kv=_read_cost(llm, deployment),
        reads_weights_of=how,
        products=products_of(llm, gpu, deployment),
        bandwidth_bytes_per_s=gpu.require_bandwidth_bytes_per_s(),
        tensor_link=link_between(gpu, tp),
        expert_link=link_between(gpu, tp * dp),
        stage_link=link_between(gpu, tp * pp * dp),
    )


def _read_cost(llm: Llm, deployment: Deployment) -> KvCost | None:
    if not kv_is_known(llm):
        return None
    kv_format = resolve_kv_format(llm, deployment.kv_cache)
    cost = kv_cost(llm, kv_format, tp=deployment.tp, field="/deployment/kv_cache")
    return kv_read_cost(llm, cost, kv_format, tp=deployment.tp)


def _weights(llm: Llm, model: ModelWork, deployment: Deployment) -> tuple[float, float, str]:
    """(bytes that every step reads, bytes of experts, how they are known) on one accelerator over all pipeline stages."""
    loaded = loaded_weights_bytes_per_gpu(
        llm, deployment.weights, tp=deployment.tp, dp=deployment.dp, ep=deployment.ep, engine=deployment.engine
    )
    parts = {part.what: part.bytes_per_gpu for part in loaded.parts}
    if not parts:
        experts = loaded.bytes_per_gpu if model.experts and not model.is_known else 0
        if model.is_known and model.experts:
            share = llm.num_expert_params / llm.num_params / deployment.dp
            experts = round(loaded.bytes_per_gpu * share / (share + 1 - llm.num_expert_params / llm.num_params))
        return loaded.bytes_per_gpu - experts, experts, loaded.source
    always = sum(parts.get(kind, 0) for kind in READ) + (parts.get("embedding", 0) if llm.tie_word_embeddings else 0)
    return always, sum(parts.get(kind, 0) for kind in EXPERTS), loaded.source


def products_of(llm: Llm, gpu: Gpu, deployment: Deployment) -> Products:
    """Formats and peaks of the products by class of tensor; raises MissingFigure naming a peak that the catalog lacks."""
    scheme = scheme_of(llm, deployment.weights, deployment.engine)
    sixteen = product_format(SIXTEEN.bits, "", gpu)

    def product(*kinds: TensorClass) -> tuple[float, NumberFormat]:
        if scheme is None:
            return SIXTEEN.bits, sixteen
        bits = min(scheme.cost(kind).bits for kind in kinds)
        return bits, product_format(bits, "mxfp4" if kinds == EXPERTS[:1] and "mxfp4" in scheme.name else scheme.name, gpu)

    mixer, dense, experts = product(*MIXERS), product("dense"), product("experts")
    main = experts if model_work(llm).experts else dense

    def peak(number_format: NumberFormat) -> float:
        return gpu.require_peak_flops_per_s(number_format)

    return Products(
        mixer_flops_per_s=peak(mixer[1]),
        dense_flops_per_s=peak(dense[1]),
        expert_flops_per_s=peak(main[1]),
        sixteen_flops_per_s=peak(sixteen),
        mixer_format=mixer[1],
        dense_format=dense[1],
        expert_format=main[1],
        weight_class=_weight_class(*main),
        dense_class=_weight_class(*mixer),
    )


def _weight_class(bits: float, number_format: NumberFormat) -> WeightClass:
    if bits >= SIXTEEN.bits:
        return "16"
    if bits >= 8:
        return "8"
    return "w4" if number_format in ("bf16", "fp16") else "4"
