"""The precision of the KV cache that an engine takes where the request leaves it open."""

import pytest

from app.services import estimates
from app.services.catalog import CatalogHolder
from app.services.requests import ConcurrencyRequest, MemoryRequest

LAYERS = 61
INDEX_KEY = 128 + 4
"""8-bit key and its scale [bytes]."""


def memory_request(model: str, gpu: str, version: str, kv_cache: str = "auto") -> MemoryRequest:
    deployment = {"engine": "sglang", "engine_version": version, "kv_cache": kv_cache, "tp": 8, "max_model_len_tokens": 65536}
    return MemoryRequest.model_validate({"model": model, "gpu": gpu, "deployment": deployment})


@pytest.mark.parametrize(
    ("gpu", "version", "kv_cache", "latent_bytes"),
    [
        ("b200-sxm-180gb", "0.5.6", "auto", 512 + 4 * 4 + 2 * 64),
        ("b200-sxm-180gb", "0.5.20", "auto", 512 + 64),
        ("b200-sxm-180gb", "0.5.20", "bf16", 2 * (512 + 64)),
        ("h200-sxm-141gb", "0.5.20", "auto", 2 * (512 + 64)),
        ("h200-sxm-141gb", "0.5.9", "fp8", 512 + 4 * 4 + 2 * 64),
    ],
    ids=["scales", "plain", "stated", "older-device", "older-device-stated"],
)
def test_sglang_keeps_sparse_latents_in_8_bits_on_newer_devices(gpu: str, version: str, kv_cache: str, latent_bytes: int) -> None:
    found = estimates.memory(CatalogHolder().current, memory_request("deepseek-v3.2", gpu, version, kv_cache))
    per_token = LAYERS * (latent_bytes + INDEX_KEY)
    assert found.kv_capacity_tokens == pytest.approx(found.per_gpu.kv_cache_bytes / per_token, abs=1)
    named = [note.message for note in found.assumptions if note.code == "kv_cache_auto"]
    assert (found.kv_cache, len(named)) == ("fp8" if latent_bytes < 1000 else "bf16", kv_cache == "auto")


@pytest.mark.parametrize(("model", "kv_cache"), [("deepseek-v3", "bf16"), ("deepseek-v3.2", "fp8")])
def test_only_sparse_latents_are_meant_and_every_answer_says_so(model: str, kv_cache: str) -> None:
    asked = memory_request(model, "b200-sxm-180gb", "0.5.20")
    assert estimates.memory(CatalogHolder().current, asked).kv_cache == kv_cache
    many = ConcurrencyRequest.model_validate({**asked.model_dump(exclude_unset=True), "tokens_per_sequence": {"mean": 8000}})
    found = estimates.concurrency(CatalogHolder().current, many)
    assert kv_cache in next(note.message for note in found.assumptions if note.code == "kv_cache_auto")


@pytest.mark.parametrize(
    ("model", "engine", "version", "weights", "kv_cache"),
    [
        ("llama-3.1-70b", "vllm", "0.19", "nvfp4", "fp8"),
        ("llama-3.1-70b", "vllm", "0.13", "nvfp4", "bf16"),
        ("llama-3.1-70b", "vllm", "0.19", "fp8", "bf16"),
        ("llama-3.1-70b", "sglang", "0.5.9", "nvfp4", "fp8"),
        ("llama-3.1-70b", "tensorrt-llm", "1.0", "fp8", "fp8"),
        ("llama-3.1-70b", "tensorrt-llm", "1.0", "bf16", "bf16"),
        ("RedHatAI/Llama-3.1-70B-Instruct-NVFP4", "vllm", "0.19", None, "bf16"),
        ("deepseek-r1", "tensorrt-llm", "1.0", "fp8", "bf16"),
    ],
    ids=["nvfp4", "older-vllm", "fp8-by-several", "sglang", "tensorrt-fp8", "16-bits", "named-checkpoint", "published-in-fp8"],
)
def test_auto_follows_the_usual_checkpoint_of_a_format(model: str, engine: str, version: str, weights: str | None, kv_cache: str) -> None:
    deployment = {"engine": engine, "engine_version": version, "weights": weights, "tp": 8, "max_model_len_tokens": 16384}
    asked = MemoryRequest.model_validate({"model": model, "gpu": "b200-sxm-180gb", "deployment": deployment})
    found = estimates.memory(CatalogHolder().current, asked)
    assert found.kv_cache == kv_cache
    assert len([note for note in found.assumptions if note.code == "kv_cache_auto"]) == 1
