"""Errors, their summary against a goal, and coverage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.accuracy import Goal, coverage_of, percentile_nearest_rank, relative_error_ratio, summarise_errors

GOAL = Goal(median_error_ratio=0.01, bound_ratio=0.05, share_ratio=0.75)


def test_errors_keep_their_sign_and_summaries_do_not() -> None:
    assert relative_error_ratio(80, 100) == pytest.approx(-0.2)
    found = summarise_errors([-0.2, 0.1, 0.0])
    assert found is not None
    assert (found.num_cases, found.median_error_ratio, found.worst_error_ratio) == (3, 0.1, 0.2)
    assert (found.within_bound_ratio, found.goal_met) == (None, None)


def test_the_90th_percentile_is_an_error_that_occurred() -> None:
    assert percentile_nearest_rank(list(range(1, 11)), 0.9) == 9
    assert percentile_nearest_rank(list(range(1, 12)), 0.9) == 10
    assert percentile_nearest_rank([7], 0.9) == 7


@pytest.mark.parametrize(
    ("errors", "share", "met"),
    [
        ([0.0, 0.01, 0.05, 0.9], 0.75, False),  # the median of 0.03 is too large
        ([0.0, 0.01, 0.01, 0.9], 0.75, True),  # both at the goal
        ([0.0, 0.01, 0.06, 0.9], 0.5, False),
        ([0.0, 0.0, 0.06, 0.06, 0.0], 0.6, False),  # the median is met, the share is not
    ],
)
def test_a_goal_asks_for_the_median_and_the_share(errors: list[float], share: float, met: bool) -> None:
    found = summarise_errors(errors, GOAL)
    assert found is not None
    assert (found.within_bound_ratio, found.goal_met) == (share, met)


def test_nothing_to_summarise() -> None:
    assert summarise_errors([], GOAL) is None
    assert coverage_of([]).covered_ratio is None


def test_both_ends_of_a_range_belong_to_it() -> None:
    found = coverage_of([(1, 1, 2), (1, 2, 2), (3, 2, 4), (1, 5, 4)])
    assert (found.num_cases, found.num_below, found.num_above, found.covered_ratio) == (4, 1, 1, 0.5)
    assert found.median_width_ratio == pytest.approx(0.55)


@given(st.lists(st.floats(min_value=-1, max_value=1e6), min_size=1))
def test_median_percentile_and_worst_are_in_order(errors: list[float]) -> None:
    found = summarise_errors(errors, GOAL)
    assert found is not None
    assert found.median_error_ratio <= found.p90_error_ratio <= found.worst_error_ratio
