"""`/capacity` with a named engine: the knowledge-base case, and what measured figures, prefix hits, pools and updates change."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

REPLICA: dict[str, Any] = {
    "model": "llama-3.1-70b",
    "gpu": "h100-sxm-80gb",
    "deployment": {"tp": 4, "weights": "fp8", "kv_cache": "fp8", "engine": "vllm"},
}
TRAFFIC: dict[str, Any] = {"peak_rps": 100, "input_tokens": {"mean": 4000, "p95": 12000}, "output_tokens": 500}
SLO = {"ttft_p95_s": 2, "tpot_p95_s": 0.04}


def ask(client: TestClient, workload: dict[str, Any] = TRAFFIC, **more: Any) -> dict[str, Any]:
    response = client.post("/capacity", json={**REPLICA, "workload": workload, "percentiles": "approximated", **more})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def constraints(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {item["name"]: item for item in answer["constraints"]}


def codes(answer: dict[str, Any]) -> set[str]:
    return {note["code"] for note in answer["warnings"]}


def test_the_knowledge_base_case(client: TestClient) -> None:
    answer = ask(client, slo=SLO)
    found = constraints(answer)
    assert all(item["replicas"] for item in found.values())
    assert {item["basis"] for item in found.values()} == {"calibrated"}
    assert answer["binding"] == "slo"
    assert answer["replicas"] == -(-found["slo"]["replicas"] * 5 // 4)  # x 1.25
    expected = answer["expected"]
    assert [(each["name"], each["holds"]) for each in expected["objectives"]] == [("ttft_p95", True), ("tpot_p95", True)]
    for name in ("ttft", "tpot", "e2e"):
        times = [expected[name][which] for which in ("mean_s", "p95_s", "p99_s")]
        assert [each["value"] for each in times] == sorted(each["value"] for each in times)
        assert all(each["low"] < each["value"] < each["high"] for each in times)
    assert (expected["basis"], expected["percentile_basis"]) == ("calibrated", "assumed")
    hits = answer["prefix_cache_effect"]
    assert [row["prefix_hit_ratio"] for row in hits] == [0, 0.5, 0.8]
    assert hits[0]["replicas"] == answer["replicas"] > hits[1]["replicas"] > hits[2]["replicas"]
    assert hits[0]["ttft_p95_s"] == expected["ttft"]["p95_s"]["value"] > hits[1]["ttft_p95_s"] > hits[2]["ttft_p95_s"]
    assert [pool["name"] for pool in answer["pools"]["pools"]] == ["short", "long"]
    assert answer["cost"]["usd_per_request"] > 0
    assert answer["engine_args"]["command"].startswith("vllm serve meta-llama/Llama-3.1-70B --tensor-parallel-size 4 ")


@pytest.mark.parametrize("slo", [{}, {"ttft_p95_s": None}, {"ttft_p95_s": None, "tpot_p99_s": None}], ids=["empty", "null", "nulls"])
@pytest.mark.parametrize("named", ["vllm", "generic"])
def test_objectives_without_a_limit_are_none(client: TestClient, slo: dict[str, Any], named: str) -> None:
    deployment = {**REPLICA["deployment"], "engine": named}
    answer = ask(client, deployment=deployment, slo=slo)
    without = ask(client, deployment=deployment)
    assert constraints(answer)["slo"] == constraints(without)["slo"]
    assert constraints(answer)["slo"]["note"] == "not evaluated: no objectives"
    assert (answer["replicas"], answer["binding"]) == (without["replicas"], without["binding"])


def test_the_objectives_need_exactly_so_many_replicas(client: TestClient) -> None:
    need = constraints(ask(client, slo=SLO))["slo"]["replicas"]
    for replicas, holds in ((need, True), (need - 1, False)):
        answer = ask(client, {**TRAFFIC, "peak_rps": 100 / replicas}, slo=SLO, redundancy_ratio=1)
        assert (constraints(answer)["slo"]["replicas"] == 1) is holds


def test_more_traffic_needs_no_fewer_replicas(client: TestClient) -> None:
    sizes = [ask(client, {**TRAFFIC, "peak_rps": rps}, slo=SLO)["replicas"] for rps in (1, 3, 10, 30, 100)]
    assert sizes == sorted(sizes)


def test_a_prompt_that_takes_longer_than_the_objective_has_no_number_of_replicas(client: TestClient) -> None:
    answer = ask(client, slo={"ttft_p95_s": 0.4})
    assert "slo_unattainable" in codes(answer)
    assert "the prefill of a prompt of 12000 tokens alone takes" in constraints(answer)["slo"]["note"]
    assert [row["replicas"] for row in answer["prefix_cache_effect"]] == [None, None, None]


def test_measured_figures_take_the_place_of_modelled_ones(client: TestClient) -> None:
    measured = {"output_tokens_per_s": 2500, "input_tokens_per_s": 20_000, "concurrency": 80, "ttft_s": 0.6, "tpot_s": 0.03}
    answer = ask(client, slo=SLO, measured=measured)
    found = constraints(answer)
    assert {name: item["basis"] for name, item in found.items()} == {
        "throughput": "measured", "prefill": "measured", "concurrency": "measured", "kv_cache": "measured", "slo": None,
    }  # fmt: skip
    assert found["throughput"]["replicas"] == 20
    assert "every objective is held as measured" in found["slo"]["note"]
    assert answer["latency"]["basis"] == "measured"
    assert answer["prefix_cache_effect"] == []
    assert answer["pools"] is None
    slow = ask(client, slo=SLO, measured={**measured, "ttft_s": 2.5})
    assert "cannot be held as measured: ttft_p95 2.5 s > 2 s" in constraints(slow)["slo"]["note"]


def test_a_fleet_without_a_steady_state_is_said_so(client: TestClient) -> None:
    """Sized by what one replica ends at most, which requests that arrive at random do not leave it."""
    long = {"peak_rps": 5, "input_tokens": 60000, "output_tokens": 100}
    body = {"model": "deepseek-v3", "gpu": "mi300x-192gb", "deployment": {"tp": 4, "engine": "sglang"}, "workload": long}
    answer = client.post("/capacity", json=body | {"slo": {"ttft_p95_s": 2}, "redundancy_ratio": 1, "percentiles": "approximated"}).json()
    assert answer["expected"] is None
    (said,) = (note["message"] for note in answer["warnings"] if note["code"] == "saturated")
    assert "add replicas" in said
    assert "measured" not in said


def test_a_fleet_that_the_model_finds_too_small_is_said_so(client: TestClient) -> None:
    answer = ask(client, measured={"output_tokens_per_s": 9000, "input_tokens_per_s": 90_000, "e2e_s": 2, "concurrency": 200})
    assert answer["expected"] is None
    assert "saturated" in codes(answer)


def test_classes_far_apart_are_split_where_one_pool_cannot_hold_the_objectives(client: TestClient) -> None:
    classes = [
        {"share_ratio": 0.9, "input_tokens": 1000, "output_tokens": 200},
        {"share_ratio": 0.1, "input_tokens": 60_000, "output_tokens": 200},
    ]
    answer = ask(client, {"peak_rps": 20, "classes": classes}, slo=SLO)
    pools = answer["pools"]
    assert constraints(answer)["slo"]["replicas"] is None
    assert pools["recommended"]
    short, long = pools["pools"]
    assert (short["mean_input_tokens"], long["mean_input_tokens"]) == (pytest.approx(1000), pytest.approx(60_000))
    assert short["replicas"] is not None
    assert long["replicas"] is None
    assert "the short pool can" in pools["reason"]


def test_even_prompts_have_one_pool(client: TestClient) -> None:
    assert ask(client, {**TRAFFIC, "input_tokens": 4000})["pools"] is None


def test_a_rolling_update_keeps_enough_replicas(client: TestClient) -> None:
    update = {"surge_replicas": 2, "unavailable_replicas": 20}
    answer = ask(client, slo=SLO, rolling_update=update)
    need = constraints(answer)["slo"]["replicas"]
    assert answer["replicas"] == need + 20
    last = answer["situations"][-1]
    assert (last["name"], last["replicas"], last["gpus"], last["holds"]) == ("rolling update", need, (need + 22) * 4, True)
    assert ask(client, slo=SLO, rolling_update={})["replicas"] < answer["replicas"]


def test_a_shared_prefix_is_held_once_as_concurrency_counts_it(client: TestClient) -> None:
    traffic = TRAFFIC | {"shared_prefix_tokens": 3000}
    asked: dict[str, Any] = {"slo": SLO, "deployment": {**REPLICA["deployment"], "max_num_seqs": 2000}}
    found = {}
    for hits in (0, 0.5, 1):
        workload = traffic | {"prefix_hit_ratio": hits}
        answer = ask(client, workload, **asked)
        body = {**REPLICA, "deployment": asked["deployment"], "workload": workload}
        held = client.post("/concurrency", json=body).json()
        for name in ("max_concurrency", "safe_concurrency"):
            assert answer["per_replica"][name] == held[name]
        assert ("shared_prefix" in {note["code"] for note in answer["assumptions"]}) == (hits > 0)
        found[hits] = answer
    per_replica = [found[hits]["per_replica"]["max_concurrency"] for hits in (0, 0.5, 1)]
    assert per_replica == sorted(per_replica)
    assert per_replica[2] > 2 * per_replica[0]
    at_half = next(row for row in found[1]["prefix_cache_effect"] if row["prefix_hit_ratio"] == 0.5)
    assert at_half["replicas"] == found[0.5]["replicas"]
    assert at_half["replicas_exact"] == pytest.approx(found[0.5]["utilization_ratio"] * found[0.5]["replicas"])


def test_a_fleet_is_priced_by_the_kind_that_is_asked_for(client: TestClient) -> None:
    found = {kind: ask(client, price_kind=kind) for kind in ("on_demand", "spot", "committed")}
    hourly = {kind: answer["cost"]["usd_per_hour"] for kind, answer in found.items()}
    assert hourly["spot"] < hourly["committed"] < hourly["on_demand"] == ask(client)["cost"]["usd_per_hour"]
    for kind, answer in found.items():
        price = client.post("/cost", json={"gpu": REPLICA["gpu"], "gpus": 4, "replicas": answer["replicas"], "price_kind": kind}).json()
        assert hourly[kind] == price["usd_per_hour"]
        assert ("spot_interruptions" in codes(answer), "committed_term" in codes(answer)) == (kind == "spot", kind == "committed")
    assert ask(client, price_kind="spot", usd_per_gpu_hour=1)["cost"]["usd_per_gpu_hour"] == 1


def test_a_kind_of_price_that_nobody_knows_leaves_the_cost_out_and_says_so(client: TestClient) -> None:
    answer = ask(client, gpu="l40s-48gb", price_kind="committed")
    assert answer["replicas"]
    assert answer["cost"] is None
    assert "price_not_known" in codes(answer)


def test_without_an_engine_nothing_is_modelled(client: TestClient) -> None:
    answer = ask(client, slo=SLO, deployment={"tp": 4, "weights": "fp8"})
    assert answer["expected"] is None
    assert answer["engine_args"] is None
    assert answer["prefix_cache_effect"] == []
    assert "speed_is_a_bound" in codes(answer)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"rolling_update": {"surge_replicas": -1}}, "/rolling_update/surge_replicas"),
        ({"rolling_update": {"surges": 1}}, "/rolling_update/surges"),
        (
            {"deployment": {"engine": "vllm", "speculative": {"num_draft_tokens": 2, "acceptance_ratio": 0.5, "draft_model": "no-such"}}},
            "/deployment/speculative/draft_model",
        ),
    ],
    ids=["negative", "unknown", "unknown draft"],
)
def test_what_is_wrong_is_named(client: TestClient, given: dict[str, Any], field: str) -> None:
    refused = client.post("/capacity", json={**REPLICA, "workload": TRAFFIC, **given})
    assert refused.status_code in (404, 422)
    assert field in refused.text


@pytest.mark.parametrize(
    "workload",
    [
        {"peak_rps": 1e9, "input_tokens": 1e9, "output_tokens": 1e9, "burst_ratio": 1000, "token_growth_ratio": 100},
        {"peak_rps": 1e-6, "input_tokens": 100, "output_tokens": 100, "token_growth_ratio": 0.01},
        {"peak_rps": 10, "input_tokens": {"mean": 1, "p95": 1e9, "p99": 1e9}, "output_tokens": {"mean": 1, "p99": 1e9}},
        {"peak_rps": 10, "input_tokens": 1e6, "output_tokens": 1, "prefix_hit_ratio": 1},
        {
            "peak_rps": 10,
            "classes": [
                {"share_ratio": 0.999999, "input_tokens": 1, "output_tokens": 1},
                {"share_ratio": 0.000001, "input_tokens": 1e9, "output_tokens": 1e9},
            ],
        },
    ],
    ids=["huge", "tiny", "impossible tail", "all cached", "one giant"],
)
@pytest.mark.parametrize("named", ["vllm", "sglang", "tensorrt-llm", "llama.cpp"])
@pytest.mark.parametrize("slo", [None, {"ttft_p95_s": 1e-6, "tpot_p99_s": 1e-6, "e2e_p95_s": 1e-6}, {"ttft_p99_s": 1e6, "e2e_p99_s": 1e6}])
def test_absurd_traffic_has_an_answer(client: TestClient, workload: dict[str, Any], named: str, slo: dict[str, float] | None) -> None:
    body = {**REPLICA, "workload": workload, "slo": slo, "deployment": {**REPLICA["deployment"], "engine": named}}
    body["percentiles"] = "approximated"
    answer = client.post("/capacity", json=body)
    assert answer.status_code == 200, answer.text
    assert not {"NaN", "Infinity"} & set(answer.text.replace(",", " ").split())
