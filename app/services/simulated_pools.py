"""The pools of a request to `/simulate`: names resolved, replicas modelled for the requests that go there."""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.calibration import ChosenSteps
from app.domain.capacity_variants import lengths_of
from app.domain.catalog import Catalog
from app.domain.demand import demand_of
from app.domain.deployment import Deployment
from app.domain.errors import InvalidInput, under
from app.domain.hardware import Gpu
from app.domain.llm import Llm
from app.domain.performance import Lengths, Performance, performance_of
from app.domain.prefix_cache import shared_prefix
from app.domain.provenance import Note
from app.domain.simulation_pool import Intake, PoolModel, mean_lengths, routes_of
from app.domain.simulation_replica import ReplicaModel, replica_of
from app.domain.simulation_requests import RequestKind
from app.domain.simulation_scenario import kind_names
from app.domain.simulation_scheduler import SAID
from app.domain.units import plain
from app.services.assumptions import deployment_defaults
from app.services.capacity import check_prefix
from app.services.references import as_deployed, engine_of, resolve_gpu, resolve_served
from app.services.simulated_scenario import traced
from app.services.simulation_request import PoolOfReplicas, SimulationRequest


@dataclass(frozen=True)
class ModelledPool:
    """Replicas of one deployment, with what the catalog knows about them."""

    llm: Llm
    gpu: Gpu
    deployment: Deployment
    steps: ChosenSteps
    performance: Performance
    model: PoolModel
    notes: Sequence[Note]

    @property
    def num_gpus(self) -> int:
        """Accelerators of all replicas."""
        return self.model.num_replicas * self.deployment.num_gpus

    @property
    def said(self) -> str:
        """What it is made of."""
        return f"{self.model.num_replicas} x {self.llm.slug} on {self.deployment.num_gpus} {self.gpu.slug}"


def modelled_pools(catalog: Catalog, request: SimulationRequest, kinds: tuple[RequestKind, ...]) -> list[ModelledPool]:
    """The pools in order; one of all requests where the request has none.

    Raises PlannerError as `/performance` does, and InvalidInput for replicas that hold no request and for requests that go nowhere.
    """
    given = request.pools or (PoolOfReplicas(name="all", replicas=request.replicas),)
    intakes = [Intake(tuple(each.classes), math.inf if each.max_input_tokens is None else each.max_input_tokens) for each in given]
    means: Sequence[tuple[float, float] | None] = [None]
    if request.pools or request.workload is None:
        routes = routes_of(intakes, kind_names(kinds, flooded=any(fault.kind == "flood" for fault in request.faults)))
        means = mean_lengths(routes, kinds, traced(request), len(given))
    pools = []
    for index, (pool, intake, mean) in enumerate(zip(given, intakes, means, strict=True)):
        own = pool.deployment is not None or pool.gpu is not None or pool.scheduler is not None
        with under(f"/pools/{index}") if own else contextlib.nullcontext():
            pools.append(_modelled(catalog, request, pool, intake, mean))
    return pools


def _modelled(
    catalog: Catalog, request: SimulationRequest, pool: PoolOfReplicas, intake: Intake, mean: tuple[float, float] | None
) -> ModelledPool:
    deployment, workload = pool.deployment or request.deployment, request.workload
    if workload is not None:
        check_prefix(deployment, workload.prefix_hit_ratio, "/deployment/prefix_caching" if request.pools else "/workload/prefix_hit_ratio")
    llm, gpu = resolve_served(catalog, request.model, deployment), resolve_gpu(catalog, pool.gpu or request.gpu)
    deployment, notes = as_deployed(catalog, deployment, llm, gpu)
    notes = deployment_defaults(llm, gpu, deployment) + notes
    steps = catalog.calibrations.steps(catalog.step_model, llm, gpu, deployment, request.calibration)
    lengths = Lengths(1, 1)
    if workload is not None:
        lengths = lengths_of(demand_of(workload), shared_prefix(workload, deployment))
    if mean is not None:
        lengths = lengths._replace(input_tokens=mean[0], output_tokens=max(1.0, mean[1]))
    performance = performance_of(llm, gpu, deployment, engine_of(catalog, deployment), steps.model, lengths, draft=deployment.draft)
    if performance.places < 1:
        tokens = plain(round(lengths.input_tokens + lengths.output_tokens))
        raise InvalidInput(
            f"a replica has no place for a request of {tokens} tokens", field="/deployment", expected="a replica that serves"
        )
    replica = replica_of(performance, request.batching, pool.scheduler or request.scheduler)
    balancing = pool.balancing or request.balancing
    model = PoolModel(replica, pool.replicas, balancing, pool.name, intake)
    return ModelledPool(
        llm, gpu, deployment, steps, performance, model, [*notes, *steps.assumptions, *_scheduler_notes(deployment, replica)]
    )


def _scheduler_notes(deployment: Deployment, replica: ReplicaModel) -> list[Note]:
    """What is taken for the engine's scheduler."""
    if replica.batching != "continuous":
        return []
    prompts = "cut to fit" if replica.splits_prompts else "not cut"
    budget = "any number of" if math.isinf(replica.token_budget) else f"at most {plain(replica.token_budget)}"
    return [Note(code="scheduler", message=f"{SAID[deployment.engine]} A step has {budget} tokens, and prompts are {prompts}.")]
