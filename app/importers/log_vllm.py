"""What vLLM prints when it starts, from 0.2 to 0.33, with workers of all ranks between one another.

Formats: https://github.com/vllm-project/vllm `vllm/worker/worker.py` (before 0.8), `vllm/v1/worker/gpu_worker.py`,
`vllm/v1/core/kv_cache_utils.py`, `vllm/v1/worker/gpu_model_runner.py`.
"""

import re

from app.domain.provenance import Note
from app.importers.log_lines import NUMBER, EngineLines, Failure, Reading, reduced

_ASSIGNED = r"['\"]?\s*[:=]\s*['\"]?"
_PRINTED = (
    r"vLLM API server version (?P<engine_version__text>\d+\.\d[\w.+]*)",
    r"(?:█|▄).*version (?P<engine_version__text>\d+\.\d[\w.+]*)",
    r"LLM engine \(v(?P<engine_version__text>[^)\s]+)\)",
    r"config: model='(?P<model__text>[^']+)'",
    r"LLM engine .*\bmax_seq_len=(?P<max_model_len_tokens__int>\d+)",
    r"LLM engine .*\btensor_parallel_size=(?P<tp__int>\d+)",
    r"LLM engine .*\bpipeline_parallel_size=(?P<pp__int>\d+)",
    r"LLM engine .*\bdata_parallel_size=(?P<dp__int>\d+)",
    r"LLM engine .*\bquantization=(?P<quantization__text>(?!None)[\w-]+)",
    r"LLM engine .*\benforce_eager=(?P<enforce_eager__text>True|False)",
    r"LLM engine .*\benable_prefix_caching=(?P<prefix_caching__text>True|False)",
    r"LLM engine .*\bkv_cache_dtype=(?P<kv_cache__kv>[\w.]+)",
    r"LLM engine .*\bnum_spec_tokens=(?P<num_draft_tokens__int>\d+)",
    r"(?:args|Namespace\().*\bgpu_memory_utilization" + _ASSIGNED + r"(?P<memory_fraction_ratio__float>[\d.]+)",
    r"(?:args|Namespace\().*\bmax_num_seqs" + _ASSIGNED + r"(?P<max_num_seqs__int>\d+)",
    r"(?:args|Namespace\().*\bmax_num_batched_tokens" + _ASSIGNED + r"(?P<max_num_batched_tokens__int>\d+)",
    r"(?:args|Namespace\().*\bkv_cache_memory(?:_bytes)?" + _ASSIGNED + r"(?P<kv_cache_asked__int>\d+)",
    r"(?:args|Namespace\().*\bnum_gpu_blocks_override" + _ASSIGNED + r"(?P<blocks_asked__int>\d+)",
    r"(?:args|Namespace\().*\bcpu_offload_gb" + _ASSIGNED + r"(?P<offloaded__gib>[\d.]*[1-9][\d.]*)",
    r"Chunked prefill is enabled with max_num_batched_tokens=(?P<max_num_batched_tokens__int>\d+)",
    r"Raising max_num_batched_tokens from \d+ to (?P<max_num_batched_tokens__int>\d+)",
    r"Setting attention block size to (?P<block_size_tokens__int>\d+) tokens",
    r"Auto-fit max_model_len: reduced from \d+ to (?P<fitted_len__int>\d+)",
    r"The current --gpu-memory-utilization=(?P<memory_fraction_ratio__float>[\d.]+)",
    # Before 0.8
    r"[Ll]oading model weights took (?P<weights_bytes_per_gpu__gib>" + NUMBER + r") (?:GB|GiB)",
    r"total_gpu_memory \((?P<memory_bytes__gib>[\d.]+)GiB\) x gpu_memory_utilization "
    r"\((?P<memory_fraction_ratio__float>[\d.]+)\) = (?P<budget_bytes__gib>[\d.]+)GiB",
    r"model weights take (?P<weights_bytes_per_gpu__gib>[\d.]+)GiB; non_torch_memory takes (?P<non_torch_bytes__gib>"
    + NUMBER
    + r")GiB; PyTorch activation peak memory takes (?P<activation_bytes__gib>"
    + NUMBER
    + r")GiB; the rest of the memory reserved for KV Cache is (?P<kv_cache_bytes_per_gpu__gib>"
    + NUMBER
    + r")GiB",
    r"Memory profiling results: total_gpu_memory=(?P<memory_bytes__gib>[\d.]+)GiB\s+initial_memory_usage=[\d.]+GiB"
    r"\s+peak_torch_memory=(?P<torch_peak__gib>[\d.]+)GiB.*non_torch_memory=(?P<non_torch_bytes__gib>"
    + NUMBER
    + r")GiB\s+kv_cache_size=(?P<kv_cache_bytes_per_gpu__gib>"
    + NUMBER
    + r")GiB\s+gpu_memory_utilization=(?P<memory_fraction_ratio__float>[\d.]+)",
    r"# (?:GPU|cuda) blocks: (?P<num_blocks__int>[\d,]+)",
    # Since 0.8
    r"Model loading took (?P<weights_bytes_per_gpu__gib>" + NUMBER + r") (?:GB|GiB)",
    r"Available KV cache memory: (?P<kv_cache_bytes_per_gpu__gib>" + NUMBER + r") GiB",
    r"GPU KV cache size: (?P<kv_cache_tokens__int>[\d,]+) tokens",
    r"Maximum concurrency for (?P<concurrency_len__int>[\d,]+) tokens per request: (?P<max_concurrency_at_max_len_ratio__float>"
    + NUMBER
    + r")x",
    r"num_gpu_blocks is: (?P<num_blocks__int>[\d,]+)",
    r"Free memory on device\s*(?:cuda:\d+ )?\((?P<free_at_start_bytes__gib>[\d.]+)/(?P<memory_bytes__gib>[\d.]+) GiB\) on startup",
    r"esired GPU memory utilization (?:is )?\((?P<memory_fraction_ratio__float>[\d.]+), (?P<budget_bytes__gib>[\d.]+) GiB\)",
    r"Actual usage is (?P<weights_bytes_per_gpu__gib>[\d.]+) GiB for weights?, ",
    r"Actual usage is (?P<consumed_bytes__gib>[\d.]+) GiB for consumed memory",
    r"(?P<activation_bytes__gib>" + NUMBER + r") GiB for peak activation",
    r"(?P<non_torch_bytes__gib>" + NUMBER + r") GiB for non-torch memory",
    r"(?P<cuda_graph_bytes__gib>" + NUMBER + r") GiB for CUDAGraph memory",
    r"Current kv cache memory in use is (?P<exact_kv__bytes>\d+) bytes",
    r"Graph capturing finished in [\d.]+ secs?, took (?P<cuda_graph_bytes__gib>" + NUMBER + r") GiB",
    r"Estimated CUDA graph memory: (?P<estimated_cuda_graph_bytes__gib>" + NUMBER + r") GiB",
    r"CUDA graph pool memory: (?P<cuda_graph_bytes__gib>" + NUMBER + r") GiB \(actual\)",
    r"[Rr]eserved (?P<kv_cache_bytes_per_gpu__gib>" + NUMBER + r") GiB memory for KV Cache as specified by kv_cache_memory_bytes",
    r"warming up sampler with (?P<max_num_seqs__int>\d+) dummy requests",
    r"max_num_seqs \((?P<max_num_seqs__int>\d+)\) exceeds available Mamba cache blocks \((?P<num_blocks__int>\d+)\)",
    r"max seq len \((?P<max_model_len_tokens__int>\d+)\), \([\d.]+ GiB KV cache is needed, .*?"
    r"available KV cache memory \((?P<kv_cache_bytes_per_gpu__gib>" + NUMBER + r") GiB\)",
    r"max seq len \((?P<max_model_len_tokens__int>\d+)\) is larger than the maximum number of tokens that can be stored in "
    r"(?:the )?KV cache \((?P<kv_cache_tokens__int>\d+)\)",
)
_FAILURES = (
    Failure(re.compile(r"Free memory on device.*is less than desired GPU memory utilization.*"), "free_memory"),
    Failure(re.compile(r"(?:CUDA )?out of memory occurred when warming up sampler.*"), "profile_run"),
    Failure(re.compile(r"Error in memory profiling.*"), "memory_grew"),
    Failure(re.compile(r"No available memory for the cache blocks.*"), "kv_cache"),
    Failure(
        re.compile(
            r"To serve at least one request with the model.*\((?P<needed>[\d.]+) GiB KV cache is needed"
            r"(?:.*estimated maximum model length is (?P<longest>\d+))?.*"
        ),
        "max_model_len",
    ),
    Failure(re.compile(r"Cannot auto-fit max_model_len.*"), "max_model_len"),
    Failure(
        re.compile(r"The model's max seq len.* is larger than the maximum number of tokens .*KV cache \((?P<longest>\d+)\).*"), "max_model_len"
    ),
    Failure(re.compile(r"max_num_seqs \(\d+\) exceeds available Mamba cache blocks.*"), "state_blocks"),
    Failure(re.compile(r"(?:torch\.\w*\.?OutOfMemoryError|(?:CUDA|HIP) (?:error: )?out of memory).*"), None),
)


def _interpret(reading: Reading, notes: list[Note]) -> dict[str, object]:
    values = reduced(reading, notes)
    for flag in ("enforce_eager", "prefix_caching"):
        if flag in values:
            values[flag] = values[flag] == "True"
    pools = reading.get("exact_kv") or reading.get("kv_cache_bytes_per_gpu")
    if pools:
        values["kv_cache_bytes_per_gpu"], values["largest_kv_cache_bytes_per_gpu"] = min(pools), max(pools)  # type: ignore[type-var]
    if "max_num_batched_tokens" in values:
        # What is given is raised for some models, and the last line does not always come from the same process.
        values["max_num_batched_tokens"] = max(reading["max_num_batched_tokens"])  # type: ignore[type-var]
    length = reading.get("fitted_len") or reading.get("concurrency_len")
    if length:
        values["max_model_len_tokens"] = length[-1]
    weights, peak = values.get("weights_bytes_per_gpu"), reading.get("torch_peak")
    if peak and isinstance(weights, int) and "activation_bytes" not in values:
        values["activation_bytes"] = max(0, round(float(peak[-1])) - weights)
    blocks = values.get("num_blocks")
    if isinstance(blocks, int) and "kv_cache_tokens" not in values and "GPU" not in values and not str(values.get("engine_version", "")) > "":
        values.setdefault("block_size_tokens", 16)
    _note_overrides(reading, notes)
    return values


def _note_overrides(reading: Reading, notes: list[Note]) -> None:
    if asked := reading.get("kv_cache_asked"):
        notes.append(
            Note(code="pool_was_given", message=f"kv_cache_memory_bytes {asked[-1]} was given: the engine ignores its memory fraction.")
        )
    if blocks := reading.get("blocks_asked"):
        notes.append(Note(code="blocks_were_given", message=f"num_gpu_blocks_override {blocks[-1]} was given: the pool is not the engine's own."))
    if offloaded := reading.get("offloaded"):
        notes.append(
            Note(code="weights_offloaded", message=f"cpu_offload_gb is set: up to {offloaded[-1]} bytes of weights are not on the accelerator.")
        )


VLLM = EngineLines(
    begins=re.compile(r"vLLM API server version|LLM engine \(v|(?:█|▄).*version \d|vLLM is starting"),
    ready=re.compile(r"Application startup complete|Starting vLLM API server|Uvicorn running on"),
    printed=tuple(re.compile(pattern) for pattern in _PRINTED),
    failures=_FAILURES,
    known=re.compile(
        r"Checkpoint size|Available RAM|Auto-prefetch|default since v0\.21|memory profiling will be enabled|# CPU blocks|shared memory"
        r"|CPU swap|KV Transfer|pin_memory|Loading safetensors"
    ),
    interpret=_interpret,
)
"""https://github.com/vllm-project/vllm"""
