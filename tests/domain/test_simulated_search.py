"""Searching a fleet by simulation: one replica stands for all, and the sizes that are found are those that hold and do not."""

import math
from dataclasses import replace

import pytest

from app.domain.simulated_search import MOST_JUDGED, MOST_SIZES, Bracket, Range, Splitting, Trial, Trials, bracketed, search
from app.domain.simulation import simulate, simulate_seed
from app.domain.simulation_lengths import quantiles_of
from app.domain.simulation_pool import Balancing, PoolModel
from app.domain.simulation_replica import ConstantSteps, ReplicaModel
from app.domain.simulation_requests import Arrivals, RequestKind
from app.domain.simulation_scenario import Scenario
from app.domain.workload import Slo, TokenLengths

REPLICA = ReplicaModel(ConstantSteps(0.02), token_budget=1000, max_num_seqs=8)
KINDS = (RequestKind("all", 1, quantiles_of(TokenLengths(mean=800, p95=1500)), quantiles_of(TokenLengths(mean=40, p95=100))),)


def scenario(
    rps: float, num_replicas: int = 1, balancing: Balancing = "round_robin", *, num_requests: int = 2000, seeds: tuple[int, ...] = (1, 2, 3)
) -> Scenario:
    pool = PoolModel(REPLICA, num_replicas, balancing)
    return Scenario((pool,), Arrivals(rps), KINDS, num_requests=num_requests, warm_up_ratio=0.2, seeds=seeds)


def trials(rps: float, slo: Slo, balancing: Splitting = "round_robin", group: int = 1) -> Trials:
    return Trials(scenario(rps), slo, balancing, group, lambda _: 0.0, 100.0, simulate_seed)


@pytest.mark.parametrize("num_replicas", [2, 5])
def test_one_replica_with_steadier_arrivals_stands_for_a_fleet_in_turn(num_replicas: int) -> None:
    rate = 8.0
    seeds = tuple(range(1, 7))
    fleet = simulate(scenario(rate * num_replicas, num_replicas, num_requests=2000 * num_replicas, seeds=seeds)).times
    asked = trials(rate * num_replicas, Slo(ttft_p95_s=1))
    asked.scenario = replace(asked.scenario, seeds=seeds)
    alone = asked.judged(float(num_replicas)).result.times
    alone_at_random = replace(asked, balancing="random", runs={}).judged(float(num_replicas)).result.times
    for time in ("ttft", "tpot", "e2e"):
        for level in ("mean", "p95", "p99"):
            (one, wide), (all_of_them, also_wide) = getattr(getattr(alone, time), level), getattr(getattr(fleet, time), level)
            assert one == pytest.approx(all_of_them, abs=wide + also_wide), (time, level)
    assert alone_at_random.ttft is not None
    assert alone.ttft is not None
    assert alone_at_random.ttft.p95.mean > 1.1 * alone.ttft.p95.mean


@pytest.mark.parametrize("group", [2, 4])
def test_a_few_replicas_that_share_by_load_stand_for_more(group: int) -> None:
    """All of them are no slower, and hardly faster; in turn is slower."""
    rate, num_replicas, seeds = 9.0, 8, tuple(range(1, 7))
    fleet = simulate(scenario(rate * num_replicas, num_replicas, "least_loaded", num_requests=8000, seeds=seeds)).times
    asked = trials(rate * num_replicas, Slo(ttft_p95_s=1), "least_loaded", group)
    asked.scenario = replace(asked.scenario, num_requests=1000 * group, seeds=seeds)
    part = asked.judged(float(num_replicas))
    assert (part.scenario.num_replicas, part.scenario.arrivals.request_rps) == (group, rate * group)
    in_turn = replace(asked, balancing="round_robin", runs={}).judged(float(num_replicas)).result.times
    for level in ("mean", "p95", "p99"):
        (some, wide), (every, also_wide), (turn, _) = (getattr(found.ttft, level) for found in (part.result.times, fleet, in_turn))
        assert some == pytest.approx(every, abs=wide + also_wide + 0.1 * every), level
        assert some < turn, level


def line(limit: float, slope: float = 2.0, saturated: float = 0.0) -> dict[str, float]:
    return {"limit": limit, "slope": slope, "saturated": saturated}


def straight(size: float, limit: float, slope: float, saturated: float) -> Trial:
    """A fleet whose percentiles fall with a power of its size."""
    found = trials(1.0, Slo())
    strain = math.inf if size <= saturated else (limit / size) ** slope
    return Trial(size, found.part(size), None, [], strain)  # type: ignore[arg-type] # the search asks for the strain alone


@pytest.mark.parametrize(
    ("first", "shape"),
    [
        (40.0, line(47.3)),
        (60.0, line(47.3, 5.0)),
        (3.0, line(4.5, 1.0, saturated=3.0)),
        (900.0, line(1200.0)),
        (1.0, line(1.5)),
        (30.0, line(2.5)),
        (0.3, line(0.55)),
        (0.9, line(0.2, 3.0)),
    ],
)
def test_neighbouring_sizes_are_found_in_few_looks(first: float, shape: dict[str, float]) -> None:
    looks = list[float]()

    def at(size: float) -> Trial:
        looks.append(size)
        return straight(size, **shape)

    found = bracketed(at, first, Range(1e-3, 1e6), 2.0, MOST_SIZES)
    assert found.low is not None
    assert found.high is not None
    assert found.is_narrow
    assert found.low.num_replicas < shape["limit"] <= found.high.num_replicas
    assert len(looks) == len(set(looks)) <= 8
    if found.high.num_replicas > 1:
        assert found.high.num_replicas % 1 == found.low.num_replicas % 1 == 0
    if not shape["saturated"]:
        assert found.crossing == pytest.approx(shape["limit"])


def test_sizes_that_the_closed_form_rules_out_are_not_looked_at() -> None:
    looks = list[float]()

    def at(size: float) -> Trial:
        looks.append(size)
        return straight(size, limit=1e-6, slope=1.0, saturated=0.0)

    found = bracketed(at, 10.0, Range(4.2, 1e6), 2.0, MOST_JUDGED)
    assert (found.low, min(looks)) == (None, 5.0)
    assert found.high is not None
    assert found.high.num_replicas == 5.0


def test_where_nothing_holds_an_idle_replica_is_asked_last() -> None:
    looks = list[float]()

    def at(size: float) -> Trial:
        looks.append(size)
        return straight(size, limit=1e12, slope=1e-3, saturated=0.0)

    found = bracketed(at, 10.0, Range(1.0, 1e6), 2.0, MOST_SIZES)
    assert found.high is None
    assert looks[-1] == 1e6
    assert len(looks) <= 6


def test_the_fleet_that_is_found_holds_and_one_less_does_not() -> None:
    asked = trials(60, Slo(ttft_p95_s=0.12, tpot_p99_s=0.05))
    found = search(asked, 4.0, Range(0.5, 6e4), 60.0)
    assert found.needed is not None
    assert found.fewer is not None
    assert found.replicas_exact is not None
    assert found.needed.holds
    assert not found.fewer.holds
    assert found.needed.num_replicas == found.fewer.num_replicas + 1
    assert found.fewer.num_replicas < found.replicas_exact <= found.needed.num_replicas
    from_elsewhere = search(trials(60, Slo(ttft_p95_s=0.12, tpot_p99_s=0.05)), 30.0, Range(0.5, 6e4), 60.0)
    assert from_elsewhere.needed is not None
    assert from_elsewhere.needed.num_replicas == found.needed.num_replicas


def test_a_single_replica_may_hold_more_than_its_traffic() -> None:
    found = search(trials(2, Slo(ttft_p95_s=0.12)), 0.3, Range(0.01, 2e3), 2.0)
    assert found.needed is not None
    assert found.needed.num_replicas == 1
    assert found.fewer is None
    assert found.replicas_exact is not None
    assert 0.05 < found.replicas_exact < 0.9


def test_objectives_that_an_idle_replica_misses_have_no_fleet() -> None:
    for first in (None, 10.0):
        found = search(trials(60, Slo(ttft_p95_s=0.01)), first, Range(0.5, 6e4), 60.0)
        assert (found.needed, found.replicas_exact) == (None, None)
        assert found.idle is not None
        assert found.idle.num_replicas == 6e4


def test_requests_that_no_replica_takes_are_no_size() -> None:
    asked = trials(10, Slo(e2e_p99_s=100))
    pool = PoolModel(replace(REPLICA, max_model_len_tokens=1000), 1, "round_robin")
    asked.scenario = replace(asked.scenario, pools=(pool,))
    assert asked.judged(5.0).strain == math.inf


def test_a_line_that_is_not_known_has_its_middle() -> None:
    low, high = straight(4, 5, 1, saturated=4), straight(9, 5, 1, saturated=4)
    assert Bracket(low, high, 2.0).crossing == pytest.approx(6)
