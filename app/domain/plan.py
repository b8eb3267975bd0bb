"""A saved plan: what was asked, what was answered by which versions, and who keeps it. A change is a new revision; earlier ones stay."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Generic, Literal, TypeVar
from uuid import UUID

from pydantic import AfterValidator, Field, StringConstraints

from app.domain.capacity_answer import CapacityAnswer
from app.domain.concurrency import ConcurrencyAnswer
from app.domain.cost import CostAnswer
from app.domain.finding import Diagnosis
from app.domain.json_difference import Difference, JsonObject
from app.domain.kv_answer import KvAnswer
from app.domain.memory_answer import MemoryAnswer
from app.domain.performance_answer import PerformanceAnswer
from app.domain.provenance import Versions
from app.domain.stored_json import WrittenAs
from app.domain.value import Value

Kind = Literal["memory", "kv", "concurrency", "performance", "capacity", "cost", "diagnose"]
"""The calculation that a plan keeps, named as its path."""

# One line each: no control characters and no line or paragraph separators.
_ONE_LINE = r"^[^\u0000-\u001f\u007f-\u009f\u2028\u2029]*$"
PlanName = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200, pattern=_ONE_LINE)]
OwnerName = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100, pattern=_ONE_LINE)]
Label = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=63, pattern=_ONE_LINE)]


def _each_once(labels: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(labels))


Labels = Annotated[Sequence[Label], Field(max_length=20), AfterValidator(_each_once)]
NotesText = Annotated[str, StringConstraints(max_length=10_000)]


StoredAnswer = Annotated[
    JsonObject,
    WrittenAs(MemoryAnswer, KvAnswer, ConcurrencyAnswer, PerformanceAnswer, CapacityAnswer, CostAnswer, Diagnosis),
]
KindT = TypeVar("KindT")
RequestT = TypeVar("RequestT")


class PlanInput(Value, Generic[KindT, RequestT]):
    """What a caller sends to create or change a plan; the answer is computed here, never sent."""

    kind: KindT
    """The calculation; it decides what `request` holds. A plan keeps its kind."""
    name: PlanName
    """What the plan is called, one line."""
    owner: OwnerName
    """Person or team that answers for the plan, one line."""
    labels: Labels = ()
    """Words to find the plan by, one line each; a repeated one counts once."""
    notes: NotesText = ""
    """Anything else, several lines if wanted."""
    request: RequestT
    """The body that the calculation's own path takes."""


class PlanContents(Value):
    """Everything that one revision holds."""

    kind: Kind
    """The calculation."""
    name: str
    """What the plan is called."""
    owner: str
    """Person or team that answers for the plan."""
    labels: Sequence[str]
    """Words to find the plan by."""
    notes: str
    """Anything else."""
    model: str | None
    """Catalog slug of the model that the request names; null when it names none or describes one inline."""
    gpu: str | None
    """Catalog slug of the accelerator that the request names; null when it names none or describes one inline."""
    request: JsonObject
    """The request as it was given, in the form that the calculation's own path takes."""
    inputs: JsonObject
    """The request with the defaults that the planner of that time filled in; what is optional and absent is left out."""
    answer: StoredAnswer
    """The whole answer as it was given then. An answer of an older planner may lack fields that were added since."""
    versions: Versions
    """Versions of planner and catalog that computed the answer."""


class PlanHead(Value):
    """One revision of a plan without its contents: a line of a list."""

    id: UUID
    """Identifies the plan."""
    revision: int
    """Number of the revision, from 1."""
    kind: Kind
    """The calculation."""
    name: str
    """What the plan is called."""
    owner: str
    """Person or team that answers for the plan."""
    labels: Sequence[str]
    """Words to find the plan by."""
    model: str | None
    """Catalog slug of the model that the request names; null when it names none or describes one inline."""
    gpu: str | None
    """Catalog slug of the accelerator that the request names; null when it names none or describes one inline."""
    summary: str
    """The answer's own summary."""
    versions: Versions
    """Versions of planner and catalog that computed the answer."""
    created_at: datetime
    """When the plan was created."""
    updated_at: datetime
    """When this revision was written."""


class Plan(PlanHead):
    """One revision of a plan."""

    notes: str
    """Anything else."""
    request: JsonObject
    """The request as it was given, in the form that the calculation's own path takes."""
    inputs: JsonObject
    """The request with the defaults that the planner of that time filled in; what is optional and absent is left out."""
    answer: StoredAnswer
    """The whole answer as it was given then. An answer of an older planner may lack fields that were added since."""


class PlanFilter(Value):
    """Which plans are listed; what is absent filters nothing."""

    owner: str | None
    """The owner, exactly."""
    labels: Sequence[str]
    """All of these labels; none filters nothing."""
    model: str | None
    """Catalog slug of the model."""
    gpu: str | None
    """Catalog slug of the accelerator."""
    kind: Kind | None
    """The calculation."""


class Recomputation(Value):
    """What this planner and this catalog answer to the request of a stored plan."""

    plan: UUID
    """The plan."""
    revision: int
    """The revision whose request was computed again."""
    saved_revision: int | None
    """The revision that now holds the new answer; null when nothing was saved."""
    versions_before: Versions
    """Versions that computed the stored answer."""
    versions_after: Versions
    """Versions that computed the new answer."""
    summary: str
    """What changed, in a sentence."""
    differences: Sequence[Difference]
    """Fields of the answer that differ, stored answer first; `working` and `versions` are left out."""
    answer: StoredAnswer
    """The new answer."""


class Comparison(Value):
    """Two plans, or two revisions of one, side by side."""

    before: PlanHead
    """The plan of the path."""
    after: PlanHead
    """The plan that it is compared with."""
    summary: str
    """What differs, in a sentence."""
    inputs: Sequence[Difference]
    """Inputs that differ, defaults included; pointers into `inputs`."""
    answers: Sequence[Difference]
    """Fields of the answer that differ; pointers into `answer`; `working` and `versions` are left out."""
    not_compared: Sequence[str]
    """Pointers, from the plan, to what only one of two calculations of different kinds has; empty for plans of one kind."""


class PlanPage(Value):
    """One page of a list of plans or of revisions, newest first."""

    items: Sequence[PlanHead]
    """The plans or revisions."""
    next_page_token: str | None
    """`page_token` of the next page, null at the end."""
