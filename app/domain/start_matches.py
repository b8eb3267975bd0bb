"""What the printed sizes show that nobody says: the precision of cache and weights, and whose version's rules were at work."""

from collections.abc import Sequence

from app.domain.deployment import Deployment
from app.domain.engine_start import EngineStart
from app.domain.errors import PlannerError
from app.domain.precision import WEIGHTS, KvChoice, WeightFormat
from app.domain.reconciliation import CLOSE_RATIO, Compute, Estimate, cache_ratio, printed_pool_bytes

_KV_CHOICES: tuple[KvChoice, ...] = ("bf16", "fp8", "fp4", "q8_0")
_WEIGHTS: dict[str, WeightFormat] = {
    "awq": "awq",
    "gptq": "gptq",
    "fp8": "fp8",
    "mxfp4": "mxfp4",
    "nvfp4": "nvfp4",
    "modelopt_fp4": "nvfp4",
}
"""Names of quantisations in engines' logs, by how they begin; others, such as `compressed-tensors`, may be any format."""
_MIXES = {" - small": "_s", " - medium": "_m", " - large": "_l"}
"""How llama.cpp prints the mixes of its file types, and how their names are written."""
_GUESSED: tuple[WeightFormat, ...] = ("fp8", "nvfp4", "mxfp4", "int4", "awq", "gptq")
NEAR_RATIO = 0.08
"""Weights whose quantisation is not named are taken for a format when its size is within this: embeddings in 16 bits differ by so much."""


def matching_kv_cache(start: EngineStart, deployment: Deployment, estimate: Estimate, compute: Compute) -> KvChoice | None:
    """The precision of the cache that explains the printed figures where the assumed one does not."""
    ratio = cache_ratio(start, estimate)
    if ratio is None or abs(ratio - 1) <= 2 * CLOSE_RATIO:
        return None
    for choice in _KV_CHOICES:
        try:
            other = compute(deployment.model_copy(update={"kv_cache": choice}))
        except PlannerError:
            continue
        found = cache_ratio(start, other)
        if other.kv_format != estimate.kv_format and found is not None and abs(found - 1) <= CLOSE_RATIO:
            return choice
    return None


def matching_version(
    start: EngineStart, deployment: Deployment, estimate: Estimate, versions: Sequence[str], compute: Compute
) -> str | None:
    """The version whose rules give the printed number of sequences, where neither log nor request says the version and the newest do not.

    Of several the one that comes nearest to the printed pool; the precision of the cache is another explanation, tried after this one.
    """
    ratio = cache_ratio(start, estimate)
    if deployment.engine_version is not None or ratio is None or abs(ratio - 1) <= CLOSE_RATIO:
        return None
    best: tuple[int, str] | None = None
    for version in versions:
        other = compute(deployment.model_copy(update={"engine_version": version}))
        found = cache_ratio(start, other)
        gap = abs(other.kv_cache_bytes - (printed_pool_bytes(start) or 0))
        if found is not None and abs(found - 1) <= CLOSE_RATIO and (best is None or gap < best[0]):
            best = gap, version
    return best[1] if best else None


def _format_called(named: str) -> WeightFormat | None:
    """The format of that name, as an engine's log spells it."""
    for printed, written in _MIXES.items():
        named = named.replace(printed, written)
    by_name: dict[str, WeightFormat] = {each: each for each in WEIGHTS}
    return by_name.get(named) or next((choice for beginning, choice in _WEIGHTS.items() if named.startswith(beginning)), None)


def matching_weights(start: EngineStart, deployment: Deployment, estimate: Estimate, compute: Compute) -> WeightFormat | None:
    """The format of the weights that explains their printed size: the printed quantisation, or the one that comes closest."""
    printed = start.weights_bytes_per_gpu
    if deployment.weights is not None or printed is None or _is_near(printed, estimate.weights_bytes):
        return None
    named = (start.quantization or "").lower()
    choice = _format_called(named)
    if choice is None and not named and start.engine == "llama.cpp":
        return None
    farthest = abs(estimate.weights_bytes - printed) if named else NEAR_RATIO * printed
    sizes = {
        weights: compute(deployment.model_copy(update={"weights": weights})).weights_bytes
        for weights in ((choice,) if choice else _GUESSED)
    }
    best = min(sizes, key=lambda weights: abs(sizes[weights] - printed))
    return best if abs(sizes[best] - printed) < farthest else None


def _is_near(printed: int, estimated: int) -> bool:
    return abs(printed - estimated) <= 0.05 * estimated
