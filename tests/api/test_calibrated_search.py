"""`/recommend` follows calibrations: candidates that were measured have their own constants."""

from pathlib import Path

from fastapi.testclient import TestClient

SWEEP = Path(__file__).parent.parent / "importers" / "benchmark" / "vllm-0.33.0" / "sweep.jsonl"


def test_a_search_follows_it(client: TestClient) -> None:
    request = {
        "model": "llama-3.1-8b",
        "gpus": ["h100-sxm-80gb"],
        "workload": {"peak_rps": 500, "input_tokens": 100, "output_tokens": 20},
        "slo": {"tpot_p95_s": 0.1},
        "weights": ["checkpoint"],
        "kv_caches": ["auto"],
        "limits": {"max_gpus_per_replica": 1},
    }
    before = client.post("/recommend", json=request).json()
    created = client.post(
        "/calibrations",
        json={
            "name": "8B on H100",
            "owner": "platform",
            "model": request["model"],
            "gpu": "h100-sxm-80gb",
            "deployment": {"engine": "vllm"},
            "files": [SWEEP.read_text(encoding="utf-8")],
        },
    )
    assert created.status_code == 201, created.text
    after = client.post("/recommend", json=request).json()
    assert "calibration_used" in {note["code"] for note in after["assumptions"]}
    assert after["deployments"][0]["gpus"] > before["deployments"][0]["gpus"]
    classes = client.post("/recommend", json=request | {"calibration": "none"}).json()
    assert classes["deployments"][0]["gpus"] == before["deployments"][0]["gpus"]
    assert "cheapest_not_calibrated" not in {note["code"] for note in after["warnings"]}
    both = client.post("/recommend", json=request | {"kv_caches": ["auto", "fp8"]}).json()
    assert both["deployments"][0]["deployment"]["kv_cache"] == "fp8"
    assert "cheapest_not_calibrated" in {note["code"] for note in both["warnings"]}
