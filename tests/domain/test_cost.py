"""Cost: unit prices from a price and a throughput."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.cost import CostAnswer, Throughput, answer_cost, usd_per_million
from app.domain.provenance import Step, Versions

PRICE = Step(name="replica_usd_per_hour", formula="given", substituted="20", value=20, unit="USD/hour", basis="exact", source="request")


def cost(
    throughput: Throughput, *, hourly: float = 20, replicas: int = 1, prompt: float | None = None, output: float | None = None,
    success: float = 1, requests: float = 1, attempts: float = 1,
) -> CostAnswer:  # fmt: skip
    return answer_cost(
        replica_usd_per_hour=hourly, replicas=replicas, price_steps=[PRICE], throughput=throughput, mean_input_tokens=prompt,
        mean_output_tokens=output, success_ratio=success, requests_per_task=requests, attempts_per_task=attempts, assumptions=[],
        warnings=[], versions=Versions(planner="test", catalog="test"),
    )  # fmt: skip


def test_tokens_requests_and_tasks() -> None:
    answer = cost(Throughput(output_tokens_per_s=8000), prompt=1200, output=400, success=0.8, requests=3, attempts=2)
    per_request = 20 / (20 * 3600)
    assert answer.usd_per_million_output_tokens == pytest.approx(0.694444, abs=1e-6)
    assert answer.usd_per_million_input_tokens == pytest.approx(20 / (24_000 * 3600) * 1e6)
    assert answer.usd_per_million_blended_tokens == pytest.approx(20 / (32_000 * 3600) * 1e6)
    assert answer.usd_per_request == pytest.approx(per_request)
    assert answer.usd_per_successful_request == pytest.approx(per_request / 0.8)
    assert answer.usd_per_task == pytest.approx(per_request * 3 * 2 / 0.8)
    assert (answer.usd_per_hour, answer.usd_per_month) == (20, 14_600)
    assert {note.code for note in answer.warnings} == {"full_load", "cost_not_split"}


def test_without_a_throughput_only_the_fleet_has_a_price() -> None:
    answer = cost(Throughput(), replicas=3)
    assert answer.usd_per_hour == 60
    assert answer.usd_per_request is None
    assert answer.usd_per_million_output_tokens is None
    assert "no_throughput" in {note.code for note in answer.warnings}


def test_more_replicas_cost_the_same_per_unit() -> None:
    one, five = (cost(Throughput(output_tokens_per_s=8000), replicas=replicas, output=400) for replicas in (1, 5))
    assert five.usd_per_hour == 5 * one.usd_per_hour
    assert one.summary.startswith("One replica costs $20.00 per hour")
    assert five.summary.startswith("5 replicas cost $100.00 per hour")
    assert five.usd_per_request == pytest.approx(one.usd_per_request)


@given(st.floats(0.01, 1e4), st.floats(0.1, 1e6), st.floats(0.1, 1e6))
def test_blended_tokens_are_never_dearer_than_either_kind(hourly: float, inputs: float, outputs: float) -> None:
    answer = cost(Throughput(output_tokens_per_s=outputs, input_tokens_per_s=inputs), hourly=hourly)
    assert answer.usd_per_million_blended_tokens is not None
    assert answer.usd_per_million_blended_tokens <= min(usd_per_million(hourly, inputs), usd_per_million(hourly, outputs))
