"""Confidence: monotone in the evidence, never certain, capped while little is examined."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.domain.confidence import CONFIDENCE_BOUNDS, SUSPECTED_BOUND, UNEXAMINED_BOUND, Weighing

counts = st.integers(0, 6)
weighings = st.builds(
    Weighing,
    prior_ratio=st.floats(0.05, 0.95),
    num_held=counts,
    num_weak=st.just(0),
    num_supported=counts,
    num_unsupported=counts,
    num_ruled_out=counts,
    num_unmeasured=counts,
    num_contradicted=counts,
    num_unknown_support=counts,
    explained=st.booleans(),
    by_default=st.booleans(),
    presumed=st.booleans(),
    suspected=st.booleans(),
)


def changed(weighing: Weighing, **by: int) -> float:
    """The log-odds after counts have changed."""
    return Weighing(**{**vars(weighing), **{name: vars(weighing)[name] + step for name, step in by.items()}}).log_odds()


@given(weighings)
def test_confidence_is_monotone_and_never_certain(weighing: Weighing) -> None:
    low, high = CONFIDENCE_BOUNDS
    assert 0 < low <= weighing.confidence_ratio() <= high < 1
    odds = weighing.log_odds()
    assert changed(weighing, num_held=1) >= odds
    assert changed(weighing, num_ruled_out=1) > odds >= changed(weighing, num_unmeasured=1) > changed(weighing, num_contradicted=1)
    assert changed(weighing, num_supported=1) > odds == changed(weighing, num_unknown_support=1) > changed(weighing, num_unsupported=1)
    assert Weighing(**{**vars(weighing), "explained": True}).log_odds() <= odds
    assert Weighing(**{**vars(weighing), "presumed": True}).log_odds() <= odds
    assert changed(weighing, num_weak=1) < odds
    assert changed(weighing, num_held=1, num_weak=1) < odds


def test_confidence_is_capped_while_most_of_what_tells_causes_apart_is_unknown() -> None:
    counts: dict[str, Any] = dict.fromkeys(("num_weak", "num_unsupported", "num_contradicted", "num_ruled_out"), 0)
    known, unknown = (
        Weighing(
            0.9,
            num_held=4,
            num_supported=1,
            num_unmeasured=0,
            num_unknown_support=number,
            explained=False,
            by_default=False,
            presumed=False,
            **counts,
        )
        for number in (1, 2)
    )
    assert known.confidence_ratio() > UNEXAMINED_BOUND == unknown.confidence_ratio()


@given(weighings)
def test_a_suspicion_is_never_surer_than_its_bound(weighing: Weighing) -> None:
    suspected = Weighing(**{**vars(weighing), "suspected": True}).confidence_ratio()
    seen = Weighing(**{**vars(weighing), "suspected": False}).confidence_ratio()
    assert suspected == min(seen, SUSPECTED_BOUND)
