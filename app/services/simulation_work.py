"""How much work a simulation is, and where it ends: what is answered at once, what is a job, what is refused."""

import math
import time
from collections.abc import Callable

from app.domain.errors import InvalidInput
from app.domain.simulation import Run, simulate_seed
from app.domain.simulation_scenario import Scenario, expected_cpu_s
from app.domain.units import plain, seconds

MOST_DIRECT_CPU_S = 5.0
"""Work that is answered at once; more becomes a job. By `work_s`, hence 2 to 10 s, within what clients and proxies wait [s]."""
MOST_JOB_CPU_S = 3600.0
"""Work of a job, all its parts together [s]."""
MOST_REQUESTS = 1_000_000
"""Of one seed: each takes some 640 bytes (measured), and several workers share a machine."""
PATIENCE_RATIO = 6.0
"""A run that takes so many times longer ends: the expectation is meant within a factor of three, on a machine that may be busy."""
LEAST_PATIENCE_S = 60.0
"""But never earlier [s]."""


def work_s(scenario: Scenario) -> float:
    """`expected_cpu_s`, with every retry that clients may send [s]."""
    return expected_cpu_s(scenario) * (1 + (0 if math.isinf(scenario.client.timeout_s) else scenario.client.max_num_retries))


def refuse_above(most_s: float, scenario: Scenario) -> None:
    """Raise InvalidInput, which says what would fit, where a scenario is more work than `most_s` [s], or holds too much at once."""
    expected_s = work_s(scenario)
    if expected_s > most_s:
        raise _too_large(scenario, most_s, expected_s, f"{len(scenario.seeds)} seeds would take about {seconds(expected_s)} of computing")
    num_requests = _requests_of_seed(scenario)
    if num_requests > MOST_REQUESTS:
        field, value, shorter = _shorter(scenario, MOST_REQUESTS / num_requests)
        what = f"a seed has about {num_requests:.3g} requests, which are held at once"
        expected = f"{shorter}, or a lower rate: at most {MOST_REQUESTS} requests"
        raise InvalidInput(f"the simulation is too large: {what}", field=field, value=value, expected=expected)


def patient_run(scenario: Scenario, seed: int, tell: Callable[[float], None]) -> Run:
    """One seed, ended with InvalidInput where it takes far longer than expected; `tell` is told the share that is done."""
    patience_s = max(LEAST_PATIENCE_S, PATIENCE_RATIO * work_s(scenario) / len(scenario.seeds))
    until_s = time.monotonic() + patience_s

    def watch(share: float) -> None:
        if time.monotonic() > until_s:
            raise _too_large(scenario, patience_s / PATIENCE_RATIO, patience_s, f"a seed is not done after {seconds(patience_s)}")
        tell(share)

    return simulate_seed(scenario, seed, watch)


def _requests_of_seed(scenario: Scenario) -> float:
    """Requests of one seed that arrive: of a trace all, else rate x time, and the floods on top."""
    arrivals = scenario.arrivals
    if arrivals.trace:
        count = float(len(arrivals.trace))
    else:
        count = math.inf
        if scenario.duration_s is not None:
            longest_s = scenario.duration_s
            more_s = sum((each.factor_ratio - 1) * max(0.0, min(each.end_s, longest_s) - each.start_s) for each in scenario.surges)
            count = arrivals.request_rps * (longest_s + more_s)
        if scenario.num_requests is not None:
            count = min(count, float(scenario.num_requests))
    return count + sum(each.request_rps * (each.end_s - each.start_s) for each in scenario.floods)


def _too_large(scenario: Scenario, most_s: float, taken_s: float, what: str) -> InvalidInput:
    """The refusal of work of `taken_s` where `most_s` would do."""
    share = most_s / taken_s
    seeds = f"{max(1, int(len(scenario.seeds) * share))} seeds" if len(scenario.seeds) * share >= 1 else "one seed"
    field, value, shorter = _shorter(scenario, share)
    expected = f"{shorter}, {seeds}, or a lower rate: at most {seconds(most_s)} of computing"
    return InvalidInput(f"the simulation is too large: {what}", field=field, value=value, expected=expected)


def _shorter(scenario: Scenario, share: float) -> tuple[str, float, str]:
    """The field by which a scenario is shortened, its value, and what leaves this share of it."""
    if scenario.arrivals.trace:
        value = float(len(scenario.arrivals.trace))
        return "/trace", value, f"a trace of at most {math.floor(value * share)} requests"
    if scenario.num_requests is not None:
        value = float(scenario.num_requests)
        return "/num_requests", value, f"num_requests of at most {math.floor(value * share)}"
    value = scenario.duration_s or 0.0
    return "/duration_s", value, f"duration_s of at most {plain(math.floor(value * share))}"
