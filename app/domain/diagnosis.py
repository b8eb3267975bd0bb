"""From metrics to ranked findings: which rules fire, how sure that is, and what to measure next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from app.domain.confidence import Weighing
from app.domain.diagnosis_text import assumptions, summary, warnings
from app.domain.evidence import Evaluator, Evidence, Verdict
from app.domain.finding import Contradicting, Diagnosis, Finding, SilentRule, State, Suggestion, UnevaluatedRule
from app.domain.measurement import contradictions
from app.domain.provenance import Note, Step, Versions
from app.domain.rule import Advice, Comparison, LatencyFamily, Rule, Severity
from app.domain.symptoms import Observation
from app.domain.workload import Slo

REPORTABLE_CONFIDENCE_RATIO = 0.5
"""Below it a finding makes no bottleneck: the other causes together are more probable."""
MAX_SUGGESTIONS = 5
MAX_SPLIT_FINDINGS = 2
"""Findings whose missing evidence is asked for first."""

_SEVERITIES: Sequence[Severity] = ("critical", "warning", "info")


@dataclass(frozen=True)
class _Outcome:
    """One rule's verdict and, when it fires, the advice that applies, the verdicts on what speaks against it, and what is unknown."""

    rule: Rule
    verdict: Verdict
    advice: Advice
    narrowed: Verdict | None = None
    objections: tuple[tuple[str, Verdict], ...] = ()
    unexamined: tuple[Verdict, ...] = ()

    def verdicts(self) -> Sequence[Verdict]:
        """Everything that was evaluated and counts."""
        narrowed = () if self.narrowed is None else (self.narrowed,)
        return (self.verdict, *narrowed, *(verdict for _, verdict in self.objections))


@dataclass(frozen=True)
class _Health:
    """Whether latency and queue are as they ought to be, by which lines, and what is missing to say so."""

    fine: bool
    lines: tuple[Evidence, ...]
    missing: tuple[str, ...]


def diagnose(rules: Sequence[Rule], observation: Observation, *, overrides: Mapping[str, float], versions: Versions) -> Diagnosis:
    """Evaluate every rule on an observation and rank what fires.

    `overrides` replaces thresholds by `<rule>.<name>` and default objectives by `objective.<name>`, each in the unit of its metric.
    Nothing is concluded from a measurement that contradicts itself.
    """
    if faults := _faults(observation):
        return _invalid(rules, faults, versions)
    outcomes = _evaluate(rules, observation, overrides)
    weighed = sorted((_finding(outcome) for outcome in outcomes if outcome.verdict.held), key=lambda pair: _rank(pair[0]))
    findings = [finding for finding, _ in weighed]
    unknown = [outcome for outcome in outcomes if outcome.verdict.held is None]
    health = _health(Evaluator(observation, overrides))
    state = _state(findings, health)
    suggestions = _suggestions(findings, unknown, health.missing if state == "inconclusive" else ())
    verdicts = list(chain.from_iterable(outcome.verdicts() for outcome in outcomes))
    lines = [*(line for verdict in verdicts for line in verdict.evidence), *health.lines]
    derived = dict.fromkeys(step for verdict in verdicts for step in verdict.working)
    return Diagnosis(
        summary=summary(state, findings, suggestions, health.lines),
        working=[*derived, *(step for _, step in weighed)],
        assumptions=assumptions(lines),
        warnings=warnings(observation, lines),
        versions=versions,
        state=state,
        findings=findings,
        silent=[
            SilentRule(rule=each.rule.id, title=each.rule.title, evidence=list(each.verdict.evidence))
            for each in outcomes
            if each.verdict.held is False
        ],
        not_evaluated=[
            UnevaluatedRule(
                rule=each.rule.id, title=each.rule.title, missing=list(each.verdict.missing), reason="what is missing decides it"
            )
            for each in unknown
        ],
        measure_next=suggestions,
    )


def _faults(observation: Observation) -> list[Note]:
    faults = list(contradictions(observation.metrics, within="metrics", max_num_seqs=observation.max_num_seqs))
    if observation.baseline is not None:
        faults += contradictions(observation.baseline, within="baseline", max_num_seqs=observation.baseline.max_num_seqs)
    return faults


def _invalid(rules: Sequence[Rule], faults: list[Note], versions: Versions) -> Diagnosis:
    return Diagnosis(
        summary=summary("invalid_measurement", (), (), (), faults=faults),
        working=[],
        assumptions=[],
        warnings=faults,
        versions=versions,
        state="invalid_measurement",
        findings=[],
        silent=[],
        not_evaluated=[
            UnevaluatedRule(rule=rule.id, title=rule.title, missing=[], reason="the measurement contradicts itself") for rule in rules
        ],
        measure_next=[],
    )


def _evaluate(rules: Sequence[Rule], observation: Observation, overrides: Mapping[str, float]) -> Sequence[_Outcome]:
    evaluators = {rule.id: Evaluator(observation, overrides, rule.id) for rule in rules}
    own = {rule.id: evaluators[rule.id].evaluate(rule.when) for rule in rules}
    parents = {rule.id: rule.parent for rule in rules}

    def under_parents(rule_id: str) -> Verdict:
        parent = parents[rule_id]
        return own[rule_id] if parent is None else _both(under_parents(parent), own[rule_id])

    outcomes = []
    for rule in rules:
        verdict = under_parents(rule.id)
        outcomes.append(_weighed(rule, verdict, evaluators[rule.id]) if verdict.held else _Outcome(rule, verdict, rule))
    return outcomes


def _both(parent: Verdict, child: Verdict) -> Verdict:
    """A child applies where its parent does and it does: of an unknown pair the child's own evidence is kept."""
    if parent.held:
        return child
    if child.held is False:
        return child
    if parent.held is False:
        return parent
    return Verdict(None, child.evidence, tuple(dict.fromkeys((*parent.missing, *child.missing))), child.working)


def _weighed(rule: Rule, verdict: Verdict, evaluator: Evaluator) -> _Outcome:
    advice: Advice = rule
    narrowed: Verdict | None = None
    unexamined = []
    for candidate in rule.narrows:
        found = evaluator.evaluate(candidate.when)
        if found.held:
            advice, narrowed = candidate, found
            break
        if found.held is None:
            unexamined.append(found)
    against = (*rule.contradicted_by, *(advice.contradicted_by if advice is not rule else ()))
    objections = tuple((each.because, evaluator.evaluate(each.when)) for each in against)
    return _Outcome(rule, verdict, advice, narrowed, objections, tuple(unexamined))


def _finding(outcome: _Outcome) -> tuple[Finding, Step]:
    rule, advice, objections = outcome.rule, outcome.advice, outcome.objections
    evidence = list(dict.fromkeys((*outcome.verdict.evidence, *(outcome.narrowed.evidence if outcome.narrowed else ()))))
    unmeasured = [verdict for _, verdict in objections if verdict.held is None]
    weighing = Weighing(
        prior_ratio=advice.prior_ratio,
        num_held=len(evidence),
        num_weak=sum(line.weak for line in evidence),
        num_ruled_out=sum(verdict.held is False for _, verdict in objections),
        # Causes that come first and could not be examined are rivals of a narrower cause, not of the coarse one that includes them all;
        # they exclude each other, so that together they count as one.
        num_unmeasured=len(unmeasured) + bool(outcome.narrowed and outcome.unexamined),
        num_contradicted=sum(verdict.held is True for _, verdict in objections),
        by_default=any(line.threshold_from == "default" for line in evidence),
    )
    finding = Finding(
        rule=rule.id,
        parent=rule.parent,
        bottleneck=advice.bottleneck,
        title=advice.title,
        confidence_ratio=weighing.confidence_ratio(),
        severity=rule.severity,
        why=rule.why,
        evidence=evidence,
        contradicting=[Contradicting(because=because, evidence=list(verdict.evidence)) for because, verdict in objections if verdict.held],
        missing=list(dict.fromkeys(name for verdict in (*outcome.unexamined, *unmeasured) for name in verdict.missing)),
        confirm=rule.confirm,
        check_first=list(advice.check_first),
        remedies=list(advice.remedies),
        sources=list(rule.sources),
    )
    return finding, weighing.step(rule.id)


def _rank(finding: Finding) -> tuple[float, int, str]:
    return (-finding.confidence_ratio, _SEVERITIES.index(finding.severity), finding.rule)


def _health(evaluator: Evaluator) -> _Health:
    """TTFT and TPOT at P95 or above and every field of the SLO as they ought to be, and the queue measured."""
    metrics, slo = evaluator.observation.metrics, evaluator.observation.slo
    promised = [] if slo is None else [name for name in Slo.model_fields if getattr(slo, name) is not None]
    missing = [name for name in promised if metrics.get(name) is None]
    missing += [f"{family}_p95_s" for family in ("ttft", "tpot") if metrics.high_percentile(family) is None]
    if metrics.num_waiting_requests is None and metrics.high_percentile("queue_time") is None:
        missing.append("queue_time_p95_s")
    families: Sequence[LatencyFamily] = ("ttft", "tpot", "e2e") if any(name.startswith("e2e") for name in promised) else ("ttft", "tpot")
    verdicts = [evaluator.compare(Comparison(name="health", metric=family, op="<=", objective=family)) for family in families]
    return _Health(
        fine=all(verdict.held for verdict in verdicts),
        lines=tuple(line for verdict in verdicts for line in verdict.evidence),
        missing=tuple(dict.fromkeys(missing)),
    )


def _state(findings: Sequence[Finding], health: _Health) -> State:
    if any(each.confidence_ratio >= REPORTABLE_CONFIDENCE_RATIO and each.bottleneck != "unresolved" for each in findings):
        return "bottleneck_found"
    if health.fine and not health.missing and all(each.contradicting for each in findings):
        return "healthy"
    return "inconclusive"


def _suggestions(findings: Sequence[Finding], unknown: Sequence[_Outcome], for_health: Sequence[str]) -> list[Suggestion]:
    """First what the leading findings lack, then what health cannot be judged without, then what most rules wait for."""
    reasons: dict[str, str] = {}
    helped: dict[str, list[str]] = {}
    for finding in findings[:MAX_SPLIT_FINDINGS]:
        for name in finding.missing:
            reasons.setdefault(name, f"supports, narrows or refutes: {finding.title}")
            helped.setdefault(name, []).append(finding.rule)
    for name in for_health:
        reasons.setdefault(name, "nothing can be called healthy without it")
    waiting: dict[str, list[str]] = {}
    for outcome in unknown:
        for name in outcome.verdict.missing:
            waiting.setdefault(name, []).append(outcome.rule.id)
    # A metric that decides a rule alone is worth more than one of many that are missing; a field of the request may be left out on purpose.
    worth = {name: sum(1 / len(each.verdict.missing) for each in unknown if name in each.verdict.missing) for name in waiting}
    for name in sorted(waiting, key=lambda each: ("." in each, -worth[each])):
        reasons.setdefault(name, f"decides {len(waiting[name])} rule{'s' if len(waiting[name]) > 1 else ''} that could not be evaluated")
        helped.setdefault(name, []).extend(waiting[name])
    leading = list(reasons.items())[:MAX_SUGGESTIONS]
    return [Suggestion(metric=name, why=why, rules=list(dict.fromkeys(helped.get(name, ())))) for name, why in leading]
