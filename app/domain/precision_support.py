"""Which precisions an accelerator serves, as the documentation of the engines says."""

from app.domain.hardware import Gpu
from app.domain.precision import KvFormat

FP8 = "https://docs.vllm.ai/en/v0.32.0/features/quantization/llm_compressor/fp8/"
INT8 = "https://docs.vllm.ai/en/latest/features/quantization/int8/"
FOUR_BITS = "https://docs.vllm.ai/en/v0.14.0/features/quantization/ (supported hardware)"
NVFP4 = "https://developer.nvidia.com/blog/introducing-nvfp4-for-efficient-and-accurate-low-precision-inference/"
CACHE = "https://docs.vllm.ai/en/v0.11.2/features/quantization/quantized_kvcache/"
_LEAST_NVIDIA = {"fp8": (7, 5), "int8": (7, 5), "awq": (7, 5), "gptq": (7, 0), "int4": (7, 5), "nvfp4": (10, 0), "mxfp4": (7, 5)}
"""Least compute capability: FP8 and MXFP4 weights are widened to 16 bits where the matrix units lack the format. NVFP4 is counted where
they have it; engines widen it elsewhere, which INT4 does as well with fewer bytes."""
_INT8_ENDS = (10, 0)


def weights_refusal(gpu: Gpu, weights: str) -> str | None:
    """Why an accelerator does not serve weights in a format, None where it does or where nothing is known that speaks against it.

    NVIDIA: by compute capability. Others: FP8 where the matrix units compute in it, INT4 not in vLLM's kernels for AMD.
    """
    capability = _capability(gpu)
    if capability is not None:
        least = _LEAST_NVIDIA.get(weights)
        if least is not None and capability < least:
            return f"{weights} weights need compute capability {least[0]}.{least[1]}, {gpu.slug} has {gpu.compute_capability}"
        if weights == "int8" and capability >= _INT8_ENDS:
            return f"int8 products are not supported from compute capability 10.0 on, {gpu.slug} has {gpu.compute_capability}"
        return None
    if weights == "fp8" and gpu.supports is not None and not gpu.supports.fp8:
        return f"{gpu.slug} does not compute in fp8"
    if weights == "nvfp4":
        return f"nvfp4 is a format of NVIDIA accelerators, {gpu.slug} is none that is known to compute in it"
    if (gpu.vendor or "").casefold() == "amd" and weights in ("awq", "gptq", "int4", "int8"):
        return f"{weights} kernels of the engine do not run on AMD accelerators such as {gpu.slug}"
    return None


def cache_refusal(gpu: Gpu, kv_format: KvFormat) -> str | None:
    """Why an accelerator does not serve a cache in a format, None where it does: FP8 and FP4 need the hardware to convert them."""
    supports = gpu.supports
    if supports is not None and ((kv_format == "fp8" and not supports.fp8) or (kv_format == "fp4" and not supports.fp4)):
        return f"{gpu.slug} does not convert a {kv_format} cache in hardware"
    return None


def _capability(gpu: Gpu) -> tuple[int, int] | None:
    """Compute capability of an NVIDIA accelerator, None of others and where it is not known."""
    major, _, minor = (gpu.compute_capability or "").partition(".")
    if (gpu.vendor or "").casefold() != "nvidia" or not (major.isdigit() and minor.isdigit()):
        return None
    return int(major), int(minor)
