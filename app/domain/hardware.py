"""Accelerators: memory, bandwidth, peak rates, interconnect. A figure that is not known is None and never guessed."""

import re
from datetime import date
from typing import Annotated, Literal, TypeVar

from pydantic import Field, PositiveInt

from app.domain.errors import MissingFigure
from app.domain.value import Given, Slug

NumberFormat = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4", "int4"]
Rate = Annotated[float, Field(ge=1, le=1e21)]
Figure = TypeVar("Figure", int, float)


_MAKERS = (
    ("AMD", r"\bamd\b|instinct|radeon|\bmi[1-9]\d{1,2}[a-z]?\b|\brx ?[5-9]\d{3}\b"),
    ("NVIDIA", r"nvidia|geforce|quadro|tesla|\brtx\b|\bgtx\b|\b[ablhtv]\d{1,3}s?\b|\bg[bh]\d{2,3}\b"),
    ("Google", r"\btpu\b"),
)
"""Words of product names: https://www.amd.com/en/products/accelerators/instinct.html, https://www.nvidia.com/en-us/data-center/."""


class PeakFlops(Given):
    """Dense peak rate per number format, without sparsity; None where the format is unsupported or the figure unknown."""

    fp32: Rate | None = None
    """Single precision [FLOP/s]."""
    tf32: Rate | None = None
    """TensorFloat-32 [FLOP/s]."""
    fp16: Rate | None = None
    """Half precision [FLOP/s]."""
    bf16: Rate | None = None
    """bfloat16 [FLOP/s]."""
    fp8: Rate | None = None
    """8-bit floating point [FLOP/s]."""
    int8: Rate | None = None
    """8-bit integer [OP/s]."""
    fp4: Rate | None = None
    """4-bit floating point [FLOP/s]."""
    int4: Rate | None = None
    """4-bit integer [OP/s]."""


class NumberSupport(Given):
    """Which number formats the matrix units compute in; a format without support is computed in 16 bits after conversion."""

    bf16: bool
    """bfloat16."""
    fp8: bool
    """8-bit floating point."""
    fp4: bool
    """4-bit floating point."""


class MemoryBasis(Given):
    """How `memory_bytes` is known: what the driver or the runtime reports, not the marketing figure."""

    basis: str
    """What the figure is."""
    driver_total_bytes: PositiveInt | None = None
    """Total that the driver's tool prints per device (nvidia-smi prints whole MiB) [bytes]."""
    runtime_total_bytes: PositiveInt | None = None
    """Total that the runtime reports to a program per device (logs print GiB to two decimals) [bytes]."""
    source: str | None = None
    """Where it was seen."""


class Interconnect(Given):
    """How the accelerators of one node reach each other."""

    kind: str
    """nvlink, xgmi, pcie, ..."""
    generation: str
    """Generation as the vendor names it."""
    num_gpus_per_domain: PositiveInt | None = None
    """Accelerators that are joined at this speed."""
    bandwidth_bytes_per_s: Rate | None = None
    """Bandwidth of one accelerator, both directions added [bytes/s]."""


class Gpu(Given):
    """An accelerator."""

    slug: Slug
    """Name in the catalog."""
    name: str = Field(max_length=200)
    """Name as the vendor writes it."""
    vendor: str | None = None
    """Maker."""
    architecture: str | None = None
    """Chip generation."""
    compute_capability: str | None = None
    """CUDA compute capability, or the vendor's own target name."""
    marketing_memory_bytes: PositiveInt | None = None
    """Memory as advertised, the vendor's GB taken as 10^9; for people, never for arithmetic [bytes]."""
    memory_bytes: Annotated[int, Field(gt=0, le=10**15)] | None = None
    """Memory that the runtime reports [bytes]."""
    memory_basis: MemoryBasis | None = None
    """How the memory figure is known."""
    memory_bandwidth_bytes_per_s: Rate | None = None
    """Peak memory bandwidth [bytes/s]."""
    peak_flops_per_s: PeakFlops = PeakFlops()
    """Dense peak rates."""
    supports: NumberSupport | None = None
    """Number formats of the matrix units; None when not known."""
    interconnect: Interconnect | None = None
    """Links to the other accelerators of the node."""
    pcie_generation: str | None = None
    """PCIe generation to the host."""
    tdp_watts: PositiveInt | None = None
    """Board power [W]."""
    form_factor: str | None = None
    """Board form."""
    release_year: Annotated[int, Field(ge=2000, le=2100)] | None = None
    """Year of release."""
    confidence: Literal["high", "medium", "low"] | None = None
    """How well the figures are sourced."""
    notes: tuple[str, ...] = ()
    """What to know about the entry."""
    sources: tuple[str, ...] = ()
    """Where the figures come from."""
    checked_on: date | None = None
    """Day on which the figures were last checked against the sources."""

    def require_memory_bytes(self) -> int:
        """Memory [bytes]; raises MissingFigure when the catalog does not know it."""
        return _known(self.memory_bytes, self.slug, "memory_bytes")

    def require_bandwidth_bytes_per_s(self) -> float:
        """Memory bandwidth [bytes/s]; raises MissingFigure when the catalog does not know it."""
        return _known(self.memory_bandwidth_bytes_per_s, self.slug, "memory_bandwidth_bytes_per_s")

    def require_peak_flops_per_s(self, number_format: NumberFormat) -> float:
        """Dense peak rate in a number format [FLOP/s]; raises MissingFigure when the catalog does not know it."""
        rate: float | None = getattr(self.peak_flops_per_s, number_format)
        return _known(rate, self.slug, f"peak_flops_per_s.{number_format}")


def vendor_of(name: str | None) -> str | None:
    """The maker that the name of an accelerator tells; None where it tells none.

    >>> vendor_of("RX 9070 XT (16 GB)"), vendor_of("NVIDIA L40S"), vendor_of("48 GB")
    ('AMD', 'NVIDIA', None)
    """
    return next((maker for maker, pattern in _MAKERS if re.search(pattern, name or "", re.IGNORECASE)), None)


def _known(figure: Figure | None, slug: str, name: str) -> Figure:
    if figure is None:
        raise MissingFigure(
            f"{name} of {slug} is not known and the calculation needs it",
            field="/gpu",
            value=slug,
            expected=f"a GPU whose {name} is known, or an inline gpu that states it",
        )
    return figure
