"""What tokens, requests and tasks cost: resolve names, name the defaults, model a replica where one is described, call the domain."""

from contextlib import nullcontext

from app.domain.calibration import ChosenSteps
from app.domain.capacity_variants import lengths_of
from app.domain.catalog import Catalog
from app.domain.cost import CostAnswer, Throughput, answer_cost, replica_rps
from app.domain.cost_split import CostSplit, cost_split
from app.domain.demand import Demand, demand_of
from app.domain.errors import under
from app.domain.performance import performance_of
from app.domain.performance_working import load_steps
from app.domain.prefix_cache import shared_prefix
from app.domain.provenance import Note, Step
from app.services.assumptions import defaults_used, deployment_defaults
from app.services.capacity import check_prefix
from app.services.cost_request import CostRequest
from app.services.planned_cost import sized_by_plan
from app.services.prices import price_warnings, replica_price
from app.services.references import as_deployed, engine_of, resolve_gpu, resolve_served
from app.services.versions import versions_of


def cost(catalog: Catalog, request: CostRequest) -> CostAnswer:
    """What tokens, requests and tasks cost; raises PlannerError, MissingFigure when the catalog has no such price for the accelerator."""
    notes = defaults_used(request, "success_ratio", "requests_per_task", "attempts_per_task")
    planned: list[Step] = []
    if request.plan is not None:
        request, note, sized = sized_by_plan(catalog, request, request.plan)
        notes.append(note)
        planned.append(sized)
    else:
        notes += defaults_used(request, "replicas")
    with under("/plan") if planned else nullcontext():
        hourly, price_step = replica_price(catalog, request, notes)
    throughput, demand, mean_input, mean_output = request.throughput, None, None, None
    if request.workload is not None:
        notes += defaults_used(request.workload, "token_growth_ratio")
        demand = demand_of(request.workload)
        mean_input, mean_output = demand.mean_input_tokens, demand.mean_output_tokens
        if throughput == Throughput():
            rate = request.workload.sustained_rps / request.replicas
            throughput = Throughput.model_construct(request_rps=rate)  # a share of a rate may be below the least that is asked for
            which = "mean_rps" if request.workload.mean_rps is not None else "peak_rps"
            notes.append(
                Note(code="rate_from_workload", message=f"No throughput is given: the {which} of the workload is spread over the replicas.")
            )
    rps = replica_rps(throughput, mean_input, mean_output)
    split, steps, warnings = _split(catalog, request, demand, rps, notes)
    answer = answer_cost(
        replica_usd_per_hour=hourly,
        replicas=request.replicas,
        price_steps=[*planned, price_step],
        throughput=throughput,
        mean_input_tokens=mean_input,
        mean_output_tokens=mean_output,
        split=split,
        success_ratio=request.success_ratio,
        requests_per_task=request.requests_per_task,
        attempts_per_task=request.attempts_per_task,
        assumptions=notes,
        warnings=[*price_warnings(request.price_kind), *warnings],
        versions=versions_of(catalog),
    )
    return answer if steps is None else steps.warned(answer)


Split = tuple[tuple[CostSplit, list[Step]] | None, ChosenSteps | None, list[Note]]


def _split(catalog: Catalog, request: CostRequest, demand: Demand | None, rps: float | None, notes: list[Note]) -> Split:
    """The shares of input and output with the constants that they follow from, or why there are none. Adds the notes of the replica."""
    model, given = request.model, request.deployment
    if model is None or given is None or request.gpu is None or request.workload is None or demand is None:
        return None, None, []
    check_prefix(given, request.workload.prefix_hit_ratio, "/workload/prefix_hit_ratio")
    llm, gpu = resolve_served(catalog, model, given), resolve_gpu(catalog, request.gpu)
    deployment, more = as_deployed(catalog, given, llm, gpu)
    notes += deployment_defaults(llm, gpu, deployment) + more + defaults_used(request.workload, "prefix_hit_ratio")
    if deployment.engine == "generic":
        message = "The deployment names no engine: the time of its steps is not modelled."
        return None, None, [Note(code="engine_not_named", message=message)]
    steps = catalog.calibrations.steps(catalog.step_model, llm, gpu, deployment, request.calibration)
    lengths = lengths_of(demand, shared_prefix(request.workload, deployment))
    performance = performance_of(llm, gpu, deployment, engine_of(catalog, deployment), steps.model, lengths, draft=deployment.draft)
    if performance.places < 1 or rps is None:
        found = performance.found
        message = f"The deployment serves no request of this length ({found.verdict}, limited by {found.limiting}): its time is not split."
        return None, None, [Note(code="does_not_serve", message=message)]
    notes += steps.assumptions
    split, state, lines = cost_split(performance, rps)
    return (split, [*load_steps(performance, state), *lines]), steps, []
