"""Every rule against its cases: it fires, stays silent, decides at its boundary, and says what is missing."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.domain.catalog import Catalog
from app.domain.diagnosis import diagnose as diagnose_observation
from app.domain.expectation import Expectation
from app.domain.finding import Diagnosis, Finding
from app.domain.metrics import Metrics
from app.domain.observation import Observation
from app.domain.provenance import Versions
from app.domain.rule import Rule
from app.domain.thresholds import Overrides
from app.rules.loader import load_rules
from app.services.diagnosis import DiagnoseRequest, diagnose

RULES = {rule.id: rule for rule in load_rules()}
INPUTS = (
    "metrics", "baseline", "baseline_deployment", "lightest", "replicas", "slo", "deployment", "workload", "thresholds",
)  # fmt: skip
KINDS = {"firing", "silent", "boundary", "missing"}
Case = Mapping[str, Any]


@cache
def cases_of(rule_id: str) -> list[Case]:
    """The cases of a rule."""
    found: list[Case] = yaml.load(Path(__file__).with_name(f"{rule_id}.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
    return found


@cache
def family_of(rule_id: str) -> Sequence[Rule]:
    """A rule and the rules of which one has to fire before it does, and before those."""
    names = {rule_id}
    while further := {parent for name in names for parent in RULES[name].parents} - names:
        names |= further
    return tuple(rule for rule in RULES.values() if rule.id in names)


def answer(case: Case, rules: Sequence[Rule] = tuple(RULES.values())) -> Diagnosis:
    """The diagnosis of a case."""
    request = DiagnoseRequest.model_validate({name: case[name] for name in INPUTS if name in case})
    if "expectation" in case:  # the planner's, without the model and the accelerator that it takes to compute one
        expected = Metrics.model_validate(case["expectation"])
        seen = Observation(
            request.metrics or Metrics(), request.baseline, request.slo, request.deployment, expectation=Expectation(expected, expected)
        )
        return diagnose_observation(rules, seen, overrides=Overrides(request.thresholds), versions=Versions(planner="1", catalog="2"))
    return diagnose(Catalog(gpus={}, models={}, prices={}, version="test"), rules, request)


def finding_of(rule_id: str, diagnosis: Diagnosis) -> Finding | None:
    """The finding of a rule."""
    return next((finding for finding in diagnosis.findings if finding.rule == rule_id), None)


def every_case() -> Iterator[Any]:
    """All cases of all rules."""
    for rule_id in RULES:
        for position, case in enumerate(cases_of(rule_id)):
            yield pytest.param(rule_id, case, id=f"{rule_id}-{case['kind']}-{case.get('name', position)}")


@pytest.mark.parametrize(("rule_id", "case"), list(every_case()))
def test_rule_decides_its_case(rule_id: str, case: Case) -> None:
    diagnosis = answer(case)
    assert diagnosis.state != "invalid_measurement", diagnosis.warnings
    finding = finding_of(rule_id, diagnosis)
    silent = next((each for each in diagnosis.silent if each.rule == rule_id), None)
    unknown = next((each for each in diagnosis.not_evaluated if each.rule == rule_id), None)
    assert sum(each is not None for each in (finding, silent, unknown)) == 1
    match case["kind"], case.get("fires"):
        case ("firing", None) | ("boundary", True):
            assert finding is not None
            assert finding.bottleneck == case["bottleneck"]
            assert case.get("title", "") in finding.title
            assert bool(finding.contradicting) == case.get("contradicted", False)
            assert any(line.weak for line in finding.evidence) == case.get("weak", False)
            assert finding.evidence
            assert all(line.held for line in finding.evidence)
            assert case.get("refined_by") in (None, *finding.refined_by)
            assert case.get("explained_by") in (None, *finding.explained_by)
            assert case.get("first") in (None, diagnosis.findings[0].rule)
        case ("silent", None) | ("boundary", False):
            assert silent is not None
            assert silent.evidence
            assert not any(line.held for line in silent.evidence)
        case ("missing", None):
            assert unknown is not None
            assert set(case["missing"]) <= set(unknown.missing)
        case _:
            pytest.fail(f"{rule_id}: not a case: {case}")


@pytest.mark.parametrize("rule_id", list(RULES))
def test_rule_has_each_kind_of_case(rule_id: str) -> None:
    assert {case["kind"] for case in cases_of(rule_id)} == KINDS


@pytest.mark.parametrize("rule_id", list(RULES))
def test_every_hint_of_a_rule_is_reached(rule_id: str) -> None:
    rule, family = RULES[rule_id], family_of(rule_id)
    findings = [finding for case in cases_of(rule_id) if (finding := finding_of(rule_id, answer(case, family))) is not None]
    assert {each.because for finding in findings for each in finding.supporting} == {each.because for each in rule.supported_by}
    assert {each.because for finding in findings for each in finding.contradicting} == {each.because for each in rule.objections}


def test_no_cases_without_a_rule() -> None:
    assert {file.stem for file in Path(__file__).parent.glob("*.yaml")} == set(RULES)


@pytest.mark.parametrize("rule_id", list(RULES))
def test_thresholds_can_be_overridden_by_the_name_that_the_evidence_shows(rule_id: str) -> None:
    firing = next(case for case in cases_of(rule_id) if case["kind"] == "firing")
    family = family_of(rule_id)
    finding = finding_of(rule_id, answer(firing, family))
    assert finding is not None
    for line in finding.evidence:
        above, below = line.observed + 1, line.observed / 2
        passing, failing = (below, above) if line.op.startswith(">") else (above, below)
        kept = finding_of(rule_id, answer({**firing, "thresholds": {line.name: passing}}, family))
        assert kept is not None
        assert [(each.threshold, each.threshold_from) for each in kept.evidence if each.name == line.name] == [(passing, "request")]
        again = finding_of(rule_id, answer({**firing, "thresholds": {line.name: failing}}, family))
        assert again is None or line.name not in {each.name for each in again.evidence}
