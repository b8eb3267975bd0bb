"""What the planner expects of a deployment as the baseline of a diagnosis."""

from collections.abc import Mapping
from typing import Any

import pytest

from app.domain.catalog import Catalog
from app.domain.deployment import Deployment
from app.domain.errors import UnknownName
from app.domain.expectation import Expectation
from app.domain.metrics import Metrics
from app.domain.workload import Workload
from app.rules.loader import load_rules
from app.services.catalog import CatalogHolder
from app.services.diagnosis import DiagnoseRequest, diagnose
from app.services.estimates import performance
from app.services.expectation import expectation_of
from app.services.requests import PerformanceRequest

MODEL, GPU = "llama-3.1-70b", "h100-sxm-80gb"
DEPLOYMENT = {"tp": 4, "weights": "fp8", "engine": "vllm"}
LOADED = {"num_running_requests": 16, "input_mean_tokens": 1000, "output_mean_tokens": 300}


@pytest.fixture(scope="module")
def catalog(bundled_catalog: CatalogHolder) -> Catalog:
    """The bundled catalog."""
    return bundled_catalog.current


def expected(catalog: Catalog, metrics: Mapping[str, float], workload: dict[str, Any] | None = None) -> Expectation:
    """The expectation, which has to be there."""
    traffic = None if workload is None else Workload.model_validate(workload)
    found, notes = expectation_of(catalog, MODEL, GPU, Deployment.model_validate(DEPLOYMENT), Metrics.model_validate(metrics), traffic)
    assert found is not None, notes
    assert [note.code for note in notes] == ["planner_is_baseline"]
    return found


def test_expectation_is_what_performance_answers(catalog: Catalog) -> None:
    found = expected(catalog, LOADED)
    body = {"model": MODEL, "gpu": GPU, "deployment": DEPLOYMENT, "input_tokens": 1000, "output_tokens": 300}
    answer = performance(catalog, PerformanceRequest.model_validate(body | {"concurrency": 16, "num_requests": 10**9}))
    assert answer.tpot_s is not None
    assert answer.output_tokens_per_s is not None
    assert found.typical.tpot_mean_s == found.typical.itl_p50_s == answer.tpot_s.value
    assert found.worst.tpot_p50_s == answer.tpot_s.high
    assert found.worst.output_tokens_per_s == answer.output_tokens_per_s.low
    assert found.typical.num_kv_cache_tokens
    assert {step.basis for step in found.working} == {answer.basis}


def test_lengths_come_from_the_workload_and_the_load_from_the_rate(catalog: Catalog) -> None:
    workload = {"peak_rps": 2, "input_tokens": 1000, "output_tokens": 300}
    assert expected(catalog, {"request_rps": 2}, workload).typical.request_rps == 2
    assert expected(catalog, {"num_concurrent_requests": 16}, workload).typical == expected(catalog, LOADED).typical


@pytest.mark.parametrize(
    ("metrics", "missing"),
    [
        ({}, "input_mean_tokens, output_mean_tokens, num_running_requests"),
        ({"num_running_requests": 3, "input_mean_tokens": 5}, "output_mean_tokens"),
        ({"input_mean_tokens": 5, "output_mean_tokens": 5, "request_rps": 0}, "num_running_requests"),
    ],
)
def test_nothing_is_expected_without_a_load(catalog: Catalog, metrics: dict[str, float], missing: str) -> None:
    found, notes = expectation_of(catalog, MODEL, GPU, Deployment(), Metrics.model_validate(metrics), None)
    assert found is None
    assert [note.code for note in notes] == ["no_expectation"]
    assert f" {missing} is missing" in notes[0].message


def test_nothing_is_expected_of_what_does_not_serve(catalog: Catalog) -> None:
    found, notes = expectation_of(catalog, MODEL, "l4-24gb", Deployment(engine="vllm"), Metrics.model_validate(LOADED), None)
    assert found is None
    assert "does not serve" in notes[0].message


def test_unknown_model_is_refused(catalog: Catalog) -> None:
    with pytest.raises(UnknownName):
        expectation_of(catalog, "llama-9", GPU, Deployment(), Metrics.model_validate(LOADED), None)


def test_planner_is_the_baseline_of_those_who_have_none(catalog: Catalog) -> None:
    body = {"model": MODEL, "gpu": GPU, "deployment": DEPLOYMENT, "metrics": LOADED | {"tpot_p50_s": 0.06}}
    answer = diagnose(catalog, load_rules(), DiagnoseRequest.model_validate(body))
    slow = next(finding for finding in answer.findings if finding.rule == "tpot_high")
    line = next(each for each in slow.evidence if each.metric == "tpot_p50_s")
    assert line.threshold_from == "planner"
    assert line.baseline is not None
    assert line.baseline < line.threshold < 0.06
    assert any(step.name == "expected tpot_mean_s" and step.value == line.baseline for step in answer.working)
    better = body | {"baseline": {"tpot_p50_s": 0.058}}
    again = diagnose(catalog, load_rules(), DiagnoseRequest.model_validate(better))
    assert "tpot_high" not in [finding.rule for finding in again.findings]
