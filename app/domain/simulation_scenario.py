"""What is simulated: a fleet, its traffic, its clients, and what goes wrong."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.errors import InvalidInput
from app.domain.simulation_fleet import CacheFlush, Client, ReplicaLoss
from app.domain.simulation_pool import PoolModel, Routes, routes_of
from app.domain.simulation_requests import Arrivals, Flood, RequestKind, SharedPrefix, Surge

FLOODED = "flood"
"""Name of the kind of requests that a flood adds."""
CPU_S_PER_EVENT = 3e-5
"""A prompt step or the end of a request, on the machine of the benchmark."""


@dataclass(frozen=True)
class Limits:
    """What a request must keep to count for the goodput; None is no limit."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None


PATIENT = Client()
NO_LIMITS = Limits()


def kind_names(kinds: Sequence[RequestKind], *, flooded: bool) -> tuple[str, ...]:
    """Names of the kinds of requests of a run: of its kinds, or of a trace, and of floods last."""
    names = [kind.name for kind in kinds] or ["trace"]
    return (*names, FLOODED) if flooded else tuple(names)


@dataclass(frozen=True)
class Scenario:
    """What is simulated."""

    pools: tuple[PoolModel, ...]
    """Each request goes to the first one that takes it."""
    arrivals: Arrivals
    kinds: tuple[RequestKind, ...] = ()
    client: Client = PATIENT
    prefix: SharedPrefix | None = None
    surges: tuple[Surge, ...] = ()
    floods: tuple[Flood, ...] = ()
    losses: tuple[ReplicaLoss, ...] = ()
    flushes: tuple[CacheFlush, ...] = ()
    limits: Limits = NO_LIMITS
    max_num_waiting: int | None = None
    """Requests that wait in one group of a replica at most; more are rejected."""
    duration_s: float | None = None
    num_requests: int | None = None
    warm_up_ratio: float = 0.1
    """Share of the arrivals' time that is left out of the figures; clients that start at once are measured from the start."""
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)

    @property
    def kind_names(self) -> tuple[str, ...]:
        """Names of the kinds of requests, those of floods last."""
        return kind_names(self.kinds, flooded=bool(self.floods))

    @property
    def routes(self) -> Routes:
        """Which pools requests of each kind go to; raises InvalidInput where some go nowhere."""
        return routes_of([pool.intake for pool in self.pools], self.kind_names)

    @property
    def num_replicas(self) -> int:
        """Of all pools."""
        return sum(pool.num_replicas for pool in self.pools)


def check(scenario: Scenario) -> None:
    """Refuse what cannot be simulated; raises InvalidInput naming the field."""
    _ = scenario.routes
    for index, loss in enumerate(scenario.losses):
        replicas = scenario.pools[loss.pool].num_replicas
        if not 0 <= loss.replica_index < replicas:
            raise InvalidInput(
                f"replica {loss.replica_index} of {replicas} cannot be lost",
                field=f"/faults/{index}/replica_index", value=loss.replica_index, expected=f"0 to {replicas - 1}",
            )  # fmt: skip
    trace = scenario.arrivals.trace
    if not scenario.kinds and not trace:
        raise InvalidInput("requests without lengths", field="/workload", expected="lengths, classes or a trace")
    if trace and max(one.arrival_s for one in trace) <= 0:
        raise InvalidInput("all requests of the trace arrive at once", field="/trace", expected="arrivals after 0 s")
    if scenario.arrivals.concurrency is not None and scenario.duration_s is not None:
        raise InvalidInput(
            "clients that wait for their answers end with their last request", field="/duration_s", value=scenario.duration_s,
            expected="num_requests",
        )  # fmt: skip
    if not scenario.seeds:
        raise InvalidInput("a run needs a seed", field="/seeds", expected="one seed or more")
    if not 0 <= scenario.warm_up_ratio < 1:
        raise InvalidInput("nothing is left to measure", field="/warm_up_ratio", value=scenario.warm_up_ratio, expected="0 to below 1")


def expected_cpu_s(scenario: Scenario) -> float:
    """About the time of all seeds on one core: requests x (1 + steps of a prompt) x CPU_S_PER_EVENT, retries not counted [s].

    To tell a request that is answered at once from a job; within a factor of three on what `tests/benchmarks/simulation.py` measures.
    """
    arrivals = scenario.arrivals
    if arrivals.trace:
        count, tokens = float(len(arrivals.trace)), sum(one.input_tokens for one in arrivals.trace) / len(arrivals.trace)
    else:
        share = sum(kind.share_ratio for kind in scenario.kinds)
        tokens = sum(kind.share_ratio * kind.inputs.mean for kind in scenario.kinds) / share
        duration_s = math.inf if scenario.duration_s is None or arrivals.concurrency is not None else scenario.duration_s
        more = sum((each.factor_ratio - 1) * max(0.0, min(each.end_s, duration_s) - each.start_s) for each in scenario.surges)
        count = arrivals.request_rps * (duration_s + more)
    if scenario.num_requests is not None:
        count = min(count, float(scenario.num_requests))
    count += arrivals.num_under_way
    budget = min(pool.replica.token_budget for pool in scenario.pools)
    events = count * (1 + math.ceil(tokens / budget))
    for flood in scenario.floods:
        events += flood.request_rps * (flood.end_s - flood.start_s) * (1 + math.ceil(flood.input_tokens / budget))
    return events * CPU_S_PER_EVENT * len(scenario.seeds)
