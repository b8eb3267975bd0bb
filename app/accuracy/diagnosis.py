"""The findings of the planner against the confirmed causes of recorded incidents."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from app.accuracy.diagnosis_records import ReadIncident
from app.domain.catalog import Catalog
from app.domain.finding import Finding, State
from app.domain.rule import Bottleneck, Rule
from app.domain.value import Value
from app.services.diagnosis import diagnose

NAMED_RATIO = 0.5
"""Confidence from which a finding names a cause: it is more probable than all others together."""
CONFIDENT_RATIO = 0.7
"""Confidence from which a wrong finding is a fault."""
LEADING = 3

Verdict = Literal["right", "related", "abstained", "wrong"]
"""The first finding names the cause; its secondary class or the coarse parent of either; nothing is named; something else is."""

BLAMELESS: frozenset[Bottleneck] = frozenset({"none_healthy", "unresolved"})
"""Classes of incidents in which naming nothing is right."""

COARSE: Mapping[Bottleneck, frozenset[Bottleneck]] = {
    "queueing": frozenset({
        "admission_policy", "kv_capacity", "kv_preemption", "kv_transfer_slow", "long_tail_requests", "overload_capacity",
        "queueing_batch_cap", "replica_imbalance",
    }),
    "prefill": frozenset({
        "batch_too_small", "cold_start", "cpu_numa_affinity", "cuda_graph_gap", "long_tail_requests", "lora_overhead", "pcie_topology",
        "power_thermal_throttle", "prefill_bound", "prefill_decode_interference", "prefix_cache_miss", "quant_kernel_slow",
        "tp_communication",
    }),
    "decode": frozenset({
        "batch_too_small", "cpu_numa_affinity", "cpu_scheduler_overhead", "cpu_starvation", "cuda_graph_disabled", "cuda_graph_gap",
        "decode_bandwidth", "host_gc_pause", "kv_preemption", "lora_overhead", "pcie_topology", "power_thermal_throttle",
        "prefill_decode_interference", "quant_kernel_slow", "sampling_overhead", "spec_decode_low_acceptance",
        "structured_output_overhead", "tp_communication",
    }),
    "memory": frozenset({"kv_capacity", "kv_preemption", "memory_fragmentation", "memory_oom_runtime"}),
    "outside_engine": frozenset({
        "client_side", "cold_start", "cpu_starvation", "cpu_tokenizer", "multimodal_preprocessing", "network_gateway",
        "structured_output_overhead",
    }),
    "measurement": frozenset({"client_side", "cold_start", "measurement_artifact"}),
}  # fmt: skip
"""The classes that each coarse parent may turn out to be: where their time is seen. A preempted request, for one, loses it between its
tokens as well as in the queue. A finding that stays at the parent is not wrong, and not the cause."""


class Named(Value):
    """A finding, by what it names."""

    rule: str
    bottleneck: Bottleneck
    confidence_ratio: float


class IncidentScore(Value):
    """What was answered to one incident, and how that compares with its cause."""

    case: str
    """Id of the record."""
    cause: Bottleneck
    """Class of the confirmed cause."""
    secondary: Bottleneck | None
    """Class that contributed."""
    suffices: bool
    """The request is enough to name the cause."""
    state: State
    """State of the answer."""
    named: Sequence[Named]
    """All findings, most confident first."""
    verdict: Verdict
    """How the first finding compares."""
    in_leading: bool
    """The cause is among the first three findings, however confident, or nothing is named where nothing is to blame."""
    confidently_wrong: Sequence[Named]
    """Findings of 0.7 or more that are neither the cause, nor its secondary class, nor the coarse parent of either."""


class DiagnosisScore(Value):
    """Counts over several incidents."""

    num_cases: int
    num_right: int
    num_in_leading: int
    num_related: int
    num_abstained: int
    num_wrong: int
    num_confidently_wrong: int


class ScoredSet(Value):
    """A set of incidents, scored without and with what told the cause apart."""

    alone: Sequence[IncidentScore]
    with_evidence: Sequence[IncidentScore]
    apart: bool = False
    """Counted only: what was missed is not shown to whoever writes rules."""


def related_to(cause: Bottleneck, secondary: Bottleneck | None) -> frozenset[Bottleneck]:
    """What may be said of an incident without naming its cause and without being wrong."""
    causes = frozenset({cause} if secondary is None else {cause, secondary})
    return causes.union(parent for parent, classes in COARSE.items() if classes & causes) - {cause}


def score_incident(catalog: Catalog, rules: Sequence[Rule], read: ReadIncident, *, with_evidence: bool) -> IncidentScore:
    """Diagnose one incident and compare with its cause."""
    incident = read.incident
    answer = diagnose(catalog, rules, read.request(with_evidence=with_evidence))
    cause, related = incident.cause_class, related_to(incident.cause_class, incident.secondary_class)
    named = [_named(each) for each in answer.findings]
    verdict = _verdict(answer.state, named, cause, related)
    return IncidentScore(
        case=incident.id,
        cause=cause,
        secondary=incident.secondary_class,
        suffices=read.suffices(with_evidence=with_evidence),
        state=answer.state,
        named=named,
        verdict=verdict,
        in_leading=verdict == "right" or any(each.bottleneck == cause for each in named[:LEADING]),
        confidently_wrong=[each for each in named if each.confidence_ratio >= CONFIDENT_RATIO and each.bottleneck not in {cause, *related}],
    )


def score_incidents(catalog: Catalog, rules: Sequence[Rule], reads: Iterable[ReadIncident], *, with_evidence: bool) -> list[IncidentScore]:
    """The same for every incident."""
    return [score_incident(catalog, rules, read, with_evidence=with_evidence) for read in reads]


def scored_sets(catalog: Catalog, rules: Sequence[Rule], sets: Mapping[str, Sequence[ReadIncident]]) -> dict[str, ScoredSet]:
    """Each set of incidents scored, by its name; an empty one is left out."""
    return {
        name: ScoredSet(
            alone=score_incidents(catalog, rules, reads, with_evidence=False),
            with_evidence=score_incidents(catalog, rules, reads, with_evidence=True),
            apart=all(each.incident.apart for each in reads),
        )
        for name, reads in sets.items()
        if reads
    }


def counted(scores: Iterable[IncidentScore]) -> DiagnosisScore:
    """Counts over the scores of several incidents."""
    scores = list(scores)
    verdicts = [each.verdict for each in scores]
    return DiagnosisScore(
        num_cases=len(scores),
        num_right=verdicts.count("right"),
        num_in_leading=sum(each.in_leading for each in scores),
        num_related=verdicts.count("related"),
        num_abstained=verdicts.count("abstained"),
        num_wrong=verdicts.count("wrong"),
        num_confidently_wrong=sum(bool(each.confidently_wrong) for each in scores),
    )


def _named(finding: Finding) -> Named:
    return Named(rule=finding.rule, bottleneck=finding.bottleneck, confidence_ratio=finding.confidence_ratio)


def _verdict(state: State, named: Sequence[Named], cause: Bottleneck, related: frozenset[Bottleneck]) -> Verdict:
    """A measurement that is refused for contradicting itself names that as the cause."""
    first: Bottleneck | None = named[0].bottleneck if named and named[0].confidence_ratio >= NAMED_RATIO else None
    if state == "invalid_measurement":
        first = "measurement_artifact"
    if cause in BLAMELESS:
        return "right" if first is None or first in BLAMELESS else "wrong"
    if first is None or first in BLAMELESS:
        return "abstained"
    if first == cause:
        return "right"
    return "related" if first in related else "wrong"
