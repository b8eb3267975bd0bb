"""Reading a JSON body strictly (RFC 8259): what Python's parser lets through but no answer, log or database could hold is refused by name.

One pass with the parser's own hooks costs next to nothing. Only a body that is refused, or that might be, is looked at again.
"""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NoReturn

from app.api.errors import Refusal, printable
from app.domain.json_pointer import json_pointer
from app.domain.problem import FieldProblem

MAX_DEPTH = 64
MAX_INTEGER_DIGITS = 300
"""A longer integer does not fit a double, so that the first division would fail."""
MAX_ARRAY_ITEMS = 10_000
MAX_VALUES = 50_000
"""Values of a body, members and items at all levels: each may be an error that is described, for some twenty times what it cost to send."""
MAX_REPORTED = 20

Path = tuple[str | int, ...]

TITLE = "The body is not usable JSON"


@dataclass(frozen=True)
class _Unusable:
    """Stands in the parsed body where a value was that is refused."""

    code: str
    detail: str
    expected: str


class _FoundUnusable(Exception):
    """Ends the first pass: the second one says where."""


_NOT_FINITE = _Unusable("not_finite", "NaN and infinities are no numbers", "a finite number of at most 1.7976931348623157e308 in magnitude")
_TOO_LONG = _Unusable("integer_too_long", f"An integer of more than {MAX_INTEGER_DIGITS} digits", f"at most {MAX_INTEGER_DIGITS} digits")
_DUPLICATE = _Unusable("duplicate_key", "This name is given more than once in the same object", "each name once")
_NUL = _Unusable("nul_character", "The text holds the character U+0000", "text without U+0000, which the database cannot store")
_SURROGATE = _Unusable("lone_surrogate", "The text holds half a surrogate pair", "text that can be encoded as UTF-8")
_TOO_DEEP = _Unusable("nested_too_deep", f"Nested more than {MAX_DEPTH} levels deep", f"at most {MAX_DEPTH} levels of arrays and objects")
_LONG_ARRAY = _Unusable("too_many_items", f"An array of more than {MAX_ARRAY_ITEMS} items", f"at most {MAX_ARRAY_ITEMS} items")
_MANY_VALUES = _Unusable("too_many_values", f"The body holds more than {MAX_VALUES} values", f"at most {MAX_VALUES} members and items")


def _refuse(_: str) -> NoReturn:
    raise _FoundUnusable


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise _FoundUnusable
    return value


def _short(text: str) -> int:
    if len(text) > MAX_INTEGER_DIGITS:
        raise _FoundUnusable
    return int(text)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _FoundUnusable
    return value


def _marked(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value: dict[str, object] = {}
    for name, member in pairs:
        value[name] = _DUPLICATE if name in value else member
    return value


_STRICT = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_int=_short, parse_constant=_refuse)
_MARKING = json.JSONDecoder(
    object_pairs_hook=_marked,
    parse_float=lambda text: _NOT_FINITE if math.isinf(float(text)) else 0.0,
    parse_int=lambda text: _TOO_LONG if len(text) > MAX_INTEGER_DIGITS else 0,
    parse_constant=lambda _: _NOT_FINITE,
)


def parse(body: bytes) -> object:
    """The value of a JSON text.

    Raises Refusal: 400 for what is no UTF-8 or no JSON; 422, naming the first places, for NaN, infinities and numbers beyond a double,
    integers of absurd length, duplicate names, U+0000, lone surrogates, and more depth, items or values than the limits above.
    """
    text = _decoded(body)
    try:
        value = _STRICT.decode(text)
        if not _suspicious(text):
            return value
        found = _first(_unusable_in(value))
    except json.JSONDecodeError as error:
        raise _malformed(error) from None
    except RecursionError:
        found = [("", _TOO_DEEP)]
    except _FoundUnusable:
        found = _marked_places(text)
    if not found:
        return value
    fields = [_problem(pointer, item.code, item.detail, item.expected) for pointer, item in found]
    pointer, first = found[0]
    raise Refusal(422, first.code, TITLE, f"{pointer or 'The body'}: {first.detail}; expected {first.expected}.", fields=fields)


def _decoded(body: bytes) -> str:
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        detail = f"Byte {error.start} is not UTF-8."
        raise Refusal(400, "not_utf8", TITLE, detail, fields=[_problem("", "not_utf8", detail, "JSON in UTF-8")]) from None
    # RFC 8259 section 8.1 lets a parser ignore a byte order mark.
    return text.removeprefix("\ufeff")


def _malformed(error: json.JSONDecodeError) -> Refusal:
    detail = f"Line {error.lineno}, column {error.colno}: {error.msg}."
    return Refusal(400, "malformed_json", TITLE, detail, fields=[_problem("", "malformed_json", detail, "a JSON text")])


def _suspicious(text: str) -> bool:
    """Whether the parsed value has to be walked: cheap, never wrong when it says no."""
    return "\\u" in text or text.count(",") >= MAX_ARRAY_ITEMS or text.count("[") + text.count("{") > MAX_DEPTH


def _first(found: Iterator[tuple[str, _Unusable]]) -> list[tuple[str, _Unusable]]:
    return list(islice(found, MAX_REPORTED))


def _marked_places(text: str) -> list[tuple[str, _Unusable]]:
    try:
        return _first(_unusable_in(_MARKING.decode(text)))
    except RecursionError:
        return [("", _TOO_DEEP)]
    except json.JSONDecodeError as error:
        raise _malformed(error) from None


def _unusable_in(root: object) -> Iterator[tuple[str, _Unusable]]:
    """Every refused place in document order; without recursion, since depth is one of the things it looks for, and without copies."""
    open_containers: list[Iterator[tuple[Path, object]]] = [iter([((), root)])]
    num_values = 0
    while open_containers:
        path, here = next(open_containers[-1], (None, None))
        if path is None:
            open_containers.pop()
            continue
        num_values += 1
        if num_values > MAX_VALUES:
            yield "", _MANY_VALUES
            return
        match here:
            case _Unusable():
                yield json_pointer(*path), here
            case str():
                if problem := _text_problem(here):
                    yield json_pointer(*path), problem
            case dict() | list() if len(path) >= MAX_DEPTH:
                yield json_pointer(*path), _TOO_DEEP
            case list() if len(here) > MAX_ARRAY_ITEMS:
                yield json_pointer(*path), _LONG_ARRAY
            case dict() if len(here) > MAX_VALUES:
                yield "", _MANY_VALUES
            case dict():
                for name in here:
                    if problem := _text_problem(name):
                        yield json_pointer(*path), problem
                open_containers.append(_members(path, here.items()))
            case list():
                open_containers.append(_members(path, enumerate(here)))


def _members(path: Path, members: Iterable[tuple[str | int, object]]) -> Iterator[tuple[Path, object]]:
    return (((*path, name), member) for name, member in members)


def _text_problem(text: str) -> _Unusable | None:
    if "\0" in text:
        return _NUL
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE
    return None


def _problem(pointer: str, code: str, detail: str, expected: str) -> FieldProblem:
    return FieldProblem(location="body", pointer=printable(pointer), code=code, detail=detail, expected=expected, value=None)
