"""Several sets of recorded start-ups beside each other: fitted and fresh ones, with readings and without."""

from collections.abc import Iterable, Mapping

from app.accuracy.memory import memory_accuracy
from app.accuracy.quantities import QUANTITIES, MemoryAccuracy
from app.accuracy.records import ReadRecord
from app.accuracy.report import markdown_ranges, markdown_rows, percent
from app.domain.accuracy import ErrorSummary
from app.domain.catalog import Catalog

FITTED_BARE = "fitted, fields alone"
FRESH = "fresh"
APART = "fresh, kept apart"
FRESH_BARE = "fresh, fields alone"


def compared_sets(catalog: Catalog, fitted: Iterable[ReadRecord], fresh: Iterable[ReadRecord]) -> dict[str, MemoryAccuracy]:
    """Scores of the fresh records, of those kept apart, and of both files by the fields of the records alone.

    `fresh` were collected after the constants were fixed. Without its reading a record means what someone would ask who knows only
    its fields: the model by its name, the engine's version, the device and the settings.
    """
    fitted, fresh = list(fitted), list(fresh)
    return {
        FRESH: memory_accuracy(catalog, fresh),
        APART: memory_accuracy(catalog, (each for each in fresh if each.record.apart)),
        FRESH_BARE: memory_accuracy(catalog, map(without_reading, fresh)),
        FITTED_BARE: memory_accuracy(catalog, map(without_reading, fitted)),
    }


def without_reading(read: ReadRecord) -> ReadRecord:
    """The record as its fields alone state it."""
    return ReadRecord(record=read.as_recorded or read.record, reading=None)


def markdown_sets(sets: Mapping[str, MemoryAccuracy]) -> str:
    """Median and 90th percentile of every quantity by set, then ranges and verdicts of each."""
    rows = [[title, *(_cell(found.summary_of(quantity)) for found in sets.values())] for quantity, (title, _) in QUANTITIES.items()]
    lines = [
        "Fresh records were collected after the constants were fixed, and half of them is kept apart from every later change; "
        "`fields alone` leaves out what a person read in a record's words.",
        "",
        *markdown_rows(("median, 90th percentile (n); goal met", *sets), rows),
        "",
        *(f"- {name}: {markdown_ranges(found)} {_verdicts(found)}" for name, found in sets.items()),
    ]
    return "\n".join(lines) + "\n"


def _cell(summary: ErrorSummary | None) -> str:
    if summary is None:
        return ""
    met = {True: "; yes", False: "; no", None: ""}[summary.goal_met]
    return f"{percent(summary.median_error_ratio)}, {percent(summary.p90_error_ratio)} ({summary.num_cases}){met}"


def _verdicts(found: MemoryAccuracy) -> str:
    failed = sum(start.outcome != "started" for start in found.verdicts)
    called = f"{len(found.failed_called_serving())} of {failed} that failed called serves"
    return f"{called}, {len(found.started_called_failing())} of {len(found.verdicts) - failed} that started called failing."
