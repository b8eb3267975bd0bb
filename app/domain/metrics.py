"""What a diagnosis reads of one engine: its vocabulary, and other names and units for the same."""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, Self

from pydantic import ConfigDict, ModelWrapValidatorHandler, PrivateAttr, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from app.domain.metric_names import read_as
from app.domain.metrics_host import AcceleratorMetrics, HostMetrics
from app.domain.metrics_latency import LatencyMetrics
from app.domain.metrics_load import SchedulerMetrics, ThroughputMetrics, TrafficMetrics
from app.domain.provenance import Note
from app.domain.units import plain, unit_of

MAX_NAMED_UNKNOWN = 20
"""Unknown names that are answered with their nearest neighbours; a search for each of thousands would cost seconds."""
MISSPELT_RATIO = 0.93
"""Likeness to a known name (difflib) from which an unknown one is taken for a slip of the pen and refused: one letter of ten."""

MAX_PERCENT = 100


class Metrics(LatencyMetrics, ThroughputMetrics, SchedulerMetrics, TrafficMetrics, AcceleratorMetrics, HostMetrics):
    """What one engine (one replica) showed over one window of time; leave out what was not measured.

    Rates and percentiles are of the window, not since the start of the process. Gauges (running, waiting, KV usage) are means over it.
    Names that engines and benchmark tools use for these figures, and other units in the name (`_ms`, `_pct`, `_tps`), are read as well and
    listed in `assumptions`. A name that looks misspelt is refused; another unknown one is not read, and a warning says so.
    """

    model_config = ConfigDict(json_schema_extra={"additionalProperties": {"type": "number"}})

    _notes: tuple[Note, ...] = PrivateAttr(default=())
    _unread: tuple[str, ...] = PrivateAttr(default=())

    @model_validator(mode="wrap")
    @classmethod
    def _understood(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(given, dict):
            return handler(given)
        fields = frozenset(cls.model_fields)
        understood: dict[Any, Any] = {}
        written: dict[str, str] = {}
        notes, unread = [], []
        for name, value in given.items():
            meant = read_as(name, fields) if isinstance(name, str) else None
            if meant is None:
                unread.append(str(name))
                continue
            if meant.name in understood:
                message = f"{name!r} and {written[meant.name]!r} are the same metric. Input should be one of them"
                raise _refused(cls, {name: value}, {name: ("given_twice", message)})
            written[meant.name] = name
            understood[meant.name] = value
            if meant.factor != 1 and isinstance(value, (int, float)) and not isinstance(value, bool):
                understood[meant.name] = value * meant.factor
            if meant.name != name:
                notes.append((name, meant.name))
        if misspelt := _misspelt(unread[:MAX_NAMED_UNKNOWN], fields):
            raise _refused(cls, given, misspelt)
        try:
            metrics = handler(understood)
        except ValidationError as error:
            raise _as_written(error, written, given) from None
        metrics._notes = tuple(_note(name, given[name], meant, metrics.get(meant)) for name, meant in notes)
        metrics._unread = tuple(unread)
        return metrics

    @property
    def reading_notes(self) -> tuple[Note, ...]:
        """How names and units other than ours were understood."""
        return self._notes

    @property
    def unread(self) -> tuple[str, ...]:
        """Names that were given and are no metric of ours."""
        return self._unread

    def get(self, name: str) -> float | None:
        """The metric of that name, or None when it was not measured."""
        value: float | None = getattr(self, name)
        return value

    def latency(self, family: str, statistic: str) -> float | None:
        """One statistic of a latency of LATENCIES [s]."""
        return self.get(f"{family}_{statistic}_s")

    def high_percentile(self, family: str) -> float | None:
        """P95 of a latency, or where that was not measured P99, or P90 [s]."""
        found = (self.latency(family, level) for level in ("p95", "p99", "p90"))
        return next((value for value in found if value is not None), None)

    def length(self, family: str, statistic: str) -> float | None:
        """One statistic of a length of LENGTHS [tokens]."""
        return self.get(f"{family}_{statistic}_tokens")

    def measured(self) -> Iterator[str]:
        """Names of the metrics that were given."""
        return (name for name in Metrics.model_fields if self.get(name) is not None)


def metric_unit(name: str) -> str:
    """Unit that the name of a metric or a symptom stands for."""
    return unit_of(name) or "count"


def _note(written: str, given: float, meant: str, value: float | None) -> Note:
    return Note(code="metric_read_as", message=f"{written} {plain(given)} is read as {meant} {plain(value or 0.0)}.")


def _misspelt(unread: list[str], fields: frozenset[str]) -> Mapping[str, tuple[str, str]]:
    found = {}
    for name in unread:
        shown = name[:60]
        without_unit = [field for field in fields if unit_of(field) and field.rsplit("_", 1)[0] == shown.casefold()]
        if nearest := without_unit or difflib.get_close_matches(shown.casefold(), fields, n=4, cutoff=MISSPELT_RATIO):
            found[name] = ("unknown_metric", f"There is no metric {shown!r}. Input should be {', '.join(nearest)}")
    return found


def _refused(cls: type[Metrics], given: Mapping[str, Any], faults: Mapping[str, tuple[str, str]]) -> ValidationError:
    errors = [
        InitErrorDetails(type=PydanticCustomError(code, "{message}", {"message": message}), loc=(name,), input=given[name])
        for name, (code, message) in faults.items()
    ]
    return ValidationError.from_exception_data(cls.__name__, errors)


def _as_written(error: ValidationError, written: Mapping[str, str], given: Mapping[str, Any]) -> ValidationError:
    """The same faults at the names that the caller wrote."""
    faults = []
    for fault in error.errors(include_url=False):
        name = written.get(str(fault["loc"][0]), str(fault["loc"][0]))
        message = fault["msg"] if name == str(fault["loc"][0]) else f"{fault['msg']} after conversion to {fault['loc'][0]}"
        if name.endswith("_ratio") and fault["type"] == "less_than_equal" and fault["input"] <= MAX_PERCENT:
            message += f"; is it a percentage? Then name it {name.removesuffix('_ratio')}_pct"
        kind = PydanticCustomError(fault["type"], "{message}", {"message": message})
        faults.append(InitErrorDetails(type=kind, loc=(name, *fault["loc"][1:]), input=given.get(name)))
    return ValidationError.from_exception_data(error.title, faults)
