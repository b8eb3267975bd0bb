"""Concurrency of a replica: engine ranks, the safe share, and what the reader is told."""

import pytest

from app.domain.concurrency import ConcurrencyAnswer, answer_concurrency
from app.domain.deployment import Deployment, Speculative
from app.domain.provenance import Versions
from tests.domain.shapes import BUNDLED, CARD, H100, dense

FOUR = Deployment(tp=4, weights="fp8")


def ask(deployment: Deployment = FOUR, *, mean: float = 8000, p95: float | None = None, safety: float = 0.7) -> ConcurrencyAnswer:
    versions = Versions(planner="test", catalog="test")
    return answer_concurrency(
        dense(), CARD, deployment, mean_tokens=mean, p95_tokens=p95, safety_ratio=safety, assumptions=[], versions=versions
    )


def test_the_limit_to_set_is_that_of_one_engine_rank() -> None:
    one, two = ask(), ask(FOUR.model_copy(update={"dp": 2}))
    assert (one.max_concurrency, one.safe_concurrency, one.recommended_max_num_seqs) == (77, 53, 48)
    assert (two.max_concurrency, two.safe_concurrency, two.recommended_max_num_seqs) == (154, 107, 48)
    assert two.kv_capacity_tokens == one.kv_capacity_tokens
    assert ask(FOUR.model_copy(update={"dp": 2, "max_num_seqs": 10})).max_concurrency == 20


def test_where_one_request_fits_the_plan_has_one() -> None:
    answer = ask(mean=600_000)
    assert (answer.max_concurrency, answer.safe_concurrency, answer.recommended_max_num_seqs) == (1, 1, 1)
    nothing = ask(mean=700_000)
    assert (nothing.max_concurrency, nothing.safe_concurrency, nothing.recommended_max_num_seqs) == (0, 0, 0)


@pytest.mark.parametrize(("mean", "p95", "told"), [(8000, 9000, False), (8000, 12_000, True), (12_000, None, True)])
def test_requests_beyond_the_longest_length_are_told(mean: float, p95: float | None, told: bool) -> None:
    answer = ask(FOUR.model_copy(update={"max_model_len_tokens": 10_000}), mean=mean, p95=p95)
    assert ("beyond_max_model_len" in {note.code for note in answer.warnings}) is told


def test_what_the_memory_leaves_out_is_told_here_too() -> None:
    deployment = Deployment(
        tp=4, weights="fp8", memory_fraction_ratio=0.9, speculative=Speculative(num_draft_tokens=2, acceptance_ratio=0.5)
    )
    assert {note.code for note in ask(deployment).warnings} == {"activations_not_counted", "draft_not_counted"}


def test_positions_of_a_hybrid_need_a_longest_length() -> None:
    hybrid = BUNDLED.models["qwen3-next-80b-a3b"].model_copy(update={"max_model_len_tokens": None})
    versions = Versions(planner="test", catalog="test")
    deployment = Deployment(tp=4)
    answer = answer_concurrency(
        hybrid, H100, deployment, mean_tokens=8000, p95_tokens=None, safety_ratio=0.7, assumptions=[], versions=versions
    )
    assert answer.kv_capacity_tokens is None  # the pool divided by one token with its state would be a count of sequences
    assert answer.max_concurrency > 0
    assert "kv_capacity_depends_on_length" in {note.code for note in answer.warnings}
