"""The time that scrapes cover: between two, or since the engine started; and whether it was restarted between them."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from app.domain.errors import InvalidInput
from app.domain.provenance import Note
from app.domain.units import seconds as written
from app.importers.scrape_text import Exposition
from app.importers.scrape_window import Points

STARTED = "process_start_time_seconds"
CLOCKS = ("node_time_seconds", "process_uptime_seconds", "system_uptime_seconds")
"""Gauges that show the time or the age of a process."""
OF_EACH_PROCESS = frozenset({STARTED, "process_cpu_seconds_total", "process_uptime_seconds"})
"""Names that the client libraries of Prometheus export for every process."""
MAX_SECONDS = 1e7
AGREES_RATIO = 0.1
"""The caller's seconds and the text's own time may differ by this share before it is said."""


class Fall(NamedTuple):
    """A counter that is lower than it was: the engine started anew, or the scrapes are the wrong way round."""

    name: str
    before: float
    after: float

    def __str__(self) -> str:
        return f"{self.name} {self.before:.10g} -> {self.after:.10g}"


def fallen(counters: frozenset[str], points: Points) -> Fall | None:
    """The first counter that fell."""
    for name in sorted(points.keys() & counters):
        for point in points[name].values():
            if point.before is not None and point.after < point.before:
                return Fall(name, point.before, point.after)
    started = [point for point in points.get(STARTED, {}).values() if point.before is not None]
    if len(started) == 1 and started[0].before is not None and started[0].after > started[0].before + 1:
        return Fall(f"start of the process ({STARTED})", started[0].before, started[0].after)
    return None


def checked_seconds(seconds: float | None, num_scrapes: int, *, pointer: str) -> None:
    """Raises InvalidInput for a time that is none, or that belongs to no two scrapes."""
    field = f"{pointer}/seconds_between"
    if seconds is None:
        return
    if num_scrapes == 1:
        detail = "The seconds are those between two scrapes, and there is one."
        raise InvalidInput(detail, field=field, value=seconds, expected="two scrapes, or no seconds")
    if not (math.isfinite(seconds) and 0 < seconds <= MAX_SECONDS):
        detail = f"{seconds} is no time between two scrapes."
        raise InvalidInput(detail, field=field, value=seconds, expected=f"seconds above 0, at most {MAX_SECONDS:.0f}")


def seconds_between(texts: Sequence[Exposition], given: float | None, notes: list[Note], *, pointer: str) -> float:
    """Time between the two scrapes [s]: the caller's, or that of their own timestamps or clocks; raises InvalidInput without any."""
    own = _own_seconds(texts)
    if given is None:
        if own is None:
            raise InvalidInput(
                "The scrapes do not tell the time between them.",
                field=f"{pointer}/seconds_between",
                value=None,
                expected="the seconds between the first and the second scrape",
            )
        if own <= 0:
            raise InvalidInput(
                f"By its own time the second scrape is {written(-own)} before the first.",
                field=f"{pointer}/scrapes",
                value=own,
                expected="the earlier scrape first",
            )
        notes.append(Note(code="seconds_from_text", message=f"By their own time the scrapes are {written(own)} apart."))
        return own
    if own is not None and abs(own - given) > AGREES_RATIO * given:
        message = f"The scrapes are {written(given)} apart by the request and {own:.4g} s by their own time: the request's is used."
        notes.append(Note(code="seconds_disagree", message=message))
    return given


def seconds_since_start(text: Exposition) -> float | None:
    """Age of the process at the time of the scrape [s]; None unless the text tells both."""
    starts = list(text.series.get(STARTED, {}).values())
    if text.taken_at_s is None or not starts:
        return None
    age = text.taken_at_s - min(starts)
    return age if age > 0 else None


def _own_seconds(texts: Sequence[Exposition]) -> float | None:
    first, last = texts[0], texts[-1]
    if first.taken_at_s is not None and last.taken_at_s is not None:
        return last.taken_at_s - first.taken_at_s
    for clock in CLOCKS:
        earlier, later = first.series.get(clock, {}), last.series.get(clock, {})
        if len(earlier) == len(later) == 1:
            return next(iter(later.values())) - next(iter(earlier.values()))
    return None
