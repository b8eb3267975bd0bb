"""An engine whose memory is a straight line, and printed figures reconciled with it."""

from typing import Any

from app.domain.deployment import Deployment
from app.domain.engine_start import EngineStart, ReadStart
from app.domain.errors import InvalidInput
from app.domain.precision import KvFormat
from app.domain.provenance import Note, Versions
from app.domain.reconciliation import Estimate
from app.domain.reconciliation_answer import ReconciliationAnswer, answer_reconciliation
from app.domain.units import GIB

MEMORY = 80 * GIB
WEIGHTS = {None: 30 * GIB, "fp8": 15 * GIB, "nvfp4": 9 * GIB}
TOKEN_BYTES = {"bf16": 131_072, "fp8": 65_536, "fp4": 36_864, "q8_0": 69_632}


def compute(deployment: Deployment) -> Estimate:
    """pool = 80 GiB x fraction - weights / tp - (reserve, or 4 MiB x max_num_seqs + 1 GiB)."""
    if deployment.tp == 3:
        raise InvalidInput("tp 3 does not divide the heads")
    budget = int(MEMORY * (deployment.memory_fraction_ratio or 0.9))
    weights = WEIGHTS.get(deployment.weights, 40 * GIB) // deployment.tp
    activation = 0 if deployment.reserve_bytes_per_gpu is not None else 4 * 2**20 * (deployment.max_num_seqs or 256)
    outside = 0 if deployment.reserve_bytes_per_gpu is not None else GIB
    pool = max(0, budget - weights - (deployment.reserve_bytes_per_gpu or 0) - activation - outside)
    kv_format: KvFormat = "bf16" if deployment.kv_cache == "auto" else deployment.kv_cache
    tokens = pool // TOKEN_BYTES[kv_format]
    if deployment.engine_version == "0.9":
        tokens = tokens * 5 // 4
    return Estimate(
        memory_bytes=MEMORY,
        budget_bytes=budget,
        weights_bytes=weights,
        activation_bytes=activation,
        cuda_graph_bytes=0,
        outside_bytes=outside,
        graphs_outside_bytes=0,
        kv_cache_bytes=pool,
        kv_cache_tokens=tokens,
        concurrency_ratio=tokens / (deployment.max_model_len_tokens or 8192),
        verdict="serves" if pool else "loads_only",
        kv_format=kv_format,
        notes=(Note(code="default_max_num_seqs", message="max_num_seqs was not given: 256 is used."),),
    )


def reconcile(deployment: Deployment | None = None, **printed: Any) -> ReconciliationAnswer:
    return answer_reconciliation(
        "m",
        "g",
        deployment or Deployment(),
        ReadStart(start=EngineStart(**printed), notes=[]),
        compute=compute,
        engine_versions=["0.1", "0.9"],
        notes=[],
        assumptions=[],
        versions=Versions(planner="1", catalog="1"),
    )


def codes(answer: ReconciliationAnswer) -> list[str]:
    return [note.code for note in answer.explanations]
