"""From metrics to ranked findings: which rules fire, how sure that is, and what to measure next."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from app.domain.diagnosis_summary import summary
from app.domain.diagnosis_text import assumptions, warnings
from app.domain.evidence import Evaluator, Evidence
from app.domain.finding import Diagnosis, Finding, SilentRule, State, UnevaluatedRule
from app.domain.finding_weights import REPORTABLE_CONFIDENCE_RATIO, findings_of
from app.domain.measure_next import measure_next
from app.domain.measurement import contradictions
from app.domain.observation import Observation
from app.domain.provenance import Note, Versions
from app.domain.rule import Comparison, LatencyFamily, Rule
from app.domain.rule_outcomes import evaluate
from app.domain.thresholds import Overrides
from app.domain.workload import Slo


@dataclass(frozen=True)
class _Health:
    """Whether latency and queue are as they ought to be, by which lines, and what is missing to say so."""

    fine: bool
    lines: tuple[Evidence, ...]
    missing: tuple[str, ...]


def diagnose(rules: Sequence[Rule], observation: Observation, *, overrides: Overrides, versions: Versions) -> Diagnosis:
    """Evaluate every rule on an observation and rank what fires.

    `overrides` replaces thresholds by `<rule>.<name>` and default objectives by `objective.<name>`, each in the unit of its metric.
    Nothing is concluded from a measurement that contradicts itself.
    """
    if faults := _faults(observation):
        return _invalid(rules, faults, versions)
    outcomes = evaluate(rules, observation, overrides)
    weighed = findings_of(outcomes)
    findings = [finding for finding, _ in weighed]
    health = _health(Evaluator(observation, overrides))
    state = _state(findings, health)
    suggestions = measure_next(findings, outcomes, health.missing if state == "inconclusive" else ())
    verdicts = list(chain.from_iterable(outcome.verdicts() for outcome in outcomes))
    lines = [*(line for verdict in verdicts for line in verdict.evidence), *health.lines]
    derived = dict.fromkeys(step for verdict in verdicts for step in verdict.working)
    return Diagnosis(
        summary=summary(state, findings, suggestions, health.lines),
        working=[*(observation.expectation.working if observation.expectation else ()), *derived, *(step for _, step in weighed)],
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
            for each in outcomes
            if each.verdict.held is None
        ],
        measure_next=suggestions,
    )


def _faults(observation: Observation) -> list[Note]:
    faults = list(contradictions(observation.metrics, within="metrics", max_num_seqs=observation.max_num_seqs))
    others = [("baseline", observation.baseline), ("lightest", observation.lightest)]
    others += [(f"replicas[{position}]", each) for position, each in enumerate(observation.replicas)]
    for within, each in others:
        if each is not None:
            faults += contradictions(each, within=within, max_num_seqs=each.max_num_seqs)
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
