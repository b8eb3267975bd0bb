"""Confidence intervals of figures that several seeds give."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from app.domain.simulation_record import Percentiles

STUDENT_975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093,
    2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""97.5th percentile of Student's t with 1, 2 ... 30 degrees of freedom:
https://www.itl.nist.gov/div898/handbook/eda/section3/eda3672.htm."""


class Interval(NamedTuple):
    """A mean over seeds and the 95 % confidence interval around it."""

    mean: float
    half_width: float | None
    """None of a single seed."""


class PercentileIntervals(NamedTuple):
    """Mean and percentiles of a time, each over seeds [s]."""

    mean: Interval
    p50: Interval
    p95: Interval
    p99: Interval
    p999: Interval


def interval(values: Sequence[float]) -> Interval:
    """Mean +- t(n - 1) s / sqrt(n), s the standard deviation over the n seeds.

    >>> mean, half_width = interval([1.0, 2.0, 3.0])
    >>> mean, round(half_width or 0, 3)
    (2.0, 2.484)
    """
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return Interval(mean, None)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    student = STUDENT_975[min(count - 1, len(STUDENT_975)) - 1]
    return Interval(mean, student * deviation / math.sqrt(count))


def percentile_intervals(found: Sequence[Percentiles]) -> PercentileIntervals | None:
    """Of each figure on its own; None where no seed has one."""
    return PercentileIntervals(*(interval(values) for values in zip(*found, strict=True))) if found else None
