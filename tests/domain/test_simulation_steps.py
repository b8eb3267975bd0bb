"""Steps that are taken together end where single steps do: the engine against one that goes through every step and block."""

import itertools
import math
from typing import Any

import pytest

from app.domain.simulation_fleet import Client, Fleet
from app.domain.simulation_lengths import quantiles_of
from app.domain.simulation_pool import Pool, PoolModel
from app.domain.simulation_record import Recorder
from app.domain.simulation_replica import KvRoom, ReplicaModel, StepTimes
from app.domain.simulation_requests import Arrivals, Request, RequestKind, requests_of
from app.domain.simulation_span import Span
from app.domain.workload import TokenLengths


class Straight(StepTimes):
    """A line in sequences, contexts and prompt tokens."""

    def seconds(self, num_sequences: int, context_tokens: float, prompt_tokens: float, prompt_context_tokens: float) -> float:
        return 0.01 + 1e-4 * num_sequences + 2e-7 * context_tokens + 4e-5 * prompt_tokens + 1e-9 * prompt_tokens * prompt_context_tokens


def requests(rps: float, seed: int) -> list[Request]:
    kinds = (RequestKind("all", 1, quantiles_of(TokenLengths(mean=600, p95=1800)), quantiles_of(TokenLengths(mean=60, p95=150))),)
    found = requests_of(Arrivals(rps, 1.5), kinds, seed=seed, num_requests=300)
    for one in found:
        one.input_tokens = min(one.input_tokens, 4000)
    return found


def one_by_one(model: ReplicaModel, arriving: list[Request]) -> dict[int, tuple[float, float]]:
    """(first token, last token) of every request: prompts beside decoding, oldest first, the youngest preempted when room runs out."""
    capacity, per_token, fixed = model.room.capacity, model.room.per_token, model.room.per_sequence
    waiting: list[dict[str, Any]] = []
    running: list[dict[str, Any]] = []
    coming, now, times = list(arriving), 0.0, dict[int, tuple[float, float]]()
    while coming or waiting or running:
        if not waiting and not running:
            now = max(now, coming[0].arrival_s)
        while coming and coming[0].arrival_s <= now:
            one = coming.pop(0)
            waiting.append({"index": one.index, "prompt": one.input_tokens, "out": one.output_tokens, "made": 0, "first": None, "left": 0})

        def held() -> float:
            return math.fsum(fixed + per_token * (each["prompt"] + each["made_before"] + each["grown"]) for each in running)

        budget = model.token_budget
        while waiting and len(running) < model.max_num_seqs and sum(each["left"] for each in running) < budget:
            one_more = waiting[0]
            if held() + fixed + per_token * (one_more["prompt"] + one_more["made"]) > capacity:
                break
            running.append(waiting.pop(0))
            one_more.update(left=one_more["prompt"] + one_more["made"], made_before=one_more["made"], grown=0)
        while len(running) > 1 and held() + per_token * sum(not each["left"] for each in running) > capacity:
            waiting.insert(0, running.pop())
        decoding = [each for each in running if not each["left"]]
        context = sum(each["prompt"] + each["made"] for each in decoding)
        left, chunks, weighted = budget - len(decoding), [], 0.0
        for each in running:
            if each["left"] and left > 0:
                taken = min(left, each["left"])
                weighted += taken * (each["prompt"] + each["made"] - each["left"] + taken / 2)
                chunks.append((each, taken))
                left -= taken
        total = sum(taken for _, taken in chunks)
        now += model.times.seconds(len(decoding), context, total, weighted / total if total else 0)
        for each in decoding:
            each["made"] += 1
            each["grown"] += 1
        for each, taken in chunks:
            each["left"] -= taken
            if not each["left"]:
                each["made"] += 1
                each["first"] = each["first"] or now
        for each in [each for each in running if not each["left"] and each["made"] == each["out"]]:
            running.remove(each)
            times[each["index"]] = each["first"], now
    return times


CASES = {
    "light": (ReplicaModel(Straight(), token_budget=1024), 3.0),
    "busy": (ReplicaModel(Straight(), token_budget=1024), 14.0),
    "small budget": (ReplicaModel(Straight(), token_budget=128), 8.0),
    "few places": (ReplicaModel(Straight(), token_budget=1024, max_num_seqs=4), 6.0),
    "little room": (ReplicaModel(Straight(), token_budget=2048, room=KvRoom(500, 0.5, 1 / 16)), 12.0),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", [1, 2])
def test_every_request_ends_when_it_does_step_by_step(case: str, seed: int) -> None:
    model, rps = CASES[case]
    expected = one_by_one(model, requests(rps, seed))
    found, recorder = requests(rps, seed), Recorder(0.0, 1e9, 1)
    fleet = Fleet([Pool(PoolModel(model), 0, None, recorder)], [[(math.inf, 0)]], Client())
    fleet.run(found, 1e9)
    assert len(expected) == len(found)
    assert (recorder.num_preemptions > 0) == (case == "little room")
    for one in found:
        assert (one.first_token_s, one.last_token_s) == pytest.approx(expected[one.index], rel=1e-9), one.index


@pytest.mark.parametrize("growth", [0.0, 0.01, -0.01, 1e-15])
def test_a_span_is_cut_after_the_step_that_runs(growth: float) -> None:
    whole = Span(5.0, 1.0, growth, 20)
    ends = list(itertools.accumulate(1.0 + growth * step for step in range(20)))
    assert whole.end_s == pytest.approx(5.0 + ends[-1])
    for step, end in enumerate(ends):
        assert whole.cut(5.0 + end - 0.5).num_steps == step + 1
        assert math.isclose(whole.cut(5.0 + end).end_s, 5.0 + end)
