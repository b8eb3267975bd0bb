"""What a diagnosis answers: findings with evidence for and against, what did not apply, what is missing."""

from typing import Literal

from app.domain.evidence import Evidence
from app.domain.provenance import Answer
from app.domain.rule import Bottleneck, Remedy, Severity, Stage
from app.domain.value import Value

State = Literal["bottleneck_found", "healthy", "inconclusive", "invalid_measurement"]


class Hinting(Value):
    """Something that speaks for or against a finding, with its numbers."""

    because: str
    """What it says."""
    evidence: list[Evidence]
    """The numbers."""


class Finding(Value):
    """A probable cause."""

    rule: str
    """The rule that fired."""
    parents: list[str]
    """The findings under which it is reported, by rule; what they saw it explains."""
    stage: Stage
    """What kind of rule it is: validity of the figures, configuration, location of the time, cause, suspicion (what it usually is where
    nothing that would show it was measured), or capacity."""
    bottleneck: Bottleneck
    """Class of the cause, or the coarse parent while the evidence supports no class."""
    title: str
    """The finding in one line."""
    confidence_ratio: float
    """How probable the cause is given the evidence, by log-odds that are judged, not calibrated; never 0 or 1."""
    severity: Severity
    """How urgent it is if it is true."""
    why: str
    """The mechanism."""
    evidence: list[Evidence]
    """The comparisons that hold and make the finding."""
    supporting: list[Hinting]
    """What else speaks for it."""
    contradicting: list[Hinting]
    """What speaks against it."""
    explained_by: list[str]
    """Findings, by rule, that are probable and would make this rule fire as well."""
    refined_by: list[str]
    """Findings, by rule, that name the cause of this one; they come before it."""
    missing: list[str]
    """What was not measured and would make the finding surer, more precise, or refute it."""
    confirm: str
    """The measurement that proves or refutes it."""
    check_first: list[str]
    """What to look at, in this order."""
    remedies: list[Remedy]
    """What may be done, with its price."""
    sources: list[str]
    """Public records that the rule rests on."""


class SilentRule(Value):
    """A rule that was evaluated and does not apply."""

    rule: str
    """The rule."""
    title: str
    """What it would have said."""
    evidence: list[Evidence]
    """The comparisons that do not hold."""


class UnevaluatedRule(Value):
    """A rule that could not be evaluated."""

    rule: str
    """The rule."""
    title: str
    """What it would have said."""
    missing: list[str]
    """Metrics, or fields of the request, that would decide it."""
    reason: str
    """Why it was not evaluated."""


class Suggestion(Value):
    """A measurement that would add most."""

    metric: str
    """Metric, or field of the request."""
    why: str
    """What it decides."""
    rules: list[str]
    """The rules that it helps."""


class Diagnosis(Answer):
    """What is probably wrong, in order of confidence."""

    state: State
    """bottleneck_found: at least one cause is more probable than not; healthy: latency and queue were measured and are as they ought to be;
    inconclusive: neither can be said; invalid_measurement: the metrics contradict each other, and nothing was concluded from them."""
    findings: list[Finding]
    """Probable causes, most confident first."""
    silent: list[SilentRule]
    """Rules that do not apply, with the numbers that say so."""
    not_evaluated: list[UnevaluatedRule]
    """Rules that could not be evaluated, with what is missing."""
    measure_next: list[Suggestion]
    """Measurements that would add most, most useful first."""
