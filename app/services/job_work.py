"""What the kinds of jobs compute: their parts, each by one worker, and the answer that all results make."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pydantic import TypeAdapter

from app.domain.catalog import Catalog
from app.domain.job import JobKind
from app.domain.json_difference import JsonObject
from app.domain.provenance import Answer
from app.domain.recommendation import RecommendAnswer
from app.domain.simulation import Run
from app.services.recommendation import RecommendRequest, recommend, search_of
from app.services.simulation import modelled
from app.services.simulation_request import SimulationRequest
from app.services.simulation_sweep import Sweep, SweepRequest
from app.services.simulation_work import MOST_JOB_CPU_S, refuse_above

RUN: TypeAdapter[Run] = TypeAdapter(Run)
Tell = Callable[[float], None]


class Work(Protocol):
    """A job as its workers see it; all methods raise PlannerError."""

    num_parts: int

    def check(self) -> None:
        """Raise InvalidInput where it is more work than a job may be."""

    def inputs_digest(self, number: int) -> str:
        """Digest of what decides the result of a part: results of other catalogs are computed again."""

    def run(self, number: int, tell: Tell) -> JsonObject:
        """Compute a part; `tell` is told the share that is done, and may raise to end it."""

    def answer(self, results: Sequence[JsonObject]) -> Answer:
        """What the results of all parts make, in the order of their numbers."""


class SimulationWork:
    """A simulation, one part a seed."""

    def __init__(self, catalog: Catalog, request: SimulationRequest) -> None:
        self.found = modelled(catalog, request)
        self.num_parts = len(request.seeds)

    def check(self) -> None:
        """See `Work`."""
        refuse_above(MOST_JOB_CPU_S, self.found.scenario)

    def inputs_digest(self, number: int) -> str:
        """See `Work`."""
        return self.found.inputs_digest

    def run(self, number: int, tell: Tell) -> JsonObject:
        """See `Work`."""
        return _written(self.found.run(self.found.request.seeds[number], tell))

    def answer(self, results: Sequence[JsonObject]) -> Answer:
        """See `Work`."""
        return self.found.answer([RUN.validate_python(each) for each in results])


class SweepWork:
    """A sweep, one part for each seed of each point."""

    def __init__(self, catalog: Catalog, request: SweepRequest) -> None:
        self.sweep = Sweep(catalog, request)
        self.num_parts = self.sweep.num_runs

    def check(self) -> None:
        """See `Work`."""
        self.sweep.check()

    def inputs_digest(self, number: int) -> str:
        """See `Work`."""
        return self.sweep.run_of(number)[0].inputs_digest

    def run(self, number: int, tell: Tell) -> JsonObject:
        """See `Work`."""
        found, seed = self.sweep.run_of(number)
        return _written(found.run(seed, tell))

    def answer(self, results: Sequence[JsonObject]) -> Answer:
        """See `Work`."""
        return self.sweep.answer([RUN.validate_python(each) for each in results])


class RecommendationWork:
    """A search, whose parts depend on each other: it is one."""

    num_parts = 1

    def __init__(self, catalog: Catalog, request: RecommendRequest) -> None:
        self.catalog, self.request = catalog, request

    def check(self) -> None:
        """See `Work`."""
        search_of(self.catalog, self.request)

    def inputs_digest(self, number: int) -> str:
        """See `Work`."""
        return ""

    def run(self, number: int, tell: Tell) -> JsonObject:
        """See `Work`."""
        return recommend(self.catalog, self.request, tell=tell).model_dump(mode="json")

    def answer(self, results: Sequence[JsonObject]) -> Answer:
        """See `Work`."""
        return RecommendAnswer.model_validate(results[0])


KINDS: Mapping[JobKind, tuple[type[Any], Callable[[Catalog, Any], Work]]] = {
    "simulation": (SimulationRequest, SimulationWork),
    "sweep": (SweepRequest, SweepWork),
    "recommendation": (RecommendRequest, RecommendationWork),
}
"""What each kind asks for, and what computes it."""


def work_of(kind: JobKind, catalog: Catalog, request: JsonObject) -> Work:
    """The work of a stored request; raises pydantic's ValidationError where this version does not take it any more."""
    request_type, make = KINDS[kind]
    return make(catalog, request_type.model_validate(request))


def _written(run: Run) -> JsonObject:
    written: JsonObject = RUN.dump_python(run, mode="json")
    return written
