"""Reading figures from log lines: patterns whose group names say field and unit, over lines freed of colours and progress bars."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from app.domain.engine_start import EngineStart, StopName
from app.domain.errors import InvalidInput
from app.domain.precision import KvChoice
from app.domain.provenance import Note
from app.domain.units import GIB, MIB

NUMBER = r"-?[\d,]*\.?\d+(?:e[+-]?\d+)?"

Figure = int | float | str
Reading = dict[str, list[Figure]]
"""Every value that was printed, by field, in the order of the log."""

_ESCAPES = re.compile(r"(?:\x1b|\\x1b|\\u001b|\\033|\^\[)\[[0-9;?]*[A-Za-z]|(?<![\w\]])\[[01](?:;\d{2})?m")
"""Colours, also where a copy spells the escape character or lost it."""
_WRAPPED = ("log", "message", "msg", "MESSAGE", "textPayload", "body", "line")
"""Where collectors put the printed line """
_ESCAPED_BREAK = re.compile(r"(?:\\r)?\\n")
_PROGRESS = re.compile(r"\d{1,3}%\|[^|]{0,300}\|[^\[\]|]{0,40}\[[^\]]{0,60}\]")
"""A progress bar: other processes' lines go on behind it."""
_SIZED = re.compile(r"\d\s?(?:GiB|GB|MiB|MB)\b")
_ABOUT_MEMORY = re.compile(r"memory|cache|weight|buffer|activation|pool|vram", re.IGNORECASE)
MAX_NOT_UNDERSTOOD = 10
MAX_LINE = 16_384
"""Characters of a line that are read: the longest that engines print, their configuration, has 6,000."""
MAX_PREFIX = 120
"""Characters before the JSON object of a collector."""
MOST_LINES_OF_A_STRING = 3
"""A log of so few lines may be one string with its line breaks spelled out."""


class Printed(NamedTuple):
    """Figures of a line; a group of the pattern is called `field__unit`, the unit one of UNITS."""

    where: str
    """What every such line contains: it is looked for first, since most lines are others."""
    pattern: re.Pattern[str]


class Failure(NamedTuple):
    """A line with which an engine gives up; without a check it is an allocation that failed, wherever the start was."""

    where: str
    pattern: re.Pattern[str]
    check: StopName | None

    def match(self, line: str) -> re.Match[str] | None:
        """The failure, when the line is one."""
        return self.pattern.search(line) if self.where in line else None


class EngineLines(NamedTuple):
    """What one engine prints."""

    begins: re.Pattern[str]
    """The first line of a start."""
    ready: re.Pattern[str]
    """The line after which it serves."""
    printed: Sequence[Printed]
    """Figures."""
    failures: Sequence[Failure]
    """How it gives up."""
    known: re.Pattern[str]
    """Lines with sizes that say nothing about the accelerator's memory."""
    weights: str
    """The figure that shows that the weights are loaded."""
    pool: str
    """The figure that shows that the KV cache pool is made."""
    interpret: Callable[[Reading, list[Note]], dict[str, object]]
    """From what was printed to the fields of EngineStart, with notes on what was ambiguous."""


class Found(NamedTuple):
    """What one start printed."""

    reading: Reading
    failure: tuple[StopName, re.Match[str]] | None
    not_understood: list[str]

    @property
    def num_figures(self) -> int:
        """Different figures, and the failure: how much of the log is of this engine."""
        return len(self.reading) + (self.failure is not None)

    @property
    def is_measured(self) -> bool:
        """Whether it got further than its settings."""
        return bool(set(self.reading) - SETTINGS - OF_THE_DEVICE) or self.failure is not None


def lines_of(text: str) -> list[str]:
    """The lines of a log without colours and progress bars; what overwrites a line on a terminal counts as a line of its own."""
    clean = (_PROGRESS.sub("", _ESCAPES.sub("", line[:MAX_LINE])).strip() for line in _unwrapped(text))
    return [line for line in clean if line]


def _unwrapped(text: str) -> Iterator[str]:
    """The printed lines of a log: out of JSON objects, one a line, and out of one line whose breaks are spelled out."""
    broken = re.split(r"[\r\n]+", _plain_string(text))
    if len(broken) <= MOST_LINES_OF_A_STRING:
        broken = [part for line in broken for part in (line if line.startswith("{") else _ESCAPED_BREAK.sub("\n", line)).split("\n")]
    for line in broken:
        start = line.find("{", 0, MAX_PREFIX) if line.endswith("}") else -1
        yield from _inside(line[start:]) or [line] if start >= 0 else [line]


def _plain_string(text: str) -> str:
    """What a JSON string holds; any other text as it is."""
    if not (text[:2].strip("\ufeff").startswith('"') and text.rstrip().endswith('"')):
        return text
    try:
        return str(json.loads(text))
    except ValueError:
        return text


def _inside(line: str) -> list[str]:
    """The printed lines in a JSON object; none where it is not one of a collector."""
    if not any(f'"{name}"' in line[:MAX_LINE] for name in _WRAPPED):
        return []
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return []
    texts = (found.get(name) for name in _WRAPPED) if isinstance(found, dict) else ()
    return next((re.split(r"[\r\n]+", text) for text in texts if isinstance(text, str)), [])


def spoken(engine: EngineLines, text: str) -> EngineLines:
    """The engine with those of its lines only that the text can hold: what is looked for in every line is then short."""
    printed = tuple(each for each in engine.printed if each.where in text)
    return engine._replace(printed=printed, failures=tuple(each for each in engine.failures if each.where in text))


def lines_to_read(engine: EngineLines, lines: Sequence[str]) -> list[str]:
    """The lines that begin or end a start, hold a figure or a failure, or a size that may be one."""
    literals = [re.escape(where) for where in (*(each.where for each in engine.printed), *(each.where for each in engine.failures))]
    telling = re.compile("|".join((*literals, engine.begins.pattern, engine.ready.pattern, _SIZED.pattern)))
    return [line for line in lines if telling.search(line)]


def starts(engine: EngineLines, lines: Sequence[str]) -> list[list[str]]:
    """The lines of each start; one begins where the engine introduces itself again after it had printed figures or failed."""
    found: list[list[str]] = [[]]
    loaded = False
    for line in lines:
        if loaded and engine.begins.search(line):
            found.append([])
            loaded = False
        found[-1].append(line)
        loaded = loaded or _is_loaded(engine, line)
    return found


def _is_loaded(engine: EngineLines, line: str) -> bool:
    fields = {name for name, _ in _figures(engine, line)}
    return bool(fields - SETTINGS - OF_THE_DEVICE) or any(failure.match(line) for failure in engine.failures)


def read_lines(engine: EngineLines, lines: Sequence[str]) -> Found:
    """Figures and failure of one start."""
    reading: Reading = {}
    failure: tuple[StopName, re.Match[str]] | None = None
    not_understood: list[str] = []
    for line in lines:
        if engine.ready.search(line):
            return Found(reading, None, not_understood)
        figures = list(_figures(engine, line))
        for name, value in figures:
            reading.setdefault(name, []).append(value)
        if failure is None:
            failure = _failed(engine, line, reading)
        is_known = figures or any(each.match(line) for each in engine.failures) or engine.known.search(line)
        if not is_known and _SIZED.search(line) and _ABOUT_MEMORY.search(line) and line[:200] not in not_understood:
            not_understood.append(line[:200])
    return Found(reading, failure, not_understood[:MAX_NOT_UNDERSTOOD])


def _figures(engine: EngineLines, line: str) -> Iterator[tuple[str, Figure]]:
    for where, pattern in engine.printed:
        match = pattern.search(line) if where in line else None
        for group, text in match.groupdict().items() if match else ():
            if text is not None:
                name, unit = group.split("__")
                value = UNITS[unit](text)
                if value is not None:
                    yield name, value


def _failed(engine: EngineLines, line: str, reading: Mapping[str, Sequence[Figure]]) -> tuple[StopName, re.Match[str]] | None:
    for failure in engine.failures:
        if match := failure.match(line):
            return failure.check or _stage(engine, reading), match
    return None


def _stage(engine: EngineLines, reading: Mapping[str, Sequence[Figure]]) -> StopName:
    """What a start was at when an allocation failed: weights, then the profile run, then, with the pool made, the graphs."""
    if engine.pool in reading:
        return "graph_capture"
    return "profile_run" if engine.weights in reading else "weights_load"


def _number(text: str) -> float:
    number = float(text.replace(",", ""))
    if not math.isfinite(number):
        raise InvalidInput(f"the log prints the number {text:.40}", field="/log", value=text[:40], expected="numbers below 1.8e308")
    return number


_KV_FORMATS: tuple[tuple[str, KvChoice], ...] = (
    ("auto", "auto"),
    ("fp8", "fp8"),
    ("float8", "fp8"),
    ("bfloat16", "bf16"),
    ("bf16", "bf16"),
    ("float16", "fp16"),
    ("half", "fp16"),
    ("fp16", "fp16"),
    ("f16", "fp16"),
    ("int8", "int8"),
    ("nvfp4", "fp4"),
    ("fp4", "fp4"),
    ("float4", "fp4"),
    ("q8_0", "q8_0"),
)


def _kv_format(text: str) -> str | None:
    plain = text.lower().removeprefix("torch.")
    return next((choice for beginning, choice in _KV_FORMATS if plain.startswith(beginning)), None)


UNITS: Mapping[str, Callable[[str], Figure | None]] = {
    "gib": lambda text: round(_number(text) * GIB),
    "mib": lambda text: round(_number(text) * MIB),
    "bytes": lambda text: round(_number(text)),
    "int": lambda text: round(_number(text)),
    "float": _number,
    "text": str,
    "kv": _kv_format,
}
SETTINGS = frozenset(
    {
        "engine_version",
        "model",
        "tp",
        "pp",
        "dp",
        "quantization",
        "kv_cache",
        "memory_fraction_ratio",
        "max_model_len_tokens",
        "max_num_seqs",
        "max_num_batched_tokens",
        "block_size_tokens",
        "num_draft_tokens",
        "enforce_eager",
        "prefix_caching",
        "chunked_prefill",
    }
)
"""Fields that are chosen, not measured."""
OF_THE_DEVICE = frozenset({"memory_bytes", "free_at_start_bytes"})
"""Figures that some engines print before they introduce themselves."""
_SMALLEST = frozenset(
    {"kv_cache_bytes_per_gpu", "kv_cache_tokens", "num_blocks", "max_concurrency_at_max_len_ratio", "free_at_start_bytes"}
)


def reduced(reading: Reading, notes: list[Note]) -> dict[str, object]:
    """One value a field: the last of settings, the smallest pool over the ranks, the largest of what is taken out of it."""
    values: dict[str, object] = {}
    for name, printed in reading.items():
        if name not in EngineStart.model_fields:
            continue
        if name in SETTINGS:
            values[name] = printed[-1]
            distinct = list(dict.fromkeys(str(value) for value in printed))
            if len(distinct) > 1:
                message = f"{name} is printed as {', then '.join(distinct[:5])}: the last one is used."
                notes.append(Note(code="printed_twice", message=message))
        elif name in _SMALLEST:
            values[name] = min(printed)
        else:
            values[name] = max(printed)
    return values
