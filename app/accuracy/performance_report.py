"""The accuracy of the speed as Markdown: against goals, and by kind, accelerator, engine and load."""

import math
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple

from app.accuracy.performance import Predictor, RatioSummary, SpeedAccuracy, SpeedComparison, summarise_ratios
from app.accuracy.report import markdown_rows, percent
from app.domain.value import Given

KNOWN_LOADS = ("closed", "burst", "static_batch")
"""Loads of which the batch or the concurrency is recorded."""
QUANTITIES = (("throughput", "Output tokens/s"), ("ttft", "TTFT"), ("tpot", "TPOT"))
BESIDE: tuple[tuple[str, Predictor], ...] = (("- nothing fitted", "unfitted_ratio"), ("- in sample", "in_sample_ratio"))
HEADER = ("rows", "n", "mean error", "median", "10 % / median / 90 % of predicted / recorded", "in 25 %", "in 2x", "in the range")


class KnownMiss(Given):
    """Series that the model is known to miss, and why."""

    series: str
    """Name of the series, `*` for any part."""
    why: str
    """Mechanism."""
    source: str
    """Where it was seen."""

    def holds(self, series: str) -> bool:
        """Whether a series is meant."""
        return fnmatchcase(series, self.series)


class KnownMisses(Given):
    """Series that the model is known to miss."""

    misses: tuple[KnownMiss, ...]
    """The first that matches counts."""


class SpeedGoal(NamedTuple):
    """What the errors of some rows are asked to reach; None is not asked."""

    title: str
    holds: Callable[[SpeedComparison], bool]
    mean_error_ratio: float | None = None
    median_error_ratio: float | None = None
    within_quarter_ratio: float | None = None
    within_double_ratio: float | None = None

    def met(self, found: RatioSummary) -> bool:
        """Whether every figure that is asked for is reached."""
        return (
            (self.mean_error_ratio is None or found.mean_error_ratio <= self.mean_error_ratio)
            and (self.median_error_ratio is None or found.median_error_ratio <= self.median_error_ratio)
            and (self.within_quarter_ratio is None or found.within_quarter_ratio >= self.within_quarter_ratio)
            and (self.within_double_ratio is None or found.within_double_ratio >= self.within_double_ratio)
        )

    def text(self) -> str:
        """The goal in words."""
        parts = [
            f"{name} {percent(value)}"
            for name, value in (("mean", self.mean_error_ratio), ("median", self.median_error_ratio))
            if value is not None
        ]
        shares = (("in 25 %", self.within_quarter_ratio), ("in 2x", self.within_double_ratio))
        return ", ".join([*parts, *(f"{percent(value)} {name}" for name, value in shares if value is not None)])


def _served(quantity: str) -> Callable[[SpeedComparison], bool]:
    return lambda row: row.source == "serving points" and row.quantity == quantity


def _one_set(quantity: str) -> Callable[[SpeedComparison], bool]:
    def holds(row: SpeedComparison) -> bool:
        return _served(quantity)(row) and (row.model, row.engine, row.gpu) == ("llama-3.1-70b", "vllm", "h100-sxm-80gb")

    return holds


def _rates(kind: str, *loads: str) -> Callable[[SpeedComparison], bool]:
    return lambda row: row.source == "throughput cases" and row.quantity == "throughput" and row.kind == kind and row.load in loads


GOALS = (
    SpeedGoal("serving points, TPOT", _served("tpot"), 0.15, None, 0.78, 0.99),
    SpeedGoal("serving points, TTFT", _served("ttft"), 0.28, None, 0.55, 0.88),
    SpeedGoal("Llama-3.1-70B, vLLM, H100, TPOT", _one_set("tpot"), 0.08),
    SpeedGoal("Llama-3.1-70B, vLLM, H100, TTFT", _one_set("ttft"), 0.22),
    SpeedGoal("dense, load known, tokens/s", _rates("dense", *KNOWN_LOADS), None, None, 0.75, 0.96),
    SpeedGoal("dense, offline, tokens/s", _rates("dense", "offline"), None, None, 0.82, 0.98),
    SpeedGoal("experts and MLA, tokens/s", _rates("moe", "offline", *KNOWN_LOADS), None, None, 0.55, 0.9),
    SpeedGoal("single stream, TPOT", lambda row: row.single and row.quantity == "tpot", None, 0.1),
)


def speed_summary(found: SpeedAccuracy) -> str:
    """Rows predicted by constants that have not seen their family of models, against the goals; the catalog's constants beside them."""
    judged = len({row.case for row in found.comparisons})
    lines = [
        f"{judged} of {found.num_records} recorded loads are judged, each by constants fitted without it: serving points without any row "
        "of their family of models, published figures without any of a fifth of the series. Beside them the same rows by the priors, with "
        "nothing fitted (their centres were moved once towards all serving points and are not blind to the level of those), and in sample, "
        "by the constants of the catalog, which know all. Errors are of predicted / recorded; the range is the one that the answer states, "
        "around the prediction left out.",
        "",
        *markdown_rows((*HEADER, "goal", "met"), _goal_rows(found.comparisons)),
        "",
        "Rows in the stated range, by class:",
        "",
        *markdown_rows(("engine", "kind", *(title for _, title in QUANTITIES)), _coverage(found.comparisons)),
    ]
    return "\n".join(lines) + "\n"


def speed_report(found: SpeedAccuracy, misses: Iterable[KnownMiss] = (), *, worst: int = 12) -> str:
    """The summary, every quantity by kind, accelerator, engine, load and model, the worst series, and what is not judged."""
    known, lines = list(misses), list[str]()
    for quantity, title in QUANTITIES:
        own = [row for row in found.comparisons if row.quantity == quantity]
        lines += ["", f"## {title}, left out", "", *markdown_rows(HEADER, _groups(own)), "", "Worst series:", ""]
        lines += [_miss(name, rows, known) for name, rows in _worst(own)[:worst]]
    lines += ["", "## Not judged", "", *(f"- {each.id}: {each.reason}" for each in found.left_out)]
    return speed_summary(found) + "\n".join(lines) + "\n"


def _goal_rows(comparisons: Iterable[SpeedComparison]) -> Iterator[list[str]]:
    rows = list(comparisons)
    for goal in GOALS:
        own = [row for row in rows if goal.holds(row)]
        found = summarise_ratios(own)
        if found is not None:
            yield [*_cells(goal.title, found), goal.text(), "yes" if goal.met(found) else "no"]
        for title, constants in BESIDE:
            if (other := summarise_ratios(own, constants)) is not None:
                yield [*_cells(title, other)[:-1], "", "", ""]


def _coverage(rows: list[SpeedComparison]) -> Iterator[list[str]]:
    for engine, kind in sorted({(row.engine, row.kind) for row in rows}):
        cells: list[str] = [engine, kind]
        for quantity, _ in QUANTITIES:
            held = [row.held for row in rows if (row.engine, row.kind, row.quantity) == (engine, kind, quantity)]
            cells.append(f"{percent(sum(held) / len(held))} of {len(held)}" if held else "")
        yield cells


def _worst(rows: Iterable[SpeedComparison]) -> list[tuple[str, list[SpeedComparison]]]:
    """Series by the distance of their mean logarithm from 0, largest first."""
    series: dict[str, list[SpeedComparison]] = {}
    for row in rows:
        series.setdefault(row.series, []).append(row)
    return sorted(series.items(), key=lambda each: -abs(_bias(each[1])))


def _bias(rows: list[SpeedComparison]) -> float:
    return math.fsum(math.log(row.predicted_ratio) for row in rows) / len(rows)


def _miss(name: str, rows: list[SpeedComparison], known: Iterable[KnownMiss]) -> str:
    why = next((each.why for each in known if each.holds(name)), "no mechanism known")
    return f"- {name} ({len(rows)} rows): x {math.exp(_bias(rows)):.3g}; {why}"


def _groups(rows: list[SpeedComparison]) -> Iterator[list[str]]:
    for field in ("source", "kind", "gpu_class", "gpu", "engine", "load", "model"):
        for value in sorted({getattr(row, field) for row in rows}):
            found = summarise_ratios(row for row in rows if getattr(row, field) == value)
            if found is not None:
                yield _cells(f"{field}: {value}", found)


def _cells(name: str, found: RatioSummary) -> list[str]:
    spread = f"{found.low_ratio:.2f} / {found.middle_ratio:.2f} / {found.high_ratio:.2f}"
    shares = (found.within_quarter_ratio, found.within_double_ratio, found.held_ratio)
    errors = (found.mean_error_ratio, found.median_error_ratio)
    return [name, str(found.num_rows), *map(percent, errors), spread, *map(percent, shares)]
