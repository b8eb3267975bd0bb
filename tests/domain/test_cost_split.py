"""Input and output priced by the time that each uses."""

from typing import Any

import pytest

from app.domain.cost_split import CostSplit, cost_split
from app.domain.deployment import Deployment
from app.domain.performance import Lengths, Performance, performance_of
from tests.domain.shapes import CATALOG

ENGINES = ("vllm", "sglang")


def replica(engine: str = "vllm", prompt: float = 4000, output: float = 500, hit: float = 0, **more: Any) -> Performance:
    deployment = Deployment.model_validate({"tp": 4, "weights": "fp8", "engine": engine, **more})
    llm, gpu = CATALOG.model("llama-3.1-70b"), CATALOG.gpu("h100-sxm-80gb")
    return performance_of(llm, gpu, deployment, CATALOG.engine(engine), CATALOG.step_model, Lengths(prompt, output, hit))


def split(rps: float = 2, **more: Any) -> CostSplit:
    return cost_split(replica(**more), rps)[0]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_request_alone_divides_as_its_own_steps_do(engine: str) -> None:
    serving = replica(engine).serving
    prompt_s, decode_s = serving.alone_s, serving.decode_steps * serving.step(1, 0).total_s
    assert split(1e-4, engine=engine).input_time_ratio == pytest.approx(prompt_s / (prompt_s + decode_s), rel=0.02)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("rps", [0.5, 2, 100])
def test_longer_prompts_use_more_of_the_time_and_prefix_hits_less(engine: str, rps: float) -> None:
    own = split(rps, engine=engine).input_time_ratio
    assert split(rps, engine=engine, prompt=5000).input_time_ratio > own
    assert split(rps, engine=engine, hit=0.8).input_time_ratio < own


@pytest.mark.parametrize("rps", [1e-3, 100])
@pytest.mark.parametrize("engine", ENGINES)
def test_longer_outputs_use_more_where_an_engine_is_idle_or_full(engine: str, rps: float) -> None:
    """Between, it decodes all the time anyway: longer outputs make batches larger, not busier."""
    assert split(rps, engine=engine, output=800).input_time_ratio < split(rps, engine=engine).input_time_ratio


@pytest.mark.parametrize("rps", [1e-6, 0.01, 0.3, 1, 2, 100, 1e6])
@pytest.mark.parametrize("engine", [*ENGINES, "tensorrt-llm"])
def test_shares_are_shares(engine: str, rps: float) -> None:
    found = split(rps, engine=engine)
    assert 0 < found.input_time_ratio < 1
    assert found.input_time_ratio + found.output_time_ratio == 1


def test_batching_makes_decoding_cheaper_and_prompts_not() -> None:
    shares = [split(rps).input_time_ratio for rps in (0.05, 0.5, 1, 2, 2.5)]
    assert shares == sorted(shares)


def test_above_what_the_replica_ends_the_steps_are_those_of_a_full_one() -> None:
    performance = replica()
    most = performance.saturated.request_rps
    found = cost_split(performance, 10 * most)[0]
    assert found.saturated
    assert found.request_rps == most
    assert not split(0.3 * most).saturated


@pytest.mark.parametrize("rps", [0.01, 1e6])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_single_token_is_that_of_the_prompt(engine: str, rps: float) -> None:
    assert split(rps, engine=engine, output=1).input_time_ratio == 1


def test_a_replica_with_one_place_computes_prompts_too() -> None:
    full = split(1e6, max_num_seqs=1)
    assert full.saturated
    assert full.input_time_ratio == pytest.approx(split(1e-4).input_time_ratio, rel=0.1)
