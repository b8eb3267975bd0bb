"""A JSON document as the list of its values with the path to each."""

from collections.abc import Iterator

from pydantic import JsonValue

Scalar = str | int | float | bool | None


def leaves(value: JsonValue, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Scalar]]:
    """Yield path and value of everything that holds nothing further, in document order; an empty list or object counts as null."""
    if isinstance(value, dict) and value:
        for name, member in value.items():
            yield from leaves(member, (*path, name))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from leaves(item, (*path, str(index)))
    else:
        yield path, None if isinstance(value, (dict, list)) else value
