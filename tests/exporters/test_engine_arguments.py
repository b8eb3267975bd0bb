"""The commands for vLLM and SGLang: every option exists in the released versions, and the values are those of the deployment."""

import itertools
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from app.domain.deployment import Deployment
from app.domain.engine_arguments import EngineArguments
from app.domain.llm import Llm
from app.domain.memory import fit
from app.exporters.engine_arguments import UNNAMED, engine_arguments
from tests.domain.shapes import BUNDLED, CATALOG, dense

OPTIONS = {
    file.stem: {line for line in file.read_text().splitlines() if line.startswith("--")}
    for file in (Path(__file__).parent / "engine_options").glob("*.txt")
}
"""Option names by engine and version, read from the published packages."""
H200 = BUNDLED.gpus["h200-sxm-141gb"]
EVERYTHING: dict[str, list[Any]] = {
    "layout": [{}, {"tp": 4, "pp": 2}, {"tp": 2, "dp": 4, "ep": 8}],
    "formats": [{}, {"weights": "fp8", "kv_cache": "fp8"}, {"weights": "bf16", "kv_cache": "bf16"}, {"weights": "awq", "kv_cache": "int8"}],
    "limits": [
        {},
        {"max_num_seqs": 64, "max_num_batched_tokens": 4096, "max_model_len_tokens": 8192, "memory_fraction_ratio": 0.85},
        {"chunked_prefill": False, "prefix_caching": False, "enforce_eager": True, "block_size_tokens": 32},
    ],
    "speculative": [{}, {"speculative": {"num_draft_tokens": 3, "acceptance_ratio": 0.7}}],
}
MODELS = ("llama-3.1-70b", "deepseek-v3", "qwen3-30b-a3b")


def arguments(llm: Llm, draft: Llm | None = None, seqs: int = 96, **deployment: Any) -> EngineArguments:
    given = Deployment.model_validate({"engine": "vllm", **deployment})
    engine = CATALOG.engine(given.engine, given.engine_version)
    written = engine_arguments(llm, given, fit(llm, H200, given, engine), seqs, draft)
    assert written is not None
    return written


def options(written: EngineArguments) -> dict[str, str | None]:
    return {each.option: each.value for each in written.arguments}


@pytest.mark.parametrize("version", sorted(OPTIONS))
def test_every_option_is_one_of_the_engine(version: str) -> None:
    engine = version.split("-")[0]
    written = 0
    for name, parts in itertools.product(MODELS, itertools.product(*EVERYTHING.values())):
        deployment = {key: value for part in parts for key, value in part.items()}
        llm = BUNDLED.models[name]
        if deployment.get("ep", 1) > 1 and not llm.num_expert_params:
            continue
        draft = BUNDLED.models["llama-3.1-8b"] if name.startswith("llama") else None
        found = options(arguments(llm, draft, engine=engine, **deployment))
        assert found.keys() <= OPTIONS[version], deployment
        written += 1
    assert written > 100


def test_the_lists_are_those_of_whole_engines() -> None:
    assert {name.split("-")[0] for name in OPTIONS} == {"vllm", "sglang"}
    assert all(len(names) > 150 for names in OPTIONS.values())
    assert "--max-num-sequences" not in OPTIONS["vllm-0.33.0"]  # what no engine knows is not among them
    for file in (Path(__file__).parent / "engine_options").glob("*.txt"):
        assert re.match(r"# Options of (vllm|sglang) [\d.]+: https://github\.com/", file.read_text())


def test_a_command_starts_the_replica_that_was_sized() -> None:
    written = arguments(
        BUNDLED.models["llama-3.1-70b"], tp=4, weights="fp8", kv_cache="fp8", max_model_len_tokens=16384, memory_fraction_ratio=0.9
    )
    assert shlex.split(written.command) == [
        "vllm", "serve", "meta-llama/Llama-3.1-70B",
        "--tensor-parallel-size", "4", "--gpu-memory-utilization", "0.9", "--max-model-len", "16384", "--max-num-seqs", "96",
        "--max-num-batched-tokens", "8192", "--enable-chunked-prefill", "--enable-prefix-caching",
        "--quantization", "fp8", "--kv-cache-dtype", "fp8",
    ]  # fmt: skip
    assert [note.code for note in written.notes] == ["quantised_on_loading"]


def test_sglang_counts_over_all_its_ranks() -> None:
    found = options(arguments(BUNDLED.models["deepseek-v3"], engine="sglang", tp=1, dp=8, ep=8, max_num_batched_tokens=1024))
    assert (found["--tp-size"], found["--dp-size"], found["--ep-size"]) == ("8", "8", "8")
    assert (found["--max-running-requests"], found["--chunked-prefill-size"]) == (str(96 * 8), str(1024 * 8))
    vllm = options(arguments(BUNDLED.models["deepseek-v3"], tp=1, dp=8, ep=8, max_num_batched_tokens=1024))
    assert (vllm["--tensor-parallel-size"], vllm["--data-parallel-size"]) == ("1", "8")
    assert (vllm["--max-num-seqs"], vllm["--max-num-batched-tokens"]) == ("96", "1024")


def test_the_pause_between_looks_for_requests_is_set_where_it_is_not_the_usual_one() -> None:
    llm = BUNDLED.models["llama-3.1-70b"]
    found = options(arguments(llm, engine="sglang", tp=8, poll_interval_steps=10))
    assert found["--scheduler-recv-interval"] == "10"
    assert found.keys() <= OPTIONS["sglang-0.5.2"]
    assert "--scheduler-recv-interval" not in options(arguments(llm, engine="sglang", tp=8))


def test_checkpoints_that_are_quantised_already_need_no_option() -> None:
    found = arguments(BUNDLED.models["deepseek-v3"], tp=8, weights="fp8")
    assert "--quantization" not in options(found)
    assert found.notes == []


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"weights": "awq"}, "checkpoint_in_format"),
        ({"kv_cache": "q8_0"}, "kv_cache_not_exported"),
        ({"speculative": {"num_draft_tokens": 3, "acceptance_ratio": 0.7}}, "draft_not_named"),
    ],
)
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_what_a_command_cannot_say_is_said_beside_it(engine: str, more: dict[str, Any], code: str) -> None:
    assert code in [note.code for note in arguments(BUNDLED.models["llama-3.1-70b"], engine=engine, tp=8, **more).notes]


def test_drafts_are_named() -> None:
    speculative = {"num_draft_tokens": 3, "acceptance_ratio": 0.7}
    llama, small = BUNDLED.models["llama-3.1-70b"], BUNDLED.models["llama-3.1-8b"]
    vllm = options(arguments(llama, small, tp=8, speculative=speculative))
    assert vllm["--speculative-config"] == f'{{"model": "{small.hf_id}", "num_speculative_tokens": 3}}'
    sglang = options(arguments(BUNDLED.models["deepseek-v3"], engine="sglang", tp=8, speculative=speculative))
    assert (sglang["--speculative-algorithm"], sglang["--speculative-num-draft-tokens"]) == ("NEXTN", "4")


def test_a_model_without_a_name_is_a_place_to_fill_in() -> None:
    written = arguments(dense(), tp=4, max_model_len_tokens=8192)
    assert shlex.split(written.command)[2] == UNNAMED
    assert [note.code for note in written.notes] == ["model_not_named"]


def test_names_are_quoted_for_the_shell() -> None:
    hostile = dense().model_copy(update={"hf_id": "a/b; echo $(id)"})
    assert shlex.split(arguments(hostile, tp=4, max_model_len_tokens=8192).command)[2] == "a/b; echo $(id)"


@pytest.mark.parametrize("engine", ["generic", "tensorrt-llm", "llama.cpp"])
def test_other_engines_have_no_command(engine: str) -> None:
    given = Deployment.model_validate({"engine": engine, "tp": 8})
    llm = BUNDLED.models["llama-3.1-70b"]
    assert engine_arguments(llm, given, fit(llm, H200, given, CATALOG.engine(engine)), 8) is None
