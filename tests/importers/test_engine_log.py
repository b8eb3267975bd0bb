"""Start-up logs as engines print them: every figure that a later step uses, on real logs and on single real lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.engine_start import EngineStart
from app.domain.errors import InvalidInput
from app.domain.units import GIB, MIB
from app.importers.engine_log import read_log, read_start_up
from tests.importers.start_up_figures import FAILURES, FIGURES, LOGS


def read(name: str) -> EngineStart:
    return read_start_up((LOGS / f"{name}.log").read_text())


def codes(text: str) -> list[str]:
    return [note.code for note in read_log(text).notes]


@pytest.mark.parametrize(("name", "printed"), FIGURES.items(), ids=FIGURES)
def test_printed_figures_are_read(name: str, printed: dict[str, object]) -> None:
    start = read(name)
    assert start.failure is None
    for field, value in printed.items():
        found = getattr(start, field)
        if isinstance(value, float) and "bytes" in field:
            assert found == pytest.approx(value * GIB, rel=1e-6), field
        else:
            assert found == value, field


@pytest.mark.parametrize(("name", "failure"), FAILURES.items(), ids=FAILURES)
def test_failed_starts_name_the_check(name: str, failure: tuple[str, int | None]) -> None:
    found = read(name).failure
    assert found is not None
    assert (found.check, found.longest_len_tokens) == failure


def test_every_log_is_read_in_a_case_and_has_a_source() -> None:
    names = {path.stem for path in LOGS.glob("*.log")}
    assert names == {*FIGURES, *FAILURES}
    sources = (LOGS / "SOURCES.md").read_text()
    assert all(f"| {name}.log | https://" in sources for name in names)


def test_the_last_of_several_starts_counts() -> None:
    text = (LOGS / "vllm-0.10.2-llava-awq-two-starts.log").read_text()
    assert "several_starts" in codes(text)
    first = text[: text.index("vLLM API server version", text.index("API server version") + 1)]
    failure = read_start_up(first).failure
    assert failure is not None
    assert failure.check == "free_memory"


LOADED = "INFO gpu_model_runner.py:1] Model loading took 12.00 GiB and 3.1 seconds\n"
POOL = LOADED + "INFO [gpu_worker.py:1] Available KV cache memory: 5.00 GiB\nINFO [kv_cache_utils.py:1] GPU KV cache size: 40,960 tokens\n"


@pytest.mark.parametrize(
    ("text", "check"),
    [
        pytest.param(
            "ValueError: Free memory on device (13.58/15.99 GiB) on startup is less than desired GPU memory utilization (0.85, 13.59 GiB).",
            "free_memory",
            id="other-processes",  # https://github.com/mrpid12org/imageworks
        ),
        pytest.param(LOADED + "CUDA out of memory. GPU 0 has a total capacity of 15.47 GiB of which", "profile_run", id="capacity"),
        pytest.param("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.74 GiB.", "weights_load", id="load"),
        pytest.param(LOADED + "CUDA out of memory. Tried to allocate 1.02 GiB.", "profile_run", id="profile"),
        pytest.param(
            LOADED + "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering",
            "profile_run",
            id="sampler",  # https://github.com/llm-d/llm-d/issues/787
        ),
        pytest.param(LOADED + "ValueError: No available memory for the cache blocks. Try increasing", "kv_memory", id="nothing-left"),
        pytest.param(LOADED + "AssertionError: Error in memory profiling. Initial free memory 70 GiB", "memory_grew", id="grew"),
        pytest.param(
            "ValueError: The model's max seq len (29000) is larger than the maximum number of tokens that can be stored in KV cache "
            "(23648).",
            "max_model_len",
            id="length-v0",  # https://github.com/vllm-project/vllm/issues/10517
        ),
        pytest.param(
            "ValueError: To serve at least one request with the models's max seq len (32768), (0.95 GiB KV cache is needed, which is "
            "larger than the available KV cache memory (0.93 GiB). Try increasing `gpu_memory_utilization`",
            "max_model_len",
            id="length-0.8",  # https://github.com/vllm-project/vllm/issues/15871
        ),
        pytest.param(
            POOL + "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (856). Each decode sequence requires one",
            "state_blocks",
            id="states",  # https://github.com/vllm-project/recipes/pull/551
        ),
        pytest.param(POOL + "CUDA out of memory. Tried to allocate 20.00 MiB.", "graph_capture", id="graphs"),
        pytest.param(
            "Load weight end. quant=fp8, fmt=e4m3, avail mem=12.25 GB, mem usage=125.65 GB.\n"
            "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.88.",
            "kv_memory",
            id="sglang",  # https://github.com/SemiAnalysisAI/InferenceX/issues/2128
        ),
    ],
)
def test_each_refusal_is_recognised(text: str, check: str) -> None:
    failure = read_start_up(text).failure
    assert failure is not None
    assert failure.check == check


def test_figures_of_refusals_are_kept() -> None:
    start = read_start_up("max_num_seqs (1024) exceeds available Mamba cache blocks (856). Each decode")
    assert (start.max_num_seqs, start.num_blocks) == (1024, 856)
    start = read_start_up("To serve at least one request with the model's max seq len (9), (0.95 GiB KV cache is needed")
    assert start.failure is not None
    assert start.failure.needed_kv_cache_bytes == round(0.95 * GIB)
    assert start.max_model_len_tokens == 9


def test_state_pools_of_sglang_are_added() -> None:
    """Lines of https://github.com/sgl-project/sglang `srt/mem_cache/memory_pool.py` with two ranks."""
    start = read_start_up(
        "[2026-03-11 13:53:21 TP0] Load weight end. elapsed=23.18 s, type=M, avail mem=32.02 GB, mem usage=28.79 GB.\n"
        "[2026-03-11 13:53:21 TP1] Load weight end. elapsed=23.18 s, type=M, avail mem=32.00 GB, mem usage=28.81 GB.\n"
        "[2026-03-11 13:53:23 TP0] Mamba Cache is allocated. max_mamba_cache_size: 64, conv_state size: 0.07GB, ssm_state size: 3.05GB "
        "intermediate_ssm_state_cache size: 48.75GB intermediate_conv_window_cache size: 0.43GB\n"
        "[2026-03-11 13:53:23 TP0] KV Cache is allocated. #tokens: 383872, KV size: 19.36 GB\n"
        "[2026-03-11 13:53:23 TP1] KV Cache is allocated. #tokens: 383700, KV size: 19.35 GB\n"
        "[2026-03-11 13:53:32 TP0] Capture npu graph end. Time elapsed: 8.04 s. mem usage=0.80 GB. avail mem=10.30 GB.\n"
    )
    assert start.state_bytes == pytest.approx((0.07 + 3.05 + 48.75 + 0.43) * GIB, abs=9)
    assert start.weights_bytes_per_gpu == round(28.81 * GIB)
    assert (start.kv_cache_bytes_per_gpu, start.largest_kv_cache_bytes_per_gpu) == (round(19.35 * GIB), round(19.36 * GIB))
    assert (start.kv_cache_tokens, start.cuda_graph_bytes) == (383_700, round(0.8 * GIB))


def test_sglang_before_it_counted_tokens_and_weights() -> None:
    """Printed by 0.4.1 on a page of its documentation, https://docs.sglang.ai (Sending Requests): 0.88 of 78.81, less 15.09."""
    start = read_start_up(
        "[2025-01-23 19:35:15 TP0] Load weight begin. avail mem=78.81 GB\n"
        "[2025-01-23 19:35:20 TP0] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=63.72 GB\n"
        "[2025-01-23 19:35:20 TP0] KV Cache is allocated. K size: 27.13 GB, V size: 27.13 GB.\n"
        "[2025-01-23 19:35:20 TP0] Memory pool end. avail mem=8.34 GB\n"
        "[2025-01-23 19:35:27 TP0] max_total_num_tokens=444500, max_prefill_tokens=16384, max_running_requests=2049, context_len=131072\n"
    )
    assert (start.weights_bytes_per_gpu or 0) / GIB == pytest.approx(15.09)
    assert (start.kv_cache_bytes_per_gpu or 0) / GIB == pytest.approx(54.26)
    assert (start.kv_cache_tokens, start.max_num_seqs, start.max_model_len_tokens) == (444_500, 2049, 131_072)


def test_llama_cpp_of_2024_in_a_container() -> None:
    """Formats of https://github.com/ggml-org/llama.cpp at b3000 (llama.cpp, llm_load_tensors and llama_kv_cache_init)."""
    start = read_start_up(
        "llm-1  | main: build: 3000 (0c27e6f6) with cc\n"
        "llm-1  | llm_load_tensors: offloaded 33/33 layers to GPU\n"
        "llm-1  | llm_load_tensors:        CPU buffer size =   281.81 MiB\n"
        "llm-1  | llm_load_tensors:      CUDA0 buffer size =  4403.49 MiB\n"
        "llm-1  | llama_new_context_with_model: n_ctx      = 8192\n"
        "llm-1  | llama_new_context_with_model: n_ubatch   = 512\n"
        "llm-1  | llama_kv_cache_init:      CUDA0 KV buffer size =  1024.00 MiB\n"
        "llm-1  | llama_new_context_with_model: KV self size  = 1024.00 MiB, K (f16):  512.00 MiB, V (f16):  512.00 MiB\n"
        "llm-1  | llama_new_context_with_model:      CUDA0 compute buffer size =   560.00 MiB\n"
        "llm-1  | llama_new_context_with_model:  CUDA_Host compute buffer size =    24.01 MiB\n"
    )
    assert (start.engine, start.engine_version, start.kv_cache) == ("llama.cpp", "3000", "fp16")
    assert (start.max_model_len_tokens, start.kv_cache_tokens, start.max_num_batched_tokens) == (8192, 8192, 512)
    sizes = start.weights_bytes_per_gpu, start.kv_cache_bytes_per_gpu, start.activation_bytes
    assert sizes == (round(4403.49 * MIB), 1024 * MIB, 560 * MIB)


def test_old_versions_print_blocks() -> None:
    """https://github.com/vllm-project/vllm/issues/10517"""
    start = read_start_up(
        "Loading model weights took 14.9888 GB\n"
        "Memory profiling results: total_gpu_memory=23.58GiB initial_memory_usage=15.34GiB peak_torch_memory=17.06GiB "
        "memory_usage_post_profile=15.35GiB non_torch_memory=0.35GiB kv_cache_size=3.81GiB gpu_memory_utilization=0.90\n"
        "GPU blocks: 1952, # CPU blocks: 2048\nMaximum concurrency for 20000 tokens per request: 1.56x\n"
    )
    assert start.kv_cache_tokens == 1952 * 16
    assert start.activation_bytes == pytest.approx((17.06 - 14.9888) * GIB, abs=2)
    assert start.max_model_len_tokens == 20_000


def test_new_versions_print_tokens_and_concurrency_on_one_line() -> None:
    start = read_start_up(
        "[kv_cache_utils.py:2464] GPU KV cache size: 460,496 tokens, Maximum concurrency for 131,072 tokens per request: 3.51x"
    )
    assert (start.kv_cache_tokens, start.max_model_len_tokens, start.max_concurrency_at_max_len_ratio) == (460_496, 131_072, 3.51)


def test_colours_ranks_and_progress_bars_do_not_hide_figures() -> None:
    start = read_start_up(
        "\x1b[1;36m(VllmWorker rank=1 pid=7)\x1b[0;0m INFO [gpu_worker.py:255] Available KV cache memory: 55.71 GiB\r\n"
        "Capturing CUDA graphs:  34%|███▍      | 12/35 [00:19<00:02,  9.93it/s](VllmWorker rank=0) Available KV cache memory: 55.62 GiB\n"
        "[1;36m(APIServer pid=9)[0;0m GPU KV cache size: 3,644,816 tokens\n"
    )
    assert (start.kv_cache_bytes_per_gpu, start.largest_kv_cache_bytes_per_gpu) == (round(55.62 * GIB), round(55.71 * GIB))
    assert start.kv_cache_tokens == 3_644_816


def test_what_happens_after_the_start_is_no_failed_start() -> None:
    assert read_start_up(POOL + "INFO: Application startup complete.\nCUDA out of memory. Tried to allocate 2 GiB.").failure is None


def test_a_crash_that_repeats_the_settings_is_no_new_start() -> None:
    """https://github.com/trietnguyeminh/Submission---EXACT--IJCNN (vllm_server.log)"""
    text = "INFO [core.py:112] Initializing a V1 LLM engine (v0.22.1) with config: model='m', max_seq_len=4096, tensor_parallel_size=2\n"
    dump = "ERROR [dump_input.py:72] Dumping input data for V1 LLM engine (v0.22.1) with config: model='m', max_seq_len=9"
    start = read_start_up(text + POOL + "INFO: Application startup complete.\n" + dump)
    assert (start.engine, start.tp, start.max_model_len_tokens, start.kv_cache_tokens) == ("vllm", 2, 4096, 40_960)


def test_a_build_without_tags_has_no_version() -> None:
    text = "INFO Initializing a V1 LLM engine (v0.1.dev1+gda1daf4) with config: model='m', chunked_prefill_enabled=False\n" + POOL
    found = read_log(text)
    assert found.start.engine_version is None
    assert found.start.chunked_prefill is False
    assert [note.code for note in found.notes] == ["untagged_build"]


def test_a_restart_that_did_not_get_to_figures_leaves_the_one_before() -> None:
    again = "INFO [core.py:112] Initializing a V1 LLM engine (v0.22.1) with config: model='m', max_seq_len=4096\n"
    found = read_log(again + POOL + again)
    assert found.start.kv_cache_tokens == 40_960
    assert found.notes == []


def test_contradictions_and_unknown_lines_are_said() -> None:
    text = POOL + "args: {'max_num_seqs': 64}\nargs: {'max_num_seqs': 128}\nINFO Reserved 3.00 GiB of pinned memory for the cache"
    found = read_log(text)
    assert found.start.max_num_seqs == 128
    assert {"printed_twice", "line_not_understood"} == {note.code for note in found.notes}
    assert "64, then 128" in found.notes[0].message
    assert "Reserved 3.00 GiB" in found.notes[1].message


def test_overrides_are_said() -> None:
    text = POOL + "non-default args: {'kv_cache_memory_bytes': 5368709120, 'cpu_offload_gb': 10.0, 'num_gpu_blocks_override': 512}"
    assert codes(text) == ["pool_was_given", "blocks_were_given", "weights_offloaded"]


def test_lines_of_two_engines_are_said() -> None:
    assert "several_engines" in codes(POOL + "max_total_num_tokens=5, chunked_prefill_size=2\nLoad weight end. mem usage=3.29 GB")


@pytest.mark.parametrize("text", ["", "hello\nworld", "GiB " * 1000, "\x00\x1b[", "INFO: 200 OK\n" * 50])
def test_a_log_without_a_start_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        read_log(text)
    assert refusal.value.field == "/log"
    assert "GPU KV cache size" in str(refusal.value.expected)


def test_an_impossible_figure_is_refused() -> None:
    with pytest.raises(InvalidInput, match="memory_fraction_ratio"):
        read_log(POOL + "args: {'gpu_memory_utilization': 90}")


def test_a_number_beyond_all_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="1e400") as refusal:
        read_log("Available KV cache memory: 1e400 GiB")
    assert refusal.value.field == "/log"


PIECES = st.sampled_from([line for path in sorted(LOGS.glob("*.log")) for line in path.read_text().splitlines()]) | st.text(max_size=40)


@given(st.lists(PIECES, max_size=40))
def test_any_lines_are_read_or_refused(lines: list[str]) -> None:
    try:
        start = read_start_up("\n".join(lines))
    except InvalidInput:
        return
    assert start.engine is not None
    pools = start.kv_cache_bytes_per_gpu, start.largest_kv_cache_bytes_per_gpu
    if pools[0] is not None and pools[1] is not None:
        assert pools[0] <= pools[1]


@pytest.mark.parametrize(
    ("lines", "build"),
    [
        pytest.param("n_ubatch = 512\nllama_context: flash_attn = 0", "b6324", id="scores"),
        pytest.param("n_ubatch = 512\nllama_context: flash_attn = auto", "b9469", id="every-token-has-logits"),
        pytest.param("n_ubatch = 512\nllama_context: flash_attn = auto\nllama_context: n_outputs_max = 4", None, id="newest"),
    ],
)
def test_the_age_of_a_llama_cpp_without_a_build_is_told_by_what_it_prints(lines: str, build: str | None) -> None:
    """Lines of https://github.com/ggml-org/llama.cpp `src/llama-context.cpp` at three ages."""
    text = f"llama_context: {lines}\nllama_context:      CUDA0 compute buffer size =   382.01 MiB\n"
    assert read_start_up(text).engine_version == build
    assert read_start_up(f"build_info: b9999-abc\n{text}").engine_version == "9999"
    assert ("build_by_format" in codes(text)) == (build is not None)
