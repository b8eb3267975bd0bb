"""Blocks and groups against recorded start-ups: block size, token line and concurrency of the printed KV memory."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.deployment import Deployment, check_layout
from app.domain.errors import InvalidInput
from app.domain.layer_kinds import LayerKind, layer_kinds
from app.domain.paging import CellPool, PagedPool, paged_pool
from app.domain.paging_rules import PagingRules
from tests.domain.engines import pool
from tests.domain.shapes import BUNDLED, GIB

FULL = LayerKind("full", 12, 4096)
WINDOW = LayerKind("sliding", 12, 4096, 128)


@pytest.mark.parametrize(
    ("model", "version", "kv_cache", "options", "kv_gib", "length", "block", "tokens", "concurrency"),
    [
        # 5 of 8 layers are linear attention: 624 blocks of 784 / (42 full + 3 groups of state); the line divides by 4 groups
        ("qwen3.5-27b", "0.19.0", "auto", {"tp": 4}, 7.47, 32768, 784, 122304, 13.87),
        ("qwen3.5-27b", "0.19.0", "auto", {"tp": 4}, 7.56, 50000, 784, 123088, 9.42),
        # a draft layer joins the attention and each draft token adds a state block: 1,545 / (328 + 3 x 4)
        ("qwen3.8-27b", "0.25.1", "auto", {"drafts": 3}, 80.17, 262144, 800, 1191213, 4.54),
        ("qwen3.8-27b", "0.25.1", "fp8", {"drafts": 3}, 76.4, 262144, 1600, 2192477, 8.36),
        ("qwen3.6-35b-a3b", "0.25.1", "auto", {"drafts": 3}, 74.22, 262144, 1072, 3366051, 12.84),
        # pages of global layers hold 32 tokens, those of windows 16: 138,739 / (8,192 + 5 x 221)
        ("gemma-4-26b-a4b", "0.25.1", "auto", {"max_num_batched_tokens": 2496}, 84.68, 262144, 16, 3912140, 14.92),
        ("gemma-4-26b-a4b", "0.20.0", "auto", {"max_num_batched_tokens": 4096}, 40.61, 8192, 16, 177440, 35.75),
        ("gpt-oss-20b", "0.13.0", "auto", {"max_num_batched_tokens": 2048}, 12.94, 8192, 16, 282624, 54.44),
        ("qwen3-30b-a3b-2507", "0.10.2", "auto", {}, 8.68, 6144, 16, 94784, 15.43),
        ("kimi-k2-thinking", "0.11.1", "auto", {"tp": 8}, 46.8, 131072, 64, 715072, 5.455),
    ],
)
def test_recorded_pools(
    model: str,
    version: str,
    kv_cache: str,
    options: dict[str, Any],
    kv_gib: float,
    length: int,
    block: int,
    tokens: int,
    concurrency: float,
) -> None:
    found = pool(model, version, kv_cache, **options)
    room = int(kv_gib * GIB)
    assert isinstance(found, PagedPool)
    assert found.block_size_tokens == block
    assert found.capacity_tokens(room, length) == pytest.approx(tokens, rel=4e-4)  # the pool is printed to two decimals
    assert found.concurrency(room, length) == pytest.approx(concurrency, abs=0.006)


def cut(kinds: list[LayerKind], *, batched: int = 2048, pp: int = 1, **rules: object) -> PagedPool:
    found = paged_pool(
        kinds, PagingRules.model_validate(rules), block_size_tokens=16, pp=pp, max_num_batched_tokens=batched,
        prefix_caching=None, num_draft_tokens=0,
    )  # fmt: skip
    assert found is not None
    return found


def test_a_window_keeps_its_tokens_and_the_steps_in_flight() -> None:
    assert cut([FULL, WINDOW]).request_blocks(8192) == 512 + 137  # ceil((127 + 2,048) / 16) + 1
    assert cut([FULL, WINDOW], num_window_batches=2).request_blocks(8192) == 512 + 265
    assert cut([FULL, WINDOW]).request_blocks(160) == 10 + 11  # shorter than the window with its step


def test_a_chunked_window_has_no_block_to_spare() -> None:
    assert cut([FULL, LayerKind("chunked", 12, 4096, 128)]).request_blocks(8192) == 512 + 136


def test_the_smaller_kind_sets_the_group_unless_both_are_close() -> None:
    draft = LayerKind("full", 13, 4096)
    assert cut([draft, WINDOW]).num_group_layers == 12
    assert len(cut([draft, WINDOW]).groups) == 3
    assert cut([draft, WINDOW], group_padding_ratio=1.5).num_group_layers == 13
    assert len(cut([draft, WINDOW], group_padding_ratio=1.5).groups) == 2


def test_layers_of_full_attention_are_one_group_whatever_their_size() -> None:
    found = cut([LayerKind("full", 61, 1152), LayerKind("full", 61, 132)])
    assert (len(found.groups), found.bytes_per_block) == (1, 61 * (1152 + 132) * 16)


def test_a_stage_holds_its_share_of_each_group() -> None:
    assert cut([FULL, WINDOW], pp=5).num_group_layers == 3


def test_prefix_caching_of_state_takes_a_second_block() -> None:
    state = LayerKind("state", 12, 0, 0, 60_000)
    apart = cut([FULL, state]).request_blocks(1600)
    caching = paged_pool(
        [FULL, state], PagingRules(), block_size_tokens=16, pp=1, max_num_batched_tokens=2048, prefix_caching=True, num_draft_tokens=0
    )
    assert caching is not None
    assert caching.request_blocks(1600) == apart + 1


def test_nothing_to_cache_is_no_pool() -> None:
    assert (
        paged_pool([], PagingRules(), block_size_tokens=16, pp=1, max_num_batched_tokens=1, prefix_caching=None, num_draft_tokens=0) is None
    )


@pytest.mark.parametrize(("build", "cells"), [("b6000", 768), ("b7000", 1024)], ids=["one-slot", "four-slots"])
def test_cells_of_windows_are_rounded_and_counted_per_slot(build: str, cells: int) -> None:
    found = pool("gpt-oss-20b", build, name="llama.cpp")
    assert isinstance(found, CellPool)
    # 12 full and 12 windowed layers of 2,048 bytes: window 128 x slots (1 by default, later 4) + micro-batch 512, in steps of 256 cells
    assert found.request_bytes(131072) == 12 * 2048 * 131072 + 12 * 2048 * cells
    assert found.capacity_tokens(found.request_bytes(131072), 131072) == 131072


@pytest.mark.parametrize(
    ("build", "slots", "cells"),
    [("b7000", 1, 768), ("b7000", 2, 2 * 768), ("b9500", 8, 8 * 768), ("b6000", 2, 768), ("b6000", 8, 1536)],
)
def test_slots_whose_number_is_given_keep_windows_of_their_own(build: str, slots: int, cells: int) -> None:
    found = pool("gpt-oss-20b", build, name="llama.cpp", max_num_seqs=slots, max_model_len_tokens=131072)
    # padded to 256 by slot; earlier builds put all windows beside one micro-batch: 128 x slots + 512
    assert found.request_bytes(131072) == 12 * 2048 * 131072 + 12 * 2048 * cells


def test_a_slot_keeps_no_more_than_its_part_of_the_context() -> None:
    found = pool("gpt-oss-20b", "b9500", name="llama.cpp", max_num_seqs=8)
    assert found.request_bytes(4096) == 12 * 2048 * 4096 + 12 * 2048 * 8 * 512


@pytest.mark.parametrize(
    ("model", "version", "share"),
    [
        ("gpt-oss-20b", "0.5.20", 0.8),
        ("gpt-oss-20b", "0.5.8", 0.8),
        ("gpt-oss-20b", "0.5.7", 1),
        ("llama-4-scout", "0.5.8", 0.8),
        ("llama-4-scout", "0.5.3", 1),
        ("gemma-4-31b", "0.5.13", 0.8),
        ("gemma-3-27b", "0.5.20", 1),
        ("gemma-3-27b", "0.4.4", 1),
    ],
)
def test_sglang_sizes_a_pool_of_windows_by_ratio_for_the_models_it_lists(model: str, version: str, share: float) -> None:
    found = pool(model, version, name="sglang")
    kinds = layer_kinds(BUNDLED.models[model], "bf16", PagingRules(), tp=1)
    per_token = sum(kind.num_layers * kind.bytes_per_token * (share if kind.window_tokens else 1) for kind in kinds)
    assert any(kind.window_tokens for kind in kinds)
    assert found.capacity_tokens(int(1000 * per_token), 131072) == pytest.approx(1000, abs=1)


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_a_longer_request_never_reserves_less(short: int, more: int) -> None:
    for model in ("gpt-oss-20b", "qwen3.5-27b", "deepseek-v3", "llama-3.1-8b"):
        found = pool(model, "0.25.1")
        assert found.request_bytes(short) <= found.request_bytes(short + more)


def test_context_parallel_ranks_share_the_tokens_of_a_sequence() -> None:
    alone, shared = (pool("kimi-k2-thinking", "0.11.1", tp=8, dcp=ranks) for ranks in (1, 8))
    room = int(46.8 * GIB)
    assert shared.capacity_tokens(room, 131072) == 8 * alone.capacity_tokens(room, 131072) == pytest.approx(5721088, rel=1e-3)
    assert shared.request_bytes(131072) == alone.request_bytes(131072 // 8)


@pytest.mark.parametrize(
    ("model", "layout", "expected"),
    [
        ("kimi-k2-thinking", {"tp": 8, "dcp": 3}, "divisor of tp"),
        ("kimi-k2-thinking", {"tp": 8, "dcp": 8, "engine": "sglang"}, "vllm only"),
        ("llama-3.1-8b", {"tp": 8, "dcp": 2}, "key/value heads"),
        ("qwen3-30b-a3b-2507", {"tp": 8, "dcp": 4}, "key/value heads"),
        ("gemma-3-27b", {"tp": 16, "dcp": 2}, "windows"),
        ("deepseek-v4-pro", {"tp": 8, "dcp": 2}, "history"),
    ],
    ids=["no-divisor", "other-engine", "no-replicas", "more-than-replicas", "windows", "compressed"],
)
def test_context_parallel_ranks_that_no_engine_runs_are_refused(model: str, layout: dict[str, object], expected: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_layout(BUNDLED.models[model], Deployment.model_validate({"engine": "vllm", **layout}))
    assert caught.value.field == "/deployment/dcp"
    assert expected in (caught.value.expected or "")


def test_replicated_heads_make_room_for_context_parallel_ranks() -> None:
    check_layout(BUNDLED.models["qwen3-30b-a3b-2507"], Deployment(engine="vllm", tp=8, dcp=2))
