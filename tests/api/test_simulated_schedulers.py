"""`/simulate` with the schedulers of engines: what is said about them, what their settings do, and settings that are refused."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.test_simulate import CLASSES, MIX, refused, simulated


def assumed(found: dict[str, Any], code: str) -> list[str]:
    return [note["message"] for note in found["assumptions"] if note["code"] == code]


@pytest.mark.parametrize("runs", ["vllm", "sglang", "tensorrt-llm", "llama.cpp", "generic"])
def test_what_is_simulated_of_the_scheduler_is_said(client: TestClient, runs: str) -> None:
    (message,) = assumed(simulated(client, deployment={"engine": runs}, duration_s=10, seeds=[1]), "scheduler")
    assert runs.split("-")[0].split(".")[0] in message.casefold() or runs in ("generic", "llama.cpp")


def test_a_part_of_each_long_prompt_lets_short_ones_pass(client: TestClient) -> None:
    """The first token of short prompts comes earlier, that of long ones later."""
    usual, parts = (
        simulated(client, workload={"peak_rps": 6, "classes": CLASSES}, deployment=small, scheduler=scheduler)["kinds"]
        for small in [{"engine": "vllm", "max_num_batched_tokens": 2048}]
        for scheduler in ({}, {"long_prefill_threshold_tokens": 512})
    )
    assert parts[0]["times"]["ttft_s"]["p99"]["value"] < 0.9 * usual[0]["times"]["ttft_s"]["p99"]["value"]
    assert parts[1]["times"]["ttft_s"]["p50"]["value"] > usual[1]["times"]["ttft_s"]["p50"]["value"]


def test_mixed_chunks_keep_answers_flowing(client: TestClient) -> None:
    apart, mixed = (
        simulated(client, deployment={"engine": "sglang"}, workload=MIX, scheduler={"mixed_chunk": is_mixed})["times"]["itl_s"]["p99"][
            "value"
        ]
        for is_mixed in (False, True)
    )
    assert mixed < apart


def test_sequences_are_paused_where_no_room_is_kept_for_their_outputs(client: TestClient) -> None:
    body = {
        "deployment": {"engine": "tensorrt-llm", "memory_fraction_ratio": 0.3},
        "workload": {"peak_rps": 40, "input_tokens": 500, "output_tokens": 800},
        "duration_s": 60,
    }
    kept, paused = (
        simulated(client, **body, scheduler={"capacity_policy": policy}) for policy in ("guaranteed_no_evict", "max_utilization")
    )
    assert kept["num_preemptions"]["value"] == 0 < paused["num_preemptions"]["value"]


@pytest.mark.parametrize(
    ("runs", "scheduler", "name"),
    [
        ("sglang", {"long_prefill_threshold_tokens": 512}, "long_prefill_threshold_tokens"),
        ("vllm", {"mixed_chunk": True}, "mixed_chunk"),
        ("vllm", {"conservativeness_ratio": 0.3}, "conservativeness_ratio"),
        ("vllm", {"capacity_policy": "max_utilization"}, "capacity_policy"),
    ],
)
def test_settings_of_other_engines_are_refused(client: TestClient, runs: str, scheduler: dict[str, Any], name: str) -> None:
    error = refused(client, deployment={"engine": runs}, scheduler=scheduler)
    assert (error["pointer"], error["value"]) == (f"/scheduler/{name}", scheduler[name])
