"""Typed access to one object of a benchmark's results file: numbers in the planner's ranges, latencies in seconds."""

import math
from collections.abc import Mapping

from app.domain.errors import InvalidInput
from app.domain.load_point import LATENCY_STATISTICS, MAX_COUNT, MAX_SECONDS, Latency
from app.importers.config_fields import ConfigFields

MAX_TEXT_LENGTH = 200

SECONDS_PER_UNIT: Mapping[str, float] = {
    "s": 1,
    "sec": 1,
    "seconds": 1,
    "s/token": 1,
    "ms": 1e-3,
    "milliseconds": 1e-3,
    "ms/token": 1e-3,
    "us": 1e-6,
    "ns": 1e-9,
}


class ResultFields(ConfigFields):
    """One object of a results file; a null field counts as left out."""

    def inside(self, *names: str) -> "ResultFields":
        """The object below a path of names, empty where the file has none; InvalidInput when something else stands there."""
        fields = self
        for name in names:
            _, value = fields.find(name)
            if value is not None and not isinstance(value, Mapping):
                raise fields.wrong(name, "an object")
            fields = ResultFields(value or {}, fields.at(name))
        return fields

    def number(self, *names: str, maximum: float = MAX_COUNT) -> float | None:
        """A finite number from 0 to `maximum`, or None when the field is left out."""
        name, value = self.find(*names)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= maximum:
            raise self.wrong(name, f"a number from 0 to {maximum:g}")
        return float(value)

    def required(self, *names: str, maximum: float = MAX_COUNT) -> float:
        """A finite number above 0; InvalidInput when the field is left out."""
        value = self.number(*names, maximum=maximum)
        if value is None or value == 0:
            raise self.wrong(names[0], "a number above 0")
        return value

    def positive(self, *names: str) -> float | None:
        """A number above 0; None when the field is left out, is `inf` or Infinity, which these tools write for "no limit"."""
        name, value = self.find(*names)
        if value is None or (isinstance(value, float | str) and value in (math.inf, "inf")):
            return None
        return self.required(name)

    def label(self, *names: str) -> str | None:
        """A text of reasonable length; None when left out or empty."""
        return (self.text(*names) or "")[:MAX_TEXT_LENGTH] or None

    def latency(self, statistics: Mapping[str, str], *, seconds_per_unit: float) -> Latency:
        """The statistics whose fields `statistics` names, in seconds.

        A mean of 0 is what these tools write when there was nothing to measure (one output token, no streaming): it counts as unknown.
        """
        limit = MAX_SECONDS / seconds_per_unit
        values = {each: self.number(name, maximum=limit) for each, name in statistics.items()}
        if values.get("mean") == 0:
            return Latency()
        return Latency.model_validate(
            {f"{each}_s": min(value * seconds_per_unit, MAX_SECONDS) for each, value in values.items() if value is not None}
        )

    def latency_with_unit(self, unit_field: str, statistics: Mapping[str, str]) -> Latency:
        """As `latency`, in the unit that the object itself names; nothing when the object is empty."""
        if not self.fields:
            return Latency()
        unit = self.text(unit_field)
        seconds_per_unit = SECONDS_PER_UNIT.get(unit or "")
        if seconds_per_unit is None:
            raise self.wrong(unit_field, f"one of {', '.join(SECONDS_PER_UNIT)}")
        return self.latency(statistics, seconds_per_unit=seconds_per_unit)


def named(pattern: str, *, mean: str = "mean", median: str = "p50") -> dict[str, str]:
    """Field of each statistic, with `{}` of the pattern replaced by the tool's word for it."""
    words = {"mean": mean, "p50": median}
    return {each: pattern.format(words.get(each, each)) for each in LATENCY_STATISTICS}


def expected_object(value: object, pointer: str) -> ResultFields:
    """The object at `pointer`; InvalidInput when something else stands there."""
    if not isinstance(value, Mapping):
        kind = "a list" if isinstance(value, list) else type(value).__name__
        raise InvalidInput(f"{pointer} holds {kind}; expected an object.", field=pointer, expected="an object")
    return ResultFields(value, pointer)


def ratio(total: float | None, count: float | None) -> float | None:
    """total / count, None when either is unknown or count is 0."""
    return total / count if total is not None and count else None


def serve_latency(fields: ResultFields, latency: str) -> Latency:
    """A latency as vLLM's `bench serve` and SGLang's `bench_serving`, which descends from it, write it [s].

    `median` is always written, `p50` where 50 is among --metric-percentiles; they are one number.
    """
    return fields.latency(named(f"{{}}_{latency}_ms", median="median"), seconds_per_unit=1e-3)
