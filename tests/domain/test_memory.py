"""Memory of a replica: verdicts, layouts that are refused, and what must hold for every model and accelerator."""

import pytest
from hypothesis import assume, given

from app.domain.deployment import Deployment, check_layout
from app.domain.errors import InvalidInput, MissingFigure, PlannerError
from app.domain.kv_cache import kv_cost
from app.domain.llm import Llm
from app.domain.memory import GENERIC_RESERVE_RATIO, fit, longest_len_tokens, valid_tps
from app.domain.memory_answer import answer_memory
from app.domain.provenance import Versions
from app.domain.weights import weights_bytes_per_gpu, weights_size
from tests.domain.shapes import BUNDLED, CARD, H100, dense, deployments, models

GB = 10**9
VERSIONS = Versions(planner="test", catalog="test")


@pytest.mark.parametrize(
    ("deployment", "verdict", "limiting"),
    [
        (Deployment(weights="bf16"), "does_not_fit", "weights"),
        (Deployment(weights="bf16", tp=2), "loads_only", "kv_cache"),
        (Deployment(weights="fp8", tp=4), "serves", None),
        (Deployment(weights="fp8", tp=4, max_model_len_tokens=10**6), "loads_only", "max_model_len"),
    ],
)
def test_verdicts(deployment: Deployment, verdict: str, limiting: str | None) -> None:
    found = fit(dense(), CARD, deployment)
    assert (found.verdict, found.limiting) == (verdict, limiting)
    assert (found.margin_bytes >= 0) == (verdict == "serves")


def test_the_verdict_turns_exactly_at_one_sequence() -> None:
    llm, room = dense(), 1000 * 81920
    reserve = 80 * GB - 70 * GB // 4 - room
    deployment = Deployment(weights="fp8", tp=4, reserve_bytes_per_gpu=reserve, max_model_len_tokens=1000)
    assert fit(llm, CARD, deployment).verdict == "serves"
    assert fit(llm, CARD, deployment.model_copy(update={"max_model_len_tokens": 1001})).limiting == "max_model_len"
    found = fit(llm, CARD, deployment.model_copy(update={"max_model_len_tokens": 5000}))
    assert longest_len_tokens(found, found.kv_room_bytes) == 1000


def test_the_weights_may_fill_the_memory_to_the_byte() -> None:
    exact = dense(params=80 * GB)
    assert fit(exact, CARD, Deployment(weights="fp8", reserve_bytes_per_gpu=0)).limiting == "kv_cache"
    assert fit(dense(params=80 * GB + 1), CARD, Deployment(weights="fp8", reserve_bytes_per_gpu=0)).verdict == "does_not_fit"


def test_reserve_and_fraction() -> None:
    llm = dense()
    assert fit(llm, CARD, Deployment(tp=4, weights="fp8")).reserve_bytes == int(GENERIC_RESERVE_RATIO * 80 * GB) == 12 * GB
    with_fraction = fit(llm, CARD, Deployment(tp=4, weights="fp8", memory_fraction_ratio=0.9))
    assert (with_fraction.budget_bytes, with_fraction.reserve_bytes) == (72 * GB, 0)
    both = fit(llm, CARD, Deployment(tp=4, weights="fp8", memory_fraction_ratio=0.9, reserve_bytes_per_gpu=GB))
    assert both.kv_cache_bytes == 72 * GB - 17.5 * GB - GB
    with pytest.raises(InvalidInput, match="more than the"):
        fit(llm, CARD, Deployment(reserve_bytes_per_gpu=81 * GB))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"tp": 3}, "/deployment/tp"),
        ({"tp": 128}, "/deployment/tp"),
        ({"pp": 81}, "/deployment/pp"),
        ({"tp": 2, "ep": 3}, "/deployment/ep"),
        ({"tp": 2, "ep": 2}, "/deployment/ep"),
    ],
)
def test_impossible_layouts_name_the_field(changes: dict[str, int], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_layout(dense(), Deployment.model_validate(changes))
    assert refused.value.field == field
    assert refused.value.expected


def test_experts_may_be_spread() -> None:
    llm = BUNDLED.models["deepseek-v3"]
    check_layout(llm, Deployment(tp=4, dp=2, ep=8))
    total = weights_size(llm, "fp8").num_bytes
    spread = weights_bytes_per_gpu(llm, total, tp=4, dp=2)
    assert total / 8 < spread < total / 4  # attention is on both data-parallel ranks, experts are not


def test_native_weights_are_the_recorded_size() -> None:
    llm = BUNDLED.models["deepseek-v3"]
    assert weights_size(llm, None).num_bytes == llm.native.weights_bytes
    unknown = dense()
    assert weights_size(unknown, None).num_bytes == 2 * unknown.num_params
    assert weights_size(unknown, None).basis == "assumed"


def test_the_size_of_a_checkpoint_says_whether_it_was_read_or_computed() -> None:
    computed, parts = BUNDLED.models["llama-3.1-70b"], BUNDLED.models["deepseek-v3"]
    assert (weights_size(computed, None).basis, weights_size(computed, None).substituted) == ("exact", f"{computed.num_params} x 2")
    assert weights_size(parts, None).basis == "assumed"
    native = parts.native.model_copy(update={"weights_basis": "metadata.total_size of model.safetensors.index.json"})
    assert weights_size(parts.model_copy(update={"native": native}), None).basis == "datasheet"


def test_the_summary_of_a_budget_below_the_weights_is_about_the_budget() -> None:
    answer = answer_memory(dense(), CARD, Deployment(tp=2, weights="fp8", memory_fraction_ratio=0.3), assumptions=[], versions=VERSIONS)
    assert (answer.verdict, answer.limiting, answer.margin_bytes) == ("loads_only", "kv_cache", 24 * GB - 35 * GB - 163840)
    assert "a reserve of 0 GB (0 GiB) out of 24 GB" in answer.summary


def test_memory_without_a_reserve_is_told() -> None:
    def told(**changes: float) -> set[str]:
        answer = answer_memory(dense(), CARD, Deployment(tp=4, weights="fp8", **changes), assumptions=[], versions=VERSIONS)  # type: ignore[arg-type]
        return {note.code for note in answer.warnings}

    assert told(reserve_bytes_per_gpu=0) == told(memory_fraction_ratio=1) == {"no_reserve"}
    assert told(memory_fraction_ratio=0.9) == {"activations_not_counted"}
    assert told() == told(memory_fraction_ratio=0.9, reserve_bytes_per_gpu=GB) == set()


@pytest.mark.parametrize("slug", sorted(slug for slug, gpu in BUNDLED.gpus.items() if gpu.memory_bytes is None))
def test_a_missing_memory_figure_is_named(slug: str) -> None:
    with pytest.raises(MissingFigure, match=f"memory_bytes of {slug}"):
        fit(dense(), BUNDLED.gpus[slug], Deployment())


@given(models, deployments)
def test_parts_add_up_to_the_whole(llm: Llm, deployment: Deployment) -> None:
    assume(deployment.tp in valid_tps(llm))
    answer = answer_memory(llm, H100, deployment, assumptions=[], versions=VERSIONS)
    per_gpu = answer.per_gpu
    parts = per_gpu.weights_bytes + per_gpu.reserve_bytes + per_gpu.kv_cache_bytes + per_gpu.safety_bytes
    assert parts == per_gpu.memory_bytes if per_gpu.kv_cache_bytes else parts >= per_gpu.memory_bytes
    assert answer.verdict != "serves" or answer.max_concurrency_at_max_len_ratio is None or answer.max_concurrency_at_max_len_ratio >= 1
    assert answer.kv_capacity_tokens is None or answer.kv_capacity_tokens >= 0


@given(models, deployments)
def test_what_would_fit_does(llm: Llm, deployment: Deployment) -> None:
    assume(deployment.tp in valid_tps(llm))
    answer = answer_memory(llm, H100, deployment, assumptions=[], versions=VERSIONS)
    assert all(fit(llm, H100, change.deployment).verdict == "serves" for change in answer.what_would_fit)
    if answer.smallest_tp is not None:
        assert fit(llm, H100, deployment.model_copy(update={"tp": answer.smallest_tp})).verdict == "serves"
        smaller = [tp for tp in valid_tps(llm) if tp < answer.smallest_tp]
        assert all(fit(llm, H100, deployment.model_copy(update={"tp": tp})).verdict != "serves" for tp in smaller)


@given(models, deployments)
def test_the_capacity_holds_what_it_says(llm: Llm, deployment: Deployment) -> None:
    assume(deployment.tp in valid_tps(llm))
    found = fit(llm, H100, deployment)
    length = found.max_model_len_tokens
    assert length is not None
    held = found.sequences(length)
    assert held is not None
    cost = kv_cost(llm, "fp16" if llm.native.dtype == "float16" else "bf16", tp=deployment.tp)
    assert held * cost.sequence_bytes(length) <= found.kv_cache_bytes < (held + 1) * cost.sequence_bytes(length)


@given(models)
def test_every_offered_layout_is_accepted(llm: Llm) -> None:
    offered = set(valid_tps(llm))
    assert 1 in offered
    for tp in range(1, 65):
        try:
            check_layout(llm, Deployment(tp=tp))
            accepted = True
        except PlannerError:
            accepted = False
        assert accepted == (tp in offered)


def test_a_stated_cache_is_refused_at_the_field_of_the_deployment_and_its_gaps_are_told() -> None:
    llm = BUNDLED.models["deepseek-v4.1-flash"]
    with pytest.raises(MissingFigure) as refused:
        fit(llm, H100, Deployment(kv_cache="fp8"))
    assert (refused.value.field, refused.value.value) == ("/deployment/kv_cache", "fp8")
    answer = answer_memory(llm, H100, Deployment(tp=8, dp=2), assumptions=[], versions=VERSIONS)
    assert {"stated_kv_cache", "experts_unknown"} <= {note.code for note in answer.warnings}
