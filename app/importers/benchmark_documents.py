"""The text of a results file -> the documents in it: one JSON value, JSON lines, or YAML."""

import json
from collections.abc import Sequence

import yaml

from app.domain.errors import InvalidInput

MAX_CHARACTERS = 20_000_000
"""Per-request lists make the files of long runs large; what is read from them does not grow."""
MAX_YAML_CHARACTERS = 100_000
"""The YAML reader needs up to 20 us a character. Reports of llm-d have 2 to 30 thousand characters, and JSON may be longer."""
MAX_DIGITS = 100
EXPECTED = "the results file as the benchmark wrote it: JSON, JSON lines (SGLang, vLLM --append-result) or YAML (llm-d benchmark report)"


class _NoAliases(yaml.SafeLoader):
    """Refuses aliases, by which a few lines of YAML stand for billions of values, and endless integers; results files have neither."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("an alias (*name)")
        node: yaml.Node | None = super().compose_node(parent, index)
        return node


def _integer(loader: _NoAliases, node: yaml.ScalarNode) -> int:
    if len(node.value) > MAX_DIGITS:
        raise yaml.YAMLError(f"an integer of {len(node.value)} digits")
    return int(loader.construct_yaml_int(node))


_NoAliases.add_constructor("tag:yaml.org,2002:int", _integer)


def documents(text: str, *, pointer: str) -> Sequence[tuple[str, object]]:
    """(pointer, value) of each document in `text`; InvalidInput when it is empty, too long, or neither JSON nor YAML."""
    if len(text) > MAX_CHARACTERS:
        raise _unreadable(pointer, f"has {len(text)} characters", f"at most {MAX_CHARACTERS} characters")
    if not text.strip():
        raise _unreadable(pointer, "is empty")
    try:
        if text.lstrip("\ufeff \t\r\n")[:1] not in ("{", "["):
            return [(pointer, _yaml(text, pointer))]
        text = text.removeprefix("\ufeff")
        try:
            return [(pointer, json.loads(text))]
        except json.JSONDecodeError as error:
            if not error.msg.startswith("Extra data"):
                raise _unreadable(pointer, f"is no JSON at line {error.lineno}, column {error.colno}: {error.msg}") from error
        except ValueError as error:
            raise _unreadable(pointer, f"holds a number that cannot be read: {str(error)[:200]}") from error
        return _json_lines(text, pointer)
    except RecursionError as error:
        raise _unreadable(pointer, "is nested too deeply") from error


def _json_lines(text: str, pointer: str) -> Sequence[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                found.append((f"{pointer}/{len(found)}", json.loads(line)))
            except ValueError as error:
                raise _unreadable(pointer, f"has a line that is no JSON, line {number}: {str(error)[:200]}") from error
    return found


def _yaml(text: str, pointer: str) -> object:
    if len(text) > MAX_YAML_CHARACTERS:
        raise _unreadable(
            pointer, f"is no JSON and has {len(text)} characters", f"at most {MAX_YAML_CHARACTERS} characters of YAML; JSON may be longer"
        )
    try:
        value: object = yaml.load(text, Loader=_NoAliases)  # noqa: S506 - derives from SafeLoader
    except (yaml.YAMLError, ValueError) as error:
        raise _unreadable(pointer, f"is neither JSON nor YAML: {' '.join(str(error).split())[:200]}") from error
    return value


def _unreadable(pointer: str, what: str, expected: str = EXPECTED) -> InvalidInput:
    return InvalidInput(f"The results file {what}.", field=pointer, expected=expected)
