"""The engine files: ranges that follow each other without gap, spreads that hold their value, sources that can be looked up."""

import re
from itertools import pairwise

import pytest

from app.catalog.loader import load_bundled
from app.domain.engine import EngineMemory, Spread, newest_first, version_key

ENGINES = load_bundled().engines


@pytest.mark.parametrize("name", sorted({engine.engine for engine in ENGINES.values()}))
def test_every_version_has_exactly_one_file(name: str) -> None:
    ranges = newest_first(engine for engine in ENGINES.values() if engine.engine == name)
    assert ranges[0].below_version is None
    assert ranges[-1].from_version is None
    for newer, older in pairwise(ranges):
        assert newer.from_version == older.below_version
        assert version_key(newer.from_version) is not None


def test_the_engines_of_deployments_are_there() -> None:
    assert {engine.engine for engine in ENGINES.values()} == {"vllm", "sglang", "tensorrt-llm", "llama.cpp"}


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_a_constant_lies_within_what_was_seen(engine: EngineMemory) -> None:
    spreads = [value for _, value in engine if isinstance(value, Spread)]
    assert len(spreads) >= 5
    assert all(spread.low_bytes <= spread.typical_bytes <= spread.high_bytes for spread in [*spreads, engine.activation.unknown])


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_rules_say_where_they_were_read(engine: EngineMemory) -> None:
    assert engine.notes
    assert all(re.match(r"https://\S+", source) for source in engine.sources)


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_device_classes_descend_and_the_last_takes_every_device(engine: EngineMemory) -> None:
    least = [each.at_least_memory_bytes for each in engine.defaults]
    assert least == sorted(least, reverse=True)
    assert (engine.defaults[-1].at_least_memory_bytes, engine.defaults[-1].not_named) == (0, ())
