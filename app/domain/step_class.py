"""What the constants of a step depend on: engine, accelerator, weights, kind of model, load."""

from typing import Literal, NamedTuple

from app.domain.deployment import EngineName
from app.domain.hardware import Gpu
from app.domain.step_work import WeightClass

GpuClass = Literal["hopper", "blackwell", "ampere", "card", "amd", "other"]
"""Accelerators whose kernels behave alike; `card` is every other NVIDIA device."""
Kind = Literal["dense", "moe"]
Load = Literal["served", "burst", "offline", "batch"]
"""served: over HTTP; burst: all requests at once over HTTP; offline: a run without a server, as many at once as the engine takes; batch:
one batch without a server."""


class StepClass(NamedTuple):
    """What constants depend on."""

    engine: EngineName
    gpu_class: GpuClass
    weights: WeightClass
    kind: Kind
    load: Load = "served"
    era: str | None = None
    """Range of versions whose constants differ, as the file calls it."""
    dense_weights: WeightClass = "16"
    """Weights outside the experts."""
    link: str = "none"
    """Kind of link between tensor-parallel ranks; none where there is one rank."""


def gpu_class(gpu: Gpu) -> GpuClass:
    """The class of accelerators whose kernels behave alike."""
    architecture, vendor = (gpu.architecture or "").casefold(), (gpu.vendor or "").casefold()
    if vendor == "amd":
        return "amd"
    if vendor != "nvidia":
        return "other"
    if architecture.startswith("hopper"):
        return "hopper"
    if architecture.startswith("blackwell") and (gpu.compute_capability or "").startswith("10."):
        return "blackwell"
    return "ampere" if gpu.slug.startswith(("a100", "a800")) else "card"
