"""A plan as CSV (RFC 4180) with one value a row: `field,value,unit`, read by spreadsheets and by programs."""

import csv
import io
import re
from collections.abc import Sequence

from pydantic import JsonValue

from app.domain.plan import Plan
from app.exporters.flattening import Scalar, leaves
from app.exporters.quantities import unit_at

HEADER = ("field", "value", "unit")
# A cell that starts like this is a formula to a spreadsheet, also behind what it takes for a separator of cells
# (https://owasp.org/www-community/attacks/CSV_Injection).
_FORMULA = re.compile(r"(^|[\t\r\n;])([ \u00a0]*)(?=[=+\-@\t\r＝＋－＠])")


def render(plan: Plan) -> str:
    """The plan's own fields, then `inputs.*` and `answer.*` with the names of the JSON document joined by dots, lists by index from 0."""
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(HEADER)
    document: JsonValue = plan.model_dump(mode="json", exclude={"request"})  # its values are among the inputs
    for path, value in leaves(document):
        rows.writerow((_safe(".".join(path)), _cell(value), _safe(_unit(plan, path, value))))
    return text.getvalue()


def _cell(value: Scalar) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return _safe(value)


def _safe(text: str) -> str:
    """Text that no spreadsheet takes for a formula: an apostrophe stands before the sign that would start one."""
    return _FORMULA.sub(r"\1\2'", text)


def _unit(plan: Plan, path: Sequence[str], value: Scalar) -> str:
    if isinstance(value, (str, bool)) or value is None:
        return ""
    match path:
        case ("answer", "working", index, "value"):
            return _stated_unit(plan.answer.get("working"), int(index))
        case _:
            return unit_at(path)


def _stated_unit(working: JsonValue, index: int) -> str:
    """The unit that a step of the working states beside its value."""
    step = working[index] if isinstance(working, list) else None
    unit = step.get("unit") if isinstance(step, dict) else None
    return unit if isinstance(unit, str) else ""
