"""Cumulative histograms: mean and percentiles of what fell into their buckets."""

from collections.abc import Iterable
from itertools import accumulate
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
        """The value that a share of all values does not exceed; None without values.

        Linear inside the bucket, as Prometheus interpolates (https://prometheus.io/docs/prometheus/latest/querying/functions/
        #histogram_quantile), and in the last, unbounded bucket its lower bound. Where it falls into the first bucket it is at most what the
        sum allows: the n values of that bucket sum up to at most S (the sum less the others at their buckets' lower bounds), and n - share
        x N of them are at least as large as the percentile, so it is at most S / (n - share x N).
        """
        if self.num_values <= 0:
            return None
        rank = share * self.num_values
        lower, below = 0.0, 0.0
        for place, (bound, up_to) in enumerate(zip(self.bounds, self.cumulative, strict=True)):
            if up_to >= rank and up_to > 0:
                if place == 0 and bound <= 0:
                    return Quantile(bound, bound, bound)
                value = lower + (bound - lower) * ((rank - below) / (up_to - below) if up_to > below else 1.0)
                return Quantile(min(value, self._most(rank)) if place == 0 else value, lower, bound)
            lower, below = max(bound, 0.0), up_to
        return Quantile(lower, lower, INFINITE)

    def _most(self, rank: float) -> float:
        """The largest value that the percentile of that rank can have in the first bucket, by the sum."""
        first = self.cumulative[0]
        if self.total is None or first <= rank:
            return INFINITE
        reached = (*self.cumulative, self.num_values)
        others = sum(bound * (above - up_to) for bound, up_to, above in zip(self.bounds, reached, reached[1:], strict=False))
        return max(self.total - others, 0.0) / (first - rank)


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
