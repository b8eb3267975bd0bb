"""`/calibrations` over HTTP: from a tool's own files to estimates that follow them."""

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response

from app.services.calibrations import MAX_FITTED_ROWS
from tests.api.problems import problem

FILES = Path(__file__).parent.parent / "importers" / "benchmark"
SETUP = {"model": "llama-3.1-8b", "gpu": "h100-sxm-80gb"}
VLLM = {"engine": "vllm", "engine_version": "0.19.1"}
LOAD = {"input_tokens": 100, "output_tokens": 20, "concurrency": 4}
ONE_POINT = "vllm-0.33.0/rate.json"
"""One row: fitted in a tenth of the time of a sweep."""
STUB_TPOT_S = 0.006 + 0.001 * 4
"""The law of the stub server at four streams (tests/importers/benchmark/stub_server.py)."""
SWEEPS = {
    "vllm": ["vllm-0.33.0/sweep.jsonl"],
    "vllm at a rate": ["vllm-0.33.0/rate.json"],
    "sglang": ["sglang-0.5.23/sweep.jsonl"],
    "guidellm": ["guidellm-0.8.1/sweep.json"],
    "aiperf": [f"aiperf-0.13.0/concurrency-{load}.json" for load in (1, 4, 16)],
    "genai-perf": [f"genai-perf-0.0.16/concurrency-{load}.json" for load in (1, 4, 16)],
    "llm-d": [f"llm-d-benchmark-8bc9f1d/from-vllm-concurrency-{load}.yaml" for load in (1, 4, 16)],
}


def body(*names: str, **changes: Any) -> dict[str, Any]:
    files = [(FILES / name).read_text(encoding="utf-8") for name in names or SWEEPS["vllm"]]
    return {"name": "8B on H100", "owner": "platform", **SETUP, "deployment": VLLM, "files": files, **changes}


def create(client: TestClient, *names: str, headers: dict[str, str] | None = None, **changes: Any) -> Response:
    answer = client.post("/calibrations", json=body(*names, **changes), headers=headers)
    assert answer.status_code == 201, answer.text
    return answer


def performance(client: TestClient, **changes: Any) -> dict[str, Any]:
    answer = client.post("/performance", json={**SETUP, "deployment": VLLM, **LOAD, **changes})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def codes(notes: list[dict[str, str]]) -> set[str]:
    return {note["code"] for note in notes}


def listed(client: TestClient, **params: Any) -> list[str]:
    return [item["id"] for item in client.get("/calibrations", params=params).json()["items"]]


@pytest.mark.parametrize("names", list(SWEEPS.values()), ids=list(SWEEPS))
def test_files_of_every_tool_bring_the_estimate_to_what_was_measured(client: TestClient, names: list[str]) -> None:
    before = performance(client)
    created = create(client, *names).json()
    after = performance(client)
    assert created["num_rows"] == len(created["result"]["rows"])
    assert abs(before["tpot_s"]["value"] / STUB_TPOT_S - 1) > 0.25
    assert after["tpot_s"]["value"] == pytest.approx(STUB_TPOT_S, rel=0.1)
    assert (after["basis"], after["calibration"]) == ("calibrated", created["id"])
    assert "calibration_used" in codes(after["assumptions"])
    assert f"calibration {created['id']}" in {step["source"].split(";")[0] for step in after["working"]}


def test_an_estimate_says_whose_constants_it_has(client: TestClient) -> None:
    before = performance(client)
    wanted = create(client).json()["id"]
    assert before["calibration"] is None
    assert performance(client, calibration="none") == before | {"versions": performance(client)["versions"]}
    other = performance(client, model="qwen3-8b")
    assert other["calibration"] is None
    asked = performance(client, model="qwen3-8b", calibration=wanted)
    assert asked["calibration"] == wanted
    assert "calibration_of_other_setup" in codes(asked["warnings"])
    problem(client.post("/performance", json={**SETUP, **LOAD, "calibration": wanted}), 422, "invalid_input")
    problem(client.post("/performance", json={**SETUP, **LOAD, "calibration": SETUP["gpu"]}), 422, "invalid_request")


def test_capacity_follows_it(client: TestClient) -> None:
    request = {**SETUP, "deployment": VLLM, "workload": {"peak_rps": 500, "input_tokens": 100, "output_tokens": 20}}
    before = client.post("/capacity", json=request).json()
    create(client)
    after = client.post("/capacity", json=request).json()
    assert "calibration_used" in codes(after["assumptions"])
    assert after["replicas"] > before["replicas"]
    assert client.post("/capacity", json=request | {"calibration": "none"}).json()["replicas"] == before["replicas"]


def test_what_moved_and_what_does_not_fit_is_answered(client: TestClient) -> None:
    found = create(client).json()["result"]
    assert [row["concurrency"] for row in found["rows"]] == [1, 4, 16]
    sequence = next(each for each in found["constants"] if each["name"] == "sequence_s")
    assert sequence["identified"]
    assert sequence["after"] == pytest.approx(1e-3, rel=0.5)
    tpot = next(each for each in found["quality"] if each["quantity"] == "tpot")
    assert tpot["median_error_after_ratio"] < 0.1 < 0.3 < tpot["median_error_before_ratio"]
    assert "model_of_other_name" in codes(found["warnings"])


def test_rows_without_what_is_needed_are_named(client: TestClient) -> None:
    first = json.loads((FILES / SWEEPS["vllm"][0]).read_text(encoding="utf-8").splitlines()[1])
    wrong_unit = {**first, "mean_tpot_ms": first["mean_tpot_ms"] / 1000}
    no_lengths = {**first, "total_input_tokens": 0}
    found = create(client, files=[json.dumps(each) for each in (first, wrong_unit, no_lengths)]).json()["result"]
    assert [row["used"] for row in found["rows"]] == [True, False, False]
    assert "is each in the unit" in found["rows"][1]["disagrees"]
    assert "prompt" in found["rows"][2]["disagrees"]
    assert found["num_rows"] == 1


@pytest.mark.parametrize(
    ("changes", "status", "code", "pointer"),
    [
        pytest.param({"files": ["{"]}, 422, "invalid_input", "/files/0", id="no JSON"),
        pytest.param({"files": ['{"a": 1}']}, 422, "invalid_input", "/files/0", id="no results"),
        pytest.param({"files": []}, 422, "invalid_request", "/files", id="no file"),
        pytest.param({"model": "nope"}, 422, "unknown_name", "/model", id="unknown model"),
        pytest.param({"model": {"params": 8e9}}, 422, "invalid_request", "/model", id="a model without a name"),
        pytest.param({"deployment": {"tp": 3}}, 422, "invalid_input", "/deployment/tp", id="impossible layout"),
        pytest.param({"model": "llama-3.1-405b"}, 422, "invalid_input", "/deployment", id="does not fit"),
        pytest.param({"length_width_ratio": 3}, 422, "invalid_request", "/length_width_ratio", id="out of range"),
    ],
)
def test_what_is_refused_stores_nothing(client: TestClient, changes: dict[str, Any], status: int, code: str, pointer: str) -> None:
    before = performance(client)
    refused = problem(client.post("/calibrations", json=body(**changes)), status, code)
    assert refused["errors"][0]["pointer"].startswith(pointer)
    assert listed(client) == []
    assert performance(client) == before


def test_a_file_without_a_usable_point_is_refused_with_the_reason(client: TestClient) -> None:
    point = json.loads((FILES / SWEEPS["vllm"][0]).read_text(encoding="utf-8").splitlines()[0])
    refused = problem(client.post("/calibrations", json=body(files=[json.dumps(point | {"total_output_tokens": 0})])), 422, "invalid_input")
    assert "output" in refused["detail"]


def test_more_rows_than_a_fit_takes_are_refused(client: TestClient) -> None:
    point = json.loads((FILES / SWEEPS["vllm"][0]).read_text(encoding="utf-8").splitlines()[0])
    many = "\n".join(json.dumps(point | {"duration": 10 + number}) for number in range(MAX_FITTED_ROWS + 1))
    refused = problem(client.post("/calibrations", json=body(files=[many])), 422, "invalid_input")
    assert str(MAX_FITTED_ROWS) in refused["detail"]


def test_a_run_given_twice_counts_once(client: TestClient) -> None:
    once, twice = (create(client, *[ONE_POINT] * times).json()["result"] for times in (1, 2))
    assert once["num_rows"] == twice["num_rows"] == 1
    assert once["constants"] == twice["constants"]
    assert "run_given_twice" in codes(twice["warnings"])
    assert "run_given_twice" not in codes(once["warnings"])


def test_figures_beyond_reason_are_answered_or_refused(client: TestClient) -> None:
    point = json.loads((FILES / SWEEPS["vllm"][0]).read_text(encoding="utf-8").splitlines()[0])
    kept = {name: point[name] for name in ("completed", "total_token_throughput", "max_concurrency", "total_input_tokens")}

    def text(tpot_ms: float) -> str:
        return json.dumps({**kept, "total_output_tokens": 960, "mean_tpot_ms": tpot_ms, "mean_ttft_ms": 50})

    for value in (0.3, 300):
        found = create(client, files=[text(value)]).json()["result"]
        assert {each["quantity"] for each in found["quality"]} == {"tpot", "ttft"}
    for value in (1e-3, 1e3, 1e8):
        refused = problem(client.post("/calibrations", json=body(files=[text(value)])), 422, "invalid_input")
        assert "unit" in refused["detail"]


def test_read_list_and_delete(client: TestClient) -> None:
    created = create(client, ONE_POINT)
    calibration = created.json()
    path = f"/calibrations/{calibration['id']}"
    assert (created.headers["Location"], created.headers["ETag"]) == (path, '"1"')
    read = client.get(path)
    assert (read.json(), read.headers["ETag"]) == (calibration, '"1"')
    assert listed(client, model="Llama-3.1-8B", gpu="h100-sxm-80gb", engine="vllm", owner="platform") == [calibration["id"]]
    for narrowed in ({"model": "qwen3-8b"}, {"gpu": "h200-sxm-141gb"}, {"engine": "sglang"}, {"owner": "other"}):
        assert listed(client, **narrowed) == []
    problem(client.delete(path), 428, "precondition_required")
    problem(client.delete(path, headers={"If-Match": '"7"'}), 412, "stale_version")
    assert client.delete(path, headers={"If-Match": '"1"'}).status_code == 204
    problem(client.get(path), 404, "not_found")
    problem(client.delete(path, headers={"If-Match": "*"}), 404, "not_found")
    assert listed(client) == []
    assert performance(client)["calibration"] is None


def test_pages_go_on_where_the_last_one_ended(client: TestClient) -> None:
    made = [create(client, ONE_POINT, name=f"run {number}").json()["id"] for number in range(3)]
    first = client.get("/calibrations", params={"limit": 2}).json()
    second = client.get("/calibrations", params={"limit": 2, "page_token": first["next_page_token"]}).json()
    assert sorted(item["id"] for item in first["items"] + second["items"]) == sorted(made)
    assert second["next_page_token"] is None
    problem(client.get("/calibrations", params={"page_token": "no"}), 422, "invalid_page_token")


def test_sent_again_with_its_key_it_is_made_once(client: TestClient) -> None:
    key = {"Idempotency-Key": "sweep-1"}
    one, other = create(client, ONE_POINT, headers=key), create(client, ONE_POINT, headers=key)
    assert (one.json(), other.headers["Idempotency-Replayed"]) == (other.json(), "true")
    assert listed(client) == [one.json()["id"]]
    problem(client.post("/calibrations", json=body(ONE_POINT, name="another"), headers=key), 422, "idempotency_conflict")


def test_a_plan_that_names_a_calibration_is_computed_again_with_it(client: TestClient) -> None:
    wanted = create(client, ONE_POINT).json()["id"]
    request = {**SETUP, "deployment": VLLM, **LOAD, "calibration": wanted}
    plan = client.post("/plans", json={"kind": "performance", "name": "8B", "owner": "platform", "request": request}).json()
    assert plan["answer"]["calibration"] == wanted
    again = client.post(f"/plans/{plan['id']}/recompute").json()
    assert again["answer"]["tpot_s"] == plan["answer"]["tpot_s"]
    assert client.delete(f"/calibrations/{wanted}", headers={"If-Match": "*"}).status_code == 204
    problem(client.post(f"/plans/{plan['id']}/recompute"), 422, "unknown_name")
