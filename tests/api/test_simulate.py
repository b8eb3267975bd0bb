"""`/simulate`: figures that fit together, the same every time, faults that show, and work that is refused."""

import threading
from typing import Any

import pytest
from fastapi.testclient import TestClient

REPLICA: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "gpu": "h100-sxm-80gb",
    "deployment": {"engine": "vllm"},
    "workload": {"peak_rps": 8, "input_tokens": 1000, "output_tokens": 200},
    "duration_s": 100,
}
SHARED = {"peak_rps": 8, "input_tokens": 2000, "output_tokens": 100, "shared_prefix_tokens": 1500, "prefix_hit_ratio": 0.9}
FLUSH = {"kind": "cache_flush", "at_s": 1}
TRACE = [{"arrival_s": index * 0.5, "input_tokens": 500, "output_tokens": 50} for index in range(40)]
CLASSES = [
    {"share_ratio": 0.8, "input_tokens": 1000, "output_tokens": 200},
    {"share_ratio": 0.2, "input_tokens": 8000, "output_tokens": 500},
]


def simulated(client: TestClient, **changes: Any) -> dict[str, Any]:
    body = {name: value for name, value in (REPLICA | changes).items() if value is not None}
    answer = client.post("/simulate", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def refused(client: TestClient, **changes: Any) -> dict[str, Any]:
    body = {name: value for name, value in (REPLICA | changes).items() if value is not None}
    answer = client.post("/simulate", json=body)
    assert answer.status_code == 422, answer.text
    (error,) = answer.json()["errors"]
    found: dict[str, Any] = error
    return found


def test_the_same_request_gives_the_same_answer_and_other_seeds_another(client: TestClient) -> None:
    assert simulated(client) == simulated(client)
    assert simulated(client, seeds=[4, 5])["times"] != simulated(client)["times"]


def test_below_saturation_the_means_are_those_of_performance(client: TestClient) -> None:
    found = simulated(client, duration_s=600)
    body = {name: REPLICA[name] for name in ("model", "gpu", "deployment")}
    closed = client.post("/performance", json=body | {"input_tokens": 1000, "output_tokens": 200, "request_rps": 8}).json()
    for name, off in (("ttft_s", 0.06), ("tpot_s", 0.03)):
        assert found["times"][name]["mean"]["value"] == pytest.approx(closed[name]["value"], rel=off), name


def test_a_run_that_starts_with_requests_under_way_need_not_fill_up(client: TestClient) -> None:
    full = simulated(client, duration_s=1000)["num_in_flight"]["value"]
    cold, warm = (simulated(client, duration_s=10, warm_up_ratio=0.1, num_under_way=num) for num in (0, round(full)))
    assert warm["num_in_flight"]["value"] == pytest.approx(full, rel=0.15)
    assert cold["num_in_flight"]["value"] < 0.9 * full


def test_percentiles_rise_and_lie_within_their_intervals(client: TestClient) -> None:
    found = simulated(client, workload={"peak_rps": 8, "classes": CLASSES})
    assert [kind["name"] for kind in found["kinds"]] == ["class-1", "class-2"]
    for times in (found["times"], *(kind["times"] for kind in found["kinds"])):
        for name, time in times.items():
            assert time["p50"]["value"] <= time["p95"]["value"] <= time["p99"]["value"], name
            assert all(figure["low"] <= figure["value"] <= figure["high"] for figure in time.values()), name


def test_requests_in_the_fleet_are_rate_times_stay(client: TestClient) -> None:
    found = simulated(client, duration_s=600)
    stay = found["times"]["e2e_s"]["mean"]["value"]
    assert found["num_in_flight"]["value"] == pytest.approx(found["request_rps"]["value"] * stay, rel=0.02)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"workload": {"peak_rps": 60, "input_tokens": 1000, "output_tokens": 200}, "duration_s": 60, "clients": {"timeout_s": 20}},
        {"faults": [{"kind": "replica_loss", "at_s": 50}]},
        {"faults": [{"kind": "replica_loss", "at_s": 50}], "clients": {"resend_lost": False}},
        {"workload": None, "trace": TRACE, "duration_s": None},
        {"max_num_waiting": 1, "deployment": {"engine": "vllm", "max_num_seqs": 4}},
        {"concurrency": 20, "duration_s": None},
    ],
    ids=["usual", "overload", "lost", "not-resent", "trace", "few-places", "closed-loop"],
)
def test_every_request_has_an_outcome(client: TestClient, changes: dict[str, Any]) -> None:
    found = simulated(client, **changes)
    assert sum(found["outcomes"].values()) == found["num_requests"]
    assert len(found["course"]) <= 200


def test_each_fault_shows(client: TestClient) -> None:
    usual = simulated(client, replicas=2)
    faults: dict[str, dict[str, Any]] = {
        "lost": {"kind": "replica_loss", "at_s": 30, "duration_s": 40, "replica_index": 1},
        "surge": {"kind": "surge", "at_s": 30, "duration_s": 40, "factor_ratio": 3},
        "flood": {"kind": "flood", "at_s": 30, "duration_s": 40, "request_rps": 2, "input_tokens": 20000, "output_tokens": 100},
    }
    for name, fault in faults.items():
        found = simulated(client, replicas=2, faults=[fault])
        assert found["times"]["tpot_s"]["p99"]["value"] > 1.05 * usual["times"]["tpot_s"]["p99"]["value"], name
    assert simulated(client, replicas=2, faults=[faults["surge"]])["num_requests"] > 1.5 * usual["num_requests"]


def test_a_flushed_prefix_cache_is_filled_again(client: TestClient) -> None:
    computed = simulated(client, workload=SHARED | {"prefix_hit_ratio": 0})["times"]["ttft_s"]["mean"]["value"]
    found = simulated(client, workload=SHARED)["times"]["ttft_s"]["mean"]["value"]
    flushes = [{"kind": "cache_flush", "at_s": at} for at in range(5, 100, 5)]
    flushed = simulated(client, workload=SHARED, faults=flushes)["times"]["ttft_s"]["mean"]["value"]
    assert found < flushed < computed


def test_impatient_clients_make_more_load(client: TestClient) -> None:
    overload = {"workload": {"peak_rps": 60, "input_tokens": 1000, "output_tokens": 200}, "duration_s": 30, "seeds": [1]}
    found = simulated(client, **overload, clients={"timeout_s": 5, "max_num_retries": 2})
    assert found["num_retries"] > 0
    assert found["num_timeouts"] >= found["num_retries"]
    assert "unfinished_requests" in [note["code"] for note in found["warnings"]]


def test_a_fleet_that_does_not_keep_up_says_so(client: TestClient) -> None:
    few = {"engine": "vllm", "max_num_seqs": 8}
    found = simulated(client, deployment=few, workload={"peak_rps": 20, "input_tokens": 1000, "output_tokens": 200})
    assert "queue_grows" in [note["code"] for note in found["warnings"]]
    assert simulated(client)["warnings"] == []


def test_static_batches_that_do_not_keep_up_say_so(client: TestClient) -> None:
    found = simulated(client, batching="static", workload={"peak_rps": 8, "classes": CLASSES})
    assert "not_steady" in [note["code"] for note in found["warnings"]]


@pytest.mark.parametrize(("limit_s", "verdict"), [(1e-4, "fails"), (100, "holds")])
def test_objectives_are_judged(client: TestClient, limit_s: float, verdict: str) -> None:
    found = simulated(client, slo={"ttft_p99_s": limit_s})
    assert [each["verdict"] for each in found["objectives"]] == [verdict]
    assert (found["goodput_rps"]["value"] > 0) == (verdict == "holds")


MIX = {"peak_rps": 8, "classes": CLASSES}
POOLS: list[dict[str, Any]] = [
    {"name": "short", "classes": ["class-1"]},
    {"name": "long", "replicas": 2, "deployment": {"engine": "sglang"}},
]


def test_pools_have_figures_of_their_own_that_add_up(client: TestClient) -> None:
    found = simulated(client, workload=MIX, pools=POOLS, slo={"ttft_p99_s": 100})
    short, long = found["pools"]
    assert [(pool["name"], pool["engine"], pool["replicas"], pool["gpus"]) for pool in (short, long)] == [
        ("short", "vllm", 1, 1),
        ("long", "sglang", 2, 2),
    ]
    assert (found["engine"], found["gpu"], found["replicas"], found["gpus"]) == (None, "h100-sxm-80gb", 3, 3)
    for name in ("request_rps", "output_tokens_per_s", "goodput_rps", "num_in_flight"):
        assert found[name]["value"] == pytest.approx(short[name]["value"] + long[name]["value"]), name
    assert found["num_requests"] == short["num_requests"] + long["num_requests"]
    assert [kind["name"] for pool in (short, long) for kind in pool["kinds"]] == ["class-1", "class-2"]
    assert [kind["times"] for kind in found["kinds"]] == [short["times"], long["times"]]
    assert [each["verdict"] for each in short["objectives"]] == ["holds"]
    assert short["course"][50]["num_running"] + long["course"][50]["num_running"] == pytest.approx(found["course"][50]["num_running"])


def test_the_length_of_the_prompt_decides_the_pool(client: TestClient) -> None:
    by_length = [{"name": "short", "max_input_tokens": 4000}, {"name": "long"}]
    by_class = [{"name": "short", "classes": ["class-1"]}, {"name": "long"}]
    assert simulated(client, workload=MIX, pools=by_length) == simulated(client, workload=MIX, pools=by_class)


def test_a_fault_hurts_its_pool_alone(client: TestClient) -> None:
    loss = {"kind": "replica_loss", "at_s": 30, "duration_s": 40, "pool": "long", "replica_index": 1}
    usual, hurt = (simulated(client, workload=MIX, pools=POOLS, faults=faults)["pools"] for faults in ([], [loss]))
    assert hurt[0] == usual[0]
    assert hurt[1]["times"]["e2e_s"]["p99"]["value"] > usual[1]["times"]["e2e_s"]["p99"]["value"]


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"pools": [{"name": "short", "classes": ["class-1"]}]}, "/pools"),
        ({"pools": [{"name": "short", "max_input_tokens": 4000}]}, "/pools"),
        ({"pools": [{"name": "short", "classes": ["class-7"]}, {"name": "long"}]}, "/pools/0/classes"),
        ({"pools": [{"name": "one"}, {"name": "one"}]}, ""),
        ({"pools": [{"name": "one"}], "replicas": 2}, ""),
        ({"pools": [{"name": "one", "gpu": "h100-sxm-80gb", "deployment": {"tp": 3}}]}, "/pools/0/deployment/tp"),
        ({"pools": POOLS, "faults": [FLUSH, {"kind": "replica_loss", "at_s": 1}]}, "/faults/1/pool"),
        ({"pools": POOLS, "faults": [FLUSH | {"pool": "other"}]}, "/faults/0/pool"),
        ({"faults": [FLUSH | {"pool": "other"}]}, "/faults/0/pool"),
        ({"pools": POOLS, "faults": [{"kind": "replica_loss", "at_s": 1, "pool": "long", "replica_index": 2}]}, "/faults/0/replica_index"),
    ],
    ids=["class-nowhere", "long-nowhere", "unknown", "same-name", "replicas", "layout", "fault-where", "no-pool", "one-pool", "replica"],
)
def test_pools_that_do_not_fit_are_refused(client: TestClient, changes: dict[str, Any], pointer: str) -> None:
    assert refused(client, workload=MIX, **changes)["pointer"] == pointer


def test_requests_that_take_long_against_the_warm_up_are_warned_of(client: TestClient) -> None:
    found = simulated(client, workload={"peak_rps": 1, "input_tokens": 1000, "output_tokens": 4000})
    assert "short_warm_up" in [note["code"] for note in found["warnings"]]


def test_requests_that_are_lost_fail_an_objective_that_the_others_hold(client: TestClient) -> None:
    found = simulated(client, deployment={"engine": "vllm", "max_num_seqs": 4}, max_num_waiting=1, slo={"ttft_p99_s": 100})
    assert found["outcomes"]["num_rejected"] > 0.01 * found["num_requests"]
    assert found["objectives"][0]["verdict"] == "fails"


def test_a_single_seed_has_no_interval(client: TestClient) -> None:
    figure = simulated(client, seeds=[7])["request_rps"]
    assert figure["low"] is None
    assert figure["high"] is None


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"trace": TRACE}, ""),
        ({"workload": None}, ""),
        ({"seeds": [1, 1]}, ""),
        ({"duration_s": None, "workload": None, "trace": TRACE, "num_under_way": 1}, ""),
        ({"duration_s": None, "concurrency": 4, "workload": None, "trace": TRACE}, ""),
        (
            {"faults": [{"kind": "cache_flush", "at_s": 1}, {"kind": "replica_loss", "at_s": 1, "replica_index": 3}]},
            "/faults/1/replica_index",
        ),
        ({"faults": [{"kind": "surge", "at_s": 200, "duration_s": 1}]}, "/faults/0/at_s"),
        ({"concurrency": 4}, "/duration_s"),
        ({"workload": None, "trace": [{"arrival_s": 0, "input_tokens": 5, "output_tokens": 5}], "duration_s": None}, "/trace"),
        ({"workload": SHARED, "deployment": {"engine": "vllm", "prefix_caching": False}}, "/workload/prefix_hit_ratio"),
        ({"workload": {"peak_rps": 1, "input_tokens": 1e9, "output_tokens": 1}}, "/deployment"),
        ({"variation_ratio": -1}, "/variation_ratio"),
        ({"replicas": 0}, "/replicas"),
    ],
    ids=[
        "two",
        "none",
        "seeds",
        "under-way",
        "trace-clients",
        "replica",
        "late",
        "closed-loop",
        "at-once",
        "no-cache",
        "too-long",
        "variation",
        "none-up",
    ],
)
def test_what_cannot_be_simulated_is_refused_at_its_field(client: TestClient, changes: dict[str, Any], pointer: str) -> None:
    assert refused(client, **changes)["pointer"] == pointer


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"workload": {"peak_rps": 1e9, "input_tokens": 1000, "output_tokens": 200}}, "/duration_s"),
        ({"duration_s": 1e6}, "/duration_s"),
        ({"duration_s": None, "num_requests": 10**7}, "/num_requests"),
        (
            {"faults": [{"kind": "flood", "at_s": 1, "duration_s": 1e6, "request_rps": 1e9, "input_tokens": 1, "output_tokens": 1}]},
            "/duration_s",
        ),
        ({"clients": {"timeout_s": 1, "max_num_retries": 10}, "duration_s": 25_000, "seeds": list(range(30))}, "/duration_s"),
    ],
    ids=["rate", "long", "many", "flood", "retries"],
)
def test_too_much_work_is_refused_with_what_would_be_answered(client: TestClient, changes: dict[str, Any], pointer: str) -> None:
    error = refused(client, **changes)
    assert error["pointer"] == pointer
    assert "at most" in error["expected"]


def test_what_the_refusal_offers_becomes_a_job(client: TestClient) -> None:
    error = refused(client, duration_s=1e6)
    offered = float(error["expected"].split("at most ")[1].split(",")[0])
    assert 1000 < offered < 1e6
    assert client.post("/simulate", json=REPLICA | {"duration_s": offered}).status_code == 202
    assert refused(client, duration_s=1.1 * offered + 1)["pointer"] == "/duration_s"


def test_other_requests_are_answered_meanwhile(client: TestClient) -> None:
    done: list[dict[str, Any]] = []
    long = threading.Thread(target=lambda: done.append(simulated(client, duration_s=1000)))
    long.start()
    answered = 0
    while not done and long.is_alive():
        assert client.get("/livez").status_code == 200
        answered += not done
    long.join()
    assert answered > 1
