"""Which rules hold for a version, and what an engine sets when the caller does not."""

from typing import Any

import pytest

from app.domain.catalog import Catalog
from app.domain.deployment import Deployment
from app.domain.engine import version_key
from app.domain.engine_budget import peak_of, terms_of
from app.domain.engine_defaults import num_captured_graphs, settings_of
from app.domain.errors import UnknownName
from app.domain.memory import fit
from tests.domain.engines import engine
from tests.domain.shapes import BUNDLED, CATALOG, GIB, H100


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("0.26.1rc1.dev156", (0, 26, 1)),
        ("v0.19", (0, 19, 0)),
        ("0.13.0+nv26.01", (0, 13, 0)),
        ("2026-06", None),
        ("main", None),
        (None, None),
    ],
)
def test_versions_are_read(text: str | None, key: tuple[int, int, int] | None) -> None:
    assert version_key(text) == key


@pytest.mark.parametrize(
    ("version", "slug"),
    [
        ("0.5.4", "vllm-0.1-0.6"),
        ("0.8.5.post1", "vllm-0.8-0.9"),
        ("0.10.2", "vllm-0.10"),
        ("0.11.0", "vllm-0.11.0"),
        ("0.11.2", "vllm-0.11.1"),
        ("0.13.0", "vllm-0.12-0.13"),
        ("0.16.0", "vllm-0.15-0.16"),
        ("0.18.1", "vllm-0.18"),
        ("0.19.1", "vllm-0.19"),
        ("0.19.2rc1.dev134", "vllm-0.20.0"),
        ("0.20.0", "vllm-0.20.0"),
        ("0.20.1", "vllm-0.20.1-0.23"),
        ("0.21.0", "vllm-0.20.1-0.23"),
        ("0.24.0", "vllm-0.24"),
        ("0.25.1", "vllm-0.25"),
        ("0.26.1rc1.dev608", "vllm-0.26-0.27"),
        ("0.1.7", "vllm-0.1-0.6"),
        ("0.1.dev19754+g3a0914114", "vllm-0.33"),
        ("0.33.0", "vllm-0.33"),
        (None, "vllm-0.33"),
        ("nightly", "vllm-0.33"),
    ],
)
def test_rules_by_version(version: str | None, slug: str) -> None:
    assert engine("vllm", version).slug == slug


@pytest.mark.parametrize(
    ("version", "slug"),
    [("0.5", "sglang-0.5.20"), ("0.5.3", "sglang-0.5.3-0.5.7"), ("v0.4 (2025-07)", "sglang-0.4.8-0.5.2"), ("0.4.6.post5", "sglang-0.4.6")],
)
def test_a_series_stands_for_its_newest_release(version: str, slug: str) -> None:
    assert engine("sglang", version).slug == slug


@pytest.mark.parametrize(("version", "fraction"), [("0.4.4", 0.88 * 0.95), ("0.4.7", 0.88 * 0.9)])
def test_a_vision_tower_lowers_the_fraction_of_older_sglang(version: str, fraction: float) -> None:
    rules, deployment = engine("sglang", version), Deployment(engine="sglang")
    found = settings_of(rules, H100, deployment, None, BUNDLED.models["gemma-3-4b"])
    assert found.fraction == pytest.approx(fraction)


def test_the_generic_engine_has_no_rules_and_others_are_known_by_name() -> None:
    assert CATALOG.engine("generic") is None
    with pytest.raises(UnknownName, match="vllm"):
        Catalog(gpus={}, models={}, prices={}, version="empty").engine("vllm")


@pytest.mark.parametrize(
    ("gpu", "version", "sequences", "batched", "fraction"),
    [
        ("h100-sxm-80gb", "0.19.1", 1024, 8192, 0.9),
        ("a100-sxm-80gb", "0.19.1", 256, 2048, 0.9),
        ("rtx-4090-24gb", "0.19.1", 256, 2048, 0.9),
        ("rtx-pro-6000-blackwell-server-96gb", "0.19.1", 1024, 8192, 0.9),
        ("a100-sxm-80gb", "0.20.0", 256, 2048, 0.92),
        ("b200-sxm-180gb", "0.25.1", 1024, 8192, 0.92),
        ("b200-sxm-180gb", "0.28.0", 1024, 16384, 0.92),
        ("gb10-dgx-spark-128gb", "0.32.0", 1024, 8192, 0.92),
        ("b200-sxm-180gb", "0.33.0", 1024, 16384, 0.92),
        ("gb10-dgx-spark-128gb", "0.25.1", 1024, 8192, 0.92),
        ("gb10-dgx-spark-128gb", "0.33.0", 256, 2048, 0.92),
    ],
)
def test_defaults_by_device_and_version(gpu: str, version: str, sequences: int, batched: int, fraction: float) -> None:
    found = settings_of(engine("vllm", version), BUNDLED.gpus[gpu], Deployment(engine="vllm"), 131072)
    assert (found.max_num_seqs, found.max_num_batched_tokens, found.fraction) == (sequences, batched, fraction)
    assert found.defaulted == {"max_num_seqs", "max_num_batched_tokens", "memory_fraction_ratio"}


@pytest.mark.parametrize(
    ("gpu", "version", "batched"),
    [
        ("h100-sxm-80gb", "0.11.2", 16384),
        ("a100-sxm-80gb", "0.20.1", 8192),
        ("b200-sxm-180gb", "0.33.0", 16384),
        ("rtx-4090-24gb", "0.6.4", 2048),
    ],
    ids=["large", "other", "largest", "one-default"],
)
def test_a_program_that_holds_the_engine_batches_more_than_a_server(gpu: str, version: str, batched: int) -> None:
    rules, device = engine("vllm", version), BUNDLED.gpus[gpu]
    assert settings_of(rules, device, Deployment(engine="vllm", usage_context="offline"), 131072).max_num_batched_tokens == batched
    given = Deployment(engine="vllm", usage_context="offline", max_num_batched_tokens=512)
    assert settings_of(rules, device, given, 131072).max_num_batched_tokens == 512


def test_whole_prompts_were_one_step_up_to_a_length() -> None:
    old, gpu = engine("vllm", "0.6.4"), BUNDLED.gpus["rtx-3090-24gb"]
    assert settings_of(old, gpu, Deployment(), 29000).max_num_batched_tokens == 29000
    assert settings_of(old, gpu, Deployment(), 35000).max_num_batched_tokens == 2048


def test_few_batched_tokens_lower_the_default_of_sequences_only() -> None:
    rules, gpu = engine("vllm", "0.19.1"), BUNDLED.gpus["h100-sxm-80gb"]
    assert settings_of(rules, gpu, Deployment(max_num_batched_tokens=512), None).max_num_seqs == 512
    assert settings_of(rules, gpu, Deployment(max_num_batched_tokens=512, max_num_seqs=600), None).max_num_seqs == 600


@pytest.mark.parametrize(
    ("version", "gpu", "given", "reserve_mib"),
    [
        # what each version's server_args.py, or memory_hook.py, leaves outside, computed by hand [MiB]
        ("0.4.6", "h200-sxm-141gb", {"tp": 8}, 13 * 1024),
        ("0.4.9", "h100-sxm-80gb", {}, 10 * 1024),
        ("0.4.9", "h200-sxm-141gb", {"tp": 8}, 16 * 1024),
        ("0.4.9", "rtx-4090-24gb", {"tp": 2}, 3 * 1024),
        ("0.5.2", "b200-sxm-180gb", {"tp": 8}, 32 * 1024),
        ("0.5.2", "h100-sxm-80gb", {"speculative": {"num_draft_tokens": 3, "acceptance_ratio": 0.5}}, 12 * 1024),
        ("0.5.9", "h100-sxm-80gb", {}, 512 + 8192 * 1.5 + 2 * 256 + 128),
        ("0.5.9", "h200-sxm-141gb", {"tp": 8}, 512 + 8192 * 1.5 + 2 * 512 + 1024),
        ("0.5.9", "h200-sxm-141gb", {"dp": 8}, 512 + 8192 * 1.5 + 2 * 256 + 128 + 3 * 256 * 8),
        ("0.5.9", "rtx-4090-24gb", {}, 512 + 2048 * 1.5 + 2 * 24 + 128),
        ("0.5.12", "h100-sxm-80gb", {}, 512 + 8192 * 1.5 + 2 * 256 + 128 + 58 * 8),
        ("0.5.23", "h200-sxm-141gb", {"tp": 8}, 512 + 8192 * 1.5 + 2 * 512 + 1024 + 58 * 8),
        ("0.5.23", "rtx-4090-24gb", {}, 512 + 4096 * 1.5 + 2 * 48 + 128 + 50 * 8),
        ("0.5.23", "h100-sxm-80gb", {"max_num_batched_tokens": 2048}, 10 * 1024),  # the least on a large device
    ],
)
def test_sglang_derives_its_fraction_from_what_it_reserves(version: str, gpu: str, given: dict[str, Any], reserve_mib: float) -> None:
    memory = BUNDLED.gpus[gpu].require_memory_bytes()
    found = settings_of(engine("sglang", version), BUNDLED.gpus[gpu], Deployment.model_validate(given), None)
    assert found.fraction == round((memory - reserve_mib * 2**20) / memory, 3)


def test_models_that_see_and_latent_attention_change_the_reserve_of_sglang() -> None:
    rules, gpu = engine("sglang", "0.5.23"), BUNDLED.gpus["h200-sxm-141gb"]
    plain, latent, seeing = (
        settings_of(rules, gpu, Deployment(), None, BUNDLED.models[name]).fraction or 0
        for name in ("qwen3-32b", "deepseek-v2-lite", "qwen3-vl-8b")
    )
    memory = gpu.require_memory_bytes()
    assert plain - latent == pytest.approx((1536 - 58 * 8) * 2**20 / memory, abs=0.001)
    assert seeing == pytest.approx(0.92 * plain)


@pytest.mark.parametrize(("tp", "fraction"), [(1, 0.88), (2, 0.87), (4, 0.85), (8, 0.81), (16, 0.79)])
def test_older_sglang_takes_its_fraction_from_the_number_of_gpus(tp: int, fraction: float) -> None:
    assert settings_of(engine("sglang", "0.4.6"), BUNDLED.gpus["h100-sxm-80gb"], Deployment(tp=tp), None).fraction == fraction


@pytest.mark.parametrize(("sequences", "sizes"), [(1, 2), (16, 7), (64, 19), (1024, 51)])
def test_graphs_are_captured_up_to_twice_the_sequences(sequences: int, sizes: int) -> None:
    found = settings_of(engine("vllm", "0.19.1"), BUNDLED.gpus["h100-sxm-80gb"], Deployment(max_num_seqs=sequences), None)
    assert num_captured_graphs(found) == sizes


@pytest.mark.parametrize(
    ("model", "version", "gpu", "inside"),
    [
        ("qwen3-8b", "0.19.1", "h100-sxm-80gb", False),
        ("qwen3-8b", "0.20.0", "h100-sxm-80gb", True),
        ("qwen3-8b", "0.25.0", "h100-sxm-80gb", False),
        ("qwen3-30b-a3b-2507", "0.25.0", "h100-sxm-80gb", True),
        ("qwen3.5-27b", "0.25.0", "h100-sxm-80gb", True),
        ("qwen3-8b", "0.28.0", "h100-sxm-80gb", False),
        ("qwen3-8b", "0.29.0", "h100-sxm-80gb", True),
        ("qwen3-30b-a3b-2507", "0.24.0", "mi300x-192gb", False),
        ("qwen3-30b-a3b-2507", "0.26.0", "mi300x-192gb", True),
    ],
    ids=[
        "not-yet",
        "first",
        "dense-on-second-runner",
        "experts",
        "state",
        "dense-to-0.28",
        "second-runner-estimates",
        "amd-not-yet",
        "amd",
    ],
)
def test_graphs_inside_the_budget_by_version_model_and_device(model: str, version: str, gpu: str, inside: bool) -> None:
    rules, device, deployment, llm = engine("vllm", version), BUNDLED.gpus[gpu], Deployment(engine="vllm"), BUNDLED.models[model]
    settings = settings_of(rules, device, deployment, 8192)
    found = terms_of(llm, device, rules, deployment, settings, peak_of(llm, rules, deployment, settings, 8192))
    assert (found.cuda_graph_bytes > 0, found.graphs_outside_bytes > 0) == (inside, not inside)


def test_sglang_makes_the_pool_that_its_documentation_shows() -> None:
    """No record of the fit: Llama 3.1 8B on one H100 with 0.4.1 and its own fraction, https://docs.sglang.ai (Sending Requests)."""
    found = fit(BUNDLED.models["llama-3.1-8b"], H100, Deployment(engine="sglang", engine_version="0.4.1"), engine("sglang", "0.4.1"))
    assert found.kv_cache_bytes / GIB == pytest.approx(54.26, rel=0.005)
    assert found.capacity_tokens() == pytest.approx(444_500, rel=0.005)
