"""The text that a metrics endpoint answers (Prometheus text format 0.0.4 or OpenMetrics 1.0) -> samples.

Formats: https://prometheus.io/docs/instrumenting/exposition_formats/,
https://prometheus.io/docs/specs/om/open_metrics_spec/. Every line is checked, labels are kept only of the series that somebody reads: the
parser of prometheus_client takes four times as long as a request may.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from app.domain.errors import InvalidInput

MAX_LINES = 400_000
"""Lines of one text: 4 MB of real metrics have 40,000."""
MAX_LABELS = 200
"""Labels of one series: the longest that engines write, vLLM's `cache_config_info`, has about 40."""
MAX_QUOTED = 120

Labels = tuple[tuple[str, str], ...]
"""Names and values of a series' labels, in the order of their names."""

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL_NAME, _LABEL_VALUE = r"[a-zA-Z_][a-zA-Z0-9_]*+", r'(?:[^"\\\n]|\\.)*+'
_LABEL = r'[ \t]*+{name}[ \t]*+=[ \t]*+"{value}"[ \t]*+'
_NUMBER = r"[+-]?(?:(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?|[iI]nf(?:inity)?|[nN]a[nN])"
_EXEMPLAR = r"(?:[ \t]++#[ \t]*+\{.*)?"
_SAMPLE = re.compile(
    rf"[ \t]*+({_NAME})[ \t]*+(?:\{{((?:{_LABEL.format(name=_LABEL_NAME, value=_LABEL_VALUE)}(?:,|(?=\}})))*+)[ \t]*+\}})?"
    rf"[ \t]*+(?<=[\}} \t])({_NUMBER})(?:[ \t]++({_NUMBER}))?{_EXEMPLAR}[ \t\r]*+"
)
_EACH_LABEL = re.compile(_LABEL.format(name=f"({_LABEL_NAME})", value=f"({_LABEL_VALUE})"))
_ESCAPED = re.compile(r"\\(.)")
_SPELLED = {"n": "\n"}
_MILLISECONDS_SINCE = 1e11
"""Timestamps above are milliseconds since 1970 (in 1973), below are seconds (in the year 5138)."""

EXPECTED = 'a line of a metrics endpoint such as `vllm:num_requests_running{engine="0",model_name="m"} 3.0`'


class Exposition(NamedTuple):
    """What one scrape holds of the series that are read."""

    series: Mapping[str, Mapping[Labels, float]]
    """Values by name and labels; series that are NaN or infinite (nothing was measured) are left out."""
    taken_at_s: float | None
    """Time of the scrape, where the text gives its samples timestamps [s since 1970]."""
    names: frozenset[str]
    """Every name in the text, read or not."""


def read_exposition(
    text: str, wanted: Callable[[str], str | None], *, pointer: str, of_each_process: Collection[str] = frozenset()
) -> Exposition:
    """The samples of a text whose names `wanted` gives a name of ours.

    Arguments: the text, a function from a name in the text to the name it is read under (None: not read), the place in the request, and
    names that every process exports: where texts of several processes stand together it is not known whose they are, so they are left
    out.
    Raises InvalidInput with the line's number and text where a line is no sample, where one series comes twice, and for an empty text.
    """
    series: dict[str, dict[Labels, float]] = {}
    known: dict[str, str | None] = {}
    unclear: set[str] = set()
    latest: float | None = None
    lines = text.split("\n")
    if len(lines) > MAX_LINES:
        raise InvalidInput(
            f"The text has {len(lines)} lines.", field=pointer, value=f"{len(lines)} lines", expected=f"at most {MAX_LINES} lines"
        )
    for number, line in enumerate(lines, start=1):
        if not line or line[0] == "#":
            continue
        found = _SAMPLE.fullmatch(line)
        if found is None:
            if line.isspace() or line.lstrip()[0] == "#":
                continue
            raise _malformed(number, line, pointer)
        name, labelled, value, stamp = found.groups()
        ours = known.get(name, "")
        if ours == "":
            ours = known[name] = wanted(name)
        if ours is None:
            continue
        if stamp is not None:
            latest = max(float(stamp), latest or 0.0)
        measured = float(value)
        if not math.isfinite(measured):
            continue
        labels = _labels(labelled, number, line, pointer)
        values = series.setdefault(ours, {})
        if values.setdefault(labels, measured) != measured and name in of_each_process:
            unclear.add(ours)
        elif values[labels] != measured:
            detail = f"Line {number} gives a series a second value: {_quoted(line)}. Texts of several engines need a label for each."
            raise InvalidInput(detail, field=pointer, value=_quoted(line), expected="each series once")
    if not known:
        raise InvalidInput("The text holds no sample.", field=pointer, value=_quoted(text.strip()), expected=EXPECTED)
    return Exposition({name: series[name] for name in series.keys() - unclear}, _seconds(latest), frozenset(known))


def _labels(labelled: str | None, number: int, line: str, pointer: str) -> Labels:
    if not labelled:
        return ()
    pairs = _EACH_LABEL.findall(labelled)
    if len(pairs) > MAX_LABELS:
        raise _malformed(number, line, pointer, why=f"has {len(pairs)} labels, more than {MAX_LABELS}")
    if "\\" in labelled:
        pairs = [(name, _ESCAPED.sub(lambda one: _SPELLED.get(one[1], one[1]), value)) for name, value in pairs]
    pairs.sort()
    return tuple(pairs)


def _malformed(number: int, line: str, pointer: str, why: str = "is no sample") -> InvalidInput:
    detail = f"Line {number} {why}: {_quoted(line)}."
    return InvalidInput(detail, field=pointer, value=_quoted(line), expected=EXPECTED)


def _quoted(text: str) -> str:
    first = text.split("\n", 1)[0].strip()
    return repr(first if len(first) <= MAX_QUOTED else first[:MAX_QUOTED] + "…")


def _seconds(stamp: float | None) -> float | None:
    if stamp is None or not 0 < stamp < float("inf"):
        return None
    return stamp / 1000 if stamp > _MILLISECONDS_SINCE else stamp
