"""A sweep of simulations: deployments x replicas x rates, each with every seed, gathered into one answer."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import product
from typing import Annotated, NamedTuple

from pydantic import Field, model_validator

from app.domain.catalog import Catalog
from app.domain.deployment import Deployment
from app.domain.errors import InvalidInput, PlannerError
from app.domain.simulation import Run
from app.domain.sweep_answer import NamedPoint, SweepAnswer, answer_sweep
from app.domain.units import seconds
from app.domain.value import Given
from app.domain.workload import Rps
from app.services.requests import GpuRef, Name
from app.services.simulation import FleetSimulation, modelled
from app.services.simulation_request import SimulationRequest
from app.services.simulation_work import MOST_JOB_CPU_S, refuse_above, work_s

MOST_POINTS = 200
MOST_RUNS = 1000
"""Points x seeds."""


class SweptDeployment(Given):
    """One of the deployments that are compared."""

    name: Name
    """What the answer calls it."""
    deployment: Deployment
    """How one replica runs."""
    gpu: GpuRef | None = None
    """The accelerator; left out, that of `base`."""


class SweepRequest(Given):
    """Which fleets hold which rates."""

    base: SimulationRequest
    """The simulation that is varied; its seeds are run at every point."""
    peak_rps: Annotated[Sequence[Rps], Field(max_length=50)] = ()
    """Rates in place of the workload's [requests/s]."""
    replicas: Annotated[Sequence[Annotated[int, Field(ge=1, le=1000)]], Field(max_length=50)] = ()
    """Numbers of replicas in place of that of `base`."""
    deployments: Annotated[Sequence[SweptDeployment], Field(max_length=20)] = ()
    """Deployments in place of that of `base`."""

    @model_validator(mode="after")
    def _varies(self) -> "SweepRequest":
        if not (self.peak_rps or self.replicas or self.deployments):
            raise ValueError("nothing varies: give peak_rps, replicas or deployments")
        if self.peak_rps and (self.base.workload is None or self.base.concurrency is not None):
            raise ValueError("peak_rps varies the rate of a workload: base has a trace or clients that wait")
        if self.base.pools and (self.replicas or self.deployments):
            raise ValueError("base has pools, which have their own replicas and deployments: vary peak_rps alone")
        names = [each.name for each in self.deployments]
        for what, values in (("peak_rps", self.peak_rps), ("replicas", self.replicas), ("names of deployments", names)):
            if len(set(values)) < len(values):
                raise ValueError(f"{what} must differ")
        return self


class _Point(NamedTuple):
    """A combination of what varies."""

    deployment: int | None
    replicas: int
    peak_rps: float | None


class Sweep:
    """A sweep whose points are modelled as they are asked for."""

    def __init__(self, catalog: Catalog, request: SweepRequest) -> None:
        self.catalog, self.request = catalog, request
        base = request.base
        deployments: Sequence[int | None] = range(len(request.deployments)) or [None]
        rates: Sequence[float | None] = request.peak_rps or [None if base.workload is None or base.concurrency else base.workload.peak_rps]
        self.points = [_Point(*each) for each in product(deployments, request.replicas or [base.replicas], rates)]
        self.seeds = base.seeds
        self.simulation = cache(self._modelled)

    @property
    def num_runs(self) -> int:
        """Points x seeds."""
        return len(self.points) * len(self.seeds)

    def check(self) -> None:
        """Raise PlannerError where a point cannot be simulated, or where all of them are too much."""
        if len(self.points) > MOST_POINTS or self.num_runs > MOST_RUNS:
            raise InvalidInput(
                f"{len(self.points)} points with {len(self.seeds)} seeds are {self.num_runs} runs",
                field="",
                value=self.num_runs,
                expected=f"at most {MOST_POINTS} points and {MOST_RUNS} runs",
            )
        total_s = 0.0
        for place, point in enumerate(self.points):
            with self._blaming(point):
                scenario = self._modelled(place).scenario
                refuse_above(MOST_JOB_CPU_S, scenario)
            total_s += work_s(scenario)
        if total_s > MOST_JOB_CPU_S:
            raise InvalidInput(
                f"{self.num_runs} runs would take about {seconds(total_s)} of computing",
                field="",
                value=self.num_runs,
                expected=f"fewer points or seeds, or shorter runs: at most {seconds(MOST_JOB_CPU_S)} of computing",
            )

    def run_of(self, number: int) -> tuple[FleetSimulation, int]:
        """What the run of a number simulates, and its seed."""
        place, seed = divmod(number, len(self.seeds))
        with self._blaming(self.points[place]):
            return self.simulation(place), self.seeds[seed]

    def answer(self, runs: Sequence[Run]) -> SweepAnswer:
        """All runs, in the order of their numbers, as one answer."""
        count, points = len(self.seeds), []
        for place, point in enumerate(self.points):
            found = self.simulation(place).answer(runs[place * count : (place + 1) * count])
            name = None if point.deployment is None else self.request.deployments[point.deployment].name
            points.append(NamedPoint(deployment=name, peak_rps=point.peak_rps, found=found))
        return answer_sweep(points)

    def _modelled(self, place: int) -> FleetSimulation:
        point, base = self.points[place], self.request.base
        changes: dict[str, object] = {"replicas": point.replicas} if self.request.replicas else {}
        if point.deployment is not None:
            given = self.request.deployments[point.deployment]
            changes["deployment"] = given.deployment
            if given.gpu is not None:
                changes["gpu"] = given.gpu
        if base.workload is not None and self.request.peak_rps:
            # A mean above the peak would contradict it, and is not used here.
            changes["workload"] = base.workload.model_copy(update={"peak_rps": point.peak_rps, "mean_rps": None})
        return modelled(self.catalog, base.model_copy(update=changes))

    @contextmanager
    def _blaming(self, point: _Point) -> Iterator[None]:
        """Let refusals point to where the sweep has the field."""
        try:
            yield
        except PlannerError as error:
            if error.field is not None:
                own = None if point.deployment is None else self.request.deployments[point.deployment]
                theirs = own is not None and (
                    error.field.startswith("/deployment") or (own.gpu is not None and error.field.startswith("/gpu"))
                )
                error.field = (f"/deployments/{point.deployment}" if theirs else "/base") + error.field
            raise
