"""Metrics, scrapes, replicas and results files as one observation."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from app.domain.catalog import Catalog
from app.domain.errors import InvalidInput
from app.domain.finding import Diagnosis
from app.domain.metrics import Metrics
from app.rules.loader import load_rules
from app.services.diagnosis import DiagnoseRequest, diagnose
from app.services.measured import Measured, Replica, Scrapes, measured

EMPTY = Catalog(gpus={}, models={}, prices={}, version="test")


def scrape(num_running: float = 3, generated: float = 100) -> str:
    """A small answer of vLLM's metrics endpoint."""
    labels = '{engine="0",model_name="m"}'
    return (
        f"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{labels} {num_running}\n"
        f"# TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total{labels} {generated}\n"
    )


def results(**fields: Any) -> str:
    """A results file of vLLM bench serve."""
    usual = {
        "date": "20260101-000000", "backend": "vllm", "endpoint_type": "vllm", "model_id": "m", "tokenizer_id": "m", "num_prompts": 100,
        "request_rate": "inf", "burstiness": 1.0, "max_concurrency": 8, "duration": 50.0, "completed": 100, "failed": 0,
        "total_input_tokens": 100000, "total_output_tokens": 20000, "request_throughput": 2.0, "output_throughput": 400.0,
        "total_token_throughput": 2400.0, "mean_ttft_ms": 200.0, "median_ttft_ms": 180.0, "p99_ttft_ms": 900.0, "mean_tpot_ms": 19.0,
        "median_tpot_ms": 18.0, "p99_tpot_ms": 30.0, "mean_itl_ms": 19.0, "median_itl_ms": 18.0, "p99_itl_ms": 60.0,
    }  # fmt: skip
    return json.dumps(usual | fields)


def take(**given: Any) -> Measured:
    """What is read of a request."""
    usual: dict[str, Any] = {"metrics": None, "prometheus": None, "dcgm": None, "replicas": (), "benchmark": ()}
    return measured(**(usual | given))


def ask(**body: Any) -> Diagnosis:
    """The diagnosis of a request."""
    return diagnose(EMPTY, load_rules(), DiagnoseRequest.model_validate(body))


def test_two_scrapes_give_rates_and_what_is_named_replaces_them() -> None:
    two = Scrapes(scrapes=[scrape(), scrape(5, 700)], seconds_between=30)
    found = take(prometheus=two, metrics=Metrics(num_running_requests=9, client_ttft_p50_s=2))
    assert found.metrics.output_tokens_per_s == 20
    assert (found.metrics.num_running_requests, found.metrics.client_ttft_p50_s) == (9, 2)
    assert found.engine == "vllm"
    assert found.notes


def test_a_single_scrape_may_be_bare_text() -> None:
    assert take(prometheus=scrape()).metrics.num_running_requests == 3


def test_malformed_scrape_is_refused_with_its_line() -> None:
    with pytest.raises(InvalidInput) as refused:
        take(prometheus=scrape() + 'vllm:num_requests_running{engine="0" 3\n')
    assert refused.value.field is not None
    assert refused.value.field.startswith("/prometheus")
    assert "Line 5 " in refused.value.detail


def test_replicas_are_put_together() -> None:
    replicas = [Replica.model_validate(each) for each in ({"kv_usage_pct": 99, "ttft_p95_s": 9}, {"kv_usage_pct": 21, "ttft_p95_s": 1})]
    found = take(replicas=replicas)
    assert found.metrics.kv_cache_usage_ratio == pytest.approx(0.6)
    assert (found.metrics.ttft_p95_s, found.metrics.num_replicas) == (9, 2)
    assert [each.kv_cache_usage_ratio for each in found.replicas] == [0.99, 0.21]
    assert {"replicas_together", "metric_read_as"} <= {note.code for note in found.notes}


def test_replica_by_its_scrapes() -> None:
    found = take(replicas=[Replica(prometheus=scrape(3)), Replica(prometheus=scrape(9))])
    assert found.metrics.num_running_requests == 6
    assert found.engine == "vllm"


def test_benchmark_alone_is_the_view_on_the_engine_and_beside_a_scrape_that_of_the_client() -> None:
    alone = take(benchmark=[results()]).metrics
    assert (alone.ttft_p50_s, alone.ttft_mean_s, alone.tpot_p99_s, alone.itl_p99_s) == (0.18, 0.2, 0.03, 0.06)
    assert (alone.num_concurrent_requests, alone.request_rps, alone.output_tokens_per_s) == (8, 2, 400)
    assert (alone.input_mean_tokens, alone.output_mean_tokens, alone.failed_request_ratio) == (1000, 200, 0)
    beside = take(benchmark=[results()], prometheus=scrape()).metrics
    assert (beside.client_ttft_p50_s, beside.ttft_p50_s) == (0.18, None)


def test_heaviest_load_of_a_sweep_is_diagnosed_beside_the_lightest() -> None:
    sweep = [results(max_concurrency=64, median_ttft_ms=700.0), results(max_concurrency=1, median_ttft_ms=50.0), results()]
    found = take(benchmark=sweep)
    assert found.metrics.ttft_p50_s == pytest.approx(0.7)
    assert found.lightest is not None
    assert found.lightest.ttft_p50_s == pytest.approx(0.05)
    (note,) = [note for note in found.notes if note.code == "heaviest_load_diagnosed"]
    assert "concurrency 64" in note.message
    assert "concurrency 1" in note.message


def test_rules_that_do_not_fire_are_listed_on_request() -> None:
    both = ask(metrics={"ttft_p95_s": 1})
    assert both.silent
    assert both.not_evaluated
    none = ask(metrics={"ttft_p95_s": 1}, include=[])
    assert (none.silent, none.not_evaluated) == ([], [])
    assert none.findings == both.findings


@pytest.mark.parametrize("where", ["baseline", "lightest"])
def test_names_that_are_not_read_beside_the_metrics_are_said(where: str) -> None:
    answer = ask(metrics={"ttft_p95_s": 1}, **{where: {"strange": 1, "ttft_p50_ms": 300}})
    (warning,) = [note for note in answer.warnings if note.code == "metric_not_read"]
    assert "'strange'" in warning.message
    assert "ttft_p50_ms 300 is read as ttft_p50_s 0.3." in [note.message for note in answer.assumptions]


def test_names_that_are_not_read_are_said_in_bounded_length() -> None:
    answer = ask(metrics={f"strange_{number}": 1 for number in range(1000)} | {"ttft_p50_ms": 300})
    (warning,) = [note for note in answer.warnings if note.code == "metric_not_read"]
    assert "'strange_0'" in warning.message
    assert "980 more" in warning.message
    assert "ttft_p50_ms 300 is read as ttft_p50_s 0.3." in [note.message for note in answer.assumptions]


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({}, ("metrics",)),
        ({"metrics": None, "replicas": []}, ("metrics",)),
        ({"metrics": {}, "model": "m"}, ()),
        ({"prometheus": {"scrapes": []}}, ("prometheus", "Scrapes", "scrapes")),
        ({"prometheus": {"scrapes": ["a"], "seconds_between": 0}}, ("prometheus", "Scrapes", "seconds_between")),
        ({"replicas": [{"name": "a"}]}, ("replicas", 0)),
        ({"replicas": [{"kv_usage_pct": 970}]}, ("replicas", 0, "metrics", "kv_usage_pct")),
        ({"metrics": {}, "include": ["everything"]}, ("include", 0)),
    ],
)
def test_what_is_not_understood_is_refused_at_its_place(body: dict[str, Any], place: tuple[str | int, ...]) -> None:
    with pytest.raises(ValidationError) as refused:
        DiagnoseRequest.model_validate(body)
    assert place in [fault["loc"] for fault in refused.value.errors()]


def test_a_deployment_of_the_baseline_says_nothing_without_the_baseline() -> None:
    request = {"metrics": {"tpot_mean_s": 0.04}, "deployment": {"tp": 2}, "baseline_deployment": {"tp": 1}}
    codes = [{note.code for note in ask(**each).warnings} for each in (request, {**request, "baseline": {"tpot_mean_s": 0.04}})]
    assert ["baseline_missing" in each for each in codes] == [True, False]
