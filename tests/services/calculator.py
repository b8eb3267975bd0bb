"""Redoing the working of an answer: each `substituted` evaluated in decimal arithmetic and compared with its value."""

import ast
import math
import operator
from collections.abc import Callable, Iterator
from decimal import Decimal, localcontext
from typing import Any

from app.domain.errors import InvalidInput, MissingFigure
from app.domain.provenance import Answer, Step
from app.services.estimates import CALCULATIONS
from tests.domain.shapes import CATALOG

_OPERATORS: dict[type[ast.operator], Callable[[Decimal, Decimal], Decimal]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.Pow: operator.pow,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Decimal]] = {
    "max": max,
    "min": min,
    "ln": lambda value: value.ln(),
    "floor": lambda value: value.to_integral_value("ROUND_FLOOR"),
    "ceil": lambda value: value.to_integral_value("ROUND_CEILING"),
}


def evaluate(text: str) -> Decimal:
    """What a reader gets who types `text` into a calculator."""
    source = text.replace(" x ", " * ").replace("^", " ** ")

    def value(node: ast.expr) -> Decimal:
        match node:
            case ast.Constant():
                return Decimal(ast.get_source_segment(source, node) or "")
            case ast.BinOp(left=left, op=operation, right=right):
                return _OPERATORS[type(operation)](value(left), value(right))
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return _FUNCTIONS[name](*map(value, arguments))
        raise AssertionError(f"not arithmetic: {text}")

    with localcontext(prec=40):
        return value(ast.parse(source, mode="eval").body)


def redo(steps: list[Step]) -> dict[str, float]:
    """The steps by name, each evaluated and compared with its value; what is left out at ten digits may turn a rounding by one."""
    for step in steps:
        found = float(evaluate(step.substituted))
        rounded = 1 if "floor" in step.substituted or "ceil" in step.substituted else 0
        assert math.isclose(found, step.value, rel_tol=1e-8, abs_tol=rounded), (step.name, step.substituted, step.value)
    return {step.name: step.value for step in steps}


def redo_json(steps: list[dict[str, Any]]) -> dict[str, float]:
    """The same with steps as they are sent."""
    return redo([Step(**step) for step in steps])


def answers(kind: str, bodies: Iterator[dict[str, Any]]) -> Iterator[Any]:
    """The answers to those of the bodies that are not refused."""
    request_type, calculate = CALCULATIONS[kind]
    for body in bodies:
        try:
            answer = calculate(CATALOG, request_type.model_validate(body))
        except (InvalidInput, MissingFigure):  # ep of a dense model, a cache that is stated for one precision
            continue
        yield answer


def agree(answer: Answer, working: dict[str, float], *names: str) -> None:
    for name in names:
        value = getattr(answer, name)
        assert value is None or value == working[name], name
