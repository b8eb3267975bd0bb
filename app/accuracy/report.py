"""The accuracy of the memory answers as Markdown."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from app.accuracy.quantities import QUANTITIES, VERDICTS, Comparison, MemoryAccuracy, QuantityTable
from app.accuracy.records import ReadRecord
from app.domain.accuracy import ErrorSummary, Goal

WORST_PER_QUANTITY = 5
NOTE_CHARACTERS = 240
_OUTCOMES = ("started", "failed")


END_MARK = "<!-- end -->"
"""What stands after a summary in a document that carries it; before it stands `begin_mark`."""


def begin_mark(what: str) -> str:
    """What stands before the summary of `inferplan accuracy <what>`."""
    return f"<!-- inferplan accuracy {what} -->"


def markdown_summary(found: MemoryAccuracy) -> str:
    """Errors by quantity against their goals, coverage of the range, and verdicts."""
    lines = [
        f"{found.num_expressed} of {found.num_cases} recorded start-ups are expressed as requests. Errors are relative, without sign.",
        "",
        *_quantity_table(found.quantities),
        "",
        markdown_ranges(found),
        "",
        *_verdicts(found),
    ]
    return "\n".join(lines) + "\n"


def markdown_report(found: MemoryAccuracy, records: Iterable[ReadRecord], *, worst: int = WORST_PER_QUANTITY) -> str:
    """The summary, errors by kind of model, the worst misses, and what is not judged."""
    notes = {each.record.id: each.record.notes for each in records}
    lines = [
        "",
        "## By kind of model",
        *(line for table in found.quantities for line in _kind_table(table)),
        "",
        "## Worst misses",
        *_worst(found, notes, worst),
        "",
        "## Not judged",
        "",
        *(f"- {each.case}, {', '.join(each.parts) or 'the whole case'}: {each.reason}" for each in found.left_out),
    ]
    return markdown_summary(found) + "\n".join(lines) + "\n"


def with_summary(document: str, summary: str, what: str = "memory") -> str:
    """The document with this summary between its marks; a document without marks is returned as it is."""
    begin, end = begin_mark(what), END_MARK
    before, mark, rest = document.partition(begin)
    _, last, after = rest.partition(end)
    return f"{before}{mark}\n\n{summary}\n{last}{after}" if last else document


def percent(ratio: float) -> str:
    """A relative error as text, in percent, or as a multiple from ten times on."""
    return f"{100 * ratio:.3g} %" if abs(ratio) < 10 else f"{ratio:.3g} x"


def markdown_rows(header: tuple[str, ...], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """The lines of a Markdown table."""
    yield "| " + " | ".join(header) + " |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def _cells(summary: ErrorSummary, goal: Goal | None) -> list[str]:
    within = "" if goal is None or summary.within_bound_ratio is None else f"{percent(summary.within_bound_ratio)}"
    errors = [percent(error) for error in (summary.median_error_ratio, summary.p90_error_ratio, summary.worst_error_ratio)]
    return [str(summary.num_cases), *errors, within]


def _goal(goal: Goal | None) -> str:
    if goal is None:
        return ""
    return f"median {percent(goal.median_error_ratio)}, {percent(goal.share_ratio)} within {percent(goal.bound_ratio)}"


def _quantity_table(tables: Iterable[QuantityTable]) -> Iterator[str]:
    header = ("quantity", "n", "median", "90th percentile", "worst", "within the bound", "goal", "met")
    met = {True: "yes", False: "no", None: ""}
    yield from markdown_rows(
        header,
        ([t.title, *_cells(t.overall, t.goal), _goal(t.goal), met[t.overall.goal_met]] for t in tables if t.overall),
    )


def _kind_table(table: QuantityTable) -> Iterator[str]:
    if table.by_kind:
        yield from ("", f"### {table.title}", "")
        header = ("kind", "n", "median", "90th percentile", "worst", "within the bound")
        yield from markdown_rows(header, ([kind, *_cells(summary, table.goal)] for kind, summary in table.by_kind.items()))


def markdown_ranges(found: MemoryAccuracy) -> str:
    """How often the range of the KV memory held the printed figure, in a sentence."""
    coverage = found.pool_coverage
    if coverage.covered_ratio is None or coverage.median_width_ratio is None:
        return "No answer states a range of the KV memory."
    return (
        f"The range of the KV memory holds the printed figure in {percent(coverage.covered_ratio)} of {coverage.num_cases} cases "
        f"({coverage.num_below} below it, {coverage.num_above} above); its median width is "
        f"{percent(coverage.median_width_ratio)} of the figure."
    )


def _verdicts(found: MemoryAccuracy) -> Iterator[str]:
    counted = Counter((_OUTCOMES[start.outcome != "started"], start.verdict) for start in found.verdicts)
    yield from markdown_rows(
        ("start", *VERDICTS), ([outcome, *(str(counted[outcome, verdict]) for verdict in VERDICTS)] for outcome in _OUTCOMES)
    )
    yield ""
    yield f"Failed, called serves: {', '.join(found.failed_called_serving()) or 'none'}."
    yield f"Started, called failing: {', '.join(found.started_called_failing()) or 'none'}."


def _worst(found: MemoryAccuracy, notes: Mapping[str, str], worst: int) -> Iterator[str]:
    for quantity, (title, _) in QUANTITIES.items():
        own = [each for each in found.comparisons if each.quantity == quantity]
        if own:
            yield from ("", f"### {title}", "")
            yield from (_miss(each, notes[each.case]) for each in sorted(own, key=lambda each: -abs(each.error_ratio))[:worst])


def _miss(each: Comparison, note: str) -> str:
    told = note if len(note) <= NOTE_CHARACTERS else f"{note[:NOTE_CHARACTERS].rsplit(' ', 1)[0]} ..."
    sign = "+" if each.error_ratio > 0 else "-"
    kind = f"{each.kind}, quantised" if each.quantised else each.kind
    return f"- {each.case} ({kind}): {each.estimated:.6g} for {each.recorded:.6g}, {sign}{percent(abs(each.error_ratio))}. {told}".rstrip()
