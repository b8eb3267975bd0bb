"""`/monitoring`: rules and charts name only metrics that the engines expose, and thresholds follow from the plan."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi.testclient import TestClient
from sqlalchemy.orm import Session, sessionmaker

from app.exporters.dashboard import GROUPS

NAMES = Path(__file__).parent.parent / "exporters" / "engine_metrics"
PLAN: dict[str, Any] = {
    "model": "llama-3.1-70b",
    "gpu": "h100-sxm-80gb",
    "deployment": {"tp": 4, "weights": "fp8", "engine": "vllm", "speculative": {"num_draft_tokens": 3, "acceptance_ratio": 0.6}},
    "workload": {
        "peak_rps": 20,
        "input_tokens": {"mean": 4000, "p95": 8000},
        "output_tokens": {"mean": 500, "p95": 1000},
        "shared_prefix_tokens": 2000,
        "prefix_hit_ratio": 0.9,
    },
    "slo": {"ttft_p95_s": 2, "ttft_p99_s": 4, "tpot_p95_s": 0.05, "e2e_p99_s": 60},
    "percentiles": "approximated",
}
_METRIC = re.compile(r"\b(?:vllm:|sglang:|DCGM_)\w+")
_WORDS = frozenset(
    "histogram_quantile sum rate avg max min count absent vector by on or and le gpu Hostname m e6 finished_reason abort error".split()  # noqa: SIM905
)


def exposed(*files: str) -> set[str]:
    """The names of the metrics of some versions."""
    return {line for file in files for line in (NAMES / file).read_text().splitlines() if not line.startswith("#")}


EXPOSED = {
    "vllm": exposed("vllm-0.33.0.txt", "vllm-0.9.0.txt", "dcgm-exporter.txt"),
    "sglang": exposed("sglang-0.5.23.txt", "sglang-0.4.txt", "dcgm-exporter.txt"),
}
CURRENT = {"vllm": exposed("vllm-0.33.0.txt", "dcgm-exporter.txt"), "sglang": exposed("sglang-0.5.23.txt", "dcgm-exporter.txt")}


def asked(client: TestClient, engine: str = "vllm", **changes: Any) -> dict[str, Any]:
    answer = client.post("/monitoring", json={"plan": {**PLAN, "deployment": {**PLAN["deployment"], "engine": engine}, **changes}})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def expressions(answer: dict[str, Any]) -> list[str]:
    drawn = [target["expr"] for panel in answer["grafana_dashboard"]["panels"] for target in panel.get("targets", [])]
    return [rule["expr"] for rule in answer["alerts"]] + drawn


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_only_metrics_that_the_engine_exposes_are_named(client: TestClient, name: str) -> None:
    for expr in expressions(asked(client, name)):
        named = set(_METRIC.findall(expr))
        assert named, expr
        assert named <= EXPOSED[name], (expr, named - EXPOSED[name])
        assert named & CURRENT[name], f"{expr} finds nothing in the current version"
        others = set(re.findall(r"[A-Za-z_]\w*", _METRIC.sub("", expr)))
        assert others <= _WORDS, (expr, others - _WORDS)


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_the_rules_are_a_rules_file(client: TestClient, name: str, tmp_path: Path) -> None:
    answer = asked(client, name)
    (group,) = yaml.safe_load(answer["prometheus_rules"])["groups"]
    assert [rule["alert"] for rule in group["rules"]] == [rule["name"] for rule in answer["alerts"]]
    for rule in group["rules"]:
        assert rule["expr"].count("(") == rule["expr"].count(")")
        assert re.fullmatch(r"\d+s", rule["for"])
    promtool = shutil.which("promtool")
    if promtool is not None:  # beside the checks above, where it is installed
        file = tmp_path / "rules.yml"
        file.write_text(answer["prometheus_rules"])
        checked = subprocess.run([promtool, "check", "rules", str(file)], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout + checked.stderr
        panels = [target for panel in answer["grafana_dashboard"]["panels"] for target in panel.get("targets", [])]
        rules = [{"record": f"panel:{index}", "expr": target["expr"]} for index, target in enumerate(panels)]
        file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
        checked = subprocess.run([promtool, "check", "rules", str(file)], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_thresholds_are_those_of_the_plan(client: TestClient) -> None:
    answer = asked(client)
    capacity = client.post("/capacity", json=PLAN).json()
    limits = {rule["name"]: rule["threshold"] for rule in answer["alerts"]}
    assert limits["TTFTP95AboveObjective"] == 2
    assert limits["TPOTP95AboveObjective"] == 0.05
    assert limits["E2EP99AboveObjective"] == 60
    assert limits["ReplicasMissing"] == capacity["replicas"]
    assert limits["TrafficAbovePlan"] == 20
    assert limits["TrafficAboveCapacity"] == pytest.approx(20 / capacity["utilization_ratio"])
    left = (capacity["replicas"] - 1) / capacity["replicas"]
    assert limits["NoRoomForALostReplica"] == pytest.approx(limits["TrafficAboveCapacity"] * left)
    assert limits["MoreRequestsThanPlaces"] == capacity["per_replica"]["safe_concurrency"]
    assert limits["KvCacheAboveWatermark"] == 0.7
    assert limits["PrefixHitsBelowPlan"] == pytest.approx(0.8 * 0.9 * 2000 / 4000)
    assert limits["DraftsAcceptedBelowPlan"] == pytest.approx(0.8 * 0.6)
    for rule in answer["alerts"]:
        assert rule["expr"].endswith(f" {rule['threshold']:.6g}") or rule["name"] in ("KvCacheFull", "EnginesAreSilent")


def test_a_plan_without_objectives_watches_no_latency(client: TestClient) -> None:
    answer = asked(client, slo=None, deployment={"tp": 4, "weights": "fp8", "engine": "vllm"})
    assert not [rule for rule in answer["alerts"] if "Objective" in rule["name"] or "Drafts" in rule["name"]]
    assert "no_objectives" in [note["code"] for note in answer["warnings"]]
    assert answer["optimisation_order"][0]["applies"] == "next"


def test_the_dashboard_has_the_four_groups_with_charts(client: TestClient) -> None:
    panels = asked(client)["grafana_dashboard"]["panels"]
    assert [panel["title"] for panel in panels if panel["type"] == "row"] == list(GROUPS.values())
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places)
    for panel in panels:
        assert panel["type"] == "row" or (panel["targets"] and panel["datasource"])


def test_the_order_has_fourteen_steps_and_says_why(client: TestClient) -> None:
    answer = asked(client)
    assert [step["order"] for step in answer["optimisation_order"]] == list(range(1, 15))
    assert all(step["why"] for step in answer["optimisation_order"])
    assert all(item["why"] for item in answer["checklist"])
    by_step = {step["step"]: step["applies"] for step in answer["optimisation_order"]}
    assert by_step["Prefix cache for shared beginnings"] == "done"
    assert by_step["Speculative decoding"] == "done"


QUICK = {"percentiles": "approximated"}
BATCH = {
    "model": "llama-3.1-8b",
    "gpu": "h100-sxm-80gb",
    "workload": {"peak_rps": 60, "input_tokens": 500, "output_tokens": 300},
    "slo": None,
}
REASONING = {"workload": {"peak_rps": 2, "input_tokens": 500, "output_tokens": 8000}, "slo": {"tpot_p95_s": 0.05}}
MOE = {"model": "deepseek-v3", "gpu": "h200-sxm-141gb", "workload": {"peak_rps": 1, "input_tokens": 800, "output_tokens": 200}, "slo": None}


@pytest.mark.parametrize(
    ("plan", "deployment", "step", "applies", "why"),
    [
        (BATCH, {"tp": 1}, "Speculative decoding", "no", "compete"),
        (REASONING, {"tp": 4, "weights": "fp8"}, "Speculative decoding", "next", "batches are small"),
        (REASONING, {"tp": 4, "weights": "fp8"}, "Shorten prompts, retrieved text, history and answers", "next", "Answers of 8000"),
        (BATCH, {"tp": 1}, "Shorten prompts, retrieved text, history and answers", "no", "little to cut"),
        (BATCH, {"tp": 1}, "Narrower weights and KV cache", "next", "weights and KV cache"),
        (MOE, {"tp": 8}, "Narrower weights and KV cache", "next", ": KV cache"),
    ],
    ids=["drafts-batch", "drafts-few", "long-answers", "short", "wide-weights", "published-in-fp8"],
)
def test_the_order_judges_by_the_figures_of_the_plan(
    client: TestClient, plan: dict[str, Any], deployment: dict[str, Any], step: str, applies: str, why: str
) -> None:
    body = PLAN | QUICK | plan | {"deployment": {"engine": "sglang", **deployment}}
    answer = client.post("/monitoring", json={"plan": body})
    assert answer.status_code == 200, answer.text
    (found,) = [each for each in answer.json()["optimisation_order"] if each["step"] == step]
    assert found["applies"] == applies, found
    assert why in found["why"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"plan": {**PLAN, "deployment": {"tp": 4, "weights": "fp8"}}}, "/plan/deployment/engine"),
        ({}, ""),
        ({"plan_id": "6a5c0d4e-7a0f-4a9c-9f0e-1d6f7c1b2a33", "plan": PLAN}, ""),
    ],
    ids=["no-engine", "no-plan", "two-plans"],
)
def test_a_plan_that_cannot_be_watched_is_refused(client: TestClient, body: dict[str, Any], field: str) -> None:
    answer = client.post("/monitoring", json=body)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    if field:
        assert field in answer.text


def test_a_saved_plan_is_watched_by_its_id(client: TestClient) -> None:
    saved = client.post("/plans", json={"kind": "capacity", "name": "watched", "owner": "platform", "request": PLAN}).json()
    answer = client.post("/monitoring", json={"plan_id": saved["id"]})
    assert answer.status_code == 200
    assert answer.json()["alerts"] == asked(client)["alerts"]
    assert saved["id"] in answer.json()["prometheus_rules"]
    other = client.post(
        "/plans", json={"kind": "kv", "name": "kv", "owner": "platform", "request": {"model": "llama-3.1-70b", "context_tokens": 4096}}
    )
    assert client.post("/monitoring", json={"plan_id": other.json()["id"]}).status_code == 422
    assert client.post("/monitoring", json={"plan_id": "6a5c0d4e-7a0f-4a9c-9f0e-1d6f7c1b2a33"}).status_code == 404


@pytest.mark.parametrize("path", ["/monitoring", "/load-tests"])
def test_a_plan_given_in_full_asks_no_database(client: TestClient, session_factory: sessionmaker[Session], path: str) -> None:
    session_factory.configure(bind=None)
    assert client.post(path, json={"plan": PLAN}).status_code == 200
