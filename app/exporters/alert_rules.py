"""The limits of a plan as alert rules for Prometheus.

Format: https://prometheus.io/docs/prometheus/latest/configuration/alerting_rules/
"""

from collections.abc import Iterator, Sequence

import yaml

from app.domain.latency_tail import LEVELS
from app.domain.monitoring import AlertRule, Limits, Severity
from app.domain.provenance import Basis
from app.domain.units import plain, seconds
from app.exporters.engine_metrics import EngineMetrics

KV_FULL_RATIO = 0.95
"""At this use of the KV cache with requests waiting, the next growth of a sequence pushes another one out (a convention)."""
FAILED_RATIO = 0.01
"""Share of failed requests that wakes somebody (a convention; an availability objective belongs in its place)."""
FAR_RATIO = 1.25
"""Mean lengths this many times the planned ones make the plan another one (a convention)."""
SHORTFALL_RATIO = 0.8
"""Share of the planned prefix hits or accepted drafts below which the plan no longer holds (a convention)."""
MINUTE_S = 60
DIAGNOSE = (
    "Scrape /metrics of the engine twice, five minutes apart, and DCGM beside it; POST /diagnose with both (`prometheus`, `dcgm`), slo, "
    "model, gpu, deployment and workload of the plan."
)
REPLAN = "POST /capacity with the measured rate and lengths in the workload."
REPLICAS = "Scrape every engine that still reports; POST /diagnose with them as `replicas`."
XID = "https://docs.nvidia.com/deploy/xid-errors/"
RUNBOOKS = {
    "TrafficAboveCapacity": REPLAN,
    "NoRoomForALostReplica": REPLAN,
    "TrafficAbovePlan": REPLAN,
    "PromptsLongerThanPlanned": REPLAN,
    "AnswersLongerThanPlanned": REPLAN,
    "ReplicasMissing": REPLICAS,
    "EnginesAreSilent": "Look at the scrape targets and the engines' start-up logs; POST /memory/reconcile reads a log that ends early.",
    "GpuReportsXidError": XID,
}
"""Alerts that another call answers than DIAGNOSE."""


def alert_rules(names: EngineMetrics, limits: Limits) -> list[AlertRule]:
    """Every alert for which the plan has a limit, gravest first."""
    rules = [*_objectives(names, limits), *_fleet(names, limits), *_engine(names, limits), *_plan(names, limits), *_gpus()]
    order = ("critical", "warning", "info")
    return sorted(rules, key=lambda rule: order.index(rule.severity))


def rules_file(rules: Sequence[AlertRule], *, group: str, labels: dict[str, str], plan: str) -> str:
    """The rules as the text of a file that `promtool check rules` accepts; `plan` names the plan in the annotations."""
    written = [
        {
            "alert": rule.name,
            "expr": rule.expr,
            "for": f"{rule.for_s}s",
            "labels": {"severity": rule.severity, **labels},
            "annotations": {
                "summary": rule.summary,
                "threshold": rule.threshold_from,
                "look_at": rule.look_at,
                "runbook": rule.runbook,
                "plan": plan,
            },
        }
        for rule in rules
    ]
    return yaml.safe_dump({"groups": [{"name": group, "rules": written}]}, sort_keys=False, allow_unicode=True, width=120)


def _objectives(names: EngineMetrics, limits: Limits) -> Iterator[AlertRule]:
    metrics = {"ttft": names.ttft, "tpot": names.tpot, "e2e": names.e2e}
    causes = {
        "ttft": "queue time first: high means too little capacity, low means long prompts or few prefix hits",
        "tpot": "running requests and KV cache use: a larger batch than planned, or prompts that stall decoding",
        "e2e": "TTFT and TPOT: which of the two is late; then the length of the answers",
    }
    for time, metric in metrics.items():
        for level, share in LEVELS.items():
            limit = getattr(limits.slo, f"{time}_{level}_s", None)
            if limit is not None:
                yield _rule(
                    f"{time.upper()}{level.upper()}AboveObjective", "critical", names.quantile(metric, share), ">", limit, 5 * MINUTE_S,
                    f"slo.{time}_{level}_s", f"{time.upper()} {level.upper()} is above its objective of {seconds(limit)}.",
                    causes[time],
                )  # fmt: skip


def _fleet(names: EngineMetrics, limits: Limits) -> Iterator[AlertRule]:
    if limits.replicas is not None:
        ranks = limits.replicas * limits.num_ranks
        yield _rule(
            "ReplicasMissing", "warning", f"({names.num_engines} or vector(0))", "<", ranks, 2 * MINUTE_S,
            f"replicas x engine ranks of one = {limits.replicas} x {limits.num_ranks}",
            f"Fewer than the planned {ranks} engines report.", "the last events of the pods and XID errors of their accelerators",
        )  # fmt: skip
    rate = names.rate(names.finished)
    if limits.capacity_rps is not None:
        yield _rule(
            "TrafficAboveCapacity", "critical", rate, ">", limits.capacity_rps, 5 * MINUTE_S,
            "planned rate / utilisation of the binding constraint",
            "More requests arrive than the whole fleet was planned to carry.", "rate limits and scaling; then who sends more",
        )  # fmt: skip
    if limits.rps_without_one is not None:
        yield _rule(
            "NoRoomForALostReplica", "warning", rate, ">", limits.rps_without_one, 10 * MINUTE_S,
            f"capacity x ({limits.replicas} - 1) / {limits.replicas}",
            "At this rate the fleet would not hold its plan with one replica fewer: no rolling update now.", "add a replica",
        )  # fmt: skip
    yield _rule(
        "TrafficAbovePlan", "info", rate, ">", limits.request_rps, 10 * MINUTE_S, "peak_rps x burst_ratio of the workload",
        "The peak is higher than planned.", "plan again with the measured peak",
    )  # fmt: skip
    yield _rule(
        "RequestsFail", "critical", names.failed_ratio, ">", FAILED_RATIO, 5 * MINUTE_S, f"{FAILED_RATIO:.0%}, a convention",
        "Requests end in errors or are aborted.", "the engine's log; clients that time out show as aborted", basis="assumed",
    )  # fmt: skip


def _engine(names: EngineMetrics, limits: Limits) -> Iterator[AlertRule]:
    usage = names.gauge(names.kv_usage)
    yield _rule(
        "KvCacheFull", "critical", f"({usage}) > {KV_FULL_RATIO} and on() sum({names.waiting}) > 0", "", KV_FULL_RATIO, 5 * MINUTE_S,
        f"{KV_FULL_RATIO:.0%} with requests waiting, a convention", "The KV cache of an engine is full and requests wait for it.",
        "longer contexts or more concurrency than planned; then KV precision, max_num_seqs and replicas", basis="assumed",
    )  # fmt: skip
    yield _rule(
        "KvCacheAboveWatermark", "warning", usage, ">", limits.safety_ratio, 15 * MINUTE_S, "safety_ratio of the plan",
        "The KV cache is fuller than the plan keeps it.", "lengths of prompts and answers, and how even the load balancer spreads requests",
    )  # fmt: skip
    yield _rule(
        "RequestsArePreempted", "warning", names.rate(names.preemptions), ">", 0, 10 * MINUTE_S, "a plan within its KV cache has none",
        "Running requests are pushed out and computed again.", "KV cache use; lower max_num_seqs or add replicas",
    )  # fmt: skip
    if limits.safe_concurrency:
        per_rank = limits.safe_concurrency / limits.num_ranks
        load = f"avg({names.running}) + avg({names.waiting})"
        yield _rule(
            "MoreRequestsThanPlaces", "warning", load, ">", per_rank, 10 * MINUTE_S, "safe concurrency of one engine rank",
            "Engines hold more requests than the plan lets them.", "arrival rate and the time that requests stay",
        )  # fmt: skip
    yield _rule(
        "EnginesAreSilent", "critical", f"absent({names.running})", "", 1, 2 * MINUTE_S, "no engine reports at all",
        "Prometheus sees no engine.", "the scrape targets, and whether the engine exposes /metrics", basis="exact",
    )  # fmt: skip


def _plan(names: EngineMetrics, limits: Limits) -> Iterator[AlertRule]:
    finished = names.rate(names.finished)
    for what, counter, mean in (
        ("Prompts", names.input_tokens, limits.mean_input_tokens),
        ("Answers", names.output_tokens, limits.mean_output_tokens),
    ):
        yield _rule(
            f"{what}LongerThanPlanned", "info", f"{names.rate(counter)} / {finished}", ">", FAR_RATIO * mean, 30 * MINUTE_S,
            f"{FAR_RATIO:g} x the planned mean of {plain(mean)} tokens", f"{what} are longer than the plan took them to be.",
            "what clients send; then plan again with the measured lengths", basis="assumed",
        )  # fmt: skip
    if limits.hit_ratio:
        yield _rule(
            "PrefixHitsBelowPlan", "warning", names.hit_ratio, "<", SHORTFALL_RATIO * limits.hit_ratio, 15 * MINUTE_S,
            f"{SHORTFALL_RATIO:g} x the planned share of {limits.hit_ratio:.0%} of the prompt tokens",
            "The prefix cache serves less than the plan counts on.", "changed prompt templates, cache flushes, prefix-aware routing",
            basis="assumed",
        )  # fmt: skip
    if limits.acceptance_ratio:
        yield _rule(
            "DraftsAcceptedBelowPlan", "warning", names.acceptance, "<", SHORTFALL_RATIO * limits.acceptance_ratio, 15 * MINUTE_S,
            f"{SHORTFALL_RATIO:g} x the planned acceptance of {limits.acceptance_ratio:.0%}",
            "Fewer drafts are accepted than the plan counts on.", "the kind of requests, and whether the draft model fits them",
            basis="assumed",
        )  # fmt: skip


def _gpus() -> Iterator[AlertRule]:
    yield _rule(
        "GpuReportsXidError", "critical", "max by (gpu, Hostname) (DCGM_FI_DEV_XID_ERRORS)", ">", 0, 0, "any XID",
        "An accelerator reports an error of its driver.", "the XID in https://docs.nvidia.com/deploy/xid-errors/; take the node out",
    )  # fmt: skip


def _rule(
    name: str,
    severity: Severity,
    measured: str,
    op: str,
    threshold: float,
    for_s: int,
    threshold_from: str,
    summary: str,
    look_at: str,
    basis: Basis = "exact",
) -> AlertRule:
    return AlertRule(
        name=name,
        severity=severity,
        expr=f"({measured}) {op} {threshold:.6g}" if op else measured,
        for_s=for_s,
        threshold=threshold,
        basis=basis,
        threshold_from=threshold_from,
        summary=summary,
        look_at=look_at,
        runbook=RUNBOOKS.get(name, DIAGNOSE),
    )
