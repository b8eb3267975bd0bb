"""What a sweep of simulations answers: the figures of every point, which points hold the objectives, and the highest rate that does."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Literal

from app.domain.provenance import Answer, Note, Step, step
from app.domain.simulation_answer import SimulatedFigures, SimulatedLoad, SimulationAnswer
from app.domain.units import plain
from app.domain.value import Value

Verdict = Literal["holds", "unsure", "fails"]
RATE_SOURCE = "one run for each seed of a point, https://www.usenix.org/conference/osdi22/presentation/yu (steps of an engine)"


class SweepPoint(SimulatedFigures):
    """One fleet under one rate."""

    deployment: str | None
    """Name that the request gave it; None where it gave none."""
    gpu: str | None
    """Accelerator; None where pools have different ones."""
    replicas: int
    """Replicas behind the balancer."""
    gpus: int
    """Accelerators of all of them."""
    peak_rps: float | None
    """Rate of the workload before `burst_ratio`; None of a trace [requests/s]."""
    verdict: Verdict | None
    """The worst of the objectives; None without objectives."""
    course: list[SimulatedLoad]
    """Empty: `/simulate` tells it of a point."""


class SweptFleet(Value):
    """One fleet over the rates."""

    deployment: str | None
    """Name that the request gave the deployment."""
    replicas: int
    """Replicas behind the balancer."""
    highest_rps: float | None
    """The highest of the rates at which, as at all lower ones, every objective holds; None where the lowest does not [requests/s]."""
    next_rps: float | None
    """The lowest of the rates at which one does not hold, or surely hold; None where all hold [requests/s]."""


class SweepAnswer(Answer):
    """Answer of `/simulate/sweep`."""

    model: str
    """Model."""
    points: Sequence[SweepPoint]
    """Every combination: deployments, then replicas, then rates in the order of the request."""
    fleets: Sequence[SweptFleet]
    """What each holds; empty without objectives or rates."""


class NamedPoint(Value):
    """Where a point lies, and what was simulated there."""

    deployment: str | None
    """Name of the deployment."""
    peak_rps: float | None
    """Rate of the workload [requests/s]."""
    found: SimulationAnswer
    """What was simulated."""

    @property
    def verdict(self) -> Verdict | None:
        """The worst of the objectives."""
        verdicts = {each.verdict for each in self.found.objectives}
        worst: tuple[Verdict, ...] = ("fails", "unsure", "holds")
        return next((verdict for verdict in worst if verdict in verdicts), None)

    @property
    def label(self) -> str:
        """In words."""
        rate = "" if self.peak_rps is None else f" at {plain(self.peak_rps)} requests/s"
        return f"{self.found.replicas} x {self.deployment or self.found.model}{rate}"


def answer_sweep(points: Sequence[NamedPoint]) -> SweepAnswer:
    """All points side by side; versions are those of the first, since all were computed from the same."""
    fleets = _fleets(points)
    return SweepAnswer(
        summary=_summary(points, fleets),
        working=_working(points, fleets),
        assumptions=list({note.message: note for each in points for note in each.found.assumptions}.values()),
        warnings=_warnings(points),
        versions=points[0].found.versions,
        model=points[0].found.model,
        points=[_point(each) for each in points],
        fleets=fleets,
    )


def _point(one: NamedPoint) -> SweepPoint:
    same = {name: getattr(one.found, name) for name in SweepPoint.model_fields.keys() & SimulationAnswer.model_fields.keys() - {"course"}}
    return SweepPoint(deployment=one.deployment, peak_rps=one.peak_rps, verdict=one.verdict, course=[], **same)


def _fleets(points: Sequence[NamedPoint]) -> list[SweptFleet]:
    groups: dict[tuple[str | None, int], list[tuple[float, Verdict]]] = {}
    for each in points:
        if each.peak_rps is not None and each.verdict is not None:
            groups.setdefault((each.deployment, each.found.replicas), []).append((each.peak_rps, each.verdict))
    fleets = []
    for (deployment, replicas), found in groups.items():
        rising = sorted(found)
        held = [rate for rate, _ in takewhile(lambda one: one[1] == "holds", rising)]
        following = rising[len(held)][0] if len(held) < len(rising) else None
        fleets.append(SweptFleet(deployment=deployment, replicas=replicas, highest_rps=held[-1] if held else None, next_rps=following))
    return fleets


def _summary(points: Sequence[NamedPoint], fleets: Sequence[SweptFleet]) -> str:
    if not fleets:
        return f"{len(points)} points were simulated."
    held = sum(each.verdict == "holds" for each in points)
    best = max(fleets, key=lambda one: one.highest_rps or 0.0)
    if best.highest_rps is None:
        return f"At {held} of {len(points)} points every objective holds; no fleet holds them at its lowest rate."
    name = best.deployment or points[0].found.model
    most = f"{best.replicas} x {name} holds {plain(best.highest_rps)} requests/s, the most of {len(fleets)} fleets"
    return f"At {held} of {len(points)} points every objective holds: {most}."


def _working(points: Sequence[NamedPoint], fleets: Sequence[SweptFleet]) -> list[Step]:
    working = []
    for each in fleets:
        if each.highest_rps is not None:
            own = [one for one in points if (one.deployment, one.found.replicas) == (each.deployment, each.replicas)]
            rates = ", ".join(plain(one.peak_rps) for one in own if one.peak_rps is not None and one.peak_rps <= each.highest_rps)
            formula = "greatest of the rates up to which every objective holds"
            working.append(step("highest_rps", formula, f"max({rates})", each.highest_rps, "requests/s", RATE_SOURCE, basis="assumed"))
    return working


def _warnings(points: Sequence[NamedPoint]) -> list[Note]:
    """Of every code the first warning, with the number of points that have one."""
    found: dict[str, list[tuple[NamedPoint, Note]]] = {}
    for each in points:
        for note in each.found.warnings:
            found.setdefault(note.code, []).append((each, note))
    return [
        Note(code=code, message=f"At {len(those)} of {len(points)} points, first {those[0][0].label}: {those[0][1].message}")
        for code, those in found.items()
    ]
