"""`/cost`: kinds of prices, and input and output split by the step time that each uses."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

WORKLOAD = {"peak_rps": 2, "input_tokens": 4000, "output_tokens": 500}
REPLICA = {"model": "llama-3.1-70b", "gpu": "h100-sxm-80gb", "deployment": {"tp": 4, "weights": "fp8", "engine": "vllm"}}


def ask(client: TestClient, **body: Any) -> dict[str, Any]:
    answer = client.post("/cost", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


PLAN: dict[str, Any] = REPLICA | {
    "workload": WORKLOAD | {"peak_rps": 20},
    "slo": {"ttft_p95_s": 2, "tpot_p95_s": 0.05},
    "percentiles": "approximated",
}
CARD: dict[str, Any] = {"memory_bytes": 8 * 10**10, "memory_bandwidth_bytes_per_s": 3e12, "peak_flops_per_s": 1e15}


def codes(answer: dict[str, Any], part: str = "warnings") -> set[str]:
    return {note["code"] for note in answer[part]}


def test_each_kind_of_price_has_its_own_figure_and_source(client: TestClient) -> None:
    kinds = ("on_demand", "spot", "committed")
    found = {kind: ask(client, gpu="h100-sxm-80gb", gpus=8, price_kind=kind) for kind in kinds}
    assert found["spot"]["usd_per_hour"] < found["committed"]["usd_per_hour"] < found["on_demand"]["usd_per_hour"]
    assert ask(client, gpu="h100-sxm-80gb", gpus=8)["usd_per_hour"] == found["on_demand"]["usd_per_hour"]
    for kind, answer in found.items():
        price = answer["working"][0]
        assert (price["name"], price["basis"]) == ("replica_usd_per_hour", "datasheet")
        assert price["source"].startswith(f"catalog h100-sxm-80gb-{kind.replace('_', '-')}, 2026-")
        assert "http" in price["source"]
    assert "spot_interruptions" in codes(found["spot"])
    assert "committed_term" in codes(found["committed"])
    assert not codes(found["on_demand"]) & {"spot_interruptions", "committed_term"}


def test_a_kind_that_the_catalog_does_not_know_is_asked_for(client: TestClient) -> None:
    answer = client.post("/cost", json={"gpu": "l40s-48gb", "gpus": 1, "price_kind": "committed"})
    assert (answer.status_code, answer.json()["code"]) == (422, "missing_figure")
    (found,) = answer.json()["errors"]
    assert (found["pointer"], found["value"]) == ("/price_kind", "committed")
    assert ask(client, gpu="l40s-48gb", gpus=2, price_kind="committed", usd_per_gpu_hour=0.5)["usd_per_hour"] == 1


def test_input_and_output_carry_the_time_that_they_use(client: TestClient) -> None:
    answer = ask(client, **REPLICA, workload=WORKLOAD)
    whole = ask(client, gpu="h100-sxm-80gb", gpus=4, workload=WORKLOAD)
    assert whole["split"] is None
    assert "cost_not_split" in codes(whole)
    assert "cost_not_split" not in codes(answer)
    for which in ("input", "output"):
        name = f"usd_per_million_{which}_tokens"
        assert answer[name] == pytest.approx(whole[name] * answer["split"][f"{which}_time_ratio"])
    for name in ("usd_per_million_blended_tokens", "usd_per_request", "usd_per_hour", "usd_per_month", "usd_per_task"):
        assert answer[name] == whole[name]
    assert "per million input tokens" in answer["summary"]
    assert ask(client, **REPLICA, workload=WORKLOAD, replica_usd_per_hour=20)["split"] == answer["split"]


def test_where_nothing_is_modelled_the_answer_says_so(client: TestClient) -> None:
    generic = ask(client, **REPLICA | {"deployment": {"tp": 4, "weights": "fp8"}}, workload=WORKLOAD)
    assert {"cost_not_split", "engine_not_named"} <= codes(generic)
    full = ask(client, **REPLICA | {"deployment": {"tp": 1, "engine": "vllm"}}, workload=WORKLOAD)
    assert {"cost_not_split", "does_not_serve"} <= codes(full)
    assert generic["split"] is full["split"] is None
    fast = ask(client, **REPLICA, workload=WORKLOAD, request_rps=40)
    assert "above_modelled_rate" in codes(fast)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"model": "llama-3.1-70b", "gpu": "h100-sxm-80gb", "gpus": 4, "workload": WORKLOAD}, id="no deployment"),
        pytest.param({**REPLICA}, id="no workload"),
        pytest.param({**REPLICA, "workload": WORKLOAD, "gpus": 8}, id="other accelerators than the deployment"),
        pytest.param({"replica_usd_per_hour": 1, "deployment": {"tp": 4}}, id="deployment of no model"),
        pytest.param({"gpu": "h100-sxm-80gb", "gpus": 1, "price_kind": "auction"}, id="unknown kind"),
    ],
)
def test_half_a_replica_is_refused(client: TestClient, body: dict[str, Any]) -> None:
    answer = client.post("/cost", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request"), answer.text


def test_a_rate_may_be_spread_over_any_number_of_replicas(client: TestClient) -> None:
    found = ask(client, replica_usd_per_hour=2, replicas=10**6, workload=WORKLOAD | {"peak_rps": 0.1})
    assert found["usd_per_request"] == pytest.approx(2e6 / 360)


def test_a_plan_is_priced_as_capacity_sizes_it(client: TestClient) -> None:
    plan = client.post("/capacity", json=PLAN).json()
    found = ask(client, plan=PLAN, success_ratio=0.8)
    assert found["replicas"] == plan["replicas"] > 1
    assert plan["cost"]["split"]
    for name in plan["cost"].keys() & found.keys():
        assert found[name] == plan["cost"][name], name
    by_hand = ask(client, **REPLICA, workload=PLAN["workload"], replicas=plan["replicas"], success_ratio=0.8)
    same = [name for name in found if name.startswith("usd_") or name == "split"]
    assert {name: found[name] for name in same} == {name: by_hand[name] for name in same}
    assert found["usd_per_successful_request"] == pytest.approx(found["usd_per_request"] / 0.8)
    assert "sized_by_plan" in codes(found, "assumptions")
    assert ask(client, plan=PLAN, price_kind="spot")["usd_per_hour"] < found["usd_per_hour"]
    assert ask(client, plan=PLAN | {"price_kind": "spot"}, usd_per_gpu_hour=1)["usd_per_hour"] == 4 * plan["replicas"]


@pytest.mark.parametrize("traffic", [{"mean_rps": 5}, {"burst_ratio": 1.5}], ids=["mean", "burst"])
def test_what_is_paid_is_spread_over_the_sustained_rate(client: TestClient, traffic: dict[str, float]) -> None:
    plan = PLAN | {"workload": PLAN["workload"] | traffic}
    cost, rps = client.post("/capacity", json=plan).json()["cost"], traffic.get("mean_rps", PLAN["workload"]["peak_rps"])
    assert cost["usd_per_request"] == pytest.approx(cost["usd_per_hour"] / rps / 3600)
    inputs = cost["usd_per_million_input_tokens"] * WORKLOAD["input_tokens"]
    outputs = cost["usd_per_million_output_tokens"] * WORKLOAD["output_tokens"]
    assert (inputs + outputs) / 1e6 == pytest.approx(cost["usd_per_request"])
    found = ask(client, plan=plan)
    assert {name: found[name] for name in cost.keys() & found.keys()} == {name: cost[name] for name in cost.keys() & found.keys()}


def test_a_plan_of_measured_figures_needs_a_price(client: TestClient) -> None:
    plan = {"workload": WORKLOAD, "measured": {"output_tokens_per_s": 300}, "deployment": {"tp": 2}}
    assert ask(client, plan=plan, usd_per_gpu_hour=3)["usd_per_hour"] == 3 * 2 * ask(client, plan=plan, usd_per_gpu_hour=3)["replicas"]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        pytest.param({"plan": PLAN, "gpus": 4}, "", id="said twice"),
        pytest.param({"plan": PLAN | {"model": "no such model"}}, "/plan/model", id="unknown model"),
        pytest.param({"plan": PLAN | {"gpu": CARD}}, "/plan/gpu", id="no price"),
        pytest.param({"plan": {"workload": WORKLOAD, "measured": {"output_tokens_per_s": 300}}}, "/plan", id="nothing priced"),
        pytest.param({"plan": {"workload": WORKLOAD}, "usd_per_gpu_hour": 3}, "/plan", id="not sized"),
        pytest.param({"plan": PLAN | {"workload": WORKLOAD | {"peak_rps": 1e9}}}, "/plan", id="beyond all fleets"),
    ],
)
def test_a_plan_that_cannot_be_priced_says_what_is_wrong(client: TestClient, body: dict[str, Any], pointer: str) -> None:
    answer = client.post("/cost", json=body)
    assert answer.status_code in (404, 422), answer.text
    assert answer.json()["errors"][0]["pointer"] == pointer


def test_an_accelerator_may_be_described(client: TestClient) -> None:
    found = ask(client, **REPLICA | {"gpu": CARD}, workload=WORKLOAD, usd_per_gpu_hour=2)
    assert 0 < found["split"]["input_time_ratio"] < 1
    assert found["usd_per_hour"] == 8
