"""How far estimates are from what was recorded: errors, their summary against a goal, and the table of verdicts."""

import math
from collections.abc import Iterable, Sequence
from statistics import median

from app.domain.value import Value


class Goal(Value):
    """What the errors of one quantity are asked to stay within."""

    median_error_ratio: float
    """Largest median error."""
    bound_ratio: float
    """Error within which `share_ratio` of the cases are asked to stay."""
    share_ratio: float
    """Share of the cases asked to stay within the bound."""


class ErrorSummary(Value):
    """The errors of one quantity over several cases."""

    num_cases: int
    """Cases with both a recorded and an estimated figure."""
    median_error_ratio: float
    """Median of the absolute relative errors."""
    p90_error_ratio: float
    """90th percentile of the absolute relative errors (nearest rank: an error that occurred)."""
    worst_error_ratio: float
    """Largest absolute relative error."""
    within_bound_ratio: float | None
    """Share of the cases within the goal's bound; None without a goal."""
    goal_met: bool | None
    """Whether the median and the share reach the goal; None without a goal."""


def relative_error_ratio(estimated: float, recorded: float) -> float:
    """(estimated - recorded) / recorded; recorded is above 0.

    >>> relative_error_ratio(90, 100)
    -0.1
    """
    return (estimated - recorded) / recorded


def percentile_nearest_rank(values: Sequence[float], share_ratio: float) -> float:
    """The smallest of the values that at least the share of them does not exceed; values is not empty.

    >>> percentile_nearest_rank([4, 1, 3, 2], 0.9)
    4
    """
    return sorted(values)[max(0, math.ceil(share_ratio * len(values)) - 1)]


def summarise_errors(errors: Iterable[float], goal: Goal | None = None) -> ErrorSummary | None:
    """Summary of signed relative errors by their absolute size; None when there are none."""
    sizes = [abs(error) for error in errors]
    if not sizes:
        return None
    middle, within = median(sizes), None
    if goal is not None:
        within = sum(size <= goal.bound_ratio for size in sizes) / len(sizes)
    return ErrorSummary(
        num_cases=len(sizes),
        median_error_ratio=middle,
        p90_error_ratio=percentile_nearest_rank(sizes, 0.9),
        worst_error_ratio=max(sizes),
        within_bound_ratio=within,
        goal_met=None if goal is None or within is None else middle <= goal.median_error_ratio and within >= goal.share_ratio,
    )


class Coverage(Value):
    """How often a stated range held the recorded figure."""

    num_cases: int
    """Cases with a range and a recorded figure."""
    num_below: int
    """Recorded figures below the range."""
    num_above: int
    """Recorded figures above the range."""
    covered_ratio: float | None
    """Share of the cases whose range held the recorded figure; None without cases."""
    median_width_ratio: float | None
    """Median of (high - low) / recorded: how much the range leaves open; None without cases."""


def coverage_of(ranges: Iterable[tuple[float, float, float]]) -> Coverage:
    """Coverage of (low, recorded, high); recorded is above 0.

    >>> coverage_of([(1, 2, 3), (1, 4, 3)]).covered_ratio
    0.5
    """
    cases = list(ranges)
    below = sum(recorded < low for low, recorded, _ in cases)
    above = sum(recorded > high for _, recorded, high in cases)
    return Coverage(
        num_cases=len(cases),
        num_below=below,
        num_above=above,
        covered_ratio=(len(cases) - below - above) / len(cases) if cases else None,
        median_width_ratio=median((high - low) / recorded for low, recorded, high in cases) if cases else None,
    )
