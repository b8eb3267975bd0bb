"""Simulating a fleet: resolve names, model a replica, run every seed within the time of an answer."""

import math
import time

from app.domain.capacity_variants import lengths_of
from app.domain.catalog import Catalog
from app.domain.demand import LITTLE_SOURCE, RATE_SOURCE, demand_of
from app.domain.errors import InvalidInput
from app.domain.performance import Lengths, performance_of
from app.domain.prefix_cache import shared_prefix
from app.domain.provenance import Note, Step, step
from app.domain.simulation import SimulationResult, simulate
from app.domain.simulation_answer import SimulatedTime, SimulationAnswer, figure, figures_of
from app.domain.simulation_scenario import Scenario, check, expected_cpu_s
from app.domain.simulation_summary import interval
from app.domain.units import plain, seconds
from app.services.assumptions import defaults_used, deployment_defaults
from app.services.capacity import check_prefix
from app.services.references import as_deployed, engine_of, resolve_gpu, resolve_served
from app.services.simulated_scenario import scenario_of
from app.services.simulation_request import SimulationRequest
from app.services.versions import versions_of

MOST_CPU_S = 10.0
"""Work that is answered at once, as `expected_cpu_s` puts it [s]."""
PATIENCE_RATIO = 6.0
"""A run that takes so many times longer ends: the expectation is meant within a factor of three, on a machine that may be busy."""
FEW_REQUESTS = 100
STEADY_RATIO = 0.9
NOT_MODELLED = Note(
    code="simulated_intervals",
    message="The intervals say what chance does between seeds; how far the step times themselves may be off is what `/performance` says.",
)


def simulation(catalog: Catalog, request: SimulationRequest) -> SimulationAnswer:
    """Percentiles of a fleet under traffic and faults.

    Raises PlannerError as `/performance` does, and InvalidInput for faults after the end, for replicas that hold no request, and for more
    work than is answered at once.
    """
    workload = request.workload
    if workload is not None:
        check_prefix(request.deployment, workload.prefix_hit_ratio, "/workload/prefix_hit_ratio")
    llm, gpu = resolve_served(catalog, request.model, request.deployment), resolve_gpu(catalog, request.gpu)
    deployment, notes = as_deployed(catalog, request.deployment, llm, gpu)
    notes = deployment_defaults(llm, gpu, deployment) + notes
    notes += defaults_used(request, "replicas", "balancing", "warm_up_ratio", "batching")
    steps = catalog.calibrations.steps(catalog.step_model, llm, gpu, deployment, request.calibration)
    notes += steps.assumptions
    lengths = _mean_lengths(request) if workload is None else lengths_of(demand_of(workload), shared_prefix(workload, deployment))
    performance = performance_of(llm, gpu, deployment, engine_of(catalog, deployment), steps.model, lengths, draft=deployment.draft)
    if performance.places < 1:
        tokens = plain(round(lengths.input_tokens + lengths.output_tokens))
        raise InvalidInput(
            f"a replica has no place for a request of {tokens} tokens", field="/deployment", expected="a replica that serves"
        )
    scenario = scenario_of(request, performance, notes)
    result = _simulated(scenario)
    where = f"{request.replicas} x {llm.slug} on {deployment.num_gpus} {gpu.slug}"
    figures = figures_of(request.slo, result.runs, result)
    objectives, times = figures.objectives, figures.times
    held = sum(each.verdict == "holds" for each in objectives)
    verdict = f" {held} of {len(objectives)} objectives hold." if objectives else ""
    answer = SimulationAnswer(
        summary=f"{where}, {figure(result.request_rps).value:.3g} requests/s finish: TTFT {_said(times.ttft_s)}, "
        f"TPOT {_said(times.tpot_s)}, end to end {_said(times.e2e_s)}.{verdict}",
        working=_working(scenario, result),
        assumptions=[*notes, NOT_MODELLED],
        warnings=_warnings(scenario, result),
        versions=versions_of(catalog),
        model=llm.slug,
        gpu=gpu.slug,
        engine=deployment.engine,
        basis="calibrated" if performance.is_fitted else "assumed",
        replicas=request.replicas,
        gpus=request.replicas * deployment.num_gpus,
        measured_s=figure(interval([run.measured_s for run in result.runs])),
        pools=[],
        **dict(figures),
    )
    return steps.warned(answer)


def _mean_lengths(request: SimulationRequest) -> Lengths:
    count = len(request.trace)
    return Lengths(sum(each.input_tokens for each in request.trace) / count, sum(each.output_tokens for each in request.trace) / count)


def _simulated(scenario: Scenario) -> SimulationResult:
    """Run it; raises InvalidInput where it would take, or takes, longer than an answer may."""
    check(scenario)
    expected_s = work_s(scenario)
    if expected_s > MOST_CPU_S:
        raise _too_long(scenario, expected_s, f"{len(scenario.seeds)} seeds would take about {seconds(expected_s)} of computing")
    until_s = time.monotonic() + PATIENCE_RATIO * MOST_CPU_S

    def tell(_: float) -> None:
        if time.monotonic() > until_s:
            raise _too_long(scenario, PATIENCE_RATIO * MOST_CPU_S, f"not done after {seconds(PATIENCE_RATIO * MOST_CPU_S)}")

    return simulate(scenario, tell)


def work_s(scenario: Scenario) -> float:
    """`expected_cpu_s`, with every retry that clients may send [s]."""
    return expected_cpu_s(scenario) * (1 + (0 if math.isinf(scenario.client.timeout_s) else scenario.client.max_num_retries))


def _too_long(scenario: Scenario, taken_s: float, what: str) -> InvalidInput:
    share = MOST_CPU_S / taken_s
    seeds = f"{max(1, int(len(scenario.seeds) * share))} seeds" if len(scenario.seeds) * share >= 1 else "one seed"
    if scenario.arrivals.trace:
        field, value = "/trace", float(len(scenario.arrivals.trace))
        shorter = f"a trace of at most {math.floor(value * share)} requests"
    elif scenario.num_requests is not None:
        field, value = "/num_requests", float(scenario.num_requests)
        shorter = f"num_requests of at most {math.floor(value * share)}"
    else:
        field, value = "/duration_s", scenario.duration_s or 0.0
        shorter = f"duration_s of at most {plain(math.floor(value * share))}"
    expected = f"{shorter}, {seeds}, or a lower rate: at most {seconds(MOST_CPU_S)} of computing"
    return InvalidInput(f"the simulation is too large to be answered at once: {what}", field=field, value=value, expected=expected)


def _said(found: SimulatedTime | None) -> str:
    return "not measured" if found is None else f"P95 {seconds(found.p95.value)}, P99 {seconds(found.p99.value)}"


def _warnings(scenario: Scenario, result: SimulationResult) -> list[Note]:
    notes = []
    tail = [point for run in result.runs for point in run.course[-max(1, len(run.course) // 10) :]]
    waiting, running = (math.fsum(getattr(point, name) for point in tail) / len(tail) for name in ("num_waiting", "num_running"))
    if waiting > max(1.0, running):
        message = f"In the last tenth {waiting:.3g} requests wait and {running:.3g} run: queues grow, and a longer run is slower yet."
        notes.append(Note(code="queue_grows", message=message))
    arrived = math.fsum(run.num_arrivals * (1 - scenario.warm_up_ratio) / run.measured_s for run in result.runs) / len(result.runs)
    if scenario.arrivals.concurrency is None and result.request_rps.mean < STEADY_RATIO * arrived:
        message = (
            f"{arrived:.3g} requests/s arrive and {result.request_rps.mean:.3g} finish in the measured time: the fleet does not keep up, or"
            " the run is short against the time that a request takes."
        )
        notes.append(Note(code="not_steady", message=message))
    least = min(run.num_measured for run in result.runs)
    if least < FEW_REQUESTS:
        message = f"A seed has only {least} measured requests: a P99 of fewer than {FEW_REQUESTS} is the largest value or close to it."
        notes.append(Note(code="few_requests", message=message))
    lost = sum(result.outcomes.values()) - result.outcomes["finished"]
    if lost:
        message = f"{lost} requests did not finish; the times are those of the others."
        notes.append(Note(code="unfinished_requests", message=message))
    return notes


def _working(scenario: Scenario, result: SimulationResult) -> list[Step]:
    working = []
    if not scenario.arrivals.trace and scenario.arrivals.concurrency is None:
        rate = scenario.arrivals.request_rps
        substituted = f"{plain(rate)} / {scenario.num_replicas}"
        working.append(step("replica_rps", "request_rps / replicas", substituted, rate / scenario.num_replicas, "requests/s", RATE_SOURCE))
    for name, unit, found in (
        ("ttft_p99", "s", [run.times.ttft.p99 for run in result.runs if run.times.ttft]),
        ("request_rps", "requests/s", [run.request_rps for run in result.runs]),
    ):
        if found:
            terms = f"({' + '.join(f'{value:.4g}' for value in found)}) / {len(found)}"
            source = "one run a seed, https://www.usenix.org/conference/osdi22/presentation/yu (steps of an engine)"
            working.append(step(name, "sum over seeds / seeds", terms, math.fsum(found) / len(found), unit, source, basis="assumed"))
    spent = math.fsum(found) / len(found) if (found := [run.times.e2e.mean for run in result.runs if run.times.e2e]) else None
    if spent is not None and result.request_rps.mean:
        rate, terms = result.request_rps.mean, f"{result.request_rps.mean:.4g} x {spent:.4g}"
        working.append(step("num_in_flight", "request_rps x mean e2e_s", terms, rate * spent, "requests", LITTLE_SOURCE, basis="assumed"))
    return working
