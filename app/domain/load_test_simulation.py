"""The loads of a test simulated as its tool sends them: percentiles beside the means of the closed form."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from app.domain.load_test import SimulatedRun
from app.domain.load_test_plan import FLOOD_RATIO, Class
from app.domain.performance import Performance
from app.domain.replica_speed import ReplicaSpeed
from app.domain.simulation import gathered, simulate_seed
from app.domain.simulation_answer import SimulatedKind, figure, objectives_of, times_of
from app.domain.simulation_lengths import Quantiles, quantiles_of
from app.domain.simulation_pool import PoolModel
from app.domain.simulation_replica import replica_of
from app.domain.simulation_requests import Arrivals, Flood, RequestKind, SharedPrefix
from app.domain.simulation_scenario import Scenario, expected_cpu_s
from app.domain.workload import Slo, TokenLengths

SEEDS = (1, 2, 3)
"""Runs of each load, as many as the plan tells people to make."""
MOST_REQUESTS = 1000
"""Requests of one run at a rate: ten of them are beyond the P99."""
WARM_UP_RATIO = 0.1
MOST_UNDER_WAY = 10_000


def constant(tokens: float) -> Quantiles:
    """Equal lengths, as the commands ask for."""
    return quantiles_of(TokenLengths(mean=max(1.0, tokens)))


def kinds_of_classes(classes: Sequence[Class]) -> tuple[RequestKind, ...]:
    """The classes of the mixed test, named class-1, class-2 ... in their order."""
    return tuple(
        RequestKind(f"class-{index}", each.share_ratio, constant(each.input_tokens), constant(each.output_tokens))
        for index, each in enumerate(classes, 1)
    )


def level_scenario(performance: Performance, concurrency: int, num_requests: int, prefix_tokens: int) -> Scenario:
    """A closed loop of equal requests: all clients start at once and each sends its next request as its last one ends."""
    lengths = performance.lengths
    kind = RequestKind("all", 1.0, constant(lengths.input_tokens), constant(lengths.output_tokens))
    return Scenario(
        pools=(PoolModel(replica_of(performance)),),
        arrivals=Arrivals(concurrency=concurrency),
        kinds=(kind,),
        prefix=SharedPrefix(prefix_tokens) if prefix_tokens else None,
        num_requests=num_requests,
        seeds=SEEDS,
    )


@dataclass(frozen=True)
class AtRate:
    """Poisson arrivals at one replica."""

    speed: ReplicaSpeed
    """The replica."""
    request_rps: float
    """Rate, that of a flood not counted [requests/s]."""
    kinds: tuple[RequestKind, ...]
    """Its requests."""
    prefix: SharedPrefix | None = None
    """What they have in common."""
    usual_rps: float | None = None
    """Rate at which the replica is as the run starts, where it is another [requests/s]."""
    flood_tokens: float | None = None
    """Prompts that come on top at FLOOD_RATIO of the rate [tokens]."""

    def scenario(self, num_requests: int) -> Scenario:
        """`num_requests` on average; the replica starts with as many under way as the closed form says."""
        duration_s = min(num_requests, MOST_REQUESTS) / self.request_rps
        before = self.speed.at_rate(self.usual_rps or self.request_rps)
        under_way = 0 if before is None else min(MOST_UNDER_WAY, round(before.state.concurrency))
        floods: tuple[Flood, ...] = ()
        if self.flood_tokens is not None:
            outputs = max(1, round(self.speed.outputs.mean))
            floods = (Flood(0.0, duration_s, FLOOD_RATIO * self.request_rps, max(1, round(self.flood_tokens)), outputs),)
        return Scenario(
            pools=(PoolModel(replica_of(self.speed.performance)),),
            arrivals=Arrivals(self.request_rps, num_under_way=under_way),
            kinds=self.kinds,
            prefix=self.prefix,
            floods=floods,
            duration_s=duration_s,
            warm_up_ratio=WARM_UP_RATIO,
            seeds=SEEDS,
        )


class Simulator:
    """Runs scenarios until a budget is spent; those that do not fit in are left out and counted."""

    def __init__(self, slo: Slo | None, budget_s: float, is_late: Callable[[], bool]) -> None:
        """`budget_s` of computing, as `expected_cpu_s` puts it [s]; none more once `is_late`."""
        self.slo, self.left_s, self.is_late = slo, budget_s, is_late
        self.num_left_out = 0

    def run(self, scenario: Scenario) -> SimulatedRun | None:
        """The figures of all seeds; None where the rest of the budget does not pay for it."""
        cost_s = expected_cpu_s(scenario)
        if cost_s > self.left_s or self.is_late():
            self.num_left_out += 1
            return None
        self.left_s -= cost_s
        result = gathered([simulate_seed(replace(scenario, seeds=(seed,)), seed) for seed in scenario.seeds])
        return SimulatedRun(
            num_requests=round(sum(result.outcomes.values()) / len(scenario.seeds)),
            seeds=list(scenario.seeds),
            times=times_of(result.times),
            kinds=[SimulatedKind(name=name, times=times_of(times)) for name, times in result.by_kind.items()],
            request_rps=figure(result.request_rps),
            output_tokens_per_s=figure(result.output_tokens_per_s),
            objectives=objectives_of(self.slo, result),
        )
