"""What differs between the baseline's set-up and the present one, and what waits in line for one resource."""

from collections.abc import Mapping
from typing import Any

import pytest

from app.domain.deployment import Deployment
from app.domain.metrics import Metrics
from app.domain.observation import NEVER, Absent, Observation
from app.domain.symptoms import read
from app.domain.symptoms_change import SETTINGS

EAGER = Deployment(enforce_eager=True)
GRAPHS = Deployment()
DRAFTS = Deployment.model_validate({"speculative": {"num_draft_tokens": 3, "acceptance_ratio": 0.5}})


def observe(metrics: Mapping[str, float], baseline: Mapping[str, float] | None = None, **seen: Any) -> Observation:
    """An observation of metrics, with a baseline."""
    before = None if baseline is None else Metrics.model_validate(baseline)
    return Observation(Metrics.model_validate(metrics), before, **seen)


def value(symptom: str, observation: Observation) -> float:
    """The one reading of a symptom."""
    sight = read(symptom, observation)
    assert not isinstance(sight, Absent), sight
    (reading,) = sight
    return reading.value


@pytest.mark.parametrize(
    ("symptom", "with_it"),
    [
        pytest.param("adapters_added", Deployment.model_validate({"lora": {"num_slots": 1}}), id="adapters"),
        pytest.param("cache_quantisation_added", Deployment(kv_cache="fp8"), id="cache"),
        pytest.param("chunked_prefill_removed", Deployment(chunked_prefill=False), id="chunks"),
        pytest.param("prefix_caching_removed", Deployment(prefix_caching=False), id="prefix"),
        pytest.param("speculation_added", DRAFTS, id="drafts"),
        pytest.param("weight_quantisation_added", Deployment(weights="int4"), id="weights"),
    ],
)  # fmt: skip
def test_a_setting_is_suspected_only_where_the_baseline_lacked_it(symptom: str, with_it: Deployment) -> None:
    assert value(symptom, observe({}, {}, deployment=with_it, baseline_deployment=GRAPHS)) == 1
    assert value(symptom, observe({}, {}, deployment=with_it, baseline_deployment=with_it)) == 0
    assert value(symptom, observe({}, {}, deployment=GRAPHS, baseline_deployment=with_it)) == 0
    assert read(symptom, observe({}, {}, deployment=with_it)) == Absent(("baseline_deployment",))
    assert read(symptom, observe({}, {}, baseline_deployment=with_it)) == Absent(("deployment",))


def test_every_setting_is_tested() -> None:
    marks = test_a_setting_is_suspected_only_where_the_baseline_lacked_it.pytestmark  # type: ignore[attr-defined]
    assert {case.values[0] for case in marks[0].args[1]} == set(SETTINGS)


def test_settings_that_differ_are_counted_and_ranks_compared() -> None:
    seen = observe({}, {}, deployment=Deployment(tp=4, enforce_eager=True), baseline_deployment=Deployment(tp=2))
    assert value("num_changed_settings", seen) == 2
    assert value("tensor_parallel_growth_ratio", seen) == 2


@pytest.mark.parametrize(
    ("deployment", "before", "baseline", "expected"),
    [
        pytest.param(EAGER, EAGER, {}, 1, id="neither"),
        pytest.param(EAGER, GRAPHS, {}, 0, id="only-before"),
        pytest.param(GRAPHS, EAGER, {}, 0, id="only-now"),
        pytest.param(EAGER, None, {"max_cuda_graph_batch_size": 0}, 1, id="neither-by-what-the-baseline-captured"),
        pytest.param(EAGER, None, {"cuda_graph_step_ratio": 1}, 0, id="before-by-what-the-baseline-ran"),
    ],
)
def test_graphs_that_were_missing_before_as_well(
    deployment: Deployment, before: Deployment | None, baseline: dict[str, float], expected: float
) -> None:
    seen = observe({}, baseline, deployment=deployment, baseline_deployment=before)
    assert value("graphs_missing_as_before", seen) == expected


@pytest.mark.parametrize(
    ("seen", "missing"),
    [
        pytest.param(observe({}, deployment=EAGER), {"baseline"}, id="no-baseline"),
        pytest.param(observe({}, {}, deployment=EAGER), {"baseline_deployment"}, id="how-it-ran-is-not-said"),
        pytest.param(observe({}, {}, baseline_deployment=EAGER), {"deployment.enforce_eager"}, id="how-it-runs-is-not-said"),
    ],
)
def test_graphs_of_the_baseline_are_unknown(seen: Observation, missing: set[str]) -> None:
    sight = read("graphs_missing_as_before", seen)
    assert isinstance(sight, Absent)
    assert set(sight.missing) == missing


def test_figures_of_the_baseline_are_read_under_its_own_deployment() -> None:
    seen = observe({}, {}, deployment=Deployment(max_num_seqs=2), baseline_deployment=Deployment(max_num_seqs=48))
    assert seen.before is not None
    assert (seen.max_num_seqs, seen.before.max_num_seqs) == (2, 48)


def test_graphs_that_the_baseline_replayed_exist_unless_they_were_switched_off() -> None:
    none_now = {"cuda_graph_step_ratio": 0.0}
    assert value("cuda_graphs_disabled", observe(none_now, {"cuda_graph_step_ratio": 1.0}, deployment=GRAPHS)) == 0
    assert value("cuda_graphs_disabled", observe(none_now, {"cuda_graph_step_ratio": 1.0}, deployment=EAGER)) == 1
    assert value("cuda_graphs_disabled", observe(none_now, {})) == 1


@pytest.mark.parametrize(
    ("symptom", "metrics", "baseline", "expected"),
    [
        ("kv_load_use_ratio", {"kv_load_time_mean_s": 0.9, "request_rps": 1.2}, None, 1.08),
        ("kv_loads_in_line_ratio", {"kv_load_time_mean_s": 0.176, "num_concurrent_requests": 8, "ttft_mean_s": 1.408}, None, 1),
        ("kv_loads_in_line_ratio", {"kv_load_time_mean_s": 0.176, "num_concurrent_requests": 8, "ttft_mean_s": 0}, None, 0),
        (
            "prompts_in_line_ratio",
            {"num_concurrent_requests": 16, "input_mean_tokens": 1200, "tokens_per_step": 600, "step_time_mean_s": 0.1, "ttft_p99_s": 3.2},
            None,
            1,
        ),
        (
            "prompts_in_line_ratio",
            {"num_concurrent_requests": 16, "input_mean_tokens": 1200, "tokens_per_step": 0, "step_time_mean_s": 0.1, "ttft_p99_s": 3.2},
            None,
            0,
        ),
        ("longest_prompt_to_budget_ratio", {"input_max_tokens": 458000, "max_num_batched_tokens": 4096}, None, 458000 / 4096),
        ("longest_prompt_to_kv_cache_ratio", {"input_max_tokens": 100000, "num_kv_cache_tokens": 76640}, None, 100000 / 76640),
        (
            "slowdown_without_idleness_ratio",
            {"gpu_utilization_ratio": 0.76, "output_tokens_per_s": 872},
            {"gpu_utilization_ratio": 0.994, "output_tokens_per_s": 1118},
            1118 / 872 * 0.76 / 0.994,
        ),
        (
            "speculation_cost_ratio",
            {"step_time_mean_s": 0.263, "spec_decode_acceptance_ratio": 0.3, "num_spec_tokens": 7},
            {"step_time_mean_s": 0.0377},
            0.263 / 0.0377 / 3.1,
        ),
        ("client_in_flight_ratio", {"num_concurrent_requests": 4, "request_rps": 20, "client_ttft_mean_s": 0.2}, None, 1),
        ("client_in_flight_ratio", {"num_concurrent_requests": 4, "request_rps": 0, "client_ttft_mean_s": 0.2}, None, NEVER),
        ("outside_engine_s", {"client_e2e_p50_s": 9, "e2e_p50_s": 4}, None, 5),
        ("outside_engine_share_ratio", {"client_e2e_p50_s": 8, "e2e_p50_s": 4}, None, 0.5),
        ("outside_engine_s", {"client_e2e_p50_s": 9, "e2e_p50_s": 4, "client_ttft_p50_s": 2, "ttft_p50_s": 1.9}, None, 0.1),
        ("first_to_steady_ratio", {"first_request_ttft_s": 14.6}, {"first_request_ttft_s": 0.32, "ttft_p50_s": 0.1}, 14.6 / 0.32),
    ],
)
def test_symptom_is_derived(symptom: str, metrics: dict[str, float], baseline: dict[str, float] | None, expected: float) -> None:
    assert value(symptom, observe(metrics, baseline)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("symptom", "metrics", "baseline", "missing"),
    [
        ("client_in_flight_ratio", {"request_rps": 1}, None, {"num_concurrent_requests", "client_e2e_mean_s"}),
        ("kv_load_use_ratio", {"request_rps": 1}, None, {"kv_load_time_mean_s"}),
        ("kv_loads_in_line_ratio", {"ttft_p99_s": 1}, None, {"num_concurrent_requests", "kv_load_time_mean_s"}),
        (
            "prompts_in_line_ratio",
            {"ttft_p99_s": 1, "input_mean_tokens": 1, "num_waiting_requests": 1},
            None,
            {"tokens_per_step", "step_time_mean_s"},
        ),
        ("longest_prompt_to_budget_ratio", {"max_num_batched_tokens": 1}, None, {"input_max_tokens"}),
        ("longest_prompt_to_kv_cache_ratio", {"input_max_tokens": 1}, None, {"num_kv_cache_tokens"}),
        ("slowdown_without_idleness_ratio", {"sm_active_ratio": 0.5}, {}, {"output_tokens_per_s"}),
        ("slowdown_without_idleness_ratio", {"sm_active_ratio": 0.5, "request_rps": 1}, {"request_rps": 2}, {"baseline.sm_active_ratio"}),
        (
            "slowdown_without_idleness_ratio",
            {"sm_active_ratio": 0.5, "request_rps": 1},
            {"request_rps": 2, "gpu_utilization_ratio": 1},
            {"baseline.sm_active_ratio"},
        ),
        ("speculation_cost_ratio", {"num_spec_tokens": 3}, None, {"spec_decode_acceptance_ratio"}),
        ("speculation_cost_ratio", {"num_spec_tokens": 3, "spec_decode_acceptance_ratio": 0.5}, {}, {"step_time_mean_s"}),
        (
            "speculation_cost_ratio",
            {"num_spec_tokens": 3, "spec_decode_acceptance_ratio": 0.5, "step_time_mean_s": 0.1},
            {},
            {"baseline.step_time_mean_s"},
        ),
    ],
)  # fmt: skip
def test_symptom_names_what_is_missing(
    symptom: str, metrics: dict[str, float], baseline: dict[str, float] | None, missing: set[str]
) -> None:
    sight = read(symptom, observe(metrics, baseline))
    assert isinstance(sight, Absent)
    assert set(sight.missing) == missing
