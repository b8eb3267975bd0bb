"""Simulating a fleet: resolve names, model a replica, run seeds, and say what they show."""

import hashlib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from app import __version__
from app.domain.calibration import ChosenSteps
from app.domain.capacity_variants import lengths_of
from app.domain.catalog import Catalog
from app.domain.demand import LITTLE_SOURCE, RATE_SOURCE, demand_of
from app.domain.deployment import Deployment
from app.domain.errors import InvalidInput
from app.domain.hardware import Gpu
from app.domain.llm import Llm
from app.domain.performance import Lengths, Performance, performance_of
from app.domain.prefix_cache import shared_prefix
from app.domain.provenance import Note, Step, step
from app.domain.simulation import Run, SimulationResult, gathered
from app.domain.simulation_answer import SimulatedTime, SimulationAnswer, figure, figures_of
from app.domain.simulation_scenario import Scenario, check
from app.domain.simulation_summary import interval
from app.domain.units import plain, seconds
from app.services.assumptions import defaults_used, deployment_defaults
from app.services.capacity import check_prefix
from app.services.references import as_deployed, engine_of, resolve_gpu, resolve_served
from app.services.simulated_scenario import scenario_of
from app.services.simulation_request import SimulationRequest
from app.services.simulation_work import MOST_DIRECT_CPU_S, patient_run, refuse_above
from app.services.versions import versions_of

FEW_REQUESTS = 100
STEADY_RATIO = 0.9
NOT_MODELLED = Note(
    code="simulated_intervals",
    message="The intervals say what chance does between seeds; how far the step times themselves may be off is what `/performance` says.",
)


@dataclass(frozen=True)
class FleetSimulation:
    """A request with its names resolved and its replica modelled: seeds are run one by one, here or by workers, and then reported."""

    catalog: Catalog
    request: SimulationRequest
    llm: Llm
    gpu: Gpu
    deployment: Deployment
    steps: ChosenSteps
    performance: Performance
    scenario: Scenario
    notes: Sequence[Note]

    @cached_property
    def inputs_digest(self) -> str:
        """Digest of everything that decides what a seed comes to: runs with the same one belong together."""
        # Sets are written in the order of their hashes, which differs between processes.
        text = re.sub(r"frozenset\(\{(.*?)\}\)", lambda found: ",".join(sorted(found[1].split(", "))), repr(self.scenario))
        return hashlib.sha256(f"{__version__}\n{text}".encode()).hexdigest()

    def run(self, seed: int, tell: Callable[[float], None]) -> Run:
        """One seed; `tell` is told the share that is done, and may raise to end it."""
        return patient_run(self.scenario, seed, tell)

    def answer(self, runs: Sequence[Run]) -> SimulationAnswer:
        """What the seeds show."""
        llm, gpu, deployment, request = self.llm, self.gpu, self.deployment, self.request
        result = gathered(runs)
        where = f"{request.replicas} x {llm.slug} on {deployment.num_gpus} {gpu.slug}"
        figures = figures_of(request.slo, result.runs, result)
        objectives, times = figures.objectives, figures.times
        held = sum(each.verdict == "holds" for each in objectives)
        verdict = f" {held} of {len(objectives)} objectives hold." if objectives else ""
        answer = SimulationAnswer(
            summary=f"{where}, {figure(result.request_rps).value:.3g} requests/s finish: TTFT {_said(times.ttft_s)}, "
            f"TPOT {_said(times.tpot_s)}, end to end {_said(times.e2e_s)}.{verdict}",
            working=_working(self.scenario, result),
            assumptions=[*self.notes, NOT_MODELLED],
            warnings=_warnings(self.scenario, result),
            versions=versions_of(self.catalog),
            model=llm.slug,
            gpu=gpu.slug,
            engine=deployment.engine,
            basis="calibrated" if self.performance.is_fitted else "assumed",
            replicas=request.replicas,
            gpus=request.replicas * deployment.num_gpus,
            measured_s=figure(interval([run.measured_s for run in result.runs])),
            pools=[],
            **dict(figures),
        )
        return self.steps.warned(answer)


def simulation(catalog: Catalog, request: SimulationRequest, tell: Callable[[float], None] = lambda _: None) -> SimulationAnswer:
    """Percentiles of a fleet under traffic and faults; `tell` is told the share that is done, and may raise to end it.

    Raises PlannerError as `modelled` does, and InvalidInput for more work than is answered at once.
    """
    found = modelled(catalog, request)
    refuse_above(MOST_DIRECT_CPU_S, found.scenario)
    return direct_answer(found, tell)


def direct_answer(found: FleetSimulation, tell: Callable[[float], None]) -> SimulationAnswer:
    """Run all seeds one after another."""
    seeds = found.request.seeds

    def run(place: int, seed: int) -> Run:
        return found.run(seed, lambda share: tell((place + share) / len(seeds)))

    return found.answer([run(place, seed) for place, seed in enumerate(seeds)])


def modelled(catalog: Catalog, request: SimulationRequest) -> FleetSimulation:
    """What a request describes, ready to run.

    Raises PlannerError as `/performance` does, and InvalidInput for faults after the end and for replicas that hold no request.
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
    check(scenario)
    return FleetSimulation(catalog, request, llm, gpu, deployment, steps, performance, scenario, notes)


def _mean_lengths(request: SimulationRequest) -> Lengths:
    count = len(request.trace)
    return Lengths(sum(each.input_tokens for each in request.trace) / count, sum(each.output_tokens for each in request.trace) / count)


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
