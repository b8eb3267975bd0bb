"""Constants of the step-time model as data: a base for all, factors for engine, accelerator and weights, each with its spread."""

import math
from datetime import date
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, PositiveInt

from app.domain.deployment import EngineName
from app.domain.engine import version_key
from app.domain.kernels import KernelsPerLayer
from app.domain.step_class import GpuClass, Kind, Load, StepClass
from app.domain.step_work import WeightClass
from app.domain.value import Given, Slug

ConstantName = Literal[
    "bandwidth_ratio",
    "expert_bandwidth_ratio",
    "cache_bandwidth_ratio",
    "dense_peak_ratio",
    "expert_peak_ratio",
    "attention_peak_ratio",
    "dense_half_tokens",
    "expert_half_tokens",
    "expert_half_width_size",
    "kernel_s",
    "latent_kernel_ratio",
    "expert_kernel_ratio",
    "shared_kernel_ratio",
    "quantise_kernel_ratio",
    "expert_choice_ratio",
    "message_s",
    "link_ratio",
    "step_s",
    "sequence_s",
    "request_s",
    "request_concurrency_s",
    "input_token_s",
    "residual_iterations",
    "prefill_queue_ratio",
    "held_output_ratio",
    "longest_output_ratio",
    "offline_ratio",
]
Factor = Annotated[float, Field(ge=0.01, le=100)]


SERVER_CONSTANTS = ("request_s", "request_concurrency_s", "input_token_s", "residual_iterations", "prefill_queue_ratio")
"""What a run without a server does not wait for."""
LIMIT_POWER = 10
"""How sharply values bend below a physical limit: 7 % below it where they would reach it."""


class Effect(Given):
    """A factor on a constant where everything that it names holds."""

    engine: EngineName | None = None
    """Engine."""
    gpu_class: GpuClass | None = None
    """Class of accelerators."""
    weights: WeightClass | None = None
    """Class of weight formats."""
    kind: Kind | None = None
    """Dense, or mixture of experts."""
    load: Load | None = None
    """Load mode."""
    era: str | None = None
    """Range of engine versions."""
    dense_weights: WeightClass | None = None
    """Class of weight formats outside the experts."""
    link: str | None = Field(default=None, max_length=20)
    """Kind of link between tensor-parallel ranks."""
    factor_ratio: Factor
    """Multiplies the constant."""

    @cached_property
    def _wanted(self) -> tuple[str | None, ...]:
        return self.engine, self.gpu_class, self.weights, self.kind, self.load, self.era, self.dense_weights, self.link

    def holds(self, found: StepClass) -> bool:
        """Whether the class has everything that the effect names."""
        return all(wanted is None or wanted == actual for wanted, actual in zip(self._wanted, found, strict=True))


class StepConstant(Given):
    """One constant of the step-time model."""

    name: ConstantName
    """What it is, with its unit."""
    base: Annotated[float, Field(gt=0, le=1e9)]
    """Value without any effect: what an unknown engine or accelerator starts with."""
    low: Annotated[float, Field(gt=0, le=1e9)]
    """Least base among the fits that each leave out a family of models or a part of the published figures."""
    high: Annotated[float, Field(gt=0, le=1e9)]
    """Largest one."""
    most: Annotated[float, Field(gt=0, le=1e9)] | None = None
    """Physical limit that the product of effects approaches and never passes."""
    effects: tuple[Effect, ...] = ()
    """Factors; an effect that is not listed is 1."""


class Band(Given):
    """Measured over predicted: a range that holds 83 % of the rows of a class, predicted by constants that were fitted without them."""

    engine: EngineName | None = None
    """Engine; None is any."""
    kind: Kind | None = None
    """Dense, or mixture of experts; None is either."""
    fitted: bool
    """Whether the class of engine, accelerator and weights had rows in the fit."""
    quantity: Literal["ttft", "tpot", "throughput"]
    """What is measured."""
    low_ratio: Factor
    """Lower end."""
    high_ratio: Factor
    """Upper end; about 8 % of the rows are above it, as many below the lower end."""
    num_rows: Annotated[int, Field(ge=0)]
    """Rows that it was read from."""


class FittedClass(Given):
    """A combination that the constants were fitted to."""

    engine: EngineName
    """Engine."""
    gpu_class: GpuClass
    """Class of accelerators."""
    weights: WeightClass
    """Class of weight formats."""
    kind: Kind
    """Dense, or mixture of experts."""
    num_rows: PositiveInt
    """Measured points."""


class Era(Given):
    """Versions of an engine that have effects of their own."""

    era: str
    """What effects call it."""
    engine: EngineName
    """Engine."""
    below_version: str
    """First version that is no longer meant."""


class Constants(NamedTuple):
    """Resolved for one class; times in seconds, ratios of data sheet figures."""

    bandwidth_ratio: float
    """Memory bandwidth that dense weights are read with / data sheet."""
    expert_bandwidth_ratio: float
    """The same for weights of experts."""
    cache_bandwidth_ratio: float
    """The same for the KV cache."""
    dense_peak_ratio: float
    """Dense peak that large products reach / data sheet."""
    expert_peak_ratio: float
    """The same for the grouped products of experts."""
    attention_peak_ratio: float
    """The same for attention."""
    dense_half_tokens: float
    """Tokens of a step at which dense products reach half of their best rate."""
    expert_half_tokens: float
    """Tokens per expert at which grouped products do."""
    expert_half_width_size: float
    """Inner width of an expert on one accelerator at which they do."""
    kernel_s: float
    """Fixed time per kernel."""
    latent_kernel_ratio: float
    """Fixed time per kernel of latent attention / kernel_s."""
    expert_kernel_ratio: float
    """The same of routed experts."""
    shared_kernel_ratio: float
    """The same of shared experts."""
    quantise_kernel_ratio: float
    """Fixed time per kernel that quantises activations / kernel_s."""
    expert_choice_ratio: float
    """Tokens that choose experts independently / tokens of a step: tokens of one text choose alike."""
    message_s: float
    """Fixed time per collective between accelerators."""
    link_ratio: float
    """Link bandwidth that is reached / data sheet."""
    step_s: float
    """Fixed time per step: scheduler and sampler."""
    sequence_s: float
    """Time per decoding sequence of a rank and step."""
    request_s: float
    """Server time per request before its first token."""
    request_concurrency_s: float
    """The same per request in the system."""
    input_token_s: float
    """The same per prompt token: tokenisation."""
    residual_iterations: float
    """Steps in flight that a new request waits for."""
    prefill_queue_ratio: float
    """Waiting behind other prompts / that of a queue with one server."""
    held_output_ratio: float
    """Share of its output that a sequence counts with when the engine admits another: it grows while others end."""
    longest_output_ratio: float
    """Steps by which the longest output of a batch of recorded conversations outlasts the mean / steps of the mean."""
    offline_ratio: float
    """Output rate of a whole offline run, start and end included / its steady state."""


class StepModel(Given):
    """All constants, what they were fitted to, and how far off left-out measurements were."""

    slug: Slug
    """Name of the file."""
    constants: tuple[StepConstant, ...]
    """One entry for each constant."""
    kernels: KernelsPerLayer
    """What layers launch."""
    prefill_first: tuple[EngineName, ...] = ()
    """Engines that run prompts in steps of their own before decoding goes on; others mix both in one step."""
    eras: tuple[Era, ...] = ()
    """Older versions with effects of their own; the first that holds counts."""
    fitted: tuple[FittedClass, ...]
    """Combinations that had rows; every other one is a product of effects known from others."""
    bands: tuple[Band, ...]
    """Errors on rows left out of the fit; the first that matches counts."""
    notes: tuple[str, ...] = ()
    """What to know about the constants."""
    sources: tuple[str, ...]
    """Measurements they were fitted to."""
    checked_on: date
    """Day of the fit."""

    @cached_property
    def _resolved(self) -> dict[StepClass, Constants]:
        return {}

    @cached_property
    def _rows(self) -> dict[tuple[str, ...], int]:
        rows: dict[tuple[str, ...], int] = {}
        for each in self.fitted:
            key = (each.engine, each.gpu_class, each.weights, each.kind)
            rows[key] = rows.get(key, 0) + each.num_rows
        return rows

    @cached_property
    def kept_working(self) -> dict[StepClass, Any]:
        """Lines of working that `step_working.constant_steps` has written: they are the same for every request of a class."""
        return {}

    def constants_of(self, found: StepClass) -> Constants:
        """base x product of the effects that hold, bent below the physical limit: value / (1 + (value / most)^10)^(1/10).

        A run without a server does not wait for one.
        """
        kept = self._resolved.get(found)
        if kept is None:
            kept = Constants(**{each.name: resolve(each, found) for each in self.constants})
            if found.load in ("offline", "batch"):
                kept = kept._replace(**dict.fromkeys(SERVER_CONSTANTS, 0.0))
            self._resolved[found] = kept
        return kept

    def rows_of(self, found: StepClass) -> int:
        """Measured points of the same engine, accelerator class, weights and kind; 0 where the constants are carried over."""
        return self._rows.get(found[:4], 0)

    def band(self, found: StepClass, quantity: Literal["ttft", "tpot", "throughput"]) -> Band:
        """How far measurements of a class lie from the prediction."""
        fitted = self.rows_of(found) > 0
        return next(
            band
            for band in self.bands
            if (band.quantity, band.fitted) == (quantity, fitted)
            and band.engine in (None, found.engine)
            and band.kind in (None, found.kind)
        )

    def era_of(self, engine: EngineName, version: str | None) -> str | None:
        """The range that a version of an engine falls into; None for current versions and where none is given."""
        key = version_key(version)
        if key is None:
            return None
        return next((each.era for each in self.eras if each.engine == engine and key < (version_key(each.below_version) or key)), None)


def resolve(constant: StepConstant, found: StepClass) -> float:
    """One constant of a class: base x product of the effects that hold, bent below the physical limit."""
    value = constant.base * math.prod(effect.factor_ratio for effect in constant.effects if effect.holds(found))
    return value if constant.most is None else value / (1 + (value / constant.most) ** LIMIT_POWER) ** (1 / LIMIT_POWER)


ROOFLINE = Constants(**{name: 1.0 if name.endswith("_ratio") else 0.0 for name in Constants._fields})
"""Full bandwidth and peaks, nothing fixed: what data sheets allow (https://doi.org/10.1145/1498765.1498785)."""
