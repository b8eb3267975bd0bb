"""Memory of the weights: the whole model and its share on one accelerator."""

import math
from typing import NamedTuple

from app.domain.deployment import Deployment
from app.domain.llm import Llm
from app.domain.precision import WEIGHTS, WeightFormat
from app.domain.provenance import Basis, Step, step
from app.domain.units import plain


class WeightsSize(NamedTuple):
    """Size of the weights and how it is known."""

    num_bytes: int
    basis: Basis
    source: str
    substituted: str


def weights_size(llm: Llm, weights: WeightFormat | None) -> WeightsSize:
    """Weights of the whole model: params x bytes_per_param [bytes].

    None is the checkpoint's own precision: its recorded size where there is one, else 16 bits per parameter (then `assumed`). A format
    is applied to every parameter; scales of grouped formats are counted, tensors that a checkpoint leaves in 16 bits are not yet.

    >>> from app.domain.llm import Llm
    >>> weights_size(Llm(slug="m", num_params=70_000_000_000, num_active_params=70_000_000_000), "fp8").num_bytes
    70000000000
    """
    if weights is None:
        native = llm.native
        if native.weights_bytes is not None:
            return WeightsSize(native.weights_bytes, "datasheet", native.weights_basis or llm.slug, str(native.weights_bytes))
        return WeightsSize(2 * llm.num_params, "assumed", "16 bits per parameter, as most checkpoints", f"{llm.num_params} x 2")
    cost = WEIGHTS[weights]
    return WeightsSize(weights_bytes(llm, weights), "exact", cost.source, f"{llm.num_params} x {plain(cost.bytes_per_element)}")


def weights_bytes(llm: Llm, weights: WeightFormat) -> int:
    """Weights of the whole model in a format: ceil(params x bytes_per_param) [bytes]."""
    return math.ceil(llm.num_params * WEIGHTS[weights].bytes_per_element)


def weights_bytes_per_gpu(llm: Llm, total_bytes: int, *, tp: int, pp: int = 1, dp: int = 1) -> int:
    """Weights on the fullest accelerator [bytes].

    stage = ceil(layers / pp) / layers; routed experts are divided by tp x dp (as expert or tensor shards), everything else by tp and
    repeated on every dp rank. Embeddings count as part of the layers, and padding is ignored.

    >>> weights_bytes_per_gpu(Llm(slug="m", num_params=70, num_active_params=70), 70_000_000_000, tp=4)
    17500000000
    """
    if dp == 1 and pp == 1:
        return -(-total_bytes // tp)
    expert_share = llm.num_expert_params / llm.num_params
    stage = -(-llm.num_layers // pp) / llm.num_layers if llm.num_layers else 1 / pp
    return math.ceil(total_bytes * stage * (expert_share / (tp * dp) + (1 - expert_share) / tp))


def weights_steps(llm: Llm, deployment: Deployment, size: WeightsSize, per_gpu: int) -> list[Step]:
    """The two lines of working for the weights."""
    tp, pp, dp = deployment.tp, deployment.pp, deployment.dp
    formula, substituted = "weights_bytes / tp", f"{size.num_bytes} / {tp}"
    if pp > 1:
        layers = llm.num_layers
        formula += " x ceil(layers / pp) / layers"
        substituted += f" x ceil({layers} / {pp}) / {layers}" if layers else f" / {pp}"
    if dp > 1 and llm.num_expert_params:
        formula += " x (1 - expert_share + expert_share / dp)"
        share = f"{llm.num_expert_params}/{llm.num_params}"
        substituted += f" x (1 - {share} + {share} / {dp})"
    return [
        step(
            "weights_bytes",
            "recorded size of the checkpoint" if size.basis == "datasheet" else "params x bytes_per_param",
            size.substituted,
            size.num_bytes,
            "bytes",
            size.source,
            basis=size.basis,
        ),
        step("weights_bytes_per_gpu", formula, substituted, per_gpu, "bytes", "https://arxiv.org/abs/1909.08053 (tensor parallelism)"),
    ]
