"""Replicas with their reserve, and what is left of a fleet when some are away."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.capacity import Constraint
from app.domain.demand import demand_of
from app.domain.fleet import Reserve, RollingUpdate, Sized, situations_of
from app.domain.sizing import Sizing
from app.domain.workload import Workload


def constraint(exact: float, replicas: int) -> Constraint:
    return Constraint(
        name="throughput", demand=exact, per_replica=1, unit="x", replicas_exact=exact, replicas=replicas, basis="measured", note=""
    )


def fleet(exact: float, needed: int, replicas: int) -> Sized:
    demand = demand_of(Workload.model_validate({"peak_rps": 1, "input_tokens": 1, "output_tokens": 1}))
    item = constraint(exact, needed)
    return Sized(Sizing(demand, None, None, None, None, None), [item], item, replicas)


@pytest.mark.parametrize(
    ("reserve", "replicas"),
    [
        (Reserve(1.25, 0), 5),
        (Reserve(1, 0), 4),
        (Reserve(1, 2), 6),
        (Reserve(1, 0, unavailable_replicas=2), 6),
        (Reserve(1.25, 1, unavailable_replicas=1), 6),
        (Reserve(2, 0, unavailable_replicas=2), 8),
    ],
    ids=["redundancy", "none", "spare", "update", "update within redundancy", "redundancy covers it"],
)
def test_an_update_is_covered_by_redundancy_or_added(reserve: Reserve, replicas: int) -> None:
    assert reserve.replicas([constraint(3.2, 4)]) == replicas


@given(st.integers(1, 1000), st.floats(1, 5), st.integers(0, 20), st.integers(0, 20))
def test_what_is_left_during_an_update_carries_the_peak(needed: int, ratio: float, spare: int, away: int) -> None:
    reserve = Reserve(ratio, spare, away)
    total = reserve.replicas([constraint(needed, needed)])
    assert total - away >= needed
    update = RollingUpdate(surge_replicas=2, unavailable_replicas=away)
    last = situations_of(fleet(needed, needed, total), 4, 8, update)[-1]
    assert last.name == "rolling update"
    assert last.holds
    assert last.gpus == (total + 2) * 4


def test_losses_are_shown_with_the_load_on_the_rest() -> None:
    found = {each.name: each for each in situations_of(fleet(3.2, 4, 5), 4, 8, None)}
    assert {name: (each.replicas, each.gpus, each.holds) for name, each in found.items()} == {
        "all replicas serve": (5, 20, True),
        "one replica lost": (4, 20, True),
        "one node lost": (3, 20, False),
    }
    assert found["one replica lost"].utilization_ratio == pytest.approx(0.8)


def test_a_fleet_of_one_has_nothing_left() -> None:
    lost = situations_of(fleet(0.5, 1, 1), 16, 8, None)[1]
    assert (lost.replicas, lost.utilization_ratio, lost.holds) == (0, None, False)
