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


class Straightforward:
    """An engine that goes through every step and sequence, after the sources that `app.domain.simulation_scheduler` names."""

    def __init__(self, model: ReplicaModel, arriving: list[Request]) -> None:
        self.model, self.coming = model, list(arriving)
        self.waiting: list[dict[str, Any]] = []
        self.running: list[dict[str, Any]] = []
        self.now, self.num_preemptions, self.ratio = 0.0, 0, 0.7
        self.times = dict[int, tuple[float, float]]()

    def room(self, one: dict[str, Any]) -> float:
        """That of the prompt and of outputs until the place was given, and of each step since."""
        return self.model.room.of(one["prompt"] + one["before"] + one["grown"])

    def held(self) -> float:
        return math.fsum(self.room(one) for one in self.running)

    def decoding(self) -> list[dict[str, Any]]:
        return [one for one in self.running if not one["left"]]

    def full(self) -> bool:
        return self.held() + self.model.room.per_token * len(self.decoding()) > self.model.room.capacity

    def preempt(self) -> bool:
        """SGLang retracts who has least, and puts it last; others preempt the youngest, and put it first."""
        before = self.num_preemptions
        while self.full() and len(self.running) > 1:
            self.num_preemptions += 1
            one = self.running[-1]
            if self.model.reservation == "estimate":
                one = min(self.decoding(), key=lambda each: (each["made"], -each["prompt"]))
            self.running.remove(one)
            one["left"] = 0
            self.waiting.insert(len(self.waiting) if self.model.reservation == "estimate" else 0, one)
        if self.num_preemptions > before:
            decoded, wanted = (sum(one[name] for one in self.running) for name in ("made", "out"))
            self.ratio = min(1.0, (decoded + 20 * len(self.running)) / (wanted + 1))
        return self.num_preemptions > before

    def fits(self, one: dict[str, Any]) -> bool:
        model, tokens = self.model, one["prompt"] + one["made"]
        wanted = self.held() + model.room.of(tokens)
        if not model.prefill_first:
            wanted += model.room.per_token * len(self.decoding())
        if wanted > model.room.capacity or len(self.running) == model.max_num_seqs:
            return False
        expected = one["out"] - one["made"] + sum(each["out"] - each["made"] for each in self.running if each["left"])
        expected += self.ratio * sum(each["out"] - each["made"] for each in self.decoding())
        is_free = model.reservation != "estimate" or not self.running
        return is_free or wanted + model.room.per_token * expected <= model.room.capacity

    def admit(self) -> None:
        model = self.model
        budget = model.token_budget - (0 if model.prefill_first else len(self.decoding()))
        budget -= sum(min(one["left"], model.prompt_step_tokens) for one in self.running)
        while self.waiting and budget > 0 and self.fits(self.waiting[0]):
            one = self.waiting[0]
            tokens = one["prompt"] + one["made"]
            if not model.splits_prompts and tokens > budget and any(each["left"] for each in self.running):
                break
            one.update(left=tokens, before=one["made"], grown=0)
            self.running.append(self.waiting.pop(0))
            budget -= min(tokens, model.prompt_step_tokens)

    def step(self) -> None:
        model = self.model
        if model.prefill_first:
            self.admit()
            if not any(one["left"] for one in self.running):
                self.preempt()
        elif not self.preempt():
            self.admit()
        prompts = [one for one in self.running if one["left"]]
        decoding = [] if prompts and model.prefill_first else self.decoding()
        context = sum(one["prompt"] + one["made"] for one in self.decoding())
        left, chunks, weighted = model.token_budget - len(decoding), [], 0.0
        for one in prompts:
            taken = min(left, one["left"], model.prompt_step_tokens) if model.splits_prompts else one["left"]
            if left > 0:
                weighted += taken * (one["prompt"] + one["made"] - one["left"] + taken / 2)
                chunks.append((one, taken))
            left -= taken
        total = sum(taken for _, taken in chunks)
        self.now += model.times.seconds(len(decoding), context, total, weighted / total if total else 0)
        for one in decoding:
            one["made"] += 1
            one["grown"] += 1
        if decoding:
            self.ratio = max(0.7 * 0.14, self.ratio - 0.7 * 0.86 / 600)
        for one, taken in chunks:
            one["left"] -= taken
            if not one["left"]:
                one["made"] += 1
                one["first"] = one["first"] or self.now
        for one in [one for one in self.decoding() if one["made"] == one["out"]]:
            self.running.remove(one)
            self.times[one["index"]] = one["first"], self.now

    def run(self) -> dict[int, tuple[float, float]]:
        """(first token, last token) of every request."""
        while self.coming or self.waiting or self.running:
            if not self.waiting and not self.running:
                self.now, self.ratio = max(self.now, self.coming[0].arrival_s), 0.7
            while self.coming and self.coming[0].arrival_s <= self.now:
                one = self.coming.pop(0)
                parts = {"prompt": one.input_tokens, "out": one.output_tokens, "made": 0, "first": None, "left": 0}
                self.waiting.append({"index": one.index, **parts})
            self.step()
        return self.times


LITTLE = KvRoom(500, 0.5, 1 / 16)
CASES = {
    "light": (ReplicaModel(Straight(), token_budget=1024), 3.0),
    "busy": (ReplicaModel(Straight(), token_budget=1024), 14.0),
    "small budget": (ReplicaModel(Straight(), token_budget=128), 8.0),
    "few places": (ReplicaModel(Straight(), token_budget=1024, max_num_seqs=4), 6.0),
    "little room": (ReplicaModel(Straight(), token_budget=2048, room=LITTLE), 12.0),
    "part of each prompt": (ReplicaModel(Straight(), token_budget=1024, prompt_step_tokens=256), 10.0),
    "part of each prompt, little room": (ReplicaModel(Straight(), token_budget=2048, room=LITTLE, prompt_step_tokens=512), 12.0),
    "whole prompts": (ReplicaModel(Straight(), token_budget=4096, splits_prompts=False), 10.0),
    "whole prompts beyond the budget": (ReplicaModel(Straight(), token_budget=500, splits_prompts=False), 8.0),
    "prompts first": (ReplicaModel(Straight(), token_budget=1024, prefill_first=True), 8.0),
    "prompts first, estimate": (ReplicaModel(Straight(), token_budget=1024, room=LITTLE, prefill_first=True, reservation="estimate"), 12.0),
    "estimate": (ReplicaModel(Straight(), token_budget=1024, room=LITTLE, reservation="estimate"), 12.0),
}
PREEMPTING = ("little room", "part of each prompt, little room", "prompts first, estimate", "estimate")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", [1, 2])
def test_every_request_ends_when_it_does_step_by_step(case: str, seed: int) -> None:
    model, rps = CASES[case]
    straight = Straightforward(model, requests(rps, seed))
    expected = straight.run()
    found, recorder = requests(rps, seed), Recorder(0.0, 1e9, 1)
    fleet = Fleet([Pool(PoolModel(model), 0, None, recorder)], [[(math.inf, 0)]], Client())
    fleet.run(found, 1e9)
    assert len(expected) == len(found)
    assert recorder.num_preemptions == straight.num_preemptions
    assert (recorder.num_preemptions > 0) == (case in PREEMPTING)
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
