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
