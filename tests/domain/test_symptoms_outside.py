"""Figures in front of the engine and on its host, derived from several metrics."""

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import BaseModel

from app.domain.deployment import Deployment
from app.domain.metrics import Metrics
from app.domain.observation import NEVER, Absent, Observation
from app.domain.symptoms import read
from app.domain.workload import Workload


def observe(metrics: Mapping[str, float], **others: Mapping[str, Any]) -> Observation:
    """An observation of metrics with a baseline, the lowest load, a deployment or a workload."""
    kinds: Mapping[str, type[BaseModel]] = {"baseline": Metrics, "lightest": Metrics, "deployment": Deployment, "workload": Workload}
    seen: dict[str, Any] = {name: kinds[name].model_validate(given) for name, given in others.items()}
    return Observation(Metrics.model_validate(metrics), **seen)


def values(symptom: str, observation: Observation) -> dict[str | None, float]:
    """The readings of a symptom by statistic."""
    sight = read(symptom, observation)
    assert not isinstance(sight, Absent), sight
    return {reading.statistic: reading.value for reading in sight}


@pytest.mark.parametrize(
    ("symptom", "observation", "expected"),
    [
        ("outside_engine_s", observe({"client_ttft_p50_s": 0.5, "ttft_p50_s": 0.125}), {"p50": 0.375}),
        ("outside_engine_s", observe({"client_ttft_p50_s": 0.5, "ttft_p50_s": 0.625}), {"p50": 0}),
        (
            "outside_engine_share_ratio",
            observe({"client_ttft_p50_s": 0.5, "ttft_p50_s": 0.125, "client_ttft_p99_s": 2, "ttft_p99_s": 1}),
            {"p50": 0.75, "p99": 0.5},
        ),
        ("outside_engine_share_ratio", observe({"client_ttft_p50_s": 0, "ttft_p50_s": 0}), {"p50": 0}),
        (
            "outside_engine_growth_ratio",
            observe({"client_ttft_p50_s": 1, "ttft_p50_s": 0.5}, lightest={"client_ttft_p50_s": 0.5, "ttft_p50_s": 0.25}),
            {None: 2},
        ),
        (
            "outside_engine_growth_ratio",
            observe({"client_ttft_p50_s": 1, "ttft_p50_s": 0.5}, lightest={"client_ttft_p50_s": 0.25, "ttft_p50_s": 0.25}),
            {None: NEVER},
        ),
        (
            "preparation_share_of_outside_ratio",
            observe({"client_ttft_p50_s": 1, "ttft_p50_s": 0, "preprocess_time_p50_s": 0.25, "grammar_time_p50_s": 0.5}),
            {None: 0.75},
        ),
        ("client_itl_to_engine_ratio", observe({"client_itl_p50_s": 0.01, "itl_mean_s": 0.04, "tpot_mean_s": 0.05}), {None: 0.25}),
        ("client_itl_to_engine_ratio", observe({"client_itl_p50_s": 0.01}, baseline={"client_itl_p50_s": 0.02}), {None: 0.5}),
        ("client_itl_tail_ratio", observe({"client_itl_p50_s": 0.01, "client_itl_p99_s": 0.5}), {None: 50}),
        ("preprocess_time_share_ratio", observe({"preprocess_time_p50_s": 1, "ttft_p50_s": 2, "e2e_p50_s": 10}), {"p50": 0.5}),
        ("preprocess_time_share_ratio", observe({"preprocess_time_mean_s": 0.5, "ttft_p50_s": 2, "e2e_mean_s": 1}), {"mean": 0.5}),
        ("grammar_time_share_ratio", observe({"grammar_time_p50_s": 3, "client_ttft_p50_s": 4, "ttft_p50_s": 1}), {"p50": 0.75}),
        ("preparation_use_ratio", observe({"preprocess_time_mean_s": 2, "request_rps": 0.5}), {None: 1}),
        ("preparation_use_ratio", observe({"preprocess_time_p50_s": 2, "request_rps": 0.25}), {None: 0.5}),
        ("mean_ttft_growth_ratio", observe({"ttft_mean_s": 1, "ttft_p50_s": 9}, lightest={"ttft_mean_s": 2, "ttft_p50_s": 1}), {None: 0.5}),
        ("ttft_percentile_growth_ratio", observe({"ttft_mean_s": 1, "ttft_p50_s": 9}, lightest={"ttft_p50_s": 3}), {None: 3}),
        ("latency_growth_ratio", observe({"e2e_p99_s": 3}, baseline={"e2e_p99_s": 2}), {None: 1.5}),
        ("latency_growth_ratio", observe({"e2e_p99_s": 3}, baseline={"e2e_p99_s": 2}, lightest={"e2e_p99_s": 3}), {None: 1}),
        ("first_to_steady_ratio", observe({"first_request_ttft_s": 9, "repeated_request_ttft_s": 3, "ttft_p50_s": 1}), {None: 3}),
        ("first_to_steady_ratio", observe({"first_request_ttft_s": 9, "ttft_p50_s": 1}, baseline={"ttft_mean_s": 2}), {None: 4.5}),
        ("first_to_steady_ratio", observe({"first_request_e2e_s": 9, "e2e_p50_s": 1}), {None: 9}),
        ("first_to_tail_ratio", observe({"first_request_ttft_s": 9, "ttft_p99_s": 10}), {None: 0.9}),
        ("gc_share_of_stall_ratio", observe({"gc_pause_max_s": 1, "stall_max_s": 4}), {None: 0.25}),
        ("longest_input_tokens", observe({"input_max_tokens": 9000, "input_p99_tokens": 4000}), {None: 9000}),
        ("longest_input_tokens", observe({"input_mean_tokens": 900}), {None: 900}),
        ("longest_input_tokens", observe({}, workload={"peak_rps": 1, "input_tokens": 700, "output_tokens": 10}), {None: 700}),
        ("tensor_parallel_degree", observe({}, deployment={"tp": 4}), {None: 4}),
        ("weights_quantised", observe({}, deployment={"weights": "awq"}), {None: 1}),
        ("weights_quantised", observe({}, deployment={"weights": "bf16"}), {None: 0}),
        ("kv_cache_quantised", observe({}, deployment={"kv_cache": "fp8"}), {None: 1}),
        ("kv_cache_quantised", observe({}, deployment={"kv_cache": "fp16"}), {None: 0}),
        (
            "quantization_slowdown_growth_ratio",
            observe({"quantization_slowdown_ratio": 1.5}, lightest={"quantization_slowdown_ratio": 1}),
            {None: 1.5},
        ),
        (
            "slowdown_without_communication_ratio",
            observe({"communication_time_ratio": 0.5, "tpot_mean_s": 0.04}, baseline={"tpot_mean_s": 0.02}),
            {None: 1},
        ),
        (
            "slowdown_without_communication_ratio",
            observe({"communication_time_ratio": 0.5, "tpot_p50_s": 0.04}, baseline={"tpot_p50_s": 0}),
            {None: NEVER},
        ),
        (
            "slowdown_without_communication_ratio",
            observe({"communication_time_ratio": 1, "tpot_p50_s": 1e7}, baseline={"tpot_p50_s": 1e-320}),
            {None: 0},
        ),
        ("tpot_slowdown_ratio", observe({"step_time_mean_s": 0.3}, baseline={"step_time_mean_s": 0.2}), {None: 1.5}),
        ("ttft_slowdown_ratio", observe({"client_ttft_p50_s": 3}, baseline={"client_ttft_p50_s": 1}), {None: 3}),
    ],
)
def test_symptom_is_derived(symptom: str, observation: Observation, expected: dict[str | None, float]) -> None:
    assert values(symptom, observation) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("symptom", "observation", "missing"),
    [
        ("outside_engine_s", observe({"client_ttft_p99_s": 1}), ("ttft_p99_s",)),
        ("outside_engine_share_ratio", observe({"ttft_p50_s": 1}), ("client_ttft_p50_s",)),
        ("outside_engine_s", observe({}), ("client_ttft_p50_s", "ttft_p50_s")),
        (
            "outside_engine_growth_ratio",
            observe({"client_ttft_p50_s": 1, "ttft_p50_s": 0.5}),
            ("lightest.client_ttft_p50_s", "lightest.ttft_p50_s"),
        ),
        (
            "outside_engine_growth_ratio",
            observe({"client_ttft_p50_s": 1, "ttft_p50_s": 0.5}, lightest={"client_ttft_p50_s": 1}),
            ("lightest.ttft_p50_s",),
        ),
        ("outside_engine_growth_ratio", observe({"client_ttft_p50_s": 1}, lightest={"client_ttft_p50_s": 1}), ("ttft_p50_s",)),
        ("preparation_share_of_outside_ratio", observe({"client_ttft_p95_s": 1, "ttft_p95_s": 0.5}), ("preprocess_time_p95_s",)),
        ("preparation_share_of_outside_ratio", observe({"preprocess_time_p50_s": 0}), ("client_ttft_p50_s", "ttft_p50_s")),
        ("client_itl_to_engine_ratio", observe({"client_itl_p50_s": 0.01}), ("itl_p50_s",)),
        ("preprocess_time_share_ratio", observe({"preprocess_time_p95_s": 1}), ("client_ttft_p95_s",)),
        ("preparation_use_ratio", observe({"preprocess_time_mean_s": 1}), ("request_rps",)),
        ("mean_ttft_growth_ratio", observe({"ttft_p50_s": 1}), ("ttft_mean_s",)),
        ("mean_ttft_growth_ratio", observe({"ttft_mean_s": 1}), ("lightest.ttft_mean_s",)),
        ("first_to_steady_ratio", observe({"first_request_e2e_s": 9}), ("repeated_request_e2e_s",)),
        ("longest_input_tokens", observe({}), ("input_max_tokens",)),
        ("tensor_parallel_degree", observe({}), ("deployment.tp",)),
        ("weights_quantised", observe({}, deployment={"tp": 2}), ("deployment.weights",)),
        ("kv_cache_quantised", observe({}, deployment={"kv_cache": "auto"}), ("deployment.kv_cache",)),
        (
            "slowdown_without_communication_ratio",
            observe({"tpot_mean_s": 0.04}),
            ("communication_time_ratio", "baseline.tpot_mean_s"),
        ),
    ],
)
def test_what_is_missing_is_named(symptom: str, observation: Observation, missing: tuple[str, ...]) -> None:
    sight = read(symptom, observation)
    assert isinstance(sight, Absent)
    assert set(sight.missing) == set(missing)
