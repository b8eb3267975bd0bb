"""What the runs of a simulation show beside their figures: what to be careful with, and the working."""

import math
from collections.abc import Iterator, Sequence

from app.domain.demand import LITTLE_SOURCE, RATE_SOURCE
from app.domain.provenance import Note, Step, step
from app.domain.simulation import SimulationResult
from app.domain.simulation_figures import FigureIntervals, Figures
from app.domain.simulation_scenario import Scenario
from app.domain.units import plain, seconds

FEW_REQUESTS = 100
STEADY_RATIO = 0.9


def warnings_of(scenario: Scenario, result: SimulationResult) -> list[Note]:
    """What to be careful with; of every pool where there are several."""
    if not result.pools:
        return [Note(code=code, message=message) for code, message in _cautions(scenario, result.runs, result, result.measured_s)]
    return [
        Note(code=code, message=f"Pool {name}: {message}")
        for name, found in result.pools.items()
        for code, message in _cautions(scenario, [run.pools[name] for run in result.runs], found, result.measured_s)
    ]


def _cautions(scenario: Scenario, runs: Sequence[Figures], found: FigureIntervals, measured_s: float) -> Iterator[tuple[str, str]]:
    """(code, message)."""
    is_open = scenario.arrivals.concurrency is None
    tail = [point for run in runs for point in run.course[-max(1, len(run.course) // 10) :]]
    waiting, running = (math.fsum(getattr(point, name) for point in tail) / len(tail) for name in ("num_waiting", "num_running"))
    if waiting > max(1.0, running):
        yield (
            "queue_grows",
            f"In the last tenth {waiting:.3g} requests wait and {running:.3g} run: queues grow, and a longer run is slower yet.",
        )
    arrived = math.fsum(run.num_arrivals for run in runs) / len(runs) * (1 - scenario.warm_up_ratio) / measured_s
    if is_open and found.request_rps.mean < STEADY_RATIO * arrived:
        yield (
            "not_steady",
            f"{arrived:.3g} requests/s arrive and {found.request_rps.mean:.3g} finish in the measured time: the fleet does not keep up, or"
            " the run is short against the time that a request takes.",
        )
    warm_up_s = measured_s * scenario.warm_up_ratio / (1 - scenario.warm_up_ratio)
    if is_open and found.times.e2e is not None and found.times.e2e.p95.mean > warm_up_s:
        yield (
            "short_warm_up",
            f"5 % of the requests take longer than {seconds(found.times.e2e.p95.mean)}, and figures are taken from {seconds(warm_up_s)} on,"
            " before the fleet holds as many requests as later: they flatter. A longer run, or a larger warm_up_ratio, does not.",
        )
    least = min(run.num_measured for run in runs)
    if least < FEW_REQUESTS:
        yield (
            "few_requests",
            f"A seed has only {least} measured requests: a P99 of fewer than {FEW_REQUESTS} is the largest value or close to it.",
        )
    lost = sum(found.outcomes.values()) - found.outcomes["finished"]
    if lost:
        yield "unfinished_requests", f"{lost} requests did not finish; the times are those of the others."


def working_of(scenario: Scenario, result: SimulationResult) -> list[Step]:
    """How figures of the answer follow from those of the seeds."""
    working = []
    if not scenario.arrivals.trace and scenario.arrivals.concurrency is None and not result.pools:
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
