"""A diagnosis in sentences: the summary for a chat, what was assumed, what to be careful about."""

from collections.abc import Mapping, Sequence

from app.domain.evidence import OBJECTIVES, Evidence, ThresholdBasis
from app.domain.finding import Finding, State, Suggestion
from app.domain.observation import Observation
from app.domain.provenance import Note
from app.domain.units import plain, seconds

MAX_LINES = 3
MAX_RIVALS = 2

_ORIGINS: Mapping[ThresholdBasis, str] = {
    "request": "your threshold",
    "slo": "SLO",
    "baseline": "baseline",
    "symptom": "other metric",
    "default": "default",
    "rule": "rule",
}


def summary(
    state: State,
    findings: Sequence[Finding],
    suggestions: Sequence[Suggestion],
    health: Sequence[Evidence],
    *,
    faults: Sequence[Note] = (),
) -> str:
    """The diagnosis as a colleague would write it, in two or three sentences."""
    match state:
        case "invalid_measurement":
            more = f" ({len(faults) - 1} more)" if len(faults) > 1 else ""
            return f"The metrics contradict each other, so nothing was concluded from them. {faults[0].message}{more}."
        case "healthy":
            watch = "; ".join(finding.title for finding in findings[:MAX_RIVALS])
            return f"Healthy: {_lines(health)}." + (f" Not a problem now, but worth an eye: {watch}." if watch else "")
        case "inconclusive":
            if not findings:
                return f"Inconclusive: no rule fires, but this is not enough to call it healthy.{_next(suggestions)}"
            first = findings[0]
            return f"Inconclusive; at most a hint of {_named(first)}: {first.title} ({_lines(first.evidence)}).{_next(suggestions)}"
    named = [finding for finding in findings if finding.bottleneck != "unresolved"]
    first = named[0]
    rivals = dict.fromkeys(_named(finding) for finding in named[1:] if finding.bottleneck != first.bottleneck)
    also = f" Also possible: {', '.join(list(rivals)[:MAX_RIVALS])}." if rivals else ""
    return f"Most likely {_named(first)}: {first.title} ({_lines(first.evidence)}).{also}{_next(suggestions)}"


def assumptions(lines: Sequence[Evidence]) -> list[Note]:
    """What was taken for granted because the request did not say."""
    notes = [Note(code="one_engine", message="The metrics are taken to be those of one engine over one window of time.")]
    by_default = [line.metric for line in lines if line.threshold_from == "default"]
    for family, judged in (("ttft", ("ttft_", "queue_")), ("tpot", ("tpot_",))):
        if any(metric.startswith(judged) for metric in by_default):
            name = f"objective.{family}_s"
            message = (
                f"{family.upper()} ought to be at most {seconds(OBJECTIVES[name])}: a default, because the request gives neither SLO nor "
                f"baseline of what was measured; give one of them, or {name} in thresholds."
            )
            notes.append(Note(code=f"default_{family}_objective", message=message))
    return notes


def warnings(observation: Observation, lines: Sequence[Evidence]) -> list[Note]:
    """What makes the conclusion less sure than it looks."""
    notes = []
    if any(line.weak and line.held for line in lines):
        message = (
            "gpu_utilization_ratio counts time in which any kernel ran, also one that only waits for other GPUs, so a high value proves "
            "little; give sm_active_ratio and dram_active_ratio."
        )
        notes.append(Note(code="weak_metric", message=message))
    if means := sorted({line.metric for line in lines if "_mean_" in line.metric and line.unit in ("s", "ratio")}):
        message = f"{', '.join(means)}: a mean hides the tail and is diluted by requests from before the problem; give percentiles."
        notes.append(Note(code="mean_instead_of_percentile", message=message))
    reported = observation.metrics.max_num_seqs
    configured = observation.deployment.max_num_seqs if observation.deployment else None
    if reported is not None and configured is not None and reported != configured:
        message = (
            f"The engine reports max_num_seqs {plain(reported)}, the deployment says {plain(configured)}; the engine's figure was used. "
            "A default of the serving layer may have replaced the setting."
        )
        notes.append(Note(code="effective_differs_from_configured", message=message))
    return notes


def _named(finding: Finding) -> str:
    return f"{finding.bottleneck} ({finding.confidence_ratio:.0%})"


def _lines(lines: Sequence[Evidence]) -> str:
    return ", ".join(_line(line) for line in lines[:MAX_LINES])


def _line(line: Evidence) -> str:
    observed, threshold = (_figure(value, line.unit) for value in (line.observed, line.threshold))
    return f"{line.metric} {observed} {line.op} {threshold} [{_ORIGINS[line.threshold_from]}]"


def _figure(value: float, unit: str) -> str:
    return seconds(value) if unit == "s" else f"{value:.4g}"


def _next(suggestions: Sequence[Suggestion]) -> str:
    return f" Measure next: {', '.join(suggestion.metric for suggestion in suggestions[:MAX_LINES])}." if suggestions else ""
