"""Reading a measured ramp: runs into levels, levels into the knee and the working point. Pure functions over load points."""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, stdev

from app.domain.calibration_fit import Quantity
from app.domain.load_point import AGREEMENT_RATIO, LATENCY_STATISTICS, Latency, LoadPoint
from app.domain.load_test_results import Compared, MeasuredLevel, MeasuredObjective, by_load
from app.domain.provenance import Note
from app.domain.step_constants import Band
from app.domain.units import seconds
from app.domain.workload import Slo

STABLE_RATIO = 0.05
"""Runs of one level that differ by more (standard deviation / mean) are not the same experiment (a convention)."""
MOST_FAILED_RATIO = 0.01
"""A level with more failed requests is not one to work at (a convention)."""
LEAST_IN_FLIGHT_RATIO = 0.5
"""Requests in flight by Little's law / those that were kept, of runs of FEW_WAVES waves or more: below, a figure is in another unit."""
FEW_WAVES = 5
KEPT_UP_RATIO = 0.9
"""Rate that was reached / rate that was offered, below which requests outran the replica (a convention)."""
OTHER_LENGTHS_RATIO = 0.1
"""Mean lengths that differ more from the planned ones are another workload (a convention)."""
WIDEST_STEP = 2.5
"""Factor between two loads beyond which a knee between them is not seen (the plan doubles)."""
_TIMES = ("ttft", "tpot", "e2e")


QUANTITIES: tuple[Quantity, ...] = ("ttft", "tpot", "throughput")


def compare(quantity: Quantity, measured: float, predicted: float, band: Band) -> Compared:
    """A mean beside its prediction, in the unit of the quantity; `band` is the range of measured / predicted of the class."""
    ratio = measured / predicted
    return Compared(
        quantity=quantity,
        measured=measured,
        predicted=predicted,
        measured_over_predicted_ratio=ratio,
        low_ratio=band.low_ratio,
        high_ratio=band.high_ratio,
        within_range=band.low_ratio <= ratio <= band.high_ratio,
    )


def levels_of(
    points: Sequence[LoadPoint], slo: Slo | None, headroom_ratio: float, compared: Callable[[Sequence[int]], list[Compared]]
) -> list[MeasuredLevel]:
    """One level for each load, from the smallest to the largest; `compared` takes the numbers of its points, from 0."""
    runs: dict[tuple[float | None, float | None], list[int]] = {}
    for index, point in enumerate(points):
        offered = point.requests_offered_per_s
        runs.setdefault((None if offered is not None else point.concurrency, offered), []).append(index)
    return by_load([_level([points[index] for index in run], slo, headroom_ratio, compared(run)) for run in runs.values()])


def _level(runs: Sequence[LoadPoint], slo: Slo | None, headroom_ratio: float, compared: list[Compared]) -> MeasuredLevel:
    times = {name: _latency([getattr(run, name) for run in runs]) for name in _TIMES}
    rate = _mean(run.requests_per_s for run in runs)
    tokens = [run.output_tokens_per_s for run in runs if run.output_tokens_per_s is not None]
    variation = stdev(tokens) / fmean(tokens) if len(tokens) > 1 and fmean(tokens) > 0 else None
    whole = times["e2e"].mean_s
    offered = runs[0].requests_offered_per_s
    objectives = _objectives(times, slo, headroom_ratio)
    failed = _failed(runs)
    wrong = [f"{failed:.1%} of the requests failed"] if failed is not None and failed > MOST_FAILED_RATIO else []
    distrusted = _distrusted(runs)
    wrong += distrusted
    wrong += [
        f"{each.name} {seconds(each.measured_s or 0)} is above its objective of {seconds(each.limit_s)}"
        for each in objectives
        if each.holds is False
    ]
    wrong += [
        f"{each.quantity} {each.measured_over_predicted_ratio:.2f} times the prediction, not {each.low_ratio:.2f} to {each.high_ratio:.2f}"
        for each in compared
        if not each.within_range
    ]
    return MeasuredLevel(
        load="concurrency" if offered is None else "rate",
        concurrency=runs[0].concurrency,
        offered_rps=offered,
        num_runs=len(runs),
        request_rps=rate,
        output_tokens_per_s=fmean(tokens) if tokens else None,
        failed_ratio=failed,
        trusted=not distrusted,
        **times,
        power=rate / whole if rate is not None and whole else None,
        variation_ratio=variation,
        stable=None if variation is None else variation <= STABLE_RATIO,
        objectives=objectives,
        compared=compared,
        went_wrong=wrong,
        findings=[],
    )


def _distrusted(runs: Sequence[LoadPoint]) -> list[str]:
    """What makes the figures of a level none to plan with: rate x time is not what was in flight, or the rate was not reached."""
    found = []
    for run in runs:
        kept, in_flight, offered, rate = run.concurrency, run.in_flight, run.requests_offered_per_s, run.requests_per_s
        if offered is not None and rate is not None and rate < KEPT_UP_RATIO * offered:
            found.append(f"{rate:.3g} of {offered:.3g} requests/s were served: requests outran the replica, or the run was short")
        if offered is not None or kept is None or not in_flight:
            continue
        waves = (run.num_completed or 0) / kept
        if in_flight > AGREEMENT_RATIO * kept or (in_flight < LEAST_IN_FLIGHT_RATIO * kept and waves >= FEW_WAVES):
            found.append(f"requests/s x mean time of a request is {in_flight:.3g} in flight, not {kept:.3g}: is a figure in another unit?")
    return found


def ramp_notes(points: Sequence[LoadPoint], ramp: Sequence[MeasuredLevel], planned: Mapping[str, float]) -> list[Note]:
    """What keeps a ramp from proving the plan: other lengths (`planned`: mean prompt and output [tokens]), several tools, wide steps."""
    notes = []
    for what, planned_tokens in planned.items():
        tokens = _mean(getattr(point, f"mean_{what}_tokens") for point in points)
        if tokens is not None and abs(tokens / planned_tokens - 1) > OTHER_LENGTHS_RATIO:
            message = f"Mean {what} length is {tokens:.6g} tokens, the plan has {planned_tokens:.6g}: another workload was measured."
            notes.append(Note(code="other_lengths", message=message))
    tools = sorted({point.tool for point in points})
    if len(tools) > 1:
        message = f"Files of {', '.join(tools)}: tools count and time differently, and differences between them look like instability."
        notes.append(Note(code="several_tools", message=message))
    loads = [level.offered_rps if level.load == "rate" else level.concurrency for level in ramp]
    wide = [f"{low:g} to {high:g}" for low, high in itertools.pairwise(load for load in loads if load) if high > WIDEST_STEP * low]
    if wide:
        message = f"No load was measured between {', '.join(wide)}: a knee or a broken objective between them is not seen."
        notes.append(Note(code="wide_steps", message=message))
    return notes


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _latency(runs: Sequence[Latency]) -> Latency:
    return Latency(**{f"{name}_s": _mean(run.get(name) for run in runs) for name in LATENCY_STATISTICS})


def _failed(runs: Sequence[LoadPoint]) -> float | None:
    known = [run for run in runs if run.num_failed is not None and run.num_completed is not None]
    total = sum((run.num_failed or 0) + (run.num_completed or 0) for run in known)
    return sum(run.num_failed or 0 for run in known) / total if total else None


def _objectives(times: Mapping[str, Latency], slo: Slo | None, headroom_ratio: float) -> list[MeasuredObjective]:
    found = []
    for field, limit in slo or ():
        if limit is None:
            continue
        time, level = field.removesuffix("_s").split("_")
        stricter = [name for name in ("p95", "p99") if name >= level]
        statistic = next((name for name in stricter if times[time].get(name) is not None), None)
        measured = None if statistic is None else times[time].get(statistic)
        found.append(
            MeasuredObjective(
                name=f"{time}_{level}",
                limit_s=limit,
                measured_s=measured,
                statistic=statistic,
                holds=None if measured is None else measured <= limit,
                holds_with_headroom=None if measured is None else measured <= limit * (1 - headroom_ratio),
            )
        )
    return found


def ramp_of(levels: Sequence[MeasuredLevel]) -> list[MeasuredLevel]:
    """The levels of one kind of load that have a power: the kind of which there are more."""
    kinds = {kind: [level for level in levels if level.load == kind and level.power is not None] for kind in ("concurrency", "rate")}
    return max(kinds.values(), key=len)


def knee_of(ramp: Sequence[MeasuredLevel]) -> int | None:
    """Where request_rps / e2e_s is largest, beyond which time grows faster than throughput; None where that is the last level.

    The same definition as of the predicted knee (power as of Kleinrock, 1979). It is known to one step of the ramp.
    """
    if not ramp:
        return None
    best = max(range(len(ramp)), key=lambda index: ramp[index].power or 0)
    return best if best < len(ramp) - 1 else None


def working_point(ramp: Sequence[MeasuredLevel], knee: int | None) -> tuple[MeasuredLevel | None, str | None]:
    """The largest load, not beyond the knee, up to which every level holds with headroom, or why there is none."""
    if not ramp:
        return None, "no level has a rate and a mean time of a request"
    if not ramp[0].objectives:
        return None, "the plan has no objectives"
    found: MeasuredLevel | None = None
    for level in ramp[: len(ramp) if knee is None else knee + 1]:
        missing = [each.name for each in level.objectives if each.holds_with_headroom is None]
        if missing:
            return found, None if found else f"the files have no percentile for {', '.join(missing)}"
        broken = [each.name for each in level.objectives if not each.holds_with_headroom]
        if broken:
            return found, None if found else f"the smallest load does not hold {', '.join(broken)} with headroom"
        if level.failed_ratio is not None and level.failed_ratio > MOST_FAILED_RATIO:
            return found, None if found else "requests failed at the smallest load"
        if not level.trusted:
            return found, None if found else "the figures of the smallest load contradict each other or its rate was not reached"
        found = level
    return found, None


def replicas_at(level: MeasuredLevel, request_rps: float) -> int | None:
    """ceil(planned requests/s / requests/s of the level)."""
    return math.ceil(request_rps / level.request_rps - 1e-9) if level.request_rps else None
