"""Percentiles of TTFT, TPOT and E2E against a replica that is stepped through request by request."""

from dataclasses import replace

import pytest

from app.domain.deployment import Deployment
from app.domain.latency_tail import LEVELS, SIMULATED_RATIO, Level, Prompts, Tails, exponential_tail_s
from app.domain.length_spread import Spread
from app.domain.performance import Lengths, performance_of
from app.domain.serving import Serving
from tests.domain.shapes import BUNDLED, CATALOG, H100
from tests.domain.straight_service import Times, lognormal, served

FOUR = Deployment(tp=4, weights="fp8", kv_cache="fp8", engine="vllm")
CASES = {
    "long prompts": (4000, 500, 0.93),
    "short prompts": (1000, 200, 0.93),
    "even prompts": (4000, 500, 0.4),
    "long outputs": (1000, 1000, 0.8),
}


LOADED_RATIO = 1.2
"""Where prompts do not take most of the time; elsewhere SIMULATED_RATIO."""


def replica(prompt: float, output: float) -> Serving:
    """Without what only measurements know: a request meets half a step on average, and nothing outside the engine."""
    engine = CATALOG.engine("vllm")
    found = performance_of(BUNDLED.models["llama-3.1-70b"], H100, FOUR, engine, CATALOG.step_model, Lengths(prompt, output)).serving
    straight = found.timer.constants._replace(request_s=0, request_concurrency_s=0, input_token_s=0, residual_iterations=0.5)
    return replace(found, timer=replace(found.timer, constants=straight))


def both(prompt: float, output: float, sigma: float, load_ratio: float, num_requests: int) -> tuple[Tails, Times]:
    """The approximation, and a replica stepped through."""
    serving, lengths = replica(prompt, output), lognormal(prompt, sigma)
    spread = lengths.spread()
    at: dict[Level, Serving] = {
        "p95": replace(serving, input_tokens=spread.p95, computed_tokens=spread.p95),
        "p99": replace(serving, input_tokens=spread.p99, computed_tokens=spread.p99),
    }
    rps = load_ratio * min(serving.closed(serving.most_admitted).request_rps, 1 / serving.crowded_s)
    state = serving.open(rps)
    assert state is not None
    found = Tails(Prompts(serving, at.__getitem__, spread, Spread(output, output, output, 0)), state)
    runs = [served(serving, lengths, rps, num_requests, seed) for seed in (1, 2)]
    return found, Times(*(sorted(each for run in runs for each in getattr(run, name)) for name in Times._fields))


@pytest.mark.slow
@pytest.mark.parametrize("load_ratio", [0.4, 0.8])
@pytest.mark.parametrize("case", CASES)
def test_tails_are_those_of_a_replica_stepped_through(case: str, load_ratio: float) -> None:
    found, times = both(*CASES[case], load_ratio, 6000)
    for name in ("ttft", "tpot", "e2e"):
        tail = getattr(found, name)
        for level, share in LEVELS.items():
            assert 0.95 <= times.percentile(name, share) / tail.at(level) <= LOADED_RATIO, (name, level)


@pytest.mark.slow
@pytest.mark.parametrize("load_ratio", [0.2, 0.5])
@pytest.mark.parametrize(
    ("prompt", "output", "sigma"), [(16000, 50, 0.93), (16000, 200, 0.4), (2000, 20, 0.93)], ids=["long", "not so long", "short"]
)
def test_short_outputs_are_held_up_by_the_prompts_that_follow(prompt: float, output: float, sigma: float, load_ratio: float) -> None:
    """Without those that arrived during the wait for the own prompt the mean would be up to 2.5 times too low."""
    found, times = both(prompt, output, sigma, load_ratio, 2000)
    assert times.mean("tpot") / found.tpot.mean == pytest.approx(1, abs=0.1)
    assert times.mean("e2e") / found.e2e.mean == pytest.approx(1, abs=0.1)
    for level, share in LEVELS.items():
        assert 0.8 <= times.percentile("tpot", share) / found.tpot.at(level) <= SIMULATED_RATIO, level


def test_percentiles_are_ordered_and_grow_with_the_load() -> None:
    serving = replica(4000, 500)
    prompts = Prompts(serving, lambda _: serving, Spread(4000, 4000, 4000, 0), Spread(500, 800, 1000, 0.2))
    top = serving.closed(serving.most_admitted).request_rps
    loads = [Tails(prompts, state) for share in (0.01, 0.3, 0.6, 0.9) if (state := serving.open(share * top)) is not None]
    assert len(loads) == 4
    for tails in loads:
        for tail in (tails.ttft, tails.tpot, tails.e2e):
            assert tail.mean <= tail.p95 <= tail.p99
    for name in ("ttft", "tpot", "e2e"):
        p95s = [getattr(tails, name).p95 for tails in loads]
        assert p95s == sorted(p95s)


def test_an_idle_replica_waits_for_its_own_prompt_alone() -> None:
    serving = replica(4000, 500)
    longer = replace(serving, input_tokens=12000, computed_tokens=12000)
    state = serving.open(1e-4)
    assert state is not None
    found = Tails(Prompts(serving, lambda _: longer, Spread(4000, 12000, 12000, 1), Spread(500, 500, 500, 0)), state)
    assert found.ttft.p95 - found.ttft.mean == pytest.approx(longer.prompt_s(state.running) - state.waiting.prefill_s)


@pytest.mark.parametrize(("chance", "above"), [(0.05, 0.0), (0.04, 0.0), (1.0, 1.9957)], ids=["just", "rarer", "always"])
def test_who_rarely_waits_has_no_tail(chance: float, above: float) -> None:
    assert exponential_tail_s(1.0, chance, 0.95) == pytest.approx(above, abs=1e-4)


def test_tpot_percentiles_lie_above_the_mean_where_less_than_one_sequence_runs() -> None:
    serving = replica(100_000, 50)
    state = serving.open(0.05 / serving.alone_s)
    assert state is not None
    shorter = state._replace(step_s=0.9 * state.decode.total_s)
    found = Tails(Prompts(serving, lambda _: serving, Spread(1e5, 1e5, 1e5, 1), Spread(50, 50, 50, 0)), shorter)
    assert found.tpot.mean <= found.tpot.p95 <= found.tpot.p99
