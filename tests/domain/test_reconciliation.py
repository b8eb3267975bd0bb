"""Printed figures against estimates, on an engine whose memory is a straight line."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.deployment import Deployment, Speculative
from app.domain.engine_start import EngineStart, StartFailure
from app.domain.errors import InvalidInput
from app.domain.reconciled_terms import observations, reconciled_counts, reconciled_terms
from app.domain.reconciliation import Estimate, cache_ratio, changed_by, correct, differences, settings_as_printed
from app.domain.start_matches import matching_weights
from app.domain.units import GIB
from tests.domain.straight_engine import MEMORY, TOKEN_BYTES, codes, compute, reconcile


def test_printed_settings_are_laid_over_the_request() -> None:
    start = EngineStart(engine="vllm", tp=2, max_num_seqs=64, kv_cache="auto", prefix_caching=True, quantization="fp8", num_draft_tokens=3)
    changes = settings_as_printed(Deployment(max_num_seqs=64, dp=2, ep=2), start)
    assert list(changes) == ["engine", "tp", "prefix_caching", "speculative"]
    changed = changed_by(Deployment(dp=2, ep=2), changes)
    assert (changed.tp, changed.ep) == (2, 4)
    assert changed.speculative == Speculative(num_draft_tokens=3, acceptance_ratio=0)


def test_what_is_known_of_drafts_is_kept() -> None:
    known = Deployment(speculative=Speculative(num_draft_tokens=2, acceptance_ratio=0.7))
    changes = settings_as_printed(known, EngineStart(num_draft_tokens=3))
    assert changes == {"speculative": Speculative(num_draft_tokens=3, acceptance_ratio=0.7)}
    assert settings_as_printed(known, EngineStart(num_draft_tokens=2)) == {}


def test_effects_of_settings_add_up() -> None:
    deployment = Deployment(memory_fraction_ratio=0.8)
    changes = settings_as_printed(deployment, EngineStart(tp=2, memory_fraction_ratio=0.9, max_num_seqs=64))
    found = differences(deployment, changes, compute)
    assert [(one.setting, one.given, one.printed) for one in found] == [
        ("tp", "not given", "2"),
        ("memory_fraction_ratio", "0.8", "0.9"),
        ("max_num_seqs", "not given", "64"),
    ]
    total = compute(changed_by(deployment, changes)).kv_cache_bytes - compute(deployment).kv_cache_bytes
    assert sum(one.kv_cache_effect_bytes or 0 for one in found) == total
    assert found[0].kv_cache_effect_bytes == 15 * GIB


def test_impossible_printed_settings_fall_back_to_the_request() -> None:
    answer = reconcile(tp=3, kv_cache_bytes_per_gpu=20 * GIB)
    assert codes(answer)[0] == "printed_settings_refused"
    assert answer.settings[0].kv_cache_effect_bytes is None
    assert answer.corrected is not None
    assert answer.corrected.deployment.tp == 1
    with pytest.raises(InvalidInput):
        reconcile(Deployment(tp=3), kv_cache_bytes_per_gpu=GIB)


@given(pool=st.integers(0, 49 * GIB), fraction=st.floats(0.5, 1))
def test_the_correction_reproduces_every_possible_pool(pool: int, fraction: float) -> None:
    corrected = correct(EngineStart(kv_cache_bytes_per_gpu=pool), Deployment(memory_fraction_ratio=fraction), compute)
    assert corrected is not None
    assert corrected.reproduces
    assert corrected.kv_cache_bytes_per_gpu == compute(corrected.deployment).kv_cache_bytes
    assert abs(corrected.kv_cache_bytes_per_gpu - pool) <= max(pool / 1000, 2**20)


def test_a_small_pool_is_a_reserve_and_a_large_one_a_fraction() -> None:
    small = correct(EngineStart(kv_cache_bytes_per_gpu=20 * GIB), Deployment(memory_fraction_ratio=0.9), compute)
    assert small is not None
    assert small.measured == ["reserve_bytes_per_gpu"]
    assert small.deployment.reserve_bytes_per_gpu == 22 * GIB
    large = correct(EngineStart(kv_cache_bytes_per_gpu=45 * GIB), Deployment(memory_fraction_ratio=0.9), compute)
    assert large is not None
    assert large.measured == ["reserve_bytes_per_gpu", "memory_fraction_ratio"]
    assert large.deployment.memory_fraction_ratio == pytest.approx(75 / 80, abs=1e-5)


def test_a_pool_that_cannot_be_is_not_reproduced() -> None:
    answer = reconcile(kv_cache_bytes_per_gpu=79 * GIB)
    assert answer.corrected is not None
    assert not answer.corrected.reproduces
    assert "not_reproduced" in [note.code for note in answer.warnings]


def test_a_deployment_that_agrees_is_left_alone() -> None:
    answer = reconcile(kv_cache_bytes_per_gpu=compute(Deployment()).kv_cache_bytes)
    assert answer.corrected is not None
    assert answer.corrected.measured == []
    assert "reproduces it as it is" in answer.summary


def test_tokens_are_enough() -> None:
    answer = reconcile(kv_cache_tokens=100_000)
    assert answer.corrected is not None
    assert answer.corrected.kv_capacity_tokens == pytest.approx(100_000, abs=1)
    assert answer.terms[-1].printed_bytes is None


def test_of_pipeline_stages_the_tokens_decide() -> None:
    deployment = Deployment(pp=2)
    answer = reconcile(
        deployment,
        kv_cache_bytes_per_gpu=11 * GIB,
        largest_kv_cache_bytes_per_gpu=12 * GIB,
        kv_cache_tokens=12 * GIB // TOKEN_BYTES["bf16"],
    )
    assert answer.corrected is not None
    assert answer.corrected.kv_cache_bytes_per_gpu == pytest.approx(12 * GIB, rel=1e-4)
    assert answer.corrected.reproduces
    assert "ranks_differ" in codes(answer)


def test_the_precision_of_the_cache_shows_in_what_it_holds() -> None:
    pool = 20 * GIB
    answer = reconcile(kv_cache_bytes_per_gpu=pool, kv_cache_tokens=pool // TOKEN_BYTES["fp8"])
    assert codes(answer) == ["kv_cache_format"]
    assert answer.corrected is not None
    assert answer.corrected.deployment.kv_cache == "fp8"
    assert answer.corrected.kv_capacity_tokens == pool // TOKEN_BYTES["fp8"]


def test_the_version_shows_in_what_the_cache_holds() -> None:
    printed: dict[str, Any] = {"kv_cache_bytes_per_gpu": 20 * GIB, "kv_cache_tokens": 20 * GIB // TOKEN_BYTES["bf16"] * 5 // 4}
    answer = reconcile(**printed)
    assert codes(answer) == ["version_implied"]
    assert answer.corrected is not None
    assert answer.corrected.deployment.engine_version == "0.9"
    assert codes(reconcile(Deployment(engine_version="0.1"), **printed)) == []


def test_an_unknown_cost_of_tokens_is_said() -> None:
    answer = reconcile(kv_cache_bytes_per_gpu=20 * GIB, kv_cache_tokens=20 * GIB // 100_000)
    assert "costs 0.763 times" in answer.counts[0].explanation
    assert answer.corrected is not None
    assert not answer.corrected.reproduces


def test_the_format_of_the_weights_shows_in_their_size() -> None:
    answer = reconcile(quantization="compressed-tensors", weights_bytes_per_gpu=int(9.2 * GIB), kv_cache_bytes_per_gpu=61 * GIB)
    assert codes(answer) == ["weights_format"]
    assert answer.corrected is not None
    assert answer.corrected.deployment.weights == "nvfp4"
    assert answer.terms[0].estimated_bytes == 9 * GIB


def test_a_named_quantisation_is_believed() -> None:
    answer = reconcile(quantization="fp8", weights_bytes_per_gpu=14 * GIB, kv_cache_bytes_per_gpu=50 * GIB)
    assert answer.corrected is not None
    assert answer.corrected.deployment.weights == "fp8"


@pytest.mark.parametrize(
    ("named", "choice"),
    [("Q8_0", "q8_0"), ("Q4_K - Medium", "q4_k_m"), ("IQ4_XS", "iq4_xs"), ("awq_marlin", "awq"), ("modelopt_fp4", "nvfp4")],
    ids=lambda each: str(each),
)
def test_a_format_is_known_by_the_name_that_its_engine_prints(named: str, choice: str) -> None:
    tried: list[str | None] = []

    def noted(deployment: Deployment) -> Estimate:
        tried.append(deployment.weights)
        return compute(Deployment())

    matching_weights(EngineStart(quantization=named, weights_bytes_per_gpu=GIB), Deployment(), compute(Deployment()), noted)
    assert tried == [choice]


def test_a_pool_that_no_reserve_gives_is_said_in_the_summary() -> None:
    answer = reconcile(kv_cache_bytes_per_gpu=500 * GIB)
    assert answer.corrected is not None
    assert not answer.corrected.reproduces
    assert "No reserve reproduces it" in answer.summary


def test_given_weights_are_not_second_guessed() -> None:
    answer = reconcile(Deployment(weights="fp8"), quantization="compressed-tensors", weights_bytes_per_gpu=9 * GIB)
    assert "weights_format" not in codes(answer)
    assert "smaller format" in answer.terms[0].explanation


@pytest.mark.parametrize("printed", [{"activation_bytes": GIB // 8}, {"kv_cache_bytes_per_gpu": int(40.875 * GIB)}])
def test_sequences_are_implied_by_the_memory_they_take(printed: dict[str, Any]) -> None:
    answer = reconcile(weights_bytes_per_gpu=30 * GIB, **printed)
    (note,) = [note for note in answer.explanations if note.code == "max_num_seqs_implied"]
    assert "about 32 explains" in note.message


def test_a_fraction_is_implied_where_sequences_are_known() -> None:
    printed = {"weights_bytes_per_gpu": 30 * GIB, "kv_cache_bytes_per_gpu": 44 * GIB}
    answer = reconcile(Deployment(max_num_seqs=256), **printed)
    (note,) = answer.explanations
    assert note.code == "memory_fraction_implied"
    assert "0.95 explains" in note.message
    assert codes(reconcile(Deployment(max_num_seqs=256, memory_fraction_ratio=0.9), **printed)) == []


def test_unnamed_weights_are_recognised_only_when_they_fit() -> None:
    assert codes(reconcile(engine="tensorrt-llm", weights_bytes_per_gpu=15 * GIB)) == ["weights_format"]
    assert codes(reconcile(engine="tensorrt-llm", weights_bytes_per_gpu=12 * GIB)) == []
    assert codes(reconcile(engine="llama.cpp", weights_bytes_per_gpu=15 * GIB)) == []


def test_given_sequences_are_not_implied() -> None:
    answer = reconcile(Deployment(max_num_seqs=256), weights_bytes_per_gpu=30 * GIB, activation_bytes=GIB // 8)
    assert codes(answer) == []


VLLM: dict[str, Any] = {
    "engine": "vllm",
    "memory_bytes": MEMORY,
    "memory_fraction_ratio": 0.9,
    "weights_bytes_per_gpu": 30 * GIB,
    "activation_bytes": 2 * GIB,
    "non_torch_bytes": GIB,
}


@pytest.mark.parametrize(
    ("printed", "code"),
    [
        pytest.param({"free_at_start_bytes": 70 * GIB}, "other_processes", id="others"),
        pytest.param({"free_at_start_bytes": 79 * GIB}, None, id="its-own-context"),
        pytest.param({"kv_cache_bytes_per_gpu": 39 * GIB, "cuda_graph_bytes": GIB}, "graphs_outside_budget", id="graphs-outside"),
        pytest.param({"kv_cache_bytes_per_gpu": 38 * GIB, "cuda_graph_bytes": GIB}, "graphs_inside_budget", id="graphs-inside"),
        pytest.param({"kv_cache_bytes_per_gpu": 36 * GIB, "cuda_graph_bytes": GIB}, "unaccounted_memory", id="rest"),
        pytest.param({"kv_cache_bytes_per_gpu": 39 * GIB}, None, id="adds-up"),
        pytest.param({"kv_cache_bytes_per_gpu": 39 * GIB, "largest_kv_cache_bytes_per_gpu": 41 * GIB}, "ranks_differ", id="ranks"),
        pytest.param({"failure": StartFailure(check="kv_memory", message="No available memory")}, "start_failed", id="failed"),
    ],
)
def test_printed_figures_speak_for_themselves(printed: dict[str, Any], code: str | None) -> None:
    found = [note.code for note in observations(EngineStart(**VLLM, **printed), compute(Deployment()))]
    assert found == ([] if code is None else [code])


def test_the_outcome_is_compared_with_the_verdict() -> None:
    failing = compute(Deployment(memory_fraction_ratio=0.3))
    assert failing.verdict == "loads_only"
    assert [note.code for note in observations(EngineStart(), failing)] == ["started_against_estimate"]
    failed = EngineStart(failure=StartFailure(check="max_model_len", message="To serve", longest_len_tokens=4000))
    (note,) = observations(failed, failing)
    assert "as the estimate says" in note.message
    assert "4000 tokens would fit" in note.message


@pytest.mark.parametrize(
    ("start", "inside", "outside", "code"),
    [
        (EngineStart(graphs_in_budget=True, estimated_cuda_graph_bytes=2 * GIB), 0, GIB, "graphs_counted_otherwise"),
        (EngineStart(graphs_in_budget=False), GIB, 0, "graphs_counted_otherwise"),
        (EngineStart(graphs_in_budget=True, estimated_cuda_graph_bytes=2 * GIB), GIB, 0, None),
        (EngineStart(), GIB, 0, None),
    ],
)
def test_graphs_counted_otherwise_are_said(start: EngineStart, inside: int, outside: int, code: str | None) -> None:
    estimate = compute(Deployment())._replace(cuda_graph_bytes=inside, graphs_outside_bytes=outside)
    assert [note.code for note in observations(start, estimate)] == ([code] if code else [])


@given(weights=st.integers(GIB, 60 * GIB), pool=st.integers(0, 60 * GIB), fraction=st.floats(0.1, 1))
def test_the_gap_of_the_pool_is_that_of_the_other_terms(weights: int, pool: int, fraction: float) -> None:
    start = EngineStart(memory_bytes=MEMORY, memory_fraction_ratio=fraction, weights_bytes_per_gpu=weights, kv_cache_bytes_per_gpu=pool)
    gaps = {term.name: term.difference_bytes or 0 for term in reconciled_terms(start, compute(Deployment()))}
    assert gaps["kv_cache_bytes"] == gaps.get("budget_bytes", 0) - gaps["weights_bytes"] - gaps["overhead_bytes"]


def test_states_beside_the_cache_belong_to_the_pool() -> None:
    start = EngineStart(kv_cache_bytes_per_gpu=20 * GIB, state_bytes=5 * GIB)
    assert reconciled_terms(start, compute(Deployment()))[-1].printed_bytes == 25 * GIB


def test_what_a_generic_estimate_does_not_split_is_said() -> None:
    estimate = compute(Deployment(reserve_bytes_per_gpu=GIB))
    (term,) = [one for one in reconciled_terms(EngineStart(activation_bytes=GIB), estimate) if one.name == "activation_bytes"]
    assert term.estimated_bytes is None
    assert "overhead_bytes" in term.explanation


def test_token_lines_of_other_versions_are_told_from_other_costs() -> None:
    estimate = compute(Deployment())
    pool, tokens, ratio = estimate.kv_cache_bytes, estimate.kv_cache_tokens, estimate.concurrency_ratio
    assert tokens is not None
    start = EngineStart(kv_cache_bytes_per_gpu=pool, kv_cache_tokens=tokens // 2, max_concurrency_at_max_len_ratio=ratio)
    by_name = {count.name: count.explanation for count in reconciled_counts(start, estimate)}
    assert by_name == {
        "kv_capacity_tokens": "Versions print this line by different rules for models with windows or states; compare the concurrency.",
        "max_concurrency_at_max_len_ratio": "They agree.",
    }


def test_the_cost_of_the_cache_needs_a_pool() -> None:
    estimate = compute(Deployment())
    assert cache_ratio(EngineStart(kv_cache_tokens=5), estimate) is None
    assert cache_ratio(EngineStart(kv_cache_bytes_per_gpu=-GIB, kv_cache_tokens=5), estimate) is None
    assert cache_ratio(EngineStart(kv_cache_bytes_per_gpu=GIB), estimate) is None


def test_defaults_of_the_estimate_are_assumptions() -> None:
    assert [note.code for note in reconcile(kv_cache_tokens=5).assumptions] == ["default_max_num_seqs"]
