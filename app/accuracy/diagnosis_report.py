"""The accuracy of diagnoses as Markdown."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from app.accuracy.diagnosis import BLAMELESS, DiagnosisScore, IncidentScore, Named, ScoredSet, counted, related_to
from app.accuracy.diagnosis_records import ReadIncident
from app.accuracy.report import markdown_rows

GOALS = "at least 70 %", "at least 90 %", "", "", "", "at most 3 %"
"""What is asked of the incidents whose metrics suffice, by column."""
BANDS = (0.0, 0.5, 0.7, 0.85, 1.0)
"""Bounds of confidence between which first findings are counted."""
COLUMNS = "cause first", "in the first three", "related", "abstained", "wrong", "confidently wrong"


def diagnosis_summary(sets: Mapping[str, ScoredSet]) -> str:
    """Counts of every set, over the incidents whose metrics suffice and over all, and by class."""
    rows = [row for name, scored in sets.items() for row in _set_rows(name, scored)]
    told = [score for scored in sets.values() if not scored.apart for score in scored.with_evidence]
    lines = [
        "The first finding of at least 0.5 is the cause (cause first), its contributing class or the coarse parent of either (related), "
        "something else (wrong), or there is none (abstained). Confidently wrong: any finding of at least 0.7 is something else. Where "
        "nothing is to blame, naming nothing is right. Incidents suffice whose numbers would let a senior engineer name the cause.",
        "",
        *markdown_rows(("incidents", "n", *COLUMNS), [*rows, ["goal", "", *GOALS]]),
        "",
        *_by_class(told),
        "",
        *_by_confidence(told),
    ]
    return "\n".join(lines) + "\n"


def diagnosis_report(sets: Mapping[str, ScoredSet], reads: Iterable[ReadIncident]) -> str:
    """The summary, every miss with what was said instead, and why some incidents do not suffice; those kept apart are counted only."""
    shown = {each.incident.id: each for each in reads if not each.incident.apart}
    lines = ["", "## Misses", ""]
    for scored in sets.values():
        for alone, told in zip(scored.alone, scored.with_evidence, strict=True):
            if told.case in shown and not (alone.verdict == told.verdict == "right"):
                lines += _miss(alone, told, shown[told.case])
    lines += ["", "## Not enough to name the cause", ""]
    lines += [f"- {case}: {read.reading.why}" for case, read in shown.items() if read.reading.suffices == "no"]
    return diagnosis_summary(sets) + "\n".join(lines) + "\n"


def _set_rows(name: str, scored: ScoredSet) -> Iterator[list[str]]:
    for title, scores in (("", scored.alone), (", with the discriminating evidence", scored.with_evidence)):
        yield [f"{name}{title}: suffices", *_cells(counted(each for each in scores if each.suffices))]
        yield [f"{name}{title}: all", *_cells(counted(scores))]


def _cells(score: DiagnosisScore) -> list[str]:
    counts = (
        score.num_right, score.num_in_leading, score.num_related, score.num_abstained, score.num_wrong, score.num_confidently_wrong,
    )  # fmt: skip
    return [str(score.num_cases), *(f"{count} ({100 * count / score.num_cases:.0f} %)" if score.num_cases else "" for count in counts)]


def _by_class(scores: Sequence[IncidentScore]) -> Iterator[str]:
    causes = sorted({each.cause for each in scores})
    rows = []
    for cause in causes:
        own = [each for each in scores if each.cause == cause]
        enough, found = counted(each for each in own if each.suffices), counted(own)
        confused = sorted({each.named[0].bottleneck for each in own if each.verdict == "wrong" and each.named})
        rows.append(
            [f"`{cause}`", f"{enough.num_right} of {enough.num_cases}", f"{found.num_right} of {found.num_cases}", ", ".join(confused)]
        )
    yield from markdown_rows(("cause, with the evidence", "first, suffices", "first, all", "named instead"), rows)


def _by_confidence(scores: Sequence[IncidentScore]) -> Iterator[str]:
    """What first findings turned out to be, by how sure they were."""
    rows = []
    for low, high in pairwise(BANDS):
        own = [each for each in scores if each.named and low <= each.named[0].confidence_ratio < high]
        causes = sum(each.named[0].bottleneck == each.cause for each in own)
        related = sum(each.named[0].bottleneck in related_to(each.cause, each.secondary) for each in own)
        rows.append([f"{low:g} to {high:g}", str(len(own)), str(causes), str(related), str(len(own) - causes - related)])
    yield from markdown_rows(("confidence of the first finding", "n", "the cause", "related", "something else"), rows)


def _miss(alone: IncidentScore, told: IncidentScore, read: ReadIncident) -> Iterator[str]:
    also = f" (+ {told.secondary})" if told.secondary else ""
    wanted = "nothing" if told.cause in BLAMELESS else told.cause
    yield f"- {told.case} {wanted}{also}, suffices {read.reading.suffices}: {read.incident.symptom}"
    yield f"  - {alone.verdict}, {alone.state}: {_said(alone.named)}"
    if told != alone:
        yield f"  - with evidence {told.verdict}, {told.state}: {_said(told.named)}"


def _said(named: Sequence[Named]) -> str:
    return ", ".join(f"{each.bottleneck} {each.confidence_ratio:.2f} ({each.rule})" for each in named[:4]) or "nothing"
