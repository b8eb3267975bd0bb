"""`/load-tests/analysis`: the knee, the working point, stability and the comparison, on published files and on ramps that are known."""

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

REAL = [file.read_text() for file in sorted((Path(__file__).parent / "load_test_results").glob("*.json"))]
PLAN: dict[str, Any] = {
    "model": "llama-3-8b",
    "gpu": "h200-sxm-141gb",
    "deployment": {"engine": "vllm", "engine_version": "0.11.2", "max_model_len_tokens": 1024},
    "workload": {"peak_rps": 10, "input_tokens": 128, "output_tokens": 512},
    "slo": {"ttft_p99_s": 0.1, "tpot_p99_s": 0.01},
    "percentiles": "approximated",
}


def run(concurrency: int, rps: float, *, failed: int = 0, ttft_ms: float = 50, **more: float) -> str:
    """A results file of a closed loop with E2E by Little's law."""
    e2e = concurrency / rps
    tpot = (e2e * 1000 - ttft_ms) / 511
    times = {"ttft": ttft_ms, "tpot": tpot, "itl": tpot, "e2el": e2e * 1000}
    figures = {f"{statistic}_{name}_ms": value for name, value in times.items() for statistic in ("mean", "median", "p99")}
    return json.dumps(
        {
            "backend": "vllm", "model_id": "meta-llama/Meta-Llama-3-8B-Instruct", "request_rate": "inf", "max_concurrency": concurrency,
            "duration": 10 * concurrency / rps, "completed": 10 * concurrency, "failed": failed, "total_input_tokens": 1280 * concurrency,
            "total_output_tokens": 5120 * concurrency, "request_throughput": rps, "output_throughput": 512 * rps,
            "total_token_throughput": 640 * rps, **figures, **more,
        }
    )  # fmt: skip


def analysed(client: TestClient, files: list[str], plan: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    answer = client.post("/load-tests/analysis", json={"plan": plan or PLAN, "files": files, **more})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


RISING = {1: 0.5, 2: 0.95, 4: 1.8, 8: 3.2, 16: 5.0, 32: 5.5, 64: 5.6}
"""Power X^2 / N of these is largest at 16."""


def test_published_files_go_through(client: TestClient) -> None:
    answer = analysed(client, REAL)
    assert [level["concurrency"] for level in answer["levels"]] == [1, 4, 8]
    assert answer["knee"] is None
    assert "knee_not_reached" in [note["code"] for note in answer["warnings"]]
    # A P99 of TTFT of 111 ms is above the objective of 100 ms.
    assert [level["objectives"][0]["holds"] for level in answer["levels"]] == [True, True, False]
    assert answer["working_point"]["concurrency"] == 4
    assert answer["num_replicas_at_working_point"] == 9  # 10 requests/s at 1.24 of a replica
    assert answer["calibration"]["num_rows"] == 3
    for level in answer["levels"]:
        assert {each["quantity"] for each in level["compared"]} == {"ttft", "tpot", "throughput"}


def test_the_knee_is_where_power_is_largest(client: TestClient) -> None:
    answer = analysed(client, [run(level, rps) for level, rps in reversed(RISING.items())])
    powers = {level: rps**2 / level for level, rps in RISING.items()}
    assert answer["knee"]["concurrency"] == max(powers, key=powers.__getitem__) == 16
    assert answer["sweet_spot"]["concurrency"] == 8
    assert answer["peak"]["concurrency"] == 64
    assert answer["knee"]["power"] == pytest.approx(powers[16])


@pytest.mark.parametrize(
    ("headroom", "tpot_s", "expected"),
    [(0, 0.01, 16), (0.5, 0.01, 8), (0, 0.5, 16), (0, 0.001, None)],
    ids=["none", "half", "loose", "never"],
)
def test_the_working_point_holds_with_headroom_before_the_knee(
    client: TestClient, headroom: float, tpot_s: float, expected: int | None
) -> None:
    files = [run(level, rps) for level, rps in RISING.items()]
    plan = PLAN | {"slo": {"tpot_p99_s": tpot_s}}
    answer = analysed(client, files, plan, headroom_ratio=headroom)
    work = answer["working_point"]
    assert (work and work["concurrency"]) == expected
    assert (answer["working_point_missing_because"] is None) is (expected is not None)
    if work:
        assert all(each["measured_s"] <= each["limit_s"] * (1 - headroom) for each in work["objectives"])


def test_a_level_that_fails_is_none_to_work_at(client: TestClient) -> None:
    files = [run(level, rps, failed=5 if level >= 4 else 0) for level, rps in RISING.items()]
    answer = analysed(client, files, PLAN | {"slo": {"tpot_p99_s": 0.5}})
    assert answer["working_point"]["concurrency"] == 2
    assert "failed" in answer["levels"][2]["went_wrong"][0]


def test_several_runs_of_a_level_show_how_stable_it_is(client: TestClient) -> None:
    answer = analysed(client, [run(1, 0.5), run(4, 1.8), run(4, 1.82), run(8, 3.2), run(8, 2.4)])
    assert [level["num_runs"] for level in answer["levels"]] == [1, 2, 2]
    assert [level["stable"] for level in answer["levels"]] == [None, True, False]
    assert answer["levels"][1]["request_rps"] == pytest.approx(1.81)
    assert answer["levels"][1]["variation_ratio"] == pytest.approx(0.0078, rel=0.01)
    assert "unstable_levels" in [note["code"] for note in answer["warnings"]]


def test_the_same_run_given_twice_is_no_proof_of_stability(client: TestClient) -> None:
    answer = analysed(client, [run(1, 0.5), run(4, 1.8), run(4, 1.8)])
    assert [level["num_runs"] for level in answer["levels"]] == [1, 1]
    assert "run_given_twice" in [note["code"] for note in answer["warnings"]]


def codes(answer: dict[str, Any]) -> set[str]:
    return {note["code"] for note in answer["warnings"]}


@pytest.mark.parametrize("factor", [1e-3, 1e3], ids=["seconds-as-milliseconds", "milliseconds-as-seconds"])
def test_times_in_another_unit_are_none_to_work_with(client: TestClient, factor: float) -> None:
    files = [
        {key: value * factor if key.endswith("_ms") else value for key, value in json.loads(run(level, 1.8)).items()} for level in (1, 4)
    ]
    answer = analysed(client, [json.dumps(file) for file in files])
    assert answer["working_point"] is None
    assert [level["trusted"] for level in answer["levels"]] == [False, False]
    assert "another unit" in answer["levels"][1]["went_wrong"][0]


def test_a_rate_that_is_not_reached_is_none_to_work_at(client: TestClient) -> None:
    def at(offered: float, reached: float) -> str:
        return json.dumps(json.loads(run(4, reached)) | {"request_rate": offered, "max_concurrency": None})

    answer = analysed(client, [at(1, 1), at(2, 2), at(4, 2.5)], PLAN | {"slo": {"tpot_p99_s": 1}}, headroom_ratio=0)
    assert [level["trusted"] for level in answer["levels"]] == [True, True, False]
    assert answer["working_point"]["offered_rps"] == 2


def test_another_workload_or_tool_and_missing_levels_are_said(client: TestClient) -> None:
    assert not codes(analysed(client, [run(1, 0.5), run(2, 0.95)])) & {"other_lengths", "several_tools", "wide_steps"}
    longer = json.loads(run(4, 1.8))
    longer["total_input_tokens"] *= 3
    tools = (Path(__file__).parent.parent / "importers" / "benchmark" / "aiperf-0.13.0" / "concurrency-1.json").read_text()
    answer = analysed(client, [tools, json.dumps(longer), run(64, 5.6)])
    assert codes(answer) >= {"other_lengths", "several_tools", "wide_steps"}
    (steps,) = [note["message"] for note in answer["warnings"] if note["code"] == "wide_steps"]
    assert "1 to 4" in steps
    assert "4 to 64" in steps


def test_a_percentile_that_was_not_printed_is_replaced_by_a_higher_one_only(client: TestClient) -> None:
    files = [run(level, rps) for level, rps in RISING.items()]
    (p95,) = analysed(client, files, PLAN | {"slo": {"tpot_p95_s": 0.5}})["levels"][0]["objectives"]
    assert p95["statistic"] == "p99"
    without = [json.dumps({key: value for key, value in json.loads(file).items() if "p99" not in key}) for file in files]
    answer = analysed(client, without, PLAN | {"slo": {"tpot_p95_s": 0.5}})
    assert answer["levels"][0]["objectives"][0]["holds"] is None
    assert "no percentile for tpot_p95" in answer["working_point_missing_because"]


def test_a_slow_level_is_compared_and_diagnosed(client: TestClient) -> None:
    files = [run(1, 0.5, ttft_ms=10), run(64, 1.0, ttft_ms=3000)]
    answer = analysed(client, files, PLAN | {"slo": {"tpot_p99_s": 0.02, "ttft_p99_s": 1}})
    slow = answer["levels"][1]
    assert slow["went_wrong"]
    assert [each for each in slow["compared"] if not each["within_range"]]
    for level in answer["levels"]:
        for each in level["compared"]:
            ratio = each["measured"] / each["predicted"]
            assert each["measured_over_predicted_ratio"] == pytest.approx(ratio)
            assert each["within_range"] is (each["low_ratio"] <= ratio <= each["high_ratio"])
    assert slow["findings"]
    assert all(level["went_wrong"] or not level["findings"] for level in answer["levels"])


def test_without_a_catalog_model_the_ramp_is_read_all_the_same(client: TestClient) -> None:
    plan = {"workload": PLAN["workload"], "measured": {"output_tokens_per_s": 1000, "concurrency": 10}, "slo": {"tpot_p99_s": 0.5}}
    answer = analysed(client, [run(level, rps) for level, rps in RISING.items()], plan)
    assert answer["knee"]["concurrency"] == 16
    assert answer["calibration"] is None
    assert "not_calibrated" in [note["code"] for note in answer["warnings"]]


@pytest.mark.parametrize("files", [["{}"], ["no results"], []], ids=["no-figures", "no-json", "none"])
def test_what_is_no_result_is_refused(client: TestClient, files: list[str]) -> None:
    answer = client.post("/load-tests/analysis", json={"plan": PLAN, "files": files})
    assert answer.status_code == 422
    assert "/files" in answer.text
