"""The rate at which one replica just holds its objectives, and what is said where none holds."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.capacity_variants import lengths_of, speed_of
from app.domain.demand import demand_of
from app.domain.deployment import Deployment
from app.domain.performance import performance_of
from app.domain.replica_speed import ReplicaSpeed
from app.domain.workload import Slo, Workload
from tests.domain.shapes import BUNDLED, CATALOG, H100

TAIL: dict[str, Any] = {"peak_rps": 100, "input_tokens": {"mean": 4000, "p95": 12000}, "output_tokens": 500}


def speed(slo: Slo | None, load: dict[str, Any] = TAIL, **deployment: Any) -> ReplicaSpeed:
    given = Deployment.model_validate({"tp": 4, "weights": "fp8", "kv_cache": "fp8", "engine": "vllm", **deployment})
    workload = Workload.model_validate(load)
    demand = demand_of(workload)
    engine = CATALOG.engine(given.engine)
    found = performance_of(BUNDLED.models["llama-3.1-70b"], H100, given, engine, CATALOG.step_model, lengths_of(demand))
    return speed_of(found, workload, demand, slo)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
@pytest.mark.parametrize(
    "slo",
    [
        Slo(ttft_p95_s=2, tpot_p95_s=0.04),
        Slo(ttft_p95_s=1.2),
        Slo(ttft_p99_s=3, e2e_p95_s=30),
        Slo(tpot_p99_s=0.1),
        Slo(e2e_p99_s=15),
    ],
    ids=lambda slo: "+".join(name for name, limit in slo if limit),
)
def test_the_objectives_hold_just_up_to_the_rate(engine: str, slo: Slo) -> None:
    of = speed(slo, engine=engine)
    held = of.within_objectives
    assert held is not None
    assert all(each.holds for each in of.objectives(held))
    again = of.at_rate(held.request_rps)
    assert again is not None
    for one, other in zip(of.objectives(again), of.objectives(held), strict=True):
        assert one.expected_s == pytest.approx(other.expected_s, rel=0.01)
    beyond = of.at_rate(held.request_rps * 1.02)
    assert beyond is None or not all(each.holds for each in of.objectives(beyond))


@settings(max_examples=30, deadline=None)
@given(st.floats(0.5, 20), st.floats(0.02, 0.5), st.floats(1.05, 3))
def test_looser_objectives_allow_no_less(ttft: float, tpot: float, looser: float) -> None:
    tight = speed(Slo(ttft_p95_s=ttft, tpot_p95_s=tpot)).within_objectives
    loose = speed(Slo(ttft_p95_s=ttft * looser, tpot_p95_s=tpot * looser)).within_objectives
    assert tight is None or (loose is not None and loose.request_rps >= tight.request_rps * 0.998)


def test_objectives_that_bind_nowhere_leave_the_saturation() -> None:
    of = speed(Slo(ttft_p95_s=1e6, tpot_p95_s=1e6))
    held = of.within_objectives
    assert held is not None
    assert held.request_rps > 0.9 * of.performance.saturated.request_rps
    assert of.at_rate(held.request_rps * 1.2) is None


@pytest.mark.parametrize(
    ("slo", "said"),
    [
        (Slo(ttft_p95_s=0.5), "the prefill of a prompt of 12000 tokens alone takes"),
        (Slo(ttft_p99_s=0.5), "the prefill of a prompt of 22646 tokens alone takes"),
        (Slo(tpot_p95_s=0.005), "one decode step takes"),
    ],
    ids=["prompt at P95", "prompt at P99", "step"],
)
def test_what_no_load_can_hold_is_said_with_its_reason(slo: Slo, said: str) -> None:
    of = speed(slo)
    assert of.within_objectives is None
    assert of.idle is not None
    assert said.replace("22646", f"{of.inputs.p99:.10g}") in of.reason([each for each in of.objectives(of.idle) if not each.holds])


def test_a_replica_that_holds_nothing_has_no_times() -> None:
    of = speed(Slo(ttft_p95_s=2), tp=1, weights="bf16")
    assert not of.serves
    assert of.idle is None
    assert of.within_objectives is None
    assert of.at_rate(1e-3) is None


def test_prefix_hits_leave_less_to_compute_and_hold_more() -> None:
    slo = Slo(ttft_p95_s=2, tpot_p95_s=0.04)
    rates = []
    for ratio in (0.0, 0.5, 0.8, 1.0):
        held = speed(slo, {**TAIL, "prefix_hit_ratio": ratio}).within_objectives
        assert held is not None
        rates.append(held.request_rps)
    assert rates == sorted(rates)
    assert rates[1] > 1.3 * rates[0]
