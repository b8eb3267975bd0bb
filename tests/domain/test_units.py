"""Every numeric field of the domain's and the requests' types says its unit."""

import importlib
import pkgutil
import types
import typing
from collections.abc import Iterator, Mapping, Sequence

import pytest
from pydantic import BaseModel

import app.domain
import app.services.cost_request
import app.services.recommendation
import app.services.requests
from app.domain.hardware import PeakFlops
from app.domain.units import NAMED_COUNTS, SHAPE_SUFFIXES, UNIT_PREFIXES, UNIT_SUFFIXES, exact, gigabytes, plain, seconds
from app.domain.value import Value

UNIT_ELSEWHERE = {
    ("Constraint", "demand"),
    ("Constraint", "per_replica"),
    ("Step", "value"),  # its unit beside it
    ("Evidence", "observed"),  # the metric's name beside it
    ("Evidence", "threshold"),
    ("Evidence", "baseline"),
    ("Scrapes", "seconds_between"),  # the unit comes first
    ("Comparison", "number"),
    ("DiagnoseRequest", "thresholds"),
    ("DiagnosisProfile", "thresholds"),
    ("ProfileInput", "thresholds"),
    ("Difference", "change"),  # relative
    ("TokenLengths", "mean"),  # always the value of a field called *_tokens or tokens_per_*
    ("TokenLengths", "p50"),
    ("TokenLengths", "p95"),
    ("TokenLengths", "p99"),
    *(("PeakFlops", number_format) for number_format in PeakFlops.model_fields),  # always the value of peak_flops_per_s
    ("Gpu", "release_year"),
    ("StepConstant", "base"),  # the constant's name beside it
    ("StepConstant", "low"),
    ("StepConstant", "high"),
    ("StepConstant", "most"),
    ("Estimate", "value"),  # always the value of a field that names its unit
    ("Estimate", "low"),
    ("Estimate", "high"),
    ("RecordedAnswer", "status"),
    ("Problem", "status"),
    ("FieldProblem", "value"),  # the field beside it
    ("AppliedCalibration", "factors"),  # ratios, by constant
    ("Span", "low"),  # always the value of a field that names its unit
    ("Span", "high"),
    ("CalibratedConstant", "before"),  # the constant's name beside it
    ("CalibratedConstant", "after"),
    ("RowError", "before"),  # the quantity beside it
    ("RowError", "after"),
    ("RowError", "measured"),
    ("CalibrationRow", "point"),  # a number in an order
    *(("SimulatedFigure", name) for name in ("value", "low", "high")),  # always the value of a field that names its unit
    ("AlertRule", "threshold"),  # the metric in its expression
    ("Panel", "limit"),  # its unit beside it
    ("OptimisationStep", "order"),  # a number in an order
    ("Compared", "measured"),  # the quantity beside it
    ("Compared", "predicted"),
    ("MeasuredLevel", "power"),  # requests/s^2
    ("RecommendRequest", "prices"),  # USD/hour, by accelerator
}
IDENTITIES = ("revision", "version", "capability", "seeds", "_index")
"""Numbers that say which one, and count nothing."""


def value_types() -> Iterator[type]:
    """Values, and the plain records that answers hold."""
    for module in pkgutil.iter_modules(app.domain.__path__):
        members = vars(importlib.import_module(f"app.domain.{module.name}")).values()
        yield from (kind for kind in members if isinstance(kind, type) and hasattr(kind, "__pydantic_config__"))
    pending = list(Value.__subclasses__())
    while pending:
        kind = pending.pop()
        pending += kind.__subclasses__()
        if kind.__module__.startswith(("app.domain.", "app.services.")):
            yield kind


def fields_of(kind: type) -> Mapping[str, object]:
    if issubclass(kind, BaseModel):
        return {name: field.annotation for name, field in kind.model_fields.items()}
    return typing.get_type_hints(kind)


def holds_a_number(annotation: object) -> bool:
    origin = typing.get_origin(annotation)
    if origin in (typing.Annotated, typing.Union, types.UnionType, list, tuple, dict, Sequence, Mapping):
        return any(holds_a_number(part) for part in typing.get_args(annotation))
    return annotation in (int, float)


def is_named(kind: type, name: str) -> bool:
    return (
        name.endswith((*UNIT_SUFFIXES, *SHAPE_SUFFIXES, *IDENTITIES))
        or name.startswith(UNIT_PREFIXES)
        or name in NAMED_COUNTS
        or (kind.__name__, name) in UNIT_ELSEWHERE
    )


def test_every_numeric_field_names_its_unit() -> None:
    unnamed = sorted(
        f"{kind.__module__}.{kind.__name__}.{name}"
        for kind in set(value_types())
        for name, annotation in fields_of(kind).items()
        if holds_a_number(annotation) and not is_named(kind, name)
    )
    assert unnamed == []


def test_the_walk_finds_types_and_numbers() -> None:
    names = {kind.__name__ for kind in value_types()}
    assert {"Deployment", "Gpu", "MemoryAnswer", "CapacityRequest", "Constraint", "Step"} <= names
    assert holds_a_number(float | None)
    assert holds_a_number(list[int])
    assert not holds_a_number(str | None)


@pytest.mark.parametrize(
    ("number", "text"), [(327680, "327680"), (0.5, "0.5"), (2.0, "2"), (1 / 3, "0.3333333333"), (70e9, "70000000000"), (1e21, "1e+21")]
)
def test_plain_numbers_can_be_typed_into_a_calculator(number: float, text: str) -> None:
    assert plain(number) == text


def test_people_read_both_units() -> None:
    assert gigabytes(80 * 10**9) == "80 GB (74.51 GiB)"
    assert gigabytes(22_010 * 10**9) == "22,010 GB (20,498 GiB)"
    assert (seconds(0.0153), seconds(2)) == ("15.3 ms", "2 s")
    assert exact(4.0) == 4
    assert isinstance(exact(4.0), int)
    assert exact(4.5) == 4.5
