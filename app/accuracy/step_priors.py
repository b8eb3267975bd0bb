"""What the constants of a step are expected to be before anything is fitted, and what fits without some of the rows gave."""

import hashlib
import re
from typing import Annotated, Literal

from pydantic import Field

from app.accuracy.load_records import LoadRecord
from app.domain.step_constants import ConstantName, Effect, StepModel
from app.domain.value import Given

Positive = Annotated[float, Field(gt=0, le=1e9)]
Dimension = Literal["engine", "gpu_class", "weights", "dense_weights", "kind", "load", "era"]
Stage = Literal["serving", "throughput"]
"""serving: fitted to closed loops of current engines; throughput: fitted after that to published figures, everything else held."""


NUM_PARTS = 5
"""Parts that the series of throughput cases are cut into."""


class EffectPrior(Given):
    """A factor for each value that some properties of a class take together; its logarithm is expected around 0."""

    by: Annotated[tuple[Dimension, ...], Field(min_length=1)]
    """Properties."""
    spread: Positive
    """Standard deviation of its logarithm."""
    stage: Stage = "serving"
    """Rows that it is fitted to; where the serving points do not have a value, throughput figures."""


class ConstantPrior(Given):
    """One constant before the fit: ln(base) is expected around ln(centre)."""

    name: ConstantName
    """Constant."""
    centre: Positive
    """Expected value."""
    spread: Positive
    """Standard deviation of its logarithm."""
    stage: Stage = "serving"
    """Rows that it is fitted to."""
    effects: tuple[EffectPrior, ...] = ()
    """What it depends on."""


class StepPriors(Given):
    """Priors of all constants that are fitted."""

    origin: str
    """Where the centres come from, and what they have seen."""
    constants: tuple[ConstantPrior, ...]
    """One entry for each constant that is fitted."""

    def applied_to(self, model: StepModel) -> StepModel:
        """The model with nothing fitted: centres, no effects."""
        centres = {each.name: each.centre for each in self.constants}
        return model.model_copy(
            update={
                "constants": tuple(
                    each.model_copy(update={"base": centres[each.name], "effects": ()}) if each.name in centres else each
                    for each in model.constants
                )
            }
        )


class FoldConstant(Given):
    """A constant as fitted without the rows of a fold."""

    name: ConstantName
    """Constant."""
    base: Positive
    """Value without any effect."""
    effects: tuple[Effect, ...] = ()
    """Factors."""


class StepFold(Given):
    """Constants that have not seen any row of a fold."""

    leaves_out: str
    """A family of models, or a part of the series of throughput cases: see `fold_of`."""
    origin: str
    """How they were made."""
    constants: tuple[FoldConstant, ...]
    """What differs from the constants of the catalog."""

    def applied_to(self, model: StepModel) -> StepModel:
        """The model of the catalog with these constants in place of its own."""
        fitted = {each.name: each for each in self.constants}
        constants = tuple(
            each.model_copy(update={"base": fitted[each.name].base, "effects": fitted[each.name].effects}) if each.name in fitted else each
            for each in model.constants
        )
        return model.model_copy(update={"constants": constants})


def family_of(model: str) -> str:
    """The family of a model: what its slug begins with up to the first digit or hyphen; all Llama models are one.

    >>> family_of("llama-3.1-70b"), family_of("qwen3-32b")
    ('llama', 'qwen')
    """
    return re.split(r"[-\d.]", model, maxsplit=1)[0]


def fold_of(record: LoadRecord) -> str:
    """The fold that predicts a record: its family of models; of throughput cases, where Llama models are half of the rows and of some
    engine versions all, one of NUM_PARTS parts of their series (model, accelerator, engine), by SHA-256.
    """
    if record.source == "serving points":
        return family_of(record.model)
    digest = hashlib.sha256(f"{record.model}|{record.gpu}|{record.deployment['engine']}".encode()).digest()
    return f"part-{digest[0] % NUM_PARTS}"


def is_left_out(record: LoadRecord, fold: str) -> bool:
    """Whether a fold has not seen a record: all rows of its family, or of its part."""
    return fold in (family_of(record.model), fold_of(record))
