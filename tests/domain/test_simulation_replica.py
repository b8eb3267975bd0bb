"""A simulated replica has the steps, the room and, below saturation, the means of `/performance`."""

from typing import Any

import pytest

from app.domain.batching import Batching, state_of, whole_batches
from app.domain.concurrency import per_engine_rank
from app.domain.deployment import Deployment
from app.domain.performance import Lengths, Performance, performance_of
from app.domain.simulation import simulate
from app.domain.simulation_lengths import quantiles_of
from app.domain.simulation_pool import PoolModel
from app.domain.simulation_replica import replica_of
from app.domain.simulation_requests import Arrivals, RequestKind, SharedPrefix
from app.domain.simulation_scenario import Scenario
from app.domain.workload import TokenLengths
from tests.domain.shapes import BUNDLED, CATALOG

CASES: dict[str, tuple[str, str, dict[str, Any], Lengths]] = {
    "8B": ("llama-3.1-8b", "h100-sxm-80gb", {"engine": "vllm"}, Lengths(1000, 200)),
    "70B": ("llama-3.1-70b", "h100-sxm-80gb", {"tp": 4, "weights": "fp8", "kv_cache": "fp8", "engine": "vllm"}, Lengths(4000, 500)),
    "long prompts": ("llama-3.1-8b", "h100-sxm-80gb", {"engine": "vllm"}, Lengths(8000, 1000)),
    "prompts first": ("llama-3.1-70b", "h200-sxm-141gb", {"tp": 2, "weights": "fp8", "engine": "sglang"}, Lengths(1000, 1000)),
    "experts": ("gpt-oss-120b", "h100-sxm-80gb", {"tp": 2, "engine": "vllm"}, Lengths(2000, 300)),
    "stages": ("qwen3-32b", "h200-sxm-141gb", {"tp": 2, "pp": 2, "engine": "tensorrt-llm"}, Lengths(500, 500)),
    "few places": ("llama-3.1-70b", "h100-sxm-80gb", {"tp": 4, "weights": "fp8", "engine": "vllm", "max_num_seqs": 16}, Lengths(1000, 200)),
    "drafts": (
        "llama-3.1-8b",
        "h100-sxm-80gb",
        {"engine": "vllm", "speculative": {"num_draft_tokens": 3, "acceptance_ratio": 0.6}},
        Lengths(1000, 200),
    ),
}


def performance(case: str) -> Performance:
    model, gpu, layout, lengths = CASES[case]
    deployment = Deployment.model_validate(layout)
    engine = CATALOG.engine(deployment.engine, None)
    return performance_of(CATALOG.model(model), CATALOG.gpu(gpu), deployment, engine, BUNDLED.steps, lengths)


def equal(of: Performance) -> RequestKind:
    inputs, outputs = (quantiles_of(TokenLengths(mean=tokens)) for tokens in (of.lengths.input_tokens, of.lengths.output_tokens))
    return RequestKind("all", 1, inputs, outputs)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("sequences", "prompt"), [(1, 0), (7, 0), (64, 0), (5, 900), (0, 2000)])
def test_steps_are_those_of_the_steady_state(case: str, sequences: int, prompt: int) -> None:
    of = performance(case)
    contexts = of.lengths.decode_context_tokens, of.lengths.prompt_context_tokens
    found = replica_of(of).times.seconds(sequences, sequences * contexts[0], prompt, contexts[1])
    assert found == pytest.approx(of.serving.step_s(sequences, prompt), rel=1e-3)


@pytest.mark.parametrize("case", ["8B", "70B", "experts", "prompts first"])
def test_the_room_holds_as_many_requests_as_the_cache(case: str) -> None:
    of = performance(case)
    room, tokens = replica_of(of).room, of.lengths.input_tokens + of.lengths.output_tokens
    held = per_engine_rank(of.found, tokens)
    assert held is not None
    assert room.capacity / room.of(tokens) == pytest.approx(held * of.deployment.dp, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.3, 0.6])
@pytest.mark.parametrize("batching", ["dynamic", "static"])
def test_batches_of_whole_requests_are_those_of_the_closed_form(batching: Batching, load: float) -> None:
    """Within 5 %: of the prompts of a batch that take two steps, the first wait for the others before they decode."""
    of = performance("few places")
    rps = load * whole_batches(of.serving, of.places).request_rps
    state = state_of(of.serving, batching, concurrency=None, request_rps=rps)
    assert state is not None
    found = simulate(Scenario((PoolModel(replica_of(of, batching)),), Arrivals(rps), (equal(of),), num_requests=3000, seeds=(1, 2)))
    assert found.times.e2e is not None
    assert found.times.ttft is not None
    assert found.times.e2e.mean.mean == pytest.approx(state.e2e_s, rel=0.05)
    assert found.times.ttft.mean.mean == pytest.approx(state.waiting.ttft_s, rel=0.06)


@pytest.mark.slow
@pytest.mark.parametrize("prefix", [SharedPrefix(tokens=1600, share_ratio=0.9), SharedPrefix(input_ratio=0.7)], ids=["shared", "turns"])
def test_what_is_cached_is_found_as_the_closed_form_has_it(prefix: SharedPrefix) -> None:
    lengths = Lengths.finding(2000, 200, prefix.share_ratio if prefix.tokens else prefix.input_ratio, prefix.tokens or None)
    of = performance("70B").at_lengths(lengths)
    state = of.serving.open(0.5 * of.saturated.request_rps)
    assert state is not None
    found = simulate(
        Scenario((PoolModel(replica_of(of)),), Arrivals(state.request_rps), (equal(of),), num_requests=5000, seeds=(1, 2), prefix=prefix)
    )
    assert found.times.tpot is not None
    assert found.times.ttft is not None
    assert found.times.tpot.mean.mean == pytest.approx(state.tpot_s, rel=OFF)
    assert state.wait is not None
    # Prompts of which nothing is found are longer: others wait for them more than for equal ones.
    hits, rest = (prefix.share_ratio, 2000 - prefix.tokens) if prefix.tokens else (1.0, lengths.computed_tokens)
    variance = (hits * rest**2 + (1 - hits) * 2000**2) / lengths.computed_tokens**2 - 1
    assert found.times.ttft.mean.mean == pytest.approx(state.waiting.ttft_s + variance * state.wait.uneven_s, rel=OFF)


OFF = 0.03
"""Means up to 70 % of the saturation."""


ENOUGH_PLACES = [case for case in CASES if case != "few places"]
"""Where places run out the closed form waits for them as if service times were exponential: twice as long as with equal ones."""


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.3, 0.5, 0.7])
@pytest.mark.parametrize("case", ENOUGH_PLACES)
def test_means_are_those_of_the_closed_form(case: str, load: float) -> None:
    of = performance(case)
    rps = load * min(of.saturated.request_rps, of.serving.groups / of.serving.crowded_s)
    state = of.serving.open(rps)
    assert state is not None
    found = simulate(Scenario((PoolModel(replica_of(of)),), Arrivals(rps), (equal(of),), num_requests=6000, seeds=(1, 2)))
    assert found.times.tpot is not None
    assert found.times.ttft is not None
    assert found.times.tpot.mean.mean == pytest.approx(state.tpot_s, rel=OFF)
    assert found.times.ttft.mean.mean == pytest.approx(state.waiting.ttft_s, rel=OFF)
    assert found.num_in_flight.mean == pytest.approx(state.concurrency, rel=OFF + 0.02)
