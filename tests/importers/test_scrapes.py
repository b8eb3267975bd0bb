"""Scrapes of engines: what the engine did must come out, under the names that each version writes."""

from typing import Any

import pytest

from app.domain.metrics_latency import PERCENTILES
from app.importers.scrapes import COMPANIONS, ENGINES
from tests.importers.scrape_files import SECONDS, SITUATIONS, pair, read, text, truth

FAMILIES = ("ttft", "itl", "tpot", "queue_time", "prefill_time", "e2e")


def measured(*texts: str, seconds: float | None = None) -> dict[str, float]:
    whole = read(*texts, seconds=seconds).whole
    return {name: value for name in whole.measured() if (value := whole.get(name)) is not None}


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("rename", ["vllm:", "vllm_", "ray_vllm_"])
def test_vllm(situation: str, rename: str) -> None:
    texts = [each.replace("vllm:", rename) for each in pair(f"vllm_0.33_{situation}")]
    scraped, true = read(*texts, seconds=SECONDS), truth(situation)
    found = scraped.whole
    assert (scraped.engine, scraped.model, scraped.seconds) == ("vllm", "llama-3.1-8b", SECONDS)
    assert found.request_rps == pytest.approx(true["finished"] / SECONDS)
    assert found.output_tokens_per_s == pytest.approx(true["generated_tokens"] / SECONDS, rel=0.01)
    assert found.input_tokens_per_s == pytest.approx(true["prompt_tokens"] / SECONDS, rel=0.01)
    assert found.preemptions_per_s == pytest.approx(true["preemptions"] / SECONDS)
    assert found.num_running_requests == pytest.approx(true["mean_running"], rel=0.06)
    assert found.num_waiting_requests == sum(true["waiting"]) / 2
    assert found.num_kv_cache_tokens == 412_000
    assert found.failed_request_ratio == 0
    assert scraped.facts["max_concurrency_at_max_len_ratio"] == pytest.approx(412_000 / 32_768, rel=1e-4)
    for family in FAMILIES:
        assert found.latency(family, "mean") == pytest.approx(true[family]["mean"], rel=1e-4), family


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_percentiles_are_near_the_true_ones(situation: str, family: str) -> None:
    """Buckets of vLLM are up to 2.5 times as wide as their lower bound, the first of queue and prefill times ends at 300 ms."""
    found, true = read(*pair(f"vllm_0.33_{situation}"), seconds=SECONDS).whole, truth(situation)
    ratios = [value / true[family][level] for level in PERCENTILES if (value := found.latency(family, level)) is not None]
    assert len(ratios) == len(PERCENTILES)
    assert all(0.6 < ratio < 2.5 for ratio in ratios), ratios


def test_a_part_of_the_ttft_is_no_longer_than_the_ttft() -> None:
    found = read(*pair("vllm_0.33_healthy"), seconds=SECONDS).whole
    for part in ("queue_time", "prefill_time"):
        assert all((found.latency(part, level) or 0) <= (found.latency("ttft", level) or 0) for level in PERCENTILES)


def test_wide_buckets_and_last_ones_are_said() -> None:
    notes = {note.code: note.message for note in read(*pair("vllm_0.33_prefill_flooded"), seconds=SECONDS).notes}
    assert "output_p90_tokens 41.7 (between 20 and 50)" in notes["wide_bucket"]
    assert "input_p50_tokens 2e+04" in notes["beyond_last_bucket"]


def test_what_was_read_from_which_name_is_told() -> None:
    lines = [note.message for note in read(*pair("vllm_0.33_healthy"), seconds=SECONDS).read_from]
    assert any(line.startswith("vllm:request_success: request_rps 5.38333 (increase / seconds)") for line in lines)
    assert any(line.startswith("vllm:time_to_first_token_seconds: ttft_p50_s") for line in lines)


def test_old_names_of_vllm() -> None:
    """A recorded scrape of the V0 engine: 1,103 tokens in 998 steps, a cache of 81,767 blocks of 16, prefix caching off (-1)."""
    scraped = read(text("vllm_0.7_start"))
    assert scraped.model == "Qwen/Qwen2.5-Coder-1.5B-Instruct"
    assert measured(text("vllm_0.7_start")) == pytest.approx(
        {
            "num_running_requests": 0,
            "num_waiting_requests": 0,
            "tokens_per_step": 1103 / 998,
            "num_kv_cache_tokens": 81_767 * 16,
            "kv_cache_usage_ratio": 0,
            "num_preemptions_per_request": 0,
            "failed_request_ratio": 0,
        }
    )
    assert {note.code for note in scraped.notes} == {"lifetime_averages", "approximate_size"}


OLD_VLLM = """
vllm:gpu_cache_usage_perc{model_name="m"} 0.9
vllm:gpu_prefix_cache_queries_total{model_name="m"} 2000
vllm:gpu_prefix_cache_hits_total{model_name="m"} 600
vllm:num_preemptions{model_name="m"} 8
vllm:request_success_total{model_name="m",finished_reason="stop"} 14
vllm:request_success_total{model_name="m",finished_reason="abort"} 2
vllm:time_per_output_token_seconds_bucket{le="0.01",model_name="m"} 0
vllm:time_per_output_token_seconds_bucket{le="0.025",model_name="m"} 10
vllm:time_per_output_token_seconds_bucket{le="+Inf",model_name="m"} 10
vllm:time_per_output_token_seconds_count{model_name="m"} 10
vllm:time_per_output_token_seconds_sum{model_name="m"} 0.2
"""


OLDER = {
    "vllm 0.3": ('vllm:avg_generation_throughput_toks_per_s{model_name="m"} 120\n', {"output_tokens_per_s": 120}),
    "vllm 0.6": ('vllm:spec_decode_draft_acceptance_rate{model_name="m"} 0.6\n', {"spec_decode_acceptance_ratio": 0.6}),
    "sglang 0.4": ('sglang:avg_request_queue_latency{model_name="m"} 2.5\n', {"queue_time_mean_s": 2.5}),
    "sglang, no speculation": (
        'sglang:spec_accept_rate{model_name="m"} 0\nsglang:num_queue_reqs{model_name="m"} 0\n',
        {"num_waiting_requests": 0},
    ),
}


@pytest.mark.parametrize("version", OLDER)
def test_gauges_of_older_versions(version: str) -> None:
    assert measured(OLDER[version][0]) == OLDER[version][1]


def test_names_between_the_versions_of_vllm() -> None:
    found = measured(OLD_VLLM)
    assert found.pop("itl_p50_s") == pytest.approx(0.02, abs=0.002)
    assert {name: value for name, value in found.items() if not name.startswith("itl_p")} == pytest.approx(
        {
            "itl_mean_s": 0.02,
            "kv_cache_usage_ratio": 0.9,
            "prefix_cache_hit_ratio": 0.3,
            "num_preemptions_per_request": 0.5,
            "failed_request_ratio": 0.125,
        }
    )


def test_sglang() -> None:
    scraped, true = read(*pair("sglang_0.5.23_cuda_graph_gap"), seconds=SECONDS), truth("cuda_graph_gap")
    found = scraped.whole
    assert (scraped.engine, scraped.model) == ("sglang", "llama-3.1-8b")
    assert found.request_rps == pytest.approx(true["finished"] / SECONDS)
    assert (found.cuda_graph_step_ratio, found.num_cuda_graph_steps) == (0, 2947)
    assert found.num_kv_cache_tokens == 412_000
    assert found.num_engine_cpu_cores_used == pytest.approx(0.7, rel=0.01)
    assert found.num_running_requests == sum(true["running"]) / 2
    for family in FAMILIES:
        assert found.latency(family, "mean") == pytest.approx(true[family]["mean"], rel=1e-4), family
    assert found.itl_p50_s == pytest.approx(true["itl"]["p50"], rel=0.1)
    assert scraped.facts["weights_bytes_per_gpu"] == pytest.approx(14.99 * 2**30)


def test_old_names_of_sglang() -> None:
    """A recorded scrape of an engine with 2,826 requests in its queue; the median of the TTFT is above the last bound, 30 s."""
    scraped = read(text("sglang_0.4_saturated"))
    found = scraped.whole
    assert (found.num_running_requests, found.num_waiting_requests) == (162, 2826)
    assert found.ttft_p50_s == 30
    assert found.ttft_mean_s == pytest.approx(2.3518979474117756e6 / 11008)
    assert found.itl_mean_s == pytest.approx(866964.5791549598 / 7.400757e6)
    assert found.prefix_cache_hit_ratio == pytest.approx(0.0075, abs=1e-4)
    assert "ttft_p50_s 30" in {note.code: note.message for note in scraped.notes}["beyond_last_bucket"]


def test_trtllm_serve() -> None:
    scraped, true = read(*pair("trtllm_serve_saturated"), seconds=SECONDS), truth("saturated")
    found = scraped.whole
    assert scraped.engine == "tensorrt-llm"
    assert (found.max_num_seqs, found.max_num_batched_tokens, found.num_kv_cache_tokens) == (256, 8192, 12_875 * 32)
    assert found.request_rps == pytest.approx(true["finished"] / SECONDS)
    assert found.kv_cache_usage_ratio == pytest.approx(0.9924, abs=1e-4)
    for family in ("tpot", "queue_time", "prefill_time", "e2e"):
        assert found.latency(family, "mean") == pytest.approx(true[family]["mean"], rel=1e-4), family


def test_tgi() -> None:
    """It has no TTFT; a decode step is the time between two tokens, and the time per token is no TPOT, as it holds the prefill."""
    scraped, true = read(*pair("tgi_healthy"), seconds=SECONDS), truth("healthy")
    found = scraped.whole
    assert scraped.engine == "tgi"
    assert (found.ttft_mean_s, found.tpot_mean_s) == (None, None)
    assert found.itl_p50_s == pytest.approx(true["itl"]["p50"], rel=0.1)
    assert found.queue_time_mean_s == pytest.approx(true["queue_time"]["mean"], rel=1e-4)
    assert found.e2e_mean_s == pytest.approx(true["e2e"]["mean"] + 0.002, rel=1e-4)
    assert found.preprocess_time_mean_s == pytest.approx(0.002)
    assert found.offered_rps == pytest.approx(5.45)


SMALL: dict[str, tuple[str, dict[str, Any]]] = {
    "llama.cpp": (
        text("llama_cpp_2025"),
        {"num_running_requests": 0, "num_waiting_requests": 0, "kv_cache_usage_ratio": 0.491063, "tpot_mean_s": 3544.27 / 3469},
    ),
    "tensorrt-llm": (text("triton_23.11"), {"num_running_requests": 1, "max_num_seqs": 512, "num_kv_cache_tokens": 6239 * 64}),
    "dcgm": (
        text("dcgm_2.4_a100"),
        {
            "dram_active_ratio": 0.690789,
            "tensor_active_ratio": 0.92926,
            "num_xid_errors": 0,
            "pcie_bytes_per_s": 33_011_804 + 97_863_601,
            "gpu_memory_free_ratio": 35_690 / (35_690 + 4_845),
        },
    ),
    "gen_ai": (
        'gen_ai_server_time_to_first_token_seconds_bucket{le="1"} 4\n'
        'gen_ai_server_time_to_first_token_seconds_bucket{le="+Inf"} 4\n'
        "gen_ai_server_time_to_first_token_seconds_count 4\n"
        "gen_ai_server_time_to_first_token_seconds_sum 0\n",
        {f"ttft_{level}_s": 0 for level in (*PERCENTILES, "mean")},
    ),
    "inference-gateway": (
        'inference_model_request_total{model_name="m"} 100\n'
        'inference_model_request_error_total{model_name="m",error_code="429"} 5\n'
        'inference_model_request_duration_seconds_bucket{model_name="m",le="2"} 95\n'
        'inference_model_request_duration_seconds_bucket{model_name="m",le="+Inf"} 95\n'
        'inference_model_request_duration_seconds_count{model_name="m"} 95\n'
        'inference_model_request_duration_seconds_sum{model_name="m"} 0\n',
        {"failed_request_ratio": 0.05, **{f"client_e2e_{level}_s": 0 for level in (*PERCENTILES, "mean")}},
    ),
    "dynamo-frontend": (
        'dynamo_frontend_time_to_first_token_seconds_bucket{model="m",le="+Inf"} 4\n'
        'dynamo_frontend_time_to_first_token_seconds_count{model="m"} 4\n'
        'dynamo_frontend_time_to_first_token_seconds_sum{model="m"} 2\n'
        'dynamo_frontend_inflight_requests{model="m"} 7\n'
        'dynamo_frontend_model_total_kv_blocks{model="m"} 1000\n'
        'dynamo_frontend_model_kv_cache_block_size{model="m"} 16\n'
        'dynamo_frontend_model_max_num_seqs{model="m"} 256\n',
        {
            "client_ttft_mean_s": 0.5,
            "num_concurrent_requests": 7,
            "max_num_seqs": 256,
            "num_kv_cache_tokens": 16_000,
        },
    ),
    "cadvisor": (
        'container_cpu_cfs_periods_total{container="vllm",pod="a"} 1000\n'
        'container_cpu_cfs_throttled_periods_total{container="vllm",pod="a"} 680\n'
        'container_cpu_cfs_periods_total{container="",pod="a"} 5000\n'
        'container_cpu_cfs_throttled_periods_total{container="",pod="a"} 0\n'
        'container_spec_cpu_quota{container="vllm",pod="a"} 400000\n'
        'container_spec_cpu_period{container="vllm",pod="a"} 100000\n',
        {"cpu_throttled_ratio": 0.68, "num_cpu_cores_limit": 4},
    ),
}


@pytest.mark.parametrize("engine", SMALL)
def test_what_others_write(engine: str) -> None:
    scrape, expected = SMALL[engine]
    assert read(scrape).engine == engine
    assert measured(scrape) == pytest.approx(expected)


DEVICES = """
DCGM_FI_DEV_GPU_UTIL{{gpu="0"}} 99
DCGM_FI_DEV_GPU_UTIL{{gpu="1"}} 1
DCGM_FI_DEV_SM_CLOCK{{gpu="0"}} 990
DCGM_FI_DEV_SM_CLOCK{{gpu="1"}} 345
DCGM_FI_DEV_MAX_SM_CLOCK{{gpu="0"}} 1980
DCGM_FI_DEV_MAX_SM_CLOCK{{gpu="1"}} 1980
DCGM_FI_DEV_POWER_USAGE{{gpu="0"}} 690
DCGM_FI_DEV_POWER_USAGE{{gpu="1"}} 70
DCGM_FI_DEV_ENFORCED_POWER_LIMIT{{gpu="0"}} 700
DCGM_FI_DEV_ENFORCED_POWER_LIMIT{{gpu="1"}} 700
DCGM_FI_DEV_POWER_VIOLATION{{gpu="0"}} {power}
DCGM_FI_DEV_THERMAL_VIOLATION{{gpu="0"}} {heat}
DCGM_FI_DEV_POWER_VIOLATION{{gpu="1"}} 0
DCGM_FI_DEV_THERMAL_VIOLATION{{gpu="1"}} 0
DCGM_FI_DEV_XID_ERRORS{{gpu="0"}} {xid}
DCGM_FI_DEV_XID_ERRORS{{gpu="1"}} 43
"""


def test_dcgm_in_its_own_units() -> None:
    """Percent, MHz, nanoseconds: 20 s + 10 s of 60 s held down on one of two; the idle one's clock says nothing of heat."""
    devices = DEVICES.replace("}}", ',modelName="NVIDIA H100 80GB HBM3"}}')
    first, last = devices.format(power=0, heat=0, xid=0), devices.format(power=20_000_000_000, heat=10_000_000_000, xid=79)
    scraped = read(first, last, seconds=SECONDS)
    found = scraped.whole
    assert found.gpu_utilization_ratio == pytest.approx(0.5)
    assert found.sm_clock_ratio == pytest.approx(0.5)
    assert found.gpu_power_ratio == pytest.approx(690 / 700)
    assert found.throttled_time_ratio == pytest.approx(0.25)
    assert found.num_xid_errors == 1
    assert [(name, each.throttled_time_ratio) for name, each in scraped.replicas] == [("gpu 0", 0.5), ("gpu 1", 0.0)]
    assert scraped.facts["gpu"] == "NVIDIA H100 80GB HBM3"


def test_a_share_in_percent_is_left_out_and_named() -> None:
    scraped = read('vllm:kv_cache_usage_perc{model_name="m"} 85\nvllm:num_requests_running{model_name="m"} 3\n')
    assert scraped.whole.kv_cache_usage_ratio is None
    assert scraped.whole.num_running_requests == 3
    message = {note.code: note.message for note in scraped.notes}["out_of_range"]
    assert message.startswith("vllm:kv_cache_usage_perc gives kv_cache_usage_ratio = 85, left out")


@pytest.mark.parametrize("of", ENGINES + COMPANIONS, ids=lambda of: of.prefix)
def test_the_maps_name_their_sources_and_only_their_own_series(of: Any) -> None:
    others = {"process_cpu_seconds", "process_cpu_seconds_total"}
    assert all(source.startswith("https://") for source in of.sources)
    assert of.sources
    assert {name for name in of.names if not name.startswith(of.prefix)} <= others
    assert all(of.ours(name) == name for name in of.names)
