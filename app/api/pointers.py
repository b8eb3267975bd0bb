"""From the validator's words to the reader's: where a field lies in the body, what was expected of it, what of it may be repeated."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from app.domain.json_pointer import json_pointer

MAX_REPEATED_CHARACTERS = 100
MAX_REPEATED_INTEGER = 2**63


def pointer_of(path: Sequence[str | int], body: object, *, keep_last: bool) -> str:
    """JSON pointer into the body, without the names of union members that the validator puts between.

    `keep_last` keeps the last part though the body does not hold it: the name of a missing field.
    """
    kept: list[str | int] = []
    here = body
    for position, part in enumerate(path):
        if _holds(here, part):
            here = here[part]  # type: ignore[index]
        elif not (keep_last and position == len(path) - 1):
            continue
        kept.append(part)
    return json_pointer(*kept)


def _holds(container: object, part: str | int) -> bool:
    match container:
        case dict():
            return part in container
        case list():
            return isinstance(part, int) and part < len(container)
    return False


def blamed(found: Mapping[str, Any]) -> tuple[Sequence[str | int], object]:
    """Path and value that one error of pydantic is about: of a union whose member a field decides, that field."""
    path, given = found["loc"][1:], found.get("input")
    decider = str(found.get("ctx", {}).get("discriminator", ""))
    if not decider.startswith("'"):
        return path, given
    name = decider.strip("'")
    return (*path, name), given.get(name) if isinstance(given, dict) else None


def expectation(found: Mapping[str, Any]) -> tuple[str, str]:
    """What is wrong and what was expected, from one error of pydantic."""
    message: str = found["msg"]
    match found["type"]:
        case "missing" | "union_tag_not_found":
            return "This field is required", "a value"
        case "extra_forbidden":
            return "There is no field of this name", "only the fields that /openapi.json describes"
        case "value_error" | "assertion_error":
            text = message.partition(", ")[2]
            return text, text
        case "model_attributes_type" | "model_type" | "dict_type" | "dataclass_type":
            return "Input should be an object", "an object"
        case "union_tag_invalid":
            wanted = f"one of {found['ctx']['expected_tags']}"
            return f"Input should be {wanted}", wanted
        case "int_parsing" | "float_parsing":
            wanted = "a whole number" if found["type"] == "int_parsing" else "a number"
            return f"Input should be {wanted}", wanted
        case "int_parsing_size":
            return (
                "Input is far beyond what any count here can be",
                "a whole number within the limits that /openapi.json gives for the field",
            )
    wanted = message.partition("Input should be ")[2] or message.partition(" should ")[2] or message
    return message, wanted


def repeatable(value: object) -> bool | int | float | str | None:
    """The value if an answer may repeat it: a finite number, a boolean, or a short printable text; else None."""
    match value:
        case bool():
            return value
        case int() if abs(value) < MAX_REPEATED_INTEGER:
            return value
        case float() if math.isfinite(value):
            return value
        case str() if len(value) <= MAX_REPEATED_CHARACTERS and value.isprintable():
            return value
    return None
