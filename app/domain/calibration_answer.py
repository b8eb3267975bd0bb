"""The answer to a measured sweep: what it moved, how well it fits, which rows disagree, and what it could not tell."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from app.domain.calibration import Setup, Span
from app.domain.calibration_fit import Quantity
from app.domain.provenance import Note, Versions
from app.domain.step_constants import ConstantName
from app.domain.value import Value


class CalibratedConstant(Value):
    """A constant before and after."""

    name: ConstantName
    """Which."""
    before: float
    """Value of the class; the unit is that of the name."""
    after: float
    """Value of the set-up."""
    factor_ratio: float
    """Factor on the value of the class, which is bent below physical limits afterwards."""
    uncertainty_left_ratio: float
    """Uncertainty that is left / before: 1 where the rows say nothing about it."""
    identified: bool
    """Whether the rows tell it apart; else it stays near its class."""


class RowError(Value):
    """One quantity of one row."""

    quantity: Quantity
    """TPOT and TTFT in seconds, throughput in output tokens/s."""
    measured: float
    """As the file has it."""
    before: float
    """Predicted with the constants of the class."""
    after: float
    """Predicted with those of the set-up."""
    error_before_ratio: float
    """|before / measured - 1|."""
    error_after_ratio: float
    """|after / measured - 1|."""


class CalibrationRow(Value):
    """One measured point and what became of it."""

    point: int
    """Number in the order of the files, from 1."""
    concurrency: float | None
    """Requests in the system."""
    input_tokens: float | None
    """Mean prompt [tokens]."""
    output_tokens: float | None
    """Mean output [tokens]."""
    used: bool
    """Whether it took part in the fit."""
    errors: Sequence[RowError]
    """Predictions beside measurements; empty where it was not used."""
    disagrees: str | None
    """Why it was not used, or what does not fit."""


class FitQuality(Value):
    """How well one quantity fits."""

    quantity: Quantity
    """Which."""
    num_rows: int
    """Rows that have it."""
    median_error_before_ratio: float
    """Median of |predicted / measured - 1| with the constants of the class."""
    median_error_after_ratio: float
    """The same with those of the set-up, on the rows that they were fitted to."""
    low_ratio: float
    """Measured / predicted, 10th percentile: the range of later estimates."""
    high_ratio: float
    """90th percentile."""


class CalibrationResult(Value):
    """What a sweep says about a set-up."""

    summary: str
    """One or two sentences."""
    setup: Setup
    """What it applies to."""
    num_rows: int
    """Rows that took part."""
    concurrency: Span
    """Loads of these rows."""
    constants: Sequence[CalibratedConstant]
    """What moved."""
    quality: Sequence[FitQuality]
    """How well it fits."""
    rows: Sequence[CalibrationRow]
    """Every point of the files."""
    not_identified: Sequence[Note]
    """What the rows could not tell, and which would."""
    warnings: Sequence[Note]
    """What disagrees within the files, and what to know."""


class CalibrationHead(Value):
    """One calibration in a list."""

    id: UUID
    """Identifies the calibration: what a request names to use it."""
    name: str
    """What it is called."""
    owner: str
    """Person or team that answers for it."""
    setup: Setup
    """What it applies to."""
    num_rows: int
    """Measured points."""
    summary: str
    """What it found."""
    versions: Versions
    """Versions of planner and catalog that fitted it."""
    created_at: datetime
    """When it was stored."""


class Calibration(CalibrationHead):
    """A stored calibration."""

    result: CalibrationResult
    """What was found."""


class CalibrationPage(Value):
    """One page of a list, newest first."""

    items: Sequence[CalibrationHead]
    """The calibrations."""
    next_page_token: str | None
    """`page_token` of the next page, null at the end."""
