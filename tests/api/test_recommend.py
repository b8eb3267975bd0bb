"""POST /recommend: what it lists is what /capacity says, every list is ordered, and refusals are told."""

import asyncio
import json
import time
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

SMALL: dict[str, Any] = {
    "model": "qwen3-32b",
    "gpus": ["h100-sxm-80gb", "l40s-48gb", "a100-sxm-80gb"],
    "workload": {"peak_rps": 5, "input_tokens": {"mean": 1500, "p95": 4000}, "output_tokens": 300},
    "slo": {"ttft_p95_s": 2, "tpot_p95_s": 0.05},
    "max_num_batched_tokens": [2048, 8192],
    "max_num_seqs": [64, 256],
    "max_model_len_tokens": 16384,
    "limits": {"max_gpus_per_replica": 4, "max_deployments": 5, "max_search_s": 30},
}


def recommended(client: TestClient, **changes: Any) -> dict[str, Any]:
    answer = client.post("/recommend", json={**SMALL, **changes})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_what_is_recommended_is_what_capacity_says(client: TestClient) -> None:
    found = recommended(client)
    assert found["deployments"]
    for each in (*found["deployments"], *found["front"]):
        body = {name: SMALL[name] for name in ("model", "workload", "slo")} | {"gpu": each["gpu"], "deployment": each["deployment"]}
        body["percentiles"] = "approximated"
        plan = client.post("/capacity", json=body).json()
        for name in ("replicas", "gpus", "binding", "cost", "expected", "gpus_per_replica"):
            assert each[name] == plan[name]
        assert each["headroom_ratio"] == pytest.approx(1 - plan["utilization_ratio"])
        assert all(objective["holds"] for objective in each["expected"]["objectives"])
        assert each["verdict"] == "serves"


def test_the_cheapest_come_first_and_the_front_is_beaten_by_nothing(client: TestClient) -> None:
    found = recommended(client)
    prices = [each["cost"]["usd_per_hour"] for each in found["deployments"]]
    assert prices == sorted(prices)
    assert found["front"][0]["cost"]["usd_per_hour"] <= 1.1 * prices[0]
    figures = []
    for each in found["front"]:
        ttft, tpot = (each["expected"][name]["mean_s"]["value"] for name in ("ttft", "tpot"))
        figures.append((each["cost"]["usd_per_hour"], -each["headroom_ratio"], ttft, tpot))
    assert not [one for one in figures for other in figures if one != other and all(a <= b for a, b in zip(one, other, strict=True))]


def test_every_candidate_is_accounted_for(client: TestClient) -> None:
    found = recommended(client, gpus=["h100-sxm-80gb", "v100-pcie-32gb", "t4-16gb", "v100-sxm2-16gb"], weights=["checkpoint", "nvfp4"])
    search = found["search"]
    refused = {each["reason"]: each["num_candidates"] for each in found["refused"]}
    assert search["complete"]
    assert search["stopped_by"] is None
    assert search["num_held"] + search["num_beaten"] + sum(refused.values()) == search["num_decided"] == search["num_candidates"]
    assert {"no_price", "weights_unsupported", "does_not_fit"} <= refused.keys()
    assert all(each["example"] for each in found["refused"])


def test_a_cache_that_the_engine_takes_anyway_is_planned_once(client: TestClient) -> None:
    """SGLang keeps the sparse latents of DeepSeek-V3.2 in 8 bits on Blackwell, vLLM does not."""
    traffic = {"peak_rps": 2, "input_tokens": 1500, "output_tokens": 200}
    asked = {"model": "deepseek-v3.2", "gpus": ["b200-sxm-180gb"], "engines": ["sglang", "vllm"], "weights": ["checkpoint"]}
    size = {"max_gpus_per_replica": 8, "max_deployments": 50, "max_search_s": 30}
    found = recommended(client, **asked, workload=traffic, slo={"tpot_p95_s": 0.2}, limits=size)
    caches = {(each["deployment"]["engine"], each["deployment"]["kv_cache"]) for each in found["deployments"]}
    assert caches == {("sglang", "fp8"), ("vllm", "auto"), ("vllm", "fp8")}
    assert "same_cache" in {each["reason"] for each in found["refused"]}
    alone = recommended(client, **asked, workload=traffic, slo={"tpot_p95_s": 0.2}, limits=size, kv_caches=["auto"])
    assert "same_cache" not in {each["reason"] for each in alone["refused"]}
    ours = [[each for each in answer["deployments"] if each["deployment"]["engine"] == "sglang"] for answer in (found, alone)]
    assert ours[0] == ours[1][: len(ours[0])] != []


def test_own_prices_decide(client: TestClient) -> None:
    cheap = recommended(client, prices={"a100-sxm-80gb": 0.01})
    first = cheap["deployments"][0]
    assert first["gpu"] == "a100-sxm-80gb"
    assert first["cost"]["usd_per_gpu_hour"] == 0.01
    assert first["cost"]["price_source"] == "request"


def test_spot_prices_are_searched_where_they_are_asked_for(client: TestClient) -> None:
    on_demand, spot = recommended(client), recommended(client, price_kind="spot")
    best = spot["deployments"][0]
    assert best["cost"]["usd_per_hour"] < on_demand["deployments"][0]["cost"]["usd_per_hour"]
    assert f"catalog {best['gpu']}-spot" in best["cost"]["price_source"]
    assert "spot_interruptions" in {note["code"] for note in spot["warnings"]}
    committed = recommended(client, price_kind="committed")
    assert {each["gpu"] for each in committed["deployments"]} == {"h100-sxm-80gb"}
    assert "no_price" in {each["reason"] for each in committed["refused"]}


def test_a_quantised_deployment_says_what_is_known_of_its_quality(client: TestClient) -> None:
    found = recommended(client, weights=["awq"], kv_caches=["fp8"], gpus=["h100-sxm-80gb"])
    codes = [note["code"] for note in found["deployments"][0]["quality"]]
    assert codes == ["quality_of_weights", "quality_of_cache"]
    assert all("https://" in note["message"] for note in found["deployments"][0]["quality"])
    plain = recommended(client, weights=["checkpoint"], kv_caches=["auto"], gpus=["h100-sxm-80gb"])
    assert plain["deployments"][0]["quality"] == []


def test_nothing_that_holds_is_answered_with_the_reasons(client: TestClient) -> None:
    found = recommended(client, slo={"ttft_p95_s": 0.001})
    assert found["deployments"] == found["front"] == []
    assert found["demand"] is None
    assert "none of the" in found["summary"]
    assert found["refused"][0]["reason"] == "ttft_missed"


def test_a_search_that_meets_its_time_says_how_far_it_came(client: TestClient) -> None:
    found = recommended(client, gpus=None, limits={"max_search_s": 0.01})
    search = found["search"]
    assert not search["complete"]
    assert search["stopped_by"] == "time"
    assert search["num_decided"] < search["num_candidates"]
    assert "search_incomplete" in [note["code"] for note in found["warnings"]]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        pytest.param({"gpus": ["h1000"]}, "/gpus/0", id="unknown accelerator"),
        pytest.param({"prices": {"h1000": 1}}, "/prices/h1000", id="price of an unknown accelerator"),
        pytest.param({"limits": {"max_candidates": 10}}, "/limits/max_candidates", id="too many candidates"),
        pytest.param({"slo": {}}, "", id="no objective"),
        pytest.param({"prices": {"h100-sxm-80gb": 0}}, "/prices/h100-sxm-80gb", id="price of nothing"),
        pytest.param({"engines": ["ollama"]}, "/engines/0", id="unknown engine"),
        pytest.param({"limits": {"max_search_s": 1e9}}, "/limits/max_search_s", id="too long"),
    ],
)
def test_what_cannot_be_searched_is_refused(client: TestClient, changes: dict[str, Any], field: str) -> None:
    answer = client.post("/recommend", json={**SMALL, **changes})
    assert answer.status_code in (404, 422), answer.text
    assert field in str(answer.json())


async def _leaves_soon(app: FastAPI, body: dict[str, Any]) -> dict[str, Any]:
    """Send a request and hang up; what the service would have answered."""
    sent = bytearray()
    messages = iter([{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}])

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0)
        return next(messages, {"type": "http.disconnect"})

    async def send(message: Any) -> None:
        sent.extend(message.get("body", b""))

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http", "path": "/recommend",
        "raw_path": b"/recommend", "query_string": b"", "root_path": "",
        "headers": [(b"content-type", b"application/json"), (b"host", b"localhost")],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000), "state": {},
    }  # fmt: skip
    await app(scope, receive, send)
    found: dict[str, Any] = json.loads(bytes(sent))
    return found


def test_a_caller_who_hangs_up_ends_the_search(client: TestClient) -> None:
    large = {"model": "deepseek-v3", "workload": SMALL["workload"], "slo": SMALL["slo"], "engines": ["vllm", "sglang", "tensorrt-llm"]}
    large["limits"] = {"max_candidates": 1_000_000, "max_search_s": 60, "max_gpus_per_replica": 16}
    began = time.monotonic()
    found = asyncio.run(_leaves_soon(client.app, large))  # type: ignore[arg-type]
    assert found["search"]["stopped_by"] == "cancelled"
    assert found["search"]["num_decided"] < found["search"]["num_candidates"]
    assert time.monotonic() - began < 30
