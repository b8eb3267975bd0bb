"""Where a number comes from: the working, the assumptions and the versions that every answer carries."""

from dataclasses import dataclass
from typing import Literal

from app.domain.value import Value

Basis = Literal["exact", "datasheet", "measured", "calibrated", "assumed", "bound"]
"""exact: arithmetic on inputs; datasheet: a vendor figure; measured: given or recorded measurement; calibrated: fitted constant;
assumed: a stated default; bound: a physical limit that reality stays above (times) or below (rates)."""

_FROM_SURE_TO_WEAK: tuple[Basis, ...] = ("exact", "datasheet", "measured", "calibrated", "assumed", "bound")


def weakest(*bases: Basis) -> Basis:
    """The basis of a figure that is computed from figures of these bases: the least sure of them."""
    return max(bases, key=_FROM_SURE_TO_WEAK.index)


@dataclass(slots=True, unsafe_hash=True)
class Step:
    """One line of the working, enough to redo it by hand."""

    # No Value and not frozen: an answer writes dozens of steps, and checking or freezing each costs more than computing it.
    __pydantic_config__ = Value.model_config

    name: str
    """What is computed, the name of the answer's field where there is one."""
    formula: str
    """The formula in symbols."""
    substituted: str
    """The same formula with the numbers in it."""
    value: int | float
    """The result."""
    unit: str
    """Unit of the result, in base units."""
    basis: Basis
    """How the number is known."""
    source: str
    """Where the formula or the figure comes from."""


def step(name: str, formula: str, substituted: str, value: float, unit: str, source: str, basis: Basis = "exact") -> Step:
    """One line of working, written in the order in which it is read."""
    return Step(name, formula, substituted, value, unit, basis, source)


@dataclass(slots=True, unsafe_hash=True)
class Note:
    """A sentence with a stable code: an assumption that was made, or a warning. A plain record, as steps are."""

    __pydantic_config__ = Value.model_config

    code: str
    """Stable machine-readable code."""
    message: str
    """The sentence for people."""


class Versions(Value):
    """What computed the answer."""

    planner: str
    """Version of Inferplan."""
    catalog: str
    """Version of the catalog snapshot: changes with every change of an entry."""


class Answer(Value):
    """What every calculation returns beside its own figures."""

    summary: str
    """One or two sentences for people, human units, ready to post in a chat."""
    working: list[Step]
    """The steps of the calculation in order."""
    assumptions: list[Note]
    """Every default that was used because the request did not say."""
    warnings: list[Note]
    """What the reader should know before relying on the answer."""
    versions: Versions
    """Versions of planner and catalog."""
