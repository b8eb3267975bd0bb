"""Searches: what is listed does not depend on bounds or order, every candidate is counted, and a search can be stopped."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.deployment import Deployment
from app.domain.fleet import Reserve
from app.domain.hardware import Gpu
from app.domain.precision import WeightFormat
from app.domain.search import Found, Miss, Progress, Search
from app.domain.search_judge import TrafficJudge
from app.domain.search_leaders import Candidate, Leaders, Objectives, Outcome
from app.domain.search_space import Family, Priced, Refusals, Setting, Space
from app.domain.workload import Slo, Workload
from tests.domain.shapes import CATALOG

SETTINGS = [Setting(budget, seqs) for budget in (2048, 8192) for seqs in (32, 256)]
GPUS = ("h100-sxm-80gb", "l40s-48gb", "b200-sxm-180gb", "a100-sxm-80gb")
MODELS = ("llama-3.1-8b", "qwen3-32b", "gpt-oss-20b", "qwen3-30b-a3b")


def traffic(**given_: Any) -> Workload:
    return Workload.model_validate(given_)


def space_of(
    model: str,
    gpus: Sequence[str] = GPUS,
    weights: Sequence[WeightFormat | None] = (None, "fp8"),
    max_gpus: int = 4,
    price: Callable[[str], float | None] = lambda gpu: 1.0 + len(gpu) % 5,
) -> Space:
    accelerators = [Priced(CATALOG.gpu(gpu), price(gpu), "test") for gpu in gpus]
    return Space(
        CATALOG.model(model), accelerators, Deployment(max_model_len_tokens=16384), ("vllm",), weights, ("auto",), SETTINGS, max_gpus
    )


def judge_of(model: str, workload: Workload, slo: Slo, redundancy_ratio: float = 1.25, spare_replicas: int = 0) -> TrafficJudge:
    return TrafficJudge(
        llm=CATALOG.model(model),
        engines={"vllm": CATALOG.engine("vllm")},
        model=CATALOG.step_model,
        workload=workload,
        slo=slo,
        reserve=Reserve(redundancy_ratio, spare_replicas),
        safety_ratio=0.7,
        most_seqs=256,
    )


def listed(found: Found) -> tuple[list[tuple[float, ...]], list[tuple[float, ...]]]:
    return [each.key for each in found.leaders.cheapest], [each.key for each in found.leaders.front]


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    model=st.sampled_from(MODELS),
    rps=st.floats(0.05, 500),
    prompt=st.floats(50, 6000),
    output=st.floats(1, 800),
    spread=st.floats(1, 3.5),
    ttft=st.floats(0.1, 5),
    tpot=st.floats(0.005, 0.2),
    redundancy=st.floats(1, 2),
    spare=st.integers(0, 2),
    shared=st.floats(0, 1),
    hits=st.floats(0, 1),
)
def test_bounds_change_nothing_that_is_listed(
    model: str,
    rps: float,
    prompt: float,
    output: float,
    spread: float,
    ttft: float,
    tpot: float,
    redundancy: float,
    spare: int,
    shared: float,
    hits: float,
) -> None:
    prompts = {"mean": prompt, "p95": prompt * spread}
    workload = traffic(
        peak_rps=rps, input_tokens=prompts, output_tokens=output, shared_prefix_tokens=shared * prompt, prefix_hit_ratio=hits
    )
    slo = Slo(ttft_p95_s=ttft, tpot_p95_s=tpot)
    both = []
    for uses_bounds in (True, False):
        judge = judge_of(model, workload, slo, redundancy_ratio=redundancy, spare_replicas=spare)
        found = Search(space_of(model, GPUS[:2]), judge, Leaders(3), uses_bounds=uses_bounds).run()
        assert found.complete
        both.append(found)
    assert listed(both[0]) == listed(both[1])
    assert both[0].num_computed <= both[1].num_computed


def test_bounds_spare_most_of_the_work() -> None:
    workload = traffic(peak_rps=50, input_tokens={"mean": 2000, "p95": 6000}, output_tokens=300)
    judge = judge_of("qwen3-32b", workload, Slo(ttft_p95_s=2, tpot_p95_s=0.05))
    found = Search(space_of("qwen3-32b"), judge, Leaders(3)).run()
    assert found.num_held
    assert found.num_beaten > 3 * found.num_computed


def test_a_smaller_limit_of_sequences_never_needs_fewer_replicas() -> None:
    """Why a search does not compute it: 1500 requests/s keep every place taken."""
    workload = traffic(peak_rps=1500, input_tokens=500, output_tokens=500)
    judge = judge_of("llama-3.1-8b", workload, Slo(ttft_p95_s=2, tpot_p95_s=0.05))
    family = Family(Priced(CATALOG.gpu("h100-sxm-80gb"), 2.0, "test"), Deployment(engine="vllm", max_model_len_tokens=16384))
    judge.best(family)
    needed = []
    for seqs in (256, 64, 16):
        outcome = judge.assess(judge.perform(family, Setting(8192, seqs)))
        assert not isinstance(outcome, Miss)
        needed.append(outcome.replicas_exact)
    assert needed == sorted(needed)
    assert needed[0] < needed[-1]


@pytest.mark.parametrize("shared", [0, 1400], ids=["own prompts", "shared prefix"])
@pytest.mark.parametrize("model", MODELS)
def test_the_bounds_of_a_family_are_below_all_its_settings(model: str, shared: float) -> None:
    workload = traffic(
        peak_rps=20, input_tokens={"mean": 1500, "p95": 5000}, output_tokens=200, shared_prefix_tokens=shared, prefix_hit_ratio=1
    )
    judge = judge_of(model, workload, Slo(ttft_p95_s=3, tpot_p95_s=0.1))
    compared = 0
    for family in space_of(model).families(Refusals()):
        best = judge.best(family)
        for setting in SETTINGS:
            performance = judge.perform(family, setting)
            outcome = judge.assess(performance) if performance.found.verdict == "serves" else Miss("does_not_fit", "")
            if not isinstance(outcome, Miss):
                assert not isinstance(best, Miss)
                assert all(bound <= figure for bound, figure in zip(best, outcome, strict=True))
                compared += 1
    assert compared >= 8


def test_every_candidate_is_counted_once() -> None:
    workload = traffic(peak_rps=20, input_tokens=1500, output_tokens=200)
    judge = judge_of("llama-3.1-70b", workload, Slo(ttft_p95_s=1, tpot_p95_s=0.05))
    space = space_of(
        "llama-3.1-70b",
        (*GPUS, "v100-sxm2-16gb", "mi300x-192gb"),
        (None, "fp8", "nvfp4"),
        max_gpus=16,
        price=lambda gpu: None if gpu == "a100-sxm-80gb" else 2.0,
    )
    found = Search(space, judge, Leaders(3)).run()
    assert found.complete
    assert {"no_price", "weights_unsupported", "does_not_fit", "fewer_places"} <= found.refusals.counts.keys()
    assert found.refusals.counts.keys() == found.refusals.examples.keys()
    assert "a100-sxm-80gb" in found.refusals.examples["no_price"]
    assert "nvfp4" in found.refusals.examples["weights_unsupported"]


def test_a_layout_that_the_model_cannot_have_is_counted_with_its_reason() -> None:
    refusals = Refusals()
    model = "qwen2.5-1.5b"
    space = space_of(model, GPUS[:1], (None,), max_gpus=8)
    families = list(space.families(refusals))
    assert refusals.counts["layout_impossible"] == space.num_candidates - len(families) * len(SETTINGS)
    assert "heads" in refusals.examples["layout_impossible"]


@pytest.mark.parametrize(
    ("progress", "over"),
    [
        pytest.param(Progress(cancelled=True), lambda: False, id="cancelled"),
        pytest.param(Progress(), itertools.chain([False] * 12, itertools.repeat(True)).__next__, id="out of time"),
    ],
)
def test_a_search_can_be_stopped(progress: Progress, over: Callable[[], bool]) -> None:
    workload = traffic(peak_rps=20, input_tokens=1500, output_tokens=200)
    judge = judge_of("llama-3.1-8b", workload, Slo(ttft_p95_s=1, tpot_p95_s=0.05))
    found = Search(space_of("llama-3.1-8b"), judge, Leaders(3), progress, over).run()
    assert not found.complete
    assert found.num_decided < found.num_candidates == progress.num_candidates


FIGURES = st.integers(1, 40).map(lambda number: number / 4)
OBJECTIVES = st.builds(Objectives, FIGURES, FIGURES, FIGURES, FIGURES)


def family_of(number: int) -> Family:
    return Family(Priced(Gpu(slug="g", name="g"), 1.0, "test"), Deployment(tp=number))


FAMILIES = [family_of(1), family_of(2), family_of(3)]


def candidate(objectives: Objectives, rank: int) -> Candidate:
    """A candidate of which only its objectives and its family count."""
    nothing: Any = None
    return Candidate(objectives, rank, FAMILIES[rank % 3], nothing, Outcome(1, 1, 1, 1))


@given(found=st.lists(OBJECTIVES, min_size=1, max_size=12), order=st.randoms())
def test_the_lists_do_not_depend_on_the_order_of_adding(found: list[Objectives], order: Any) -> None:
    candidates = [candidate(objectives, rank) for rank, objectives in enumerate(found)]
    lists = []
    for _ in range(2):
        leaders = Leaders(2)
        for each in candidates:
            leaders.add(each)
        lists.append(([each.rank for each in leaders.cheapest], [each.rank for each in leaders.front]))
        order.shuffle(candidates)
    assert lists[0] == lists[1]
    assert lists[0][0][0] == min(candidates, key=lambda each: each.key).rank


@given(
    found=st.lists(OBJECTIVES, max_size=10),
    best=OBJECTIVES,
    worse=st.tuples(FIGURES, FIGURES, FIGURES, FIGURES),
)
def test_what_is_beaten_changes_no_list(found: list[Objectives], best: Objectives, worse: tuple[float, ...]) -> None:
    leaders = Leaders(2)
    for rank, objectives in enumerate(found):
        leaders.add(candidate(objectives, rank))
    before = (leaders.cheapest, leaders.front)
    late = candidate(Objectives(*(one + more for one, more in zip(best, worse, strict=True))), len(found))
    beaten = leaders.beats(late.family, best, late.rank)
    most = leaders.most_usd_per_hour(late.family, best)
    leaders.add(late)
    if beaten or late.objectives.usd_per_hour > most:
        assert (leaders.cheapest, leaders.front) == before
