"""Whole numbers out of products of decimals, without the last binary digit deciding."""

import math

_NOISE = 1e-9
"""Relative size of a rounding error that must not turn 11.000000000000002 replicas into 12."""
_MOST_NOISE = 1e-3
"""Its largest size: a count of bytes that is whole stays what it is, and doubles up to 1e12 err by less."""


def _noise(value: float) -> float:
    return min(_NOISE * max(1.0, abs(value)), _MOST_NOISE)


def ceil(value: float) -> int:
    """The smallest whole number that is not below `value`, forgiving floating-point noise.

    >>> ceil(10 * 1.1)
    11
    """
    return math.ceil(value - _noise(value))


def floor(value: float) -> int:
    """The largest whole number that is not above `value`, forgiving floating-point noise.

    >>> floor(100 * 0.29)
    29
    """
    return math.floor(value + _noise(value))
