"""What is common to the maps from an engine's metric names to ours."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from app.importers.scrape_readings import Reading
from app.importers.scrape_window import Series, Window

FactValue = float | str


@dataclass(frozen=True)
class Fact:
    """A setting or a size of the engine that its metrics tell, in the words of EngineStart: a label of an info series, or a gauge."""

    name: str
    of: Series
    label: str | None = None
    factor: float = 1.0
    is_text: bool = False

    def read(self, window: Window) -> FactValue | None:
        """The first value that tells something; None where the engine says nothing."""
        if self.label is None:
            values = [point.after * self.factor for point in window.of(self.of)]
            return next((value for value in values if value > 0), None)
        for labels in window.info(self.of.name):
            given = labels.get(self.label, "")
            if given in ("", "None", "none", "null"):
                continue
            if self.is_text:
                return given
            try:
                return float(given) * self.factor
            except ValueError:
                continue
        return None


@dataclass(frozen=True)
class Known:
    """A metric that is a product of facts."""

    metric: str
    facts: Sequence[str]
    caveat: str | None = None


@dataclass(frozen=True, eq=False)
class ScrapeMap:
    """The metric names of one engine or exporter."""

    engine: str
    """As a deployment names it, where it is an engine that it can name."""
    pattern: re.Pattern[str]
    """Names of the engine; its group `name` is what follows the prefix."""
    prefix: str
    """How the maps write the prefix."""
    readings: Sequence[Reading]
    """In order: of two readings of one metric the first that finds something counts."""
    finished: Series | None = None
    """Counter of requests that finished."""
    facts: Sequence[Fact] = ()
    known: Sequence[Known] = ()
    engine_labels: Sequence[str] = ()
    """Labels that number the engines behind one endpoint."""
    rank_labels: Sequence[str] = ()
    """Labels of processes that work on the same requests: the lowest is read."""
    only_empty: Sequence[str] = ()
    """Labels that break a total down, which is the series where they are empty or missing."""
    skipped: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Values of labels whose series are sums of the others."""
    is_companion: bool = False
    """An exporter beside the engine: of its host or its accelerators."""
    sources: Sequence[str] = ()
    """Where the names are defined."""

    @cached_property
    def names(self) -> frozenset[str]:
        """Every name that is read."""
        facts = (name for fact in self.facts for name in (fact.of.name, f"{fact.of.name}_total"))
        return frozenset({*facts, *(name for reading in self.readings for name in reading.names()), *self._finished()})

    @cached_property
    def named(self) -> frozenset[str]:
        """Names that no other map reads: those with the prefix."""
        return frozenset(name for name in self.names if name.startswith(self.prefix))

    @cached_property
    def counters(self) -> frozenset[str]:
        """Names that do not fall while the engine runs."""
        read = {name for reading in self.readings if reading.is_counter for name in reading.names() if not name.endswith("_sum")}
        return frozenset({*read, *self._finished()})

    def ours(self, name: str) -> str | None:
        """The name as the map writes it, when it is one that is read."""
        found = self.pattern.fullmatch(name)
        written = self.prefix + found["name"] if found else name
        return written if written in self.names else None

    def takes(self, labels: Mapping[str, str]) -> bool:
        """Whether a series with these labels is a total, and no part or sum of others."""
        if any(labels.get(label) for label in self.only_empty):
            return False
        return not any(label in labels and labels[label] in values for label, values in self.skipped.items())

    def _finished(self) -> Iterator[str]:
        if self.finished is not None:
            yield self.finished.name
            yield f"{self.finished.name}_total"
