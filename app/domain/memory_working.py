"""The working of `/memory`, which the answers that build on it begin with: from parameters to token positions."""

from app.domain.deployment import Deployment
from app.domain.engine_working import engine_budget_steps, pool_steps
from app.domain.hardware import Gpu
from app.domain.kv_cache import KvCost, kv_cost, resolve_kv_format
from app.domain.kv_working import kv_cost_steps, sequence_step
from app.domain.llm import Llm
from app.domain.loaded_weights_working import loaded_weights_steps
from app.domain.memory import GENERIC_RESERVE_RATIO
from app.domain.memory_fit import Fit
from app.domain.provenance import Step, step
from app.domain.units import plain
from app.domain.weights import weights_steps

RESERVE_SOURCE = (
    "middle of the 10 to 20 % that serving guides leave free at first; vLLM's default leaves 10 % before activations, "
    "https://docs.vllm.ai/en/stable/configuration/engine_args.html (gpu_memory_utilization)"
)


def memory_steps(llm: Llm, gpu: Gpu, deployment: Deployment, found: Fit) -> list[Step]:
    """The working from parameters to token positions."""
    if found.loaded is not None:
        steps = loaded_weights_steps(found.loaded, deployment)
    else:
        steps = weights_steps(llm, deployment, found.weights, found.weights_bytes_per_gpu)
    steps += _budget_steps(gpu, deployment, found) if found.settings is None else engine_budget_steps(gpu, deployment, found)
    formula = "max(0, budget_bytes - weights_bytes_per_gpu - reserve_bytes)"
    text = f"max(0, {found.budget_bytes} - {found.weights_bytes_per_gpu} - {found.reserve_bytes})"
    if found.holds_one_context:
        formula, text = f"min({formula}, KV cache of one context)", f"min({text}, {found.longest_sequence_bytes})"
    steps.append(step("kv_cache_bytes", formula, text, found.kv_cache_bytes, "bytes", "sum of the terms above"))
    if found.pool is not None:
        return steps + pool_steps(found, found.pool)
    if found.cost is not None:
        steps += _capacity_steps(llm, deployment, found, found.cost)
    return steps


def _capacity_steps(llm: Llm, deployment: Deployment, found: Fit, cost: KvCost) -> list[Step]:
    kv_format = resolve_kv_format(llm, deployment.kv_cache)
    whole = kv_cost(llm, kv_format)
    length, per_sequence, capacity = found.max_model_len_tokens or 1, found.longest_sequence_bytes, found.capacity_tokens()
    steps = [
        kv_cost_steps(llm, kv_format, whole)[0],
        *kv_cost_steps(llm, kv_format, cost, tp=deployment.tp, pp=deployment.pp, per_gpu=True),
    ]
    if capacity is None:
        return steps
    return [
        *steps,
        sequence_step(cost, length, per_sequence, "kv_bytes_per_longest_sequence_per_gpu"),
        step(
            "kv_capacity_tokens",
            "floor(kv_cache_bytes x max_model_len_tokens / kv_bytes_per_longest_sequence_per_gpu)",
            f"floor({found.kv_cache_bytes} x {length} / {per_sequence})",
            capacity,
            "tokens",
            "https://github.com/vllm-project/vllm/blob/main/vllm/v1/core/kv_cache_utils.py (token line = concurrency x length)",
        ),
    ]


def _budget_steps(gpu: Gpu, deployment: Deployment, found: Fit) -> list[Step]:
    """Budget and reserve of the generic engine."""
    basis_source = gpu.memory_basis.basis if gpu.memory_basis else "request"
    fraction = deployment.memory_fraction_ratio
    steps = [
        step(
            "budget_bytes",
            "floor(memory_bytes x memory_fraction_ratio)",
            f"floor({found.memory_bytes} x {plain(fraction or 1)})",
            found.budget_bytes,
            "bytes",
            f"{gpu.slug}: {basis_source}",
            basis="datasheet" if gpu.memory_basis else "exact",
        )
    ]
    if deployment.reserve_bytes_per_gpu is not None:
        reserve = ("given", str(found.reserve_bytes), "request")
    elif fraction is not None:
        reserve = ("0: memory_fraction_ratio takes its place", "0", "request")
    else:
        reserve = ("floor(memory_bytes x reserve ratio)", f"floor({found.memory_bytes} x {GENERIC_RESERVE_RATIO})", RESERVE_SOURCE)
    steps.append(
        step(
            "reserve_bytes",
            reserve[0],
            reserve[1],
            found.reserve_bytes,
            "bytes",
            reserve[2],
            basis="exact" if reserve[2] == "request" else "assumed",
        )
    )
    return steps
