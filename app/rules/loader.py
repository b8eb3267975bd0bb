"""Rule files to rules, checked as a whole: a broken file stops the service when it starts, not a request later."""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import yaml
from pydantic import ValidationError

from app.domain.rule import Rule


class BrokenRule(Exception):
    """A rule file that cannot be used; the message names the file and the field."""


_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The parser in C where the library has it: ten times as fast, and every start reads all rules."""


class _UniqueKeys(_SafeLoader):  # type: ignore[misc]
    """Refuses a key that is given twice, of which YAML would silently keep the last."""


def _mapping(loader: _UniqueKeys, node: yaml.MappingNode) -> Mapping[object, object]:
    mapping: dict[object, object] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} is no text", key_node.start_mark)
        if key in mapping:
            raise yaml.constructor.ConstructorError(None, None, f"{key!r} is given twice", key_node.start_mark)
        mapping[key] = loader.construct_object(value_node, deep=True)
    return mapping


_UniqueKeys.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def load_rules(directory: Traversable | None = None) -> Sequence[Rule]:
    """Every rule of a directory (by default the bundled ones) in order of name; raises BrokenRule naming file and field."""
    place = files(__package__) if directory is None else directory
    found = sorted((file for file in place.iterdir() if file.name.endswith(".yaml")), key=lambda file: file.name)
    if not found:
        raise BrokenRule(f"{place}: holds no rule files")
    rules = {file.name: _rule(file) for file in found}
    _check_references(rules)
    return tuple(rules.values())


def _rule(file: Traversable) -> Rule:
    try:
        given = yaml.load(file.read_text(encoding="utf-8"), Loader=_UniqueKeys)  # noqa: S506 - derives from SafeLoader
        rule = Rule.model_validate(given)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BrokenRule(f"{file.name}: is no YAML: {error}") from error
    except ValidationError as error:
        faults = "; ".join(f"{_path(fault['loc']) or 'the file'}: {fault['msg']}" for fault in error.errors())
        raise BrokenRule(f"{file.name}: {faults}") from error
    if f"{rule.id}.yaml" != file.name:
        raise BrokenRule(f"{file.name}: id: is {rule.id!r}, but has to be the name of the file")
    if rule.id == "objective":
        raise BrokenRule(f"{file.name}: id: 'objective' names the default objectives in a request's thresholds")
    return rule


def _path(location: Sequence[str | int]) -> str:
    """Field in the file; the names of union members that pydantic puts between are left out."""
    return ".".join(
        str(part)
        for position, part in enumerate(location)
        if not (
            part in ("all", "any", "any_known", "comparison")
            and position
            and (location[position - 1] == "when" or isinstance(location[position - 1], int))
        )
    )


def _check_references(rules: Mapping[str, Rule]) -> None:
    by_id = {rule.id: rule for rule in rules.values()}
    for name, rule in rules.items():
        for field, others in (("parents", rule.parents), ("explains", rule.explains)):
            for other in others:
                if other not in by_id:
                    raise BrokenRule(f"{name}: {field}: there is no rule {other!r}")
                if other == rule.id:
                    raise BrokenRule(f"{name}: {field}: names the rule itself")
        if rule.id in _ancestors(rule, by_id):
            raise BrokenRule(f"{name}: parents: {rule.id} is its own ancestor")


def _ancestors(rule: Rule, rules: Mapping[str, Rule]) -> set[str]:
    found: set[str] = set()
    waiting = [name for name in rule.parents if name in rules]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [parent for parent in rules[name].parents if parent in rules]
    return found
