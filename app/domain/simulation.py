"""Traffic on pools of replicas, simulated step by step with the step times of `/performance`: percentiles, queues, bursts, failures."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.domain.errors import InvalidInput
from app.domain.simulation_figures import FigureIntervals, Figures, figures_of, intervals_of
from app.domain.simulation_fleet import Fleet
from app.domain.simulation_pool import Pool
from app.domain.simulation_record import Recorder
from app.domain.simulation_requests import requests_of
from app.domain.simulation_scenario import Scenario, check

DRAIN_RATIO = 1.0
"""After the last arrival a run goes on for so many times its length at most; what is not done then is in flight."""
LEAST_DRAIN_S = 3600.0
"""And for an hour at least [s]."""


@dataclass(frozen=True, kw_only=True)
class Run(Figures):
    """One seed, all pools together."""

    seed: int
    measured_s: float
    """From the end of the warm-up to the last arrival."""
    pools: dict[str, Figures]
    """By name, where there are several."""


@dataclass(frozen=True, kw_only=True)
class SimulationResult(FigureIntervals):
    """All seeds together."""

    runs: list[Run]
    pools: dict[str, FigureIntervals]
    """By name, where there are several."""

    @property
    def measured_s(self) -> float:
        """Mean over the seeds."""
        return math.fsum(run.measured_s for run in self.runs) / len(self.runs)


def simulate(scenario: Scenario, on_progress: Callable[[float], None] | None = None) -> SimulationResult:
    """Run every seed; `on_progress` is told the share that is done, and may raise to end it. Raises InvalidInput."""
    check(scenario)
    runs = []
    for index, seed in enumerate(scenario.seeds):

        def tell(share: float, index: int = index) -> None:
            if on_progress is not None:
                on_progress((index + share) / len(scenario.seeds))

        runs.append(simulate_seed(scenario, seed, tell))
    return gathered(runs)


def simulate_seed(scenario: Scenario, seed: int, on_progress: Callable[[float], None] | None = None) -> Run:
    """One run; the same scenario and seed give the same figures. Raises InvalidInput.

    Model: iteration-level scheduling (https://www.usenix.org/conference/osdi22/presentation/yu) with a paged cache
    (https://arxiv.org/abs/2309.06180); times of steps from `ReplicaModel.times`. Not modelled: the network between balancer and replica,
    variance of accepted drafts, start of an engine beyond `ReplicaLoss.duration_s`.
    """
    check(scenario)
    requests = requests_of(
        scenario.arrivals,
        scenario.kinds,
        seed=seed,
        duration_s=scenario.duration_s,
        num_requests=scenario.num_requests,
        surges=scenario.surges,
        floods=scenario.floods,
        prefix=scenario.prefix,
    )
    if not requests:
        raise InvalidInput("no request arrives before the end", field="/duration_s", value=scenario.duration_s, expected="a longer run")
    closed = scenario.arrivals.concurrency is not None
    end_s = math.inf if closed else max(requests[-1].arrival_s, 1e-9) if scenario.duration_s is None else scenario.duration_s
    warm_up_s = 0.0 if closed else end_s * scenario.warm_up_ratio
    pools, num_kinds = list[Pool](), len(scenario.kind_names)
    for index, model in enumerate(scenario.pools):
        recorder = Recorder(warm_up_s, end_s, model.num_replicas * model.replica.groups, num_kinds)
        pools.append(Pool(model, index, scenario.prefix, recorder))
    fleet = Fleet(pools, scenario.routes, scenario.client, max_num_waiting=scenario.max_num_waiting)
    for loss in scenario.losses:
        fleet.lose(loss)
    for flush in scenario.flushes:
        fleet.flush(flush)
    fleet.run(requests, end_s * (1 + DRAIN_RATIO) + LEAST_DRAIN_S, on_progress)
    if closed:
        end_s = max(1e-9, *(one.finished_s for one in requests))
        for pool in pools:
            pool.recorder.until_s = end_s
    parts = {}
    if len(pools) > 1:
        parts = {pool.model.name: figures_of(scenario, [one for one in requests if one.pool == pool.index], [pool]) for pool in pools}
    whole = figures_of(scenario, requests, pools)
    return Run(seed=seed, measured_s=end_s - warm_up_s, pools=parts, **vars(whole))


def gathered(runs: Sequence[Run]) -> SimulationResult:
    """Runs of several seeds of one scenario as means with confidence intervals."""
    pools = {name: intervals_of([run.pools[name] for run in runs]) for name in runs[0].pools}
    return SimulationResult(runs=list(runs), pools=pools, **vars(intervals_of(runs)))
