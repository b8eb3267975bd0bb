"""Strict JSON: what Python's parser lets through is refused by name and place."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.errors import Refusal
from app.api.json_body import MAX_ARRAY_ITEMS, MAX_DEPTH, MAX_REPORTED, MAX_VALUES, parse

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8", exclude_characters="\0")), inner, max_size=4)
    ),
    max_leaves=20,
)

PLACES = [
    ('{"a": NaN}', "not_finite", ["/a"]),
    ('{"a": [1, -Infinity]}', "not_finite", ["/a/1"]),
    ('{"a": {"b": Infinity}, "c": NaN}', "not_finite", ["/a/b", "/c"]),
    ('{"a": 1e999}', "not_finite", ["/a"]),
    ('{"a": -1E+400}', "not_finite", ["/a"]),
    ("1e999", "not_finite", [""]),
    (f'{{"a": {"9" * 10_000}}}', "integer_too_long", ["/a"]),
    ('{"a": 1, "b": {"c": 1, "c": 2}}', "duplicate_key", ["/b/c"]),
    (r'{"a": "x\u0000y"}', "nul_character", ["/a"]),
    (r'{"a": {"\u0000": 1}}', "nul_character", ["/a"]),
    (r'{"a": "\ud800"}', "lone_surrogate", ["/a"]),
    (r'{"a": "\udc00\ud800"}', "lone_surrogate", ["/a"]),
    (r'{"a/b~c": "\ud800"}', "lone_surrogate", ["/a~1b~0c"]),
    ("[" * 65 + "]" * 65, "nested_too_deep", ["/0" * 64]),
    ("[" * 200_000, "nested_too_deep", [""]),
    ('{"a":' * 200_000, "nested_too_deep", [""]),
    ('{"a": [' + "1," * MAX_ARRAY_ITEMS + "1]}", "too_many_items", ["/a"]),
    ('{"a": [' + "NaN," * MAX_ARRAY_ITEMS + "1]}", "too_many_items", ["/a"]),
    ("[" + "[1,1,1,1,1]," * (MAX_ARRAY_ITEMS - 1) + "[1]]", "too_many_values", [""]),
    ("{" + ",".join(f'"{name}": 1' for name in range(MAX_VALUES + 1)) + "}", "too_many_values", [""]),
]


@pytest.mark.parametrize(("text", "code", "pointers"), PLACES, ids=lambda value: str(value)[:24])
def test_an_unusable_value_is_refused_with_its_place(text: str, code: str, pointers: list[str]) -> None:
    with pytest.raises(Refusal) as refused:
        parse(text.encode())
    assert (refused.value.status_code, refused.value.code) == (422, code)
    assert [field.pointer for field in refused.value.fields] == pointers
    assert all(field.value is None and field.expected for field in refused.value.fields)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"a": "\xff"}', "not_utf8"),
        (b'{"a": "\xed\xa0\x80"}', "not_utf8"),
        ('{"a": 1}'.encode("utf-16"), "not_utf8"),
        ('{"a": 1}'.encode("utf-16-le"), "malformed_json"),
        (b"{", "malformed_json"),
        (b"", "malformed_json"),
        (b"{'a': 1}", "malformed_json"),
        (b'{"a": 1} x', "malformed_json"),
        (b'{"a": 01}', "malformed_json"),
        (b'{"a": NaN', "malformed_json"),
        (b'{"a": "\x00"}', "malformed_json"),
        (b'{"a": nan}', "malformed_json"),
    ],
)
def test_what_is_no_json_is_malformed(body: bytes, code: str) -> None:
    with pytest.raises(Refusal) as refused:
        parse(body)
    assert (refused.value.status_code, refused.value.code) == (400, code)


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        (rb'{"a": "\\u0000 \\ud800"}', {"a": r"\u0000 \ud800"}),
        (rb'{"a": "\ud83d\ude00"}', {"a": "\U0001f600"}),
        (b"1e-999", 0.0),
        (b"9" * 300, int("9" * 300)),
        (b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, None),
        (b"[" + b"{}," * 500 + b"{}]", [{}] * 501),
        (b"[" + b"1," * (MAX_ARRAY_ITEMS - 1) + b"1]", [1] * MAX_ARRAY_ITEMS),
        (b'["' + b"," * 100_000 + b'"]', None),
        (b"{" + b",".join(b'"%d": 1' % name for name in range(MAX_VALUES - 1)) + b"}", None),
    ],
    ids=[
        "byte-order-mark",
        "escaped-backslash",
        "surrogate-pair",
        "underflow",
        "300-digits",
        "deepest",
        "many-shallow",
        "longest",
        "text-with-commas",
        "widest",
    ],
)
def test_what_only_looks_unusable_is_taken(body: bytes, value: object) -> None:
    assert parse(body) == (json.loads(body) if value is None else value)


def test_many_unusable_values_are_named_up_to_a_number() -> None:
    with pytest.raises(Refusal) as refused:
        parse(b"[" + b"NaN," * 500 + b"NaN]")
    assert [field.pointer for field in refused.value.fields] == [f"/{index}" for index in range(MAX_REPORTED)]


@given(JSON_VALUES)
def test_every_json_value_is_read_as_it_was_written(value: Any) -> None:
    assert parse(json.dumps(value).encode()) == value


@given(st.binary(max_size=200) | st.text('[]{}",:\\u0dD8NaInfty1e9- ', max_size=60).map(str.encode))
def test_no_bytes_fail_in_another_way(body: bytes) -> None:
    assert _outcome(body) in ("taken", 400, 422)


def _outcome(body: bytes) -> int | str:
    try:
        value = parse(body)
    except Refusal as refused:
        return refused.status_code
    json.dumps(value, allow_nan=False).encode()
    return "taken"
