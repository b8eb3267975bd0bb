"""Fits a few constants of the step-time model to one measured sweep: bounded least squares on logarithms around what was known before."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from app.domain.load_state import LoadState
from app.domain.performance import Performance
from app.domain.step_class import Kind
from app.domain.step_constants import ConstantName, Constants

Quantity = Literal["tpot", "ttft", "throughput"]


class Movable(NamedTuple):
    """A constant that a sweep may move."""

    name: ConstantName
    spread_ln: float
    """Standard deviation of ln(constant of a set-up / constant of its class) before anything is measured."""
    most_factor: float
    """It moves by at most this factor: beyond it something else than the constant is wrong."""


DEVICE = (0.3, 4.0)
"""Spread and most of what the accelerator reaches: effects of engines, accelerators and weights in
`app/catalog/steps/step_model.yaml` are factors of 0.7 to 1.4."""
HOST = (0.7, 64.0)
"""The same of time on the host: servers, proxies and samplers stand around the engine, and engines alone differ by a factor of 4."""
HOST_TIMES = (Movable("sequence_s", *HOST), Movable("request_s", *HOST), Movable("residual_iterations", *HOST))
MOVABLE: Mapping[Kind, tuple[Movable, ...]] = {
    "dense": (Movable("bandwidth_ratio", *DEVICE), Movable("dense_peak_ratio", *DEVICE), Movable("kernel_s", *DEVICE), *HOST_TIMES),
    "moe": (Movable("expert_bandwidth_ratio", *DEVICE), Movable("expert_peak_ratio", *DEVICE), Movable("kernel_s", *DEVICE), *HOST_TIMES),
}
NOISE_LN: Mapping[Quantity, float] = {"tpot": 0.04, "throughput": 0.04, "ttft": 0.12}
"""Repeated runs of one set-up differ by about this much (standard deviation of the logarithm)."""
OUTLIER_SIGMAS = 3.0
"""From this many standard deviations on a row pulls no stronger than a row there (pseudo-Huber weights)."""
MOST_ROUNDS = 20
MOST_DAMPING = 1e6
TOLERANCE_LN = 1e-4
DIFFERENCE_LN = 1e-3


@dataclass(frozen=True)
class Measurement:
    """One row of a sweep: the deployment at its lengths and load, and what was measured."""

    performance: Performance
    concurrency: float
    measured: Mapping[Quantity, float]
    """TPOT and TTFT [s], output rate [tokens/s]; TPOT or, where it is not known, the rate takes part in the fit, and TTFT."""

    def predicted(self, constants: Constants) -> dict[Quantity, float]:
        """The same quantities by the model with these constants."""
        return quantities(self.performance.with_constants(constants).closed(self.concurrency), self.performance.lengths.output_tokens)


def quantities(state: LoadState, output_tokens: float) -> dict[Quantity, float]:
    """What a sweep measures of a steady state: TPOT and TTFT [s], output rate [tokens/s]."""
    return {"tpot": state.tpot_s, "ttft": state.waiting.ttft_s, "throughput": state.request_rps * output_tokens}


class Moved(NamedTuple):
    """A constant after the fit."""

    name: ConstantName
    factor: float
    """Value for the set-up / value of its class."""
    left_ratio: float
    """Standard deviation of ln(factor) that is left / before: 1 where the rows say nothing about the constant."""
    at_bound: bool


def fit_constants(
    rows: Sequence[Measurement], movable: Sequence[Movable], constants_at: Callable[[Mapping[ConstantName, float]], Constants]
) -> tuple[Moved, ...]:
    """Factors on the movable constants that explain the rows.

    Minimises sum over rows and quantities of rho(ln(measured / predicted) / noise) + sum (ln factor / spread)^2, rho the pseudo-Huber
    function, |ln factor| <= ln most, by damped Gauss-Newton steps. `constants_at` gives the constants with factors applied.
    Form: ridge regression towards the class (https://doi.org/10.1080/00401706.1970.10488634), robust weights
    (https://doi.org/10.1214/aoms/1177703732). With one row the constant that it depends on most moves most. Rows that lie far off may be
    outliers or right: the fit also starts from where plain squares lead, and the better of both counts.
    """
    names = [each.name for each in movable]

    def residuals(at: Sequence[float]) -> list[float]:
        constants = constants_at({name: math.exp(value) for name, value in zip(names, at, strict=True)})
        found = []
        for row in rows:
            predicted = row.predicted(constants)
            found += [math.log(row.measured[name] / predicted[name]) / NOISE_LN[name] for name in fitted_quantities(row.measured)]
        return found

    best = _descend(residuals, movable, [0.0] * len(movable), OUTLIER_SIGMAS)
    if any(abs(value) > OUTLIER_SIGMAS for value in best.residuals):
        squares = _descend(residuals, movable, [0.0] * len(movable), math.inf)
        best = min(best, _descend(residuals, movable, squares.at, OUTLIER_SIGMAS), key=lambda each: each.cost)
    found = []
    for index, (each, value) in enumerate(zip(movable, best.at, strict=True)):
        variance = solve(best.normal, [float(index == other) for other in range(len(movable))])[index]
        at_bound = abs(value) > math.log(each.most_factor) - TOLERANCE_LN
        found.append(Moved(each.name, math.exp(value), min(1.0, math.sqrt(variance) / each.spread_ln), at_bound))
    return tuple(found)


class _Minimum(NamedTuple):
    """Where a descent ended."""

    at: Sequence[float]
    residuals: Sequence[float]
    cost: float
    normal: Sequence[Sequence[float]]


def _descend(
    residuals: Callable[[Sequence[float]], list[float]], movable: Sequence[Movable], start: Sequence[float], outlier: float
) -> _Minimum:
    """Damped Gauss-Newton steps within the bounds until nothing moves (Levenberg, https://doi.org/10.1090/qam/10666)."""
    limits, spreads = [math.log(each.most_factor) for each in movable], [each.spread_ln for each in movable]

    def cost(found: Sequence[float], at: Sequence[float]) -> float:
        return sum(_huber(value, outlier) for value in found) + sum(
            (value / spread) ** 2 for value, spread in zip(at, spreads, strict=True)
        )

    at, now, damping, moving = list(start), residuals(start), 1e-3, True
    least = cost(now, at)
    normal: list[list[float]] = []
    for _ in range(MOST_ROUNDS):
        normal, pull = _normal_equations(_slopes(residuals, at, now), now, at, spreads, outlier)
        moving = False
        while damping < MOST_DAMPING:
            damped = [[value * (1 + damping * (i == j)) for j, value in enumerate(row)] for i, row in enumerate(normal)]
            step = solve(damped, pull)
            trial = [min(most, max(-most, value + change)) for value, change, most in zip(at, step, limits, strict=True)]
            there = residuals(trial)
            if (less := cost(there, trial)) < least:
                moving = max(abs(one - other) for one, other in zip(trial, at, strict=True)) > TOLERANCE_LN
                at, now, least, damping = trial, there, less, damping / 10
                break
            damping *= 10
        if not moving:
            break
    return _Minimum(at, now, least, normal)


def fitted_quantities(measured: Mapping[Quantity, float]) -> list[Quantity]:
    """What of a row takes part in the fit: the rate follows from TPOT and TTFT where they are known."""
    wanted: tuple[Quantity, ...] = ("tpot", "ttft") if "tpot" in measured else ("throughput", "ttft")
    return [name for name in wanted if name in measured]


def _huber(value: float, outlier: float) -> float:
    return value**2 if math.isinf(outlier) else 2 * outlier**2 * (math.sqrt(1 + (value / outlier) ** 2) - 1)


def _slopes(residuals: Callable[[Sequence[float]], list[float]], at: Sequence[float], now: Sequence[float]) -> list[list[float]]:
    """d residual / d ln factor by constant, from a small step up."""
    found = []
    for index in range(len(at)):
        beside = [value + DIFFERENCE_LN * (index == other) for other, value in enumerate(at)]
        found.append([(there - here) / DIFFERENCE_LN for there, here in zip(residuals(beside), now, strict=True)])
    return found


def _normal_equations(
    slopes: Sequence[Sequence[float]], now: Sequence[float], at: Sequence[float], spreads: Sequence[float], outlier: float
) -> tuple[list[list[float]], list[float]]:
    """(J' W J + 1 / spread^2, -(J' W r + x / spread^2)), W the weights of the pseudo-Huber function."""
    weights = [1 / math.sqrt(1 + (value / outlier) ** 2) for value in now]
    size = range(len(at))
    normal = [
        [
            math.fsum(weight * one * other for weight, one, other in zip(weights, slopes[i], slopes[j], strict=True))
            + (spreads[i] ** -2 if i == j else 0.0)
            for j in size
        ]
        for i in size
    ]
    pull = [
        -math.fsum(weight * slope * value for weight, slope, value in zip(weights, slopes[i], now, strict=True)) - at[i] / spreads[i] ** 2
        for i in size
    ]
    return normal, pull


def solve(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """x of matrix x = right for a symmetric positive definite matrix of a few rows, by Cholesky's factors.

    >>> solve([[4.0, 2.0], [2.0, 5.0]], [8.0, 12.0])
    [1.0, 2.0]
    """
    size = len(right)
    lower = [[0.0] * size for _ in range(size)]
    for i in range(size):
        for j in range(i + 1):
            rest = matrix[i][j] - sum(lower[i][k] * lower[j][k] for k in range(j))
            lower[i][j] = math.sqrt(rest) if i == j else rest / lower[j][j]
    half: list[float] = []
    for i in range(size):
        half.append((right[i] - sum(lower[i][k] * half[k] for k in range(i))) / lower[i][i])
    found = [0.0] * size
    for i in reversed(range(size)):
        found[i] = (half[i] - sum(lower[k][i] * found[k] for k in range(i + 1, size))) / lower[i][i]
    return found
