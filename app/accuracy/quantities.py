"""What is compared with recorded start-ups, its goals, and the result of the comparison."""

from collections.abc import Mapping
from typing import Final, Literal

from app.accuracy.records import Outcome
from app.domain.accuracy import Coverage, ErrorSummary, Goal
from app.domain.memory_fit import Verdict
from app.domain.value import Value

Quantity = Literal[
    "kv_bytes_per_token_per_gpu",
    "weights_bytes_per_gpu",
    "kv_tokens_given_pool",
    "concurrency_given_pool",
    "pool_from_inputs",
    "kv_tokens_from_inputs",
    "concurrency_from_inputs",
    "pool_with_limits_recorded",
    "concurrency_with_limits_recorded",
    "pool_given_weights",
]
Kind = Literal["dense", "moe", "mla", "windowed", "hybrid"]

_FROM_INPUTS = Goal(median_error_ratio=0.025, bound_ratio=0.08, share_ratio=0.9)
_WITH_LIMITS = Goal(median_error_ratio=0.012, bound_ratio=0.05, share_ratio=0.9)
_GIVEN_POOL = Goal(median_error_ratio=0.001, bound_ratio=0.01, share_ratio=0.95)
EXACT_MEDIAN = 5e-4
"""A median error of 0 %, to the digits that engines print."""
QUANTITIES: Final[Mapping[Quantity, tuple[str, Goal | None]]] = {
    "kv_bytes_per_token_per_gpu": (
        "KV bytes per token per GPU",
        Goal(median_error_ratio=EXACT_MEDIAN, bound_ratio=0.005, share_ratio=0.95),
    ),
    "weights_bytes_per_gpu": ("weights per GPU", Goal(median_error_ratio=0.01, bound_ratio=0.03, share_ratio=0.9)),
    "kv_tokens_given_pool": ("KV tokens, given the printed KV memory", _GIVEN_POOL),
    "concurrency_given_pool": ("concurrency, given the printed KV memory", _GIVEN_POOL),
    "pool_from_inputs": ("KV memory, from inputs alone", _FROM_INPUTS),
    "kv_tokens_from_inputs": ("KV tokens, from inputs alone", _FROM_INPUTS),
    "concurrency_from_inputs": ("concurrency, from inputs alone", _FROM_INPUTS),
    "pool_with_limits_recorded": ("KV memory, utilisation, max_num_seqs and batched tokens recorded", _WITH_LIMITS),
    "concurrency_with_limits_recorded": ("concurrency, utilisation, max_num_seqs and batched tokens recorded", _WITH_LIMITS),
    "pool_given_weights": ("KV memory, given the printed weights", None),
}
"""What each quantity is called, and what its errors are asked to stay within."""
VERDICTS: Final[tuple[Verdict, ...]] = ("serves", "loads_only", "does_not_fit")


class Comparison(Value):
    """One figure as recorded and as the planner answers it."""

    case: str
    """Id of the record."""
    quantity: Quantity
    """What is compared."""
    kind: Kind
    """Kind of the model."""
    quantised: bool
    """Weights below 16 bits."""
    recorded: float
    """As recorded, in base units."""
    estimated: float
    """As answered, in base units."""
    error_ratio: float
    """(estimated - recorded) / recorded."""


class StartVerdict(Value):
    """How a start ended, and what the planner says about it."""

    case: str
    """Id of the record."""
    outcome: Outcome
    """How the start ended."""
    verdict: Verdict
    """The planner's verdict."""


class PoolRange(Value):
    """The planner's range of the KV memory of one accelerator around the recorded figure."""

    case: str
    """Id of the record."""
    low_bytes: int
    """Lower end [bytes]."""
    recorded_bytes: int
    """As recorded [bytes]."""
    high_bytes: int
    """Upper end [bytes]."""


class QuantityTable(Value):
    """The errors of one quantity, together and by kind of model."""

    quantity: Quantity
    """What is compared."""
    title: str
    """The same in words."""
    goal: Goal | None
    """What the errors are asked to stay within."""
    overall: ErrorSummary | None
    """All cases; None when no case has both figures."""
    by_kind: dict[str, ErrorSummary]
    """By kind of model, and by `quantised` and `not quantised`; kinds without cases are left out."""


class LeftOut(Value):
    """A recorded case, or a part of one, that is not judged."""

    case: str
    """Id of the record."""
    parts: list[str]
    """What is not judged; empty for the whole case: no request expresses it, or the planner refuses to answer."""
    reason: str
    """Why."""


class MemoryAccuracy(Value):
    """The planner against recorded start-ups."""

    num_cases: int
    """Records read."""
    num_expressed: int
    """Records that a request expresses."""
    quantities: list[QuantityTable]
    """Errors by quantity."""
    pool_coverage: Coverage
    """How often the range of the KV memory held the recorded figure."""
    pool_ranges: list[PoolRange]
    """Those ranges."""
    verdicts: list[StartVerdict]
    """Verdicts of the starts whose end is recorded."""
    comparisons: list[Comparison]
    """Every figure that was compared."""
    left_out: list[LeftOut]
    """What is not judged, with the reason."""

    def failed_called_serving(self) -> list[str]:
        """Starts that failed although the planner says that they serve."""
        return [start.case for start in self.verdicts if start.outcome != "started" and start.verdict == "serves"]

    def started_called_failing(self) -> list[str]:
        """Starts that succeeded although the planner says that they do not serve."""
        return [start.case for start in self.verdicts if start.outcome == "started" and start.verdict != "serves"]

    def summary_of(self, quantity: Quantity) -> ErrorSummary | None:
        """Errors of one quantity over all cases."""
        return next(table.overall for table in self.quantities if table.quantity == quantity)
