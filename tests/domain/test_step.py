"""The time of one step: what it reads, computes and sends, and what must hold for every model."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.attention_reach import attention_reaches
from app.domain.deployment import Deployment, Speculative
from app.domain.errors import MissingFigure
from app.domain.hardware import Gpu, Interconnect, PeakFlops
from app.domain.links import NETWORK_BYTES_PER_S, link_between
from app.domain.llm import Llm
from app.domain.model_work import model_work
from app.domain.step import IterationTime, StepTimer, step_timer
from app.domain.step_class import StepClass, gpu_class
from app.domain.step_constants import ROOFLINE
from app.domain.step_work import StepWork, products_of, step_work
from tests.domain.shapes import BUNDLED, CATALOG, DETAILED, H100, dense

LLAMA, DEEPSEEK = CATALOG.model("llama-3.1-70b"), CATALOG.model("deepseek-v3")
CONSTANTS = BUNDLED.steps.constants_of(StepClass("vllm", "hopper", "8", "dense"))


def work(llm: Llm = LLAMA, gpu: Gpu = H100, **deployment: Any) -> StepWork:
    return step_work(llm, gpu, Deployment(**deployment))


def ideal(of: StepWork, context: float = 1000) -> StepTimer:
    return step_timer(of, ROOFLINE, of.contexts(context, context))


def test_a_step_reads_the_weights_once_and_every_cache() -> None:
    of = work(tp=4, weights="bf16")
    step = ideal(of).iteration(10, 0)
    layers = 80 * (8192 * 8192 * 2 + 2 * 8192 * 1024 + 3 * 8192 * 28672) + 128256 * 8192
    cache = 10 * 1000 * 80 * 2 * 1024 * 2
    assert step.memory_s * H100.require_bandwidth_bytes_per_s() == pytest.approx((2 * layers + cache) / 4, rel=1e-3)
    attention = 10 * 1000 * 80 * 2 * 64 * 256
    flops = 2 * 10 * (layers - 128256 * 8192) + 2 * 10 * 128256 * 8192 + attention
    assert step.compute_s * H100.require_peak_flops_per_s("bf16") == pytest.approx(flops / 4, rel=1e-3)


def test_prompt_tokens_are_computed_and_only_their_last_position_meets_the_head() -> None:
    timer = ideal(work(weights="bf16", tp=4))
    alone, beside = timer.iteration(1, 0), timer.iteration(1, 1000)
    head_s = 2 * 128256 * 8192 / 4 / H100.require_peak_flops_per_s("bf16")
    attention_s = timer.attention_s_per_position
    assert beside.compute_s - alone.compute_s == pytest.approx(1000 * (alone.compute_s - head_s) + head_s, rel=1e-3)
    assert attention_s == pytest.approx(timer.attention_s_per_prompt_token)
    assert beside.memory_s > alone.memory_s


@pytest.mark.parametrize(
    ("tokens", "share"), [(1, 8 / 256), (32, 1 - (1 - 8 / 256) ** 32), (10_000, 1.0)], ids=["one token", "a batch", "a prompt"]
)
def test_a_step_reads_the_experts_that_its_tokens_choose(tokens: int, share: float) -> None:
    timer = ideal(work(DEEPSEEK, tp=8))
    bare = timer.weights_s + tokens * timer.kv_s_per_sequence
    (experts,) = timer.experts
    assert timer.iteration(tokens, 0).memory_s - bare == pytest.approx(experts.read_s * share)


def test_latent_attention_decodes_in_the_latent() -> None:
    (reach,) = {(each.prompt_width, each.decode_width, each.most_entries) for each in attention_reaches(DEEPSEEK)}
    assert reach == (128 * (128 + 64 + 128), 128 * (2 * 512 + 64), math.inf)


def test_a_latent_cache_is_read_whole_on_every_rank_and_divided_by_data_parallel_ranks() -> None:
    one, eight, ranks = ideal(work(DEEPSEEK, tp=1)), ideal(work(DEEPSEEK, tp=8)), ideal(work(DEEPSEEK, dp=8, ep=8))
    assert eight.kv_s_per_sequence == pytest.approx(one.kv_s_per_sequence)
    assert ranks.kv_s_per_sequence == pytest.approx(one.kv_s_per_sequence / 8)


def test_windows_limit_what_is_read_and_computed() -> None:
    of = work(CATALOG.model("gpt-oss-120b"))
    short, long = (of.contexts(tokens, tokens) for tokens in (100_000, 200_000))
    assert long.kv_bytes < 2.01 * short.kv_bytes
    half = sum(each.num_layers for each in of.model.reaches if each.most_entries == 128)
    assert half == 18
    windowed = [each.decode_flops_per_token(100_000) for each in of.model.reaches if each.most_entries == 128]
    assert windowed == [each.decode_flops_per_token(200_000) for each in of.model.reaches if each.most_entries == 128]


def test_recurrent_state_is_read_and_written() -> None:
    of = work(CATALOG.model("qwen3-next-80b-a3b"), tp=2)
    assert of.kv is not None
    assert of.kv.state_bytes > 0
    assert of.kv_bytes(10) - of.kv.sequence_bytes(10) == of.kv.state_bytes


@pytest.mark.parametrize(
    ("weights", "gpu", "formats", "weight_class"),
    [
        ("bf16", "h100-sxm-80gb", ("bf16", "bf16"), "16"),
        ("fp8", "h100-sxm-80gb", ("fp8", "fp8"), "8"),
        ("fp8", "a100-sxm-80gb", ("bf16", "bf16"), "8"),
        ("awq", "h100-sxm-80gb", ("bf16", "bf16"), "w4"),
        ("nvfp4", "b200-sxm-180gb", ("fp4", "fp4"), "4"),
        ("nvfp4", "h100-sxm-80gb", ("bf16", "bf16"), "w4"),
        ("bf16", "t4-16gb", ("fp16", "fp16"), "16"),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else "",
)
def test_products_run_in_what_the_accelerator_multiplies(weights: Any, gpu: str, formats: tuple[str, str], weight_class: str) -> None:
    found = products_of(LLAMA, CATALOG.gpu(gpu), Deployment(weights=weights))
    assert ((found.mixer_format, found.dense_format), found.weight_class) == (formats, weight_class)


@pytest.mark.parametrize(("gpu", "experts"), [("h100-sxm-80gb", "bf16"), ("b200-sxm-180gb", "fp8")])
def test_mxfp4_experts_meet_8_bit_activations_where_4_bit_units_are(gpu: str, experts: str) -> None:
    found = products_of(CATALOG.model("gpt-oss-120b"), CATALOG.gpu(gpu), Deployment())
    assert (found.mixer_format, found.expert_format) == ("bf16", experts)


def test_a_peak_that_is_missing_is_named() -> None:
    gpu = Gpu(slug="g", name="g", memory_bytes=10**11, memory_bandwidth_bytes_per_s=1e12, peak_flops_per_s=PeakFlops(bf16=1e14))
    with pytest.raises(MissingFigure, match=r"peak_flops_per_s\.fp8"):
        step_work(LLAMA, gpu, Deployment(weights="fp8"))
    with pytest.raises(MissingFigure, match="memory_bandwidth_bytes_per_s"):
        step_work(LLAMA, Gpu(slug="g", name="g", peak_flops_per_s=PeakFlops(bf16=1e14)), Deployment(weights="bf16"))


def test_tensor_parallel_ranks_send_two_all_reduces_per_layer() -> None:
    timer = ideal(work(tp=4))
    sent = 2 * 80 * 8192 * 2 * 2 * 3 / 4
    assert timer.sent_s_per_token == pytest.approx(sent / 4.5e11)
    assert step_timer(timer.work, CONSTANTS, timer.at).messages_s == pytest.approx(160 * CONSTANTS.message_s)
    assert ideal(work()).iteration(5, 5).communication_s == 0


def test_data_parallel_ranks_send_tokens_to_their_experts() -> None:
    timer = ideal(work(DEEPSEEK, dp=8, ep=8))
    assert timer.sent_s_per_token == pytest.approx(2 * 58 * 7168 * 2 * 8 / 8 / 4.5e11)


@pytest.mark.parametrize(
    ("gpu", "num_gpus", "kind", "rate"),
    [
        ("h100-sxm-80gb", 8, "nvlink", 9e11),
        ("h100-sxm-80gb", 16, "network", NETWORK_BYTES_PER_S),
        ("a40-48gb", 4, "pcie", 63e9),
        ("gb200-186gb", 64, "nvlink", 1.8e12),
        ("mi300x-192gb", 8, "xgmi", 8.96e11),
    ],
)
def test_the_slowest_link_counts(gpu: str, num_gpus: int, kind: str, rate: float) -> None:
    assert link_between(CATALOG.gpu(gpu), num_gpus) == (kind, rate)


def test_a_link_that_is_not_known_costs_its_message_only() -> None:
    bare = Gpu(slug="g", name="g", interconnect=Interconnect(kind="x", generation="1", num_gpus_per_domain=2))
    assert link_between(bare, 2).one_way_bytes_per_s is None
    assert link_between(bare, 4) == ("unknown", None)


def test_whole_experts_keep_their_width() -> None:
    narrow, whole = work(DEEPSEEK, tp=8), work(DEEPSEEK, tp=8, ep=8)
    (experts,) = narrow.model.experts
    assert (narrow.expert_width(experts), whole.expert_width(experts)) == (2048 / 8, 2048)


def test_a_parameter_count_is_enough() -> None:
    of = work(Llm(slug="m", num_params=70 * 10**9, num_active_params=70 * 10**9), tp=4, weights="fp8")
    step = ideal(of).iteration(1, 0)
    assert step.memory_s == pytest.approx(17.5e9 / H100.require_bandwidth_bytes_per_s())
    assert step.compute_s == pytest.approx(2 * 70e9 / 4 / H100.require_peak_flops_per_s("fp8"))
    assert of.model.num_layers == pytest.approx(71, abs=1)


def test_a_sketch_of_experts_reads_what_is_active_and_more_with_every_token() -> None:
    of = work(Llm(slug="m", num_params=100 * 10**9, num_active_params=10 * 10**9), tp=4, weights="bf16")
    read = [ideal(of).iteration(count, 0).memory_s * H100.require_bandwidth_bytes_per_s() * 4 for count in (1, 1000)]
    assert read == pytest.approx([2 * 10e9, 2 * 100e9])


def test_drafts_are_computed_beside_every_sequence() -> None:
    drafts = work(tp=4, weights="bf16", speculative=Speculative(num_draft_tokens=3, acceptance_ratio=0.5))
    assert drafts.positions_per_sequence == 4
    plain, checked = (ideal(of).iteration(2, 0) for of in (work(tp=4, weights="bf16"), drafts))
    assert checked.memory_s == plain.memory_s
    assert 3.5 < checked.compute_s / plain.compute_s < 4.1


@pytest.mark.parametrize(
    ("slug", "found"),
    [
        ("h100-sxm-80gb", "hopper"), ("h100-pcie-80gb", "hopper"), ("b200-sxm-180gb", "blackwell"), ("gb300-288gb", "blackwell"),
        ("a100-sxm-80gb", "ampere"), ("a800-pcie-80gb", "ampere"), ("mi300x-192gb", "amd"), ("l40s-48gb", "card"),
        ("rtx-5090-32gb", "card"), ("tpu-v6e-32gb", "other"),
    ],
)  # fmt: skip
def test_accelerators_fall_into_classes(slug: str, found: str) -> None:
    assert gpu_class(CATALOG.gpu(slug)) == found


def test_an_unknown_effect_is_one_and_a_limit_is_kept() -> None:
    model = BUNDLED.steps
    base = {constant.name: constant.base for constant in model.constants}
    nothing = StepClass("llama.cpp", "other", "16", "dense", era="no such era")
    kinds = [effect for constant in model.constants for effect in constant.effects if effect.holds(nothing)]
    assert all(effect.engine is None and effect.gpu_class is None for effect in kinds)
    found = model.constants_of(nothing)
    assert found.message_s == base["message_s"]
    assert found.link_ratio == pytest.approx(base["link_ratio"], rel=0.01)
    for constant in model.constants:
        for known in model.fitted:
            value = getattr(model.constants_of(StepClass(known.engine, known.gpu_class, known.weights, known.kind)), constant.name)
            assert 0 < value <= (constant.most or math.inf)
    assert [constant.name for constant in model.constants if not constant.low <= constant.high] == []


def test_every_class_has_a_band_that_holds_the_prediction() -> None:
    for engine in ("vllm", "sglang", "tensorrt-llm", "llama.cpp", "generic"):
        for kind in ("dense", "moe"):
            for quantity in ("ttft", "tpot", "throughput"):
                band = BUNDLED.steps.band(StepClass(engine, "hopper", "8", kind), quantity)
                assert band.low_ratio < 1 < band.high_ratio


@pytest.mark.parametrize(
    ("engine", "version", "era"), [("vllm", "0.6.3", "vllm-v0"), ("vllm", "0.19.0", None), ("vllm", None, None), ("sglang", "0.5.1", None)]
)
def test_old_versions_have_effects_of_their_own(engine: Any, version: str | None, era: str | None) -> None:
    assert BUNDLED.steps.era_of(engine, version) == era


def test_the_fixed_time_of_a_step_follows_the_kernels() -> None:
    kernels = BUNDLED.steps.kernels
    of = work(DEEPSEEK, tp=8)
    assert list(of.model.layers) == [0, 0, 0, 61, 0, 0, 3, 58, 58]
    timer = step_timer(of, CONSTANTS, of.contexts(1, 1), kernels)
    launched = CONSTANTS.latent_kernel_ratio * 61 * kernels.num_latent + 3 * kernels.num_dense
    launched += CONSTANTS.expert_kernel_ratio * 58 * kernels.num_expert + CONSTANTS.shared_kernel_ratio * 58 * kernels.num_shared
    quantising = 61 * kernels.num_quantise_latent + 3 * kernels.num_quantise_dense
    quantising += 58 * (kernels.num_quantise_shared + kernels.num_quantise_expert)
    launched += CONSTANTS.quantise_kernel_ratio * quantising
    assert timer.fixed_s == pytest.approx(launched * CONSTANTS.kernel_s + CONSTANTS.step_s)


def parts_add_up(step: IterationTime) -> bool:
    overlapped = step.dense_s + step.experts_s + step.attention_s + step.prompt_attention_s
    assert step.total_s == pytest.approx(overlapped + step.communication_s + step.overhead_s)
    return max(step.memory_s, step.compute_s) <= overlapped * (1 + 1e-9) and overlapped <= (step.memory_s + step.compute_s) * (1 + 1e-9)


@settings(deadline=None)
@given(
    st.sampled_from([*DETAILED, dense()]),
    st.sampled_from([{"tp": 1}, {"tp": 8}, {"dp": 4}, {"tp": 2, "pp": 2}]),
    st.integers(1, 4096),
    st.integers(0, 16384),
    st.integers(1, 200_000),
)
def test_more_of_anything_never_takes_less_time(llm: Llm, layout: dict[str, Any], sequences: int, prompt: int, context: int) -> None:
    of = step_work(llm, CATALOG.gpu("b200-sxm-180gb"), Deployment(**layout))
    timer, longer = (step_timer(of, CONSTANTS, of.contexts(tokens, tokens)) for tokens in (context, context + 1000))
    step = timer.iteration(sequences, prompt)
    assert parts_add_up(step)
    assert math.isfinite(step.total_s)
    assert timer.total_s(sequences, prompt) == step.total_s
    for more in (timer.iteration(sequences + 1, prompt), timer.iteration(sequences, prompt + 1), longer.iteration(sequences, prompt)):
        assert more.total_s >= step.total_s * (1 - 1e-12)
    perfect = step_timer(of, ROOFLINE, timer.at).iteration(sequences, prompt)
    assert perfect.total_s <= step.total_s


def test_the_sums_of_a_model_are_kept_with_it() -> None:
    assert model_work(LLAMA) is model_work(LLAMA)
    assert model_work(LLAMA.model_copy(update={"slug": "other"})) is not model_work(LLAMA)
    assert model_work(DEEPSEEK).linear_params + 129280 * 7168 * 2 == pytest.approx(DEEPSEEK.num_active_params, rel=1e-3)
