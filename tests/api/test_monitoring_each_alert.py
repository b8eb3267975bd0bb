"""Every alert, as Prometheus itself evaluates it: silent in a fleet that is as planned, firing when its one thing is wrong."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi.testclient import TestClient

from app.domain.deployment import EngineName
from app.exporters.engine_metrics import ENGINES
from tests.api.test_monitoring import asked

PROMTOOL = shutil.which("promtool")
pytestmark = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)")
MINUTES = 60
RPS = 10.0
"""Half of the planned peak."""
PROMPT, ANSWER, HIT_RATIO, ACCEPTED = 4000, 500, 0.45, 0.6
HISTOGRAMS = {"ttft": 0.5, "tpot": 0.01, "e2e": 10.0}
"""Seconds that nearly all requests stay below."""
Values = dict[str, float]


def counter(per_minute: float) -> str:
    return f"0+{per_minute:.6f}x{MINUTES}"


def gauge(value: float) -> str:
    return f"{value:.6f}x{MINUTES}"


def fleet(engine: EngineName, engines: int, changes: Mapping[str, float]) -> dict[str, str]:
    """The series of a fleet as planned but for the changes."""
    names = ENGINES[engine]
    given: Values = {"engines": engines, "rps": RPS, "prompt": PROMPT, "answer": ANSWER, "hits": HIT_RATIO, "accepted": ACCEPTED}
    given |= {"failed": 0, "kv": 0.3, "preempted": 0, "running": 5, "waiting": 0, "xid": 0, "ttft": 0, "tpot": 0, "e2e": 0, **changes}
    requests = given["rps"] * 60
    reason = '{finished_reason="stop"}' if engine == "vllm" else ""
    failed = names.failed.split("{")[0] + ('{finished_reason="abort"}' if engine == "vllm" else "")
    series = {f'{names.running}{{instance="{number}"}}': gauge(given["running"]) for number in range(round(given["engines"]))}
    series |= {f'{names.waiting}{{instance="{number}"}}': gauge(given["waiting"]) for number in range(round(given["engines"]))}
    series |= {
        f"{names.finished}{reason}": counter(requests),
        failed: counter(requests * given["failed"]),
        names.input_tokens: counter(requests * given["prompt"]),
        names.output_tokens: counter(requests * given["answer"]),
        names.kv_usage[0]: gauge(given["kv"]),
        names.preemptions: counter(given["preempted"]),
        names.prefix_hits[0].part: counter(requests * given["prompt"] * given["hits"]),
        names.prefix_hits[0].whole: counter(requests * given["prompt"]),
        'DCGM_FI_DEV_XID_ERRORS{gpu="0",Hostname="h"}': gauge(given["xid"]),
    }
    if engine == "vllm":
        series["vllm:spec_decode_num_draft_tokens_total"] = counter(6000)
        series["vllm:spec_decode_num_accepted_tokens_total"] = counter(6000 * given["accepted"])
    else:
        series["sglang:spec_accept_rate"] = gauge(given["accepted"])
    for time, usual_s in HISTOGRAMS.items():
        name = getattr(names, time)[0]
        late = given[time]
        for bound, share in ((usual_s, 1 - late), (1000 * usual_s, 1.0), ("+Inf", 1.0)):
            series[f'{name}_bucket{{le="{bound}"}}'] = counter(requests * share)
    return series


def fired(answer: dict[str, Any], series: dict[str, str], folder: Path) -> set[str]:
    """Names of the alerts that fire at the end."""
    (folder / "rules.yml").write_text(answer["prometheus_rules"])
    silent = [{"eval_time": f"{MINUTES - 1}m", "alertname": rule["name"], "exp_alerts": []} for rule in answer["alerts"]]
    given = [{"series": key, "values": values} for key, values in series.items()]
    tests = [{"interval": "1m", "input_series": given, "alert_rule_test": silent}]
    (folder / "checks.yml").write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run([PROMTOOL or "", "test", "rules", "checks.yml"], cwd=folder, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert "parse" not in said, said
    return set(re.findall(r"alertname: (\w+), time", said))


def faults(thresholds: dict[str, float]) -> dict[str, Values]:
    """What makes each alert fire."""
    late = {f"{time.upper()}{level}AboveObjective": {time: 0.5} for time in HISTOGRAMS for level in ("P95", "P99")}
    return late | {
        "ReplicasMissing": {"engines": thresholds["ReplicasMissing"] - 1},
        "EnginesAreSilent": {"engines": 0},
        "TrafficAboveCapacity": {"rps": 1.1 * thresholds["TrafficAboveCapacity"]},
        "NoRoomForALostReplica": {"rps": 1.01 * thresholds["NoRoomForALostReplica"]},
        "TrafficAbovePlan": {"rps": 1.05 * thresholds["TrafficAbovePlan"]},
        "RequestsFail": {"failed": 0.05},
        "KvCacheFull": {"kv": 0.97, "waiting": 3},
        "KvCacheAboveWatermark": {"kv": 0.8},
        "RequestsArePreempted": {"preempted": 30},
        "MoreRequestsThanPlaces": {"running": 1.1 * thresholds["MoreRequestsThanPlaces"]},
        "PromptsLongerThanPlanned": {"prompt": 1.5 * PROMPT},
        "AnswersLongerThanPlanned": {"answer": 1.5 * ANSWER},
        "PrefixHitsBelowPlan": {"hits": 0.1},
        "DraftsAcceptedBelowPlan": {"accepted": 0.2},
        "GpuReportsXidError": {"xid": 79},
    }


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_every_alert_fires_for_its_reason_and_no_other(client: TestClient, name: EngineName, tmp_path: Path) -> None:
    answer = asked(client, name)
    thresholds = {rule["name"]: rule["threshold"] for rule in answer["alerts"]}
    engines = round(thresholds["ReplicasMissing"])
    assert fired(answer, fleet(name, engines, {}), tmp_path) == set()
    reasons = faults(thresholds)
    assert set(thresholds) <= set(reasons)
    for alert in thresholds:
        found = fired(answer, fleet(name, engines, reasons[alert]), tmp_path)
        assert alert in found
        unlike = {other for other in found if not reasons[other].keys() & reasons[alert].keys()}
        assert not unlike, (alert, unlike)


def test_each_alert_names_how_to_go_on(client: TestClient) -> None:
    answer = asked(client)
    (group,) = yaml.safe_load(answer["prometheus_rules"])["groups"]
    written = {rule["alert"]: rule["annotations"]["runbook"] for rule in group["rules"]}
    assert written == {rule["name"]: rule["runbook"] for rule in answer["alerts"]}
    paths = set(client.get("/openapi.json").json()["paths"])
    for runbook in written.values():
        named = set(re.findall(r"POST (/[\w/-]+)", runbook))
        assert named <= paths
        assert named or runbook.startswith("https://")
