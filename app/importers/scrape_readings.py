"""How one metric of ours is read from the series of a scrape: kinds of readings that the maps of the engines list."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Protocol

from app.domain.metrics_latency import PERCENTILES
from app.importers.scrape_window import Series, Window

Pick = Literal["mean", "min", "max"]
"""Which of several series speaks for all."""
LEVELS = {name: int(name[1:]) / 100 for name in PERCENTILES}
"""Share of the values that a percentile is not exceeded by."""


class Figure(NamedTuple):
    """One metric, and where it came from."""

    metric: str
    value: float
    name: str
    """Name and labels in the scrape."""
    how: str
    """What was done with it."""
    bounds: tuple[float, float] | None = None
    """Bounds of the bucket that a percentile lies in."""


class Reading(Protocol):
    """A way to read metrics."""

    def read(self, window: Window) -> Iterator[Figure]:
        """The metrics that the window has a value for."""
        ...

    def names(self) -> Iterator[str]:
        """Names that it looks for."""
        ...

    @property
    def is_counter(self) -> bool:
        """Whether these never fall while an engine runs."""
        ...


def series(*names: str) -> tuple[Series, ...]:
    """Several names of one thing, the newest first."""
    return tuple(Series(name) for name in names)


@dataclass(frozen=True)
class Distribution:
    """Percentiles and mean of a histogram, from what fell into it; `metric` has {} where the statistic goes."""

    metric: str
    of: Sequence[Series]
    factor: float = 1.0
    is_counter: ClassVar[bool] = True

    def read(self, window: Window) -> Iterator[Figure]:
        """Figures of the first name that the window holds."""
        for each in self.of:
            histogram = window.histogram(each)
            if histogram is None:
                continue
            for name, share in LEVELS.items():
                found = histogram.quantile(share)
                if found is not None:
                    bounds = (found.lower * self.factor, found.upper * self.factor)
                    how = f"{name} of the buckets, interpolated"
                    yield Figure(self.metric.format(name), found.value * self.factor, str(each), how, bounds)
            if histogram.mean is not None:
                yield Figure(self.metric.format("mean"), histogram.mean * self.factor, str(each), "sum / count")
            return

    def names(self) -> Iterator[str]:
        """Names that it looks for."""
        return _of_histograms(self.of)


@dataclass(frozen=True)
class Mean:
    """Mean of a histogram."""

    metric: str
    of: Sequence[Series]
    is_counter: ClassVar[bool] = True

    def read(self, window: Window) -> Iterator[Figure]:
        """Figures of the first name that the window holds."""
        for each in self.of:
            histogram = window.histogram(each)
            if histogram is not None:
                if histogram.mean is not None:
                    yield Figure(self.metric, histogram.mean, str(each), "sum / count")
                return

    def names(self) -> Iterator[str]:
        """Names that it looks for."""
        return _of_histograms(self.of)


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
                yield Figure(self.metric, value, _named(each, self.also if extra else ()), among)
                return

    def names(self) -> Iterator[str]:
        """Names that it looks for."""
        return _with_total([*self.of, *self.also])


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
        return _with_total(self.of)


@dataclass(frozen=True)
class Rate:
    """Growth of a counter / seconds; several engines: per engine."""

    metric: str
    of: Sequence[Series]
    factor: float = 1.0
    also: Sequence[Series] = ()
    """Other counters that are part of it, where they are there."""
    is_per_series: bool = False
    """Each series is a process of its own, however many engines it serves."""
    is_counter: ClassVar[bool] = True

    def read(self, window: Window) -> Iterator[Figure]:
        """Figures of the first name that the window holds."""
        for each in self.of:
            growth = window.increase(each)
            if growth is not None:
                extra = [more for other in self.also if (more := window.increase(other)) is not None]
                if window.seconds:
                    among, of = (len(window.of(each)), " / series") if self.is_per_series else (window.num_engines, " / engines")
                    value = (growth + sum(extra)) * self.factor / window.seconds / max(among, 1)
                    value = min(value, 1.0) if self.metric.endswith("_ratio") else value
                    yield Figure(
                        self.metric, value, _named(each, self.also if extra else ()), "increase / seconds" + (of if among > 1 else "")
                    )
                return

    def names(self) -> Iterator[str]:
        """Names that it looks for."""
        return _with_total([*self.of, *self.also])


@dataclass(frozen=True)
class Ratio:
    """Growth of one counter / growth of another; the first pair that grew. A share of counters read a moment apart is at most one."""

    metric: str
    pairs: Sequence[tuple[Series, Series]]
    factor: float = 1.0
    is_counter: ClassVar[bool] = True

    def read(self, window: Window) -> Iterator[Figure]:
        """Figures of the first name that the window holds."""
        for part, whole in self.pairs:
            above, below = window.increase(part), window.increase(whole)
            if above is not None and below:
                value = above / below * self.factor
                value = min(value, 1.0) if self.metric.endswith("_ratio") else value
                yield Figure(self.metric, value, f"{part} / {whole}", "increase / increase")
                return

    def names(self) -> Iterator[str]:
        """Names that it looks for."""
        return _with_total([each for pair in self.pairs for each in pair])


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
        return _with_total([self.part, *self.whole, *extra])


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
        return _with_total([self.of])


def _named(of: Series, also: Sequence[Series]) -> str:
    return " + ".join(str(each) for each in (of, *also))


def _of_histograms(of: Sequence[Series]) -> Iterator[str]:
    return (f"{each.name}_{part}" for each in of for part in ("bucket", "count", "sum"))


def _with_total(of: Sequence[Series]) -> Iterator[str]:
    return (name for each in of for name in (each.name, f"{each.name}_total"))


def _picked(pick: Pick, values: Sequence[float]) -> float:
    return sum(values) / len(values) if pick == "mean" else min(values) if pick == "min" else max(values)


def _of_gauge(points: Sequence[object], pick: Pick = "mean") -> str:
    return "mean of the scrapes" if len(points) == 1 else f"mean of the scrapes, {pick} of {len(points)} series"
