"""Whole numbers out of products of decimals, without the last binary digit deciding."""

import math

_NOISE = 1e-9
"""Relative size of a rounding error that must not turn 11.000000000000002 replicas into 12."""


def ceil(value: float) -> int:
    """The smallest whole number that is not below `value`, forgiving floating-point noise.

    >>> ceil(10 * 1.1)
    11
    """
    return math.ceil(value - _NOISE * max(1.0, abs(value)))


def floor(value: float) -> int:
    """The largest whole number that is not above `value`, forgiving floating-point noise.

    >>> floor(100 * 0.29)
    29
    """
    return math.floor(value + _NOISE * max(1.0, abs(value)))
