"""What the series of one engine did between two scrapes, or since its start."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from app.importers.scrape_histogram import INFINITE, Histogram, rising, together
from app.importers.scrape_text import Labels


class Point(NamedTuple):
    """One series: its value in the first scrape (None: not there yet) and in the last."""

    before: float | None
    after: float

    @property
    def increase(self) -> float:
        """Growth of a counter; a series that is new began at zero."""
        return self.after - (self.before or 0.0)

    @property
    def mean(self) -> float:
        """Mean of a gauge over the scrapes that hold it."""
        return self.after if self.before is None else (self.before + self.after) / 2


Points = Mapping[str, Mapping[Labels, Point]]
"""By name and labels."""


@dataclass(frozen=True)
class Series:
    """The series of one name, with only such values of a label as are named."""

    name: str
    where: Mapping[str, Sequence[str]] | None = None

    def __str__(self) -> str:
        wanted = [f'{label}="{"|".join(values)}"' for label, values in (self.where or {}).items()]
        return f"{self.name}{{{','.join(wanted)}}}" if wanted else self.name

    def holds(self, labels: Labels) -> bool:
        """Whether a series of that name with these labels is meant."""
        if not self.where:
            return True
        given = dict(labels)
        return all(given.get(label) in values for label, values in self.where.items())


@dataclass(frozen=True)
class Window:
    """The series of one engine, or of several alike, over a time.

    `seconds` is the time between the scrapes, or since the start of the engine where there is one scrape; None when it is not known.
    """

    points: Points
    seconds: float | None
    num_engines: int = 1

    def of(self, series: Series) -> Sequence[Point]:
        """The points of a series, whatever its other labels are; a counter is found without its `_total` too."""
        for name in (series.name, f"{series.name}_total"):
            if name in self.points:
                return [point for labels, point in self.points[name].items() if series.holds(labels)]
        return ()

    def has_name(self, series: Series) -> bool:
        """Whether there is any series of that name, with these labels or others."""
        return series.name in self.points or f"{series.name}_total" in self.points

    def increase(self, series: Series) -> float | None:
        """Growth of a counter over all its labels; zero where only other labels of that name were ever counted, None without the name."""
        return sum(point.increase for point in self.of(series)) if self.has_name(series) else None

    def first_histogram(self, of: Sequence[Series]) -> tuple[Series, Histogram] | None:
        """The first of these series that the window holds as a histogram, with what fell into it."""
        return next(((each, found) for each in of if (found := self.histogram(each)) is not None), None)

    def histogram(self, series: Series) -> Histogram | None:
        """What fell into a histogram over the time, over all its labels."""
        counts = self.points.get(f"{series.name}_count", {})
        totals = self.points.get(f"{series.name}_sum", {})
        parts: dict[Labels, list[tuple[float, float]]] = {}
        for labels, point in self.points.get(f"{series.name}_bucket", {}).items():
            if series.holds(labels):
                bound, others = _split(labels)
                parts.setdefault(others, []).append((bound, point.increase))
        found = []
        for labels, buckets in parts.items():
            buckets.sort()
            counted = rising(up_to for _, up_to in buckets)
            bounds = tuple(bound for bound, _ in buckets if bound < INFINITE)
            whole = counted[-1] if len(bounds) < len(buckets) else max(counts[labels].increase if labels in counts else 0.0, counted[-1])
            total = max(totals[labels].increase, 0.0) if labels in totals else None
            found.append(Histogram(bounds, counted[: len(bounds)], whole, total))
        return together(found)

    def info(self, name: str) -> Iterator[Mapping[str, str]]:
        """Labels of a series whose labels are the message."""
        return (dict(labels) for labels in self.points.get(name, {}))


def _split(labels: Labels) -> tuple[float, Labels]:
    """(upper bound of a bucket, its other labels)."""
    bound, others = INFINITE, []
    for label in labels:
        if label[0] == "le":
            try:
                bound = float(label[1])
            except ValueError:
                bound = INFINITE
        else:
            others.append(label)
    return bound, tuple(others)
