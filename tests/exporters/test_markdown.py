"""Foreign text cannot become markup."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.exporters.markdown import code, escape, line, quote, table

UNESCAPED_PIPE = re.compile(r"(?<!\\)(?:\\\\)*\|")


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("plain text, 5 % (of 3)", "plain text, 5 % (of 3)"),
        ("a|b", r"a\|b"),
        ("a\\|b", r"a\\\|b"),
        ("one\ntwo\r\nthree", "one two three"),
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("&amp;", "&amp;amp;"),
        ("[x](javascript:1)", r"\[x\](javascript:1)"),
        ("*bold* `code` ~~no~~", r"\*bold\* \`code\` \~\~no\~\~"),
        ("_it_ snake_case https://example.org/a_b", r"\_it\_ snake_case https://example.org/a_b"),
        ("abc\u202edef", "abcdef"),
        ("a\u2028b", "a b"),
    ],
)
def test_escape(text: str, written: str) -> None:
    assert escape(text) == written


@pytest.mark.parametrize(
    ("text", "written"),
    [("- item", r"\- item"), ("1. item", r"1\. item"), ("2) item", r"2\) item"), ("# head", r"\# head"), ("===", r"\==="), ("---", r"\---"),
     ("> quote", "&gt; quote"), ("2026 was", "2026 was"), ("    indented", "indented")],
)  # fmt: skip
def test_no_line_begins_a_block(text: str, written: str) -> None:
    assert line(text) == written


def test_a_quote_keeps_its_lines_and_stays_a_quote() -> None:
    assert quote("one\n\n# two\n") == "> one  \n>\n> \\# two  "


@given(st.text(max_size=200))
def test_any_text_is_one_cell_of_one_line(text: str) -> None:
    written = table(("a", "b"), [(escape(text), code(text))]).split("\n")
    assert len(written) == 3
    assert len(UNESCAPED_PIPE.findall(written[2])) == 3
    assert "<" not in written[2]


@given(st.text(max_size=200))
def test_every_line_of_a_quote_is_marked(text: str) -> None:
    assert all(each.startswith(">") for each in quote(text).splitlines())
