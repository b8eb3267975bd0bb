"""A diagnosis in a few sentences, as a colleague would post it."""

import re
from collections.abc import Mapping, Sequence

from app.domain.evidence import Evidence, ThresholdBasis
from app.domain.finding import Finding, State, Suggestion
from app.domain.provenance import Note
from app.domain.units import seconds

MAX_LINES = 3
MAX_RIVALS = 2
MAX_HINTS = 2
RIVAL_CONFIDENCE_RATIO = 0.3
"""Below it a finding is not named as a rival."""

_ORIGINS: Mapping[ThresholdBasis, str] = {
    "request": "your threshold",
    "profile": "from your profile",
    "slo": "from the SLO",
    "baseline": "from the baseline",
    "planner": "as planned",
    "symptom": "by comparison",
    "default": "by default",
    "rule": "rule",
}
_WORDS = {
    "ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "E2E", "kv": "KV", "gpu": "GPU", "sm": "SM", "cpu": "CPU", "dram": "DRAM",
    "p50": "P50", "p90": "P90", "p95": "P95", "p99": "P99", "oom": "OOM", "rps": "RPS", "cuda": "CUDA", "gc": "GC", "lora": "LoRA",
    "pcie": "PCIe", "numa": "NUMA", "jit": "JIT",
}  # fmt: skip
_SUFFIX = re.compile(r"_(?:s|ratio|tokens_per_s|per_s|tokens)$")


def summary(
    state: State,
    findings: Sequence[Finding],
    suggestions: Sequence[Suggestion],
    health: Sequence[Evidence],
    *,
    faults: Sequence[Note] = (),
) -> str:
    """What is wrong, what says so, what speaks against it, where to look first, and what would tell it from the next best cause."""
    match state:
        case "invalid_measurement":
            more = f" {len(faults) - 1} more in the warnings." if len(faults) > 1 else ""
            end = "" if faults[0].message.endswith(("?", ".")) else "."
            return f"I would not trust these figures, so I conclude nothing from them: {faults[0].message}{end}{more}"
        case "healthy":
            watch = "; ".join(finding.title for finding in findings[:MAX_RIVALS])
            return f"Healthy: {_lines(health)}." + (f" Not a problem now, but worth an eye: {watch}." if watch else "")
        case "inconclusive":
            if not findings:
                return f"Inconclusive: no rule fires, but this is not enough to call it healthy.{_measure(suggestions)}"
            first = findings[0]
            return f"Inconclusive. At most a hint of {_named(first)}: {_told(first, findings)}{_against(first)}{_measure(suggestions)}"
    named = [finding for finding in findings if finding.bottleneck != "unresolved"]
    first = named[0]
    rivals: dict[str, str] = {}
    for each in named[1:]:
        if each.bottleneck != first.bottleneck and not each.refined_by and each.confidence_ratio >= RIVAL_CONFIDENCE_RATIO:
            rivals.setdefault(each.bottleneck, _named(each))
    also = f" It could also be {' or '.join(list(rivals.values())[:MAX_RIVALS])}." if rivals else ""
    look = f" Look first at: {first.check_first[0].rstrip('.')}."
    return f"Most likely {_named(first)}: {_told(first, findings)}{_for(first)}{_against(first)}{look}{also}{_measure(suggestions)}"


def readable(metric: str) -> str:
    """The name of a metric as it is said.

    >>> readable("queue_time_p95_s"), readable("kv_cache_usage_ratio"), readable("num_running_requests")
    ('queue time P95', 'KV cache usage', 'running requests')
    """
    words = _SUFFIX.sub("", metric).removeprefix("num_").split("_")
    return " ".join(_WORDS.get(word, word) for word in words)


def _named(finding: Finding) -> str:
    return f"{finding.bottleneck} ({finding.confidence_ratio:.0%})"


def _told(finding: Finding, findings: Sequence[Finding]) -> str:
    """The title, the symptom under which it is reported, and its own evidence."""
    own = sorted(finding.evidence, key=_is_flag)
    symptoms = (line for each in findings if each.rule in finding.parents for line in each.evidence)
    symptom = next((line for line in symptoms if line.unit == "s" and line.metric not in [each.metric for each in own]), None)
    return f"{finding.title.rstrip('.')} - {_lines([*([symptom] if symptom else []), *own])}."


def _is_flag(line: Evidence) -> bool:
    """Whether it compares a yes or no, which the title has said already."""
    return line.unit == "count" and line.observed in (0, 1) and line.threshold in (0, 1)


def _for(finding: Finding) -> str:
    hints = [hint.because.rstrip(".") for hint in finding.supporting[:MAX_HINTS]]
    return f" For it: {'; '.join(hints)}." if hints else ""


def _against(finding: Finding) -> str:
    return f" Against it: {finding.contradicting[0].because.rstrip('.')}." if finding.contradicting else ""


def _lines(lines: Sequence[Evidence]) -> str:
    return "; ".join(_line(line) for line in lines[:MAX_LINES])


def _line(line: Evidence) -> str:
    side = {">": "above", ">=": "at least", "<": "below", "<=": "at most"}[line.op]
    before = "" if line.baseline is None or line.threshold_from in ("baseline", "planner") else f", earlier {_figure(line, line.baseline)}"
    origin = "" if line.threshold_from == "rule" else f" {_ORIGINS[line.threshold_from]}"
    return f"{readable(line.metric)} {_figure(line, line.observed)} ({side} {_figure(line, line.threshold)}{origin}{before})"


def _figure(line: Evidence, value: float) -> str:
    if line.unit == "s":
        return seconds(value)
    if line.unit == "ratio" and max(line.observed, line.threshold) <= 1:
        return f"{value:.3g}" if value > 1 else f"{100 * value:.3g} %"
    return f"{value:.4g}"


def _measure(suggestions: Sequence[Suggestion]) -> str:
    return f" Measure next: {', '.join(suggestion.metric for suggestion in suggestions[:MAX_LINES])}." if suggestions else ""
