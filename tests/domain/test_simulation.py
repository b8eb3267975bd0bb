"""Simulated replicas against what theory knows, and what must hold in every run."""

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest

from app.domain.batching import Batching
from app.domain.errors import InvalidInput
from app.domain.simulation import Run, simulate, simulate_seed
from app.domain.simulation_fleet import Client
from app.domain.simulation_lengths import Quantiles, quantiles_of
from app.domain.simulation_pool import PoolModel
from app.domain.simulation_record import percentiles
from app.domain.simulation_replica import ConstantSteps, KvRoom, ReplicaModel
from app.domain.simulation_requests import Arrivals, RequestKind, SharedPrefix, Surge, Traced, requests_of
from app.domain.simulation_scenario import Limits, Scenario, expected_cpu_s
from app.domain.simulation_summary import Interval
from app.domain.workload import TokenLengths


def constant(tokens: float) -> Quantiles:
    return quantiles_of(TokenLengths(mean=tokens))


def kind(prompt: float, output: float, name: str = "all", share: float = 1) -> RequestKind:
    return RequestKind(name, share, constant(prompt), constant(output))


ONE_AT_A_TIME = ReplicaModel(ConstantSteps(1.0), max_num_seqs=1)
CHAT = ReplicaModel(ConstantSteps(0.02), token_budget=2048, max_num_seqs=64, room=KvRoom(4000, 0.5, 1 / 16))


def scenario(model: ReplicaModel = CHAT, rps: float = 5, **more: Any) -> Scenario:
    found: dict[str, Any] = {"kinds": (kind(1000, 200),), "num_requests": 2000, "seeds": (1,), **more}
    pool = PoolModel(model, found.pop("num_replicas", 1), found.pop("balancing", "round_robin"))
    return Scenario((pool,), found.pop("arrivals", Arrivals(rps)), **found)


def one(found: Scenario, seed: int = 1) -> Run:
    return simulate_seed(found, seed)


def agrees(found: Interval, expected: float) -> bool:
    """Theory lies in a confidence interval that is narrow enough to tell."""
    assert found.half_width is not None
    assert found.half_width < 0.1 * expected
    return abs(found.mean - expected) <= found.half_width


@pytest.mark.parametrize("load", [0.3, 0.6])
def test_one_server_with_constant_service_waits_as_m_d_1(load: float) -> None:
    """rho / (2 (1 - rho)) service times (Pollaczek-Khinchine)."""
    found = simulate(scenario(ONE_AT_A_TIME, load, kinds=(kind(10, 1),), num_requests=15_000, seeds=tuple(range(6))))
    assert found.times.queue is not None
    assert agrees(found.times.queue.mean, load / (2 * (1 - load)))
    assert found.busy_ratio.mean == pytest.approx(load, rel=0.02)


def test_one_server_waits_request_by_request_as_its_recursion_says() -> None:
    """W' = max(0, W + S - gap) (Lindley)."""
    given = scenario(ONE_AT_A_TIME, 0.9, kinds=(kind(10, 1),), num_requests=5000, warm_up_ratio=0)
    arrivals = [one.arrival_s for one in requests_of(given.arrivals, given.kinds, seed=1, num_requests=5000)]
    waits = [0.0]
    for before, after in itertools.pairwise(arrivals):
        waits.append(max(0.0, waits[-1] + 1.0 - (after - before)))
    assert one(given).times.queue == pytest.approx(percentiles(waits), rel=1e-9)


def erlang_c(servers: int, offered: float) -> float:
    blocked = 1.0
    for count in range(1, servers + 1):
        blocked = offered * blocked / (count + offered * blocked)
    return blocked / (1 - offered / servers * (1 - blocked))


class Exponential(Quantiles):
    """Exponential lengths with a mean of exp(first point)."""

    def at(self, deviate: float) -> float:
        return -math.exp(self.points[0][1]) * math.log(0.5 * math.erfc(deviate / math.sqrt(2)))


@pytest.mark.slow
@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (4, 0.6)])
def test_many_places_with_exponential_service_wait_as_m_m_c(servers: int, load: float) -> None:
    """Erlang's C / (c mu - lambda), service = output x a step that never changes, fine enough to be continuous."""
    lengths = Exponential(((0.0, math.log(1000.0)),), 0, 0)
    model = ReplicaModel(ConstantSteps(0.001), max_num_seqs=servers)
    kinds = (RequestKind("all", 1, constant(1), lengths),)
    found = simulate(scenario(model, load * servers, kinds=kinds, num_requests=20_000, seeds=tuple(range(8))))
    assert found.times.queue is not None
    expected = erlang_c(servers, load * servers) / (servers * (1 - load))
    assert agrees(found.times.queue.mean, expected)


@pytest.mark.parametrize("batching", ["continuous", "dynamic"])
@pytest.mark.parametrize("rps", [2, 6, 12])
def test_littles_law(batching: Batching, rps: float) -> None:
    model = replace(CHAT, batching=batching, batch_size=64, prefill_first=batching == "dynamic")
    run = one(scenario(model, rps, num_requests=20_000))
    assert run.times.e2e is not None
    assert run.num_in_flight == pytest.approx(run.num_measured / run.measured_s * run.times.e2e.mean, rel=0.01)


HARD: dict[str, dict[str, Any]] = {
    "easy": {},
    "overload": {"rps": 40},
    "little room": {"model": replace(CHAT, room=KvRoom(400, 0.5, 1 / 16))},
    "impatient clients": {"rps": 90, "client": Client(timeout_s=6, max_num_retries=2)},
    "short queue": {"rps": 40, "max_num_waiting": 5},
    "too long": {"kinds": (kind(1000, 200, "short", 0.9), kind(70_000, 200, "long", 0.1))},
    "prompts first": {"model": replace(CHAT, prefill_first=True)},
    "static": {"model": replace(CHAT, batching="static", batch_size=8, prefill_first=True, reservation="output")},
    "drafts": {"model": replace(CHAT, tokens_per_step=2.4, positions_per_sequence=4)},
    "shared beginnings": {"prefix": SharedPrefix(tokens=600, share_ratio=0.8, num_prefixes=5)},
    "stages": {"model": replace(CHAT, groups=2)},
    "polls": {"model": replace(CHAT, poll_interval_steps=7, batch_wait_steps=3)},
}


@pytest.mark.parametrize("case", HARD)
@pytest.mark.parametrize("num_replicas", [1, 3])
def test_no_request_is_lost_or_counted_twice(case: str, num_replicas: int) -> None:
    given = scenario(**HARD[case], num_replicas=num_replicas, balancing="least_loaded")
    run = one(given)
    assert sum(run.outcomes.values()) == run.num_arrivals == 2000
    assert run.outcomes["running"] == run.outcomes["waiting"] == run.outcomes["failed"] == 0
    assert (run.outcomes["rejected"] > 0) == (case in ("short queue", "too long"))
    assert (run.outcomes["timed_out"] > 0) == (case == "impatient clients")
    assert run.num_preemptions > 0 or case != "little room"
    assert one(given) == run


@pytest.mark.parametrize("rps", [2.0, 10.0])
def test_more_traffic_waits_longer_request_by_request(rps: float) -> None:
    """Common random numbers: the same requests, only closer together."""
    slower, faster = (one(scenario(rps=rate)).times for rate in (rps, rps * 1.2))
    for name in ("queue", "ttft", "e2e"):
        for low, high in zip(getattr(slower, name)[:4], getattr(faster, name)[:4], strict=True):  # P99.9 of 2,000 is two requests.
            assert high >= low * 0.999


def test_a_change_of_lengths_leaves_arrivals_alone() -> None:
    short, long = (one(scenario(kinds=(kind(100, output),))) for output in (10, 50))
    assert short.measured_s == long.measured_s


def test_a_single_request_takes_its_steps() -> None:
    run = one(scenario(arrivals=Arrivals(trace=(Traced(1.0, 5000, 11),)), kinds=(), num_requests=None, warm_up_ratio=0))
    assert run.times.ttft is not None
    assert run.times.tpot is not None
    assert run.times.ttft.mean == pytest.approx(3 * 0.02)  # 5000 tokens in steps of 2048
    assert run.times.tpot.mean == pytest.approx(0.02)
    assert list(run.by_kind) == ["trace"]


def test_goodput_counts_requests_within_the_limits() -> None:
    free = one(scenario(rps=12))
    assert free.times.ttft is not None
    assert free.goodput_rps == pytest.approx(free.num_measured / free.measured_s)
    half = one(scenario(rps=12, limits=Limits(ttft_s=free.times.ttft.p50)))
    assert half.goodput_rps == pytest.approx(free.goodput_rps / 2, rel=0.02)


def test_seeds_give_intervals() -> None:
    found = simulate(scenario(seeds=(1, 2, 3)))
    assert found.times.ttft is not None
    assert found.times.ttft.p95.half_width is not None
    assert 0 < found.times.ttft.p95.half_width < found.times.ttft.p95.mean
    single = simulate(scenario(seeds=(1,)))
    assert single.request_rps.half_width is None


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"kinds": ()}, "/workload"),
        ({"num_requests": None}, "/duration_s"),
        ({"seeds": ()}, "/seeds"),
        ({"warm_up_ratio": 1.0}, "/warm_up_ratio"),
        ({"arrivals": Arrivals(trace=(Traced(0, 10, 10), Traced(0, 20, 10)))}, "/trace"),
        ({"arrivals": Arrivals(1e-6), "num_requests": None, "duration_s": 1.0}, "/duration_s"),
    ],
    ids=["no lengths", "no end", "no seeds", "warm-up only", "all at once", "no request"],
)
def test_what_cannot_be_simulated_is_refused(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        simulate(scenario(**wrong))
    assert refused.value.field == field


ABSURD: dict[str, dict[str, Any]] = {
    "one token": {"kinds": (kind(1, 1),)},
    "endless outputs": {"kinds": (kind(1, 1e9),), "model": replace(CHAT, room=KvRoom())},
    "endless prompts": {"kinds": (kind(1e9, 2),), "model": replace(CHAT, room=KvRoom(), token_budget=math.inf)},
    "no room": {"model": replace(CHAT, room=KvRoom(0, 0.5, 1 / 16))},
    "a budget of one": {"model": replace(CHAT, token_budget=1), "kinds": (kind(5, 3),)},
    "more sequences than the budget": {"model": replace(CHAT, token_budget=4), "rps": 50, "kinds": (kind(5, 30),)},
    "a flash": {"rps": 1e9},
    "a trickle": {"rps": 1e-6},
    "no patience": {"client": Client(timeout_s=1e-6, max_num_retries=3)},
    "wild bursts": {"arrivals": Arrivals(5, 50.0)},
}


@pytest.mark.parametrize("case", ABSURD)
def test_absurd_traffic_ends_in_figures(case: str) -> None:
    run = one(scenario(**{"num_requests": 50, **ABSURD[case]}))
    assert sum(run.outcomes.values()) == 50
    figures = [run.request_rps, run.num_in_flight, run.busy_ratio, run.goodput_rps, run.output_tokens_per_s]
    figures += [each for time in (run.times.ttft, run.times.tpot, run.times.e2e, run.times.itl) if time is not None for each in time]
    assert all(math.isfinite(each) and each >= 0 for each in figures), figures
    assert run.busy_ratio <= 1 + 1e-9
    assert all(math.isfinite(each) for point in run.course for each in point)


def test_the_expected_time_follows_requests_and_prompts() -> None:
    usual = expected_cpu_s(scenario(num_requests=None, duration_s=3600.0, rps=10))
    assert 36_000 * 2 * 2e-5 < usual < 36_000 * 2 * 1e-4
    assert expected_cpu_s(scenario(num_requests=None, duration_s=3600.0, rps=10, seeds=(1, 2))) == 2 * usual
    assert expected_cpu_s(scenario(num_requests=None, duration_s=3600.0, rps=10, kinds=(kind(20_000, 5),))) == pytest.approx(5.5 * usual)
    assert expected_cpu_s(scenario(num_requests=360, duration_s=3600.0, rps=10)) == pytest.approx(usual / 100)


def closed(num_clients: int, **more: Any) -> Scenario:
    return scenario(arrivals=Arrivals(concurrency=num_clients), **{"num_requests": 10 * num_clients, **more})


@pytest.mark.parametrize("num_clients", [1, 8, 100])
def test_clients_that_wait_for_their_answers_keep_the_concurrency(num_clients: int) -> None:
    """The last wave leaves the system one by one; Little's law holds for all of it."""
    spread = RequestKind("all", 1, quantiles_of(TokenLengths(mean=1000, p95=1200)), quantiles_of(TokenLengths(mean=200, p95=240)))
    run = one(closed(num_clients, kinds=(spread,)))
    assert run.outcomes["finished"] == run.num_measured == 10 * num_clients
    assert 0.85 * num_clients <= run.num_in_flight <= num_clients * (1 + 1e-9)
    assert run.times.e2e is not None
    assert run.num_in_flight == pytest.approx(run.request_rps * run.times.e2e.mean, rel=0.01)
    assert 100 <= len(run.course) <= 200
    assert max(point.num_running + point.num_waiting for point in run.course) <= num_clients * (1 + 1e-9)


def test_requests_of_equal_length_that_start_together_stay_together() -> None:
    """Where prompts run first all of them end at once, and their clients' next prompts wait for one another again."""
    spread = RequestKind("all", 1, constant(1000), quantiles_of(TokenLengths(mean=200, p95=240)))
    waits = []
    for each in (kind(1000, 200), spread):
        found = one(closed(32, model=replace(CHAT, prefill_first=True), kinds=(each,))).times.ttft
        assert found is not None
        waits.append(found.mean)
    assert waits[0] > 2 * waits[1]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [({"surges": (Surge(1, 2),)}, "/faults"), ({"duration_s": 10.0}, "/duration_s"), ({"num_requests": None}, "/duration_s")],
    ids=["surge", "duration", "no end"],
)
def test_clients_have_no_rate(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        one(closed(4, **wrong))
    assert refused.value.field == field
