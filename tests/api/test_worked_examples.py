"""Every worked figure of the source texts, asked over HTTP: the exact figure to the digit, the stated one within its tolerance."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.api.worked_examples import EXAMPLES, GB, GIB, LLAMA_70B, Ask, agrees, card, example, workload

SPEED = {"memory_bandwidth_bytes_per_s": 3000e9, "peak_flops_per_s": 1e15}


def test_e2e_latency(ask: Ask) -> None:
    given, exact, stated, tolerance = example("e2e-latency")
    measured = {"queue_s": given["queue_s"], "ttft_s": given["ttft_s"], "tpot_s": given["tpot_s"]}
    answer = ask("/capacity", workload=workload(output=given["output_tokens"]), measured=measured)
    agrees(answer["latency"]["e2e_s"], exact["e2e_s"], stated["e2e_s"], tolerance)


def test_token_rates(ask: Ask) -> None:
    given, exact, stated, tolerance = example("token-rates")
    demand = ask("/capacity", workload=workload(given["rps"], given["input_tokens"], given["output_tokens"]))["demand"]
    agrees(demand["input_tokens_per_s"], exact["input_tps"], stated["input_tps"], tolerance)
    agrees(demand["output_tokens_per_s"], exact["output_tps"], stated["output_tps"], tolerance)


def test_weights_70b(ask: Ask) -> None:
    given, exact, _, _ = example("weights-70b")
    rows = {row["weights"]: row for row in ask("/memory", model=given, gpu=card())["by_precision"]}
    for name, gigabytes in exact.items():
        agrees(rows[name.removesuffix("_gb")]["weights_bytes"], gigabytes * GB)


def test_weights_70b_bf16_on_one_card_does_not_fit(ask: Ask) -> None:
    given, exact, _, _ = example("weights-70b-bf16-one-h100")
    answer = ask(
        "/memory", model={"params": given["params"]}, gpu=card(given["gpu_memory_gb"]), deployment={"weights": given["precision"], "tp": 1}
    )
    assert (answer["verdict"] != "does_not_fit") is exact["fits"]
    assert answer["limiting"] == "weights"
    assert answer["margin_bytes"] == -60 * GB


def test_weights_70b_bf16_on_two_cards_loads_but_does_not_serve(ask: Ask) -> None:
    given, exact, _, _ = example("weights-70b-bf16-two-h100")
    answer = ask(
        "/memory",
        model={"params": given["params"]},
        gpu=card(given["gpu_memory_gb"]),
        deployment={"weights": given["precision"], "tp": given["tp"]},
    )
    agrees(answer["per_gpu"]["weights_bytes"], exact["weights_gb_per_gpu"] * GB)
    agrees(answer["per_gpu"]["free_after_weights_bytes"], exact["left_gb_per_gpu"] * GB)
    assert answer["verdict"] == "loads_only"
    assert (answer["verdict"] in ("loads_only", "serves")) is exact["loads"]
    assert (answer["verdict"] == "serves") is exact["serves"]


@pytest.mark.parametrize("model", ["llama-3.1-70b", "meta-llama/llama-3.1-70B", {**LLAMA_70B}])
def test_kv_per_token_70b(ask: Ask, model: Any) -> None:
    _, exact, stated, tolerance = example("kv-per-token-70b")
    answer = ask("/kv", model=model, kv_cache="bf16")
    agrees(answer["bytes_per_token"], exact["bytes_per_token"])
    agrees(answer["bytes_per_token"] / 1024, exact["kib_per_token"], stated["kib_per_token"], tolerance)


def test_kv_per_request_8k(ask: Ask) -> None:
    given, exact, stated, tolerance = example("kv-per-request-8k")
    row = ask("/kv", model=LLAMA_70B, kv_cache="bf16", context_tokens=given["tokens"])["by_context"][0]
    agrees(row["bytes_per_sequence"], exact["bytes"])
    agrees(row["bytes_per_sequence"] / GIB, exact["gib"])
    agrees(row["bytes_per_sequence"] / GB, exact["gb"], stated["gb"], tolerance)


def test_kv_32_requests_8k(ask: Ask) -> None:
    given, exact, stated, tolerance = example("kv-32-requests-8k")
    row = ask("/kv", model=LLAMA_70B, kv_cache="bf16", context_tokens=given["tokens"], num_sequences=given["requests"])["by_context"][0]
    agrees(row["total_bytes"], exact["bytes"])
    agrees(row["total_bytes"] / GIB, exact["gib"])
    agrees(row["total_bytes"] / GB, exact["gb"], stated["gb"], tolerance)


def test_kv_by_context(ask: Ask) -> None:
    given, exact, stated, tolerance = example("kv-by-context")
    rows = ask("/kv", model=LLAMA_70B, kv_cache="bf16", context_tokens=given["contexts"])["by_context"]
    for row, binary, printed in zip(rows, exact["gib"], stated["gb"], strict=True):
        agrees(row["bytes_per_sequence"] / GIB, binary, printed, tolerance)


def test_gqa_mqa_ratio(ask: Ask) -> None:
    given, exact, _, _ = example("gqa-mqa-ratio")
    assert given["query_heads"] == LLAMA_70B["num_attention_heads"]
    assert given["kv_heads"]["gqa"] == LLAMA_70B["num_kv_heads"]
    answer = ask("/kv", model=LLAMA_70B)
    ratios = {row["attention"]: row["vs_mha_ratio"] for row in answer["by_attention"]}
    assert ratios == exact["kv_vs_mha"]
    assert answer["vs_mha_ratio"] == exact["kv_vs_mha"]["gqa"]
    assert answer["vs_mqa_ratio"] == exact["kv_vs_mha"]["gqa"] / exact["kv_vs_mha"]["mqa"]


@pytest.mark.parametrize(("unit", "reading"), [(GB, "decimal_gb"), (GIB, "if_gib")])
def test_concurrency_4xh100(ask: Ask, unit: int, reading: str) -> None:
    given, exact, stated, _ = example("concurrency-4xh100")
    answer = ask(
        "/concurrency",
        model={**LLAMA_70B, "params": given["weights_gb"] * unit},
        gpu={"memory_bytes": given["gpu_memory_gb"] * unit},
        deployment={"tp": given["tp"], "weights": "fp8", "kv_cache": "bf16", "reserve_bytes_per_gpu": given["reserve_gb_per_gpu"] * unit},
        tokens_per_sequence=given["tokens_per_request"],
        safety_ratio=given["safety_factor"],
    )
    values = {step["name"]: step["value"] for step in answer["working"]}
    agrees(values["weights_bytes_per_gpu"], exact["weights_gb_per_gpu"] * unit)
    agrees(values["kv_cache_bytes"], exact["kv_gb_per_gpu"] * unit)
    agrees(values["kv_bytes_per_token_per_gpu"], exact["kv_bytes_per_token_per_gpu"])
    agrees(answer["kv_capacity_tokens"], exact[f"token_positions_{reading}"])
    agrees(answer["max_concurrency"], exact[f"max_requests_{reading}"])
    agrees(answer["safe_concurrency"], exact[f"safe_requests_{reading}"])
    low, high = stated["max_num_seqs"]
    assert low <= answer["recommended_max_num_seqs"] <= high
    if reading == "if_gib":
        assert answer["max_concurrency"] == stated["max_requests"]
        assert answer["safe_concurrency"] == stated["safe_requests"]
        assert answer["kv_capacity_tokens"] == pytest.approx(stated["token_positions"], rel=0.005)


def test_prefill_flops_70b_4k(ask: Ask) -> None:
    given, exact, _, _ = example("prefill-flops-70b-4k")
    limits = ask("/capacity", model={"params": given["params"]}, workload=workload(prompt=given["tokens"]))["limits"]
    agrees(limits["prefill_flops"] / 1e12, exact["tflop"])


def test_attention_flops(ask: Ask) -> None:
    given, exact, _, _ = example("attention-flops")
    assert LLAMA_70B["num_attention_heads"] * LLAMA_70B["head_dim"] == given["d_model"]
    limits = ask("/capacity", model=LLAMA_70B, workload=workload(prompt=given["tokens"]))["limits"]
    agrees(limits["attention_full_flops"] / 1e12, exact["full_tflop"])
    agrees(limits["attention_causal_flops"] / 1e12, exact["causal_tflop"])


def test_decode_flops_70b(ask: Ask) -> None:
    given, exact, _, _ = example("decode-flops-70b")
    limits = ask("/capacity", model={"params": given["params"]}, workload=workload())["limits"]
    agrees(limits["decode_flops_per_token"] / 1e9, exact["gflop_per_token"])


def test_decode_bandwidth_bound(ask: Ask) -> None:
    given, exact, stated, tolerance = example("decode-bandwidth-bound")
    gpu = card(memory_bandwidth_bytes_per_s=given["bandwidth_gb_s"] * GB, peak_flops_per_s=1e15)
    answer = ask("/capacity", model={"params": given["weights_gb"] * GB}, gpu=gpu, deployment={"weights": "fp8"}, workload=workload())
    rate = answer["limits"]["single_stream_output_tokens_per_s"]
    agrees(rate, exact["tokens_per_s"], stated["tokens_per_s"], tolerance, digits=9)


def test_chunked_prefill_count(ask: Ask) -> None:
    given, exact, _, _ = example("chunked-prefill-count")
    limits = ask(
        "/capacity",
        model={"params": 70e9},
        deployment={"max_num_batched_tokens": given["chunk_tokens"]},
        workload=workload(prompt=given["prompt_tokens"]),
    )["limits"]
    agrees(limits["prefill_chunks_iterations"], exact["chunks"])


def test_paged_blocks(ask: Ask) -> None:
    given, exact, _, _ = example("paged-blocks")
    rows = ask("/kv", model=LLAMA_70B, block_size_tokens=given["block_size"], context_tokens=given["tokens"])["by_context"]
    assert [row["num_blocks"] for row in rows] == exact["blocks"]
    assert [row["wasted_bytes"] for row in rows] == [(-tokens % 16) * 327680 for tokens in given["tokens"]]


def test_prefix_cache_saving(ask: Ask) -> None:
    given, exact, _, _ = example("prefix-cache-saving")
    traffic = workload(given["rps"], 4000, shared_prefix_tokens=given["shared_prefix_tokens"], prefix_hit_ratio=given["hit_rate"])
    demand = ask("/capacity", workload=traffic)["demand"]
    agrees(demand["shared_input_tokens_per_s"], exact["shared_input_tps"])
    agrees(demand["saved_input_tokens_per_s"], exact["saved_input_tps"])


def test_kv_fp8_halves(ask: Ask) -> None:
    given, exact, _, _ = example("kv-fp8-halves")
    model = {
        "params": 70e9,
        "num_layers": 75,
        "num_kv_heads": 8,
        "head_dim": 125,
        "num_attention_heads": 64,
    }  # 300,000 bytes per token in bf16
    rows = ask("/kv", model=model, context_tokens=10_000, num_sequences=20)["by_precision"]
    totals = {row["kv_cache"]: row["total_bytes"] for row in rows}
    agrees(totals["bf16"], given["kv_gb_bf16"] * GB)
    agrees(totals["fp8"], exact["kv_gb_fp8"] * GB)


def test_tp_splits_weights(ask: Ask) -> None:
    given, exact, _, _ = example("tp-weights-split")
    for tp, gigabytes in zip(given["tp"], exact["weights_gb_per_gpu"], strict=True):
        answer = ask("/memory", model={"params": given["weights_gb"] * GB}, gpu=card(), deployment={"weights": "fp8", "tp": tp})
        agrees(answer["per_gpu"]["weights_bytes"], gigabytes * GB)


def test_replicas_per_node(ask: Ask) -> None:
    given, exact, _, _ = example("replicas-per-node")
    answer = ask("/capacity", deployment={"tp": given["tp"]}, gpus_per_node=given["gpus_per_node"], workload=workload())
    agrees(answer["replicas_per_node"], exact["replicas_per_node"])


def test_speculative_decoding_iterations(ask: Ask) -> None:
    given, exact, stated, tolerance = example("spec-decode-iterations")
    speculative = {"num_draft_tokens": 4, "acceptance_ratio": (given["accepted_per_round"] - 1) / 4}
    limits = ask(
        "/capacity", model={"params": 70e9}, deployment={"speculative": speculative}, workload=workload(output=given["output_tokens"])
    )["limits"]
    agrees(limits["decode_iterations"], exact["target_iterations"], stated["target_iterations"], tolerance, digits=4)


def test_longer_output_costs_time(ask: Ask) -> None:
    given, exact, _, _ = example("longer-output-cost")
    assert given["extra_tokens"] == 500
    latency = ask("/capacity", workload=workload(), measured={"ttft_s": 0.5, "tpot_s": given["tpot_s"]})["latency"]
    agrees(latency["next_500_output_tokens_s"], exact["extra_e2e_s"])


def test_tokenizer_plus_20_percent(ask: Ask) -> None:
    given, exact, _, _ = example("tokenizer-plus-20-percent")
    demand = ask("/capacity", workload=workload(10, token_growth_ratio=given["token_growth"]))["demand"]
    growth = demand["growth"]
    assert (growth["prefill_ratio"], growth["kv_cache_ratio"]) == (exact["prefill_linear"], exact["kv_cache"])
    agrees(growth["attention_ratio"], exact["attention_quadratic"])
    assert demand["input_tokens_per_s"] == 12_000


def test_concurrency_ramp(ask: Ask) -> None:
    _, exact, _, _ = example("concurrency-ramp")
    answer = ask(
        "/concurrency",
        model=LLAMA_70B,
        gpu=card(),
        deployment={"tp": 4, "weights": "fp8", "reserve_bytes_per_gpu": 12 * GB},
        tokens_per_sequence=8000,
    )
    assert answer["load_test_concurrency"] == exact["levels"]


def test_every_example_is_asked() -> None:
    texts = [file.read_text() for file in Path(__file__).parent.glob("test_worked_*.py")]
    asked = {name for text in texts for name in re.findall(r'example\("([^"]+)"\)', text)}
    assert asked == set(EXAMPLES)
