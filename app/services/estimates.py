"""The calculations: resolve names against the catalog snapshot, name the defaults, call the domain."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic import BaseModel

from app import __version__
from app.domain.bounds import SpeedBounds, speed_bounds
from app.domain.capacity_answer import CapacityAnswer, answer_capacity
from app.domain.catalog import Catalog
from app.domain.concurrency import ConcurrencyAnswer, answer_concurrency, at_length
from app.domain.cost import CostAnswer, Throughput, answer_cost
from app.domain.demand import demand_of
from app.domain.deployment import Deployment, check_layout
from app.domain.errors import MissingFigure
from app.domain.hardware import Gpu
from app.domain.kv_answer import KvAnswer, answer_kv
from app.domain.llm import Llm
from app.domain.memory import GENERIC_RESERVE_RATIO, Fit, fit
from app.domain.memory_answer import MemoryAnswer, answer_memory
from app.domain.provenance import Answer, Note, Step, Versions, step
from app.domain.sizing import Sizing
from app.domain.units import plain, tidy
from app.services.references import resolve_gpu, resolve_model
from app.services.requests import CapacityRequest, ConcurrencyRequest, CostRequest, KvRequest, MemoryRequest

GPUS_PER_NODE = 8
"""Accelerators of the usual server (HGX and DGX boards of A100 to B300, https://www.nvidia.com/en-us/data-center/hgx/)."""


def versions_of(catalog: Catalog) -> Versions:
    """What computes an answer now."""
    return Versions(planner=__version__, catalog=catalog.version)


def memory(catalog: Catalog, request: MemoryRequest) -> MemoryAnswer:
    """Does a replica fit; raises PlannerError for unknown names, impossible layouts and missing figures."""
    llm, gpu = resolve_model(catalog, request.model), resolve_gpu(catalog, request.gpu)
    notes = _defaults(llm, gpu, request.deployment)
    return answer_memory(llm, gpu, request.deployment, assumptions=notes, versions=versions_of(catalog))


def kv(catalog: Catalog, request: KvRequest) -> KvAnswer:
    """How large the KV cache is; raises PlannerError for unknown names and models whose layers are not known."""
    llm = resolve_model(catalog, request.model)
    check_layout(llm, Deployment(tp=request.tp), field="/tp")
    notes = [
        _default(name, getattr(request, name))
        for name in ("tp", "num_sequences", "block_size_tokens")
        if name not in request.model_fields_set
    ]
    if request.kv_cache == "auto":
        notes.append(_kv_auto(llm))
    return answer_kv(
        llm,
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
    llm, gpu = resolve_model(catalog, request.model), resolve_gpu(catalog, request.gpu)
    notes = _defaults(llm, gpu, request.deployment)
    if "safety_ratio" not in request.model_fields_set:
        notes.append(_default("safety_ratio", request.safety_ratio))
    if request.tokens_per_sequence is not None:
        mean, p95 = request.tokens_per_sequence.mean, request.tokens_per_sequence.p95
    else:
        assert request.workload is not None  # noqa: S101 - the request type asks for one of the two
        demand = demand_of(request.workload)
        mean = demand.mean_input_tokens + demand.mean_output_tokens
        given = demand.p95_input_tokens, demand.p95_output_tokens
        p95 = None if given[0] is None or given[1] is None else given[0] + given[1]
        notes.append(
            Note(
                code="whole_sequences",
                message="A request counts with its whole prompt and output; P95 is the sum of both P95s, an upper bound.",
            )
        )
    return answer_concurrency(
        llm,
        gpu,
        request.deployment,
        mean_tokens=mean,
        p95_tokens=p95,
        safety_ratio=request.safety_ratio,
        assumptions=notes,
        versions=versions_of(catalog),
    )


def capacity(catalog: Catalog, request: CapacityRequest) -> CapacityAnswer:
    """How many replicas a workload needs; raises PlannerError."""
    deployment, workload = request.deployment, request.workload
    llm = None if request.model is None else resolve_model(catalog, request.model)
    gpu = None if request.gpu is None else resolve_gpu(catalog, request.gpu)
    notes = _defaults(llm, gpu, deployment)
    notes += [
        _default(name, getattr(request, name)) for name in ("redundancy_ratio", "safety_ratio") if name not in request.model_fields_set
    ]
    demand = demand_of(workload)
    found: Fit | None = None
    holds = None
    if llm is not None and gpu is not None:
        found = fit(llm, gpu, deployment)
        if found.cost is not None:
            holds = at_length(found, deployment, demand.mean_input_tokens + demand.mean_output_tokens, request.safety_ratio)
    bounds = _bounds(request, llm, gpu, found)
    sizing = Sizing(demand, request.measured, request.slo, holds, deployment.max_num_seqs, bounds)
    inside = sizing.time_in_system_s
    if inside is not None and inside.basis == "assumed":
        notes.append(
            Note(
                code="time_in_system_from_slo",
                message=f"No latency was measured: requests are taken to stay as long as the objectives allow ({plain(inside.value)} s).",
            )
        )
    if workload.prefix_hit_ratio and workload.shared_prefix_tokens is None:
        notes.append(
            Note(code="prefix_is_whole_prompt", message="No shared_prefix_tokens: the hit ratio is applied to the whole mean prompt.")
        )
    price, price_source = _gpu_price(catalog, request, gpu, notes)
    return answer_capacity(
        llm,
        gpu,
        deployment,
        workload,
        sizing,
        slo=request.slo,
        found=found,
        safety_ratio=request.safety_ratio,
        redundancy_ratio=request.redundancy_ratio,
        spare_replicas=request.spare_replicas,
        gpus_per_node=_gpus_per_node(request, notes),
        usd_per_gpu_hour=price,
        price_source=price_source,
        assumptions=notes,
        versions=versions_of(catalog),
    )


def cost(catalog: Catalog, request: CostRequest) -> CostAnswer:
    """What tokens, requests and tasks cost; raises PlannerError when the catalog has no price for the accelerator."""
    notes = [
        _default(name, getattr(request, name))
        for name in ("replicas", "success_ratio", "requests_per_task", "attempts_per_task")
        if name not in request.model_fields_set
    ]
    hourly, price_step = _replica_price(catalog, request, notes)
    throughput, mean_input, mean_output = request.throughput, None, None
    if request.workload is not None:
        demand = demand_of(request.workload)
        mean_input, mean_output = demand.mean_input_tokens, demand.mean_output_tokens
        if throughput == Throughput():
            rate = (request.workload.mean_rps or request.workload.peak_rps) / request.replicas
            throughput = Throughput(request_rps=rate)
            which = "mean_rps" if request.workload.mean_rps is not None else "peak_rps"
            notes.append(
                Note(code="rate_from_workload", message=f"No throughput is given: the {which} of the workload is spread over the replicas.")
            )
    return answer_cost(
        replica_usd_per_hour=hourly,
        replicas=request.replicas,
        price_step=price_step,
        throughput=throughput,
        mean_input_tokens=mean_input,
        mean_output_tokens=mean_output,
        success_ratio=request.success_ratio,
        requests_per_task=request.requests_per_task,
        attempts_per_task=request.attempts_per_task,
        assumptions=notes,
        versions=versions_of(catalog),
    )


def _default(name: str, value: object) -> Note:
    return Note(code=f"default_{name}", message=f"{name} was not given: {value} is used.")


def _kv_auto(llm: Llm) -> Note:
    if llm.stated_kv_cache is not None:
        return Note(code="kv_cache_auto", message=f"kv_cache auto: {llm.stated_kv_cache.precision}, as the vendor states the cache.")
    return Note(
        code="kv_cache_auto", message="kv_cache auto: 16 bits per element, what engines use unless the checkpoint names a KV scheme."
    )


def _defaults(llm: Llm | None, gpu: Gpu | None, deployment: Deployment) -> list[Note]:
    """The defaults of the deployment that decide the answer and that the request does not set."""
    given = deployment.model_fields_set
    notes = [_default(name, getattr(deployment, name)) for name in ("tp", "engine") if name not in given]
    if llm is None or gpu is None:
        return notes
    if deployment.weights is None:
        native = llm.native
        what = native.quantization or native.dtype or "16 bits per parameter"
        known = "" if native.weights_bytes is not None else "; their size is not recorded, so 2 bytes per parameter are taken"
        notes.append(Note(code="default_weights", message=f"weights was not given: the checkpoint's own ({what}){known}."))
    if deployment.kv_cache == "auto":
        notes.append(_kv_auto(llm))
    if deployment.max_model_len_tokens is None and llm.max_model_len_tokens is not None:
        notes.append(_default("max_model_len_tokens", f"{llm.max_model_len_tokens}, the model's own limit,"))
    if deployment.reserve_bytes_per_gpu is None and deployment.memory_fraction_ratio is None:
        notes.append(
            Note(
                code="default_reserve",
                message=(
                    f"reserve_bytes_per_gpu was not given: {GENERIC_RESERVE_RATIO:.0%} of the memory stays for everything beside weights "
                    "and KV cache."
                ),
            )
        )
    return notes


def _bounds(request: CapacityRequest, llm: Llm | None, gpu: Gpu | None, found: Fit | None) -> SpeedBounds | None:
    """The speed bounds; a figure that the catalog lacks is an error unless rates were measured."""
    if llm is None or gpu is None or found is None:
        return None
    try:
        return speed_bounds(llm, gpu, request.deployment, found)
    except MissingFigure:
        measured = request.measured
        if measured is not None and measured.output_tokens_per_s is not None and measured.input_tokens_per_s is not None:
            return None
        raise


def _gpus_per_node(request: CapacityRequest, notes: list[Note]) -> int:
    if request.gpus_per_node is not None:
        return request.gpus_per_node
    notes.append(_default("gpus_per_node", GPUS_PER_NODE))
    return GPUS_PER_NODE


def _catalog_price(catalog: Catalog, gpu: str, notes: list[Note]) -> tuple[float, str] | None:
    """The lowest on-demand price of an accelerator, None when the catalog has none."""
    price = catalog.price(gpu)
    if price is None:
        return None
    span = f" to {plain(price.high_usd_per_hour)}" if price.high_usd_per_hour != price.low_usd_per_hour else ""
    notes.append(
        Note(
            code="catalog_price",
            message=(
                f"usd_per_gpu_hour was not given: the lowest on-demand price of {gpu}, {plain(price.low_usd_per_hour)}{span} USD "
                f"({price.priced_on})."
            ),
        )
    )
    return price.low_usd_per_hour, f"catalog {price.slug}, {price.priced_on}: {'; '.join(price.sources)}"


def _gpu_price(catalog: Catalog, request: CapacityRequest, gpu: Gpu | None, notes: list[Note]) -> tuple[float | None, str]:
    if request.usd_per_gpu_hour is not None:
        return request.usd_per_gpu_hour, "request"
    found = None if gpu is None else _catalog_price(catalog, gpu.slug, notes)
    return found or (None, "")


def _replica_price(catalog: Catalog, request: CostRequest, notes: list[Note]) -> tuple[float, Step]:
    """Price of one replica [USD/hour] and its line of working."""
    if request.replica_usd_per_hour is not None:
        return request.replica_usd_per_hour, step(
            "replica_usd_per_hour", "given", plain(request.replica_usd_per_hour), request.replica_usd_per_hour, "USD/hour", "request"
        )
    assert request.gpus is not None  # noqa: S101 - the request type asks for it
    price, source = request.usd_per_gpu_hour, "request"
    if price is None:
        gpu = resolve_gpu(catalog, request.gpu or "")
        found = _catalog_price(catalog, gpu.slug, notes)
        if found is None:
            raise MissingFigure(
                f"the catalog has no price for {gpu.slug}",
                field="/gpu",
                value=gpu.slug,
                expected="usd_per_gpu_hour, or replica_usd_per_hour",
            )
        price, source = found
    hourly = tidy(price * request.gpus)
    return hourly, step(
        "replica_usd_per_hour",
        "gpus x usd_per_gpu_hour",
        f"{request.gpus} x {plain(price)}",
        hourly,
        "USD/hour",
        source,
        basis="exact" if source == "request" else "datasheet",
    )


CALCULATIONS: Final[Mapping[str, tuple[type[BaseModel], Callable[[Catalog, Any], Answer]]]] = {
    "memory": (MemoryRequest, memory),
    "kv": (KvRequest, kv),
    "concurrency": (ConcurrencyRequest, concurrency),
    "capacity": (CapacityRequest, capacity),
    "cost": (CostRequest, cost),
}
"""What a saved plan may hold: the kind, its request, and the function that answers it."""
