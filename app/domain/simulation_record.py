"""What is kept of the steps of a simulation: gaps between tokens as counts, and the course of the load in at most 200 points."""

import math
from collections.abc import Iterable, Mapping, Sequence
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
    p999: float


LEVELS = (0.50, 0.95, 0.99, 0.999)


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
    """Share of the KV cache that is held, mean over the replicas; 0 where none is known."""


def weighted_percentiles(counts: Mapping[int, float], total: float) -> list[float]:
    """The middle of the bucket in which each level is reached [s]."""
    found, reached, levels = list[float](), 0.0, list(LEVELS)
    for bucket in sorted(counts):
        reached += counts[bucket]
        while levels and reached >= levels[0] * total * (1 - 1e-12):
            found.append(math.exp((bucket + (0.5 if bucket >= 0 else -0.5)) / BUCKETS_PER_E))
            levels.pop(0)
    return found


class Gaps:
    """Gaps between two outputs of one request, counted in buckets."""

    __slots__ = ("counts", "sum_s", "total")

    def __init__(self) -> None:
        self.counts = dict[int, float]()
        self.sum_s = self.total = 0.0

    def add(self, gap_s: float, bucket: int, count: float) -> None:
        """So many gaps of one length."""
        self.counts[bucket] = self.counts.get(bucket, 0.0) + count
        self.sum_s += gap_s * count
        self.total += count


def gap_percentiles(parts: Iterable[Gaps]) -> Percentiles | None:
    """Of all of them together [s], to half a percent; None of none."""
    whole = Gaps()
    for part in parts:
        whole.sum_s += part.sum_s
        whole.total += part.total
        for bucket, count in part.counts.items():
            whole.counts[bucket] = whole.counts.get(bucket, 0.0) + count
    return Percentiles(whole.sum_s / whole.total, *weighted_percentiles(whole.counts, whole.total)) if whole.total else None


@dataclass
class Recorder:
    """Sums over the steps of all engines between `warm_up_s` and `until_s`."""

    warm_up_s: float
    until_s: float
    num_engines: int
    num_kinds: int = 1
    gaps: list[Gaps] = field(default_factory=list)
    """By kind of request."""
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
        self.gaps = [Gaps() for _ in range(self.num_kinds)]

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
                for kind, sequences, since_s in engine.stalled:
                    if counts:
                        self._gap(begin_s + first_s - since_s, kind, sequences)
                engine.stalled.clear()
            elif counts:
                self._gaps(first_s, engine.decoding, 1)
            if steps > 1 and counts:
                self._gaps((end_s - begin_s - first_s) / (steps - 1), engine.decoding, steps - 1)
        elif count and not engine.stalled:
            engine.stalled += [(kind, each, begin_s) for kind, each in enumerate(engine.decoding) if each]
        while self.until_s == math.inf and end_s > self.width_s * NUM_POINTS:
            self._widen()
        width = self.width_s
        place, last = int(begin_s / width), min(int(end_s / width), NUM_POINTS - 1)
        running, waiting = len(engine.running), len(engine.waiting)
        held = engine.cache.used
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

    def _gap(self, gap_s: float, kind: int, count: float) -> None:
        if gap_s > 0:
            self.gaps[kind].add(gap_s, int(math.log(gap_s) * BUCKETS_PER_E), count)

    def _gaps(self, gap_s: float, decoding: Sequence[int], num_steps: int) -> None:
        """One gap for each step of each sequence, given by kind."""
        if gap_s > 0:
            bucket = int(math.log(gap_s) * BUCKETS_PER_E)
            for gaps, count in zip(self.gaps, decoding, strict=True):
                if count:
                    gaps.add(gap_s, bucket, count * num_steps)

    def sums(self, capacity: float) -> tuple[list[float], list[float], list[float]]:
        """(running, waiting, used share of `capacity`) x time, by point; `capacity` is one replica's KV cache in its units."""
        known = capacity if 0 < capacity < math.inf else math.inf
        return self._running, self._waiting, [held / known for held in self._held]

    def widen_to(self, width_s: float) -> None:
        """Points at least so wide."""
        while self.width_s < width_s * (1 - 1e-9):
            self._widen()


def course_of(recorders: Sequence[Recorder], capacities: Sequence[float], num_replicas: int) -> list[LoadPoint]:
    """The load of several pools over time; `capacities` are those of one replica of each."""
    width = max(recorder.width_s for recorder in recorders)
    for recorder in recorders:
        recorder.widen_to(width)
    points = min(NUM_POINTS, math.ceil(recorders[0].until_s / width - 1e-9))
    parts = [recorder.sums(capacity) for recorder, capacity in zip(recorders, capacities, strict=True)]
    running, waiting, used = ([math.fsum(each) / width for each in zip(*lists, strict=True)] for lists in zip(*parts, strict=True))
    return [LoadPoint(place * width, running[place], waiting[place], used[place] / num_replicas) for place in range(points)]
