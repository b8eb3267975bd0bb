"""What is kept of the steps of a simulation: gaps between tokens as counts, and the course of the load in at most 200 points."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from app.domain.simulation_engine import Engine

NUM_POINTS = 200
NARROW_S = 0.01
"""Width of a point [s] before a run of unknown length has passed 2 s."""
BUCKETS_PER_E = 200
"""Gaps are told apart to half a percent: e^(1/200)."""


class Percentiles(NamedTuple):
    """A time in figures [s]."""

    mean: float
    p50: float
    p95: float
    p99: float


LEVELS = (0.50, 0.95, 0.99)


def percentiles(times: Iterable[float]) -> Percentiles | None:
    """Mean, and the least value that a share of all is not above; None of nothing."""
    ordered = sorted(times)
    if not ordered:
        return None
    count = len(ordered)
    return Percentiles(math.fsum(ordered) / count, *(ordered[max(0, math.ceil(level * count) - 1)] for level in LEVELS))


class LoadPoint(NamedTuple):
    """The fleet over a part of the time, means over it."""

    start_s: float
    num_running: float
    """Requests with a place, of all replicas."""
    num_waiting: float
    """Requests without one."""
    kv_used_ratio: float
    """Share of the KV cache of the fleet that is held; 0 where none is known."""


@dataclass
class Recorder:
    """Sums over the steps of all engines between `warm_up_s` and `until_s`."""

    warm_up_s: float
    until_s: float
    num_engines: int
    gaps: dict[int, float] = field(default_factory=dict)
    gap_sum_s: float = 0.0
    num_gaps: float = 0.0
    busy_s: float = 0.0
    num_preemptions: int = 0
    width_s: float = 0.0
    """Of one point of the course [s]."""
    _running: list[float] = field(default_factory=lambda: [0.0] * NUM_POINTS)
    _waiting: list[float] = field(default_factory=lambda: [0.0] * NUM_POINTS)
    _held: list[float] = field(default_factory=lambda: [0.0] * NUM_POINTS)

    def __post_init__(self) -> None:
        """Points as wide as the end wants them; where it is not known they start narrow."""
        self.width_s = self.until_s / NUM_POINTS if self.until_s < math.inf else NARROW_S

    def record(self, engine: "Engine", end_s: float) -> None:
        """Steps of an engine that end now, before their sequences end."""
        span, count = engine.span, engine.num_decoding
        begin_s, first_s, steps = span.begin_s, span.first_s, span.num_steps
        if begin_s >= self.until_s:
            engine.stalled.clear()
            return
        counts = begin_s >= self.warm_up_s
        if counts:
            self.busy_s += min(end_s, self.until_s) - begin_s
        if engine.decodes:
            if engine.stalled:
                for sequences, since_s in engine.stalled:
                    self._gap(begin_s + first_s - since_s, sequences if counts else 0)
                engine.stalled.clear()
            elif counts:
                self._gap(first_s, count)
            if steps > 1 and counts:
                self._gap((end_s - begin_s - first_s) / (steps - 1), count * (steps - 1))
        elif count and not engine.stalled:
            engine.stalled.append((count, begin_s))
        while self.until_s == math.inf and end_s > self.width_s * NUM_POINTS:
            self._widen()
        width = self.width_s
        place, last = int(begin_s / width), min(int(end_s / width), NUM_POINTS - 1)
        running, waiting = len(engine.running), len(engine.waiting)
        held = engine.held + engine.prefixes.pinned
        while place <= last:
            passed = min(end_s, (place + 1) * width) - max(begin_s, place * width)
            self._running[place] += running * passed
            self._waiting[place] += waiting * passed
            self._held[place] += held * passed
            place += 1

    def _widen(self) -> None:
        """Points twice as wide, each the sum of two."""
        self.width_s *= 2
        for sums in (self._running, self._waiting, self._held):
            sums[:] = [one + other for one, other in zip(sums[::2], sums[1::2], strict=True)] + [0.0] * (NUM_POINTS // 2)

    def _gap(self, gap_s: float, count: float) -> None:
        if gap_s <= 0 or not count:
            return
        bucket = int(math.log(gap_s) * BUCKETS_PER_E)
        self.gaps[bucket] = self.gaps.get(bucket, 0.0) + count
        self.gap_sum_s += gap_s * count
        self.num_gaps += count

    def gap_percentiles(self) -> Percentiles | None:
        """Of the gaps between two outputs of one request [s], to half a percent."""
        if not self.num_gaps:
            return None
        return Percentiles(self.gap_sum_s / self.num_gaps, *weighted_percentiles(self.gaps, self.num_gaps))

    def course(self, capacity: float) -> list[LoadPoint]:
        """The load over time; `capacity` is the KV cache of the whole fleet in its units."""
        width, points = self.width_s, min(NUM_POINTS, math.ceil(self.until_s / self.width_s - 1e-9))
        known = capacity if 0 < capacity < math.inf else math.inf
        rows = zip(self._running[:points], self._waiting[:points], self._held[:points], strict=True)
        return [LoadPoint(place * width, run / width, wait / width, held / width / known) for place, (run, wait, held) in enumerate(rows)]


def weighted_percentiles(counts: Mapping[int, float], total: float) -> list[float]:
    """The middle of the bucket in which each level is reached [s]."""
    found, reached, levels = list[float](), 0.0, list(LEVELS)
    for bucket in sorted(counts):
        reached += counts[bucket]
        while levels and reached >= levels[0] * total * (1 - 1e-12):
            found.append(math.exp((bucket + (0.5 if bucket >= 0 else -0.5)) / BUCKETS_PER_E))
            levels.pop(0)
    return found
