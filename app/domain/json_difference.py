"""What differs between two JSON documents, as a reader would list it."""

import contextlib
import math
from collections.abc import Iterator, Sequence

from pydantic import JsonValue

from app.domain.json_pointer import json_pointer
from app.domain.value import Value

JsonObject = dict[str, JsonValue]
SAME_RATIO = 1e-12
"""Two numbers of which one is no integer count as equal within this ratio: the last digits depend on the processor."""


class Difference(Value):
    """One place at which two documents differ."""

    pointer: str
    """JSON pointer (RFC 6901) to the place: into the document before, or into the one after when only that has the place."""
    before: JsonValue
    """What the document before has there; null when it has nothing."""
    after: JsonValue
    """What the document after has there; null when it has nothing."""
    change: int | float | None
    """after - before, in the unit of the field; null unless both are numbers."""
    change_ratio: float | None
    """(after - before) / |before|; null unless both are numbers and `before` is not 0."""


def differences(before: JsonValue, after: JsonValue, pointer: str = "") -> Iterator[Difference]:
    """Yield the places at which `after` differs from `before`, in document order.

    A field that is absent equals null. Items of a list are matched by their first field when that is a text or an integer and occurs
    once in each list (the `name` of a constraint, the `code` of a warning), else by position; a list of plain values is one place.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys((*before, *after)):
            yield from differences(before.get(name), after.get(name), pointer + json_pointer(name))
        return
    left, right = _records(before), _records(after)
    if left is not None and right is not None and (left or right):
        for index, one, other in _pairs(left, right):
            yield from differences(one, other, f"{pointer}/{index}")
    elif not _same(before, after):
        yield _difference(before, after, pointer)


def _records(value: JsonValue) -> Sequence[JsonObject] | None:
    """The items of a list of objects, None for anything else."""
    if not isinstance(value, list):
        return None
    records = [item for item in value if isinstance(item, dict)]
    return records if len(records) == len(value) else None


def _pairs(before: Sequence[JsonObject], after: Sequence[JsonObject]) -> Iterator[tuple[int, JsonValue, JsonValue]]:
    left, right = _identities(before), _identities(after)
    if left is None or right is None:
        for index in range(max(len(before), len(after))):
            yield index, before[index] if index < len(before) else None, after[index] if index < len(after) else None
        return
    for identity, index in left.items():
        yield index, before[index], after[right[identity]] if identity in right else None
    for identity, index in right.items():
        if identity not in left:
            yield index, None, after[index]


def _identities(records: Sequence[JsonObject]) -> dict[tuple[str, str | int], int] | None:
    """Index of each record by its first field; None when that does not tell them apart."""
    found: dict[tuple[str, str | int], int] = {}
    for index, record in enumerate(records):
        name, value = next(iter(record.items()), ("", None))
        if not isinstance(value, (str, int)) or isinstance(value, bool):
            return None
        found[name, value] = index
    return found if len(found) == len(records) else None


def _number(value: JsonValue) -> int | float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _same(before: JsonValue, after: JsonValue) -> bool:
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(map(_same, before, after))
    if isinstance(before, dict) and isinstance(after, dict):
        return not any(differences(before, after))
    one, other = _number(before), _number(after)
    if one is None or other is None:
        return type(before) is type(after) and before == after
    if isinstance(one, int) and isinstance(other, int):
        return one == other
    try:
        return math.isclose(one, other, rel_tol=SAME_RATIO)
    except OverflowError:  # an integer beyond all floats
        return False


def _difference(before: JsonValue, after: JsonValue, pointer: str) -> Difference:
    change: int | float | None = None
    ratio: float | None = None
    one, other = _number(before), _number(after)
    if one is not None and other is not None:
        with contextlib.suppress(OverflowError):  # an integer beyond all floats: the two values speak for themselves
            change = _finite(other - one)
            ratio = None if change is None or one == 0 else _finite(change / abs(one))
    return Difference(pointer=pointer, before=before, after=after, change=change, change_ratio=ratio)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
