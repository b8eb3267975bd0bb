"""Thresholds that replace those of the rules, and where each comes from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, Strict

from app.domain.rule import Figure

MAX_THRESHOLDS = 200

ThresholdName = Annotated[str, Field(max_length=130)]
"""`<rule>.<name>` or `objective.<name>`."""

ThresholdFigure = Annotated[Figure, Strict()]
"""A number, and neither "0.9" nor true: `Given` does not look into mappings."""

OverrideBasis = Literal["request", "profile"]


@dataclass(frozen=True)
class Overrides:
    """Thresholds in place of the rules' own: what the request gives, and under it what a saved profile gives."""

    request: Mapping[str, float] = field(default_factory=dict)
    profile: Mapping[str, float] = field(default_factory=dict)

    def find(self, name: str) -> tuple[float, OverrideBasis] | None:
        """The number that replaces a threshold and who gives it; None where nobody does."""
        if name in self.request:
            return self.request[name], "request"
        if name in self.profile:
            return self.profile[name], "profile"
        return None
