"""Limits, flows, graphs and settings derived from metrics, each against a figure worked out by hand."""

from collections.abc import Mapping

import pytest

from app.domain.deployment import Deployment
from app.domain.expectation import Expectation
from app.domain.metrics import Metrics
from app.domain.observation import Absent, Observation
from app.domain.symptoms import read
from app.domain.workload import Workload


def observe(
    metrics: Mapping[str, float],
    *,
    baseline: Mapping[str, float] | None = None,
    lightest: Mapping[str, float] | None = None,
    replicas: tuple[Mapping[str, float], ...] = (),
    deployment: Deployment | None = None,
    workload: Workload | None = None,
) -> Observation:
    """An observation of metrics."""
    return Observation(
        Metrics.model_validate(metrics),
        None if baseline is None else Metrics.model_validate(baseline),
        deployment=deployment,
        workload=workload,
        replicas=tuple(Metrics.model_validate(each) for each in replicas),
        lightest=None if lightest is None else Metrics.model_validate(lightest),
    )


def value(symptom: str, observation: Observation) -> float:
    """The one reading of a symptom."""
    sight = read(symptom, observation)
    assert not isinstance(sight, Absent), sight
    (reading,) = sight
    return reading.value


def missing(symptom: str, observation: Observation) -> set[str]:
    """What a symptom lacks."""
    sight = read(symptom, observation)
    assert isinstance(sight, Absent)
    return set(sight.missing)


@pytest.mark.parametrize(
    ("symptom", "metrics", "expected"),
    [
        ("waiting_to_running_ratio", {"num_waiting_requests": 951, "num_running_requests": 49}, 951 / 49),
        ("waiting_to_running_ratio", {"num_waiting_requests": 34, "max_num_seqs": 8}, 34 / 8),  # at most the cap runs
        ("cap_use_ratio", {"num_running_requests": 60, "max_num_seqs": 64, "num_concurrent_requests": 900}, 60 / 64),
        ("cap_use_ratio", {"num_concurrent_requests": 900, "max_num_seqs": 64}, 1),
        ("cap_use_ratio", {"num_concurrent_requests": 16, "max_num_seqs": 64}, 0.25),
        ("stream_time_per_token_s", {"num_running_requests": 3, "output_tokens_per_s": 2}, 1.5),
        ("input_to_output_ratio", {"input_tokens_per_s": 9000, "output_tokens_per_s": 90, "input_mean_tokens": 1}, 100),
        ("input_to_output_ratio", {"input_mean_tokens": 2000, "output_mean_tokens": 10}, 200),
        # 6 prompts of 4500 tokens a second against 250 streams that get a token each 25 s.
        ("input_to_output_ratio", {"offered_rps": 6, "input_mean_tokens": 4500, "itl_mean_s": 25, "num_running_requests": 250}, 2700),
        # 1000 prompt tokens and half of 200: 77,000 tokens hold 70 sequences.
        (
            "kv_fit_to_cap_ratio",
            {"num_kv_cache_tokens": 77000, "input_mean_tokens": 1000, "output_mean_tokens": 200, "max_num_seqs": 140},
            0.5,
        ),
        ("running_to_kv_fit_ratio", {"num_kv_cache_tokens": 77000, "input_mean_tokens": 1000, "num_running_requests": 77}, 1),
        ("demand_to_kv_fit_ratio", {"num_kv_cache_tokens": 77000, "input_mean_tokens": 1000, "num_concurrent_requests": 154}, 2),
        ("replica_skew_ratio", {"max_replica_traffic_ratio": 0.85, "num_replicas": 2}, 1.7),
        ("short_to_long_ttft_ratio", {"short_request_ttft_p99_s": 22, "long_request_ttft_p99_s": 44}, 0.5),
        ("prompts_per_step_ratio", {"max_num_batched_tokens": 2048, "input_mean_tokens": 1024}, 2),
        ("step_budget_tokens", {"max_num_batched_tokens": 2048}, 2048),
        (
            "budget_share_of_ttft_ratio",  # 32 prompts, two for each step of 0.5 s: 8 s
            {
                "num_concurrent_requests": 32,
                "input_mean_tokens": 1024,
                "max_num_batched_tokens": 2048,
                "step_time_mean_s": 0.5,
                "ttft_p99_s": 10,
            },
            0.8,
        ),
        ("step_to_budget_ratio", {"tokens_per_step": 1024, "max_num_batched_tokens": 2048}, 0.5),
        ("pause_to_prefill_ratio", {"itl_p99_s": 4, "prefill_time_p99_s": 8}, 0.5),
        ("threads_to_quota_ratio", {"num_cpu_threads": 86, "num_cpu_cores_limit": 4}, 21.5),
        ("kv_load_time_share_ratio", {"kv_load_time_mean_s": 3, "ttft_mean_s": 4}, 0.75),
        ("cuda_graphs_disabled", {"max_cuda_graph_batch_size": 0}, 1),
        ("cuda_graphs_disabled", {"max_cuda_graph_batch_size": 64, "cuda_graph_step_ratio": 0}, 0),  # captured and never used: a gap
        ("cuda_graphs_disabled", {"cuda_graph_step_ratio": 0}, 1),
        ("cuda_graphs_disabled", {"cuda_graph_step_ratio": 0.1}, 0),
        ("batch_to_cuda_graph_ratio", {"num_running_requests": 67, "max_cuda_graph_batch_size": 32}, 67 / 32),
        ("batch_to_cuda_graph_ratio", {"num_running_requests": 6, "num_spec_tokens": 6, "max_cuda_graph_batch_size": 40}, 42 / 40),
        # 50 requests a second of 256 tokens at 5 ms each are 64 sequences at a time.
        (
            "batch_to_cuda_graph_ratio",
            {"request_rps": 50, "output_mean_tokens": 256, "tpot_mean_s": 0.005, "max_cuda_graph_batch_size": 32},
            2,
        ),
        ("batch_to_cuda_graph_ratio", {"num_concurrent_requests": 500, "max_num_seqs": 64, "max_cuda_graph_batch_size": 32}, 2),
        ("batch_to_cuda_graph_ratio", {"num_running_requests": 9, "max_cuda_graph_batch_size": 0}, 0),
        ("cap_to_cuda_graph_ratio", {"max_num_seqs": 128, "num_spec_tokens": 1, "max_cuda_graph_batch_size": 256}, 1),
        ("prompt_to_cuda_graph_ratio", {"input_mean_tokens": 4096, "max_cuda_graph_batch_size": 2048}, 2),
    ],
)
def test_symptom_is_derived(symptom: str, metrics: dict[str, float], expected: float) -> None:
    assert value(symptom, observe(metrics)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("symptom", "now", "light", "expected"),
    [
        ("throughput_growth_ratio", {"request_rps": 5.5}, {"request_rps": 5}, 1.1),
        ("throughput_growth_ratio", {"request_rps": 5.5, "output_tokens_per_s": 900}, {"output_tokens_per_s": 300}, 3),
        ("offered_growth_ratio", {"num_concurrent_requests": 64}, {"num_concurrent_requests": 16}, 4),
        ("tpot_growth_ratio", {"itl_mean_s": 0.04}, {"itl_mean_s": 0.02}, 2),
        (
            "service_time_growth_ratio",
            {"e2e_mean_s": 13.37, "queue_time_mean_s": 12},
            {"e2e_mean_s": 3.22, "queue_time_mean_s": 1.85},
            1,
        ),
    ],
)
def test_growth_is_against_the_lowest_load(symptom: str, now: dict[str, float], light: dict[str, float], expected: float) -> None:
    assert value(symptom, observe(now, lightest=light)) == pytest.approx(expected)
    assert all(name.startswith("lightest.") for name in missing(symptom, observe(now)))


def test_context_is_compared_with_the_baseline_before_the_lowest_load() -> None:
    now, before, light = ({"input_mean_tokens": float(tokens)} for tokens in (6000, 3000, 1000))
    assert value("context_growth_ratio", observe(now, baseline=before, lightest=light)) == 2
    assert value("context_growth_ratio", observe(now, lightest=light)) == 6
    assert missing("context_growth_ratio", observe({})) == {"input_mean_tokens", "baseline.input_mean_tokens"}


def test_replicas_are_compared_by_every_load_that_all_report() -> None:
    busy, idle = {"num_running_requests": 60.0, "request_rps": 4.0}, {"num_running_requests": 0.0}
    sight = read("replica_skew_ratio", observe({}, replicas=(busy, idle, idle)))
    assert not isinstance(sight, Absent)
    assert [reading.value for reading in sight] == [pytest.approx(3)]  # request rates are not known of all
    few = {"num_running_requests": 2.0}
    assert missing("replica_skew_ratio", observe({}, replicas=(few, idle))) == {"max_replica_traffic_ratio", "num_replicas"}
    assert missing("replica_skew_ratio", observe({}, replicas=(busy,))) == {"max_replica_traffic_ratio", "num_replicas"}


def test_deployment_and_workload_fill_in_what_was_not_measured() -> None:
    deployment = Deployment.model_validate(
        {
            "max_num_seqs": 256,
            "max_num_batched_tokens": 2048,
            "chunked_prefill": False,
            "prefix_caching": False,
            "memory_fraction_ratio": 0.9,
            "enforce_eager": True,
        }
    )
    workload = Workload.model_validate({"peak_rps": 1, "input_tokens": 512, "output_tokens": 10})
    seen = observe({"max_num_seqs": 128}, deployment=deployment, workload=workload)
    assert value("effective_to_configured_cap_ratio", seen) == 0.5
    assert value("prompts_per_step_ratio", seen) == 4
    assert value("chunked_prefill_disabled", seen) == 1
    assert value("prefix_caching_disabled", seen) == 1
    assert value("memory_fraction_ratio", seen) == 0.9
    assert value("cuda_graphs_disabled", seen) == 1
    assert value("chunked_prefill_disabled", observe({}, deployment=Deployment())) == 0


def test_requests_that_the_engine_does_not_hold_and_drafted_tokens_that_it_keeps() -> None:
    held = observe({"num_concurrent_requests": 200, "num_running_requests": 18, "num_waiting_requests": 2})
    assert value("engine_share_of_in_flight_ratio", held) == pytest.approx(0.1)
    kept = observe({"spec_decode_acceptance_ratio": 0.4, "num_spec_tokens": 5})
    assert value("accepted_tokens_per_step", kept) == pytest.approx(2)


def test_tensor_parallelism_is_unknown_where_the_deployment_does_not_say() -> None:
    assert value("tensor_parallel_degree", observe({}, deployment=Deployment(tp=1))) == 1
    assert missing("tensor_parallel_degree", observe({}, deployment=Deployment(engine="vllm"))) == {"deployment.tp"}


def test_prompts_say_what_hits_to_expect_before_the_workload_does() -> None:
    assert value("expected_prefix_hit_ratio", observe({"shared_prefix_ratio": 0.6})) == 0.6
    assert value("expected_prefix_hit_ratio", observe({"shared_prefix_ratio": 0.6}, baseline={"prefix_cache_hit_ratio": 0.4})) == 0.4


def test_pace_is_compared_with_what_the_planner_expects() -> None:
    metrics, expected = Metrics(tpot_p50_s=0.03, tpot_p99_s=0.06), Metrics(tpot_p50_s=0.02)
    assert value("tpot_to_expected_ratio", Observation(metrics, expectation=Expectation(expected, expected))) == pytest.approx(1.5)
    assert missing("tpot_to_expected_ratio", observe({"tpot_p50_s": 0.03})) == {"model", "gpu"}


@pytest.mark.parametrize(
    ("symptom", "metrics", "lacks"),
    [
        ("waiting_to_running_ratio", {"num_waiting_requests": 3}, {"num_running_requests"}),
        ("cap_use_ratio", {"max_num_seqs": 3}, {"num_running_requests"}),
        ("stream_time_per_token_s", {"num_running_requests": 3, "output_tokens_per_s": 9, "tpot_mean_s": 0.1}, {"tpot_p95_s"}),
        ("input_to_output_ratio", {"input_tokens_per_s": 9}, {"output_tokens_per_s"}),
        ("kv_fit_to_cap_ratio", {"num_kv_cache_tokens": 9}, {"input_mean_tokens", "max_num_seqs"}),
        ("batch_to_cuda_graph_ratio", {"num_running_requests": 9}, {"max_cuda_graph_batch_size"}),
        ("budget_share_of_ttft_ratio", {"num_concurrent_requests": 9, "ttft_p95_s": 1, "itl_p50_s": 1},
         {"input_mean_tokens", "max_num_batched_tokens"}),
        ("engine_share_of_in_flight_ratio", {"num_running_requests": 9}, {"num_waiting_requests"}),
        ("engine_share_of_in_flight_ratio", {"num_running_requests": 9, "num_waiting_requests": 0}, {"num_concurrent_requests"}),
        ("accepted_tokens_per_step", {"num_spec_tokens": 3}, {"spec_decode_acceptance_ratio"}),
        ("accepted_tokens_per_step", {"spec_decode_acceptance_ratio": 0.5}, {"num_spec_tokens"}),
        ("prompt_rate_slowdown_ratio", {"input_tokens_per_s": 9}, {"baseline.input_tokens_per_s"}),
    ],
)  # fmt: skip
def test_symptom_says_what_is_missing(symptom: str, metrics: dict[str, float], lacks: set[str]) -> None:
    assert missing(symptom, observe(metrics)) == lacks
