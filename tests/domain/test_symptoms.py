"""Metrics, what is derived from them, and what cannot be measured that way."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.domain.deployment import Deployment
from app.domain.measurement import contradictions
from app.domain.metrics import Metrics, metric_unit
from app.domain.observation import NEVER, Absent, Observation, Reading
from app.domain.symptoms import SYMPTOMS, read
from app.domain.workload import Workload

SHARED_PREFIX = Workload.model_validate(
    {"peak_rps": 5, "input_tokens": 4000, "output_tokens": 100, "shared_prefix_tokens": 3000, "prefix_hit_ratio": 0.9}
)
SKEWED = Workload.model_validate(
    {"peak_rps": 5, "input_tokens": {"mean": 1200, "p50": 1000, "p95": 4000, "p99": 8000}, "output_tokens": 100}
)

AT_LEAST_ONE = {name for name, field in Metrics.model_json_schema()["properties"].items() if "'minimum': 1" in str(field)}


def observe(metrics: Mapping[str, float], deployment: Deployment | None = None, workload: Workload | None = None) -> Observation:
    """An observation of metrics."""
    return Observation(Metrics.model_validate(metrics), deployment=deployment, workload=workload)


def value(symptom: str, observation: Observation) -> float:
    """The one reading of a symptom."""
    sight = read(symptom, observation)
    assert not isinstance(sight, Absent), sight
    (reading,) = sight
    return reading.value


@pytest.mark.parametrize(
    ("symptom", "metrics", "expected"),
    [
        ("running_to_cap_ratio", {"num_running_requests": 72, "max_num_seqs": 256}, 72 / 256),
        ("queue_drain_s", {"num_waiting_requests": 184, "request_rps": 2}, 92),
        ("queue_drain_s", {"num_waiting_requests": 184, "request_rps": 0}, NEVER),
        ("queue_drain_s", {"num_waiting_requests": 0, "request_rps": 0}, 0),
        ("num_preemptions_per_request", {"num_preemptions_per_request": 2.4}, 2.4),
        ("num_preemptions_per_request", {"preemptions_per_s": 6, "request_rps": 2.5}, 2.4),
        ("output_per_request_tokens", {"output_mean_tokens": 300, "output_tokens_per_s": 1, "request_rps": 1}, 300),
        ("output_per_request_tokens", {"output_tokens_per_s": 4000, "request_rps": 2}, 2000),
        ("input_to_output_ratio", {"input_tokens_per_s": 27408.8, "output_tokens_per_s": 4.9}, 27408.8 / 4.9),
        ("ttft_tail_ratio", {"ttft_p50_s": 0.4, "ttft_p99_s": 9}, 22.5),
        ("e2e_tail_ratio", {"e2e_p50_s": 0, "e2e_p99_s": 9}, NEVER),
        ("input_tail_ratio", {"input_p50_tokens": 900, "input_p99_tokens": 3600}, 4),
        ("gpu_busy_ratio", {"sm_active_ratio": 0.2, "gpu_utilization_ratio": 1}, 0.2),
        ("queue_time_share_of_ttft", {"queue_time_p95_s": 5, "ttft_p95_s": 6}, 5 / 6),
        ("prefill_time_share_of_ttft", {"prefill_time_mean_s": 3, "ttft_mean_s": 6}, 0.5),
        ("queue_time_share_of_ttft_p50", {"queue_time_p50_s": 3, "ttft_p50_s": 6, "ttft_p99_s": 60}, 0.5),
        ("kv_cache_usage_ratio", {"kv_cache_usage_ratio": 0.97}, 0.97),
    ],
)
def test_symptom_is_derived(symptom: str, metrics: dict[str, float], expected: float) -> None:
    assert value(symptom, observe(metrics)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("symptom", "metrics", "missing"),
    [
        ("ttft", {}, {"ttft_p95_s"}),
        ("running_to_cap_ratio", {"num_running_requests": 72}, {"max_num_seqs"}),
        ("running_to_cap_ratio", {}, {"num_running_requests", "max_num_seqs"}),
        ("queue_time_share_of_ttft", {"ttft_p99_s": 6, "queue_time_p95_s": 1}, {"queue_time_p99_s"}),
        ("queue_time_share_of_ttft", {"queue_time_p99_s": 1}, {"ttft_p99_s"}),
        ("queue_time_share_of_ttft", {}, {"ttft_p95_s", "queue_time_p95_s"}),
        ("ttft_tail_ratio", {"ttft_p99_s": 6}, {"ttft_p50_s"}),
        ("input_tail_ratio", {"input_p99_tokens": 6}, {"input_p50_tokens"}),
        ("num_preemptions_per_request", {}, {"num_preemptions_per_request"}),
        ("num_preemptions_per_request", {"preemptions_per_s": 1}, {"request_rps"}),
        ("gpu_busy_ratio", {"dram_active_ratio": 1}, {"sm_active_ratio"}),
        ("cuda_graphs_disabled", {}, {"deployment.enforce_eager"}),
        ("kv_pool_is_preallocated", {}, {"deployment.engine"}),
        ("expected_prefix_hit_ratio", {}, {"workload.prefix_hit_ratio"}),
    ],
)
def test_symptom_says_what_is_missing(symptom: str, metrics: dict[str, float], missing: set[str]) -> None:
    sight = read(symptom, observe(metrics))
    assert isinstance(sight, Absent)
    assert set(sight.missing) == missing


def test_family_gives_all_statistics() -> None:
    sight = read("tpot", observe({"tpot_p50_s": 0.01, "tpot_p99_s": 0.03, "tpot_mean_s": 0.02}))
    assert not isinstance(sight, Absent)
    assert {(reading.name, reading.statistic, reading.value) for reading in sight} == {
        ("tpot_p50_s", "p50", 0.01), ("tpot_p99_s", "p99", 0.03), ("tpot_mean_s", "mean", 0.02),
    }  # fmt: skip


def test_share_of_a_median_is_left_out_where_a_high_percentile_is_slow() -> None:
    with_tail = observe({"ttft_p50_s": 1, "queue_time_p50_s": 0.9, "ttft_p95_s": 9, "queue_time_p95_s": 1})
    assert value("queue_time_share_of_ttft", with_tail) == pytest.approx(1 / 9)
    assert value("queue_time_share_of_ttft", observe({"ttft_p50_s": 1, "queue_time_p50_s": 0.9})) == pytest.approx(0.9)


def test_driver_utilisation_is_marked_as_overstating() -> None:
    weak, strong = (read("gpu_busy_ratio", observe({name: 1.0})) for name in ("gpu_utilization_ratio", "sm_active_ratio"))
    assert weak == (Reading("gpu_utilization_ratio", 1.0, overstates=True),)
    assert strong == (Reading("sm_active_ratio", 1.0),)


def test_deployment_fills_in_what_the_engine_does_not_report() -> None:
    deployment = Deployment(engine="sglang", max_num_seqs=100, enforce_eager=True)
    assert value("running_to_cap_ratio", observe({"num_running_requests": 50}, deployment)) == 0.5
    assert value("running_to_cap_ratio", observe({"num_running_requests": 50, "max_num_seqs": 200}, deployment)) == 0.25
    assert value("kv_pool_is_preallocated", observe({}, deployment)) == 1
    assert value("cuda_graphs_disabled", observe({}, deployment)) == 1
    assert value("cuda_graphs_disabled", observe({}, Deployment())) == 0
    assert isinstance(read("kv_pool_is_preallocated", observe({}, Deployment())), Absent)


def test_workload_fills_in_lengths_and_expected_hits() -> None:
    assert value("input_tail_ratio", observe({}, workload=SKEWED)) == 8
    assert value("input_tail_ratio", observe({"input_p50_tokens": 1, "input_p99_tokens": 2}, workload=SKEWED)) == 2
    assert value("expected_prefix_hit_ratio", observe({}, workload=SHARED_PREFIX)) == pytest.approx(0.675)


def test_baseline_says_what_hits_to_expect_before_the_workload_does() -> None:
    seen = Observation(Metrics(), baseline=Metrics(prefix_cache_hit_ratio=0.4), workload=SHARED_PREFIX)
    assert value("expected_prefix_hit_ratio", seen) == 0.4


@given(st.dictionaries(st.sampled_from(sorted(Metrics.model_fields)), st.sampled_from([0.0, 0.25, 1.0])))
def test_every_symptom_can_be_read_from_any_metrics(metrics: dict[str, float]) -> None:
    observation = observe({name: 1.0 if name in AT_LEAST_ONE else number for name, number in metrics.items()})
    for symptom in SYMPTOMS:
        sight = read(symptom, observation)
        if isinstance(sight, Absent):
            assert sight.missing
        else:
            assert sight
            assert all(0 <= reading.value <= NEVER for reading in sight)


def test_share_at_a_percentile_that_only_one_side_has_asks_for_the_other() -> None:
    sight = read("queue_time_share_of_ttft", observe({"queue_time_p50_s": 1, "ttft_p50_s": 2, "ttft_p90_s": 3}))
    assert sight == Absent(("queue_time_p90_s",))


@pytest.mark.parametrize(
    ("metrics", "code"),
    [
        ({"ttft_p50_s": 3, "ttft_p95_s": 2}, "percentiles_out_of_order"),
        ({"ttft_p50_s": 3, "ttft_p99_s": 2.999}, "percentiles_out_of_order"),
        ({"output_p95_tokens": 300, "output_p99_tokens": 200}, "percentiles_out_of_order"),
        ({"ttft_p95_s": 3, "e2e_p95_s": 1}, "part_above_whole"),
        ({"queue_time_mean_s": 3, "ttft_mean_s": 1}, "part_above_whole"),
        ({"prefill_time_p50_s": 1, "ttft_p50_s": 0}, "part_above_whole"),
        ({"num_running_requests": 300}, "running_above_cap"),
        ({"ttft_p95_s": 3, "client_ttft_p95_s": 1}, "part_above_whole"),
        ({"ttft_mean_s": 1, "tpot_mean_s": 0.02, "output_mean_tokens": 501, "e2e_mean_s": 3.6}, "latencies_disagree"),
        ({"ttft_mean_s": 0.001, "tpot_mean_s": 20, "output_mean_tokens": 501, "e2e_mean_s": 11}, "latencies_disagree"),
        ({"request_rps": 10, "output_mean_tokens": 100, "output_tokens_per_s": 3100}, "throughput_disagrees"),
        ({"request_rps": 10, "output_mean_tokens": 100, "output_tokens_per_s": 330}, "throughput_disagrees"),
        ({"request_rps": 10, "input_mean_tokens": 100, "input_tokens_per_s": 3100}, "throughput_disagrees"),
        ({"request_rps": 10, "e2e_mean_s": 10, "num_running_requests": 20, "num_waiting_requests": 13}, "little_law_broken"),
        ({"request_rps": 1, "e2e_mean_s": 2, "num_running_requests": 21}, "little_law_broken"),
        ({"tpot_p50_s": 20, "num_running_requests": 40, "output_tokens_per_s": 2000}, "unit_confused"),
    ],
)
def test_contradiction_is_found(metrics: dict[str, float], code: str) -> None:
    assert [note.code for note in contradictions(Metrics.model_validate(metrics), within="metrics", max_num_seqs=256)] == [code]


@pytest.mark.parametrize(
    "metrics",
    [
        {"ttft_p50_s": 2, "ttft_p95_s": 2, "ttft_p99_s": 2, "ttft_mean_s": 5},
        {"ttft_p95_s": 1.25, "e2e_p95_s": 1},
        {"queue_time_p99_s": 3, "ttft_p50_s": 1},
        {"num_running_requests": 256},
        {"ttft_mean_s": 1, "tpot_mean_s": 0.02, "output_mean_tokens": 501, "e2e_mean_s": 3.7},
        {"request_rps": 10, "output_mean_tokens": 100, "output_tokens_per_s": 340},
        {"request_rps": 10, "input_mean_tokens": 1000, "input_tokens_per_s": 100},  # the rest came from the prefix cache
        {"request_rps": 10, "e2e_mean_s": 10, "num_running_requests": 20, "num_waiting_requests": 14},
        {"request_rps": 1, "e2e_mean_s": 2, "num_running_requests": 20},
        {"request_rps": 0.01, "e2e_mean_s": 2, "num_running_requests": 1},
        {"tpot_p50_s": 0.02, "num_running_requests": 40, "output_tokens_per_s": 2000},
        {"tpot_p50_s": 5, "num_running_requests": 5e-324, "output_tokens_per_s": 5},  # their quotient is less than any number
        {},
    ],
)
def test_possible_measurement_is_accepted(metrics: dict[str, float]) -> None:
    assert contradictions(Metrics.model_validate(metrics), within="metrics", max_num_seqs=256) == ()


@pytest.mark.parametrize(
    ("name", "number", "kind"),
    [
        ("kv_cache_usage_ratio", 97, "less_than_equal"),
        ("ttft_p95_s", -0.1, "greater_than_equal"),
        ("max_num_seqs", 0, "greater_than_equal"),
        ("num_oom_events", float("inf"), "finite_number"),
        ("request_rps", float("nan"), "finite_number"),
        ("request_rps", "many", "float_parsing"),
    ],
)
def test_metric_outside_its_range_is_refused(name: str, number: object, kind: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Metrics.model_validate({name: number})
    assert [(error["loc"], error["type"]) for error in refused.value.errors()] == [((name,), kind)]


def test_units_follow_from_the_names() -> None:
    named = ("ttft_p95_s", "output_tokens_per_s", "preemptions_per_s", "request_rps", "input_p99_tokens")
    assert [metric_unit(name) for name in named] == ["s", "tokens/s", "1/s", "requests/s", "tokens"]
    assert [metric_unit(name) for name in ("sm_active_ratio", "num_running_requests", "max_num_seqs")] == ["ratio", "count", "count"]
