"""A shared prefix and a reserve: blocks counted by hand, and what holds for every engine and model."""

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.domain.deployment import Deployment
from app.domain.memory import fit
from app.domain.memory_fit import Fit
from app.domain.paging import CellPool, PagedPool
from app.domain.prefix_cache import PoolShares, PrefixCache, block_unit, not_shared, pool_shares
from app.services.references import resolve_served
from tests.domain.shapes import CATALOG

MODELS = ("llama-3.1-8b", "deepseek-v3", "deepseek-v4-flash", "gemma-3-27b", "gpt-oss-120b", "qwen3-next-80b-a3b", "nemotron-h-47b")
H200 = CATALOG.gpus["h200-sxm-141gb"]
ENGINES = ("generic", "vllm", "sglang", "tensorrt-llm", "llama.cpp")


def replica(model: str, engine: str, **more: object) -> Fit:
    deployment = Deployment.model_validate({"tp": 8, "engine": engine, "max_model_len_tokens": 40_000, **more})
    llm = resolve_served(CATALOG, model, deployment)
    return fit(llm, H200, deployment, CATALOG.engine(deployment.engine, deployment.engine_version, field="/engine"))


FOUND = {(model, engine): replica(model, engine) for model in MODELS for engine in ENGINES}


def shares(found: Fit, tokens: float, **prefix: float) -> PoolShares:
    known = pool_shares(found, tokens, PrefixCache(**prefix))
    assert known is not None
    return known


def test_whole_blocks_of_a_dense_model_are_kept_once() -> None:
    found = FOUND["llama-3.1-8b", "vllm"]
    blocks = found.num_blocks or 0
    use = shares(found, 4500, shared_tokens=3001)
    assert (use.pool, use.shared_tokens, use.shared, use.request) == (blocks, 187 * 16, 187, 282)
    assert use.sequences == (blocks - 187) // (282 - 187)
    assert use.shared_bytes == 187 * 16 * 32 * 2 * 128 * 2  # 32 layers, one of 8 key/value heads of 128 on each accelerator, 16 bits
    held = shares(found, 4500, shared_tokens=3001, reserve_ratio=0.25)
    assert held.sequences == (blocks - blocks // 4 - 187) // (282 - 187)


def test_the_generic_engine_shares_token_by_token() -> None:
    found = FOUND["llama-3.1-8b", "generic"]
    per_token = 32 * 2 * 128 * 2
    use = shares(found, 4500, shared_tokens=3001)
    assert (use.shared, use.request) == (3001 * per_token, 4500 * per_token)
    assert use.sequences == (found.kv_cache_bytes - 3001 * per_token) // (1499 * per_token)


@pytest.mark.parametrize("engine", ["generic", "vllm"])
def test_windowed_layers_are_held_by_every_request(engine: str) -> None:
    found = FOUND["gemma-3-27b", engine]
    use = shares(found, 20_000, shared_tokens=16_000)
    pool = found.pool
    if isinstance(pool, PagedPool):
        full = [group for group in pool.groups if group.kind.kind == "full"]
        assert 0 < len(full) < len(pool.groups)
        assert use.shared == sum(16_000 // group.block_tokens for group in full)
    else:
        assert found.cost is not None
        assert use.shared == 16_000 * found.cost.bytes_per_token
        assert use.request - use.shared >= 4000 * found.cost.bytes_per_token + 1024 * found.cost.windowed_bytes_per_token


def test_recurrent_states_are_held_by_every_request() -> None:
    off, on = FOUND["nemotron-h-47b", "vllm"], replica("nemotron-h-47b", "vllm", engine_version="0.20.1", prefix_caching=True)
    old = replica("nemotron-h-47b", "vllm", engine_version="0.20.1")
    assert not_shared(off) is None  # the newest version caches them unless told otherwise
    assert "recurrent" in (not_shared(old) or "")
    assert shares(old, 20_000, shared_tokens=16_000).shared == 0
    pool = on.pool
    assert isinstance(pool, PagedPool)
    use = shares(on, 20_000, shared_tokens=16_000)
    unit = block_unit(on)
    states = sum(group.kind.kind == "state" for group in pool.groups) * pool.num_state_blocks
    assert states > 0
    assert use.shared_tokens == 16_000 // unit * unit
    assert use.request - use.shared == states + (len(pool.groups) - states // pool.num_state_blocks) * (
        math.ceil(20_000 / unit) - 16_000 // unit
    )


def test_slots_share_nothing() -> None:
    found = FOUND["llama-3.1-8b", "llama.cpp"]
    assert "slot" in (not_shared(found) or "")
    assert shares(found, 4500, shared_tokens=3000).sequences == found.sequences(4500)


def test_context_ranks_share_blocks_of_all_of_them() -> None:
    found = replica("deepseek-v3", "vllm", dcp=8, weights="fp8")
    unit = block_unit(found)
    assert unit == 8 * block_unit(FOUND["deepseek-v3", "vllm"])
    use = shares(found, 9000, shared_tokens=8191)
    assert use.shared_tokens == 8191 // unit * unit
    assert use.shared == use.shared_tokens // unit


def test_what_a_request_does_not_find_it_holds_itself() -> None:
    found = FOUND["llama-3.1-8b", "vllm"]
    blocks = found.num_blocks or 0
    half = shares(found, 4500, shared_tokens=3001, hit_ratio=0.5)
    assert half.sequences == (blocks - 187) // (282 - 93)
    assert shares(found, 4500, shared_tokens=3001, hit_ratio=0).sequences == found.sequences(4500)


@example(key=("deepseek-v3", "generic"), tokens=14232.0, part=1.0, hit=1.0, reserves=(0.0, 0.0))  # a billion bytes found, and one more
@settings(max_examples=300, deadline=None)
@given(
    key=st.sampled_from(sorted(FOUND)),
    tokens=st.floats(0.02, 60_000),
    part=st.floats(0, 1),
    hit=st.floats(0, 1),
    reserves=st.tuples(st.floats(0, 0.9), st.floats(0, 0.9)),
)
def test_sharing_never_costs_and_a_reserve_never_helps(
    key: tuple[str, str], tokens: float, part: float, hit: float, reserves: tuple[float, float]
) -> None:
    found = FOUND[key]
    assert found.holds_requests
    alone = found.sequences(tokens)
    assert shares(found, tokens).sequences == alone
    assert shares(found, tokens, shared_tokens=part * tokens, hit_ratio=hit).sequences >= (alone or 0)
    little, much = sorted(reserves)
    kept = [shares(found, tokens, shared_tokens=part * tokens, hit_ratio=hit, reserve_ratio=ratio) for ratio in (little, much)]
    assert kept[0].sequences >= kept[1].sequences >= 0
    for use in kept:
        assert 0 <= use.shared_tokens <= part * tokens
        assert use.found <= use.shared < use.request or not use.shared
        used = use.shared + use.sequences * (use.request - use.found)
        assert used <= use.pool - use.reserve or use.sequences == (use.pool - use.reserve) // use.request


def test_the_replicas_cover_blocks_cells_and_bytes() -> None:
    pools = {type(found.pool) for found in FOUND.values()}
    assert pools == {PagedPool, CellPool, type(None)}
