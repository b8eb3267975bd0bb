"""Memory of the weights: the whole model and its share on one accelerator."""

import math
from typing import NamedTuple

from app.domain.deployment import Deployment
from app.domain.llm import Llm
from app.domain.precision import WEIGHTS, WeightFormat
from app.domain.provenance import Basis, Step, step
from app.domain.units import plain

PER_PARAM = "params x bytes_per_param"


class WeightsSize(NamedTuple):
    """Size of the weights and how it is known."""

    num_bytes: int
    basis: Basis
    source: str
    formula: str
    substituted: str


def weights_size(llm: Llm, weights: WeightFormat | None) -> WeightsSize:
    """Weights of the whole model: params x bytes_per_param [bytes].

    None is the checkpoint's own precision: the size recorded with it where there is one, else 16 bits per parameter (then `assumed`). A
    recorded size is `datasheet` when it was read, `exact` when it is bytes x parameters, `assumed` when it is an estimate over the parts
    of a quantised checkpoint. A format is applied to every parameter; scales of grouped formats are counted, tensors that a checkpoint
    leaves in 16 bits are not yet.

    >>> from app.domain.llm import Llm
    >>> weights_size(Llm(slug="m", num_params=70_000_000_000, num_active_params=70_000_000_000), "fp8").num_bytes
    70000000000
    """
    if weights is None:
        native = llm.native
        if native.weights_bytes is not None:
            return _recorded(llm, native.weights_bytes, native.weights_basis or llm.slug)
        return WeightsSize(2 * llm.num_params, "assumed", "16 bits per parameter, as most checkpoints", PER_PARAM, f"{llm.num_params} x 2")
    cost = WEIGHTS[weights]
    substituted = f"ceil({llm.num_params} x {plain(cost.bytes_per_element)})"
    return WeightsSize(weights_bytes(llm, weights), "exact", cost.source, PER_PARAM, substituted)


def _recorded(llm: Llm, num_bytes: int, how: str) -> WeightsSize:
    """The size that is recorded with a model, labelled by how it was obtained."""
    each, rest = divmod(num_bytes, llm.num_params)
    if rest == 0 and how.endswith(f"{each} bytes x num_params"):
        return WeightsSize(num_bytes, "exact", how, PER_PARAM, f"{llm.num_params} x {each}")
    if how.startswith("arithmetic"):
        return WeightsSize(num_bytes, "assumed", how, "estimated size of the checkpoint, part by part", str(num_bytes))
    return WeightsSize(num_bytes, "datasheet", how, "recorded size of the checkpoint", str(num_bytes))


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
            size.formula,
            size.substituted,
            size.num_bytes,
            "bytes",
            size.source,
            basis=size.basis,
        ),
        step(
            "weights_bytes_per_gpu",
            f"ceil({formula})",
            f"ceil({substituted})",
            per_gpu,
            "bytes",
            "https://arxiv.org/abs/1909.08053 (tensor parallelism)",
        ),
    ]
