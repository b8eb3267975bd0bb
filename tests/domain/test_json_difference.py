"""What counts as a difference between two documents, and what is said about it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from app.domain.json_difference import differences

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


def found(before: Any, after: Any) -> list[tuple[str, Any, Any]]:
    return [(each.pointer, each.before, each.after) for each in differences(before, after)]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"tp": 4}, {"tp": 8}, [("/tp", 4, 8)]),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, [("/a/b", [1, 2], [1, 3])]),
        ({"tp": 4}, {}, [("/tp", 4, None)]),
        ({}, {"tp": 4}, [("/tp", None, 4)]),
        ({"weights": None}, {}, []),
        ({"x": True}, {"x": 1}, [("/x", True, 1)]),
        ({"x": 1}, {"x": 1.0}, []),
        ({"x": 0.1 + 0.2}, {"x": 0.3}, []),
        ({"x": 10**16}, {"x": 10**16 + 1}, [("/x", 10**16, 10**16 + 1)]),
        ({"x": 1e23}, {"x": 10**23}, []),
        ({"x": "1"}, {"x": 1}, [("/x", "1", 1)]),
        ({"a/b~c": 1}, {"a/b~c": 2}, [("/a~1b~0c", 1, 2)]),
        ({"x": {"y": 1}}, {"x": 2}, [("/x", {"y": 1}, 2)]),
        ({"x": []}, {"x": [{"code": "a"}]}, [("/x/0", None, {"code": "a"})]),
        ([1, 2], [1, 2], []),
    ],
)
def test_differences(before: Any, after: Any, expected: list[tuple[str, Any, Any]]) -> None:
    assert found(before, after) == expected


def test_items_are_matched_by_their_first_field_wherever_they_stand() -> None:
    before = [{"name": "throughput", "replicas": 4}, {"name": "slo", "replicas": 5}]
    after = [{"name": "kv_cache", "replicas": 1}, {"name": "slo", "replicas": 6}, {"name": "throughput", "replicas": 4}]
    assert found(before, after) == [("/1/replicas", 5, 6), ("/0", None, {"name": "kv_cache", "replicas": 1})]


def test_items_whose_first_field_repeats_are_matched_by_position() -> None:
    before = [{"name": "a", "x": 1}, {"name": "a", "x": 2}]
    assert found(before, [*before, {"name": "b", "x": 3}]) == [("/2", None, {"name": "b", "x": 3})]


def test_items_that_begin_with_a_float_are_matched_by_position() -> None:
    assert found([{"share_ratio": 0.5}], [{"share_ratio": 0.6}]) == [("/0/share_ratio", 0.5, 0.6)]


@pytest.mark.parametrize(
    ("before", "after", "change", "ratio"),
    [
        (5, 4, -1, -0.2),
        (-2, -1, 1, 0.5),
        (0, 3, 3, None),
        (True, 3, None, None),
        ("a", 3, None, None),
        (-1.7e308, 1.7e308, None, None),
        (1.5, 10**400, None, None),
        (5e-324, 1.0, 1.0, None),
    ],
)
def test_change_is_said_for_numbers_where_it_is_one(before: Any, after: Any, change: float | None, ratio: float | None) -> None:
    (difference,) = differences(before, after)
    assert (difference.change, difference.change_ratio) == (change, ratio)


@given(DOCUMENTS)
def test_nothing_differs_from_itself(document: JsonValue) -> None:
    assert list(differences(document, document)) == []


@given(DOCUMENTS, DOCUMENTS)
def test_what_differs_one_way_differs_the_other_way(one: JsonValue, other: JsonValue) -> None:
    there, back = list(differences(one, other)), list(differences(other, one))
    assert len(there) == len(back)
    assert sorted((repr(each.before), repr(each.after)) for each in there) == sorted((repr(each.after), repr(each.before)) for each in back)
