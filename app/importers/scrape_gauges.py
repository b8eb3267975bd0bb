"""How one metric of ours is read from the gauges of a scrape."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from app.importers.scrape_readings import Figure, counter_names, names_of
from app.importers.scrape_window import Series, Window

Pick = Literal["mean", "min", "max"]
"""Which of several series speaks for all."""


@dataclass(frozen=True)
class Amount:
    """A gauge that adds up over labels, such as requests; several engines: per engine."""

    metric: str
    of: Sequence[Series]
    factor: float = 1.0
    also: Sequence[Series] = ()
    """Other gauges that are part of it, where they are there."""
    is_counter: ClassVar[bool] = False

    def read(self, window: Window) -> Iterator[Figure]:
        """Figures of the first name that the window holds."""
        for each in self.of:
            points = window.of(each)
            if points:
                extra = [point for other in self.also for point in window.of(other)]
                value = sum(point.mean for point in [*points, *extra]) / window.num_engines * self.factor
                among = f"mean of the scrapes, sum / {window.num_engines} engines" if window.num_engines > 1 else "mean of the scrapes"
                yield Figure(self.metric, value, names_of(each, self.also if extra else ()), among)
                return

    def names(self) -> Iterator[str]:
        """Names that it looks for."""
        return counter_names([*self.of, *self.also])


@dataclass(frozen=True)
class Level:
    """A gauge that does not add up, such as a share or a size: the mean over its series. Below zero (-1) it is not known."""

    metric: str
    of: Sequence[Series]
    factor: float = 1.0
    is_positive: bool = False
    """Zero stands for not known."""
    pick: Pick = "mean"
    is_counter: ClassVar[bool] = False

    def read(self, window: Window) -> Iterator[Figure]:
        """Figures of the first name that the window holds."""
        for each in self.of:
            points = [point for point in window.of(each) if point.after > 0 or (point.after == 0 and not self.is_positive)]
            if points:
                value = _picked(self.pick, [point.mean for point in points]) * self.factor
                yield Figure(self.metric, value, str(each), _of_gauge(points, self.pick))
                return

    def names(self) -> Iterator[str]:
        """Names that it looks for."""
        return counter_names(self.of)


@dataclass(frozen=True)
class Quotient:
    """One gauge / the sum of others, series by series; of several the mean or the extreme."""

    metric: str
    part: Series
    whole: Sequence[Series]
    pick: Pick = "mean"
    while_at_least: tuple[Series, float] | None = None
    """Only of devices for which this gauge is at least so high, where it is there."""
    is_counter: ClassVar[bool] = False

    def read(self, window: Window) -> Iterator[Figure]:
        """Figures of the first name that the window holds."""
        others = [window.points.get(each.name, {}) for each in self.whole]
        busy = window.points.get(self.while_at_least[0].name, {}) if self.while_at_least else {}
        values = []
        for labels, point in window.points.get(self.part.name, {}).items():
            below = sum(other[labels].mean for other in others if labels in other)
            is_busy = self.while_at_least is None or labels not in busy or busy[labels].mean >= self.while_at_least[1]
            if below > 0 and point.mean >= 0 and is_busy and labels in others[0]:
                values.append(point.mean / below)
        if values:
            name = f"{self.part} / {' + '.join(str(each) for each in self.whole)}"
            yield Figure(self.metric, _picked(self.pick, values), name, _of_gauge(values, self.pick))

    def names(self) -> Iterator[str]:
        """Names that it looks for."""
        extra = [self.while_at_least[0]] if self.while_at_least else []
        return counter_names([self.part, *self.whole, *extra])


@dataclass(frozen=True)
class Changed:
    """Number of series whose gauge, the code of the last event, is another than before; a single scrape: is not zero."""

    metric: str
    of: Series
    is_counter: ClassVar[bool] = False

    def read(self, window: Window) -> Iterator[Figure]:
        """Figures of the first name that the window holds."""
        points = window.of(self.of)
        if points:
            changed = sum(point.after > 0 and point.before != point.after for point in points)
            yield Figure(self.metric, changed, str(self.of), "series whose code is new")

    def names(self) -> Iterator[str]:
        """Names that it looks for."""
        return counter_names([self.of])


def _picked(pick: Pick, values: Sequence[float]) -> float:
    return sum(values) / len(values) if pick == "mean" else min(values) if pick == "min" else max(values)


def _of_gauge(points: Sequence[object], pick: Pick = "mean") -> str:
    return "mean of the scrapes" if len(points) == 1 else f"mean of the scrapes, {pick} of {len(points)} series"


@dataclass(frozen=True)
class SinceStart:
    """A counter as the later scrape holds it: what happened since the engine started, over all its series."""

    metric: str
    of: Sequence[Series]
    is_counter: ClassVar[bool] = True

    def read(self, window: Window) -> Iterator[Figure]:
        """The count of the first name that the window holds."""
        for each in self.of:
            if points := window.of(each):
                yield Figure(self.metric, sum(point.after for point in points), str(each), "as of the later scrape")
                return

    def names(self) -> Iterator[str]:
        """Names that it looks for."""
        return counter_names(self.of)
