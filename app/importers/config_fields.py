"""Typed access to one level of a config.json that remembers what was read, so that no field is ignored silently."""

from collections.abc import Collection, Iterator, Mapping

from app.domain.errors import InvalidInput, UnsupportedConfig
from app.domain.json_pointer import json_pointer
from app.importers.harmless_fields import INERT, is_harmless

MAX_COUNT = 10**9
MAX_LIST_LENGTH = 10_000


def shown(value: object) -> object:
    """A value short enough to stand in an error."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


class ConfigFields:
    """The fields of one JSON object; `pointer` is where it stands in the request.

    `defaults` are what the configuration class of this model type takes for a field that the file leaves out; the ones that were
    used are listed in `defaulted`. A null field counts as left out.
    """

    def __init__(self, fields: Mapping[str, object], pointer: str, *, defaults: Mapping[str, object] | None = None) -> None:
        self.fields = fields
        self.pointer = pointer
        self.defaults = defaults or {}
        self.defaulted: dict[str, object] = {}
        self._read: set[str] = set()
        self._sections: list[ConfigFields] = []

    def at(self, name: str) -> str:
        """JSON pointer to a field."""
        return self.pointer + json_pointer(name)

    def wrong(self, name: str, expected: str) -> InvalidInput:
        """The error for a field whose value cannot be right."""
        value = shown(self.fields.get(name))
        return InvalidInput(f"{name} is {value!r}; expected {expected}.", field=self.at(name), value=value, expected=expected)

    def unsupported(self, name: str, expected: str) -> UnsupportedConfig:
        """The error for a value that is possible but not understood."""
        value = shown(self.fields.get(name))
        detail = f"{name} is {value!r}, which is not understood; expected {expected}."
        return UnsupportedConfig(detail, field=self.at(name), value=value, expected=expected)

    def missing(self, *names: str) -> UnsupportedConfig:
        """The error for a required field."""
        others = f" (also read as {', '.join(names[1:])})" if names[1:] else ""
        return UnsupportedConfig(f"{names[0]}{others} is missing.", field=self.at(names[0]), expected=f"a value for {names[0]}")

    def given(self, name: str) -> bool:
        """The file has the field, be it null."""
        self._read.add(name)
        return name in self.fields

    def find(self, *names: str) -> tuple[str, object]:
        """The first of several spellings that holds a value, with the value; (first spelling, None) when none does.

        Raises InvalidInput when two spellings contradict each other.
        """
        self._read.update(names)
        found = [(name, self.fields[name]) for name in names if self.fields.get(name) is not None]
        for name, value in found[1:]:
            if value != found[0][1]:
                raise self.wrong(name, f"the same as {found[0][0]} ({shown(found[0][1])!r})")
        if found:
            return found[0]
        for name in names:
            if name in self.defaults and name not in self.fields:
                self.defaulted[name] = self.defaults[name]
                return name, self.defaults[name]
        return names[0], None

    def optional_count(self, *names: str, minimum: int = 1, maximum: int = MAX_COUNT) -> int | None:
        """An integer, or None when the field is left out."""
        name, value = self.find(*names)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
            raise self.wrong(name, f"an integer from {minimum} to {maximum}")
        return value

    def count(self, *names: str, default: int | None = None, minimum: int = 1, maximum: int = MAX_COUNT) -> int:
        """An integer; required unless `default` is given."""
        value = self.optional_count(*names, minimum=minimum, maximum=maximum)
        if value is None:
            value = default
        if value is None:
            raise self.missing(*names)
        return value

    def flag(self, *names: str, default: bool) -> bool:
        """A boolean."""
        name, value = self.find(*names)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def text(self, *names: str) -> str | None:
        """A string, or None when the field is left out."""
        name, value = self.find(*names)
        if value is not None and not isinstance(value, str):
            raise self.wrong(name, "a string")
        return value

    def texts(self, name: str, *, allowed: Collection[str], length: int) -> tuple[str, ...] | None:
        """One string per layer, or None when the field is left out."""
        _, value = self.find(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or len(value) != length:
            raise self.wrong(name, f"a list of {length} strings, one per layer")
        for index, entry in enumerate(value):
            if not isinstance(entry, str) or entry not in allowed:
                detail = f"{name}[{index}] is {shown(entry)!r}, which is not understood."
                expected = f"one of {', '.join(sorted(allowed))}"
                raise UnsupportedConfig(detail, field=f"{self.at(name)}/{index}", value=shown(entry), expected=expected)
        return tuple(value)

    def flags(self, name: str, *, length: int) -> tuple[bool, ...] | None:
        """One boolean per layer, or None when the field is left out."""
        _, value = self.find(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or len(value) != length or not all(isinstance(entry, bool) for entry in value):
            raise self.wrong(name, f"a list of {length} booleans, one per layer")
        return tuple(value)

    def counts(
        self, name: str, *, minimum: int = 0, maximum: int = MAX_COUNT, lengths: Collection[int] | None = None
    ) -> tuple[int, ...] | None:
        """A list of integers, or None when the field is left out."""
        _, value = self.find(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or len(value) > MAX_LIST_LENGTH or (lengths is not None and len(value) not in lengths):
            wanted = f" of {' or '.join(str(length) for length in sorted(lengths))}" if lengths else ""
            raise self.wrong(name, f"a list{wanted} integers, one per layer" if lengths else "a list of integers")
        for entry in value:
            if isinstance(entry, bool) or not isinstance(entry, int) or not minimum <= entry <= maximum:
                raise self.wrong(name, f"a list of integers from {minimum} to {maximum}")
        return tuple(value)

    def require(self, name: str, *allowed: object) -> None:
        """Refuse every value but those that the reader of this model type understands; a field left out passes."""
        _, value = self.find(name)
        if value is not None and not any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in allowed):
            raise self.unsupported(name, " or ".join(repr(one) for one in allowed))

    def section(self, name: str, *, refuse_unread: bool = True) -> "ConfigFields | None":
        """A nested object, or None when the field is left out; with `refuse_unread` its unread fields count as those of this object."""
        _, value = self.find(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.wrong(name, "an object")
        section = ConfigFields(value, self.at(name))
        if refuse_unread:
            self._sections.append(section)
        return section

    def sections(self, name: str, *, length: int) -> "tuple[ConfigFields, ...] | None":
        """A list of objects, one per layer, or None when the field is left out."""
        _, value = self.find(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or len(value) != length or not all(isinstance(entry, Mapping) for entry in value):
            raise self.wrong(name, f"a list of {length} objects, one per layer")
        sections = tuple(ConfigFields(entry, f"{self.at(name)}/{index}") for index, entry in enumerate(value))
        self._sections.extend(sections)
        return sections

    def skip(self, *names: str) -> None:
        """Fields that say nothing about size for this model type."""
        self._read.update(names)

    def unread(self) -> Iterator[str]:
        """Pointers to the fields that hold a value and were neither read nor are known to say nothing about size."""
        for name, value in self.fields.items():
            if value is None or name in self._read or is_harmless(name):
                continue
            if name in INERT and value == INERT[name] and isinstance(value, bool) == isinstance(INERT[name], bool):
                continue
            yield self.at(name)
        for section in self._sections:
            yield from section.unread()
