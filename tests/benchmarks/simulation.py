"""CPU time of simulations: an hour of traffic on one replica, and how it grows with requests, rate and replicas.

`python -m tests.benchmarks.simulation` prints the table. The goal is 5 s for an hour of 10 requests/s of 1000/200 tokens on one core; the
ratio to a loop of plain arithmetic on the same machine is what compares across machines.
"""

import statistics
import sys
import time
from dataclasses import replace
from typing import NamedTuple

from app.catalog.loader import load_bundled
from app.domain.deployment import Deployment
from app.domain.performance import Lengths, performance_of
from app.domain.simulation import simulate_seed
from app.domain.simulation_lengths import quantiles_of
from app.domain.simulation_pool import PoolModel
from app.domain.simulation_replica import replica_of
from app.domain.simulation_requests import Arrivals, RequestKind
from app.domain.simulation_scenario import Scenario
from app.domain.workload import TokenLengths

GOAL_S = 5.0
ROUNDS = 3
LOOP = 3_000_000


class Case(NamedTuple):
    """A simulation and what it is."""

    name: str
    scenario: Scenario


class Figure(NamedTuple):
    """Medians over the rounds."""

    num_requests: int
    cpu_s: float
    loop_ratio: float


def cases() -> list[Case]:
    """The goal, and what it grows with."""
    bundled = load_bundled()
    catalog = bundled.snapshot("bundled")
    deployment = Deployment(tp=4, weights="fp8", kv_cache="fp8", engine="vllm", max_model_len_tokens=65536)
    model, gpu, engine = catalog.model("llama-3.1-70b"), catalog.gpu("h100-sxm-80gb"), catalog.engine("vllm", None)
    replica = replica_of(performance_of(model, gpu, deployment, engine, bundled.steps, Lengths(1000, 200)))

    def kind(prompt: TokenLengths, answer: TokenLengths) -> RequestKind:
        return RequestKind("all", 1, quantiles_of(prompt), quantiles_of(answer))

    equal = kind(TokenLengths(mean=1000), TokenLengths(mean=200))
    spread = kind(TokenLengths(mean=1000, p95=3000), TokenLengths(mean=200, p95=600))
    hour = Scenario((PoolModel(replica),), Arrivals(10), (equal,), duration_s=3600, seeds=(1,))
    long = kind(TokenLengths(mean=1000), TokenLengths(mean=2000))
    many = replace(hour, arrivals=Arrivals(2000), pools=(PoolModel(replica, 200, "least_loaded"),), duration_s=18)
    fleet = replace(hour, arrivals=Arrivals(80), pools=(PoolModel(replica, 8, "least_loaded"),), duration_s=450)
    return [
        Case("an hour of 10 requests/s of 1000/200 tokens", hour),
        Case("the same, lengths spread", replace(hour, kinds=(spread,))),
        Case("a quarter of an hour", replace(hour, duration_s=900)),
        Case("four hours", replace(hour, duration_s=14_400)),
        Case("beyond saturation, 20 requests/s", replace(hour, arrivals=Arrivals(20), duration_s=1800)),
        Case("8 replicas, 80 requests/s, least loaded", fleet),
        Case("200 replicas, 2000 requests/s, least loaded", many),
        Case("outputs of 2000 tokens, 2 requests/s", replace(hour, arrivals=Arrivals(2), kinds=(long,))),
    ]


def loop_s() -> float:
    """CPU time of LOOP additions."""
    before, total = time.process_time(), 0.0
    for number in range(LOOP):
        total += number * 0.5
    return time.process_time() - before


def measure(scenario: Scenario) -> Figure:
    """Simulate a few times, each beside the loop."""
    times, ratios, count = list[float](), list[float](), 0
    for _ in range(ROUNDS):
        unit_s = loop_s()
        before = time.process_time()
        count = simulate_seed(scenario, 1).num_arrivals
        times.append(time.process_time() - before)
        ratios.append(times[-1] / unit_s)
    return Figure(count, statistics.median(times), statistics.median(ratios))


def main() -> None:
    """Print the table."""
    sys.stdout.write(f"| simulation | requests | CPU s (goal of the first {GOAL_S:g}) | us per request | / loop |\n|---|---|---|---|---|\n")
    for case in cases():
        figure = measure(case.scenario)
        each_us = figure.cpu_s / figure.num_requests * 1e6
        sys.stdout.write(f"| {case.name} | {figure.num_requests:,} | {figure.cpu_s:.2f} | {each_us:.0f} | {figure.loop_ratio:.1f} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
