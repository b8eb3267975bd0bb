"""From a modelled replica to the loads of its tests and the figures that are expected of them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from app.domain.expected_latency import ExpectedLatency, expected_latency
from app.domain.length_spread import spread_of
from app.domain.load_state import LoadState
from app.domain.load_test import Fault, SimulatedRun
from app.domain.performance import BENCHMARK_WAVES, Lengths, Performance
from app.domain.performance_estimate import ServiceFigures, service_figures
from app.domain.replica_speed import ReplicaSpeed
from app.domain.units import plain, seconds
from app.domain.workload import RequestClass, Workload

LEAST_REQUESTS = 50
"""Fewer say nothing about a P95."""
LEVELS_PAST_KNEE = 2
"""Doublings beyond the knee: one shows that throughput has ended, the other that it was no noise."""
HIGHEST_LEVEL = 2**16
LONG_SHARE_RATIO = 0.05
"""Share of the requests with prompts of the P95 where a distribution is tested as two classes."""


FLOOD_RATIO = 0.1
"""Long prompts of the flood / usual requests (a convention)."""
RETRIES = 3
"""Times that a client sends a request again, as the clients of OpenAI's API may be told to (their default is 2)."""


class Level(NamedTuple):
    """A load and what is expected of it."""

    concurrency: int
    num_requests: int
    state: LoadState
    figures: ServiceFigures


def ramp_levels(performance: Performance) -> tuple[list[Level], int]:
    """The levels 1, 2, 4 ... past the expected knee, and the knee.

    The knee is the level of largest throughput / time of a request, as in `/performance`: the power of Kleinrock (1979).
    `performance` serves at least one request.
    """
    found: list[Level] = []
    knee = 0
    while len(found) <= knee + LEVELS_PAST_KNEE and (not found or found[-1].concurrency < HIGHEST_LEVEL):
        found.append(level_at(performance, 1 << len(found)))
        knee = max(range(len(found)), key=lambda index: _power(found[index].state))
    return found, found[knee].concurrency


def level_at(performance: Performance, concurrency: int) -> Level:
    """A closed loop at a concurrency, of the usual number of requests, and the means expected of it."""
    num_requests = max(LEAST_REQUESTS, BENCHMARK_WAVES * concurrency)
    run = replace(performance, num_waves=num_requests / concurrency)
    state = run.closed(float(concurrency))
    return Level(concurrency, num_requests, state, service_figures(run, state, arriving=False, saturated=False))


def _power(state: LoadState) -> float:
    return state.request_rps / state.e2e_s


class Class(NamedTuple):
    """Requests of one length."""

    share_ratio: float
    input_tokens: float
    output_tokens: float


def mix_of(workload: Workload) -> list[Class]:
    """The classes of a workload after token growth; of a distribution with a P95 two that keep its mean; empty where nothing spreads.

    The long class has the P95 of the prompts for a share of 0.05; the short one (mean - 0.05 P95) / 0.95 [tokens].
    """
    growth = workload.token_growth_ratio
    if workload.classes:
        return [Class(each.share_ratio, each.input_tokens * growth, each.output_tokens * growth) for each in workload.classes]
    prompts, outputs = workload.lengths("input_tokens"), workload.lengths("output_tokens")
    if prompts.p95 is None or prompts.p95 <= prompts.mean:
        return []
    short = (prompts.mean - LONG_SHARE_RATIO * prompts.p95) / (1 - LONG_SHARE_RATIO)
    if short < 1:
        return []
    return [
        Class(1 - LONG_SHARE_RATIO, short * growth, outputs.mean * growth),
        Class(LONG_SHARE_RATIO, prompts.p95 * growth, outputs.mean * growth),
    ]


def expected_at(speed: ReplicaSpeed, request_rps: float) -> ExpectedLatency | None:
    """Times of a replica at a rate [requests/s]; None where requests outrun it."""
    loaded = speed.at_rate(request_rps)
    return None if loaded is None else expected_latency(speed, loaded)


class FaultLoad(NamedTuple):
    """A fault, and the replica as it is while it lasts."""

    name: str
    how: str
    pass_when: str
    speed: ReplicaSpeed
    request_rps: float
    """Rate to one replica, that of a flood included [requests/s]."""
    is_cold: bool = False
    """Whether the prefix cache finds nothing."""
    flood_tokens: float | None = None
    """Prompts of the flood [tokens]."""


def faults_of(speed: ReplicaSpeed, request_rps: float, replicas: int, workload: Workload, flush: str) -> list[FaultLoad]:
    """The faults (two need a second replica) at the planned rate of one replica [requests/s]."""
    faults = []
    if replicas > 1:
        share = replicas / (replicas - 1)
        faults += [
            FaultLoad("one replica goes", "End one replica without warning.", "only its own requests fail, once",
                      speed, request_rps * share),
            FaultLoad("a GPU is reset", "Take one accelerator away; its replica starts again.",
                      "the replica leaves the load balancer before requests time out, and comes back by itself",
                      speed, request_rps * share),
        ]  # fmt: skip
    flooded, longest = _flooded(speed, workload)
    own_s = speed.prompts.at("p99").prompt_s(0)
    how = f"Send prompts of {plain(longest)} tokens at a tenth of the rate, beside the usual ones: each computes for {seconds(own_s)}."
    return [
        *faults,
        FaultLoad("the prefix cache is empty", flush, "times come back as the cache fills",
                  _without_hits(speed), request_rps, is_cold=True),
        FaultLoad("traffic doubles", "Send twice the rate of the peak for ten minutes.",
                  "requests beyond the capacity wait or are refused, none of the others is late, nothing ends", speed, 2 * request_rps),
        FaultLoad("clients try again", f"Let clients time out and send again, up to {RETRIES} times.",
                  "the rate falls back by itself when the cause is gone", speed, (1 + RETRIES) * request_rps),
        FaultLoad("long prompts flood in", how, "TPOT of the short requests stays within its objective",
                  flooded, request_rps * (1 + FLOOD_RATIO), flood_tokens=longest),
    ]  # fmt: skip


def _flooded(speed: ReplicaSpeed, workload: Workload) -> tuple[ReplicaSpeed, float]:
    """The replica with prompts of the P99 at FLOOD_RATIO of the usual rate beside the usual ones, and their length [tokens]."""
    longest, outputs = speed.inputs.p99, speed.outputs.mean
    share = FLOOD_RATIO / (1 + FLOOD_RATIO)
    usual = RequestClass(share_ratio=1 - share, input_tokens=speed.inputs.mean, output_tokens=max(1.0, outputs))
    long = RequestClass(share_ratio=share, input_tokens=longest, output_tokens=max(1.0, outputs))
    both = Workload(peak_rps=workload.peak_rps, classes=(usual, long))
    lengths, mean = speed.performance.lengths, both.lengths("input_tokens").mean
    hits = lengths.prefix_hit_ratio * lengths.input_tokens * (1 - share) / mean
    performance = speed.performance.at_lengths(Lengths(mean, lengths.output_tokens, hits, lengths.shared))
    return ReplicaSpeed(performance, spread_of(both, "input_tokens"), speed.outputs, hits * mean, speed.slo), longest


def fault_of(load: FaultLoad, simulated: SimulatedRun | None) -> Fault:
    """The fault with what is expected while it lasts."""
    expected = expected_at(load.speed, load.request_rps)
    keeps = all(each.holds for each in expected.objectives) if expected and simulated is None else simulated is None or simulated.holds
    return Fault(
        name=load.name,
        how=load.how,
        request_rps=load.request_rps,
        expected=expected,
        simulated=simulated,
        holds=expected is not None and keeps,
        pass_when=load.pass_when,
    )


def _without_hits(speed: ReplicaSpeed) -> ReplicaSpeed:
    lengths = speed.performance.lengths
    cold = speed.performance.at_lengths(Lengths(lengths.input_tokens, lengths.output_tokens))
    return ReplicaSpeed(cold, speed.inputs, speed.outputs, 0.0, speed.slo)


def duration_s(levels: Sequence[Level]) -> float:
    """Sum of requests / expected rate [s]."""
    return sum(level.num_requests / level.figures.request_rps.value for level in levels)
