"""A saved diagnosis profile: the thresholds and objectives of a team, kept under a name that requests give."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated

from pydantic import Field

from app.domain.plan import NotesText, OwnerName
from app.domain.thresholds import MAX_THRESHOLDS, ThresholdFigure, ThresholdName
from app.domain.value import Given, Slug, Value
from app.domain.workload import Slo


class ProfileInput(Given):
    """What a team keeps."""

    name: Slug
    """What `POST /diagnose` names it by."""
    owner: OwnerName
    """Person or team that answers for it, one line."""
    notes: NotesText = ""
    """Anything else, several lines if wanted."""
    thresholds: Annotated[Mapping[ThresholdName, ThresholdFigure], Field(max_length=MAX_THRESHOLDS)] = {}
    """Thresholds to use instead of the rules' own, by the name that the evidence shows (`kv_near_full.kv_full`), or default objectives
    (`objective.ttft_s`); absolute, in the unit of the metric. Those of a request come before them."""
    slo: Slo | None = None
    """The latency objectives of requests that give none."""


class DiagnosisProfile(ProfileInput):
    """A stored profile."""

    version: int
    """Catalog revision that last changed it; the ETag."""
    created_at: datetime
    """When it was stored."""
    updated_at: datetime
    """When it was last changed."""


class ProfilePage(Value):
    """One page of the list, by name."""

    items: Sequence[DiagnosisProfile]
    """The profiles."""
    next_page_token: str | None
    """`page_token` of the next page, null at the end."""
