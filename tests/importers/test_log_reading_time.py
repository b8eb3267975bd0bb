"""Logs that are large in an unusual way are read in seconds."""

import contextlib
import time

import pytest

from app.domain.errors import InvalidInput
from app.importers.engine_log import read_log

pytestmark = pytest.mark.slow

POOL = "INFO [gpu_worker.py:1] Available KV cache memory: 5.00 GiB\nINFO [kv_cache_utils.py:1] GPU KV cache size: 40,960 tokens\n"


@pytest.mark.parametrize(
    "piece", ["args ", "(", "Load weight end. type=", "LLM engine (v", "10%|█|", "KV Cache is allocated #tokens: 1, K size: "]
)
def test_a_long_line_is_not_searched_again_and_again(piece: str) -> None:
    """A line of one mebibyte that begins like a figure all over takes a tenth of a second."""
    begun = time.perf_counter()
    with pytest.raises(InvalidInput):
        read_log(piece * (2**20 // len(piece)))
    assert time.perf_counter() - begun < 10


@pytest.mark.parametrize("text", ["a\n" * 2**19, "a\n" * 2**19 + POOL], ids=["of-none", "before-a-start"])
def test_half_a_million_short_lines_take_seconds(text: str) -> None:
    """Each line is looked at once for all that an engine prints, two seconds; figure by figure it was a minute."""
    begun = time.perf_counter()
    with contextlib.suppress(InvalidInput):
        read_log(text)
    assert time.perf_counter() - begun < 20
