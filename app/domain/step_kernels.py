"""How many kernels a step launches, by what they do."""

from typing import NamedTuple

from app.domain.kernels import KernelsPerLayer
from app.domain.step_constants import Constants
from app.domain.step_work import StepWork

SIXTEEN_BITS = ("fp16", "bf16", "fp32")


class KernelCount(NamedTuple):
    """Kernels of one kind in a step."""

    per_layer: int
    num_layers: float
    ratio: float
    """Fixed time of one / kernel_s."""


def kernel_counts(work: StepWork, kernels: KernelsPerLayer, constants: Constants) -> list[KernelCount]:
    """Kernels of a step by kind; activations are quantised where products run below 16 bits."""
    layers, products, latent, quantise = (
        work.model.layers,
        work.products,
        constants.latent_kernel_ratio,
        constants.quantise_kernel_ratio,
    )
    found = [
        KernelCount(kernels.num_attention, layers.attention, 1.0),
        KernelCount(kernels.num_qk_norm, layers.qk_norm, 1.0),
        KernelCount(kernels.num_recurrent, layers.recurrent, 1.0),
        KernelCount(kernels.num_dense, layers.dense, 1.0),
        KernelCount(kernels.num_latent, layers.latent, latent),
        KernelCount(kernels.num_indexer, layers.indexer, latent),
        KernelCount(kernels.num_expert, layers.expert, constants.expert_kernel_ratio),
        KernelCount(kernels.num_shared, layers.shared, constants.shared_kernel_ratio),
    ]
    if products.mixer_format not in SIXTEEN_BITS:
        found += [
            KernelCount(kernels.num_quantise_attention, layers.attention + layers.recurrent, quantise),
            KernelCount(kernels.num_quantise_latent, layers.latent, quantise),
            KernelCount(kernels.num_quantise_dense, layers.dense, quantise),
            KernelCount(kernels.num_quantise_shared, layers.shared, quantise),
        ]
    if products.expert_format not in SIXTEEN_BITS:
        found.append(KernelCount(kernels.num_quantise_expert, layers.expert, quantise))
    return [count for count in found if count.num_layers]


def num_kernels(work: StepWork, kernels: KernelsPerLayer, constants: Constants) -> float:
    """Kernels of a step, each counted by how long it takes against others."""
    return sum(count.per_layer * count.num_layers * count.ratio for count in kernel_counts(work, kernels, constants))
