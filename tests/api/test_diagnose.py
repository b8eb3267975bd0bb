"""`POST /diagnose` over HTTP."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

SATURATED = {
    "ttft_p95_s": 6.2,
    "tpot_p95_s": 0.03,
    "queue_time_p95_s": 5.1,
    "num_running_requests": 72,
    "num_waiting_requests": 184,
    "max_num_seqs": 256,
    "kv_cache_usage_ratio": 1,
}
FIELDS = {
    "summary", "working", "assumptions", "warnings", "versions", "state", "findings", "silent", "not_evaluated", "measure_next",
}  # fmt: skip


def ask(client: TestClient, **body: Any) -> dict[str, Any]:
    """The answer to a request that is understood."""
    answer = client.post("/diagnose", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def refuse(client: TestClient, **body: Any) -> dict[str, Any]:
    """The problem of a request that is refused."""
    answer = client.post("/diagnose", json=body)
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = answer.json()
    return found


def test_saturated_engine_is_diagnosed_with_numbers_and_prices(client: TestClient) -> None:
    answer = ask(client, metrics=SATURATED, slo={"ttft_p95_s": 2}, deployment={"engine": "vllm"})
    assert set(answer) == FIELDS
    assert answer["state"] == "bottleneck_found"
    first = answer["findings"][0]
    assert (first["rule"], first["bottleneck"], first["stage"]) == ("kv_capacity", "kv_capacity", "cause")
    assert "queue_time_high" in first["parents"]
    queued = next(finding for finding in answer["findings"] if finding["rule"] == "queue_time_high")
    assert "kv_capacity" in queued["refined_by"]
    assert next(line for line in queued["evidence"] if line["metric"] == "queue_time_p95_s") == {
        "name": "queue_time_high.queue_long",
        "metric": "queue_time_p95_s",
        "observed": 5.1,
        "op": ">",
        "threshold": 1.0,
        "threshold_from": "slo",
        "baseline": None,
        "unit": "s",
        "held": True,
        "weak": False,
    }
    assert all(remedy["price"] and remedy["verify"] and remedy["undo"] for remedy in first["remedies"])
    assert "TTFT P95 6.2 s (above 2 s from the SLO)" in answer["summary"]
    assert "tpot_high" in [rule["rule"] for rule in answer["silent"]]
    assert "oom_events" in [rule["rule"] for rule in answer["not_evaluated"]]
    assert answer["versions"]["planner"]


@pytest.mark.parametrize(
    ("body", "state"),
    [
        ({"metrics": {}}, "inconclusive"),
        ({"metrics": {"ttft_p95_s": 0.4, "tpot_p95_s": 0.03, "num_waiting_requests": 0}}, "healthy"),
        ({"metrics": {"ttft_p50_s": 5, "ttft_p99_s": 4}}, "invalid_measurement"),
        ({"metrics": {"num_oom_events": 2}, "deployment": {"engine": "sglang"}}, "bottleneck_found"),
        ({"metrics": {"tpot_p95_s": 0.034}, "baseline": {"tpot_p95_s": 0.012}, "deployment": {"enforce_eager": True}}, "bottleneck_found"),
    ],
)
def test_each_state_is_an_answer(client: TestClient, body: dict[str, Any], state: str) -> None:
    assert ask(client, **body)["state"] == state


def test_request_overrides_thresholds(client: TestClient) -> None:
    answer = ask(client, metrics=SATURATED, thresholds={"kv_near_full.requests_wait": 500, "queue_time_high.queue_long": 3})
    assert "kv_near_full" not in [finding["rule"] for finding in answer["findings"]]
    queued = next(finding for finding in answer["findings"] if finding["rule"] == "queue_time_high")
    assert [(line["threshold"], line["threshold_from"]) for line in queued["evidence"] if line["name"].endswith("queue_long")] == [
        (3, "request")
    ]


def test_workload_and_deployment_fill_in_what_was_not_measured(client: TestClient) -> None:
    workload = {"peak_rps": 5, "input_tokens": {"mean": 1500, "p50": 900, "p95": 9000, "p99": 24000}, "output_tokens": 100}
    answer = ask(client, metrics={"ttft_p50_s": 0.4, "ttft_p99_s": 9}, workload=workload, deployment={"max_num_seqs": 64})
    assert answer["findings"][0]["bottleneck"] == "long_tail_requests"
    assert "workload.input_tokens.p99 / workload.input_tokens.p50" in [step["formula"] for step in answer["working"]]


@pytest.mark.parametrize(
    ("body", "pointer", "code", "expected"),
    [
        ({"metrics": {"ttft_p95": 1}}, "/metrics/ttft_p95", "unknown_metric", "ttft_p95_s"),
        (
            {"metrics": {}, "baseline": {"gpu_utilization_rati": 1}},
            "/baseline/gpu_utilization_rati",
            "unknown_metric",
            "gpu_utilization_ratio",
        ),
        ({"metrics": {"kv_usage_pct": 970}}, "/metrics/kv_usage_pct", "less_than_equal", "less than or equal to 1 after conversion"),
        ({"metrics": {"kv_cache_usage_ratio": 97}}, "/metrics/kv_cache_usage_ratio", "less_than_equal", "less than or equal to 1"),
        ({"metrics": {"ttft_p95_s": -1}}, "/metrics/ttft_p95_s", "greater_than_equal", "greater than or equal to 0"),
        ({"metrics": {"ttft_p95_s": [1]}}, "/metrics/ttft_p95_s", "float_type", "a valid number"),
        ({"metrics": []}, "/metrics", "model_attributes_type", "an object"),
        ({}, "/metrics", "missing", "a value"),
        ({"metrics": {}, "prometheus": "up 1"}, "/prometheus", "invalid_input", ""),
        ({"metrics": {}, "benchmark": "{}"}, "/benchmark/0", "invalid_input", ""),
        ({"metrics": {}, "model": "llama-3.1-8b"}, "", "value_error", ""),
        (
            {"metrics": {}, "thresholds": {"kv_near_full.kv_ful": 1}},
            "/thresholds/kv_near_full.kv_ful",
            "unknown_name",
            "kv_near_full.kv_full",
        ),
        ({"metrics": {}, "thresholds": {"tpot_high.tpot_high": "1"}}, "/thresholds/tpot_high.tpot_high", "float_type", "a valid number"),
        ({"metrics": {}, "thresholds": {"tpot_high.tpot_high": -1}}, "/thresholds/tpot_high.tpot_high", "greater_than_equal", ""),
        ({"metrics": {}, "slo": {"ttft_p95_s": 0}}, "/slo/ttft_p95_s", "greater_than_equal", "greater than or equal to 0.000001"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(
    client: TestClient, body: dict[str, Any], pointer: str, code: str, expected: str
) -> None:
    problem = refuse(client, **body)
    fault = problem["errors"][0]
    assert (fault["pointer"], fault["code"]) == (pointer, code)
    assert expected in fault["expected"]


def test_document_describes_every_metric(client: TestClient) -> None:
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    metrics = schemas["Metrics"]["properties"]
    assert all(each["description"] for each in metrics.values())
    assert set(schemas["Diagnosis"]["required"]) == FIELDS
    assert all(set(schemas[name]["required"]) == set(schemas[name]["properties"]) for name in ("Finding", "Evidence", "Suggestion"))
