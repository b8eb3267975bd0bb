"""How one metric of ours is read from the series of a scrape: histograms and counters."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

from app.domain.metrics_latency import PERCENTILES
from app.importers.scrape_window import Series, Window

LEVELS = {name: int(name[1:]) / 100 for name in PERCENTILES}
"""Share of the values that a percentile is not exceeded by."""

MOST_OF_WINDOW_RATIO = 0.25
MIN_REQUESTS = 30


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
        first = window.first_histogram(self.of)
        if first is None:
            return
        series, histogram = first
        for name, share in LEVELS.items():
            found = histogram.quantile(share)
            if found is not None:
                bounds = (found.lower * self.factor, found.upper * self.factor)
                how = f"{name} of the buckets, interpolated"
                yield Figure(self.metric.format(name), found.value * self.factor, str(series), how, bounds)
        if histogram.mean is not None:
            yield Figure(self.metric.format("mean"), histogram.mean * self.factor, str(series), "sum / count")

    def names(self) -> Iterator[str]:
        """Names that it looks for."""
        return histogram_names(self.of)


@dataclass(frozen=True)
class Mean:
    """Mean of a histogram."""

    metric: str
    of: Sequence[Series]
    is_counter: ClassVar[bool] = True

    def read(self, window: Window) -> Iterator[Figure]:
        """Figures of the first name that the window holds."""
        first = window.first_histogram(self.of)
        if first is not None and first[1].mean is not None:
            yield Figure(self.metric, first[1].mean, str(first[0]), "sum / count")

    def names(self) -> Iterator[str]:
        """Names that it looks for."""
        return histogram_names(self.of)


@dataclass(frozen=True)
class Occupancy:
    """Requests in a phase, mean over the time: seconds that requests spent in it / seconds (Little's law); several engines: per engine.

    Two moments of a gauge say less. Requests that ended are counted, so it holds only where many of them fit into the time one after the
    other: the mean stay is at most MOST_OF_WINDOW_RATIO of the time, and at least MIN_REQUESTS ended.
    """

    metric: str
    of: Sequence[Series]
    is_counter: ClassVar[bool] = True

    def read(self, window: Window) -> Iterator[Figure]:
        """The mean, from the first name that the window holds."""
        first = window.first_histogram(self.of)
        if first is None:
            return
        series, histogram = first
        mean, total, length = histogram.mean, histogram.total, window.seconds
        many = histogram.num_values >= MIN_REQUESTS * window.num_engines
        if mean is not None and total is not None and length and many and mean <= MOST_OF_WINDOW_RATIO * length:
            yield Figure(self.metric, total / length / window.num_engines, f"{series}_sum", "increase / seconds (Little's law)")

    def names(self) -> Iterator[str]:
        """Names that it looks for."""
        return histogram_names(self.of)


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
                        self.metric, value, names_of(each, self.also if extra else ()), "increase / seconds" + (of if among > 1 else "")
                    )
                return

    def names(self) -> Iterator[str]:
        """Names that it looks for."""
        return counter_names([*self.of, *self.also])


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
        return counter_names([each for pair in self.pairs for each in pair])


def names_of(of: Series, also: Sequence[Series]) -> str:
    """Names and labels of what was added up."""
    return " + ".join(str(each) for each in (of, *also))


def histogram_names(of: Sequence[Series]) -> Iterator[str]:
    """Names that histograms are written under."""
    return (f"{each.name}_{part}" for each in of for part in ("bucket", "count", "sum"))


def counter_names(of: Sequence[Series]) -> Iterator[str]:
    """Names that counters and gauges are written under."""
    return (name for each in of for name in (each.name, f"{each.name}_total"))
