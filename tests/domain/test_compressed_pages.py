"""Compressed attention: one block of all layers, and what a request takes of it."""

import pytest

from app.domain.paging import PagedPool
from tests.domain.engines import pool


def test_a_block_holds_a_page_of_every_history_layer() -> None:
    """21 layers of 64 entries and 64 index keys, 20 of two entries, each page a multiple of 576: 21 x (37,440 + 8,640) + 20 x 1,728."""
    found = pool("deepseek-v4-flash", "0.25.0", "fp8", max_num_batched_tokens=8192)
    assert isinstance(found, PagedPool)
    assert found.bytes_per_block == 1_002_240
    assert len(found.groups) == 5  # history, two of windows, two of compressor states


def test_a_request_takes_history_windows_and_states() -> None:
    """4,096 blocks of history, 2 x 131 of windows, 2,051 and 1,041 of states for the step in flight: 6.95 GiB at a million tokens.

    Recorded: 20.43 such requests on eight B200 at 95 % utilisation, whose pool is about 145 GiB.
    """
    found = pool("deepseek-v4-flash", "0.25.0", "fp8", max_num_batched_tokens=8192)
    assert isinstance(found, PagedPool)
    assert found.request_blocks(1_048_576) == 4096 + 2 * 131 + 2051 + 1041


@pytest.mark.parametrize(("length", "recorded_gib"), [(30_000, 6.66), (13_528, 5.44)], ids=["asked for", "longest that fits"])
def test_tuples_of_pages_until_0_23(length: int, recorded_gib: float) -> None:
    """22 tuples of 37,440 + 8,640 + 1,728 bytes, and windows that keep a step of 16,384 tokens, the default of a program.

    Recorded: https://github.com/vllm-project/vllm/issues/44376 (0.22 on two GH200, in a program).
    """
    found = pool("deepseek-v4-flash", "0.22.1", "fp8", max_num_batched_tokens=16384)
    assert isinstance(found, PagedPool)
    assert found.bytes_per_block == 22 * (37_440 + 8_640 + 1_728)
    assert found.request_bytes(length) / 2**30 == pytest.approx(recorded_gib, abs=0.005)


@pytest.mark.parametrize("version", ["0.25.0", "0.28.0"])
def test_short_requests_are_bounded_by_their_own_length(version: str) -> None:
    found = pool("deepseek-v4-flash", version, "fp8", max_num_batched_tokens=8192)
    assert found.request_bytes(256) < found.request_bytes(4096) < found.request_bytes(65536)


def test_tensor_parallelism_does_not_shrink_it() -> None:
    alone, eight = (pool("deepseek-v4-flash", "0.25.0", "fp8", tp=tp, max_num_batched_tokens=8192) for tp in (1, 8))
    assert eight.request_bytes(100_000) == alone.request_bytes(100_000)
