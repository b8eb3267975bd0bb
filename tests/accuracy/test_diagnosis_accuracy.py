"""Findings against recorded incidents: how they are read, and how an answer is judged."""

from pathlib import Path
from typing import NamedTuple, get_args

import pytest
from typer.testing import CliRunner

from app.accuracy.diagnosis import BLAMELESS, COARSE, ScoredSet, counted, related_to, score_incident, score_incidents, scored_sets
from app.accuracy.diagnosis_records import ReadIncident, read_incidents
from app.accuracy.diagnosis_report import diagnosis_report, diagnosis_summary
from app.accuracy.records import RecordsUnreadable, readings_file
from app.cli import cli
from app.domain.rule import Bottleneck
from app.rules.loader import load_rules
from app.services.catalog import CatalogHolder

FOLDER = Path(__file__).parent
FILES = {"recorded": FOLDER / "diagnosis_cases.jsonl"} | {
    name: FOLDER / f"diagnosis_cases_{name}.jsonl" for name in ("fresh", "blind", "later", "further", "apart")
}
CASES = FILES["recorded"]
README = Path(__file__).parents[2] / "README.md"


class Bound(NamedTuple):
    """What a set of incidents reached: over those whose metrics suffice, and over all."""

    num_suffice: int
    num_right: int
    num_in_leading: int
    num_wrong: int
    num_confidently_wrong: int
    num_right_of_all: int
    num_confidently_wrong_of_all: int


# Measured with `inferplan accuracy diagnosis`, with the discriminating evidence; a bound is only ever tightened.
BOUNDS: dict[str, Bound] = {
    "recorded": Bound(48, 48, 48, 0, 0, 49, 0),
    "fresh": Bound(48, 47, 48, 0, 0, 54, 0),
    "blind": Bound(51, 47, 51, 0, 0, 50, 0),
    "later": Bound(28, 27, 28, 0, 0, 27, 0),
    "further": Bound(13, 11, 13, 0, 0, 11, 0),
    "apart": Bound(12, 8, 9, 2, 1, 8, 1),
}

EVERY_FILE = pytest.mark.parametrize("cases", [pytest.param(file, id=name) for name, file in FILES.items()])


@pytest.fixture(scope="module")
def reads() -> list[ReadIncident]:
    return read_incidents(CASES)


def changed(read: ReadIncident, cause: Bottleneck, **request: dict[str, float]) -> ReadIncident:
    """The incident with another cause and request."""
    incident = read.incident.model_copy(update={"cause_class": cause, "secondary_class": None})
    return ReadIncident(incident=incident, reading=read.reading.model_copy(update={"request": request, "evidence": {}}))


@EVERY_FILE
def test_every_reading_is_a_request_all_of_which_is_read(cases: Path) -> None:
    for read in read_incidents(cases):
        bare, full = (read.request(with_evidence=told) for told in (False, True))
        assert (bare == full) == (not read.reading.evidence), read.incident.id
        for request in (bare, full):
            given = (request.metrics, request.baseline, request.lightest, *(replica.metrics for replica in request.replicas))
            assert [metrics.unread for metrics in given if metrics is not None and metrics.unread] == [], read.incident.id


@EVERY_FILE
def test_what_evidence_is_needed_for_is_there(cases: Path) -> None:
    assert [
        each.incident.id for each in read_incidents(cases) if each.reading.suffices == "with_evidence" and not each.reading.evidence
    ] == []


def test_evidence_is_laid_over_the_request_field_by_field(reads: list[ReadIncident]) -> None:
    read = next(each for each in reads if each.incident.id == "DC-041")
    told = read.request(with_evidence=True)
    assert told.metrics is not None
    assert (told.metrics.request_rps, told.metrics.num_waiting_requests) == (63, 0)
    assert told.baseline == read.request(with_evidence=False).baseline


def test_no_incident_is_in_two_sets() -> None:
    urls = [{read.incident.source_url for read in read_incidents(file)} for file in FILES.values()]
    assert len(set().union(*urls)) == sum(map(len, urls))


def test_only_the_set_that_nobody_has_looked_at_is_marked_apart() -> None:
    apart = {name: {read.incident.apart for read in read_incidents(file)} for name, file in FILES.items()}
    assert apart == {name: {name == "apart"} for name in FILES}


def test_every_class_has_a_coarse_parent_unless_it_has_no_place() -> None:
    classes = set(get_args(Bottleneck)) - set(COARSE) - BLAMELESS - {"config_error"}
    assert set().union(*COARSE.values()) == classes


def test_what_is_related_to_a_cause() -> None:
    assert related_to("kv_preemption", None) == {"queueing", "memory", "decode"}
    assert related_to("kv_capacity", None) == {"queueing", "memory"}
    assert related_to("prefill_bound", "overload_capacity") == {"prefill", "overload_capacity", "queueing"}


@pytest.mark.parametrize(
    ("cause", "metrics", "verdict"),
    [
        pytest.param("none_healthy", {"num_running_requests": 1.0}, "right", id="nothing-to-blame-and-nothing-blamed"),
        pytest.param("kv_capacity", {"num_running_requests": 1.0}, "abstained", id="nothing-seen"),
        pytest.param("measurement_artifact", {"ttft_p50_s": 3.0, "ttft_p99_s": 1.0}, "right", id="contradiction-named"),
        pytest.param("kv_capacity", {"ttft_p50_s": 3.0, "ttft_p99_s": 1.0}, "wrong", id="contradiction-wrongly-named"),
    ],
)
def test_verdicts(reads: list[ReadIncident], cause: Bottleneck, metrics: dict[str, float], verdict: str) -> None:
    read = changed(reads[0], cause, metrics=metrics)
    assert score_incident(CatalogHolder().current, load_rules(), read, with_evidence=False).verdict == verdict


def test_a_confident_finding_is_wrong_only_where_it_is_unrelated(reads: list[ReadIncident]) -> None:
    found = score_incidents(CatalogHolder().current, load_rules(), reads, with_evidence=True)
    for score in found:
        allowed = {score.cause, *related_to(score.cause, score.secondary)}
        expected = [each for each in score.named if each.confidence_ratio >= 0.7 and each.bottleneck not in allowed]
        assert list(score.confidently_wrong) == expected
    total = counted(found)
    assert total.num_cases == len(reads) == total.num_right + total.num_related + total.num_abstained + total.num_wrong
    assert total.num_right <= total.num_in_leading


@pytest.fixture(scope="module")
def sets() -> dict[str, ScoredSet]:
    return scored_sets(CatalogHolder().current, load_rules(), {name: read_incidents(file) for name, file in FILES.items()})


@pytest.mark.parametrize("name", BOUNDS)
def test_causes_are_named_as_often_as_was_reached(sets: dict[str, ScoredSet], name: str) -> None:
    scores, bound = sets[name].with_evidence, BOUNDS[name]
    enough, total = counted(each for each in scores if each.suffices), counted(scores)
    assert enough.num_cases >= bound.num_suffice
    assert enough.num_right >= bound.num_right
    assert enough.num_in_leading >= bound.num_in_leading
    assert enough.num_wrong <= bound.num_wrong
    assert enough.num_confidently_wrong <= bound.num_confidently_wrong
    assert total.num_right >= bound.num_right_of_all
    assert total.num_confidently_wrong <= bound.num_confidently_wrong_of_all


def test_the_readme_shows_what_is_reached(sets: dict[str, ScoredSet]) -> None:
    table = diagnosis_summary(sets)
    assert table in README.read_text(encoding="utf-8"), "run `inferplan accuracy diagnosis --readme README.md`"


def test_incidents_kept_apart_are_counted_and_not_shown(reads: list[ReadIncident]) -> None:
    hidden = [read.model_copy(update={"incident": read.incident.model_copy(update={"apart": True})}) for read in reads[:3]]
    scores = score_incidents(CatalogHolder().current, load_rules(), hidden, with_evidence=False)
    report = diagnosis_report({"apart": ScoredSet(alone=scores, with_evidence=scores, apart=True)}, hidden)
    assert "| apart: all | 3 |" in report
    assert not any(read.incident.id in report or f"`{read.incident.cause_class}`" in report for read in hidden)


def test_a_record_without_reading_is_refused(tmp_path: Path) -> None:
    cases = tmp_path / CASES.name
    cases.write_text(CASES.read_text(encoding="utf-8"), encoding="utf-8")
    readings_file(cases).write_text("{}", encoding="utf-8")
    with pytest.raises(RecordsUnreadable, match="DC-001"):
        read_incidents(cases)


def test_the_command_reports(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- inferplan accuracy diagnosis -->\n<!-- end -->\nafter\n", encoding="utf-8")
    assert CliRunner().invoke(cli, ["accuracy", "diagnosis", "--readme", str(readme)]).exit_code == 0
    written = readme.read_text(encoding="utf-8")
    assert "| recorded: suffices |" in written
    assert written.endswith("after\n")
    printed = CliRunner().invoke(cli, ["accuracy", "diagnosis", "--cases", str(CASES)])
    assert "DC-004 admission_policy" in printed.output
