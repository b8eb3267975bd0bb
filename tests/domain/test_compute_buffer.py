"""The compute buffer of llama.cpp against sizes that builds of three ages printed."""

from typing import Any

import pytest

from app.domain.compute_buffer import compute_buffer_bytes
from app.domain.deployment import Deployment
from app.domain.engine_budget import peak_of
from app.domain.engine_defaults import settings_of
from tests.domain.engines import engine
from tests.domain.shapes import BUNDLED, H100

MIB = 2**20
PRINTED: list[tuple[str, str, dict[str, Any], float, float]] = [
    # flash attention off: scores of all heads
    ("mistral-7b-v0.1", "b4000", {"max_model_len_tokens": 2048}, 164.0, 0.06),  # https://github.com/fedora-copr/logdetective/pull/106
    ("mistral-7b-v0.1", "b4000", {"max_model_len_tokens": 32768}, 2144.0, 0.01),  # the same, after the change
    # https://github.com/ggml-org/llama.cpp/pull/6122, two devices; https://github.com/ggml-org/llama.cpp/issues/13661, split by rows
    ("command-r-35b", "b2500", {"max_model_len_tokens": 4096, "pp": 2}, 672.01, 0.03),
    ("qwen3-30b-a3b", "b5400", {"max_model_len_tokens": 30016}, 1958.63, 0.02),
    # flash attention: a mask in 32 bits, another in 16, logits of the whole micro-batch
    ("qwen2.5-3b", "b7000", {"max_model_len_tokens": 2048}, 301.1, 0.02),  # mc-118
    ("qwen2.5-7b", "b7780", {"max_model_len_tokens": 32768}, 382.01, 0.2),  # mc-119; the allocator leaves the mask in the way of the logits
    ("qwen3.5-35b-a3b", "b8000", {"max_model_len_tokens": 32768, "pp": 2, "max_num_seqs": 4}, 637.07, 0.001),  # mc-120, two devices
    # https://github.com/GenerelSchwerz/llama.cpp/pull/62, before and after its change, micro-batches of 512 and 2,048
    ("qwen3.8-27b", "b8000", {"max_model_len_tokens": 4096}, 505.0, 0.01),
    ("qwen3.8-27b", "b8000", {"max_model_len_tokens": 4096, "max_num_batched_tokens": 2048}, 2054.0, 0.02),
    # a mask in 16 bits, logits of one token per sequence
    ("qwen3.8-27b", "b10800", {"max_model_len_tokens": 4096}, 132.0, 0.04),
    ("qwen3.8-27b", "b10800", {"max_model_len_tokens": 4096, "max_num_batched_tokens": 2048}, 568.0, 0.05),
    # https://github.com/unslothai/unsloth/pull/6718, the first four over two devices split by tensors, each the whole buffer
    ("qwen3.5-9b", "b9800", {"max_model_len_tokens": 8192}, 96.0, 0.09),
    ("qwen3.5-9b", "b9800", {"max_model_len_tokens": 32768}, 120.0, 0.07),
    ("qwen3.5-9b", "b9800", {"max_model_len_tokens": 131072}, 216.0, 0.04),
    ("qwen3.5-9b", "b9800", {"max_model_len_tokens": 262144}, 344.0, 0.03),
    ("qwen3.5-4b", "b9800", {"max_model_len_tokens": 262144}, 0.31 * 1024, 0.03),
    ("qwen3.5-4b", "b9800", {"max_model_len_tokens": 262144, "kv_cache": "q8_0"}, 1.30 * 1024, 0.03),
]


def buffer_mib(model: str, build: str, given: dict[str, Any]) -> float:
    rules = engine("llama.cpp", build)
    deployment = Deployment.model_validate({"engine": "llama.cpp", "max_num_seqs": 1, **given})
    length = deployment.max_model_len_tokens
    return peak_of(BUNDLED.models[model], rules, deployment, settings_of(rules, H100, deployment, length), length).total_bytes / MIB


@pytest.mark.parametrize(
    ("model", "build", "given", "printed_mib", "tolerance"), PRINTED, ids=[f"{row[0]}-{row[1]}-{row[3]:.0f}" for row in PRINTED]
)
def test_printed_sizes(model: str, build: str, given: dict[str, Any], printed_mib: float, tolerance: float) -> None:
    assert buffer_mib(model, build, given) == pytest.approx(printed_mib, rel=tolerance)


def test_the_first_of_two_devices_holds_the_mask_in_both_widths() -> None:
    """Of Qwen3.5-35B-A3B over two devices at 131,072 cells: 1,244 MiB on the first, 1,021 MiB on the one with the output layer."""
    rules = engine("llama.cpp", "b8000").activation.compute_buffer
    assert rules is not None
    found = compute_buffer_bytes(
        BUNDLED.models["qwen3.5-35b-a3b"], rules, micro_batch_tokens=512, num_seqs=1, length_tokens=131072, num_devices=2
    )
    assert found is not None
    assert found[0] / MIB == pytest.approx(1021, abs=0.5)
    assert found[1] / MIB == pytest.approx(1244, rel=0.02)


def test_a_context_shorter_than_the_micro_batch_limits_it() -> None:
    assert buffer_mib("qwen2.5-7b", "b7780", {"max_model_len_tokens": 256}) < buffer_mib(
        "qwen2.5-7b", "b7780", {"max_model_len_tokens": 512}
    )


def test_a_model_without_layers_gets_the_usual_figure() -> None:
    rules = engine("llama.cpp")
    llm = BUNDLED.models["qwen2.5-7b"].model_copy(update={"layer_groups": None})
    found = peak_of(llm, rules, Deployment(), settings_of(rules, H100, Deployment(), 4096), 4096)
    assert (found.is_known, found.total_bytes) == (False, rules.activation.unknown.typical_bytes)
