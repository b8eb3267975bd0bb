"""The closed vocabulary of what a diagnosis reads: names, units, ranges."""

import difflib
from collections.abc import Iterator

from pydantic import ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from app.domain.metrics_host import AcceleratorMetrics, HostMetrics
from app.domain.metrics_latency import LatencyMetrics
from app.domain.metrics_load import SchedulerMetrics, ThroughputMetrics, TrafficMetrics
from app.domain.units import unit_of

MAX_NAMED_UNKNOWN = 20
"""Unknown names that are answered with their nearest neighbours; a search for each of thousands would cost seconds."""


class Metrics(LatencyMetrics, ThroughputMetrics, SchedulerMetrics, TrafficMetrics, AcceleratorMetrics, HostMetrics):
    """What one engine (one replica) showed over one window of time; leave out what was not measured.

    Rates and percentiles are of the window, not since the start of the process. Gauges (running, waiting, KV usage) are means over it.
    """

    @model_validator(mode="before")
    @classmethod
    def _name_the_nearest(cls, given: object) -> object:
        if isinstance(given, dict) and (unknown := [name for name in given if name not in cls.model_fields]):
            errors = [
                InitErrorDetails(type=_unknown_metric(str(name)), loc=(str(name),), input=given[name])
                for name in unknown[:MAX_NAMED_UNKNOWN]
            ]
            raise ValidationError.from_exception_data(cls.__name__, errors)
        return given

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


def _unknown_metric(name: str) -> PydanticCustomError:
    shown = name[:60]
    nearest = difflib.get_close_matches(shown.casefold(), Metrics.model_fields, n=4, cutoff=0.5)
    wanted = ", ".join(nearest) if nearest else "one of the metrics that /openapi.json lists under Metrics"
    return PydanticCustomError(
        "unknown_metric", "There is no metric {name}. Input should be {wanted}", {"name": repr(shown), "wanted": wanted}
    )
