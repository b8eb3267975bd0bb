"""What is offered instead of a replica that does not serve: verified, ordered, minimal, and with the margin it leaves."""

from typing import Any

import pytest

from app.domain.deployment import Deployment
from app.domain.engine_fit import with_weights
from app.domain.fitting_changes import FittingChange, fitting_changes, smallest_tp
from app.domain.fitting_search import Search
from app.domain.memory import fit, longest_len_tokens, trial_fit
from app.domain.memory_answer import answer_memory
from app.domain.precision import WeightFormat
from app.domain.provenance import Versions
from tests.domain.engines import engine
from tests.domain.shapes import BUNDLED, CATALOG

CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "length": ("llama-3.1-70b", "h100-sxm-80gb", {"tp": 2}),
    "weights": ("deepseek-v3", "h100-sxm-80gb", {"tp": 8}),
    "together": ("gpt-oss-120b", "h100-sxm-80gb", {"memory_fraction_ratio": 0.8, "engine_version": "0.10.2"}),
    "hybrid": ("qwen3.6-27b", "rtx-4090-24gb", {"weights": "awq"}),
    "profile": ("qwen2.5-7b", "t4-16gb", {"engine_version": "0.6.4", "max_model_len_tokens": 4096}),
    "far": ("llama-3.1-405b", "l4-24gb", {}),
    "llama.cpp": ("qwen3.6-27b", "rtx-4090-24gb", {"engine": "llama.cpp", "weights": "q4_k_m"}),
    "tensorrt-llm": ("llama-3.1-70b", "a100-sxm-80gb", {"engine": "tensorrt-llm"}),
    "amd": ("deepseek-v3", "mi300x-192gb", {"tp": 2, "engine": "sglang"}),
}
KINDS = (
    "memory_fraction_ratio", "max_num_seqs", "max_num_batched_tokens", "enforce_eager", "max_model_len_tokens", "kv_cache", "weights",
    "gpu",
)  # fmt: skip


def offered(case: str) -> tuple[list[FittingChange], Deployment]:
    model, gpu, given = CASES[case]
    deployment = Deployment.model_validate({"engine": "vllm", **given})
    rules, llm, device = engine(deployment.engine, deployment.engine_version), BUNDLED.models[model], BUNDLED.gpus[gpu]
    found = fit(llm, device, deployment, rules)
    assert found.verdict != "serves"
    search = Search(llm, device, deployment, rules, found)
    return fitting_changes(search, smallest_tp(search), CATALOG.gpus.values()), deployment


@pytest.mark.parametrize("case", CASES)
def test_every_change_is_what_computing_it_again_gives(case: str) -> None:
    changes, deployment = offered(case)
    assert changes
    for change in changes:
        again = fit(
            BUNDLED.models[CASES[case][0]],
            BUNDLED.gpus[change.gpu],
            change.deployment,
            engine(deployment.engine, deployment.engine_version),
        )
        assert again.verdict == change.verdict == "serves"
        assert (again.margin_bytes, again.is_tight, again.capacity_tokens()) == (
            change.margin_bytes, change.is_tight, change.kv_capacity_tokens,
        )  # fmt: skip
        assert change.margin_bytes >= 0
        assert change.num_gpus == change.deployment.num_gpus


@pytest.mark.parametrize("case", CASES)
def test_the_smallest_change_comes_first_and_larger_accelerators_last(case: str) -> None:
    changes, _ = offered(case)
    places = [KINDS.index(change.change.split()[0]) for change in changes if not change.change.startswith(("tp ", "pp "))]
    assert places == sorted(places)
    wider = [change.num_gpus for change in changes if change.num_gpus > changes[0].num_gpus]
    assert wider == sorted(wider)
    assert {change.gpu for change in changes if not change.change.startswith("gpu ")} == {CASES[case][1]}


@pytest.mark.parametrize("case", CASES)
def test_another_accelerator_is_of_the_same_maker_larger_and_not_slower_class(case: str) -> None:
    changes, _ = offered(case)
    own = BUNDLED.gpus[CASES[case][1]]
    others = [BUNDLED.gpus[change.gpu] for change in changes if change.change.startswith("gpu ")]
    sizes = [other.memory_bytes or 0 for other in others]
    assert sizes == sorted(set(sizes))
    for other in others:
        assert other.vendor == own.vendor
        assert (other.memory_bytes or 0) > (own.memory_bytes or 0)
        assert (other.memory_bandwidth_bytes_per_s or 0) >= 0.8 * (own.memory_bandwidth_bytes_per_s or 0)


@pytest.mark.parametrize("case", ["together", "hybrid"])
def test_settings_that_only_serve_together_are_offered_together_and_none_is_needless(case: str) -> None:
    changes, deployment = offered(case)
    together = next(change for change in changes if ", " in change.change)
    model, gpu, _ = CASES[case]
    names = [part.split()[0] for part in together.change.split(", ")]
    for name in names:
        fewer = together.deployment.model_copy(update={name: getattr(deployment, name)})
        found = trial_fit(BUNDLED.models[model], BUNDLED.gpus[gpu], fewer, engine("vllm", deployment.engine_version))
        assert found.verdict != "serves" or found.is_tight > together.is_tight, name


def test_no_setting_makes_room_for_weights_that_exceed_the_memory() -> None:
    changes, deployment = offered("weights")
    assert {change.change.split()[0] for change in changes} == {"weights", "tp", "pp", "gpu"}
    assert all(change.deployment.max_num_seqs == deployment.max_num_seqs for change in changes)


def test_where_neither_tp_nor_stages_are_enough_both_are_offered() -> None:
    changes, _ = offered("far")
    (both,) = changes
    assert [part.split()[0] for part in both.change.split(", ")] == ["tp", "pp"]
    assert both.num_gpus == both.deployment.tp * both.deployment.pp


def test_the_longest_sequence_leaves_the_error_of_the_estimate_where_it_can() -> None:
    llm, gpu, rules = BUNDLED.models["llama-3.1-8b"], BUNDLED.gpus["a10g-24gb"], engine("vllm", "0.19.1")
    deployment = Deployment(engine="vllm", engine_version="0.19.1")
    changes = fitting_changes(Search(llm, gpu, deployment, rules, fit(llm, gpu, deployment, rules)), None)
    change = next(each for each in changes if each.deployment.max_model_len_tokens is not None)
    assert not change.is_tight
    longer = deployment.model_copy(update={"max_model_len_tokens": (change.deployment.max_model_len_tokens or 0) + 64})
    found = trial_fit(llm, gpu, longer, rules)
    assert (found.verdict, found.is_tight) == ("serves", True)


@pytest.mark.parametrize(
    "name", [("vllm", "0.19.1"), ("sglang", None), ("tensorrt-llm", None), ("llama.cpp", None)], ids=lambda name: name[0]
)
def test_sharing_what_weights_do_not_change_gives_what_a_fit_of_its_own_does(name: tuple[str, str | None]) -> None:

    rules = engine(*name)
    for slug in ("llama-3.1-8b", "gpt-oss-120b", "qwen3.6-27b", "deepseek-v3"):
        llm, gpu = BUNDLED.models[slug], BUNDLED.gpus["h200-sxm-141gb"]
        deployment = Deployment(tp=2, engine=rules.engine)
        found = trial_fit(llm, gpu, deployment, rules)
        formats: tuple[WeightFormat, ...] = ("bf16", "fp8", "awq")
        for weights in formats:
            alone = trial_fit(llm, gpu, deployment.model_copy(update={"weights": weights}), rules)
            assert with_weights(found, llm, gpu, deployment, weights) == alone


def test_a_start_that_passes_by_less_than_the_error_is_told_with_the_check() -> None:
    def told(length: int, **given: object) -> dict[str, str]:
        deployment = Deployment.model_validate({"engine": "vllm", "engine_version": "0.19.1", "max_model_len_tokens": length, **given})
        rules = engine(deployment.engine, deployment.engine_version)
        answer = answer_memory(
            BUNDLED.models["llama-3.1-8b"], BUNDLED.gpus["a10g-24gb"], deployment, engine=rules, assumptions=[],
            versions=Versions(planner="test", catalog="test"),
        )  # fmt: skip
        assert answer.verdict == "serves"
        return {note.code: note.message for note in answer.warnings}

    assert "tight_start" not in told(8192)
    rules = engine("vllm", "0.19.1")
    found = fit(BUNDLED.models["llama-3.1-8b"], BUNDLED.gpus["a10g-24gb"], Deployment(engine="vllm", engine_version="0.19.1"), rules)
    longest = longest_len_tokens(found, found.kv_room_bytes)
    assert longest is not None
    assert "max_model_len" in told(longest)["tight_start"]
    assert "longest_not_held" not in told(longest)
    assert "longest_not_held" in told(131_072, engine="sglang", engine_version=None, memory_fraction_ratio=0.85)
    assert "tight_start" not in told(8192, engine="llama.cpp", engine_version=None)


def test_the_summary_names_the_first_change_that_is_not_tight() -> None:
    llm, gpu, rules = BUNDLED.models["gemma-3-27b"], BUNDLED.gpus["rtx-5090-32gb"], engine("vllm")
    deployment = Deployment(engine="vllm", weights="fp8", max_model_len_tokens=8192)
    answer = answer_memory(llm, gpu, deployment, engine=rules, assumptions=[], versions=Versions(planner="test", catalog="test"))
    safe = next(change for change in answer.what_would_fit if not change.is_tight)
    assert answer.summary.endswith(f"It would serve with {safe.change}.")
