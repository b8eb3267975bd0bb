"""Fleets in a simulation: balancing, failures, storms, and caches that are flushed."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from app.domain.errors import InvalidInput
from app.domain.simulation import Run, simulate_seed
from app.domain.simulation_fleet import CacheFlush, Client, ReplicaLoss
from app.domain.simulation_lengths import quantiles_of
from app.domain.simulation_pool import Balancing, PoolModel
from app.domain.simulation_record import Percentiles
from app.domain.simulation_replica import KvRoom, ReplicaModel, StepTimes
from app.domain.simulation_requests import Arrivals, Flood, RequestKind, SharedPrefix, Surge
from app.domain.simulation_scenario import Scenario
from app.domain.workload import TokenLengths


class Straight(StepTimes):
    """10 ms + 0.1 ms x sequences + 50 us x prompt token + 0.1 us x context token."""

    def seconds(self, num_sequences: int, context_tokens: float, prompt_tokens: float, prompt_context_tokens: float) -> float:
        return 0.01 + 1e-4 * num_sequences + 5e-5 * prompt_tokens + 1e-7 * context_tokens


MODEL = ReplicaModel(Straight(), token_budget=4096, max_num_seqs=128, room=KvRoom(20_000, 0.5, 1 / 16))


def kind(prompt: float, output: float, name: str = "all", share: float = 1.0) -> RequestKind:
    return RequestKind(name, share, quantiles_of(TokenLengths(mean=prompt, p95=prompt * 2)), quantiles_of(TokenLengths(mean=output)))


def run(model: ReplicaModel = MODEL, rps: float = 20, num_replicas: int = 4, variation: float = 1.0, **more: Any) -> Run:
    given: dict[str, Any] = {"kinds": (kind(1000, 100),), "duration_s": 200.0, "balancing": "least_loaded", "warm_up_ratio": 0.1, **more}
    pool = PoolModel(model, num_replicas, given.pop("balancing"))
    return simulate_seed(Scenario((pool,), Arrivals(rps, variation), **given), 7)


def ttft(found: Run) -> Percentiles:
    assert found.times.ttft is not None
    return found.times.ttft


def test_the_least_loaded_replica_waits_least() -> None:
    kinds = kind(500, 50, "short", 0.9), kind(8000, 400, "long", 0.1)
    blind, seeing = (run(kinds=kinds, rps=24, balancing=each) for each in ("round_robin", "least_loaded"))
    assert ttft(seeing).p95 < ttft(blind).p95


@pytest.mark.parametrize("balancing", ["round_robin", "least_loaded", "prefix_aware"])
def test_one_replica_is_a_fleet_of_one(balancing: Balancing) -> None:
    assert run(num_replicas=1, rps=5, balancing=balancing).times == run(num_replicas=1, rps=5).times


def test_requests_that_share_a_beginning_go_where_it_is_cached() -> None:
    """Room for few beginnings on each replica: spread over all of them, they push one another out."""
    prefix = SharedPrefix(tokens=2000, num_prefixes=64)
    model = replace(MODEL, room=KvRoom(5000, 0.5, 1 / 16))
    kinds = (kind(3000, 50),)
    anywhere, home = (run(model, kinds=kinds, prefix=prefix, rps=16, balancing=each) for each in ("least_loaded", "prefix_aware"))
    assert ttft(home).mean < 0.9 * ttft(anywhere).mean


def test_a_cached_beginning_is_not_computed_and_held_once() -> None:
    kinds = (RequestKind("all", 1, quantiles_of(TokenLengths(mean=2000)), quantiles_of(TokenLengths(mean=100))),)
    cold, warm = (run(num_replicas=1, rps=4, kinds=kinds, prefix=prefix) for prefix in (None, SharedPrefix(tokens=1600)))
    assert ttft(warm).mean < 0.5 * ttft(cold).mean
    used = [max(point.kv_used_ratio for point in found.course) for found in (cold, warm)]
    assert used[1] < 0.5 * used[0]


def test_a_flushed_cache_is_filled_again() -> None:
    prefix = SharedPrefix(tokens=900, num_prefixes=400)
    kept, flushed = (run(prefix=prefix, rps=16, flushes=flushes) for flushes in ((), (CacheFlush(100),)))
    assert ttft(kept).mean < ttft(flushed).mean < ttft(run(rps=16)).mean


def test_a_replica_that_is_lost_loads_the_others() -> None:
    whole, hurt = run(rps=24), run(rps=24, losses=(ReplicaLoss(50, 100, 1),))
    assert ttft(hurt).p99 > ttft(whole).p99
    assert hurt.outcomes["finished"] == whole.outcomes["finished"] == whole.num_arrivals
    gone = run(rps=24, losses=(ReplicaLoss(50, 100, 1),), client=Client(resend_lost=False))
    assert 0 < gone.outcomes["failed"] < 100


def test_no_replica_no_service() -> None:
    found = run(num_replicas=1, rps=5, losses=(ReplicaLoss(50, 50),))
    rejected = found.outcomes["rejected"]
    assert 200 < rejected < 300
    assert found.outcomes["finished"] == found.num_arrivals - rejected


def test_a_surge_multiplies_the_arrivals_of_its_time() -> None:
    usual, doubled = run(), run(surges=(Surge(100, 150),))
    assert doubled.num_arrivals - usual.num_arrivals == pytest.approx(20 * 50, rel=0.1)
    assert ttft(doubled).p99 > ttft(usual).p99


def test_a_flood_of_long_prompts_is_noticed_by_the_others() -> None:
    usual, flooded = run(rps=16), run(rps=16, floods=(Flood(80, 120, 2, 30_000, 10),))
    assert "flood" in flooded.by_kind
    before, after = usual.by_kind["all"].tpot, flooded.by_kind["all"].tpot
    assert before is not None
    assert after is not None
    assert after.p99 > 1.5 * before.p99


def test_bursts_wait_longer_than_a_constant_pace() -> None:
    waits = [ttft(run(rps=26, variation=each)).p99 for each in (0.0, 1.0, 3.0)]
    assert waits == sorted(waits)


def test_a_storm_of_retries_keeps_an_overload_up() -> None:
    """Clients that come again after their timeout keep a fleet busy with answers that nobody waits for."""
    client = Client(timeout_s=3, max_num_retries=5)
    surge = (Surge(40, 80, 3),)
    calm, storm = (run(rps=22, surges=surge, client=each) for each in (Client(timeout_s=3), client))
    assert storm.num_retries > 0
    assert storm.num_timeouts > calm.num_timeouts > 0
    late = [sum(point.num_running + point.num_waiting for point in found.course if 90 < point.start_s < 120) for found in (calm, storm)]
    assert late[1] > 1.2 * late[0]


def test_a_request_that_timed_out_leaves_room() -> None:
    found = run(num_replicas=1, rps=17, client=Client(timeout_s=8))
    assert found.outcomes["timed_out"] > 0
    assert sum(found.outcomes.values()) == found.num_arrivals
    assert found.times.e2e is not None
    assert found.times.e2e.p99 <= 8
    assert found.num_in_flight < 17 * 8.2


def test_chunks_keep_answers_flowing_beside_long_prompts() -> None:
    kinds = kind(500, 100, "short", 0.8), kind(10_000, 100, "long", 0.2)
    budgets = float("inf"), 1024.0
    whole, cut = (run(replace(MODEL, token_budget=budget), rps=4, num_replicas=1, kinds=kinds) for budget in budgets)
    assert whole.times.itl is not None
    assert cut.times.itl is not None
    assert cut.times.itl.p99 < whole.times.itl.p99 / 3


def test_prompts_first_stop_the_answers_in_progress() -> None:
    mixed, first = run(rps=20), run(replace(MODEL, prefill_first=True), rps=20)
    for time in ("itl", "tpot"):
        shared, apart = (getattr(found.times, time) for found in (mixed, first))
        assert shared is not None
        assert apart is not None
        assert apart.p99 > 1.1 * shared.p99


def test_static_batches_wait_longest() -> None:
    model = replace(MODEL, batch_size=8, reservation="output", prefill_first=True)
    found = [run(replace(model, batching=each), rps=4, num_replicas=2) for each in ("dynamic", "static")]
    waits = [ttft(run(rps=4, num_replicas=2)).mean, *(ttft(each).mean for each in found)]
    assert waits == sorted(waits)


def test_the_course_of_the_load_is_short_and_adds_up() -> None:
    found = run()
    assert len(found.course) == 200
    inside = [point.num_running + point.num_waiting for point in found.course if point.start_s >= 20]
    assert sum(inside) / len(inside) == pytest.approx(found.num_in_flight, rel=0.05)
    assert all(0 <= point.kv_used_ratio <= 1 for point in found.course)
    assert all(one.start_s < other.start_s for one, other in itertools.pairwise(found.course))


def test_gaps_are_those_of_the_steps() -> None:
    found = run()
    assert found.times.itl is not None
    assert found.times.tpot is not None
    assert found.times.itl.mean == pytest.approx(found.times.tpot.mean, rel=0.02)


def test_a_replica_that_is_not_there_cannot_be_lost() -> None:
    with pytest.raises(InvalidInput) as refused:
        run(losses=(ReplicaLoss(1, 1, 4),))
    assert refused.value.field == "/faults/0/replica_index"
