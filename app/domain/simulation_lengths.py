"""Lengths of simulated requests: distributions with the mean and the percentiles that are asked for."""

import bisect
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

from app.domain.length_spread import NORMAL, lognormal_of
from app.domain.workload import TokenLengths

STEEPEST = 6.0
"""Largest slope of the logarithm of the lengths below the median: exp(6) from one standard deviation to the next."""
HALVINGS = 60


@dataclass(frozen=True)
class Quantiles:
    """A distribution of lengths by its quantiles: ln(length) is a line in the normal deviate between the points."""

    points: tuple[tuple[float, float], ...]
    """(normal deviate, ln tokens), rising."""
    below: float
    """Slope below the first point."""
    above: float
    """Slope above the last one."""

    def at(self, deviate: float) -> float:
        """The length at a normal deviate [tokens]."""
        points = self.points
        place = bisect.bisect_left(points, (deviate,))
        if place == 0:
            return math.exp(points[0][1] + self.below * (deviate - points[0][0]))
        low = points[place - 1]
        if place == len(points):
            return math.exp(low[1] + self.above * (deviate - low[0]))
        high = points[place]
        return math.exp(low[1] + (high[1] - low[1]) * (deviate - low[0]) / (high[0] - low[0]))

    @property
    def mean(self) -> float:
        """Sum over the lines of e^(a + b^2 / 2) (F(high - b) - F(low - b)) [tokens], a the line at 0, b its slope."""
        ends = [-math.inf, *(deviate for deviate, _ in self.points), math.inf]
        slopes = [self.below, *((b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.pairwise(self.points)), self.above]
        starts = [self.points[0], *self.points]
        total = 0.0
        for (low, high), slope, (deviate, log) in zip(itertools.pairwise(ends), slopes, starts, strict=True):
            between = NORMAL.cdf(high - slope) - NORMAL.cdf(low - slope)
            total += math.exp(log - slope * deviate + slope**2 / 2) * between
        return total


def quantiles_of(lengths: TokenLengths, growth_ratio: float = 1.0) -> Quantiles:
    """The distribution through the median, P95 and P99 that are given, with the mean.

    What is not given follows the lognormal through mean and P95; a mean alone is a constant. The slope below the median is the one at
    which the mean comes out; where none does, the line from the median to the P95 is bent in its middle, and where that is not enough
    either the nearest mean is taken.

    >>> found = quantiles_of(TokenLengths(mean=4000, p50=2500, p95=12000, p99=20000))
    >>> [round(found.at(deviate)) for deviate in (0, 1.644854, 2.326348)], round(found.mean)
    ([2500, 12000, 20000], 4000)
    """
    shape = lognormal_of(lengths)
    p95 = lengths.p95
    if shape is None and (p95 is None or lengths.p50 is None or p95 <= lengths.p50) and (lengths.p99 or 0) <= lengths.mean:
        return Quantiles(((0.0, math.log(lengths.mean * growth_ratio)),), 0.0, 0.0)
    sigma = 0.0 if shape is None else shape.sigma
    median = lengths.p50 or (lengths.mean if shape is None else math.exp(shape.mu))
    high = p95 or max(median, lengths.mean)
    known = [(0.0, median), (NORMAL.inv_cdf(0.95), high)]
    if lengths.p99 is not None:
        known.append((NORMAL.inv_cdf(0.99), lengths.p99))
    points = tuple((deviate, math.log(tokens * growth_ratio)) for deviate, tokens in known)
    (before, low_log), (last, high_log) = points[-2:]
    above = sigma if len(points) == 2 and lengths.p50 is None else (high_log - low_log) / (last - before)
    target = lengths.mean * growth_ratio
    found = _solved(lambda slope: Quantiles(points, STEEPEST * (1 - slope), above), target)
    if math.isclose(found.mean, target, rel_tol=1e-6):
        return found
    # A mean that no slope below the median gives: more or fewer of the upper half are long.
    (zero, low), (high, top) = points[:2]

    def bent(share: float) -> Quantiles:
        middle = (zero + high) / 2, low + share * (top - low)
        return Quantiles((points[0], middle, *points[1:]), found.below, above)

    return _solved(bent, target)


def _solved(shape: Callable[[float], Quantiles], mean: float) -> Quantiles:
    """The shape between 0 and 1 at which the mean comes out, which rises with it; the nearest end where none does."""
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if shape(middle).mean < mean else (low, middle)
    return shape((low + high) / 2)
