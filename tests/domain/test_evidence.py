"""Comparisons with their references, and three-valued logic over them."""

from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.evidence import Evaluator, Evidence
from app.domain.metrics import Metrics
from app.domain.observation import Observation
from app.domain.rule import AllOf, AnyOf, Comparison, Condition
from app.domain.thresholds import Overrides
from app.domain.workload import Slo


def compare(metric: str, op: Any, **reference: Any) -> Comparison:
    """A comparison."""
    return Comparison(name="threshold", metric=metric, op=op, **reference)


def line(comparison: Comparison, observation: Observation, overrides: Mapping[str, float] | None = None) -> Evidence:
    """The evidence of a comparison that can be made."""
    (found,) = Evaluator(observation, Overrides(overrides or {}), "rule").compare(comparison).evidence
    return found


def test_a_replaced_threshold_says_who_replaced_it() -> None:
    observation, comparison = Observation(Metrics(kv_cache_usage_ratio=0.5)), compare("kv_cache_usage_ratio", ">", number=0.9)
    name = "rule.threshold"
    for overrides, expected in (
        (Overrides(), (0.9, "rule")),
        (Overrides(profile={name: 0.4}), (0.4, "profile")),
        (Overrides({name: 0.3}, {name: 0.4}), (0.3, "request")),
        (Overrides({"other.threshold": 0.3}, {name: 0.0}), (0.0, "profile")),
    ):
        (found,) = Evaluator(observation, overrides, "rule").compare(comparison).evidence
        assert (found.threshold, found.threshold_from, found.held) == (*expected, expected[0] < 0.5)


# Kleene's tables, by comparisons that are true, false and unknown for these metrics.
TABLE = Observation(Metrics(kv_cache_usage_ratio=0.5))
LEAF: dict[bool | None, Condition] = {
    True: compare("kv_cache_usage_ratio", ">", number=0.1),
    False: compare("kv_cache_usage_ratio", ">", number=0.9),
    None: compare("sm_active_ratio", ">", number=0.1),
}


@pytest.mark.parametrize(("left", "right"), list(product(LEAF, LEAF)))
def test_conjunction_and_disjunction_are_kleenes(left: bool | None, right: bool | None) -> None:
    parts = (LEAF[left], LEAF[right])
    conjunction = False if False in (left, right) else None if None in (left, right) else True
    disjunction = True if True in (left, right) else None if None in (left, right) else False
    assert Evaluator(TABLE).evaluate(AllOf(all=parts)).held is conjunction
    assert Evaluator(TABLE).evaluate(AnyOf(any=parts)).held is disjunction


conditions = st.recursive(
    st.sampled_from([True, False, None]).map(lambda held: LEAF[held]),
    lambda parts: st.lists(parts, min_size=1, max_size=3).flatmap(lambda some: st.sampled_from([AllOf(all=some), AnyOf(any=some)])),
    max_leaves=12,
)


@given(conditions, st.floats(0, 1))
def test_measuring_what_was_missing_never_changes_what_was_decided(condition: Condition, sm_active: float) -> None:
    before = Evaluator(TABLE).evaluate(condition)
    after = Evaluator(Observation(Metrics(kv_cache_usage_ratio=0.5, sm_active_ratio=sm_active))).evaluate(condition)
    assert after.held is not None
    assert before.held in (None, after.held)
    assert (before.held is None) <= bool(before.missing)


def test_evidence_is_what_decides() -> None:
    true, false, unknown = LEAF[True], LEAF[False], LEAF[None]
    failed = Evaluator(TABLE).evaluate(AllOf(all=(true, unknown, false)))
    assert [each.held for each in failed.evidence] == [False]
    assert failed.missing == ()
    open_question = Evaluator(TABLE).evaluate(AllOf(all=(true, unknown)))
    assert [each.held for each in open_question.evidence] == [True]
    assert open_question.missing == ("sm_active_ratio",)
    held = Evaluator(TABLE).evaluate(AnyOf(any=(false, unknown, true)))
    assert [each.held for each in held.evidence] == [True]


SLO_1_5 = Slo(ttft_p95_s=1.5)
WAIT_0, WAIT_1 = Metrics(num_waiting_requests=0), Metrics(num_waiting_requests=1)
TTFT_4 = Metrics(ttft_p95_s=4, ttft_p99_s=9)


@pytest.mark.parametrize(
    ("observation", "comparison", "expected"),
    [
        (Observation(TTFT_4), compare("ttft", ">", objective="ttft"), ("ttft_p99_s", 2, "default", True)),
        (Observation(TTFT_4, slo=SLO_1_5), compare("ttft", ">", objective="ttft"), ("ttft_p95_s", 1.5, "slo", True)),
        (Observation(TTFT_4, Metrics(ttft_p99_s=8)), compare("ttft", ">", objective="ttft"), ("ttft_p99_s", 12, "baseline", False)),
        (
            Observation(TTFT_4, Metrics(ttft_p95_s=1), slo=Slo(ttft_p95_s=5)),
            compare("ttft", ">", objective="ttft"),
            ("ttft_p95_s", 1.5, "baseline", True),
        ),
        (Observation(TTFT_4, Metrics(ttft_p95_s=9), slo=SLO_1_5), compare("ttft", ">", objective="ttft"), ("ttft_p95_s", 1.5, "slo", True)),
        (
            Observation(TTFT_4, slo=Slo(ttft_p95_s=5, ttft_p99_s=6)),
            compare("ttft", "<=", objective="ttft"),
            ("ttft_p99_s", 6, "slo", False),
        ),
        (
            Observation(TTFT_4, slo=Slo(ttft_p95_s=5, ttft_p99_s=10)),
            compare("ttft", "<=", objective="ttft"),
            ("ttft_p99_s", 10, "slo", True),
        ),
        (Observation(Metrics(ttft_mean_s=3)), compare("ttft", ">", objective="ttft"), ("ttft_mean_s", 2, "default", True)),
        (Observation(Metrics(ttft_p50_s=1, ttft_mean_s=3)), compare("ttft", ">", objective="ttft"), ("ttft_p50_s", 2, "default", False)),
        (
            Observation(Metrics(queue_time_p95_s=1), slo=SLO_1_5),
            compare("queue_time", ">", objective="ttft", times_ratio=0.5),
            ("queue_time_p95_s", 0.75, "slo", True),
        ),
        (
            Observation(Metrics(request_rps=7), Metrics(request_rps=10)),
            compare("request_rps", "<", baseline_ratio=0.8, number=1),
            ("request_rps", 8, "baseline", True),
        ),
        (Observation(Metrics(request_rps=7)), compare("request_rps", "<", baseline_ratio=0.8, number=1), ("request_rps", 1, "rule", False)),
        (
            Observation(Metrics(request_rps=7, offered_rps=10)),
            compare("request_rps", "<", symptom="offered_rps", times_ratio=0.95),
            ("request_rps", 9.5, "symptom", True),
        ),
        (
            Observation(WAIT_0, WAIT_0),
            compare("num_waiting_requests", ">", baseline_ratio=2),
            ("num_waiting_requests", 0, "baseline", False),
        ),
        (
            Observation(WAIT_1, WAIT_0),
            compare("num_waiting_requests", ">", baseline_ratio=2),
            ("num_waiting_requests", 0, "baseline", True),
        ),
    ],
)
def test_threshold_comes_from_the_best_reference_and_says_which(
    observation: Observation, comparison: Comparison, expected: tuple[str, float, str, bool]
) -> None:
    found = line(comparison, observation)
    metric, threshold, basis, held = expected
    assert (found.metric, found.threshold_from, found.held) == (metric, basis, held)
    assert found.threshold == pytest.approx(threshold)


def test_override_takes_the_place_of_every_reference() -> None:
    found = line(compare("ttft", ">", objective="ttft"), Observation(TTFT_4, slo=SLO_1_5), {"rule.threshold": 100})
    assert (found.threshold, found.threshold_from, found.held) == (100, "request", False)


@pytest.mark.parametrize(
    ("observation", "comparison", "missing"),
    [
        (Observation(Metrics(e2e_p95_s=5)), compare("e2e", ">", objective="e2e"), "slo.e2e_p95_s"),
        (Observation(Metrics(e2e_p50_s=5), slo=Slo(e2e_p99_s=9)), compare("e2e", ">", objective="e2e"), "e2e_p99_s"),
        (Observation(Metrics(request_rps=5)), compare("request_rps", "<", baseline_ratio=0.8), "baseline.request_rps"),
        (Observation(Metrics(request_rps=5), Metrics()), compare("request_rps", "<", baseline_ratio=0.8), "baseline.request_rps"),
        (Observation(Metrics(request_rps=5)), compare("request_rps", "<", symptom="offered_rps"), "offered_rps"),
    ],
)
def test_reference_that_is_missing_is_named(observation: Observation, comparison: Comparison, missing: str) -> None:
    verdict = Evaluator(observation).compare(comparison)
    assert verdict.held is None
    assert verdict.missing == (missing,)
