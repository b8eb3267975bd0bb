"""A replica under load: what must hold in every steady state, and what each setting changes."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.batching import arriving_batches, longest_output_s, run_rps, state_of, whole_batches
from app.domain.deployment import Deployment, Speculative
from app.domain.load_state import LoadState
from app.domain.performance import Lengths, Performance, performance_of
from app.domain.serving import Serving
from tests.domain.shapes import BUNDLED, CATALOG

CHAT = Lengths(4000, 500)
FOUR = {"tp": 4, "weights": "fp8", "kv_cache": "fp8", "engine": "vllm", "max_model_len_tokens": 65536}


def performance(
    model: str = "llama-3.1-70b", gpu: str = "h100-sxm-80gb", lengths: Lengths = CHAT, run: float | None = None, **more: Any
) -> Performance:
    deployment = Deployment.model_validate({**FOUR, **more})
    engine = CATALOG.engine(deployment.engine, None)
    return performance_of(CATALOG.model(model), CATALOG.gpu(gpu), deployment, engine, BUNDLED.steps, lengths, num_waves=run)


def serving(**more: Any) -> Serving:
    return performance(**more).serving


def holds_together(state: LoadState, of: Serving) -> None:
    assert state.e2e_s == pytest.approx(state.waiting.ttft_s + (of.output_tokens - 1) * state.tpot_s)
    assert state.concurrency == pytest.approx(state.request_rps * state.e2e_s, rel=1e-6)  # Little
    assert min(state.waiting) >= 0
    assert state.mean_step.total_s == pytest.approx(state.step_s)
    assert all(math.isfinite(value) for value in (*state.waiting, *state.decode, *state.mixed))


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(["llama-3.1-70b", "deepseek-v3", "gpt-oss-120b", "qwen3-next-80b-a3b", "gemma-3-27b"]),
    st.sampled_from(
        [{"tp": 8}, {"tp": 8, "engine": "sglang"}, {"tp": 4, "pp": 2}, {"tp": 8, "chunked_prefill": False, "engine": "generic"}]
    ),
    st.floats(1, 60_000),
    st.floats(1, 4000),
    st.integers(1, 3000),
)
def test_any_load_has_a_steady_state_that_agrees_with_itself(
    model: str, layout: dict[str, Any], prompt: float, output: float, concurrency: int
) -> None:
    of = serving(model=model, gpu="b200-sxm-180gb", lengths=Lengths(prompt, output), weights=None, **layout)
    one, more = of.closed(concurrency), of.closed(concurrency + 5)
    holds_together(one, of)
    if output >= 2:  # TPOT is the time per token after the first
        assert one.tpot_s >= of.closed(1).tpot_s * (1 - 1e-3)
    assert more.request_rps >= one.request_rps * (1 - 5e-3)
    batch = whole_batches(of, concurrency)
    assert batch.concurrency == pytest.approx(batch.request_rps * batch.e2e_s)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("concurrency", [2, 8, 32])
def test_a_rate_leads_to_the_concurrency_that_leads_to_it(engine: str, concurrency: int) -> None:
    of = serving(engine=engine)
    closed = of.closed(concurrency)
    opened = of.open(closed.request_rps)
    assert opened is not None
    holds_together(opened, of)
    assert opened.request_rps == closed.request_rps
    assert opened.concurrency == pytest.approx(concurrency, rel=0.15)
    assert opened.tpot_s == pytest.approx(closed.tpot_s, rel=0.15)


def test_waiting_grows_with_the_rate_until_there_is_no_steady_state() -> None:
    of = serving()
    most = of.closed(of.most_admitted).request_rps
    states = [of.open(most * share) for share in (0.1, 0.3, 0.5, 0.7)]
    waits = [state.waiting.ttft_s for state in states if state is not None]
    assert len(waits) == 4
    assert waits == sorted(waits)
    assert of.open(most * 1.05) is None
    assert of.open(most * 1000) is None


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize(
    "more",
    [{}, {"pp": 2, "tp": 4}, {"model": "ernie-4.5-300b-a47b", "tp": 8}, {"model": "qwen3-coder-480b-a35b", "tp": 8}],
    ids=["one group", "two stages", "experts", "many experts"],
)
def test_prompts_per_step_stand_for_the_rate_that_they_make(engine: str, more: dict[str, Any]) -> None:
    of = serving(engine=engine, **more)
    states = [state for lam in (0.01, 0.05, 0.1, 0.2) if (state := of.at_prompts_per_step(lam)) is not None]
    assert len(states) >= 2
    for state in states:
        opened = of.open(state.request_rps)
        assert opened is not None
        assert opened.e2e_s == pytest.approx(state.e2e_s, rel=2e-3)
    assert [state.request_rps for state in states] == sorted(state.request_rps for state in states)


def test_requests_beyond_the_places_wait_for_one() -> None:
    of = replace(serving(), most_admitted=10.0)
    full, crowded = of.closed(10), of.closed(30)
    assert crowded.request_rps == pytest.approx(full.request_rps, rel=0.02)
    assert crowded.waiting.admission_s == pytest.approx(2 * (crowded.e2e_s - crowded.waiting.admission_s))
    assert full.waiting.admission_s == 0


def test_prompts_beyond_the_budget_wait_for_steps() -> None:
    of = replace(serving(lengths=Lengths(8192, 2)), most_admitted=64.0)
    state = of.closed(64)
    step = of.step(state.running, of.token_budget).total_s
    assert state.request_rps <= of.token_budget / of.computed_tokens / step * 1.05


def test_a_run_that_starts_at_once_waits_longer_for_first_tokens() -> None:
    steady, run = serving(), serving(run=10)
    assert steady.closed(64).waiting.start_s == 0
    assert run.closed(64).waiting.start_s == pytest.approx(0.1 * 63 / 2 * run.burst_s(64))  # ten waves


def test_equal_lengths_stay_together_where_prompts_run_first() -> None:
    fixed = serving(engine="sglang", run=10)
    spread = replace(fixed, length_width_ratio=0.2)
    waits = [of.closed(64).waiting.start_s / (63 / 2 * of.burst_s(64)) for of in (fixed, spread)]
    assert waits[0] == pytest.approx(1)
    assert 0.1 <= waits[1] < 0.9
    exact = sum(max(0.0, 1 - waves(spread) * math.sqrt(wave)) for wave in range(1, 10))
    assert waits[1] == pytest.approx((1 + exact) / 10, abs=0.02)


def waves(of: Serving) -> float:
    state = of.closed(64)
    return 0.2 * of.output_tokens * state.decode.total_s / (64 * of.burst_s(64))


def test_prompts_that_run_first_stop_answers_in_progress() -> None:
    mixed, first = serving(), serving(engine="sglang")
    assert not mixed.prefill_first
    state = first.closed(32)
    assert state.mixed.total_s == pytest.approx(first.step(state.running, 0).total_s + first.step(0, 4000).total_s)


def test_smaller_budgets_shorten_pauses() -> None:
    of = serving(lengths=Lengths(16000, 500))
    pauses = [replace(of, token_budget=budget).closed(16).mixed.total_s for budget in (1024.0, 4096.0, 16384.0)]
    assert pauses == sorted(pauses)
    assert pauses[0] < pauses[2] / 4
    assert [replace(of, token_budget=budget).prefill_steps for budget in (1024.0, 4096.0, 16384.0, math.inf)] == [16, 4, 1, 1]


def test_what_the_prefix_cache_serves_is_not_computed() -> None:
    cold, warm, all_of_it = (serving(lengths=Lengths(4000, 500, hit)) for hit in (0, 0.8, 1))
    assert [of.computed_tokens for of in (cold, warm, all_of_it)] == pytest.approx([4000, 800, 1])
    assert warm.closed(32).waiting.prefill_s < cold.closed(32).waiting.prefill_s / 2
    assert warm.closed(32).tpot_s < cold.closed(32).tpot_s
    assert Lengths(4000, 500, 0.8).prompt_context_tokens == 3600


def test_static_batches_wait_and_dynamic_ones_take_what_is_there() -> None:
    of = replace(serving(), most_admitted=16.0)
    rate = 0.5 * whole_batches(of, 16).request_rps
    static, dynamic = (arriving_batches(of, rate, 16, waits_until_full=full) for full in (True, False))
    continuous = of.open(rate)
    assert static is not None
    assert dynamic is not None
    assert continuous is not None
    assert static.running == 16
    assert 1 <= dynamic.running < 16
    assert dynamic.running == pytest.approx(rate * (dynamic.e2e_s - dynamic.waiting.admission_s), rel=1e-3)
    assert continuous.waiting.ttft_s < dynamic.waiting.ttft_s < static.waiting.ttft_s
    assert static.waiting.admission_s == pytest.approx(15 / 2 / rate)
    assert arriving_batches(of, 10 * rate, 16, waits_until_full=False) is None


def test_every_way_of_batching_is_asked_alike() -> None:
    of = replace(serving(), most_admitted=16.0)
    assert state_of(of, "continuous", concurrency=4, request_rps=None) == of.closed(4)
    assert state_of(of, "static", concurrency=40, request_rps=None) == whole_batches(of, 40)
    assert state_of(of, "dynamic", concurrency=None, request_rps=1e6) is None
    one = state_of(of, "continuous", concurrency=None, request_rps=0.1)
    assert one is not None
    assert one.request_rps == 0.1


@pytest.mark.parametrize(("acceptance", "pays"), [(0.0, 0), (0.8, None)])
def test_speculation_pays_by_acceptance(acceptance: float, pays: int | None) -> None:
    of = performance(speculative=Speculative(num_draft_tokens=3, acceptance_ratio=acceptance))
    found = of.speculation_pays_up_to()
    assert found == pays if pays == 0 else found is None or found > 8
    assert of.serving.tokens_per_step == 1 + 3 * acceptance


def test_a_draft_model_takes_time() -> None:
    drafter = CATALOG.model("llama-3.1-8b")
    deployment = Deployment.model_validate({**FOUR, "speculative": {"num_draft_tokens": 4, "acceptance_ratio": 0.6, "draft_model": "x"}})
    llm, gpu, engine = CATALOG.model("llama-3.1-70b"), CATALOG.gpu("h100-sxm-80gb"), CATALOG.engine("vllm", None)
    of = performance_of(llm, gpu, deployment, engine, BUNDLED.steps, Lengths(1000, 200), draft=drafter)
    assert of.draft is not None
    assert of.draft_s(8) == pytest.approx(4 * of.draft.iteration(8, 0).total_s)
    step = of.serving.step(8, 0)
    assert step.total_s - of.timer.iteration(8, 0).total_s == pytest.approx(of.draft_s(8))


def test_prediction_layers_take_their_share() -> None:
    of = performance("deepseek-v3", "h200-sxm-141gb", tp=8, weights=None, speculative=Speculative(num_draft_tokens=1, acceptance_ratio=0.9))
    plain = of.timer.iteration(1 / of.work.positions_per_sequence, 0).total_s
    assert of.draft_s(1) == pytest.approx(plain / 61)
    assert of.without_speculation().serving.draft_s is None


def test_the_longest_output_of_a_batch_keeps_it() -> None:
    of = replace(serving(), most_admitted=64.0)
    varied = replace(of, length_width_ratio=0.6 / 0.9)
    assert longest_output_s(of, 16) == 0
    assert longest_output_s(varied, 16) == pytest.approx(499 * of.timer.constants.longest_output_ratio * of.step(2, 0).total_s)
    assert whole_batches(varied, 16).e2e_s - whole_batches(of, 16).e2e_s == pytest.approx(longest_output_s(varied, 16))


def test_a_run_of_one_wave_ends_with_its_last_request() -> None:
    of = replace(serving(run=1), most_admitted=64.0)
    assert run_rps(of, 40) == whole_batches(of, 40).request_rps
    more = replace(of, most_admitted=10.0)
    assert run_rps(more, 40) == pytest.approx(more.closed(40).request_rps)
    assert run_rps(replace(more, length_width_ratio=0.5), 40) < run_rps(more, 40)


def test_requests_wait_half_the_steps_between_two_looks_for_them() -> None:
    often, seldom = (serving(engine="sglang", poll_interval_steps=steps).closed(8) for steps in (1, 30))
    assert often.waiting.residual_s < seldom.waiting.residual_s
    looks_s = seldom.waiting.residual_s - often.waiting.residual_s
    assert looks_s == pytest.approx(29 / 2 * seldom.decode.total_s, rel=0.1)
    assert seldom.request_rps < often.request_rps


def test_prompts_that_are_held_for_a_batch_wait_its_steps_and_half_of_them_when_many_gather() -> None:
    at_once, held = (serving(engine="tensorrt-llm", batch_wait_steps=steps) for steps in (0, 20))
    for concurrency, waited in ((1, 20.0), (4000, 10.0)):
        plain, late = (replace(of, most_admitted=1e4).closed(concurrency) for of in (at_once, held))
        assert (late.waiting.residual_s - plain.waiting.residual_s) / late.decode.total_s == pytest.approx(waited, rel=0.15)


def test_rates_that_prompts_alone_outrun_have_no_steady_state() -> None:
    whole = {"chunked_prefill": False, "engine": "generic", "weights": None}
    of = serving(model="gpt-oss-120b", lengths=Lengths(8000, 1), **whole)
    assert of.open(0.5 / of.crowded_s) is not None
    assert of.open(1.01 / of.crowded_s) is None
    assert of.open(1e9) is None


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
@pytest.mark.parametrize("run", [None, 10], ids=["steady", "run"])
def test_requests_at_once_are_not_slower_than_one_after_the_other(engine: str, run: float | None) -> None:
    of = serving(model="gpt-oss-120b", lengths=Lengths(100_000, 100), run=run, engine=engine, weights=None)
    rates = [of.closed(concurrency).request_rps for concurrency in (1, 2, 3, 4)]
    assert min(rates[1:]) >= rates[0] * (1 - 1e-3)
    for concurrency in (2, 4):
        holds_together(of.closed(concurrency), of)
