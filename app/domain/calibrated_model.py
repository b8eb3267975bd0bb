"""The step-time model with constants that one measured sweep has moved."""

from collections.abc import Mapping
from typing import Any, Protocol
from uuid import UUID

from app.domain.step_class import StepClass
from app.domain.step_constants import Band, ConstantName, Constants, Effect, StepConstant, StepModel, resolve


class MeasuredFactors(Protocol):
    """What the model needs to know of a calibration."""

    @property
    def id(self) -> UUID:
        """Identifies it."""
        ...

    @property
    def num_rows(self) -> int:
        """Measured points."""
        ...

    @property
    def bands(self) -> tuple[Band, ...]:
        """Ranges of the set-up."""
        ...


class CalibratedModel(StepModel):
    """Constants of the class times factors of one set-up."""

    calibration: UUID
    """Where the factors come from."""
    moved: frozenset[str]
    """Constants that have a factor."""
    num_own_rows: int | None
    """Measured points of the very set-up; None where the factors were taken over from another one."""

    def rows_of(self, found: StepClass) -> int:
        """Measured points of the set-up itself where there are some."""
        return super().rows_of(found) if self.num_own_rows is None else self.num_own_rows

    def source_of(self, constant: str) -> str:
        """Where the value of a constant comes from."""
        return f"calibration {self.calibration}" if constant in self.moved else self.sources[0]


def with_factors(model: StepModel, factors: Mapping[ConstantName, float]) -> tuple[StepConstant, ...]:
    """The constants of the model, each times its factor, below their physical limits still."""

    def moved(constant: StepConstant) -> StepConstant:
        effect = Effect.model_construct(factor_ratio=factors[constant.name])
        return StepConstant.model_construct(**{**_fields(constant), "effects": (*constant.effects, effect)})

    return tuple(moved(each) if each.name in factors else each for each in model.constants)


def calibrated_model(
    model: StepModel, factors: Mapping[ConstantName, float], *, calibration: MeasuredFactors, own: bool
) -> CalibratedModel:
    """The model with the factors; for the set-up's own estimates with the range that its rows left."""
    return CalibratedModel.model_construct(
        **{
            **_fields(model),
            "constants": with_factors(model, factors),
            "bands": calibration.bands if own else model.bands,
            "calibration": calibration.id,
            "moved": frozenset(factors),
            "num_own_rows": calibration.num_rows if own else None,
        }
    )


def moved_constants(model: StepModel, factors: Mapping[ConstantName, float], found: StepClass) -> Constants:
    """Constants of a class with factors: those that a model with the factors has, without making one."""
    moved = {each.name: resolve(each, found) for each in with_factors(model, factors) if each.name in factors}
    return model.constants_of(found)._replace(**moved)


def _fields(value: StepModel | StepConstant) -> dict[str, Any]:
    return {name: getattr(value, name) for name in type(value).model_fields}
