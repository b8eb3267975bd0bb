"""A calculation that takes longer than a request should: what was asked, how far it is, what it answered."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

from app.domain.json_difference import JsonObject
from app.domain.problem import Problem
from app.domain.provenance import Versions
from app.domain.value import Value

JobKind = Literal["simulation", "sweep", "recommendation"]
JobState = Literal["queued", "running", "succeeded", "failed", "cancelled"]
OPEN: tuple[JobState, ...] = ("queued", "running")
"""States of jobs that have not ended."""
PARTS_BEFORE: dict[JobKind, int] = {"recommendation": 2, "simulation": 1, "sweep": 0}
"""Priority of a kind's parts in the queue, the higher first: what has hundreds of parts lets the others pass."""
MOST_ATTEMPTS = 3
"""So many workers may die over a part; then its job fails."""


class JobHead(Value):
    """A job without what it was asked and answered."""

    id: UUID
    """Identifies the job."""
    kind: JobKind
    """The calculation: of `/simulate`, `/simulate/sweep`, `/recommend`."""
    state: JobState
    """queued: no part has begun. The other states but `running` are final."""
    progress_ratio: float
    """Share that is done: the mean over the parts."""
    num_parts: int
    """Parts that workers compute side by side: one for each seed of each simulated point; one for a search."""
    num_parts_done: int
    """Those that are computed."""
    created_by: str
    """Id of the API key that asked; `local` for callers without one."""
    created_at: datetime
    """When it was asked."""
    started_at: datetime | None
    """When a worker first took it."""
    ended_at: datetime | None
    """When it succeeded, failed or was cancelled."""
    summary: str | None
    """The answer in a sentence, once there is one."""
    versions: Versions | None
    """What answered."""


class Job(JobHead):
    """A job."""

    request: JsonObject
    """The request as it was given, in the form that its own path takes."""
    answer: JsonObject | None
    """What the path of the request would have answered; null until the job has succeeded."""
    problem: Problem | None
    """Why it failed."""


class JobPage(Value):
    """Jobs, newest first."""

    items: Sequence[JobHead]
    """Jobs of this page."""
    next_page_token: str | None
    """Where the next page begins; null on the last."""


class JobFilter(Value):
    """Which jobs a list holds; what is None does not matter."""

    kind: JobKind | None = None
    """The calculation."""
    state: JobState | None = None
    """The state."""


class QueueState(Value):
    """How the work stands."""

    num_queued: int
    """Jobs of which no part has begun."""
    num_running: int
    """Jobs that are worked on."""
    oldest_queued_s: float
    """Age of the oldest one that is queued; 0 when none is [s]."""
    num_workers: int
    """Workers that gave a sign of life lately."""
