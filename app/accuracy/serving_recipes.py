"""Settings with which measured series were run, where the records leave them out and the scripts of the benchmark state them."""

import math
from pathlib import Path
from typing import Any

from pydantic import Field

from app.catalog.loader import parse_entry
from app.domain.deployment import EngineName
from app.domain.value import Given


class BatchedTokens(Given):
    """A token budget that a script computes: per_input x nominal prompt + per_concurrency x concurrency + more [tokens]."""

    per_input: float = 0
    per_concurrency: float = 0
    more: int = 0


class ServingRecipe(Given):
    """The settings of the rows that it matches; None matches any."""

    models: tuple[str, ...]
    """Catalog slugs."""
    engine: EngineName
    """Engine."""
    gpus: tuple[str, ...] | None = None
    """Catalog slugs of accelerators."""
    precisions: tuple[str, ...]
    """As the records write them."""
    tp: tuple[int, ...] | None = None
    """Attention tensor-parallel degrees."""
    input_tokens: int | None = None
    """Nominal prompt [tokens]."""
    output_tokens: int | None = None
    """Nominal output [tokens]."""
    from_concurrency: int = 1
    """Least concurrency."""
    measured_before: str | None = None
    """Day of the next recipe, as year-month-day."""
    deployment: dict[str, Any]
    """Fields of the deployment."""
    batched_tokens: BatchedTokens | None = None
    """Token budget, where it is computed."""
    source: str
    """The script."""

    def matches(self, row: dict[str, Any]) -> bool:
        """Whether a record was run with it."""
        return (
            row["model_slug"] in self.models
            and row["engine"] == self.engine
            and row["precision"] in self.precisions
            and (self.gpus is None or row["gpu_slug"] in self.gpus)
            and (self.tp is None or row["tp"] in self.tp)
            and self.input_tokens in (None, row["input_tokens"])
            and self.output_tokens in (None, row["output_tokens"])
            and row["concurrency"] >= self.from_concurrency
            and (self.measured_before is None or (row["measured"] or self.measured_before) < self.measured_before)
        )

    def settings_of(self, row: dict[str, Any]) -> dict[str, Any]:
        """Fields of the deployment of a record that it matches."""
        budget = self.batched_tokens
        if budget is None:
            return self.deployment
        tokens = budget.per_input * row["input_tokens"] + budget.per_concurrency * row["concurrency"] + budget.more
        return {**self.deployment, "max_num_batched_tokens": math.ceil(tokens)}


class PublishedTables(Given):
    """What the text of a page says about the runs of its tables."""

    pages: tuple[str, ...]
    """Addresses of versions of the page."""
    num_requests: dict[str, int] = Field(default_factory=dict)
    """Requests of a run by nominal lengths, prompt/output [tokens]."""
    versions: dict[str, str] = Field(default_factory=dict)
    """Releases of what the table names otherwise."""
    attention_dp_of_experts: bool = False
    """Models with experts run their attention data parallel over the tensor-parallel ranks of the table, and whole experts on each."""

    def requests_of(self, row: dict[str, Any]) -> int | None:
        """Requests that a run sent."""
        return self.num_requests.get(f"{row['isl_mean']:.0f}/{row['osl_mean']:.0f}")


class ServingRecipes(Given):
    """Recipes of several series, and of the tables of several pages."""

    origin: str
    """Where they come from."""
    recipes: tuple[ServingRecipe, ...]
    """The first that matches counts."""
    pages: tuple[PublishedTables, ...] = ()
    """Published tables."""

    def tables_of(self, row: dict[str, Any]) -> PublishedTables | None:
        """What is known about the run of a published figure; None where its page says nothing."""
        return next((each for each in self.pages if row["source_url"] in each.pages), None)

    def settings_of(self, row: dict[str, Any]) -> dict[str, Any]:
        """Fields of the deployment of a record; none where no recipe matches."""
        return next((each.settings_of(row) for each in self.recipes if each.matches(row)), {})


def read_recipes(file: Path) -> ServingRecipes:
    """The recipes of a file; raises CatalogFileError naming it where it is none."""
    return parse_entry(file.read_bytes(), ServingRecipes, file.name)
