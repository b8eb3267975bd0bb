"""The calculations: resolve names against the catalog snapshot, name the defaults, call the domain."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic import BaseModel

from app.domain.catalog import Catalog
from app.domain.concurrency import ConcurrencyAnswer, answer_concurrency
from app.domain.demand import demand_of
from app.domain.deployment import Deployment, check_layout
from app.domain.kv_answer import KvAnswer, answer_kv
from app.domain.kv_engine import KvInEngine, kv_in_engine
from app.domain.memory_answer import MemoryAnswer, answer_memory
from app.domain.performance import BENCHMARK_WAVES, performance_of
from app.domain.performance import Lengths as RequestLengths
from app.domain.performance_answer import PerformanceAnswer, answer_performance
from app.domain.prefix_cache import kept_once
from app.domain.provenance import Answer, Note, Step
from app.domain.units import plain
from app.services.assumptions import cache_defaults, checkpoint_notes, default_used, defaults_used, deployment_defaults
from app.services.capacity import capacity, check_prefix
from app.services.cost import cost
from app.services.cost_request import CostRequest
from app.services.prefix_cache import prefix_cache_of
from app.services.references import as_deployed, engine_of, resolve_gpu, resolve_model, resolve_served, with_draft
from app.services.requests import CapacityRequest, ConcurrencyRequest, KvRequest, MemoryRequest, PerformanceRequest
from app.services.versions import versions_of


def memory(catalog: Catalog, request: MemoryRequest) -> MemoryAnswer:
    """Does a replica fit; raises PlannerError for unknown names, impossible layouts and missing figures."""
    llm, gpu = resolve_served(catalog, request.model, request.deployment), resolve_gpu(catalog, request.gpu)
    deployment, notes = as_deployed(catalog, request.deployment, llm, gpu)
    notes = deployment_defaults(llm, gpu, deployment) + notes
    engine = engine_of(catalog, deployment)
    return answer_memory(llm, gpu, deployment, engine=engine, gpus=catalog.gpus.values(), assumptions=notes, versions=versions_of(catalog))


def kv(catalog: Catalog, request: KvRequest) -> KvAnswer:
    """How large the KV cache is; raises PlannerError for unknown names and models whose layers are not known."""
    llm = resolve_model(catalog, request.model)
    check_layout(llm, Deployment(tp=request.tp), field="/tp")
    notes = checkpoint_notes(llm)
    notes += defaults_used(request, "tp", "num_sequences", "block_size_tokens")
    if "context_tokens" not in request.model_fields_set:
        notes.append(default_used("context_tokens", ", ".join(map(str, request.context_tokens))))
    notes += cache_defaults(llm, request.kv_cache)
    given = {"block_size_tokens": request.block_size_tokens} if "block_size_tokens" in request.model_fields_set else {}
    deployment = Deployment.model_validate(
        {
            "tp": request.tp,
            "kv_cache": request.kv_cache,
            "engine": request.engine,
            "engine_version": request.engine_version,
            "speculative": request.speculative,
            **given,
        }
    )
    deployment = with_draft(catalog, deployment)
    engine = catalog.engine(request.engine, request.engine_version, field="/engine")
    nothing: tuple[list[KvInEngine], list[Step]] = ([], [])
    in_engine = nothing if engine is None else kv_in_engine(llm, deployment, engine, request.context_tokens, request.max_num_batched_tokens)
    return answer_kv(
        llm,
        in_engine=in_engine,
        kv_cache=request.kv_cache,
        tp=request.tp,
        context_tokens=request.context_tokens,
        num_sequences=request.num_sequences,
        block_size_tokens=request.block_size_tokens,
        assumptions=notes,
        versions=versions_of(catalog),
    )


def concurrency(catalog: Catalog, request: ConcurrencyRequest) -> ConcurrencyAnswer:
    """How many requests a replica holds at once; raises PlannerError."""
    llm, gpu = resolve_served(catalog, request.model, request.deployment), resolve_gpu(catalog, request.gpu)
    deployment, notes = as_deployed(catalog, request.deployment, llm, gpu)
    notes = deployment_defaults(llm, gpu, deployment) + notes
    notes += defaults_used(request, "safety_ratio")
    prefix, more = prefix_cache_of(request, deployment)
    notes += more
    if request.tokens_per_sequence is not None:
        mean, p95 = request.tokens_per_sequence.mean, request.tokens_per_sequence.p95
    else:
        assert request.workload is not None  # noqa: S101 - the request type asks for one of the two
        notes += defaults_used(request.workload, "token_growth_ratio")
        demand = demand_of(request.workload)
        mean, p95 = demand.mean_input_tokens + demand.mean_output_tokens, request.workload.total_tokens("p95")
        both = "" if p95 is None else "; P95 is that of the classes" if request.workload.classes else "; P95 is the sum of both P95s"
        notes.append(Note(code="whole_sequences", message=f"A request counts with its whole prompt and output{both}."))
    return answer_concurrency(
        llm,
        gpu,
        deployment,
        engine=engine_of(catalog, deployment),
        mean_tokens=mean,
        p95_tokens=p95,
        safety_ratio=request.safety_ratio,
        prefix=prefix,
        assumptions=notes,
        versions=versions_of(catalog),
    )


def performance(catalog: Catalog, request: PerformanceRequest) -> PerformanceAnswer:
    """How fast a replica serves at a concurrency or a rate; raises PlannerError."""
    check_prefix(request.deployment, request.prefix_hit_ratio, "/prefix_hit_ratio")
    llm, gpu = resolve_served(catalog, request.model, request.deployment), resolve_gpu(catalog, request.gpu)
    deployment, notes = as_deployed(catalog, request.deployment, llm, gpu)
    notes = deployment_defaults(llm, gpu, deployment) + notes
    notes += defaults_used(request, "prefix_hit_ratio", "batching")
    steps = catalog.calibrations.steps(catalog.step_model, llm, gpu, deployment, request.calibration)
    notes += steps.assumptions
    num_waves = None
    if request.concurrency is not None and request.batching == "continuous":
        num_waves = request.num_requests / request.concurrency if request.num_requests else BENCHMARK_WAVES
        if not request.num_requests:
            notes.append(_usual_run(request.concurrency))
    found = performance_of(
        llm,
        gpu,
        deployment,
        engine_of(catalog, deployment),
        steps.model,
        RequestLengths.finding(request.input_tokens, request.output_tokens, request.prefix_hit_ratio, request.shared_prefix_tokens),
        draft=deployment.draft,
        num_waves=num_waves,
        length_width_ratio=request.length_width_ratio,
    )
    notes += kept_once(found.found, request.input_tokens + request.output_tokens, found.lengths.held_once)[0]
    answer = answer_performance(
        found,
        concurrency=request.concurrency,
        request_rps=request.request_rps,
        batching=request.batching,
        assumptions=notes,
        versions=versions_of(catalog),
    )
    return steps.warned(answer)


def _usual_run(concurrency: float) -> Note:
    return Note(
        code="default_num_requests",
        message=f"num_requests was not given: a closed loop of {plain(BENCHMARK_WAVES * concurrency)} requests is taken, as benchmarks "
        f"send them, of which {plain(concurrency)} start at once and wait for one another: the mean TTFT shows it. A very large "
        "num_requests is the steady state.",
    )


CALCULATIONS: Final[Mapping[str, tuple[type[BaseModel], Callable[[Catalog, Any], Answer]]]] = {
    "memory": (MemoryRequest, memory),
    "kv": (KvRequest, kv),
    "concurrency": (ConcurrencyRequest, concurrency),
    "performance": (PerformanceRequest, performance),
    "capacity": (CapacityRequest, capacity),
    "cost": (CostRequest, cost),
}
"""What a saved plan may hold: the kind, its request, and the function that answers it."""
