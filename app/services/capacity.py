"""Sizing a fleet: resolve names, name the defaults, model a replica where an engine is named, call the domain."""

from dataclasses import replace

from app.domain.bounds import SpeedBounds, speed_bounds
from app.domain.calibration import ChosenSteps
from app.domain.capacity_answer import CapacityAnswer, answer_capacity
from app.domain.capacity_variants import lengths_of, speed_of
from app.domain.catalog import Catalog
from app.domain.concurrency import ConcurrencyAtLength, at_length, recommended_max_num_seqs, sequence_limit
from app.domain.demand import Demand, demand_of
from app.domain.deployment import Deployment
from app.domain.engine_arguments import EngineArguments
from app.domain.errors import InvalidInput, MissingFigure
from app.domain.fleet import Reserve
from app.domain.hardware import Gpu
from app.domain.llm import Llm
from app.domain.memory import fit
from app.domain.memory_fit import Fit
from app.domain.performance import performance_of
from app.domain.prefix_cache import kept_once, shared_prefix
from app.domain.provenance import Note
from app.domain.replica_speed import ReplicaSpeed
from app.domain.sizing import Sizing
from app.domain.units import plain
from app.domain.workload import Slo
from app.exporters.engine_arguments import engine_arguments
from app.services.assumptions import default_used, defaults_used, deployment_defaults, length_notes
from app.services.prices import gpu_price
from app.services.references import as_deployed, engine_of, resolve_gpu, resolve_served, with_draft
from app.services.requests import CapacityRequest
from app.services.simulated_capacity import simulated_of
from app.services.versions import versions_of

GPUS_PER_NODE = 8
"""Accelerators of the usual server (HGX and DGX boards of A100 to B300, https://www.nvidia.com/en-us/data-center/hgx/)."""


def capacity(catalog: Catalog, request: CapacityRequest) -> CapacityAnswer:
    """How many replicas a workload needs; raises PlannerError."""
    deployment, workload = with_draft(catalog, request.deployment), request.workload
    check_prefix(deployment, workload.prefix_hit_ratio, "/workload/prefix_hit_ratio")
    llm = None if request.model is None else resolve_served(catalog, request.model, request.deployment)
    gpu = None if request.gpu is None else resolve_gpu(catalog, request.gpu)
    cache: list[Note] = []
    if llm is not None and gpu is not None:
        deployment, cache = as_deployed(catalog, deployment, llm, gpu)
    notes = deployment_defaults(llm, gpu, deployment) + cache
    notes += defaults_used(request, "redundancy_ratio", "safety_ratio", "spare_replicas")
    notes += defaults_used(workload, "burst_ratio", "prefix_hit_ratio", "token_growth_ratio")
    demand = demand_of(workload)
    slo = request.slo if request.slo is not None and request.slo.has_objective else None
    found: Fit | None = None
    holds, warnings, prefix = None, list[Note](), shared_prefix(workload, deployment)
    if llm is not None and gpu is not None:
        found = fit(llm, gpu, deployment, engine_of(catalog, deployment))
        notes += found.notes
        if found.cost is not None:
            tokens = demand.mean_input_tokens + demand.mean_output_tokens
            holds = at_length(found, deployment, tokens, request.safety_ratio, prefix)
            shared, warnings = kept_once(found, tokens, prefix)
            notes += shared
    bounds = _bounds(request, deployment, llm, gpu, found)
    limit = deployment.max_num_seqs if found is None else sequence_limit(found, deployment)
    most = None if limit is None else limit * deployment.dp
    steps = None
    if llm is not None and gpu is not None and (deployment.engine != "generic" or request.calibration is not None):
        steps = catalog.calibrations.steps(catalog.step_model, llm, gpu, deployment, request.calibration)
    speed = _speed(request, slo, deployment, llm, gpu, found, demand, steps)
    if steps is not None and speed is not None:
        notes += [*steps.assumptions, *length_notes(workload)]
    sizing = Sizing(demand, request.measured, slo, holds, most, bounds, speed)
    simulated, unsimulated = simulated_of(request, sizing)
    warnings += unsimulated
    if simulated is not None:
        sizing = replace(sizing, simulated=simulated.found)
    inside = sizing.time_in_system_s
    if inside is not None and inside.basis == "assumed" and sizing.operating is None:
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
    price, price_source, more = gpu_price(catalog, request, gpu, notes)
    answer = answer_capacity(
        llm,
        gpu,
        deployment,
        workload,
        sizing,
        found=found,
        simulated=simulated,
        safety_ratio=request.safety_ratio,
        reserve=Reserve(
            request.redundancy_ratio,
            request.spare_replicas,
            request.rolling_update.unavailable_replicas if request.rolling_update else 0,
        ),
        rolling_update=request.rolling_update,
        engine_args=_engine_args(deployment, llm, found, holds),
        gpus_per_node=_gpus_per_node(request, notes),
        usd_per_gpu_hour=price,
        price_source=price_source,
        assumptions=notes,
        warnings=warnings + more,
        versions=versions_of(catalog),
    )
    return answer if steps is None or speed is None else steps.warned(answer)


def check_prefix(deployment: Deployment, hit_ratio: float, field: str) -> None:
    """Refuse prefix hits of a deployment without a prefix cache; raises InvalidInput naming the field."""
    if hit_ratio and not deployment.prefix_caching:
        raise InvalidInput(
            f"prefix_hit_ratio is {plain(hit_ratio)}, but prefix_caching is false: nothing is found in no cache",
            field=field, value=hit_ratio, expected="0, or prefix_caching true",
        )  # fmt: skip


def _bounds(request: CapacityRequest, deployment: Deployment, llm: Llm | None, gpu: Gpu | None, found: Fit | None) -> SpeedBounds | None:
    """The speed bounds; a figure that the catalog lacks is an error unless rates were measured."""
    if llm is None or gpu is None or found is None:
        return None
    try:
        return speed_bounds(llm, gpu, deployment, found)
    except MissingFigure:
        measured = request.measured
        if measured is not None and measured.output_tokens_per_s is not None and measured.input_tokens_per_s is not None:
            return None
        raise


def _speed(
    request: CapacityRequest,
    slo: Slo | None,
    deployment: Deployment,
    llm: Llm | None,
    gpu: Gpu | None,
    found: Fit | None,
    demand: Demand,
    steps: ChosenSteps | None,
) -> ReplicaSpeed | None:
    """The modelled replica where an engine is named; None where it is not, and where all that it would say was measured."""
    measured = request.measured
    if llm is None or gpu is None or found is None or steps is None or deployment.engine == "generic":
        return None
    slo = slo if measured is None or slo is None else measured.unmeasured(slo)
    try:
        performance = performance_of(
            llm,
            gpu,
            deployment,
            found.engine,
            steps.model,
            lengths_of(demand, shared_prefix(request.workload, deployment)),
            draft=deployment.draft,
            found=found,
        )
    except MissingFigure:
        if measured is not None and measured.output_tokens_per_s is not None and measured.input_tokens_per_s is not None:
            return None
        raise
    return speed_of(performance, request.workload, demand, slo)


def _engine_args(deployment: Deployment, llm: Llm | None, found: Fit | None, holds: ConcurrencyAtLength | None) -> EngineArguments | None:
    """The command that starts the replica with as many sequences as it is planned with; None where it holds none."""
    if llm is None or found is None or not found.holds_requests:
        return None
    most = sequence_limit(found, deployment) or 1
    if deployment.max_num_seqs is None and holds is not None:
        most = recommended_max_num_seqs(holds.safe_concurrency, deployment.dp)
    return engine_arguments(llm, deployment, found, most, deployment.draft)


def _gpus_per_node(request: CapacityRequest, notes: list[Note]) -> int:
    if request.gpus_per_node is not None:
        return request.gpus_per_node
    notes.append(default_used("gpus_per_node", GPUS_PER_NODE))
    return GPUS_PER_NODE
