"""Pools in a simulation: where requests go, and that each pool is what it would be alone."""

import math
import random
from typing import Any

import pytest

from app.domain.errors import InvalidInput
from app.domain.simulation import Run, simulate_seed
from app.domain.simulation_lengths import quantiles_of
from app.domain.simulation_pool import Balancing, Intake, Pool, PoolModel, mean_lengths, routes_of
from app.domain.simulation_record import Recorder
from app.domain.simulation_replica import ConstantSteps, KvRoom, ReplicaModel
from app.domain.simulation_requests import Arrivals, Request, RequestKind, Traced, requests_of
from app.domain.simulation_scenario import Scenario
from app.domain.workload import TokenLengths

MODEL = ReplicaModel(ConstantSteps(0.02), token_budget=2048, max_num_seqs=32, room=KvRoom(4000, 0.5, 1 / 16))
KINDS = tuple(
    RequestKind(name, share, quantiles_of(TokenLengths(mean=prompt, p95=2 * prompt)), quantiles_of(TokenLengths(mean=output)))
    for name, share, prompt, output in (("short", 0.8, 800, 100), ("long", 0.2, 9000, 200))
)
LIMIT_TOKENS = 3000
BY_KIND, BY_LENGTH = Intake(("short",)), Intake(max_input_tokens=LIMIT_TOKENS)


def run(first: Intake, **more: Any) -> Run:
    pools = PoolModel(MODEL, 1, "least_loaded", "first", first), PoolModel(MODEL, 2, "least_loaded", "second")
    return simulate_seed(Scenario(pools, Arrivals(8), KINDS, duration_s=200.0, **more), 3)


@pytest.mark.parametrize("intake", [BY_KIND, BY_LENGTH], ids=["kind", "length"])
def test_a_pool_serves_its_requests_as_it_would_alone(intake: Intake) -> None:
    together = run(intake)
    requests = requests_of(Arrivals(8), KINDS, seed=3, duration_s=200.0)
    goes_first = [one.kind == 0 if intake is BY_KIND else one.input_tokens <= LIMIT_TOKENS for one in requests]
    for name, count, here in (("first", 1, True), ("second", 2, False)):
        mine = [one for one, first in zip(requests, goes_first, strict=True) if first is here]
        trace = tuple(Traced(one.arrival_s, one.input_tokens, one.output_tokens) for one in mine)
        alone = simulate_seed(Scenario((PoolModel(MODEL, count, "least_loaded"),), Arrivals(trace=trace), duration_s=200.0), 3)
        found = together.pools[name]
        assert (found.outcomes, found.course) == (alone.outcomes, alone.course)
        for time in ("queue", "ttft", "tpot", "itl", "e2e"):
            assert getattr(found.times, time) == pytest.approx(getattr(alone.times, time)), time
        assert (found.busy_ratio, found.num_in_flight) == pytest.approx((alone.busy_ratio, alone.num_in_flight))


def test_all_pools_together_are_the_sum() -> None:
    found = run(BY_KIND)
    parts = found.pools.values()
    assert found.num_arrivals == sum(part.num_arrivals for part in parts)
    assert found.num_in_flight == pytest.approx(math.fsum(part.num_in_flight for part in parts))
    assert found.by_kind["short"] == found.pools["first"].times
    assert found.by_kind["long"] == found.pools["second"].times


def test_clients_that_wait_send_to_every_pool() -> None:
    pools = PoolModel(MODEL, name="first", intake=BY_KIND), PoolModel(MODEL, name="second")
    found = simulate_seed(Scenario(pools, Arrivals(concurrency=12), KINDS, num_requests=400), 1)
    assert found.outcomes["finished"] == 400
    assert 10 < found.num_in_flight <= 12
    assert all(part.outcomes["finished"] > 50 for part in found.pools.values())


def test_where_requests_go() -> None:
    routes = routes_of([BY_LENGTH, Intake(("long",)), Intake()], ("short", "long"))
    assert routes == [[(LIMIT_TOKENS, 0), (math.inf, 2)], [(LIMIT_TOKENS, 0), (math.inf, 1)]]


@pytest.mark.parametrize("intakes", [[BY_LENGTH], [BY_KIND], [Intake(("other",)), Intake()]], ids=["long", "kind", "unknown"])
def test_requests_that_go_nowhere_are_refused(intakes: list[Intake]) -> None:
    with pytest.raises(InvalidInput):
        routes_of(intakes, ("short", "long"))


def test_the_mean_lengths_of_a_pool_are_those_of_its_requests() -> None:
    routes = routes_of([BY_LENGTH, Intake()], ("short", "long"))
    requests = requests_of(Arrivals(8), KINDS, seed=1, num_requests=40_000)
    for index, (prompt, answer) in enumerate(mean_lengths(routes, KINDS, (), 2)):
        mine = [one for one in requests if (one.input_tokens > LIMIT_TOKENS) == bool(index)]
        assert prompt == pytest.approx(sum(one.input_tokens for one in mine) / len(mine), rel=0.02)
        assert answer == pytest.approx(sum(one.output_tokens for one in mine) / len(mine), rel=0.02)


def test_a_pool_without_requests_is_modelled_by_all() -> None:
    routes = routes_of([Intake(), Intake()], ("trace",))
    assert mean_lengths(routes, (), [Traced(0, 10, 1), Traced(1, 30, 3)], 2) == [(20, 2), (20, 2)]


def next_of_all(pool: Pool, balancing: Balancing) -> int:
    """The replica as a look at all of them finds it: fewest requests, then next in turn."""
    loads = [sum(engine.load for engine in replica) for replica in pool.replicas]
    up = [index for index in range(len(loads)) if index not in pool.down]
    if balancing == "round_robin":
        return up[(pool.turn + 1) % len(up)]
    return min(up, key=lambda index: (loads[index], (index - pool.turn - 1) % len(loads)))


@pytest.mark.parametrize("balancing", ["least_loaded", "round_robin"])
def test_the_replica_is_the_one_that_a_look_at_all_of_them_finds(balancing: Balancing) -> None:
    pool = Pool(PoolModel(MODEL, 7, balancing), 0, None, Recorder(0.0, 1e9, 7))
    draw = random.Random(5)  # noqa: S311 - no secrets
    for turn in range(2000):
        if turn % 50 == 20:
            pool.go_down(turn % 7)
        if turn % 50 == 45:
            for index in sorted(pool.down):
                pool.come_back(index)
        expected, request = next_of_all(pool, balancing), Request(turn, 0.0, 0, 10, 10)
        engine = pool.chosen(request)
        assert engine is not None
        assert engine.replica_index == expected
        engine.waiting.append(request)
        pool.settle(engine.replica_index)
        for index, (other,) in enumerate(pool.replicas):
            if other.waiting and draw.random() < 0.15:
                other.waiting.popleft()
                pool.settle(index)
