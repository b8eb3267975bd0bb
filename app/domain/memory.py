"""Does it fit: weights, reserve and KV cache against the memory of one accelerator."""

from collections.abc import Iterator

from app.domain.deployment import FITTED_LENGTH, Deployment, check_layout
from app.domain.engine import EngineMemory
from app.domain.engine_fit import engine_fit, with_band, with_length
from app.domain.errors import InvalidInput
from app.domain.hardware import Gpu
from app.domain.kv_cache import kv_cost, kv_is_known, resolve_kv_format
from app.domain.llm import Llm
from app.domain.memory_fit import Fit, verdict_of
from app.domain.weights import weights_bytes_per_gpu, weights_size

GENERIC_RESERVE_RATIO = 0.15
"""Memory that the generic engine keeps beside weights and KV cache. Serving guides advise to leave 10 to 20 % of the device free at
first (the middle, 15 %, is the 12 GB of an 80 GB card that such guides use in their examples); vLLM's default of 0.9 leaves 10 %
outside its budget before activations: https://docs.vllm.ai/en/stable/configuration/engine_args.html (gpu_memory_utilization)."""


def fit(llm: Llm, gpu: Gpu, deployment: Deployment, engine: EngineMemory | None = None, *, loaded_bytes: int | None = None) -> Fit:
    """Memory of one replica on its fullest accelerator, by the rules of `engine`; None is the generic engine.

    Generic: budget = memory x fraction; kv = budget - weights/gpu - reserve, all [bytes]; the reserve is `reserve_bytes_per_gpu`, or
    GENERIC_RESERVE_RATIO of the memory unless a memory fraction takes its place. `does_not_fit` when the weights exceed the memory;
    `loads_only` when no KV cache is left, or not even one sequence of the longest admitted length fits; else `serves`.
    Engines: see `engine_budget.budget_of`; the verdict is that of their first start-up check that fails. `loaded_bytes` are weights per
    accelerator that were measured. Raises InvalidInput for an impossible layout, MissingFigure when the catalog lacks the memory size.
    """
    found = trial_fit(llm, gpu, deployment, engine, loaded_bytes=loaded_bytes)
    return found if engine is None else with_band(found, llm, gpu, deployment)


def trial_fit(llm: Llm, gpu: Gpu, deployment: Deployment, engine: EngineMemory | None, *, loaded_bytes: int | None = None) -> Fit:
    """The same as `fit` without the upper end of the band and the notes, which a search does not read. Raises as `fit` does."""
    check_layout(llm, deployment)
    memory = gpu.require_memory_bytes()
    reserve = deployment.reserve_bytes_per_gpu
    if reserve is not None and reserve > memory:
        raise InvalidInput(
            f"the reserve of {reserve} bytes is more than the {memory} bytes of {gpu.slug}",
            field="/deployment/reserve_bytes_per_gpu", value=reserve, expected=f"at most {memory}",
        )  # fmt: skip
    cost = None
    if kv_is_known(llm):
        kv_format = resolve_kv_format(llm, deployment.kv_cache)
        cost = kv_cost(llm, kv_format, tp=deployment.tp, pp=deployment.pp, field="/deployment/kv_cache")
    fits_length = deployment.max_model_len_tokens == FITTED_LENGTH
    if fits_length:
        _check_fitted_length(llm, engine)
    length = llm.max_model_len_tokens if fits_length else deployment.max_model_len_tokens or llm.max_model_len_tokens
    if engine is not None:
        found = engine_fit(llm, gpu, deployment, engine, loaded_bytes, cost, length)
        longest_len = longest_len_tokens(found, found.kv_room_bytes) if fits_length else None
        return found if longest_len is None else with_length(found, llm, gpu, deployment, loaded_bytes, longest_len)
    weights = weights_size(llm, deployment.weights)
    per_gpu = weights_bytes_per_gpu(llm, weights.num_bytes, tp=deployment.tp, pp=deployment.pp, dp=deployment.dp)
    fraction = deployment.memory_fraction_ratio
    budget = memory if fraction is None else int(memory * fraction)
    if reserve is None:
        reserve = int(GENERIC_RESERVE_RATIO * memory) if fraction is None else 0
    room = budget - per_gpu - reserve
    longest = cost.sequence_bytes(length or 1) if cost is not None else 0
    verdict, limiting = verdict_of(per_gpu, memory, room, longest)
    return Fit(weights, per_gpu, memory, budget, reserve, room, cost, length, longest, verdict, limiting)


def _check_fitted_length(llm: Llm, engine: EngineMemory | None) -> None:
    field = "/deployment/max_model_len_tokens"
    if engine is None or not engine.fits_length:
        named = "the generic engine" if engine is None else engine.slug
        raise InvalidInput(
            f"{named} does not choose the longest sequence itself", field=field, value=FITTED_LENGTH,
            expected="at least 1; -1 for vllm from 0.14 on",
        )  # fmt: skip
    if llm.max_model_len_tokens is None:
        raise InvalidInput(
            f"the longest context of {llm.slug} is not known, so that it cannot be fitted", field=field, value=FITTED_LENGTH,
            expected="a length, or a model that states max_model_len_tokens",
        )  # fmt: skip


def valid_tps(llm: Llm, largest: int = 64) -> Iterator[int]:
    """Tensor-parallel degrees up to `largest` that the model can be split into, ascending; powers of two where heads are unknown."""
    kv_heads = {group.mixer.num_kv_heads for group in llm.layer_groups or () if group.mixer and group.mixer.kind == "attention"}
    heads = llm.num_attention_heads
    for tp in range(1, largest + 1):
        if (heads % tp == 0 if heads is not None else tp & (tp - 1) == 0) and all(kv % tp == 0 or tp % kv == 0 for kv in kv_heads):
            yield tp


def longest_len_tokens(found: Fit, room_bytes: int) -> int | None:
    """The longest sequence that fits alone in a KV room [tokens], or None when none does or the KV cost is unknown."""
    if found.cost is None or room_bytes <= 0:
        return None
    low, high = 0, found.max_model_len_tokens or 10**9
    needed = found.cost.sequence_bytes if found.pool is None else found.pool.request_bytes
    while low < high:
        middle = (low + high + 1) // 2
        if needed(middle) <= room_bytes:
            low = middle
        else:
            high = middle - 1
    return low or None
