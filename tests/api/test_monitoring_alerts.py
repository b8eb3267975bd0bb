"""The alerts fire when their engine says so, and stay silent otherwise, as Prometheus itself evaluates them."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from fastapi.testclient import TestClient

from tests.api.test_monitoring import asked

TROUBLED = {
    'vllm:gpu_cache_usage_perc{instance="a"}': "0.97x30",  # the name before vLLM 0.9
    'vllm:num_requests_waiting{instance="a"}': "5x30",
    'vllm:num_requests_running{instance="a"}': "5x30",
    'vllm:time_to_first_token_seconds_bucket{instance="a",le="1.0"}': "0+0x30",
    'vllm:time_to_first_token_seconds_bucket{instance="a",le="10.0"}': "0+60x30",
    'vllm:time_to_first_token_seconds_bucket{instance="a",le="+Inf"}': "0+60x30",
    'vllm:request_time_per_output_token_seconds_bucket{instance="a",le="0.01"}': "0+60x30",
    'vllm:request_time_per_output_token_seconds_bucket{instance="a",le="+Inf"}': "0+60x30",
    'vllm:request_success_total{instance="a",finished_reason="stop"}': "0+1260x30",  # 21 requests/s
    'vllm:request_success_total{instance="a",finished_reason="abort"}': "0+60x30",
    'DCGM_FI_DEV_XID_ERRORS{gpu="0",Hostname="h"}': "0x5 79x25",
}
FIRE = {"KvCacheFull", "KvCacheAboveWatermark", "TTFTP95AboveObjective", "TTFTP99AboveObjective", "RequestsFail", "TrafficAbovePlan"}
FIRE |= {"NoRoomForALostReplica", "ReplicasMissing", "GpuReportsXidError"}


@pytest.mark.parametrize(("series", "fire"), [(TROUBLED, FIRE), ({}, {"EnginesAreSilent", "ReplicasMissing"})], ids=["troubled", "silent"])
def test_alerts_fire_when_they_should(client: TestClient, series: dict[str, str], fire: set[str], tmp_path: Path) -> None:
    answer = asked(client)
    names = {rule["name"] for rule in answer["alerts"]}
    assert fire <= names
    for name in fire:  # what fires here reads a series that is given, or its absence
        (expr,) = [rule["expr"] for rule in answer["alerts"] if rule["name"] == name]
        read = set(re.findall(r"(?:vllm:|DCGM_)\w+", expr))
        assert read & {key.split("{")[0] for key in series} or "absent" in expr or "vector" in expr
    promtool = shutil.which("promtool")
    if promtool is None:
        return
    (tmp_path / "rules.yml").write_text(answer["prometheus_rules"])
    silent = [{"eval_time": "20m", "alertname": name, "exp_alerts": []} for name in sorted(names)]
    given = [{"series": key, "values": values} for key, values in series.items()]
    checks = {"rule_files": ["rules.yml"], "evaluation_interval": "1m"}
    (tmp_path / "checks.yml").write_text(
        yaml.safe_dump(checks | {"tests": [{"interval": "1m", "input_series": given, "alert_rule_test": silent}]})
    )
    done = subprocess.run([promtool, "test", "rules", "checks.yml"], cwd=tmp_path, capture_output=True, text=True, check=False)
    fired = set(re.findall(r"alertname: (\w+), time", done.stdout + done.stderr))
    assert fired == fire, done.stdout + done.stderr
