"""Percentiles from buckets: figures worked out by hand, and what holds for all histograms."""

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.importers.scrape_histogram import INFINITE, Histogram, Quantile, rising, spread, together

LEVELS = (0.5, 0.9, 0.95, 0.99)
# 100 values: 20 up to 1, 60 between 1 and 2, 15 between 2 and 5, 5 above.
SEEN = Histogram((1.0, 2.0, 5.0), (20.0, 80.0, 95.0), 100.0, None)


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0.1, Quantile(0.5, 0.0, 1.0)),  # the 10th of 20 between 0 and 1
        (0.2, Quantile(1.0, 0.0, 1.0)),
        (0.5, Quantile(1.5, 1.0, 2.0)),  # the 30th of 60 between 1 and 2
        (0.9, Quantile(4.0, 2.0, 5.0)),  # the 10th of 15 between 2 and 5
        (0.95, Quantile(5.0, 2.0, 5.0)),
        (0.99, Quantile(5.0, 5.0, INFINITE)),  # above the last bound: at least that
    ],
)
def test_a_percentile_is_interpolated_as_prometheus_does(share: float, expected: Quantile) -> None:
    found = SEEN.quantile(share)
    assert found is not None
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("total", [165.0, None], ids=["sum-of-even-spread", "no-sum"])
def test_a_sum_that_an_even_spread_explains_changes_nothing(total: float | None) -> None:
    """20 x 0.5 + 60 x 1.5 + 15 x 3.5 + 5 values above 5: any sum from 20 x 0 + 60 x 1 + 15 x 2 + 5 x 5 up is possible."""
    for share in LEVELS:
        assert SEEN._replace(total=total).quantile(share) == SEEN.quantile(share)


def test_values_far_below_the_first_bound_are_told_by_their_sum() -> None:
    """1,000 values of 1 ms in all below 0.3: exponentially spread about their mean, median ln 2 x 1 ms, P95 ln 20 x 1 ms."""
    histogram = Histogram((0.3, 0.5), (1000.0, 1000.0), 1000.0, 1.0)
    median, high = histogram.quantile(0.5), histogram.quantile(0.95)
    assert median is not None
    assert high is not None
    assert median.value == pytest.approx(0.001 * math.log(2), rel=1e-3)
    assert high.value == pytest.approx(0.001 * math.log(20), rel=1e-3)
    assert (high.lower, high.upper) == (0.0, 0.3)


def test_values_close_below_a_bound_are_told_by_their_sum_too() -> None:
    """99 values at most 10 and one at most 20; a sum of 970 leaves 99 of them at least 950, 9.6 on average."""
    histogram = Histogram((10.0, 20.0), (99.0, 100.0), 100.0, 970.0)
    median = histogram.quantile(0.5)
    assert median is not None
    assert 9.5 < median.value < 10


def test_without_a_bound_above_only_a_lower_one_is_known() -> None:
    histogram = Histogram((1.0,), (0.0,), 5.0, 10.0)
    assert histogram.quantile(0.5) == Quantile(1.0, 1.0, INFINITE)
    assert histogram.mean == 2.0


def test_without_any_bound_only_the_mean_is_known() -> None:
    histogram = Histogram((), (), 5.0, 10.0)
    assert (histogram.quantile(0.5), histogram.mean) == (None, 2.0)


def test_without_values_there_is_no_percentile() -> None:
    empty = Histogram((1.0,), (0.0,), 0.0, 0.0)
    assert (empty.quantile(0.5), empty.mean) == (None, None)


def test_a_first_bound_of_zero_holds_zeros() -> None:
    """SGLang's queue times begin with a bucket that ends at zero."""
    assert Histogram((0.0, 1.0), (8.0, 10.0), 10.0, 0.5).quantile(0.5) == Quantile(0.0, 0.0, 0.0)


def test_histograms_with_other_bounds_are_merged_over_those_they_share() -> None:
    other = Histogram((1.0, 5.0), (10.0, 40.0), 40.0, 60.0)
    assert together([SEEN._replace(total=200.0), other]) == Histogram((1.0, 5.0), (30.0, 135.0), 140.0, 260.0)
    assert together([SEEN, other]) == Histogram((1.0, 5.0), (30.0, 135.0), 140.0, None)
    assert together([]) is None


def test_counts_that_fall_from_one_bound_to_the_next_are_read_as_level() -> None:
    assert rising([1.0, 4.0, 3.0, -1.0, 6.0]) == (1.0, 4.0, 4.0, 4.0, 6.0)


@pytest.mark.parametrize(
    ("mean", "share", "place"), [(0.5, 0.3, 0.3), (0.001, 0.5, 0.001 * math.log(2)), (0.0, 0.5, 0.0), (1.0, 0.5, 1.0), (0.2, 1.0, 1.0)]
)
def test_a_truncated_exponential_spread(mean: float, share: float, place: float) -> None:
    assert spread(mean, share) == pytest.approx(place, abs=1e-6)


@given(mean=st.floats(0.001, 0.999), shares=st.lists(st.floats(0, 1), min_size=2))
def test_a_spread_rises_with_the_share_and_is_its_own_mirror_image(mean: float, shares: list[float]) -> None:
    places = [spread(mean, share) for share in sorted(shares)]
    assert all(0 <= before <= after <= 1 for before, after in pairwise(places))
    assert spread(mean, 0.25) == pytest.approx(1 - spread(1 - mean, 0.75), abs=1e-9)


@given(mean=st.floats(0.01, 0.99))
def test_a_spread_has_the_mean_it_was_made_for(mean: float) -> None:
    steps = 2000
    found = sum(spread(mean, (step + 0.5) / steps) for step in range(steps)) / steps
    assert found == pytest.approx(mean, abs=2e-3)


@given(
    values=st.lists(st.floats(0, 2000, allow_nan=False), min_size=1, max_size=200),
    bounds=st.lists(st.sampled_from([0.001, 0.01, 0.3, 0.5, 1.0, 2.5, 10.0, 60.0, 480.0]), unique=True),
)
def test_percentiles_of_any_values_rise_and_lie_in_the_bucket_of_the_true_one(values: list[float], bounds: list[float]) -> None:
    bounds.sort()
    counted = tuple(float(sum(value <= bound for value in values)) for bound in bounds)
    histogram = Histogram(tuple(bounds), counted, float(len(values)), math.fsum(values))
    found = [each for share in LEVELS if (each := histogram.quantile(share)) is not None]
    assert len(found) == (len(LEVELS) if bounds else 0)
    assert all(each.lower <= each.value <= each.upper for each in found)
    assert all(before.value <= after.value for before, after in pairwise(found))
    for share, each in zip(LEVELS, found, strict=False):
        true = sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]
        assert each.lower <= true <= each.upper


def test_the_sum_brings_percentiles_of_a_coarse_histogram_closer() -> None:
    """Exponential and Erlang times in the buckets of vLLM's queue times, means of 5 ms to 3 s: smaller errors than by even spread."""
    bounds = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0)
    random_ = random.Random(5)  # noqa: S311
    with_sum, without = 0.0, 0.0
    for mean in (0.005, 0.02, 0.1, 0.3, 1.0, 3.0):
        for parts in (1, 4):
            values = sorted(random_.gammavariate(parts, mean / parts) for _ in range(2000))
            counted = tuple(float(sum(value <= bound for value in values)) for bound in bounds)
            histogram = Histogram(bounds, counted, 2000.0, sum(values))
            for share in LEVELS:
                true = values[int(share * 2000) - 1]
                better, plain = histogram.quantile(share), histogram._replace(total=None).quantile(share)
                assert better is not None
                assert plain is not None
                with_sum += abs(math.log(better.value / true))
                without += abs(math.log(plain.value / true))
    assert with_sum < 0.25 * without
