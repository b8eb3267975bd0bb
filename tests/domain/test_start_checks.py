"""Start-up checks: their order, the one that fails first, what it leaves, and the change that would pass."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.domain.deployment import Deployment
from app.domain.fitting_changes import fitting_changes
from app.domain.fitting_search import Search
from app.domain.llm import Llm
from app.domain.memory import fit, valid_tps
from app.domain.memory_answer import answer_memory
from app.domain.memory_fit import Fit
from app.domain.provenance import Versions
from tests.domain.engines import engine
from tests.domain.shapes import BUNDLED, GIB, H100, deployments, models


def started(model: str, version: str = "0.19.0", *, gpu: str = "h100-sxm-80gb", name: str = "vllm", **given: object) -> Fit:
    deployment = Deployment.model_validate({"engine": name, "engine_version": version, **given})
    return fit(BUNDLED.models[model], BUNDLED.gpus[gpu], deployment, engine(name, version))


@pytest.mark.parametrize(
    ("found", "check", "verdict", "limiting"),
    [
        (started("llama-3.1-8b"), None, "serves", None),
        (started("llama-3.1-70b"), "weights_load", "does_not_fit", "weights"),
        (started("qwen2.5-7b", gpu="t4-16gb", max_model_len_tokens=4096), "profile_run", "loads_only", "activation"),
        (started("gpt-oss-120b", "0.10.2", memory_fraction_ratio=0.8), "kv_memory", "loads_only", "kv_cache"),
        (started("llama-3.1-8b", "0.6.4", gpu="rtx-3090-24gb", max_model_len_tokens=29000), "max_model_len", "loads_only", "max_model_len"),
        (started("qwen3.6-27b", "0.25.1", max_num_seqs=1024), "state_blocks", "loads_only", "max_num_seqs"),
        (started("qwen3.5-9b", tp=4, gpu="rtx-3090-24gb", max_model_len_tokens=32768), "graph_capture", "loads_only", "cuda_graphs"),
    ],
    ids=["serves", "weights", "profile", "kv", "length", "state", "graphs"],
)
def test_the_first_check_that_fails_is_named(found: Fit, check: str | None, verdict: str, limiting: str | None) -> None:
    failed = found.failed_check
    assert (None if failed is None else failed.name) == check
    assert (found.verdict, found.limiting) == (verdict, limiting)
    assert (failed is None) or found.margin_bytes == failed.margin_bytes < 1


def test_checks_come_in_the_order_of_the_engine() -> None:
    found = started("qwen3.6-27b", "0.25.1")
    assert [check.name for check in found.checks] == list(engine("vllm", "0.25.1").checks)


def test_older_versions_cap_the_graphs_instead_of_counting_state_blocks() -> None:
    assert started("qwen3.6-27b", "0.19.1", max_num_seqs=1024, max_model_len_tokens=8192).verdict == "serves"
    assert started("qwen3.6-27b", "0.25.1", max_num_seqs=1024, max_model_len_tokens=8192, enforce_eager=True).verdict == "serves"


def test_sglang_without_prefix_caching_allocates_the_states_of_all_sequences_first() -> None:
    bare: dict[str, Any] = {"name": "sglang", "version": "0.5.12", "prefix_caching": False, "memory_fraction_ratio": 0.85}
    few, many = (started("qwen3.6-27b", max_num_seqs=count, weights="fp8", **bare) for count in (8, 4000))
    assert 8 * few.cost.state_bytes == few.state_bytes  # type: ignore[union-attr]
    assert (few.verdict, many.verdict, many.limiting) == ("serves", "loads_only", "kv_cache")
    assert "states of 4000 sequences" in (many.failed_check.message if many.failed_check else "")
    shared = started("qwen3.6-27b", max_num_seqs=8, weights="fp8", **{**bare, "prefix_caching": True})
    assert shared.state_bytes == pytest.approx(0.9 / 1.9 * shared.kv_cache_bytes)
    assert (shared.capacity_tokens() or 0) < (few.capacity_tokens() or 0)


def test_sglang_starts_with_a_pool_shorter_than_one_request() -> None:
    tight: dict[str, Any] = {"gpu": "rtx-3090-24gb", "max_model_len_tokens": 131072}
    assert started("llama-3.1-8b", "0.5.2", name="sglang", **tight).verdict == "serves"
    assert started("llama-3.1-8b", "0.19.0", **tight).limiting == "max_model_len"


def test_a_longer_request_may_leave_less_memory_for_it() -> None:
    """Before chunked prefill the profile run took a whole prompt: feasibility is not monotonic in length."""
    rooms = [
        started("llama-3.1-8b", "0.6.4", gpu="rtx-3090-24gb", max_model_len_tokens=length).kv_room_bytes for length in (20000, 29000, 35000)
    ]
    assert rooms[1] < rooms[0] < rooms[2]


def test_the_terms_add_up_to_the_memory() -> None:
    for version in ("0.6.4", "0.10.2", "0.19.0", "0.25.1", "0.28.0"):
        found = started("llama-3.1-8b", version, tp=2)
        assert found.terms.total_bytes == found.reserve_bytes
        assert found.budget_bytes - found.weights_bytes_per_gpu - found.reserve_bytes == found.kv_cache_bytes


def test_free_memory_is_shared_after_loading() -> None:
    found = started("llama-3.1-8b", "0.20.0", name="tensorrt-llm", memory_fraction_ratio=0.8)
    free = found.memory_bytes - found.weights_bytes_per_gpu - found.terms.total_bytes
    assert found.kv_cache_bytes == int(0.8 * free)


def test_a_given_reserve_replaces_the_terms() -> None:
    found = started("llama-3.1-8b", "0.19.0", reserve_bytes_per_gpu=12 * GIB, memory_fraction_ratio=1.0)
    assert found.terms.total_bytes == 0
    assert found.kv_cache_bytes == found.memory_bytes - found.weights_bytes_per_gpu - 12 * GIB


def test_the_range_holds_the_estimate_and_widens_where_inputs_are_left_out() -> None:
    known, left_out = started("llama-3.1-8b", "0.10.2", max_num_seqs=1024), started("llama-3.1-8b", "0.10.2")
    for found in (known, left_out):
        assert found.kv_low_bytes is not None
        assert found.kv_high_bytes is not None
        assert found.kv_low_bytes < found.kv_cache_bytes < found.kv_high_bytes
    assert left_out.kv_cache_bytes == known.kv_cache_bytes
    assert (left_out.kv_high_bytes or 0) - left_out.kv_cache_bytes > 3 * GIB
    assert any(note.code == "default_max_num_seqs" and "larger" in note.message for note in left_out.notes)


@pytest.mark.parametrize(
    ("model", "version", "given", "expected"),
    [
        ("qwen3.6-27b", "0.25.1", {}, {"max_num_seqs", "enforce_eager"}),
        ("gpt-oss-120b", "0.10.2", {"memory_fraction_ratio": 0.95}, {"max_model_len_tokens", "max_num_seqs", "max_num_batched_tokens"}),
        ("gpt-oss-120b", "0.10.2", {"memory_fraction_ratio": 0.9, "max_num_seqs": 300}, {"max_model_len_tokens", "memory_fraction_ratio"}),
    ],
)
def test_what_would_fit_names_the_engines_own_settings_and_serves(
    model: str, version: str, given: dict[str, object], expected: set[str]
) -> None:
    llm: Llm = BUNDLED.models[model]
    deployment, rules = Deployment.model_validate({"engine": "vllm", "engine_version": version, **given}), engine("vllm", version)
    changes = fitting_changes(Search(llm, H100, deployment, rules, fit(llm, H100, deployment, rules)), None)
    assert expected <= {change.change.split()[0] for change in changes}
    assert all(fit(llm, H100, change.deployment, rules).verdict == "serves" for change in changes)


engines = st.sampled_from(
    [("vllm", "0.6.4"), ("vllm", "0.10.2"), ("vllm", "0.19.0"), ("vllm", "0.25.1"), ("vllm", "0.33.0"), ("sglang", "0.5.2"),
     ("tensorrt-llm", "0.20.0"), ("llama.cpp", "b6000")]
)  # fmt: skip


@given(models, deployments, engines)
def test_parts_add_up_to_the_memory_for_every_engine(llm: Llm, deployment: Deployment, named: tuple[str, str]) -> None:
    assume(deployment.tp in valid_tps(llm))
    asked = deployment.model_copy(update={"engine": named[0], "engine_version": named[1]})
    answer = answer_memory(llm, H100, asked, engine=engine(*named), assumptions=[], versions=Versions(planner="test", catalog="test"))
    per_gpu = answer.per_gpu
    parts = per_gpu.weights_bytes + per_gpu.reserve_bytes + per_gpu.kv_cache_bytes + per_gpu.safety_bytes
    assert parts == per_gpu.memory_bytes if per_gpu.kv_cache_bytes else parts >= per_gpu.memory_bytes
    assert (answer.verdict == "serves") == all(check.passed for check in answer.checks)
    assert all(fit(llm, H100, change.deployment, engine(*named)).verdict == "serves" for change in answer.what_would_fit)
    low, high = answer.kv_cache_low_bytes, answer.kv_cache_high_bytes
    assert low is not None
    assert high is not None
    assert low <= per_gpu.kv_cache_bytes <= high
    ratio = answer.max_concurrency_at_max_len_ratio
    if answer.verdict == "serves" and ratio is not None and "max_model_len" in engine(*named).checks:
        assert ratio >= 1
