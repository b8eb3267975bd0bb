"""How lengths spread around their mean: percentiles, second moment, and the parts below and above a length."""

import itertools
import math
from statistics import NormalDist
from typing import NamedTuple

from app.domain.workload import RequestClass, TokenLengths, Workload, over_classes

SOURCE = "lognormal lengths through the mean and the P95 of the request"
NORMAL = NormalDist()
WIDEST_SIGMA = NORMAL.inv_cdf(0.95)
"""P95 / mean of a lognormal is largest, 3.87, at this width of the logarithm."""


class Spread(NamedTuple):
    """A distribution of lengths in the figures that queues need."""

    mean: float
    """[tokens]."""
    p95: float
    """[tokens]."""
    p99: float
    """[tokens]."""
    variance_ratio: float
    """Variance / mean squared; 0 where all are equally long."""

    def times(self, factor: float) -> "Spread":
        """The same with every length multiplied."""
        return Spread(self.mean * factor, self.p95 * factor, self.p99 * factor, self.variance_ratio)


class Part(NamedTuple):
    """The requests on one side of a prompt length."""

    share_ratio: float
    """Of all requests."""
    inputs: Spread
    outputs: Spread


class LogNormal(NamedTuple):
    """Lengths whose logarithm is normal, between two bounds."""

    mu: float
    sigma: float
    low: float = 0.0
    high: float = math.inf

    def _standard(self, tokens: float) -> float:
        return -math.inf if tokens <= 0 else math.inf if math.isinf(tokens) else (math.log(tokens) - self.mu) / self.sigma

    def _moment(self, order: int) -> float:
        """Integral of x^order between the bounds: e^(order mu + order^2 sigma^2 / 2) (F(high - order sigma) - F(low - order sigma))."""
        shift = order * self.sigma
        between = NORMAL.cdf(self._standard(self.high) - shift) - NORMAL.cdf(self._standard(self.low) - shift)
        return math.exp(order * self.mu + shift**2 / 2) * between

    @property
    def share_ratio(self) -> float:
        """Share of the lengths that lies between the bounds."""
        return self._moment(0)

    def percentile(self, level: float) -> float:
        """The length that a share `level` of those between the bounds is below [tokens]."""
        below = NORMAL.cdf(self._standard(self.low))
        return math.exp(self.mu + self.sigma * NORMAL.inv_cdf(min(below + level * self.share_ratio, 1 - 1e-12)))

    def spread(self) -> Spread:
        """Mean, percentiles and second moment of the lengths between the bounds."""
        share = self.share_ratio
        mean = self._moment(1) / share
        return Spread(mean, self.percentile(0.95), self.percentile(0.99), max(0.0, self._moment(2) / share / mean**2 - 1))


def lognormal_of(lengths: TokenLengths) -> LogNormal | None:
    """The lognormal with a mean and a P95; None where the P95 is not given or not above the mean.

    ln(P95 / mean) = z sigma - sigma^2 / 2 with z = 1.645, so sigma = z - sqrt(z^2 - 2 ln(P95 / mean)); above 3.87 times the mean no
    lognormal reaches the P95 and the widest is taken.

    >>> found = lognormal_of(TokenLengths(mean=4000, p95=12000))
    >>> round(found.sigma, 3), round(found.spread().mean), round(found.percentile(0.95))
    (0.932, 4000, 12000)
    """
    if lengths.p95 is None or lengths.p95 <= lengths.mean:
        return None
    left = WIDEST_SIGMA**2 - 2 * math.log(lengths.p95 / lengths.mean)
    sigma = WIDEST_SIGMA - math.sqrt(max(0.0, left))
    return LogNormal(math.log(lengths.mean) - sigma**2 / 2, sigma)


def spread_of(workload: Workload, which: str) -> Spread:
    """Spread of `input_tokens` or `output_tokens` after token growth.

    Classes count as they are; other lengths are lognormal through mean and P95, with the P95 and P99 that are given; a mean alone is a
    constant.
    """
    growth = workload.token_growth_ratio
    lengths = workload.lengths(which)
    if workload.classes:
        return _of_classes([(getattr(each, which), each.share_ratio) for each in workload.classes], lengths).times(growth)
    shape = lognormal_of(lengths)
    if shape is None:
        p95 = lengths.p95 or lengths.mean
        return Spread(lengths.mean, p95, lengths.p99 or p95, 0.0).times(growth)
    p95 = lengths.p95 or lengths.mean
    p99 = max(p95, shape.percentile(0.99)) if lengths.p99 is None else lengths.p99
    return Spread(lengths.mean, p95, p99, math.expm1(shape.sigma**2)).times(growth)


def _of_classes(lengths: list[tuple[float, float]], percentiles: TokenLengths) -> Spread:
    share = sum(each for _, each in lengths)
    mean = sum(tokens * each for tokens, each in lengths) / share
    square = sum(tokens**2 * each for tokens, each in lengths) / share
    return Spread(mean, percentiles.p95 or mean, percentiles.p99 or mean, max(0.0, square / mean**2 - 1))


def parts_at(workload: Workload, tokens: float) -> tuple[Part, Part] | None:
    """The requests with prompts up to `tokens` (before token growth) and those above; None where one side is empty or nothing spreads."""
    if workload.classes:
        sides = [[each for each in workload.classes if (each.input_tokens > tokens) == above] for above in (False, True)]
        if not all(sides):
            return None
        short, long = (_part_of_classes(side, workload.token_growth_ratio) for side in sides)
        return short, long
    shape = lognormal_of(workload.lengths("input_tokens"))
    if shape is None:
        return None
    outputs, growth = spread_of(workload, "output_tokens"), workload.token_growth_ratio
    below, above = shape._replace(high=tokens), shape._replace(low=tokens)
    return (
        Part(below.share_ratio, below.spread().times(growth), outputs),
        Part(above.share_ratio, above.spread().times(growth), outputs),
    )


def _part_of_classes(classes: list[RequestClass], growth: float) -> Part:
    share = sum(each.share_ratio for each in classes)

    def spread(which: str) -> Spread:
        lengths = sorted((getattr(each, which), each.share_ratio / share) for each in classes)
        return _of_classes(lengths, over_classes(lengths)).times(growth)

    return Part(share, spread("input_tokens"), spread("output_tokens"))


def natural_split(workload: Workload, far_ratio: float) -> float | None:
    """The prompt length (before token growth) at which two pools would part; None where no prompts are far longer than the rest.

    Of classes the widest gap between neighbours, from `far_ratio` on; else `far_ratio` x the mean where the P95 lies above it [tokens].
    """
    if workload.classes:
        lengths = sorted({each.input_tokens for each in workload.classes})
        gaps = [(after / before, before) for before, after in itertools.pairwise(lengths)]
        widest, before = max(gaps, default=(0.0, 0.0))
        return before if widest >= far_ratio else None
    given = workload.lengths("input_tokens")
    return given.mean * far_ratio if given.p95 is not None and given.p95 >= far_ratio * given.mean else None
