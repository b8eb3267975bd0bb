"""Simulating a fleet: resolve names, model a replica, run seeds, and say what they show."""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from app import __version__
from app.domain.catalog import Catalog
from app.domain.provenance import Note
from app.domain.simulation import Run, gathered
from app.domain.simulation_answer import SimulatedPool, SimulatedTime, SimulationAnswer, figure, figures_of
from app.domain.simulation_scenario import Scenario, check
from app.domain.simulation_summary import interval
from app.domain.units import seconds
from app.services.assumptions import defaults_used
from app.services.simulated_pools import ModelledPool, modelled_pools
from app.services.simulated_scenario import kinds_of, scenario_of
from app.services.simulation_findings import warnings_of, working_of
from app.services.simulation_request import SimulationRequest
from app.services.simulation_work import MOST_DIRECT_CPU_S, patient_run, refuse_above
from app.services.versions import versions_of

NOT_MODELLED = Note(
    code="simulated_intervals",
    message="The intervals say what chance does between seeds; how far the step times themselves may be off is what `/performance` says.",
)


@dataclass(frozen=True)
class FleetSimulation:
    """A request with its names resolved and its replicas modelled: seeds are run one by one, here or by workers, and then reported."""

    catalog: Catalog
    request: SimulationRequest
    pools: Sequence[ModelledPool]
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
        request, pools = self.request, self.pools
        result = gathered(runs)
        figures = figures_of(request.slo, result.runs, result)
        objectives, times = figures.objectives, figures.times
        held = sum(each.verdict == "holds" for each in objectives)
        verdict = f" {held} of {len(objectives)} objectives hold." if objectives else ""
        gpus, engines = {pool.gpu.slug for pool in pools}, {pool.deployment.engine for pool in pools}
        answer = SimulationAnswer(
            summary=f"{' and '.join(pool.said for pool in pools)}, {figure(result.request_rps).value:.3g} requests/s finish: "
            f"TTFT {_said(times.ttft_s)}, TPOT {_said(times.tpot_s)}, end to end {_said(times.e2e_s)}.{verdict}",
            working=working_of(self.scenario, result),
            assumptions=[*self.notes, NOT_MODELLED],
            warnings=warnings_of(self.scenario, result),
            versions=versions_of(self.catalog),
            model=pools[0].llm.slug,
            gpu=gpus.pop() if len(gpus) == 1 else None,
            engine=engines.pop() if len(engines) == 1 else None,
            basis="calibrated" if all(pool.performance.is_fitted for pool in pools) else "assumed",
            replicas=self.scenario.num_replicas,
            gpus=sum(pool.num_gpus for pool in pools),
            measured_s=figure(interval([run.measured_s for run in runs])),
            pools=[
                SimulatedPool(
                    name=pool.model.name,
                    gpu=pool.gpu.slug,
                    engine=pool.deployment.engine,
                    basis="calibrated" if pool.performance.is_fitted else "assumed",
                    replicas=pool.model.num_replicas,
                    gpus=pool.num_gpus,
                    **dict(figures_of(request.slo, [run.pools[pool.model.name] for run in result.runs], result.pools[pool.model.name])),
                )
                for pool in pools
                if result.pools
            ],
            **dict(figures),
        )
        for steps in dict.fromkeys(pool.steps for pool in pools):
            answer = steps.warned(answer)
        return answer


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
    kinds = kinds_of(request.workload)
    pools = modelled_pools(catalog, request, kinds)
    notes = [*dict.fromkeys(note for pool in pools for note in pool.notes)]
    notes += defaults_used(request, *(() if request.pools else ("replicas",)), "balancing", "warm_up_ratio", "batching")
    scenario = scenario_of(request, [pool.model for pool in pools], kinds, notes)
    check(scenario)
    return FleetSimulation(catalog, request, pools, scenario, notes)


def _said(found: SimulatedTime | None) -> str:
    return "not measured" if found is None else f"P95 {seconds(found.p95.value)}, P99 {seconds(found.p99.value)}"
