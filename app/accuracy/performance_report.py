"""The accuracy of the speed as Markdown: against goals, and by kind, accelerator, engine and load."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from app.accuracy.performance import RatioSummary, SpeedAccuracy, SpeedComparison, summarise_ratios
from app.accuracy.report import markdown_table, percent

KNOWN_LOADS = ("closed", "burst", "static_batch", "open")
HEADER = ("rows", "n", "mean error", "median", "10 % / median / 90 % of predicted / recorded", "in 25 %", "in 2x", "in the range")


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
    """The rows that were not used for fitting against the goals, those of the fit beside them."""
    judged = len({row.case for row in found.comparisons})
    lines = [
        f"{judged} of {found.num_records} recorded loads are judged. Of four series (model, accelerator and engine) one is scored with "
        "constants that were fitted without it; the rows of the others (fit) are predicted with those of the catalog, which know all. "
        "Errors are of predicted / recorded; the range is the one that the answer states.",
        "",
        *markdown_table((*HEADER, "goal", "met"), _goal_rows(found.comparisons)),
    ]
    return "\n".join(lines) + "\n"


def speed_report(found: SpeedAccuracy, *, worst: int = 12) -> str:
    """The summary, every quantity by kind, accelerator, engine and load, the worst misses, and what is not judged."""
    scored = [row for row in found.comparisons if row.part == "scored"]
    lines: list[str] = []
    for quantity, title in (("throughput", "Output tokens/s"), ("ttft", "TTFT"), ("tpot", "TPOT")):
        own = [row for row in scored if row.quantity == quantity]
        lines += ["", f"## {title}, rows not used for fitting", "", *markdown_table(HEADER, _groups(own))]
        lines += ["", "Worst:", ""]
        worst_first = sorted(own, key=lambda row: -max(row.predicted_ratio, 1 / row.predicted_ratio))[:worst]
        lines += [f"- {row.case} ({row.model}, {row.gpu}, {row.engine}, {row.load}): x {row.predicted_ratio:.3g}" for row in worst_first]
    lines += ["", "## Not judged", "", *(f"- {each.id}: {each.reason}" for each in found.left_out)]
    return speed_summary(found) + "\n".join(lines) + "\n"


def _goal_rows(comparisons: Iterable[SpeedComparison]) -> Iterator[list[str]]:
    rows = list(comparisons)
    for goal in GOALS:
        for part, name in (("scored", goal.title), ("fit", f"{goal.title} (fit)")):
            found = summarise_ratios(row for row in rows if row.part == part and goal.holds(row))
            if found is not None:
                judged = part == "scored"
                yield [*_cells(name, found), goal.text() if judged else "", ("yes" if goal.met(found) else "no") if judged else ""]


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
