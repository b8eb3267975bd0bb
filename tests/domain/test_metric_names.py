"""Names and units that others use for the metrics of a diagnosis."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.domain.metrics import Metrics


@pytest.mark.parametrize(
    ("written", "number", "name", "value"),
    [
        ("ttft_p95_ms", 300, "ttft_p95_s", 0.3),
        ("p99_ttft_ms", 300, "ttft_p99_s", 0.3),
        ("median_tpot_ms", 12, "tpot_p50_s", 0.012),
        ("mean_itl_ms", 12, "itl_mean_s", 0.012),
        ("itl_ms", 12, "itl_mean_s", 0.012),
        ("time_to_first_token_p50_seconds", 2, "ttft_p50_s", 2),
        ("queue_time_mean_s", 2, "queue_time_mean_s", 2),
        ("Queue Wait P90 (s)", 2, "queue_time_p90_s", 2),
        ("e2e_latency_p99_us", 2e6, "e2e_p99_s", 2),
        ("kv_usage_pct", 97, "kv_cache_usage_ratio", 0.97),
        ("vllm:kv_cache_usage_perc", 0.97, "kv_cache_usage_ratio", 0.97),
        ("vllm:gpu_cache_usage_perc", 0.97, "kv_cache_usage_ratio", 0.97),
        ("vllm:num_requests_waiting", 4, "num_waiting_requests", 4),
        ("sglang:num_running_reqs", 4, "num_running_requests", 4),
        ("sglang:token_usage", 0.4, "kv_cache_usage_ratio", 0.4),
        ("output_tps", 40, "output_tokens_per_s", 40),
        ("output_throughput", 40, "output_tokens_per_s", 40),
        ("request_throughput", 4, "request_rps", 4),
        ("request_rate", 4, "offered_rps", 4),
        ("sm_active_pct", 7, "sm_active_ratio", 0.07),
        ("gpu_util_pct", 100, "gpu_utilization_ratio", 1),
        ("spec_accept_pct", 11.2, "spec_decode_acceptance_ratio", 0.112),
        ("engine_cpu_pct", 383, "num_engine_cpu_cores_used", 3.83),
        ("ttfa_p50_ms", 404, "ttft_p50_s", 0.404),
        ("input_tokens", 4000, "input_mean_tokens", 4000),
        ("prompt_tokens_p99", 4000, "input_p99_tokens", 4000),
        ("preprocess_total_ms", 2435, "preprocess_time_mean_s", 2.435),
    ],
)
def test_other_names_and_units_are_understood(written: str, number: float, name: str, value: float) -> None:
    metrics = Metrics.model_validate({written: number})
    assert metrics.model_dump(exclude_none=True) == {name: pytest.approx(value)}
    assert bool(metrics.reading_notes) == (written != name)
    assert all(name in note.message and written in note.message for note in metrics.reading_notes)


@given(st.sampled_from(sorted(Metrics.model_fields)))
def test_every_name_of_ours_is_itself(name: str) -> None:
    metrics = Metrics.model_validate({name: 1})
    assert metrics.model_dump(exclude_none=True) == {name: 1}
    assert metrics.reading_notes == ()


@pytest.mark.parametrize(
    ("written", "meant"),
    [("ttft_p95", "ttft_p95_s"), ("kv_cache_usage_rato", "kv_cache_usage_ratio"), ("num_runing_requests", "num_running_requests")],
)
def test_misspelt_metric_is_refused_with_the_nearest(written: str, meant: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Metrics.model_validate({written: 1, "xyzzy": 2})
    (fault,) = refused.value.errors()
    assert (fault["loc"], fault["type"]) == ((written,), "unknown_metric")
    assert meant in fault["msg"]


def test_foreign_names_are_kept_apart() -> None:
    foreign = {"xyzzy": 2, "go_threads_created": 3, "requests": 100, "gpu_memory_free_mib": 2, "max_preemptions_per_request": 4}
    metrics = Metrics.model_validate(foreign | {"ttft_p95_s": 1})
    assert metrics.unread == tuple(foreign)
    assert metrics.model_dump(exclude_none=True) == {"ttft_p95_s": 1}


@pytest.mark.parametrize(
    ("given", "place", "kind", "words"),
    [
        ({"ttft_p95_ms": -5}, "ttft_p95_ms", "greater_than_equal", "after conversion to ttft_p95_s"),
        ({"kv_usage_pct": 970}, "kv_usage_pct", "less_than_equal", "after conversion to kv_cache_usage_ratio"),
        ({"kv_cache_usage_ratio": 97}, "kv_cache_usage_ratio", "less_than_equal", "is it a percentage? Then name it kv_cache_usage_pct"),
        ({"ttft_p95_ms": "3"}, "ttft_p95_ms", "float_parsing", "number"),
        ({"ttft_p95_ms": True}, "ttft_p95_ms", "float_parsing", "number"),
        ({"ttft_p95_ms": [3]}, "ttft_p95_ms", "float_type", "number"),
        ({"ttft_p95_ms": float("nan")}, "ttft_p95_ms", "finite_number", "finite"),
        ({"ttft_p95_s": 1, "ttft_p95_ms": 1000}, "ttft_p95_ms", "given_twice", "'ttft_p95_s' are the same metric"),
    ],
)
def test_fault_is_named_as_the_caller_wrote_it(given: dict[str, object], place: str, kind: str, words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Metrics.model_validate(given)
    (fault,) = refused.value.errors()
    assert (fault["loc"], fault["type"]) == ((place,), kind)
    assert words in fault["msg"]
