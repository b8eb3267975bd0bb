"""Every bundled model recomputed from its layer groups, against the figures recorded with it, to the integer."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.catalog.loader import load_bundled
from app.domain.llm import Llm

MODELS = load_bundled().models
RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "recorded_models.json").read_text())
WITH_GROUPS = sorted(slug for slug, model in MODELS.items() if model.layer_groups is not None)
BF16_BYTES = 2
FP32_BYTES = 4

# No layer shapes are published for these two: size and KV cache are the vendor's statements.
STATED_ONLY = {"qwen3.8-flash-next", "deepseek-v4.1-flash"}

# Models without an exact Hub index to compare with: the size in the name or announcement, and how far num_params lies from it.
NO_INDEX = {
    "mistral-large-2411": (123e9, 0.004),
    "dbrx": (132e9, 0.004),
    "mpt-30b": (30e9, 0.002),
    "gpt-j-6b": (6e9, 0.009),
    "olmo-2-7b": (7e9, 0.05),
    "opt-125m": (125e6, 0.002),
    "opt-1.3b": (1.3e9, 0.013),
    "opt-2.7b": (2.7e9, 0.018),
    "opt-6.7b": (6.7e9, 0.007),
    "opt-13b": (13e9, 0.012),
    "opt-30b": (30e9, 0.001),
    "opt-66b": (66e9, 0.005),
    "mistral-large-3-675b": (675e9, 0.002),  # MLA ranks inferred: 673B language model + 2.5B vision encoder, both rounded by the vendor
}


def test_every_model_of_the_record_is_bundled() -> None:
    assert set(MODELS) == set(RECORDED)
    assert len(MODELS) == 342
    assert set(MODELS) - set(WITH_GROUPS) == STATED_ONLY


@pytest.mark.parametrize("slug", WITH_GROUPS)
def test_parameters_add_up(slug: str) -> None:
    model, recorded = MODELS[slug], RECORDED[slug]
    assert model.num_language_params() == recorded["num_language_params"]
    assert model.num_language_params(active=True) == recorded["num_active_params"] == model.num_active_params
    assert model.num_params == recorded["num_params"] == recorded["num_language_params"] + (model.num_vision_params or 0)
    assert model.num_layers == recorded["num_layers"]


@pytest.mark.parametrize("slug", sorted(set(MODELS) - set(NO_INDEX)))
def test_published_count_is_explained_exactly(slug: str) -> None:
    """The Hub counts what a checkpoint stores: tied heads, MTP layers, block scales and buffers come on top, each recorded."""
    recorded = RECORDED[slug]
    deltas = sum(delta["params"] for delta in recorded["hub_deltas"])
    assert recorded["hub_index_params"] == MODELS[slug].num_params + deltas
    mtp = [delta["params"] for delta in recorded["hub_deltas"] if "MTP" in delta["what"] and delta["basis"] == "arithmetic"]
    assert mtp == ([MODELS[slug].num_mtp_params] if MODELS[slug].num_mtp_params else [])


def test_models_without_an_index_are_listed() -> None:
    assert {slug for slug, recorded in RECORDED.items() if recorded["hub_index_params"] is None} == set(NO_INDEX)


@pytest.mark.parametrize("slug", sorted(NO_INDEX))
def test_models_without_an_index_are_close_to_the_rounded_figure(slug: str) -> None:
    published, tolerance_ratio = NO_INDEX[slug]
    assert MODELS[slug].num_params == pytest.approx(published, rel=tolerance_ratio)


def kv_figures(model: Llm) -> dict[str, float]:
    """The recorded figures, summed over the layers of the model on one rank."""
    caches = list(model.caches())
    full = sum(layers * cache.per_token for layers, cache in caches)
    windowed = sum(layers * cache.per_window_token for layers, cache in caches)
    state = sum(layers * cache.state for layers, cache in caches)
    convolution = sum(layers * cache.convolution for layers, cache in caches)
    return {
        "bytes_per_token_bf16": full * BF16_BYTES,
        "bytes_per_token_bf16_below_windows": (full + windowed) * BF16_BYTES,
        "sliding_window_bytes_max_bf16": sum(n * cache.per_window_token * cache.window_tokens for n, cache in caches) * BF16_BYTES,
        "recurrent_state_elements": state,
        "conv_state_elements": convolution,
        "indexer_bytes_per_token_bf16": sum(layers * cache.index_per_token for layers, cache in caches) * BF16_BYTES,
        "recurrent_state_bytes_fp32_state_bf16_conv": state * FP32_BYTES + convolution * BF16_BYTES,
    }


@pytest.mark.parametrize("slug", WITH_GROUPS)
def test_kv_cache_adds_up(slug: str) -> None:
    assert kv_figures(MODELS[slug]) == RECORDED[slug]["kv_cache"]


@pytest.mark.parametrize(
    ("slug", "field"), [("qwen3.8-flash-next", "bytes_per_token_bf16"), ("deepseek-v4.1-flash", "bytes_per_token_native")]
)
def test_stated_kv_cache_is_the_recorded_one(slug: str, field: str) -> None:
    model = MODELS[slug]
    assert model.stated_kv_cache is not None
    assert model.stated_kv_cache.bytes_per_token == RECORDED[slug]["kv_cache"][field]
    assert model.num_params == RECORDED[slug]["num_params"]
    assert model.num_active_params == RECORDED[slug]["num_active_params_vendor"]


VENDOR_ACTIVE_STATED = sorted(slug for slug, r in RECORDED.items() if r["num_active_params_vendor"] and r["num_active_params"])
VENDOR_ROUNDING = 1e9


@pytest.mark.parametrize("slug", VENDOR_ACTIVE_STATED)
def test_active_parameters_are_the_vendors_with_or_without_embeddings(slug: str) -> None:
    """Vendors round to billions and differ in whether embeddings and head count as active: the stated figure lies in that band."""
    model, stated = MODELS[slug], RECORDED[slug]["num_active_params_vendor"]
    embeddings = (model.vocab_size or 0) * (model.hidden_size or 0) * (1 if model.tie_word_embeddings else 2)
    assert model.num_active_params - embeddings - VENDOR_ROUNDING <= stated <= model.num_active_params * 1.05


@pytest.mark.parametrize("slug", sorted(MODELS))
def test_native_size_is_what_its_basis_says(slug: str) -> None:
    native = MODELS[slug].native
    if native.weights_basis == "2 bytes x num_params":
        assert native.weights_bytes == 2 * MODELS[slug].num_params
    elif native.weights_bytes is not None:
        # Nothing is stored below half a byte or above two bytes a parameter.
        assert 0.5 * MODELS[slug].num_params < native.weights_bytes < 2 * MODELS[slug].num_params
