"""From the readings of a map to the metrics of a diagnosis, with what has to be said about them."""

from collections.abc import Mapping, Sequence

from pydantic import ValidationError

from app.domain.metrics import Metrics
from app.domain.metrics_latency import PERCENTILES
from app.domain.provenance import Note
from app.domain.units import tidy
from app.importers.scrape_histogram import INFINITE
from app.importers.scrape_map import FactValue, ScrapeMap
from app.importers.scrape_readings import Figure
from app.importers.scrape_window import Window

PARTS_OF_TTFT = ("queue_time", "prefill_time")
WIDE_RATIO = 2.0
"""A percentile from a bucket whose upper bound is more than so many times its lower one is said to be interpolated."""
MAX_NAMED = 12


def figures_of(of: ScrapeMap, window: Window) -> dict[str, Figure]:
    """Every metric that a window has, by name; of two readings of one metric the first."""
    found: dict[str, Figure] = {}
    for reading in of.readings:
        for figure in reading.read(window):
            found.setdefault(figure.metric, figure)
    _cap_parts(found)
    facts = facts_of(of, window)
    for known in of.known:
        values = [facts.get(name) for name in known.facts]
        numbers = [value for value in values if isinstance(value, float)]
        if len(numbers) == len(values) and known.metric not in found:
            product = 1.0
            for number in numbers:
                product *= number
            found[known.metric] = Figure(known.metric, product, " x ".join(known.facts), "as the engine tells it")
    return found


def _cap_parts(found: dict[str, Figure]) -> None:
    """Percentiles of a part of the TTFT that only a wide bucket tells are at most those of the TTFT: so it is in each request."""
    for statistic in PERCENTILES:
        whole = found.get(f"ttft_{statistic}_s")
        for part in PARTS_OF_TTFT:
            figure = found.get(f"{part}_{statistic}_s")
            if whole is None or figure is None or figure.bounds is None or not _is_wide(figure):
                continue
            value = max(whole.value, figure.bounds[0])
            if value < figure.value:
                found[figure.metric] = figure._replace(value=value, how=f"{figure.how}, at most the TTFT's")


def facts_of(of: ScrapeMap, window: Window) -> dict[str, FactValue]:
    """Settings and sizes that the engine tells."""
    return {fact.name: value for fact in of.facts if (value := fact.read(window)) is not None}


def metrics_of(figures: Mapping[str, Figure]) -> tuple[Metrics, list[Note]]:
    """The metrics, and a note for each figure that is left out since no such metric can have it, as 85 for a share."""
    values = {name: tidy(figure.value) for name, figure in figures.items()}
    try:
        return Metrics.model_validate(values), []
    except ValidationError as error:
        refused = {str(each["loc"][0]): each["msg"] for each in error.errors(include_url=False) if each["loc"]}
        if not refused.keys() <= values.keys():
            raise
        notes = [
            Note(code="out_of_range", message=f"{figures[name].name} gives {name} = {values[name]:.10g}, left out: {why}.")
            for name, why in refused.items()
        ]
        return Metrics.model_validate({name: value for name, value in values.items() if name not in refused}), notes


def notes_of(of: ScrapeMap, window: Window, figures: Mapping[str, Figure]) -> list[Note]:
    """What has to be said about the figures."""
    notes = []
    finished = window.increase(of.finished) if of.finished else None
    if finished == 0:
        message = "No request finished in the window: there are no latencies, and rates of finished requests are zero."
        notes.append(Note(code="no_request_finished", message=message))
    wide = [figure for figure in figures.values() if figure.bounds and figure.bounds[1] < INFINITE and _is_wide(figure)]
    if wide:
        message = (
            f"Interpolated in buckets whose bounds are more than {WIDE_RATIO:g}x apart: "
            f"{_listed([f'{one.metric} {one.value:.3g} (between {_low(one):.4g} and {_high(one):.4g})' for one in wide])}."
        )
        notes.append(Note(code="wide_bucket", message=message))
    above = [figure for figure in figures.values() if figure.bounds and figure.bounds[1] == INFINITE]
    if above:
        message = f"Beyond the last bound of their histogram, so at least: {_listed([f'{one.metric} {one.value:.4g}' for one in above])}."
        notes.append(Note(code="beyond_last_bucket", message=message))
    used = {figure.name for figure in figures.values()}
    notes += [
        Note(code="approximate_size", message=f"{known.metric} is {known.caveat}.")
        for known in of.known
        if known.caveat and " x ".join(known.facts) in used
    ]
    return notes


def read_from(figures: Mapping[str, Figure]) -> list[Note]:
    """For the working: one line for each name in the scrape with what was read from it, and how."""
    lines: dict[str, list[str]] = {}
    for figure in figures.values():
        lines.setdefault(figure.name, []).append(f"{figure.metric} {figure.value:.6g} ({figure.how})")
    return [Note(code="read_from", message=f"{name}: {', '.join(read)}.") for name, read in lines.items()]


def _is_wide(figure: Figure) -> bool:
    return _high(figure) > WIDE_RATIO * _low(figure)


def _low(figure: Figure) -> float:
    return figure.bounds[0] if figure.bounds else figure.value


def _high(figure: Figure) -> float:
    return figure.bounds[1] if figure.bounds else figure.value


def _listed(texts: Sequence[str]) -> str:
    return ", ".join(texts[:MAX_NAMED]) + (f" and {len(texts) - MAX_NAMED} more" if len(texts) > MAX_NAMED else "")
