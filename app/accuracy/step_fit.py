"""Fit of the constants of a step to recorded loads: Gauss-Newton on logarithms, robust, drawn towards priors.

Nothing of the step model is written a second time: every prediction is the domain's own at changed constants.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pydantic import ValidationError

from app.accuracy.load_records import LoadRecord
from app.accuracy.performance import Figures, at_constants, figures_of, is_faster_than_possible, recorded_performance
from app.accuracy.step_priors import ConstantPrior, FoldConstant, Stage, StepPriors
from app.domain.calibration_fit import solve
from app.domain.catalog import Catalog
from app.domain.errors import PlannerError
from app.domain.performance import Performance
from app.domain.performance_estimate import Quantity
from app.domain.step_class import StepClass
from app.domain.step_constants import Effect, StepConstant, StepModel

NO_EFFECT = (None, "served", "burst", "other")
"""Values of a property that are the base itself: current versions, requests over HTTP, and accelerators that have nothing in common."""
SPREADS = {"tpot": 0.1, "ttft": 0.22, "throughput": 0.15}
"""Standard deviation of ln(measured / predicted) of a row that the model explains; those of the prototype's residuals, rounded."""
SHARES = {"tpot": 1.0, "ttft": 0.45, "throughput": 1.0}
"""Weight of a quantity: waiting depends on what records do not say, so that TTFT says less than TPOT."""
TURNS = {"tpot": 0.12, "ttft": 0.25, "throughput": 0.2}
"""Residuals above this count by their size and no longer by their square (pseudo-Huber loss)."""
ROWS_OF_A_SERIES = 1.8
"""Rows of a series err together: n of them count as 1.8 sqrt(n) independent ones."""
DIFFERENCE = 0.02
"""Change of ln(constant) for the slopes: well above the tolerance of the fixed points."""
LARGEST_STEP = 0.5
MOST_STEPS = 15
MOST_DAMPINGS = 8
SMALL_GAIN = 1e-3
LEAST_EFFECT = 0.002
"""Logarithms of effects below this are written as no effect."""


Fitted = dict[tuple[str, tuple[tuple[str, str], ...]], float]
"""Logarithms by constant and condition."""


class Residual(NamedTuple):
    """One recorded figure."""

    quantity: Quantity
    recorded: float
    weight: float


@dataclass(frozen=True)
class FitRow:
    """A recorded load with what its prediction needs."""

    record: LoadRecord
    performance: Performance
    residuals: tuple[Residual, ...]


class Parameter(NamedTuple):
    """ln(base) of a constant, or the logarithm of one of its effects."""

    constant: str
    condition: tuple[tuple[str, str], ...]
    """What a class has where it holds; empty for the base."""
    mean: float
    spread: float

    def holds(self, found: StepClass) -> bool:
        """Whether the class has all of it."""
        return all(getattr(found, name) == value for name, value in self.condition)


def fit_rows(catalog: Catalog, records: Iterable[LoadRecord]) -> list[FitRow]:
    """Records that the planner answers, each figure weighted by how many its series has."""
    found: list[tuple[LoadRecord, Performance, Figures]] = []
    for record in records:
        try:
            performance = recorded_performance(catalog, record)
            if not is_faster_than_possible(record, performance):
                found.append((record, performance, figures_of(record, performance)))
        except (PlannerError, ValidationError):
            continue
    series = Counter(key for record, _, figures in found for key in _series(record, figures))
    rows = []
    for record, performance, figures in found:
        residuals = []
        for key in _series(record, figures):
            quantity = key[-1]
            weight = ROWS_OF_A_SERIES * SHARES[quantity] / SPREADS[quantity] ** 2 / math.sqrt(series[key])
            residuals.append(Residual(quantity, figures[quantity].recorded, weight))
        rows.append(FitRow(record, performance, tuple(residuals)))
    return [row for row in rows if row.residuals]


def _series(record: LoadRecord, figures: Figures) -> list[tuple[str, str, Quantity]]:
    """The series of each figure of a record that is fitted: TTFT of published figures depends on clients, except for single requests."""
    told = record.source == "serving points" or record.concurrency == 1
    return [
        (record.series, str(record.deployment["weights"]), quantity)
        for quantity in figures
        if quantity in SPREADS and (told or quantity != "ttft")
    ]


def fit_stage(rows: Sequence[FitRow], priors: StepPriors, start: StepModel, stage: Stage, known: Fitted) -> Fitted:
    """What the rows of a stage say about parameters that are not known; from the priors and from nothing else.

    First serving points; then, with all that they say held, throughput cases for what they alone have. `start` gives limits and kernels.
    """
    own = [row for row in rows if (row.record.source == "serving points") == (stage == "serving")]
    parameters = [each for each in _parameters(priors, stage, own) if (each.constant, each.condition) not in known]
    values = _gauss_newton(own, priors.applied_to(start), parameters, known)
    return known | {(each.constant, each.condition): value for each, value in zip(parameters, values, strict=True)}


def fitted_constants(fitted: Fitted, priors: StepPriors, start: StepModel) -> tuple[FoldConstant, ...]:
    """The constants as they are written: four digits, effects that are none left out."""
    names = {each.name for each in priors.constants}
    return tuple(
        FoldConstant(name=each.name, base=_rounded(each.base), effects=_rounded_effects(each.effects))
        for each in _with_values(priors.applied_to(start), fitted).constants
        if each.name in names
    )


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _rounded_effects(effects: Iterable[Effect]) -> tuple[Effect, ...]:
    told = (each for each in effects if abs(math.log(each.factor_ratio)) >= LEAST_EFFECT)
    return tuple(each.model_copy(update={"factor_ratio": _rounded(each.factor_ratio)}) for each in told)


def _parameters(priors: StepPriors, stage: Stage, rows: Sequence[FitRow]) -> list[Parameter]:
    """What the rows of a stage can say something about."""
    classes = sorted({row.performance.step_class for row in rows}, key=str)
    found = []
    for prior in priors.constants:
        if prior.stage == "serving" or stage == "throughput":
            found.append(Parameter(prior.name, (), math.log(prior.centre), prior.spread))
            found += _effects(prior, stage, classes)
    return found


def _effects(prior: ConstantPrior, stage: Stage, classes: Iterable[StepClass]) -> list[Parameter]:
    found: dict[tuple[tuple[str, str], ...], Parameter] = {}
    for effect in prior.effects:
        if effect.stage == "throughput" and stage == "serving":
            continue
        for each in classes:
            values = [getattr(each, name) for name in effect.by]
            if not any(value in NO_EFFECT for value in values):
                condition = tuple(zip(effect.by, values, strict=True))
                found.setdefault(condition, Parameter(prior.name, condition, 0.0, effect.spread))
    return list(found.values())


def _with_values(model: StepModel, values: Fitted) -> StepModel:
    constants = []
    for each in model.constants:
        own = {condition: value for (name, condition), value in values.items() if name == each.name}
        if () in own:
            base = math.exp(own.pop(()))
            each = each.model_copy(update={"base": base, "effects": tuple(_effect(*pair) for pair in own.items())})
        constants.append(each)
    return model.model_copy(update={"constants": tuple(constants)})


def _effect(condition: tuple[tuple[str, str], ...], value: float) -> Effect:
    return Effect.model_validate({**dict(condition), "factor_ratio": math.exp(value)})


def _logs(rows: Sequence[FitRow], model: StepModel) -> list[list[float]]:
    """ln(predicted / recorded) of every figure."""
    found = []
    for row in rows:
        figures = figures_of(row.record, at_constants(row.performance, model))
        found.append([math.log(figures[each.quantity].predicted / each.recorded) for each in row.residuals])
    return found


def _loss(rows: Sequence[FitRow], logs: Sequence[Sequence[float]], parameters: Sequence[Parameter], values: Sequence[float]) -> float:
    """Sum of weight x pseudo-Huber(ln ratio) + sum of ((value - mean) / spread)^2 / 2."""
    total = sum(((value - each.mean) / each.spread) ** 2 / 2 for each, value in zip(parameters, values, strict=True))
    for row, own in zip(rows, logs, strict=True):
        for residual, log in zip(row.residuals, own, strict=True):
            turn = TURNS[residual.quantity]
            total += residual.weight * turn**2 * (math.hypot(1, log / turn) - 1)
    return total


def _gauss_newton(rows: Sequence[FitRow], model: StepModel, parameters: Sequence[Parameter], known: Fitted) -> list[float]:
    """Values of the parameters with the least loss, from their means on (Levenberg's damping)."""
    values, damping = [each.mean for each in parameters], 1e-3

    def at(candidate: Sequence[float]) -> StepModel:
        named = {(each.constant, each.condition): value for each, value in zip(parameters, candidate, strict=True)}
        return _with_values(model, known | named)

    logs = _logs(rows, at(values))
    loss = _loss(rows, logs, parameters, values)
    for _ in range(MOST_STEPS):
        matrix, right = _normal_equations(rows, at(values), logs, parameters, values)
        for _ in range(MOST_DAMPINGS):
            damped = [[cell * (1 + damping) if i == j else cell for j, cell in enumerate(line)] for i, line in enumerate(matrix)]
            change = solve(damped, right)
            after = [value - max(-LARGEST_STEP, min(LARGEST_STEP, each)) for value, each in zip(values, change, strict=True)]
            logs_after = _logs(rows, at(after))
            loss_after = _loss(rows, logs_after, parameters, after)
            if loss_after < loss:
                break
            damping *= 8
        else:
            return values
        gain, values, logs, loss, damping = loss - loss_after, after, logs_after, loss_after, max(damping / 8, 1e-6)
        if gain < SMALL_GAIN * loss:
            break
    return values


def _normal_equations(
    rows: Sequence[FitRow], model: StepModel, logs: Sequence[Sequence[float]], parameters: Sequence[Parameter], values: Sequence[float]
) -> tuple[list[list[float]], list[float]]:
    """(J'WJ + prior, J'Wr + prior): slopes by differences in the constants, summed by class, where all rows have the same effects."""
    names = list(dict.fromkeys(each.constant for each in parameters))
    moved = [_logs(rows, _moved(model, name)) for name in names]
    inner: dict[StepClass, tuple[list[list[float]], list[float]]] = defaultdict(
        lambda: ([[0.0] * len(names) for _ in names], [0.0] * len(names))
    )
    for number, row in enumerate(rows):
        square, side = inner[row.performance.step_class]
        for place, residual in enumerate(row.residuals):
            log = logs[number][place]
            weight = residual.weight / math.hypot(1, log / TURNS[residual.quantity])
            slopes = [(each[number][place] - log) / DIFFERENCE for each in moved]
            felt = [(index, slope) for index, slope in enumerate(slopes) if slope]
            for i, slope in felt:
                side[i] += weight * log * slope
                line = square[i]
                for j, other in felt:
                    line[j] += weight * slope * other
    size, index_of = len(parameters), {name: index for index, name in enumerate(names)}
    matrix, right = [[0.0] * size for _ in range(size)], [0.0] * size
    for found, (square, side) in inner.items():
        active = [(number, index_of[each.constant]) for number, each in enumerate(parameters) if each.holds(found)]
        for number, i in active:
            right[number] += side[i]
            for other, j in active:
                matrix[number][other] += square[i][j]
    for number, (each, value) in enumerate(zip(parameters, values, strict=True)):
        matrix[number][number] += 1 / each.spread**2
        right[number] += (value - each.mean) / each.spread**2
    return matrix, right


def _moved(model: StepModel, name: str) -> StepModel:
    def shifted(each: StepConstant) -> StepConstant:
        return each.model_copy(update={"base": each.base * math.exp(DIFFERENCE)}) if each.name == name else each

    return model.model_copy(update={"constants": tuple(map(shifted, model.constants))})
