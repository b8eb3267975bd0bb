"""Confidence, states, and what the answer says about itself."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.deployment import Deployment
from app.domain.diagnosis import diagnose
from app.domain.finding import Diagnosis
from app.domain.metrics import Metrics
from app.domain.metrics_latency import LATENCIES, PERCENTILES
from app.domain.metrics_load import LENGTHS
from app.domain.observation import Observation
from app.domain.provenance import Versions
from app.domain.rule import Rule
from app.domain.thresholds import Overrides
from app.domain.workload import Slo, Workload
from app.rules.loader import load_rules

RULES = load_rules()
VERSIONS = Versions(planner="1", catalog="2")
KV_SHORT = {"kv_cache_usage_ratio": 1.0, "num_waiting_requests": 184.0, "num_running_requests": 72.0, "max_num_seqs": 256.0}
HEALTHY = {"ttft_p95_s": 0.5, "tpot_p95_s": 0.03, "num_waiting_requests": 0.0}


def ask(
    metrics: Mapping[str, float],
    *,
    baseline: Mapping[str, float] | None = None,
    slo: Slo | None = None,
    deployment: Deployment | None = None,
    workload: Workload | None = None,
    overrides: Mapping[str, float] | None = None,
    rules: Sequence[Rule] = RULES,
) -> Diagnosis:
    """The diagnosis of metrics."""
    before = None if baseline is None else Metrics.model_validate(baseline)
    observation = Observation(Metrics.model_validate(metrics), before, slo, deployment, workload)
    return diagnose(rules, observation, overrides=Overrides(overrides or {}), versions=VERSIONS)


def test_confidence_can_be_redone_from_its_working() -> None:
    answer = ask(KV_SHORT)
    step = next(step for step in answer.working if step.name == "confidence_ratio of kv_capacity")
    finding = next(finding for finding in answer.findings if finding.rule == "kv_capacity")
    # Full cache and waiting requests; fewer run than the cap allows, so that the batch is not full; preemptions unknown.
    odds = math.log(0.6 / 0.4) + 0.2 * (2 - 1) + 0.6 * 1 + 0.3 * 1 - 0.2 * 1
    assert "+ 0.2 x 1 + 0.6 x 1 - 0.4 x 0 + 0.3 x 1 - 0.2 x 1 - 1.5 x 0 - 1.2 x 0 - 0.7 x 0 - 0.3 x 0" in step.substituted
    assert step.value == finding.confidence_ratio == pytest.approx(1 / (1 + math.exp(-odds)))


def test_full_cache_with_a_queue_is_found_with_its_numbers() -> None:
    answer = ask(KV_SHORT | {"ttft_p50_s": 60.0, "request_rps": 1.0})
    assert answer.state == "bottleneck_found"
    first = answer.findings[0]
    assert first.bottleneck == "kv_capacity"
    assert first.confidence_ratio > 0.7
    assert {(each.metric, each.observed) for each in first.evidence} >= {("kv_cache_usage_ratio", 1.0)}
    assert answer.summary.startswith("Most likely kv_capacity (")
    drain = next(step for step in answer.working if step.name == "queue_drain_s")
    assert (drain.substituted, drain.value) == ("184 / 1", 184)
    assert [finding.confidence_ratio for finding in answer.findings] == sorted(
        (each.confidence_ratio for each in answer.findings), reverse=True
    )


def test_healthy_needs_latency_and_queue() -> None:
    assert ask(HEALTHY).state == "healthy"
    for name in HEALTHY:
        answer = ask({other: value for other, value in HEALTHY.items() if other != name})
        assert answer.state == "inconclusive"
        wanted = "queue_time_p95_s" if name == "num_waiting_requests" else name
        assert wanted in [suggestion.metric for suggestion in answer.measure_next]


@pytest.mark.parametrize(
    ("metrics", "slo"),
    [
        ({"ttft_p95_s": 0.5}, Slo(e2e_p95_s=10)),  # a promise that was not measured
        ({"ttft_p95_s": 0.5}, Slo(ttft_p99_s=1)),
        ({"ttft_p95_s": 0.5, "e2e_p95_s": 11}, Slo(e2e_p95_s=10)),  # a promise that is broken, though no rule says why
    ],
)
def test_healthy_needs_every_promise_kept(metrics: dict[str, float], slo: Slo) -> None:
    assert ask(HEALTHY | metrics, slo=slo).state == "inconclusive"


def test_median_alone_is_not_healthy() -> None:
    assert ask({"ttft_p50_s": 0.1, "tpot_p50_s": 0.01, "num_waiting_requests": 0}).state == "inconclusive"


def test_risk_that_nobody_notices_leaves_the_state_healthy() -> None:
    answer = ask(HEALTHY | {"kv_cache_usage_ratio": 0.97, "num_waiting_requests": 6.0})
    assert answer.state == "healthy"
    assert [finding.rule for finding in answer.findings] == ["kv_near_full"]
    assert all(finding.contradicting and finding.confidence_ratio < 0.5 for finding in answer.findings)
    assert "worth an eye" in answer.summary


def test_nothing_is_concluded_from_a_measurement_that_contradicts_itself() -> None:
    answer = ask(KV_SHORT | {"ttft_p50_s": 5.0, "ttft_p95_s": 4.0})
    assert answer.state == "invalid_measurement"
    assert not answer.findings
    assert not answer.silent
    assert {each.rule for each in answer.not_evaluated} == {rule.id for rule in RULES}
    assert [note.code for note in answer.warnings] == ["percentiles_out_of_order"]
    assert "ttft_p50_s 5 is above ttft_p95_s 4" in answer.summary


def test_baseline_that_contradicts_itself_is_refused_as_well() -> None:
    answer = ask(HEALTHY, baseline={"e2e_p50_s": 5, "e2e_p99_s": 4})
    assert answer.state == "invalid_measurement"
    assert answer.warnings[0].message.startswith("baseline: ")


def test_unnamed_cause_is_no_bottleneck() -> None:
    answer = ask({"ttft_p95_s": 6, "tpot_p95_s": 0.03})
    assert {finding.bottleneck for finding in answer.findings} == {"unresolved"}
    assert answer.state == "inconclusive"
    assert [suggestion.metric for suggestion in answer.measure_next][:2] == ["queue_time_p95_s", "prefill_time_p95_s"]


def test_driver_utilisation_alone_never_calls_for_capacity() -> None:
    weak = ask({"ttft_p95_s": 6, "tpot_p95_s": 0.3, "gpu_utilization_ratio": 1})
    strong = ask({"ttft_p95_s": 6, "tpot_p95_s": 0.3, "sm_active_ratio": 1})
    confidences = [
        next(each.confidence_ratio for each in found.findings if each.bottleneck == "overload_capacity") for found in (weak, strong)
    ]
    assert confidences[0] < min(0.3, confidences[1])
    assert "weak_metric" in [note.code for note in weak.warnings]
    assert "weak_metric" not in [note.code for note in strong.warnings]


def test_defaults_are_stated_and_slo_and_baseline_silence_them() -> None:
    assert {note.code for note in ask(HEALTHY).assumptions} == {"one_engine", "default_ttft_objective", "default_tpot_objective"}
    judged = ask(HEALTHY, slo=Slo(ttft_p95_s=1), baseline={"tpot_p95_s": 0.03})
    assert {note.code for note in judged.assumptions} == {"one_engine"}


def test_means_and_a_cap_that_differs_from_the_configured_one_are_warned_of() -> None:
    answer = ask({"ttft_mean_s": 5, "num_running_requests": 100, "max_num_seqs": 128}, deployment=Deployment(max_num_seqs=1024))
    assert [note.code for note in answer.warnings] == ["mean_instead_of_percentile", "effective_differs_from_configured"]


def sample(name: str, metric: str, **changes: Any) -> Rule:
    """A rule that fires from a half of the metric on and has no hints."""
    given = {"id": name, "bottleneck": "kv_capacity", "stage": "cause", "parents": (), "explains": (), "prior_ratio": 0.7}
    given |= {"when": {"name": "threshold", "metric": metric, "op": ">=", "number": 0.5}, "magnitude": None}
    return Rule.model_validate(RULES[0].model_dump() | {"supported_by": (), "contradicted_by": ()} | given | changes)


def outcome_of(answer: Diagnosis, rule: str) -> str:
    """fires, silent or unknown."""
    reported = {each.rule: "fires" for each in answer.findings} | {each.rule: "silent" for each in answer.silent}
    return (reported | {each.rule: "unknown" for each in answer.not_evaluated})[rule]


@pytest.mark.parametrize(
    ("metrics", "outcome"),
    [
        ({"kv_cache_usage_ratio": 0.9, "sm_active_ratio": 0.9}, "fires"),
        ({"kv_cache_usage_ratio": 0.1, "dram_active_ratio": 0.1, "sm_active_ratio": 0.9}, "silent"),
        ({"kv_cache_usage_ratio": 0.1, "dram_active_ratio": 0.9, "sm_active_ratio": 0.9}, "fires"),
        ({"dram_active_ratio": 0.9, "sm_active_ratio": 0.9}, "fires"),  # one parent is enough
        ({"kv_cache_usage_ratio": 0.1, "sm_active_ratio": 0.9}, "unknown"),  # the other parent may fire
        ({"kv_cache_usage_ratio": 0.1, "dram_active_ratio": 0.1}, "silent"),
        ({"kv_cache_usage_ratio": 0.9, "sm_active_ratio": 0.1}, "silent"),
        ({"sm_active_ratio": 0.1}, "silent"),
        ({"sm_active_ratio": 0.9}, "fires"),  # nothing was measured that its symptom would show in
        ({}, "unknown"),
    ],
)
def test_child_is_reported_under_a_parent_that_fires_or_where_none_was_measured(metrics: dict[str, float], outcome: str) -> None:
    parents = sample("one", "kv_cache_usage_ratio"), sample("other", "dram_active_ratio")
    child = sample("child", "sm_active_ratio", parents=("one", "other"))
    answer = ask(metrics, rules=(child, *parents))
    assert outcome_of(answer, "child") == outcome
    finding = next((each for each in answer.findings if each.rule == "child"), None)
    if finding is not None:
        assert set(finding.parents) == {name for name in ("one", "other") if outcome_of(answer, name) == "fires"}
        assert answer.findings[0].rule == "child"  # it says the same as its parents and more


def test_declared_explanation_weighs_down_what_it_explains() -> None:
    both = {"kv_cache_usage_ratio": 0.9, "sm_active_ratio": 0.9}
    effect = sample("effect", "sm_active_ratio")
    alone, beside, beside_a_doubtful = (
        next(each for each in ask(both, rules=(effect, *others)).findings if each.rule == "effect")
        for others in (
            (sample("cause", "kv_cache_usage_ratio"),),
            (sample("cause", "kv_cache_usage_ratio", explains=("effect",)),),
            (sample("cause", "kv_cache_usage_ratio", explains=("effect",), prior_ratio=0.4),),
        )
    )
    assert alone.confidence_ratio == beside_a_doubtful.confidence_ratio > beside.confidence_ratio
    assert (alone.explained_by, beside.explained_by, beside_a_doubtful.explained_by) == ([], ["cause"], [])


def test_effect_beyond_the_magnitude_of_a_cause_speaks_against_it() -> None:
    bounded = sample("bounded", "sm_active_ratio", magnitude={"metric": "tpot_slowdown_ratio", "at_most_ratio": 1.2})
    found = {
        slowdown: ask({"sm_active_ratio": 0.9, "tpot_p50_s": 0.01 * slowdown}, baseline={"tpot_p50_s": 0.01}, rules=(bounded,)).findings[0]
        for slowdown in (1.1, 2)
    }
    assert found[1.1].confidence_ratio > 0.7 > 0.5 > found[2].confidence_ratio
    assert found[2].contradicting
    assert not found[1.1].contradicting


BOUNDS = {
    name: next(kind for kind in field["anyOf"] if kind.get("type") == "number")
    for name, field in Metrics.model_json_schema()["properties"].items()
}


def possible(name: str) -> st.SearchStrategy[float]:
    """Values that the vocabulary takes for a metric, whatever they say about each other."""
    low, top = float(BOUNDS[name]["minimum"]), float(BOUNDS[name]["maximum"])
    return st.one_of(st.sampled_from([low, max(low, min(5.0, top)), top]), st.floats(low, top))


def sorted_percentiles(metrics: dict[str, float]) -> dict[str, float]:
    """The same values with the percentiles of each quantity in order, so that rules are reached."""
    ordered = dict(metrics)
    for family in [*(f"{each}_{{}}_s" for each in LATENCIES), *(f"{each}_{{}}_tokens" for each in LENGTHS)]:
        names = [name for level in PERCENTILES if (name := family.format(level)) in metrics]
        ordered.update(zip(names, sorted(metrics[name] for name in names), strict=True))
    return ordered


vocabularies = st.fixed_dictionaries({}, optional={name: possible(name) for name in Metrics.model_fields})
deployments = st.none() | st.builds(
    Deployment,
    engine=st.sampled_from(["vllm", "generic"]),
    enforce_eager=st.booleans(),
    max_num_seqs=st.none() | st.integers(1, 10**6),
)
slos = st.none() | st.builds(Slo, **{name: st.none() | st.floats(1e-6, 1e6) for name in Slo.model_fields})


def rules_of(answer: Diagnosis) -> list[str]:
    """Every rule that the answer speaks of."""
    found = [each.rule for each in answer.findings] + [each.rule for each in answer.silent] + [each.rule for each in answer.not_evaluated]
    return sorted(found)


def asked_for(answer: Diagnosis) -> set[str]:
    """Every metric that the answer misses."""
    lists = [each.missing for each in answer.findings] + [each.missing for each in answer.not_evaluated]
    return {name for missing in lists for name in missing if name in Metrics.model_fields}


@given(vocabularies, vocabularies | st.none(), slos, deployments, st.booleans())
def test_no_combination_of_inputs_fails(
    metrics: dict[str, float], baseline: dict[str, float] | None, slo: Slo | None, deployment: Deployment | None, ordered: bool
) -> None:
    if ordered:
        metrics = sorted_percentiles(metrics)
        baseline = baseline and sorted_percentiles(baseline)
    answer = ask(metrics, baseline=baseline, slo=slo, deployment=deployment)
    assert rules_of(answer) == [rule.id for rule in RULES]
    assert all(0 < finding.confidence_ratio < 1 for finding in answer.findings)
    assert (answer.state == "bottleneck_found") == any(
        finding.confidence_ratio >= 0.5 and finding.bottleneck != "unresolved" for finding in answer.findings
    )
    assert Diagnosis.model_validate_json(answer.model_dump_json()) == answer


@given(vocabularies.map(sorted_percentiles), st.data())
def test_measuring_what_is_asked_for_is_taken_and_no_longer_asked_for(metrics: dict[str, float], data: st.DataObject) -> None:
    before = ask(metrics)
    asked = sorted(asked_for(before))
    if before.state == "invalid_measurement" or not asked:
        return
    name = data.draw(st.sampled_from(asked))
    assert name not in metrics
    after = ask(metrics | {name: data.draw(possible(name))})
    assert rules_of(after) == [rule.id for rule in RULES]
    assert name not in asked_for(after)
