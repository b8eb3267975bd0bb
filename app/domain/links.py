"""The slowest link between the accelerators of a replica."""

from typing import NamedTuple

from app.domain.hardware import Gpu

PCIE_BYTES_PER_S = {"3.0": 31.5e9, "4.0": 63e9, "5.0": 126e9, "6.0": 252e9}
"""x16 slots by generation, both directions added, after line coding [bytes/s]: https://pcisig.com/specifications."""
NODE_GPUS = 8
"""Accelerators of the usual server: https://www.nvidia.com/en-us/data-center/hgx/."""
NETWORK_BYTES_PER_S = 1e11
"""One 400 Gbit/s adapter for each accelerator, both directions added [bytes/s], as DGX H100 has them:
https://docs.nvidia.com/dgx/dgxh100-user-guide/introduction-to-dgxh100.html. Assumed where a replica spans servers."""


class Link(NamedTuple):
    """What carries the traffic between ranks."""

    kind: str
    """The interconnect's own kind, pcie, network, or `unknown`."""
    bytes_per_s: float | None
    """One accelerator, both directions added [bytes/s]; None where it is not known."""

    @property
    def one_way_bytes_per_s(self) -> float | None:
        """What one accelerator sends while it receives as much [bytes/s]."""
        return None if self.bytes_per_s is None else self.bytes_per_s / 2


def link_between(gpu: Gpu, num_gpus: int) -> Link:
    """The link that the slowest pair of `num_gpus` accelerators shares: interconnect within its domain, PCIe within a server, else network.

    >>> from app.domain.hardware import Interconnect
    >>> bridged = Interconnect(kind="nvlink", generation="bridge", num_gpus_per_domain=2, bandwidth_bytes_per_s=6e11)
    >>> [link_between(Gpu(slug="g", name="g", interconnect=bridged, pcie_generation="4.0"), n).kind for n in (2, 4, 16)]
    ['nvlink', 'pcie', 'network']
    """
    inside = gpu.interconnect
    if inside is not None and num_gpus <= (inside.num_gpus_per_domain or NODE_GPUS):
        return Link(inside.kind, inside.bandwidth_bytes_per_s)
    if num_gpus > NODE_GPUS:
        return Link("network", NETWORK_BYTES_PER_S)
    if gpu.pcie_generation in PCIE_BYTES_PER_S:
        return Link("pcie", PCIE_BYTES_PER_S[gpu.pcie_generation])
    return Link("unknown", None)
