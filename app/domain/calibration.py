"""A calibration: what one measured sweep says about the constants of one set-up, and which estimates it applies to."""

from collections.abc import Iterable, Mapping
from datetime import date, datetime
from functools import cached_property
from typing import Literal, NamedTuple, TypeVar
from uuid import UUID

from app.domain.calibrated_model import calibrated_model
from app.domain.deployment import Deployment, EngineName
from app.domain.engine import version_key
from app.domain.errors import InvalidInput, UnknownName
from app.domain.hardware import Gpu
from app.domain.kv_cache import resolve_kv_format
from app.domain.llm import Llm
from app.domain.precision import KvFormat, WeightFormat, native_format
from app.domain.provenance import Answer, Note
from app.domain.step_constants import Band, ConstantName, StepModel
from app.domain.units import plain
from app.domain.value import Value

CalibrationChoice = UUID | Literal["none"] | None
"""The calibration that a request wants: by id, `none`, or None for that of its set-up."""
AnswerT = TypeVar("AnswerT", bound=Answer)
VERSION_EFFECT = "-8 to +10 %"
"""Step times of one set-up by version of vLLM against the mean of all versions, in the rows of the class constants."""


UNMEASURED_SHARE = "seven of ten"
"""Rows of recorded sweeps in the range of a calibration that saw only lower or only higher loads: `inferplan accuracy calibration`."""


class Setup(Value):
    """What constants belong to: everything that chooses the kernels of a step."""

    model: str
    """Catalog slug of the model."""
    gpu: str
    """Catalog slug of the accelerator."""
    engine: EngineName
    """Engine."""
    engine_version: str | None
    """Its version; null when it was not given."""
    tp: int
    """Attention tensor-parallel degree."""
    pp: int
    """Pipeline stages."""
    dp: int
    """Attention data-parallel ranks."""
    ep: int
    """Expert-parallel degree."""
    weights: WeightFormat | Literal["own"]
    """Precision of the weights; own is that of the checkpoint where it has no name."""
    kv_cache: KvFormat
    """Precision of the KV cache."""
    enforce_eager: bool
    """Whether it ran without CUDA graphs."""
    speculative: bool
    """Whether it decoded speculatively: an acceptance that was not as stated is in the constants."""

    def differences(self, other: "Setup") -> list[str]:
        """Names of the fields, the version aside, in which two set-ups differ."""
        return [name for name in type(self).model_fields if name != "engine_version" and getattr(self, name) != getattr(other, name)]


def setup_of(llm: Llm, gpu: Gpu, deployment: Deployment) -> Setup:
    """The set-up of a deployment: precisions as they are loaded, so that a default and its explicit form are the same."""
    return Setup.model_construct(
        model=llm.slug,
        gpu=gpu.slug,
        engine=deployment.engine,
        engine_version=deployment.engine_version,
        tp=deployment.tp,
        pp=deployment.pp,
        dp=deployment.dp,
        ep=deployment.ep,
        weights=deployment.weights or _own_weights(llm),
        kv_cache=resolve_kv_format(llm, deployment.kv_cache),
        enforce_eager=deployment.enforce_eager,
        speculative=deployment.speculative is not None,
    )


def _own_weights(llm: Llm) -> WeightFormat | Literal["own"]:
    written = llm.native.quantization
    if written is None:
        return "fp16" if llm.native.dtype == "float16" else "bf16"
    return native_format(written) or "own"


class Span(Value):
    """Least and greatest of what was measured."""

    low: float
    """Least."""
    high: float
    """Greatest."""


class AppliedCalibration(Value):
    """What an estimate needs of a calibration."""

    id: UUID
    """Identifies the calibration."""
    name: str
    """What it is called."""
    setup: Setup
    """What was measured."""
    factors: Mapping[ConstantName, float]
    """Value for the set-up / value of its class, by constant."""
    bands: tuple[Band, ...]
    """Measured over predicted, 10th to 90th percentile, of rows like those measured."""
    num_rows: int
    """Measured points."""
    concurrency: Span
    """Loads that were measured."""
    constants_of: date
    """Day on which the class constants were fitted that the factors multiply."""
    created_at: datetime
    """When it was stored."""

    @cached_property
    def _models(self) -> dict[tuple[int, bool], tuple[StepModel, StepModel]]:
        return {}

    def model(self, model: StepModel, *, own: bool) -> StepModel:
        """The step-time model with the factors; with the range of the calibration where it is for the set-up's `own` estimates."""
        key = (id(model), own)
        if key not in self._models:
            # The model itself is kept beside, so that no other one gets its id.
            self._models[key] = model, calibrated_model(model, self.factors, calibration=self, own=own)
        return self._models[key][1]


class ChosenSteps(NamedTuple):
    """The step-time model of an estimate, and what to say about it."""

    model: StepModel
    assumptions: tuple[Note, ...] = ()
    warnings: tuple[Note, ...] = ()

    def warned(self, answer: AnswerT) -> AnswerT:
        """The answer with the warnings that these constants call for."""
        return answer.model_copy(update={"warnings": [*answer.warnings, *self.warnings]}) if self.warnings else answer


class Calibrations:
    """Those of one catalog snapshot, found by set-up."""

    def __init__(self, calibrations: Iterable[AppliedCalibration] = ()) -> None:
        """Newer ones go before older ones of the same version."""
        self._by_id = {each.id: each for each in sorted(calibrations, key=lambda each: (each.created_at, each.id), reverse=True)}
        self._by_setup: dict[tuple[object, ...], list[AppliedCalibration]] = {}
        for each in self._by_id.values():
            self._by_setup.setdefault(_key(each.setup), []).append(each)

    def steps(
        self, model: StepModel, llm: Llm, gpu: Gpu, deployment: Deployment, wanted: UUID | Literal["none"] | None = None
    ) -> ChosenSteps:
        """The constants for a deployment.

        Without a wish: those of a calibration of the same model, accelerator, engine, layout and precisions, of the nearest version within
        the range of versions whose constants are alike. Never unasked those of another model or layout: the factors of bandwidth
        and peaks are partly those of its shapes. With an id they are taken over, and what differs is said; raises InvalidInput where engine
        or accelerator differ, UnknownName for an unknown id.
        """
        if wanted == "none" or (wanted is None and not self._by_id):
            return ChosenSteps(model)
        setup = setup_of(llm, gpu, deployment)
        if wanted is not None:
            return self._wanted(model, setup, wanted)
        era = model.era_of(setup.engine, setup.engine_version)
        alike = [each for each in self._by_setup.get(_key(setup), ()) if model.era_of(setup.engine, each.setup.engine_version) == era]
        if not alike:
            return ChosenSteps(model)
        return _applied(model, min(alike, key=lambda each: _distance(each.setup.engine_version, setup.engine_version)), setup)

    def _wanted(self, model: StepModel, setup: Setup, wanted: UUID) -> ChosenSteps:
        found = self._by_id.get(wanted)
        if found is None:
            raise UnknownName(f"there is no calibration under the id {wanted}", field="/calibration", value=str(wanted))
        for name in ("engine", "gpu"):
            theirs, own = getattr(found.setup, name), getattr(setup, name)
            if theirs != own:
                detail = f"calibration {wanted} was measured on {name} {theirs}; constants of kernels do not carry over to {own}"
                raise InvalidInput(detail, field="/calibration", value=str(wanted), expected=f"a calibration with {name} {own}")
        return _applied(model, found, setup)


def _applied(model: StepModel, found: AppliedCalibration, setup: Setup) -> ChosenSteps:
    theirs, differ = found.setup, found.setup.differences(setup)
    span = found.concurrency
    used = Note(
        code="calibration_used",
        message=f"Constants of the step follow calibration {found.name!r} ({found.id}): {found.num_rows} measured rows at concurrency "
        f"{plain(span.low)} to {plain(span.high)}. For loads outside it the range holds {UNMEASURED_SHARE} of measurements instead of four "
        "of five.",
    )
    warnings = []
    if differ:
        what = ", ".join(f"{name} {getattr(theirs, name)} there, {getattr(setup, name)} here" for name in differ)
        warnings.append(
            Note(
                code="calibration_of_other_setup",
                message=f"The calibration was made for another set-up ({what}): its factors carry over in part, and the range "
                "stays that of the class.",
            )
        )
    if theirs.engine_version != setup.engine_version:
        warnings.append(
            Note(
                code="calibration_of_other_version",
                message=f"The calibration measured version {theirs.engine_version or 'not named'} of {theirs.engine}, the request is for "
                f"{setup.engine_version or 'one that is not named'}: versions differed by {VERSION_EFFECT} in step time so far.",
            )
        )
    if found.constants_of != model.checked_on:
        warnings.append(
            Note(
                code="calibration_of_other_constants",
                message=f"The calibration multiplies class constants of {found.constants_of}; those of {model.checked_on} are in use. "
                "Calibrate again with the same files.",
            )
        )
    return ChosenSteps(found.model(model, own=not differ), (used,), tuple(warnings))


def _key(setup: Setup) -> tuple[object, ...]:
    return tuple(getattr(setup, name) for name in Setup.model_fields if name != "engine_version")


def _distance(one: str | None, other: str | None) -> tuple[bool, tuple[int, ...]]:
    """How far two versions are apart; an unknown one is farther than any known one, unless both are."""
    if one == other:
        return False, ()
    first, second = version_key(one), version_key(other)
    if first is None or second is None:
        return True, (1,)
    return True, (0, *(abs(left - right) for left, right in zip(first, second, strict=True)))
