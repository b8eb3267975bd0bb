"""Which form a caller gets, by RFC 9110 section 12.5.1."""

import pytest

from app.api.representations import already_has, preferred

OFFERED = ("application/json", "text/markdown", "text/csv")


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", "application/json"),
        (" ", "application/json"),
        ("*/*", "application/json"),
        ("application/json", "application/json"),
        ("text/markdown", "text/markdown"),
        ("TEXT/CSV", "text/csv"),
        ("text/*", "text/markdown"),
        ("text/csv, text/markdown", "text/markdown"),
        ("text/csv;q=0.9, text/markdown;q=0.8", "text/csv"),
        ("text/markdown, */*", "text/markdown"),
        ("text/markdown;q=0.5, */*;q=0.1", "text/markdown"),
        ("text/*;q=0.5, text/csv", "text/csv"),
        ("*/*, application/json;q=0", "text/markdown"),
        ("application/json;q=0, text/*;q=0", None),
        ("text/csv;q=0", None),
        ("application/xml", None),
        ("text/html, application/xhtml+xml, */*;q=0.8", "application/json"),
        ("text/markdown; charset=utf-8; variant=GFM", "text/markdown"),
        ("text/markdown;variant=GFM;q=0.2, text/csv;q=0.3", "text/csv"),
        ("text/csv;q=2", None),
        ("text/csv;q=high, text/markdown;q=0.001", "text/markdown"),
        ("nonsense", None),
        (", ,text/csv,", "text/csv"),
        ("text/markdown ; q = 0.3 , text/csv;q=0.2", "text/markdown"),
    ],
)
def test_preferred(accept: str, chosen: str | None) -> None:
    assert preferred(accept, OFFERED) == chosen


@pytest.mark.parametrize(
    ("if_none_match", "has"),
    [
        (None, False),
        ('"1"', True),
        ('W/"1"', True),
        ("*", True),
        ('"2", "1"', True),
        ('"2"', False),
        ('"1.md"', False),
        ("1", False),
        ("", False),
    ],
)
def test_already_has(if_none_match: str | None, has: bool) -> None:
    assert already_has(if_none_match, '"1"') is has
