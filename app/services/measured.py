"""What a diagnosis was given - metrics, scrapes, results files - as the metrics of one observation."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field, model_validator

from app.domain.load_point import LATENCY_STATISTICS, Latency, LoadPoint
from app.domain.metrics import Metrics
from app.domain.metrics_latency import LATENCIES
from app.domain.provenance import Note
from app.domain.units import plain
from app.domain.value import Given
from app.importers.benchmark_results import read_sweep
from app.importers.scrape_map import ScrapeMap
from app.importers.scrapes import COMPANIONS, ENGINES, Scraped, read_scrapes
from app.services.requests import Name

MAX_SCRAPE_CHARACTERS = 2**23
MAX_REPLICAS = 100
MAX_RESULTS_FILES = 100

ScrapeText = Annotated[str, Field(min_length=1, max_length=MAX_SCRAPE_CHARACTERS)]
ResultsFile = Annotated[str, Field(min_length=1, max_length=MAX_SCRAPE_CHARACTERS)]


class Scrapes(Given):
    """One or two scrapes of a metrics endpoint, as they were answered (Prometheus text or OpenMetrics)."""

    scrapes: Annotated[Sequence[ScrapeText], Field(min_length=1, max_length=2)]
    """The earlier and the later one; a single scrape knows averages since the engine started only."""
    seconds_between: Annotated[float, Field(gt=0, le=1e7)] | None = None
    """Time between the two [s]; may be left out where the text itself has timestamps."""
    model_name: Name | None = None
    """The model to read, where the text has several."""


class Replica(Given):
    """One of several replicas behind the same load balancer; its metrics alone stand for `{"metrics": …}`."""

    name: Name | None = None
    """What to call it; its place in the list when left out."""
    metrics: Metrics | None = None
    """What it shows; or give prometheus."""
    prometheus: Scrapes | ScrapeText | None = None
    """Its scrapes, one or two."""

    @model_validator(mode="before")
    @classmethod
    def _metrics_alone(cls, given: Any) -> Any:
        if isinstance(given, dict) and given and not given.keys() & cls.model_fields.keys():
            return {"metrics": given}
        return given

    @model_validator(mode="after")
    def _one_source(self) -> "Replica":
        if (self.metrics is None) == (self.prometheus is None):
            raise ValueError("give either metrics or prometheus")
        return self


@dataclass
class Measured:
    """The metrics of one observation and what has to be said about them."""

    metrics: Metrics = field(default_factory=Metrics)
    """All figures together: of scrapes, then of results files, then as named."""
    replicas: tuple[Metrics, ...] = ()
    """Figures of each replica, where there are several."""
    lightest: Metrics | None = None
    """Figures at the lowest load of a sweep."""
    engine: str | None = None
    """The engine whose metrics endpoint was scraped."""
    notes: list[Note] = field(default_factory=list)
    """How names, windows and several sources were read."""
    unread: list[str] = field(default_factory=list)
    """Names of metrics that are none of ours."""

    def add(self, metrics: Metrics) -> None:
        """Take over the figures of `metrics`; they replace those that are known."""
        self.notes += metrics.reading_notes
        self.unread += metrics.unread
        self.metrics = _merged(self.metrics, metrics)


def measured(
    *,
    metrics: Metrics | None,
    prometheus: Scrapes | str | None,
    dcgm: Scrapes | str | None,
    replicas: Sequence[Replica],
    benchmark: Sequence[str],
) -> Measured:
    """Everything that was given, as one observation; what `metrics` names replaces what was read elsewhere. Raises InvalidInput."""
    found = Measured()
    if prometheus is not None:
        scraped = _read(prometheus, "/prometheus")
        _take(found, scraped)
        found.engine = scraped.engine
        if len(scraped.replicas) > 1:
            found.replicas = tuple(each for _, each in scraped.replicas)
    if replicas:
        _take_replicas(found, replicas)
    if dcgm is not None:
        _take(found, _read(dcgm, "/dcgm", COMPANIONS))
    if benchmark:
        _take_benchmark(found, benchmark, beside_engine=prometheus is not None or bool(replicas))
    if metrics is not None:
        found.add(metrics)
    return found


def _read(given: Scrapes | str, pointer: str, maps: Sequence[ScrapeMap] = ENGINES + COMPANIONS) -> Scraped:
    if isinstance(given, str):
        return read_scrapes(given, None, pointer=pointer, maps=maps)
    return read_scrapes(given.scrapes, given.seconds_between, pointer=pointer, model_name=given.model_name, maps=maps)


def _take(found: Measured, scraped: Scraped) -> None:
    found.metrics = _merged(found.metrics, scraped.whole)
    found.notes += [*scraped.notes, *scraped.read_from]


def _take_replicas(found: Measured, replicas: Sequence[Replica]) -> None:
    each: list[Metrics] = []
    for number, replica in enumerate(replicas):
        if replica.prometheus is not None:
            scraped = _read(replica.prometheus, f"/replicas/{number}/prometheus")
            found.engine = found.engine or scraped.engine
            found.notes += [note for note in scraped.notes if note not in found.notes]
            each.append(scraped.whole)
        elif replica.metrics is not None:
            found.notes += replica.metrics.reading_notes
            found.unread += replica.metrics.unread
            each.append(replica.metrics)
    found.replicas = tuple(each)
    if found.metrics == Metrics():
        found.metrics = Metrics.model_validate(dict(_over_replicas(each)) | {"num_replicas": len(each)})
        message = (
            f"The figures of {len(each)} replicas were put together: latencies are those of the slowest replica, all others means "
            "over the replicas."
        )
        found.notes.append(Note(code="replicas_together", message=message))


def _over_replicas(replicas: Sequence[Metrics]) -> Iterator[tuple[str, float]]:
    for name in Metrics.model_fields:
        values = [value for each in replicas if (value := each.get(name)) is not None]
        if values:
            is_latency = name.endswith("_s") and name.rsplit("_", 2)[0] in LATENCIES
            yield name, max(values) if is_latency else sum(values) / len(values)


def _take_benchmark(found: Measured, texts: Sequence[str], *, beside_engine: bool) -> None:
    sweep = read_sweep(texts, pointer="/benchmark")
    found.notes += sweep.notes
    points = sorted(sweep.points, key=_load_of)
    heaviest, lightest = points[-1], points[0]
    found.metrics = _merged(found.metrics, _of_point(heaviest, beside_engine))
    if len(points) > 1:
        found.lightest = _of_point(lightest, beside_engine)
        message = (
            f"The results files hold {len(points)} loads; diagnosed is the heaviest ({_load_text(heaviest)}), beside the lightest "
            f"({_load_text(lightest)})."
        )
        found.notes.append(Note(code="heaviest_load_diagnosed", message=message))


def _load_of(point: LoadPoint) -> tuple[float, float, float]:
    return (point.requests_offered_per_s or 0.0, point.concurrency or 0.0, point.output_tokens_per_s or 0.0)


def _load_text(point: LoadPoint) -> str:
    if point.requests_offered_per_s is not None:
        return f"{plain(point.requests_offered_per_s)} requests/s"
    return "no limit" if point.concurrency is None else f"concurrency {plain(point.concurrency)}"


def _of_point(point: LoadPoint, beside_engine: bool) -> Metrics:
    """A client measured it: where the engine's own view is known as well, its latencies are those of the client."""
    side = "client_" if beside_engine else ""
    families: Mapping[str, Latency] = {f"{side}ttft": point.ttft, f"{side}itl": point.itl, f"{side}e2e": point.e2e, "tpot": point.tpot}
    figures: dict[str, float | None] = {
        f"{family}_{statistic}_s": latency.get(statistic) for family, latency in families.items() for statistic in LATENCY_STATISTICS
    }
    sent = (point.num_completed or 0.0) + (point.num_failed or 0.0)
    figures |= {
        "num_concurrent_requests": point.concurrency,
        "offered_rps": point.requests_offered_per_s,
        "request_rps": point.requests_per_s,
        "output_tokens_per_s": point.output_tokens_per_s,
        "input_mean_tokens": point.mean_input_tokens,
        "output_mean_tokens": point.mean_output_tokens,
        "failed_request_ratio": point.num_failed / sent if point.num_failed is not None and sent else None,
    }
    return Metrics.model_validate({name: value for name, value in figures.items() if value is not None})


def _merged(known: Metrics, further: Metrics) -> Metrics:
    return Metrics.model_validate(known.model_dump(exclude_none=True) | further.model_dump(exclude_none=True))
