"""A plan as a Markdown document that a reviewer can paste: what was asked, what was answered, how it was computed, by which versions."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from pydantic import JsonValue

from app.domain.json_difference import JsonObject
from app.domain.plan import Plan
from app.domain.units import plain
from app.exporters.flattening import Scalar, leaves
from app.exporters.markdown import code, escape, line, quote, table
from app.exporters.quantities import LEGEND, for_people, unit_at

Alone = list[tuple[tuple[str, ...], Scalar]]
Lists = list[tuple[tuple[str, ...], Sequence[JsonObject]]]
MAX_COLUMNS = 10
"""A list of objects with more fields than this is written as one table an object."""
_TOLD_ELSEWHERE = frozenset({"summary", "working", "assumptions", "warnings", "versions"})
_FIELD_HEADER = ("Field", "Value", "Unit", "For people")


def render(plan: Plan) -> str:
    """The document; user text is escaped, so that no name or note can become markup."""
    figures = {name: value for name, value in plan.answer.items() if name not in _TOLD_ELSEWHERE}
    parts = [
        f"# {escape(plan.name)}",
        table(("Plan", str(plan.id)), _properties(plan)),
        line(plan.summary),
        *(["## Notes", quote(plan.notes)] if plan.notes.strip() else []),
        "## Inputs",
        "What the request left out is filled in with the planner's defaults; what had to be assumed beyond them is under Assumptions.",
        *_values(plan.inputs, given=plan.request),
        "## Answer",
        *_values(figures),
        "## Working",
        _working(plan.answer.get("working")),
        "## Assumptions",
        _notes(plan.answer.get("assumptions")),
        "## Warnings",
        _notes(plan.answer.get("warnings")),
        "## Units",
        f"Values are in the base unit of the column Unit. {escape(LEGEND)}",
    ]
    return "\n\n".join(parts) + "\n"


def _properties(plan: Plan) -> Iterator[Sequence[str]]:
    yield "Calculation", code(plan.kind)
    yield "Owner", escape(plan.owner)
    yield "Labels", ", ".join(map(escape, plan.labels)) or "none"
    yield "Model", escape(plan.model or "not named")
    yield "GPU", escape(plan.gpu or "not named")
    yield "Revision", f"{plan.revision}, written {_day(plan.updated_at)}"
    yield "Created", _day(plan.created_at)
    yield "Computed by", f"Inferplan {escape(plan.versions.planner)}, catalog {escape(plan.versions.catalog)}"


def _day(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _values(document: JsonObject, *, given: JsonObject | None = None, within: str = "") -> Iterator[str]:
    """One table of everything that stands alone, then a table a list of objects; what `given` lacks is marked as a default."""
    alone, lists = _sorted_out(document)
    if not alone and not lists:
        yield "None."
    elif alone and given is None:
        yield table(_FIELD_HEADER, (_field_row(path, value) for path, value in alone))
    elif alone:
        known = {path for path, _ in _sorted_out(given or {})[0]}
        rows = ((*_field_row(path, value), "given" if path in known else "default") for path, value in alone)
        yield table((*_FIELD_HEADER, "Origin"), rows)
    for path, records in lists:
        name = code(".".join(path))
        yield f"**{within}, {name}**" if within else f"### {name}"
        yield from _records(records, path, f"{within}, {name}" if within else name)


def _sorted_out(document: JsonObject) -> tuple[Alone, Lists]:
    alone: Alone = []
    lists: Lists = []
    for name, value in document.items():
        _sort_out(value, (name,), alone, lists)
    return alone, lists


def _sort_out(
    value: JsonValue,
    path: tuple[str, ...],
    alone: Alone,
    lists: Lists,
) -> None:
    if isinstance(value, dict) and value:
        for name, member in value.items():
            _sort_out(member, (*path, name), alone, lists)
    elif isinstance(value, list):
        records = [item for item in value if isinstance(item, dict)]
        if records and len(records) == len(value):
            lists.append((path, records))
        else:
            items = [_said(item) for _, item in leaves(value)] if value else ["none"]
            alone.append((path, ("; " if any("," in item for item in items) else ", ").join(items)))
    else:
        alone.append((path, None if isinstance(value, dict) else value))


def _records(records: Sequence[JsonObject], path: tuple[str, ...], title: str) -> Iterator[str]:
    rows = [dict(leaves(record)) for record in records]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    given = [column for column in columns if any(row.get(column) is not None for row in rows)]
    if len(given) <= MAX_COLUMNS and not any(part.isdecimal() for column in given for part in column):
        units = [unit_at((*path, *column)) for column in given]
        header = [code(".".join(column)) + (f" [{unit}]" if unit else "") for column, unit in zip(given, units, strict=True)]
        yield table(header, ([_cell(row.get(column), unit) for column, unit in zip(given, units, strict=True)] for row in rows))
        return
    for index, record in enumerate(records, start=1):
        yield f"**{title} {index}**"
        yield from _values(record, within=f"{title} {index}")


def _field_row(path: tuple[str, ...], value: Scalar) -> Sequence[str]:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    unit = unit_at(path) if is_number else ""
    people = for_people(value, unit) if isinstance(value, (int, float)) and is_number else ""
    return code(".".join(path)), escape(_said(value)), escape(unit), escape(people)


def _cell(value: Scalar, unit: str) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and (people := for_people(value, unit)):
        return escape(f"{plain(value)} ({people})")
    return escape(_said(value))


def _said(value: Scalar) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return plain(value)
        case str():
            return value


def _working(working: JsonValue) -> str:
    steps = [step for step in working if isinstance(step, dict)] if isinstance(working, list) else []
    if not steps:
        return "None."
    header = ("#", "Step", "Formula", "With numbers", "Result", "Basis", "Source")
    return table(header, ((str(number), *_step(step)) for number, step in enumerate(steps, start=1)))


def _step(step: JsonObject) -> Sequence[str]:
    value, unit = step.get("value"), str(step.get("unit", ""))
    result = "none"
    if isinstance(value, (int, float)):
        people = for_people(value, unit)
        result = f"{plain(value)} {unit}" + (f" ({people})" if people else "")
    told = (str(step.get(name, "")) for name in ("formula", "substituted"))
    return (
        code(str(step.get("name", ""))),
        *map(escape, told),
        escape(result),
        escape(str(step.get("basis", ""))),
        escape(str(step.get("source", ""))),
    )


def _notes(notes: JsonValue) -> str:
    listed = [note for note in notes if isinstance(note, dict)] if isinstance(notes, list) else []
    return "\n".join(f"- {code(str(note.get('code', '')))}: {escape(str(note.get('message', '')))}" for note in listed) or "None."
