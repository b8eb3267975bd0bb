"""The working of every calculation, redone: each `substituted` is evaluated and gives its `value`; the answer's figures are in it."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from app.domain.errors import UnknownName
from app.domain.provenance import Step
from app.services.estimates import CALCULATIONS
from tests.domain.shapes import CATALOG
from tests.services.calculator import agree, answers, evaluate, redo

MODELS: dict[str, Any] = {
    name: name
    for name in (
        "llama-3.1-70b", "mixtral-8x7b", "deepseek-v3", "deepseek-v3.2", "deepseek-v4-pro", "glm-5.2", "gemma-3-27b", "gemma-4-e2b",
        "gpt-oss-120b", "mistral-7b-v0.1", "llama-4-scout", "qwen3-next-80b-a3b", "nemotron-h-47b", "jamba-1.5-mini", "minimax-m3",
        "deepseek-v4.1-flash", "qwen3.8-flash-next",
    )
} | {
    "params only": {"params": 70 * 10**9},
    "sparse params": {"params": 10**12, "active_params": 32 * 10**9},
    "sketch": {"params": 70 * 10**9, "num_layers": 80, "num_kv_heads": 8, "head_dim": 128, "num_attention_heads": 64},
}  # fmt: skip
LAYERED = [name for name in MODELS if name not in ("params only", "sparse params")]
GPUS: dict[str, Any] = {
    "h100": "h100-sxm-80gb",
    "inline": {"memory_bytes": 192 * 10**9, "memory_bandwidth_bytes_per_s": 5.3e12, "peak_flops_per_s": 1.3e15},
}
DEPLOYMENTS: list[dict[str, Any]] = [
    {},
    {"tp": 8, "dp": 2, "weights": "fp8", "max_num_seqs": 100},
    {"tp": 4, "pp": 3, "kv_cache": "fp8", "weights": "awq", "max_model_len_tokens": 8192},
    {"tp": 8, "memory_fraction_ratio": 0.9, "reserve_bytes_per_gpu": 5 * 10**9},
    {"tp": 8, "memory_fraction_ratio": 0.93, "speculative": {"num_draft_tokens": 3, "acceptance_ratio": 0.7}},
    {"tp": 1, "dp": 8, "ep": 8},
]
ENGINES: dict[str, dict[str, Any]] = {
    "vllm": {"tp": 8, "weights": "fp8", "engine": "vllm", "max_model_len_tokens": 40_000},
    "sglang": {"tp": 4, "pp": 2, "dp": 2, "engine": "sglang", "max_num_batched_tokens": 2048},
}
TAIL = {"peak_rps": 20, "input_tokens": {"mean": 4000, "p95": 12000}, "output_tokens": {"mean": 500, "p95": 900}}
MIX = {
    "peak_rps": 3, "burst_ratio": 1.5, "token_growth_ratio": 1.2, "shared_prefix_tokens": 800, "prefix_hit_ratio": 0.7,
    "classes": [
        {"share_ratio": 0.8, "input_tokens": 1000, "output_tokens": 200},
        {"share_ratio": 0.2, "input_tokens": 32000, "output_tokens": 999},
    ],
}  # fmt: skip
APPROXIMATED = {"percentiles": "approximated"}
MODELLED: dict[str, Any] = {"model": "llama-3.1-70b", "gpu": "h100-sxm-80gb", "deployment": ENGINES["vllm"]}
EXTRAS: list[dict[str, Any]] = [
    {
        "workload": TAIL,
        "slo": {"ttft_p95_s": 2, "tpot_p95_s": 0.04},
        "redundancy_ratio": 1.3,
        "spare_replicas": 1,
        "usd_per_gpu_hour": 2.5,
        **APPROXIMATED,
    },
    {"workload": MIX, "slo": {"e2e_p99_s": 9}, "gpus_per_node": 4, **APPROXIMATED},
    {"workload": TAIL, "measured": {"output_tokens_per_s": 3000, "ttft_s": 0.5, "queue_s": 0.1, "tpot_s": 0.03}},
    {"workload": MIX | {"shared_prefix_tokens": None, "prefix_hit_ratio": 1}, "measured": {"e2e_s": 4, "concurrency": 7.5}},
]


def bodies(model: str, **more: Any) -> Iterator[dict[str, Any]]:
    for gpu, deployment in itertools.product(GPUS.values(), DEPLOYMENTS):
        yield {"model": MODELS[model], "gpu": gpu, "deployment": deployment, **more}


@pytest.mark.parametrize("model", MODELS)
def test_memory(model: str) -> None:
    found = list(answers("memory", bodies(model)))
    assert found
    for answer in found:
        working = redo(answer.working)
        agree(answer, working, "weights_bytes", "kv_capacity_tokens")
        assert answer.per_gpu.weights_bytes == working["weights_bytes_per_gpu"]
        for name in ("budget_bytes", "reserve_bytes", "kv_cache_bytes"):
            assert getattr(answer.per_gpu, name) == working[name]
        assert (answer.margin_bytes >= 0) == (answer.verdict == "serves")
        assert str(answer.kv_capacity_tokens) in answer.summary or answer.verdict != "serves" or answer.kv_capacity_tokens is None


@pytest.mark.parametrize("model", LAYERED)
def test_kv(model: str) -> None:
    contexts = [5000, 200_000, 1000]
    found = list(answers("kv", ({"model": MODELS[model], "tp": tp, "context_tokens": contexts, "num_sequences": 7} for tp in (1, 8))))
    assert found
    for answer in found:
        working, longest = redo(answer.working), answer.by_context[1]
        assert answer.bytes_per_token == working["kv_bytes_per_token"]
        assert answer.bytes_per_token_per_gpu == working["kv_bytes_per_token_per_gpu"]
        assert answer.index_bytes_per_token == working.get("index_bytes_per_token", 0)
        assert answer.state_bytes_per_sequence == working.get("state_bytes_per_sequence", 0)
        assert longest.bytes_per_sequence == working["kv_bytes_per_sequence"]
        assert longest.bytes_per_sequence_per_gpu == working.get("kv_bytes_per_sequence_per_gpu", longest.bytes_per_sequence)
        assert (longest.total_bytes, longest.num_blocks) == (working["total_bytes"], working["num_blocks"])
        assert f"{len(contexts) + 4} sequence(s) of 200000 tokens" in answer.summary


@pytest.mark.parametrize("model", LAYERED)
def test_concurrency(model: str) -> None:
    found = list(answers("concurrency", bodies(model, tokens_per_sequence={"mean": 5000.5, "p95": 9000})))
    assert found
    for answer in found:
        working = redo(answer.working)
        agree(answer, working, "kv_capacity_tokens", "max_concurrency", "safe_concurrency", "recommended_max_num_seqs")
        assert answer.recommended_max_num_seqs * answer.num_engine_ranks <= max(answer.safe_concurrency, answer.num_engine_ranks)


@pytest.mark.parametrize("model", LAYERED)
def test_concurrency_with_a_prefix_cache(model: str) -> None:
    found = list(answers("concurrency", bodies(model, workload=MIX, prefix_cache_reserve_ratio=0.15)))
    assert found
    for answer in found:
        working, use = redo(answer.working), answer.prefix_cache
        agree(answer, working, "kv_capacity_tokens", "max_concurrency", "safe_concurrency")
        assert use.reserve_bytes == working["prefix_cache_reserve_bytes"]
        assert (use.shared_prefix_tokens, use.shared_prefix_bytes) == (
            working.get("shared_prefix_tokens", 0),
            working.get("shared_prefix_bytes", 0),
        )
        assert use.shared_prefix_tokens or "prefix_not_shared" in {note.code for note in answer.warnings}


@pytest.mark.parametrize("load", [{"concurrency": 48}, {"concurrency": 100_000, "num_requests": 10**6}, {"request_rps": 0.4}])
@pytest.mark.parametrize("model", MODELS)
def test_performance(model: str, load: dict[str, float]) -> None:
    lengths = {"input_tokens": 20_000.5, "output_tokens": 300, "prefix_hit_ratio": 0.25}
    found = list(answers("performance", bodies(model, **lengths, **load)))
    assert found
    for answer in found:
        working = redo(answer.working)
        if answer.tpot_s is None:
            assert answer.saturation is None
            assert "serves no request" in answer.summary
            continue
        assert answer.tpot_s.value == working["tpot_s"]
        assert answer.output_tokens_per_s.value == pytest.approx(working["output_tokens_per_s"])
        for step in (answer.decode, answer.mixed):
            if step is not None:
                name = "decode" if step is answer.decode else "mixed"
                assert (step.total_s, step.memory_s, step.compute_s) == tuple(
                    working[f"{name}_{part}_s"] for part in ("step", "memory", "compute")
                )
        assert (answer.ttft_s is None) == answer.saturated
        if answer.ttft_s is not None:
            assert answer.ttft_s.value == working["ttft_s"]
            assert sum(answer.waiting.model_dump().values()) == pytest.approx(answer.ttft_s.value)
            assert answer.e2e_s.value == working["e2e_s"]


@pytest.mark.parametrize("extra", range(len(EXTRAS)))
@pytest.mark.parametrize("model", MODELS)
def test_capacity(model: str, extra: int) -> None:
    found = list(answers("capacity", bodies(model, **EXTRAS[extra])))
    assert found
    for answer in found:
        working = redo(answer.working)
        agree(answer, working, "replicas", "gpus", "nodes", "utilization_ratio", "time_in_system_s", "concurrency")
        for item in answer.constraints:
            if item.replicas_exact is not None:
                assert item.replicas_exact == working[f"replicas_{item.name}"]
            if item.basis == "bound" and item.name in ("throughput", "prefill"):
                assert item.per_replica == working[f"{item.name}_per_replica"]
        for name in ("prefill_flops", "attention_causal_flops", "prefill_s", "decode_step_s"):
            assert getattr(answer.limits, name) == working[name]
        if answer.cost is not None:
            for name in ("usd_per_hour", "usd_per_month", "usd_per_request", "usd_per_million_output_tokens"):
                assert getattr(answer.cost, name) == working[name]
        serves = {note.code for note in answer.warnings}.isdisjoint({"does_not_fit", "loads_only"})
        assert ("does not serve" in answer.summary) is not serves


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", [name for name in MODELS if name != "sketch"])
def test_capacity_of_a_modelled_replica(model: str, engine: str) -> None:
    """The lines that follow those of the memory, which has words in them where engines lay out pages."""
    traffic = [
        {
            "workload": TAIL,
            "slo": {"ttft_p95_s": 8, "tpot_p99_s": 0.2, "e2e_p95_s": 90},
            "rolling_update": {"unavailable_replicas": 3},
            **APPROXIMATED,
        },
        {"workload": MIX, "spare_replicas": 1},
    ]
    names = {"model": MODELS[model], "gpu": "h200-sxm-141gb", "deployment": ENGINES[engine]}
    memory = {step.name for answer in answers("memory", iter([names])) for step in answer.working}
    found = list(answers("capacity", ({**names, **more} for more in traffic)))
    for answer in found:
        working = redo([step for step in answer.working if step.name not in memory and "tokens" not in step.substituted])
        agree(answer, working, "replicas", "gpus", "nodes", "utilization_ratio", "time_in_system_s", "concurrency")
        for item in answer.constraints:
            if item.replicas_exact is not None:
                assert item.replicas_exact == working[f"replicas_{item.name}"]
            if item.per_replica and item.basis != "exact" and item.name in ("throughput", "prefill", "slo"):
                assert item.per_replica == pytest.approx(working[f"{item.name}_per_replica"])
        if answer.expected is not None:
            assert answer.expected.request_rps == pytest.approx(working["request_rps_per_replica"])
            assert answer.expected.tpot.mean_s.value == working["expected_tpot_s"]
            assert answer.expected.ttft.mean_s.value == working["expected_ttft_s"]
            assert answer.expected.ttft.p95_s.value == working["expected_ttft_p95_s"]
            assert answer.expected.ttft.p99_s.value == working["expected_ttft_p99_s"]


@pytest.mark.parametrize(
    "body",
    [
        {"replica_usd_per_hour": 20, "output_tokens_per_s": 8000, "replicas": 3, "workload": TAIL, "success_ratio": 0.9},
        {"gpu": "h100-sxm-80gb", "gpus": 4, "workload": MIX, "replicas": 7, "attempts_per_task": 1.2, "requests_per_task": 3},
        {"usd_per_gpu_hour": 2.5, "gpus": 4, "input_tokens_per_s": 9000, "workload": TAIL},
        {"usd_per_gpu_hour": 2.5, "gpus": 4, "request_rps": 3, "input_tokens_per_s": 9000, "workload": TAIL},
        {"usd_per_gpu_hour": 2.5, "gpus": 4},
        {"gpu": "h100-sxm-80gb", "gpus": 4, "price_kind": "committed", "workload": TAIL},
        *({**MODELLED, "workload": {**TAIL, "peak_rps": rate}} for rate in (0.01, 3, 200)),
        {**MODELLED, "deployment": ENGINES["sglang"], "workload": MIX, "price_kind": "spot", "output_tokens_per_s": 300},
        {**MODELLED, "model": "deepseek-v3", "gpu": "b200-sxm-180gb", "workload": TAIL, "replicas": 9, "success_ratio": 0.5},
        {**MODELLED, "deployment": {"tp": 8}, "workload": TAIL},
        {"plan": {"workload": MIX, "measured": {"output_tokens_per_s": 300}, "usd_per_gpu_hour": 2.5}},
    ],
)
def test_cost(body: dict[str, Any]) -> None:
    (answer,) = answers("cost", iter([body]))
    working = redo(answer.working)
    figures = ("input_tokens", "output_tokens", "blended_tokens")
    agree(answer, working, *(f"usd_per_million_{name}" for name in figures), "usd_per_hour", "usd_per_month")
    agree(answer, working, "usd_per_request", "usd_per_successful_request", "usd_per_task")
    assert (answer.split is None) is ("model" not in body or "engine" not in body["deployment"])
    if answer.split is not None:
        agree(answer.split, working, "input_time_ratio", "output_time_ratio")
        inputs = answer.usd_per_million_input_tokens * answer.input_tokens_per_hour
        outputs = answer.usd_per_million_output_tokens * answer.output_tokens_per_hour
        assert (inputs + outputs) / 1e6 == pytest.approx(answer.usd_per_hour)
    for which in ("input", "output"):
        hourly = getattr(answer, f"{which}_tokens_per_hour")
        assert hourly is None or hourly == pytest.approx(working[f"{which}_tokens_per_s"] * 3600)


@pytest.mark.parametrize(
    ("text", "value"), [("floor(720 x 0.7)", 504), ("max(0, 2 - 3) + 2^3", 8), ("1e6 / (2 x 3 + 4)", 100_000), ("min(7, ceil(6.1))", 7)]
)
def test_the_calculator_calculates(text: str, value: int) -> None:
    assert evaluate(text) == value


def test_a_wrong_line_is_noticed() -> None:
    step = Step(name="n", formula="f", substituted="2 x 3", value=7, unit="bytes", basis="exact", source="s")
    with pytest.raises(AssertionError, match="2 x 3"):
        redo([step])
    with pytest.raises(AssertionError, match="not arithmetic"):
        evaluate("tp")


def test_max_num_seqs_is_that_of_each_engine_rank_everywhere() -> None:
    names = {"model": "llama-3.1-70b", "gpu": "h100-sxm-80gb", "deployment": {"tp": 4, "dp": 2, "weights": "fp8", "max_num_seqs": 10}}
    (held,) = answers("concurrency", iter([{**names, "tokens_per_sequence": 4500}]))
    (planned,) = answers("capacity", iter([{**names, "workload": TAIL, "slo": {"e2e_p95_s": 10}}]))
    assert held.max_concurrency == 20
    assert held.binding == "max_num_seqs"
    assert {item.name: item.per_replica for item in planned.constraints}["concurrency"] == 20


def test_an_unknown_accelerator_is_refused_beside_a_price() -> None:
    request_type, calculate = CALCULATIONS["cost"]
    with pytest.raises(UnknownName) as refused:
        calculate(CATALOG, request_type.model_validate({"gpus": 4, "usd_per_gpu_hour": 2, "gpu": "h100-sxm-81gb"}))
    assert refused.value.field == "/gpu"
    assert "h100-sxm-80gb" in refused.value.nearest
