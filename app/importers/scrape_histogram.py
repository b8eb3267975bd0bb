"""Cumulative histograms: mean and percentiles of what fell into their buckets."""

import math
from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

INFINITE = float("inf")


class Quantile(NamedTuple):
    """A percentile read from buckets."""

    value: float
    """Interpolated inside the bucket."""
    lower: float
    """Lower bound of that bucket: the value is not below."""
    upper: float
    """Upper bound of that bucket: the value is not above; infinite in the last one, where `value` is the lower bound."""


class Histogram(NamedTuple):
    """How many values were at most each bound."""

    bounds: tuple[float, ...]
    """Finite upper bounds, ascending."""
    cumulative: tuple[float, ...]
    """Values at most that bound, for each."""
    num_values: float
    """All values."""
    total: float | None
    """Sum of all values, where it is known."""

    @property
    def mean(self) -> float | None:
        """Sum / number: exact, unlike the percentiles."""
        return None if self.total is None or self.num_values <= 0 else self.total / self.num_values

    def quantile(self, share: float) -> Quantile | None:
        """The value that a share of all values does not exceed; None without values, and where no bound says anything of it.

        The bucket is exact. Inside it the values are spread evenly, as Prometheus assumes (https://prometheus.io/docs/prometheus/latest/
        querying/functions/#histogram_quantile), unless the sum of all values rules that out: 1,000 queue times of 1 ms fall into a bucket
        that ends at 300 ms, and their 95th percentile is not 285 ms. Then they have the mean that the sum allows and that is nearest to an
        even spread, and of all spreads with that mean the one of largest entropy, a truncated exponential. In the last, unbounded bucket
        the answer is its lower bound.
        """
        if self.num_values <= 0:
            return None
        rank = share * self.num_values
        lower, below = 0.0, 0.0
        for place, (bound, up_to) in enumerate(zip(self.bounds, self.cumulative, strict=True)):
            if up_to >= rank and up_to > below:
                width = bound - lower
                if width <= 0:
                    return Quantile(bound, bound, bound)
                return Quantile(lower + width * spread(self._mean_inside(place), (rank - below) / (up_to - below)), lower, bound)
            lower, below = max(bound, 0.0), up_to
        return Quantile(lower, lower, INFINITE) if lower > 0 else None

    def _mean_inside(self, place: int) -> float:
        """Mean of a bucket's values as a share of its width: 1/2, or what the sum allows that is nearest.

        The others sum up to at least their buckets' lower bounds and at most their upper ones, and the bucket's own values to the rest.
        """
        if self.total is None:
            return 0.5
        edges = (0.0, *(max(bound, 0.0) for bound in self.bounds), INFINITE)
        reached = (0.0, *self.cumulative, max(self.num_values, self.cumulative[-1]))
        counts = [after - before for before, after in pairwise(reached)]
        least = sum(edges[other] * count for other, count in enumerate(counts) if other != place)
        most = sum(edges[other + 1] * count for other, count in enumerate(counts) if other != place and count > 0)
        lower, upper, own = edges[place], edges[place + 1], counts[place]
        low, high = ((self.total - others) / own for others in (most, least))
        return min(max(0.5, (low - lower) / (upper - lower)), max((high - lower) / (upper - lower), 0.0), 1.0)


def together(parts: Iterable[Histogram]) -> Histogram | None:
    """One histogram of the values of all, over the bounds that all share; None when there is none."""
    each = list(parts)
    if not each:
        return None
    if len(each) == 1:
        return each[0]
    shared = sorted(set.intersection(*(set(one.bounds) for one in each)))
    counts = [dict(zip(one.bounds, one.cumulative, strict=True)) for one in each]
    totals = [one.total for one in each]
    known = [total for total in totals if total is not None]
    return Histogram(
        tuple(shared),
        tuple(sum(count[bound] for count in counts) for bound in shared),
        sum(one.num_values for one in each),
        sum(known) if len(known) == len(totals) else None,
    )


def rising(values: Iterable[float]) -> tuple[float, ...]:
    """The same counts, none below an earlier one: a scrape is no instant, so buckets may be read a value apart."""
    return tuple(accumulate((max(value, 0.0) for value in values), max))


def spread(mean: float, share: float) -> float:
    """Place between 0 and 1 that a share of values does not exceed whose mean is that, exponentially spread between 0 and 1.

    Density proportional to exp(-k x), mean 1 / k - 1 / (exp(k) - 1); evenly for a mean of 1/2.
    """
    if mean > 0.5:
        return 1.0 - spread(1.0 - mean, 1.0 - share)
    if mean <= 0:
        return 1.0 if share >= 1 else 0.0
    decay = _decay(mean)
    if decay < 1e-6:
        return share
    return min(-math.log1p(share * math.expm1(-decay)) / decay, 1.0) if share < 1 else 1.0


@lru_cache(maxsize=4096)
def _decay(mean: float) -> float:
    """k of a truncated exponential between 0 and 1 of that mean (at most 1/2), by bisection."""
    low, high = 0.0, 1.0 / mean  # untruncated the mean is 1 / k, and truncation lowers it
    for _ in range(60):
        middle = (low + high) / 2
        if _mean(middle) > mean:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _mean(decay: float) -> float:
    if decay < 1e-4:
        return 0.5 - decay / 12
    return 1 / decay - (1 / math.expm1(decay) if decay < 700 else 0.0)
