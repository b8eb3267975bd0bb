"""An immutable snapshot of everything the planner knows by name."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field

from app.domain.calibration import Calibrations
from app.domain.checkpoint_names import as_published, base_of, names_of_bases, read_name
from app.domain.diagnosis_profile import DiagnosisProfile
from app.domain.engine import EngineMemory, engine_memory, newest_first
from app.domain.errors import MissingFigure, UnknownName
from app.domain.hardware import Gpu
from app.domain.llm import Llm
from app.domain.step_constants import StepModel
from app.domain.value import Slug, Value

Usd = Annotated[float, Field(ge=0, le=1e9)]


PriceKind = Literal["on_demand", "spot", "committed"]
"""on_demand: by the hour, ended at will; spot: spare capacity that may be reclaimed; committed: paid for a term, used or not."""


class GpuPrice(Value):
    """What one accelerator costs under one kind of price; a range where the sources differ."""

    slug: Slug
    """Name in the catalog."""
    gpu: Slug
    """The accelerator."""
    kind: PriceKind = "on_demand"
    """How the capacity is paid for."""
    low_usd_per_hour: Usd
    """Lowest price found, per accelerator [USD/hour]."""
    high_usd_per_hour: Usd
    """Highest price found, per accelerator [USD/hour]."""
    priced_on: str = Field(max_length=20)
    """Month or day of the price."""
    note: str | None = None
    """What the price includes."""
    sources: tuple[str, ...] = ()
    """Where the price was read."""
    checked_on: date | None = None
    """Day on which the price was last checked against the sources."""


@dataclass(frozen=True)
class Catalog:
    """GPUs, models and prices by slug, engines by version, with the version of the whole."""

    gpus: Mapping[str, Gpu]
    models: Mapping[str, Llm]
    prices: Mapping[str, GpuPrice]
    version: str
    engines: tuple[EngineMemory, ...] = ()
    """Memory accounting of the engines, bundled only; the generic engine has none."""
    steps: StepModel | None = None
    """Constants of the step-time model, bundled only."""
    calibrations: Calibrations = field(default_factory=Calibrations)
    """Measured set-ups, whose estimates follow their own constants."""
    profiles: Mapping[str, DiagnosisProfile] = field(default_factory=dict)
    """Saved thresholds of the diagnosis."""
    _gpu_names: Mapping[str, str] = field(init=False, repr=False)
    _price_by_gpu: Mapping[tuple[str, PriceKind], GpuPrice] = field(init=False, repr=False)
    _model_names: Mapping[str, str] = field(init=False, repr=False)
    _bases: Mapping[str, str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        gpu_names = {gpu.name.casefold(): slug for slug, gpu in self.gpus.items()} | {slug: slug for slug in self.gpus}
        aliases = {alias.casefold(): slug for slug, model in self.models.items() for alias in model.hf_aliases}
        hub_ids = {model.hf_id.casefold(): slug for slug, model in self.models.items() if model.hf_id}
        object.__setattr__(self, "_gpu_names", gpu_names)
        object.__setattr__(self, "_price_by_gpu", {(price.gpu, price.kind): price for price in self.prices.values()})
        object.__setattr__(self, "_bases", names_of_bases(self.models))
        object.__setattr__(self, "_model_names", aliases | hub_ids | {slug: slug for slug in self.models})

    def gpu(self, name: str, *, field: str = "/gpu") -> Gpu:
        """The accelerator called `name` (slug or full name, case-insensitive); raises UnknownName with the nearest slugs."""
        slug = self._gpu_names.get(name.strip().casefold())
        if slug is None:
            raise _unknown("GPU", name, self._gpu_names, field)
        return self.gpus[slug]

    @cached_property
    def _engines_by_name(self) -> Mapping[str, Sequence[EngineMemory]]:
        names = {engine.engine for engine in self.engines}
        return {name: newest_first(engine for engine in self.engines if engine.engine == name) for name in names}

    def engine(self, name: str, version: str | None = None, *, field: str = "/deployment/engine") -> EngineMemory | None:
        """The memory accounting of an engine in a version, the newest known where the version says nothing; None for `generic`."""
        return None if name == "generic" else engine_memory(self._engines_by_name.get(name, ()), name, version, field=field)

    @property
    def step_model(self) -> StepModel:
        """Constants of the step-time model; raises MissingFigure where the catalog was made without them."""
        if self.steps is None:
            raise MissingFigure("the catalog holds no constants of the step-time model", expected="a bundled catalog")
        return self.steps

    def price(self, gpu: str, kind: PriceKind = "on_demand") -> GpuPrice | None:
        """The price of that kind of an accelerator by slug, None when the catalog has none."""
        return self._price_by_gpu.get((gpu, kind))

    def model(self, name: str, *, field: str = "/model") -> Llm:
        """The model called `name` (slug or Hugging Face id, case-insensitive); raises UnknownName with the nearest slugs."""
        slug = self._model_names.get(name.strip().casefold())
        if slug is None:
            raise _unknown("model", name, self._model_names, field)
        return self.models[slug]

    def profile(self, name: str, *, field: str = "/profile") -> DiagnosisProfile:
        """The saved diagnosis profile of that name, in any case; raises UnknownName with the nearest names."""
        found = self.profiles.get(name.strip().casefold())
        if found is None:
            raise _unknown("diagnosis profile", name, {each: each for each in self.profiles}, field)
        return found

    def checkpoint(self, name: str, *, field: str = "/model") -> Llm:
        """The model called `name`, or the one that a checkpoint of that name is made of, in its format; raises UnknownName."""
        if name.strip().casefold() not in self._model_names:
            named = read_name(name)
            slug = base_of(named, self._bases)
            if slug is not None:
                return as_published(self.models[slug], name.strip(), named)
        return self.model(name, field=field)


def _unknown(kind: str, name: str, names: Mapping[str, str], field: str) -> UnknownName:
    wanted = name.strip().casefold()
    close = difflib.get_close_matches(wanted, names, n=8, cutoff=0.5)
    contained = sorted(known for known in names if len(wanted) >= 3 and wanted in known)[:8]
    nearest = tuple(dict.fromkeys(names[known] for known in [*contained, *close]))[:5]
    hint = f"; nearest: {', '.join(nearest)}" if nearest else ""
    return UnknownName(f"no {kind} called {name[:100]!r} in the catalog{hint}", nearest=nearest, field=field, value=name[:100])
