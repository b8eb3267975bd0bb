"""What the reader of a capacity answer is told, and what he is not told without reason."""

from dataclasses import replace
from typing import Any

import pytest

from app.domain.capacity import Constraint, constraints_of
from app.domain.capacity_notes import capacity_warnings
from app.domain.demand import demand_of
from app.domain.deployment import Deployment
from app.domain.memory import fit
from app.domain.sizing import Measured, Sizing
from app.domain.workload import Slo, Workload
from tests.domain.shapes import CARD, dense

BALANCED = {"peak_rps": 10, "input_tokens": {"mean": 900, "p95": 1500}, "output_tokens": {"mean": 300, "p95": 400}}
LONG_PROMPTS = BALANCED | {"input_tokens": {"mean": 4000, "p95": 8000}}
MEASURED = Measured(output_tokens_per_s=6000, input_tokens_per_s=60_000, e2e_s=5, concurrency=100, kv_concurrency=100)
SPECULATIVE = {"num_draft_tokens": 3, "acceptance_ratio": 0.7}


def codes(
    workload: dict[str, Any] = BALANCED,
    *,
    deployment: dict[str, Any] | None = None,
    measured: Measured = MEASURED,
    slo: Slo | None = None,
    utilization: float | None = 0.5,
    constraints: list[Constraint] | None = None,
    on_card: bool = False,
) -> set[str]:
    load, replica = Workload.model_validate(workload), Deployment.model_validate({"weights": "fp8", **(deployment or {})})
    sizing = Sizing(demand_of(load), measured, slo, None, None, None)
    llm = dense() if on_card else None
    found = fit(llm, CARD, replica) if llm else None
    limits = constraints_of(sizing) if constraints is None else constraints
    return {note.code for note in capacity_warnings(llm, load, sizing, limits, found, utilization, replica)}


def test_a_measured_plan_of_balanced_traffic_needs_no_warning() -> None:
    assert codes() == set()


@pytest.mark.parametrize(
    ("workload", "deployment", "told"),
    [
        (LONG_PROMPTS, {}, {"prefill_heavy", "prefix_cache_opportunity", "decode_not_negligible", "long_input_tail"}),
        (
            LONG_PROMPTS | {"prefix_hit_ratio": 0.5, "shared_prefix_tokens": 1000},
            {},
            {"prefill_heavy", "decode_not_negligible", "long_input_tail"},
        ),
        (BALANCED | {"output_tokens": 100}, {}, {"prefill_heavy"}),
        (BALANCED | {"output_tokens": 100}, {"speculative": SPECULATIVE}, {"prefill_heavy", "speculation_helps_decode_only"}),
        (BALANCED, {"speculative": SPECULATIVE}, set()),
        (BALANCED | {"input_tokens": {"mean": 900, "p95": 1799}}, {}, set()),
        (BALANCED | {"input_tokens": {"mean": 900, "p95": 1800}}, {}, {"long_input_tail"}),
    ],
)
def test_the_shape_of_the_traffic_is_told(workload: dict[str, Any], deployment: dict[str, Any], told: set[str]) -> None:
    assert codes(workload, deployment=deployment) == told


def test_objectives_need_percentiles_of_the_lengths() -> None:
    slo = Slo(tpot_p95_s=1)
    assert codes(BALANCED | {"input_tokens": {"mean": 900}}, slo=slo) == {"no_percentiles"}
    assert codes(BALANCED | {"input_tokens": {"mean": 900}}) == codes(slo=slo) == set()


def test_a_fleet_above_nine_tenths_of_its_capacity_is_told() -> None:
    assert codes(utilization=0.901) == {"high_utilization"}
    assert codes(utilization=0.9) == set()
    assert "high_utilization" not in codes(utilization=None)


def test_what_no_number_of_replicas_holds_is_told_by_its_constraint() -> None:
    too_slow = Measured(e2e_s=5, concurrency=100, output_tokens_per_s=6000, input_tokens_per_s=60_000, ttft_s=3, tpot_s=0.1)
    assert codes(measured=too_slow, slo=Slo(ttft_p95_s=2, tpot_p95_s=0.2)) >= {"slo_unattainable"}
    assert "slo_unattainable" not in codes(measured=too_slow, slo=Slo(ttft_p95_s=4, tpot_p95_s=0.2))


def test_bounds_are_told_apart_from_measurements() -> None:
    bound = constraints_of(Sizing(demand_of(Workload.model_validate(BALANCED)), MEASURED, None, None, None, None))
    assert codes(constraints=[replace(item, basis="bound") for item in bound]) == {"speed_is_a_bound"}


def test_a_replica_that_does_not_serve_is_told() -> None:
    assert "loads_only" in codes(on_card=True)
    assert "does_not_fit" in codes(on_card=True, deployment={"weights": "bf16"})
    assert codes(on_card=True, deployment={"tp": 4}) == set()


def test_requests_beyond_the_longest_length_are_told() -> None:
    assert codes(on_card=True, deployment={"tp": 4, "max_model_len_tokens": 1800}) == {"beyond_max_model_len"}
    assert codes(on_card=True, deployment={"tp": 4, "max_model_len_tokens": 1900}) == set()
