"""Worked figures of the source texts about fleets: replicas by each constraint, redundancy, price, mixed traffic."""

from typing import Any

from tests.api.worked_examples import LLAMA_70B, Ask, agrees, example, workload


def replicas(answer: dict[str, Any], name: str) -> tuple[float | None, int | None]:
    return next((item["replicas_exact"], item["replicas"]) for item in answer["constraints"] if item["name"] == name)


def test_capacity_by_throughput(ask: Ask) -> None:
    given, exact, _, _ = example("capacity-throughput")
    answer = ask(
        "/capacity",
        workload=workload(100, 1200, given["required_output_tps"] / 100),
        measured={"output_tokens_per_s": given["instance_output_tps"]},
    )
    assert replicas(answer, "throughput") == (exact["instances"], exact["instances"])


def test_capacity_by_concurrency(ask: Ask) -> None:
    given, exact, _, _ = example("capacity-concurrency")
    answer = ask(
        "/capacity",
        workload=workload(given["peak_rps"]),
        measured={"e2e_s": given["mean_time_in_system_s"], "concurrency": given["concurrency_per_instance"]},
    )
    agrees(answer["concurrency"], exact["concurrency"])
    assert replicas(answer, "concurrency") == (exact["instances_raw"], exact["instances"])


def test_capacity_by_kv_cache(ask: Ask) -> None:
    given, exact, _, _ = example("capacity-kv")
    answer = ask("/capacity", workload=workload(200), measured={"e2e_s": 0.9, "kv_concurrency": given["safe_concurrency_per_instance"]})
    assert answer["concurrency"] == given["concurrency"]
    assert replicas(answer, "kv_cache") == (exact["instances"], exact["instances"])


def test_capacity_with_redundancy(ask: Ask) -> None:
    given, exact, _, _ = example("capacity-final")
    answer = ask(
        "/capacity",
        workload=workload(200, 1200, 150),
        measured={"output_tokens_per_s": 10_000, "e2e_s": 0.9, "concurrency": 75, "kv_concurrency": 60},
        redundancy_ratio=given["redundancy"],
    )
    assert [replicas(answer, name)[1] for name in ("throughput", "concurrency", "kv_cache")] == [
        given["throughput"],
        given["concurrency"],
        given["kv"],
    ]
    agrees(answer["replicas"], exact["instances"])


def test_cost_per_million(ask: Ask) -> None:
    given, exact, stated, tolerance = example("cost-per-million")
    answer = ask("/cost", replica_usd_per_hour=given["usd_per_hour"], output_tokens_per_s=given["output_tokens_per_s"])
    agrees(answer["output_tokens_per_hour"], exact["tokens_per_hour"])
    agrees(answer["usd_per_million_output_tokens"], exact["usd_per_million_output"], stated["usd_per_million_output"], tolerance, digits=6)


def test_case_knowledge_base(ask: Ask) -> None:
    given, exact, _, _ = example("case-knowledge-base-qa")
    answer = ask(
        "/capacity",
        model=LLAMA_70B,
        gpu="h100-sxm-80gb",
        deployment={"tp": given["gpus"], "weights": given["weights"], "kv_cache": given["kv"]},
        workload=workload(
            given["peak_rps"], {"mean": given["input_tokens_mean"], "p95": given["input_tokens_p95"]}, given["output_tokens_mean"]
        ),
        slo={"ttft_p95_s": given["ttft_p95_s"], "tpot_p95_s": given["tpot_p95_s"]},
    )
    agrees(answer["demand"]["input_tokens_per_s"], exact["input_tps"])
    agrees(answer["demand"]["output_tokens_per_s"], exact["output_tps"])
    codes = {note["code"] for note in answer["warnings"]}
    assert {"prefill_heavy", "prefix_cache_opportunity", "decode_not_negligible", "long_input_tail"} <= codes
    assert all(item["replicas"] for item in answer["constraints"] if item["name"] in ("throughput", "prefill", "kv_cache", "slo"))


def test_load_mix(ask: Ask) -> None:
    given, exact, _, _ = example("load-mix")
    classes = [{"share_ratio": c["share"], "input_tokens": c["input_tokens"], "output_tokens": c["output_tokens"]} for c in given["mix"]]
    demand = ask("/capacity", workload={"peak_rps": 10, "classes": classes})["demand"]
    agrees(demand["mean_input_tokens"], exact["input_tokens_mean"])
    agrees(demand["mean_output_tokens"], exact["output_tokens_mean"])
    assert demand["p95_input_tokens"] == 8000
