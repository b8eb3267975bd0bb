"""The text of a metrics endpoint: what is read, and what is refused with its line."""

import pytest

from app.domain.errors import InvalidInput
from app.importers.scrape_text import MAX_LABELS, MAX_LINES, read_exposition


def read(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    found = read_exposition(text, lambda name: name, pointer="/scrapes/0")
    return {name: dict(values) for name, values in found.series.items()}


@pytest.mark.parametrize(
    ("line", "labels", "value"),
    [
        ("a 1", (), 1.0),
        ("a{} 1", (), 1.0),
        ('a{b="c"} 1e-3', (("b", "c"),), 0.001),
        ('a{b="c",} 1', (("b", "c"),), 1.0),
        ('a{d="e",b="c"} 1', (("b", "c"), ("d", "e")), 1.0),
        ('a { b = "c" , d="e" } 1', (("b", "c"), ("d", "e")), 1.0),
        ('a{b="} 1"} 2', (("b", "} 1"),), 2.0),
        ('a{b="say \\"x\\"\\n\\\\"} 1', (("b", 'say "x"\n\\'),), 1.0),
        ('a{b="c"}1', (("b", "c"),), 1.0),
        ("  a 1  ", (), 1.0),
        ("a\t1\r", (), 1.0),
        ("a -.5", (), -0.5),
        ("a 1 1700000000000", (), 1.0),
        ('a 5 # {trace_id="x"} 0.5 1700000000.1', (), 5.0),
    ],
    ids=lambda each: each if isinstance(each, str) else None,
)
def test_a_sample_is_read(line: str, labels: tuple[tuple[str, str], ...], value: float) -> None:
    assert read(f"# TYPE a gauge\n\n{line}\n# EOF\n") == {"a": {labels: value}}


@pytest.mark.parametrize("value", ["NaN", "nan", "+Inf", "-Inf"])
def test_what_is_no_number_was_not_measured(value: str) -> None:
    assert read(f"a {value}\nb 1\n") == {"b": {(): 1.0}}


@pytest.mark.parametrize(
    "line",
    [
        "a",
        "a1",
        "a{b=c} 1",
        'a{b="c" 1',
        'a{b="c" d="e"} 1',
        'a{b="c"} ',
        "a 1_0",
        "a 0x10",
        "a 1,5",
        "a 1 2 3",
        "a one",
        "<html>",
        '{"status": "success"}',
        "1a 2",
    ],
)
def test_a_line_that_is_no_sample_is_refused_with_its_number_and_text(line: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read(f"# HELP a what it is\nfine 1\n{line}\nalso_fine 2\n")
    assert str(refused.value).startswith(f"Line 3 is no sample: {line.strip()!r}")
    assert refused.value.field == "/scrapes/0"
    assert refused.value.value == repr(line.strip())
    assert "vllm:num_requests_running" in str(refused.value.expected)


def test_a_cut_off_text_is_refused_at_its_end() -> None:
    with pytest.raises(InvalidInput, match="Line 2 is no sample"):
        read('a{b="c"} 1\na{b="d')


def test_a_long_line_is_quoted_in_part() -> None:
    with pytest.raises(InvalidInput) as refused:
        read("a" * 5000)
    assert len(str(refused.value.value)) < 200


@pytest.mark.parametrize("text", ["", "\n\n", "# TYPE a gauge\n"], ids=["empty", "blank", "comments"])
def test_a_text_without_samples_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="no sample"):
        read(text)


def test_two_values_of_one_series_are_refused() -> None:
    with pytest.raises(InvalidInput, match="Line 2 gives a series a second value"):
        read('a{b="c",d="e"} 1\na{d="e",b="c"} 2\n')


def test_more_lines_or_labels_than_any_engine_writes_are_refused() -> None:
    with pytest.raises(InvalidInput, match="lines"):
        read("a 1\n" * (MAX_LINES + 1))
    many = ",".join(f'l{number}="v"' for number in range(MAX_LABELS + 1))
    with pytest.raises(InvalidInput, match="labels"):
        read(f"a{{{many}}} 1")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("a 1\n", None), ("a 1 1700000000000\nb 1 1700000001500\n", 1700000001.5), ("a 1 1700000000.5\n# EOF\n", 1700000000.5)],
    ids=["none", "milliseconds", "openmetrics"],
)
def test_timestamps_tell_when_a_scrape_was_taken(text: str, seconds: float | None) -> None:
    assert read_exposition(text, lambda name: name, pointer="").taken_at_s == seconds


def test_only_the_wanted_series_are_kept_and_all_are_checked() -> None:
    found = read_exposition("a 1\nb 2\n", {"b": "ours"}.get, pointer="")
    assert found.series == {"ours": {(): 2.0}}
    assert found.names == {"a", "b"}
