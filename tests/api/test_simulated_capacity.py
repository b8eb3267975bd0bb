"""`/capacity` by simulation: sizes that hold and do not, figures that `/simulate` gives again, and when it stays with the approximation."""

import functools
import math
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.services import simulated_capacity
from tests.services.calculator import redo_json

BODY: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "gpu": "h100-sxm-80gb",
    "deployment": {"engine": "vllm"},
    "workload": {"peak_rps": 30, "input_tokens": {"mean": 2000, "p95": 5000}, "output_tokens": {"mean": 100, "p95": 200}, "mean_rps": 10},
    "slo": {"ttft_p95_s": 0.6, "tpot_p99_s": 0.03},
}
SIZES = ("needed", "fewer", "all_serving", "one_lost")


@pytest.fixture(autouse=True)
def _short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less computing than the service has, so that this file takes seconds."""
    monkeypatch.setattr(simulated_capacity, "MOST_CPU_S", 0.7)


def ask(client: TestClient, **more: Any) -> dict[str, Any]:
    response = client.post("/capacity", json=BODY | more)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def codes(answer: dict[str, Any], which: str = "warnings") -> set[str]:
    return {note["code"] for note in answer[which]}


def constraint(answer: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in answer["constraints"] if each["name"] == "slo")
    return found


@functools.cache
def _kept() -> dict[str, Any]:
    return {}


@pytest.fixture
def answer(client: TestClient) -> dict[str, Any]:
    """The answer to BODY, computed once."""
    kept = _kept()
    if not kept:
        kept.update(ask(client))
    return kept


def test_the_fleet_holds_and_one_replica_less_does_not(answer: dict[str, Any]) -> None:
    found, slo = answer["simulated"], constraint(answer)
    assert found["needed"]["replicas"] == found["replicas"] == slo["replicas"] == found["fewer"]["replicas"] + 1
    assert found["needed"]["holds"]
    assert not found["fewer"]["holds"]
    assert found["replicas"] - 1 < found["replicas_exact"]["value"] == slo["replicas_exact"] <= found["replicas"]
    assert found["replicas_exact"]["low"] < found["replicas_exact"]["value"] < found["replicas_exact"]["high"]
    assert found["most_request_rps"] == pytest.approx(30 * found["replicas"] / found["replicas_exact"]["value"])
    for size in SIZES:
        rows = found[size]["objectives"]
        assert found[size]["holds"] == all(row["holds"] for row in rows)
        assert [row["name"] for row in rows] == ["ttft_p95_s", "tpot_p99_s"]
        for row in rows:
            assert row["margin_ratio"] == pytest.approx(1 - row["found"]["value"] / row["limit_s"])
            assert row["holds"] == (row["margin_ratio"] >= 0)
    worst = [
        max(row["found"]["value"] / row["limit_s"] for row in found[size]["objectives"]) for size in ("fewer", "needed", "all_serving")
    ]
    assert worst == sorted(worst, reverse=True)


def test_the_times_of_the_fleet_are_simulated(answer: dict[str, Any]) -> None:
    expected, fleet = answer["expected"], answer["simulated"]["all_serving"]
    assert (expected["percentiles"], expected["percentile_basis"]) == ("simulated", "calibrated")
    assert fleet["replicas"] == answer["replicas"]
    assert answer["simulated"]["one_lost"]["replicas"] == answer["replicas"] - 1
    for time in ("ttft", "tpot", "e2e"):
        for level in ("mean", "p95", "p99"):
            assert expected[time][f"{level}_s"]["value"] == fleet["times"][f"{time}_s"][level]["value"]
            assert expected[time][f"{level}_s"]["low"] <= fleet["times"][f"{time}_s"][level]["low"]
    assert {each["name"]: each["expected_s"] for each in expected["objectives"]} == {
        "ttft_p95": expected["ttft"]["p95_s"]["value"],
        "tpot_p99": expected["tpot"]["p99_s"]["value"],
    }
    assert {"percentiles_simulated", "variants_approximated"} <= codes(answer, "assumptions")


@pytest.mark.parametrize("size", SIZES)
def test_simulate_gives_every_size_again(client: TestClient, answer: dict[str, Any], size: str) -> None:
    found = answer["simulated"]
    one = found[size]
    workload = {name: value for name, value in BODY["workload"].items() if name != "mean_rps"}
    body = BODY | {
        "workload": workload | {"peak_rps": one["request_rps"]},
        "replicas": one["num_simulated_replicas"],
        **{name: one[name] for name in ("variation_ratio", "num_under_way")},
        **{name: found[name] for name in ("num_requests", "warm_up_ratio", "seeds")},
    }
    again = client.post("/simulate", json=body).json()
    assert again["times"] == one["times"]
    for row, other in zip(one["objectives"], again["objectives"], strict=True):
        assert {name: row[name] for name in other} == other


def test_the_working_can_be_redone(answer: dict[str, Any]) -> None:
    steps = [step for step in answer["working"] if step["name"].startswith(("simulated_", "replicas_", "slo_"))]
    done = redo_json(steps)
    assert done["simulated_ttft_p95_s"] == answer["simulated"]["needed"]["objectives"][0]["found"]["value"]
    assert done["replicas_within_objectives"] == done["replicas_slo"] == constraint(answer)["replicas_exact"]
    assert done["slo_per_replica"] == constraint(answer)["per_replica"]


def test_the_same_request_has_the_same_answer(client: TestClient, answer: dict[str, Any]) -> None:
    created = client.post("/plans", json={"kind": "capacity", "name": "simulated", "owner": "platform", "request": BODY}).json()
    assert created["answer"] == answer
    again = client.post(f"/plans/{created['id']}/recompute")
    assert again.json()["differences"] == []


def test_who_asks_for_the_approximation_has_it_with_the_bias_of_each_other(client: TestClient, answer: dict[str, Any]) -> None:
    approximated = ask(client, percentiles="approximated")
    assert approximated["simulated"] is None
    assert (approximated["expected"]["percentiles"], approximated["expected"]["percentile_basis"]) == ("approximated", "assumed")
    assert "percentiles_simulated" not in codes(approximated, "assumptions")
    ratio = answer["simulated"]["replicas_approximated_ratio"]
    assert constraint(approximated)["replicas_exact"] == pytest.approx(ratio * constraint(answer)["replicas_exact"])
    assert approximated["prefix_cache_effect"] == answer["prefix_cache_effect"]


def test_replicas_that_are_chosen_at_random_are_no_fewer(client: TestClient, answer: dict[str, Any]) -> None:
    at_random, in_turn = (ask(client, balancing=how) for how in ("random", "round_robin"))
    assert at_random["simulated"]["needed"]["variation_ratio"] == 1
    assert {found["simulated"]["needed"]["num_simulated_replicas"] for found in (at_random, in_turn)} == {1}
    assert answer["simulated"]["needed"]["num_simulated_replicas"] > 1
    assert constraint(at_random)["replicas_exact"] > constraint(in_turn)["replicas_exact"] > constraint(answer)["replicas_exact"]


def test_objectives_that_no_fleet_holds_say_the_floor(client: TestClient) -> None:
    found = ask(client, slo={"ttft_p95_s": 0.05})
    assert found["simulated"]["replicas"] is None
    assert found["simulated"]["needed"]["num_in_flight"]["value"] < 0.01
    assert "slo_unattainable" in codes(found)
    note = constraint(found)["note"]
    assert note.startswith("cannot be held by any number of these replicas: ttft_p95 ")
    assert "the prefill of a prompt of 5000 tokens alone takes" in note


def test_answers_of_one_token_keep_any_time_per_further_token(client: TestClient) -> None:
    found = ask(client, workload={"peak_rps": 20, "input_tokens": 500, "output_tokens": 1}, slo={"ttft_p95_s": 1, "tpot_p99_s": 0.02})
    by_name = {row["name"]: row for row in found["simulated"]["needed"]["objectives"]}
    assert by_name["tpot_p99_s"] | {"found": None, "verdict": "holds", "holds": True, "margin_ratio": None} == by_name["tpot_p99_s"]
    assert by_name["ttft_p95_s"]["found"]["value"] <= 1
    assert constraint(found)["replicas_exact"] is not None
    assert "tpot_p99 of no request: answers have one token" in constraint(found)["note"]


def test_a_lost_replica_that_is_missed_is_said(client: TestClient) -> None:
    found = ask(client, redundancy_ratio=1)
    assert found["replicas"] == found["simulated"]["replicas"]
    assert found["simulated"]["one_lost"] == found["simulated"]["fewer"]
    (said,) = (note["message"] for note in found["warnings"] if note["code"] == "one_lost_misses_objectives")
    assert f"{found['replicas'] - 1} do not hold the objectives" in said
    assert [row["holds"] for row in found["situations"][:2]] == [True, False]


def test_runs_that_would_be_too_long_leave_the_approximation(client: TestClient) -> None:
    workload = {"peak_rps": 1000, "input_tokens": 100, "output_tokens": 200}
    found = ask(client, workload=workload, slo={"e2e_p95_s": 60}, deployment={"engine": "vllm", "max_num_seqs": 4096})
    assert found["simulated"] is None
    assert found["expected"]["percentiles"] == "approximated"
    (said,) = (note["message"] for note in found["warnings"] if note["code"] == "percentiles_approximated")
    assert "requests at once in a replica need longer runs" in said


def test_objectives_that_were_measured_are_not_simulated(client: TestClient) -> None:
    found = ask(client, measured={"ttft_s": 0.2, "tpot_s": 0.02})
    assert found["simulated"] is None
    part = ask(client, measured={"ttft_s": 0.2})
    assert [row["name"] for row in part["simulated"]["needed"]["objectives"]] == ["tpot_p99_s"]


@pytest.mark.parametrize(
    "workload",
    [
        {"peak_rps": 1e9, "input_tokens": 1e9, "output_tokens": 1e9, "burst_ratio": 1000, "token_growth_ratio": 100},
        {"peak_rps": 1e-6, "input_tokens": 100, "output_tokens": 100, "token_growth_ratio": 0.01},
        {"peak_rps": 10, "input_tokens": {"mean": 1, "p95": 1e9, "p99": 1e9}, "output_tokens": {"mean": 1, "p99": 1e9}},
        {"peak_rps": 10, "input_tokens": 1e6, "output_tokens": 1, "prefix_hit_ratio": 1},
        {"peak_rps": 1e9, "input_tokens": 100, "output_tokens": 100},
        {
            "peak_rps": 10,
            "classes": [
                {"share_ratio": 0.999999, "input_tokens": 1, "output_tokens": 1},
                {"share_ratio": 0.000001, "input_tokens": 1e9, "output_tokens": 1e9},
            ],
        },
    ],
    ids=["huge", "tiny", "impossible tail", "all cached", "many", "one giant"],
)
@pytest.mark.parametrize("slo", [{"ttft_p95_s": 1e-6, "tpot_p99_s": 1e-6, "e2e_p95_s": 1e-6}, {"ttft_p99_s": 1e6, "e2e_p99_s": 1e6}])
@pytest.mark.slow
def test_absurd_traffic_has_an_answer(client: TestClient, workload: dict[str, Any], slo: dict[str, float]) -> None:
    response = client.post("/capacity", json=BODY | {"workload": workload, "slo": slo})
    assert response.status_code == 200, response.text
    assert not {"NaN", "Infinity"} & set(response.text.replace(",", " ").split())
    found = response.json()
    exact = constraint(found)["replicas_exact"]
    assert exact is None or math.isfinite(exact)


def test_where_one_replica_is_more_than_enough_it_is_simulated_as_it_is_loaded(client: TestClient) -> None:
    """At the rate that just holds a loose objective, runs would be too long; at the traffic's they are not."""
    more: dict[str, Any] = {"workload": {"peak_rps": 2, "input_tokens": 300, "output_tokens": 800}, "slo": {"ttft_p99_s": 5}}
    found = ask(client, **more)
    simulated, slo = found["simulated"], constraint(found)
    assert (simulated["replicas"], simulated["replicas_exact"], simulated["fewer"]) == (1, None, None)
    assert simulated["needed"]["holds"]
    assert slo["replicas_exact"] < 0.5
    assert slo["note"].startswith("approximated, and by simulation 1 replicas hold the objectives: ttft_p99 ")
    assert slo["replicas_exact"] == constraint(ask(client, **more, percentiles="approximated"))["replicas_exact"]


def test_a_search_that_does_not_end_in_time_leaves_the_approximation(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated_capacity, "PATIENCE_S", 0.0)
    found = ask(client)
    assert found["simulated"] is None
    assert "percentiles_approximated" in codes(found)


def test_a_fleet_more_crowded_than_runs_show_has_no_simulated_times(client: TestClient) -> None:
    """No number holds the objective, so that other limits size the fleet: many requests at once, where the search had one in a replica."""
    found = ask(client, workload={"peak_rps": 100, "input_tokens": 100, "output_tokens": 2000}, slo={"tpot_p95_s": 0.001})
    assert found["simulated"]["replicas"] is None
    assert found["simulated"]["all_serving"] is None
    assert found["expected"] is None or found["expected"]["percentiles"] == "approximated"
