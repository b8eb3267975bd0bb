"""A simulated replica has the steps, the room and, below saturation, the means of `/performance`."""

from typing import Any

import pytest

from app.domain.concurrency import per_engine_rank
from app.domain.deployment import Deployment
from app.domain.performance import Lengths, Performance, performance_of
from app.domain.simulation import Scenario, simulate
from app.domain.simulation_lengths import quantiles_of
from app.domain.simulation_replica import replica_of
from app.domain.simulation_requests import Arrivals, RequestKind
from app.domain.workload import TokenLengths
from tests.domain.shapes import BUNDLED, CATALOG

CASES: dict[str, tuple[str, str, dict[str, Any], Lengths]] = {
    "8B": ("llama-3.1-8b", "h100-sxm-80gb", {"engine": "vllm"}, Lengths(1000, 200)),
    "70B": ("llama-3.1-70b", "h100-sxm-80gb", {"tp": 4, "weights": "fp8", "kv_cache": "fp8", "engine": "vllm"}, Lengths(4000, 500)),
    "prompts first": ("llama-3.1-70b", "h200-sxm-141gb", {"tp": 2, "weights": "fp8", "engine": "sglang"}, Lengths(1000, 1000)),
    "experts": ("gpt-oss-120b", "h100-sxm-80gb", {"tp": 2, "engine": "vllm"}, Lengths(2000, 300)),
    "stages": ("qwen3-32b", "h200-sxm-141gb", {"tp": 2, "pp": 2, "engine": "tensorrt-llm"}, Lengths(500, 500)),
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


TPOT_OFF, TTFT_OFF = 0.03, 0.06
"""Means below 70 % of the saturation. TTFT: the closed form adds the step that an arrival meets to a queue that counts it as well,
and does not let prompts that arrive in one step be computed together."""


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.3, 0.5, 0.7])
@pytest.mark.parametrize("case", CASES)
def test_means_are_those_of_the_closed_form(case: str, load: float) -> None:
    of = performance(case)
    rps = load * min(of.saturated.request_rps, of.serving.groups / of.serving.crowded_s)
    state = of.serving.open(rps)
    assert state is not None
    inputs, outputs = (quantiles_of(TokenLengths(mean=tokens)) for tokens in (of.lengths.input_tokens, of.lengths.output_tokens))
    scenario = Scenario(replica_of(of), Arrivals(rps), (RequestKind("all", 1, inputs, outputs),), num_requests=6000, seeds=(1, 2))
    found = simulate(scenario)
    assert found.tpot is not None
    assert found.ttft is not None
    assert found.tpot.mean.mean == pytest.approx(state.tpot_s, rel=TPOT_OFF)
    assert found.ttft.mean.mean == pytest.approx(state.waiting.ttft_s, rel=TTFT_OFF)
    assert found.in_flight.mean == pytest.approx(state.concurrency, rel=TPOT_OFF + 0.02)
