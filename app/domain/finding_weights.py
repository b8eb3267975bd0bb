"""Outcomes to findings: how probable each is, what it explains away, and their order."""

from collections.abc import Mapping, Sequence
from typing import get_args

from app.domain.confidence import Weighing
from app.domain.evidence import Evidence, Verdict
from app.domain.finding import Finding, Hinting
from app.domain.provenance import Step
from app.domain.rule import Bottleneck, Hint, Rule, Severity, Stage
from app.domain.rule_outcomes import Outcome

REPORTABLE_CONFIDENCE_RATIO = 0.5
"""Below it a finding makes no bottleneck: the other causes together are more probable."""

HINT_CONFIDENCE_RATIO = 0.15
"""From it a cause comes before the symptoms that name none."""
NEARER_CONFIDENCE_RATIO = 0.4
"""From it a class comes before the coarse parent that it is a case of: it is more to go by, and no less true."""
FAR_RATIO = 3.0
"""A latency so many times its default objective misses any other that a service may have as well."""
COARSE: frozenset[Bottleneck] = frozenset({"queueing", "prefill", "decode", "memory", "outside_engine", "measurement"})
"""Classes at which a finding stays while the evidence supports no finer one."""

_SEVERITIES: Sequence[Severity] = get_args(Severity)
_STAGES: Sequence[Stage] = get_args(Stage)


def findings_of(outcomes: Sequence[Outcome]) -> Sequence[tuple[Finding, Step]]:
    """The findings of the rules that fire, most probable first, each with the working of its confidence.

    A finding that a probable one explains away is weighed down. A rule whose cause is named by a probable child comes after all others,
    because the child says the same and more.
    """
    firing = [outcome for outcome in outcomes if outcome.fires]
    explained = _explained(firing)
    weighings = {each.rule.id: _weighing(each, bool(explained.get(each.rule.id))) for each in firing}
    confidences = {name: weighing.confidence_ratio() for name, weighing in weighings.items()}
    refined: dict[str, list[str]] = {}
    nearer: set[str] = set()
    for each in firing:
        if confidences[each.rule.id] >= REPORTABLE_CONFIDENCE_RATIO:
            for parent in each.fired_parents:
                refined.setdefault(parent, []).append(each.rule.id)
        if confidences[each.rule.id] >= NEARER_CONFIDENCE_RATIO and each.rule.bottleneck not in {*COARSE, "unresolved"}:
            nearer.update(each.fired_parents)
    found = [
        (_finding(each, confidences[each.rule.id], explained.get(each.rule.id, []), refined.get(each.rule.id, [])), each.rule)
        for each in firing
    ]
    found.sort(key=lambda pair: _rank(*pair, symptom=pair[1].bottleneck in COARSE and pair[1].id in nearer))
    return [(finding, weighings[rule.id].step(rule.id)) for finding, rule in found]


def _explained(firing: Sequence[Outcome]) -> Mapping[str, list[str]]:
    """By rule, the probable findings that would make it fire as well; what is itself explained explains nothing.

    A suspicion is explained by every cause that was seen.
    """
    alone = {each.rule.id: _weighing(each, explained=False).confidence_ratio() for each in firing}
    explained: dict[str, list[str]] = {}
    suspicions = [each.rule.id for each in firing if each.rule.stage == "suspicion"]
    for each in sorted(firing, key=lambda outcome: -alone[outcome.rule.id]):
        if alone[each.rule.id] < REPORTABLE_CONFIDENCE_RATIO or each.rule.id in explained:
            continue
        seen = each.rule.stage in ("configuration", "cause") and each.rule.bottleneck not in COARSE
        for other in dict.fromkeys((*each.rule.explains, *(suspicions if seen else ()))):
            if other in alone:
                explained.setdefault(other, []).append(each.rule.id)
    return explained


def _weighing(outcome: Outcome, explained: bool) -> Weighing:
    evidence = list(dict.fromkeys(outcome.verdict.evidence))
    for_it = [verdict.held for _, verdict in outcome.support]
    against = [verdict.held for _, verdict in outcome.objections]
    return Weighing(
        prior_ratio=outcome.rule.prior_ratio,
        num_held=len(evidence),
        num_weak=sum(line.weak for line in evidence),
        num_supported=for_it.count(True),
        num_unsupported=for_it.count(False),
        num_unknown_support=for_it.count(None),
        num_ruled_out=against.count(False),
        num_unmeasured=against.count(None),
        num_contradicted=against.count(True),
        explained=explained,
        by_default=any(line.threshold_from == "default" and not _far(line) for line in evidence),
        presumed=outcome.presumed,
        suspected=outcome.rule.stage == "suspicion",
    )


def _far(line: Evidence) -> bool:
    """Whether a latency exceeds the default objective, or the part of it that is compared with, by FAR_RATIO."""
    return line.op in (">", ">=") and line.observed >= FAR_RATIO * line.threshold


def _finding(outcome: Outcome, confidence_ratio: float, explained_by: Sequence[str], refined_by: Sequence[str]) -> Finding:
    rule = outcome.rule
    return Finding(
        rule=rule.id,
        parents=list(outcome.fired_parents),
        stage=rule.stage,
        bottleneck=rule.bottleneck,
        title=rule.title,
        confidence_ratio=confidence_ratio,
        severity=rule.severity,
        why=rule.why,
        evidence=list(dict.fromkeys(outcome.verdict.evidence)),
        supporting=_held(outcome.support),
        contradicting=_held(outcome.objections),
        explained_by=list(explained_by),
        refined_by=list(refined_by),
        missing=list(dict.fromkeys(name for verdict in outcome.unmeasured() for name in verdict.missing)),
        confirm=rule.confirm,
        check_first=list(rule.check_first),
        remedies=list(rule.remedies),
        sources=list(rule.sources),
    )


def _held(hints: Sequence[tuple[Hint, Verdict]]) -> list[Hinting]:
    return [Hinting(because=hint.because, evidence=list(verdict.evidence)) for hint, verdict in hints if verdict.held]


def _rank(finding: Finding, rule: Rule, *, symptom: bool) -> tuple[bool, bool, float, int, int, str]:
    """What a child names comes last; a symptom that names no cause comes after every cause that it may well have."""
    confidence = -finding.confidence_ratio
    only_symptom = symptom or finding.bottleneck == "unresolved" or finding.confidence_ratio < HINT_CONFIDENCE_RATIO
    return (bool(finding.refined_by), only_symptom, confidence, _STAGES.index(rule.stage), _SEVERITIES.index(rule.severity), rule.id)
