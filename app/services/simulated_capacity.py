"""Simulating the fleets of `/capacity`: how much is simulated within the time of an answer, and when percentiles stay approximated."""

import math
import os
import threading
import time
from dataclasses import replace

from app.domain.capacity import constraints_of
from app.domain.provenance import Note
from app.domain.rounding import ceil
from app.domain.simulated_capacity import Simulated
from app.domain.simulated_search import Range, Splitting, Trials, search
from app.domain.simulation import Run, simulate_seed
from app.domain.simulation_pool import PoolModel
from app.domain.simulation_replica import replica_of
from app.domain.simulation_scenario import Scenario, expected_cpu_s
from app.domain.sizing import Sizing
from app.domain.units import plain, seconds
from app.services.requests import CapacityRequest
from app.services.simulated_scenario import kinds_of, scenario_of
from app.services.simulation_request import SimulationRequest

MOST_CPU_S = 2.0
"""Work of all simulations of an answer, as `expected_cpu_s` puts it [s]."""
SIZES = 5.5
"""Sizes that a search and its answer simulate with all seeds, about."""
SEEDS = (5, 4, 3)
"""Runs of each size: as many as leave each run its length."""
LEAST_REQUESTS = 500
"""Requests of a run, of which four fifths are measured: a P99 is the fourth largest or further from the end."""
LEAST_STAYS = 8
"""And so many times the requests that are in a replica at once."""
MOST_TOGETHER, ENOUGH_TOGETHER = 8, 4
"""Replicas of a fleet that share their requests by load in a simulation: more change little (`tests/domain/test_simulated_search.py`)."""
MOST_UNDER_WAY = 10_000
CROWDED_RATIO = 2.0
"""Requests under way in the most crowded size / those at which the closed form holds the objectives."""
SATURATION_RATIO = 1.1
"""Rates up to so much above the saturation of the closed form are looked at."""
WARM_UP_RATIO = 0.2
PATIENCE_S = 60.0
"""A search that takes longer ends [s]."""
_TURNS = threading.BoundedSemaphore(max(1, (os.cpu_count() or 2) // 2))
"""As many searches at once as half of the cores, whichever route asks: other threads go on."""


class _TooLongError(Exception):
    """A search that does not end in time."""


def simulates(request: CapacityRequest) -> bool:
    """Whether the request may be answered by simulation, which is no work for an event loop."""
    objectives = request.slo is not None and request.slo.has_objective
    named = request.model is not None and request.gpu is not None and request.deployment.engine != "generic"
    return request.percentiles == "simulated" and objectives and named


def simulated_of(request: CapacityRequest, sizing: Sizing) -> tuple[Simulated | None, list[Note]]:
    """The fleet that holds the objectives by simulation; None, with a warning that says why, where it is not simulated.

    No warning where there is nothing to simulate: no modelled replica that serves, no objective that was not measured, or not asked for.
    """
    speed, rate = sizing.speed, sizing.demand.request_rps
    if not simulates(request) or speed is None or speed.slo is None or not speed.serves:
        return None, []
    idle = speed.idle
    assert idle is not None  # noqa: S101 - a replica that serves has such a state
    held, performance = speed.within_objectives, speed.performance

    asked = SimulationRequest(
        model=request.model or "", gpu=request.gpu or "", deployment=request.deployment, workload=request.workload, slo=speed.slo,
        num_requests=LEAST_REQUESTS, warm_up_ratio=WARM_UP_RATIO, seeds=[1],
    )  # fmt: skip
    whole = scenario_of(asked, [PoolModel(replica_of(performance))], kinds_of(request.workload), [])
    in_flight, first = max(1.0, (held or idle).state.concurrency), None if held is None else rate / held.request_rps
    least = rate / (SATURATION_RATIO * speed.most_rps(performance.places))

    def under_way(request_rps: float) -> float:
        loaded = speed.at_rate(request_rps)
        return performance.places if loaded is None else loaded.state.concurrency

    scenario, is_limited = _within_budget(whole, in_flight, request.balancing), False
    if scenario is None and first is not None:
        # Where other limits need more replicas, or one is more than enough, shorter runs at that size tell what counts.
        needed = ceil(max(1.0, *(each.replicas_exact or 0.0 for each in constraints_of(sizing) if each.name != "slo")))
        loaded = speed.at_rate(rate / needed)
        if needed > first and loaded is not None:
            in_flight, least, is_limited = max(1.0, loaded.state.concurrency), float(needed), True
            scenario = _within_budget(whole, in_flight, request.balancing)
    if scenario is None:
        message = (
            f"Percentiles are approximated: about {plain(round(in_flight))} requests at once in a replica need longer runs than fit in "
            f"{seconds(MOST_CPU_S)} of computing. POST /simulate simulates a fleet of a given size."
        )
        return None, [Note(code="percentiles_approximated", message=message)]
    deadline_s = [math.inf]

    def run(scenario: Scenario, seed: int) -> Run:
        return simulate_seed(scenario, seed, watch)

    def watch(_: float) -> None:
        if time.monotonic() > deadline_s[0]:
            raise _TooLongError

    group = 1 if request.balancing != "least_loaded" else _group(scenario, in_flight)
    most = min(MOST_UNDER_WAY / MOST_TOGETHER, CROWDED_RATIO * in_flight)
    trials = Trials(scenario, speed.slo, request.balancing, group, under_way, most, run)
    within = Range(least, max(1.0, rate / idle.request_rps))
    with _TURNS:
        deadline_s[0] = time.monotonic() + PATIENCE_S
        try:
            found = search(trials, first, within, rate * idle.state.e2e_s)
        except _TooLongError:
            message = f"Percentiles are approximated: the simulation was not done after {seconds(PATIENCE_S)}."
            return None, [Note(code="percentiles_approximated", message=message)]
        deadline_s[0] = math.inf  # the sizes that the answer adds are less crowded
    if is_limited and first is not None and found.needed is not None and found.needed.num_replicas == least:
        found = replace(found, replicas_exact=first, line=None, is_upper=True)
    return Simulated(trials, found), []


def _within_budget(whole: Scenario, in_flight: float, balancing: Splitting) -> Scenario | None:
    """As many seeds and requests as the budget pays for; None where runs would be too short.

    Fewer seeds where that lets ENOUGH_TOGETHER replicas share their requests by load.
    """
    each_s = expected_cpu_s(replace(whole, num_requests=1, seeds=(1,)))
    affordable, found = MOST_CPU_S / SIZES / each_s, None
    for num_seeds in SEEDS:
        num_requests = int(affordable / num_seeds - in_flight)
        if num_requests < max(LEAST_REQUESTS, LEAST_STAYS * in_flight):
            continue
        found = replace(whole, num_requests=num_requests, seeds=tuple(range(1, num_seeds + 1)))
        if balancing != "least_loaded" or _group(found, in_flight) >= ENOUGH_TOGETHER:
            break
    return found


def _group(scenario: Scenario, in_flight: float) -> int:
    """Replicas that are simulated together: each request stays LEAST_STAYS times in a run."""
    return min(MOST_TOGETHER, max(1, int((scenario.num_requests or 0) / (LEAST_STAYS * in_flight))))
