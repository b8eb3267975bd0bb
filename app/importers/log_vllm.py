"""What vLLM prints when it starts, from 0.2 to 0.33, with workers of all ranks between one another.

Formats: https://github.com/vllm-project/vllm `vllm/worker/worker.py` (before 0.8), `vllm/v1/worker/gpu_worker.py`,
`vllm/v1/core/kv_cache_utils.py`, `vllm/v1/worker/gpu_model_runner.py`.
"""

import re

from app.domain.provenance import Note
from app.importers.log_lines import NUMBER, EngineLines, Failure, Printed, Reading, reduced

BLOCK_SIZE_TOKENS = 16
"""Default of versions that print blocks and no tokens (`vllm/config.py`, CacheConfig)."""

_N = NUMBER
_CONFIG, _ARGUMENTS = "Initializing a", "gs"
_PRINTED = (
    ("API server version", r"API server version (?P<engine_version__text>\d+\.\d[\w.+]*)"),
    ("version ", r"[█▄].{0,60} version (?P<engine_version__text>\d+\.\d[\w.+]*)"),
    (_CONFIG, r"LLM engine \(v(?P<engine_version__text>[^)\s]+)\)"),
    (_CONFIG, r"config: model='(?P<model__text>[^']+)'"),
    (_CONFIG, r"\bmax_seq_len=(?P<max_model_len_tokens__int>\d+)"),
    (_CONFIG, r"\btensor_parallel_size=(?P<tp__int>\d+)"),
    (_CONFIG, r"\bpipeline_parallel_size=(?P<pp__int>\d+)"),
    (_CONFIG, r"\bdata_parallel_size=(?P<dp__int>\d+)"),
    (_CONFIG, r"\bquantization=(?P<quantization__text>(?!None)[\w-]+)"),
    (_CONFIG, r"\benforce_eager=(?P<enforce_eager__text>True|False)"),
    (_CONFIG, r"\benable_prefix_caching=(?P<prefix_caching__text>True|False)"),
    (_CONFIG, r"\b(?:chunked_prefill_enabled|enable_chunked_prefill)=(?P<chunked_prefill__text>True|False)"),
    (_CONFIG, r"\bkv_cache_dtype=(?P<kv_cache__kv>[\w.]+)"),
    (_CONFIG, r"\bnum_spec_tokens=(?P<num_draft_tokens__int>\d+)"),
    # The arguments: `non-default args: {…}` or `args: Namespace(…)`
    ("gpu_memory_utilization", r"\bgpu_memory_utilization['\"]?(?:: |=)(?P<memory_fraction_ratio__float>[\d.]+)"),
    (_ARGUMENTS, r"\bmax_num_seqs['\"]?(?:: |=)(?P<max_num_seqs__int>\d+)"),
    (_ARGUMENTS, r"\bmax_num_batched_tokens['\"]?(?:: |=)(?P<max_num_batched_tokens__int>\d+)"),
    (_ARGUMENTS, r"\bblock_size['\"]?(?:: |=)(?P<block_size_tokens__int>\d+)"),
    (_ARGUMENTS, r"\bkv_cache_memory(?:_bytes)?['\"]?(?:: |=)(?P<kv_cache_asked__int>\d+)"),
    (_ARGUMENTS, r"\bnum_gpu_blocks_override['\"]?(?:: |=)(?P<blocks_asked__int>\d+)"),
    (_ARGUMENTS, r"\bcpu_offload_gb['\"]?(?:: |=)(?P<offloaded__gib>[\d.]*[1-9][\d.]*)"),
    ("Chunked prefill is enabled", r"max_num_batched_tokens=(?P<max_num_batched_tokens__int>\d+)"),
    ("Raising max_num_batched_tokens", r"from \d+ to (?P<max_num_batched_tokens__int>\d+)"),
    ("Setting attention block size", r"size to (?P<block_size_tokens__int>\d+) tokens"),
    ("Auto-fit max_model_len", r"reduced from \d+ to (?P<fitted_len__int>\d+)"),
    ("increase --gpu-memory-utilization from", r"from (?P<memory_fraction_ratio__float>[\d.]+) to"),
    ("The current --gpu-memory-utilization", r"utilization=(?P<memory_fraction_ratio__float>[\d.]+)"),
    ("total capacity of", r"total capacity of (?P<memory_bytes__gib>[\d.]+) GiB"),
    # Before 0.8
    ("oading model weights took", rf"took (?P<weights_bytes_per_gpu__gib>{_N}) (?:GB|GiB)"),
    (
        "total_gpu_memory (",
        r"total_gpu_memory \((?P<memory_bytes__gib>[\d.]+)GiB\) x gpu_memory_utilization "
        r"\((?P<memory_fraction_ratio__float>[\d.]+)\) = (?P<budget_bytes__gib>[\d.]+)GiB",
    ),
    ("model weights take", r"weights take (?P<weights_bytes_per_gpu__gib>[\d.]+)GiB"),
    (
        "non_torch_memory takes",
        rf"takes (?P<non_torch_bytes__gib>{_N})GiB; PyTorch activation peak memory takes (?P<activation_bytes__gib>{_N})GiB",
    ),
    ("reserved for KV Cache is", rf"KV Cache is (?P<kv_cache_bytes_per_gpu__gib>{_N})GiB"),
    ("Memory profiling results", r"total_gpu_memory=(?P<memory_bytes__gib>[\d.]+)GiB"),
    ("Memory profiling results", r"peak_torch_memory=(?P<torch_peak__gib>[\d.]+)GiB"),
    ("Memory profiling results", rf"non_torch_memory=(?P<non_torch_bytes__gib>{_N})GiB"),
    ("Memory profiling results", rf"kv_cache_size=(?P<kv_cache_bytes_per_gpu__gib>{_N})GiB"),
    (" blocks: ", r"(?:GPU|cuda|rocm) blocks: (?P<paged_blocks__int>[\d,]+)"),
    # Since 0.8
    ("Model loading took", rf"took (?P<weights_bytes_per_gpu__gib>{_N}) (?:GB|GiB)"),
    ("Available KV cache memory", rf"memory: (?P<kv_cache_bytes_per_gpu__gib>{_N}) GiB"),
    ("GPU KV cache size", r"size: (?P<kv_cache_tokens__int>[\d,]+) tokens"),
    (
        "Maximum concurrency for",
        rf"for (?P<concurrency_len__int>[\d,]+) tokens per request: (?P<max_concurrency_at_max_len_ratio__float>{_N})x",
    ),
    ("num_gpu_blocks is", r"is: (?P<num_blocks__int>[\d,]+)"),
    ("Free memory on device", r"\((?P<free_at_start_bytes__gib>[\d.]+)/(?P<memory_bytes__gib>[\d.]+) GiB\) on startup"),
    ("esired GPU memory utilization", r"\((?P<memory_fraction_ratio__float>[\d.]+), (?P<budget_bytes__gib>[\d.]+) GiB\)"),
    ("Actual usage is", r"is (?P<weights_bytes_per_gpu__gib>[\d.]+) GiB for weights?, "),
    ("Actual usage is", r"is (?P<consumed_bytes__gib>[\d.]+) GiB for consumed memory"),
    ("for peak activation", rf"(?P<activation_bytes__gib>{_N}) GiB for peak activation"),
    ("for non-torch memory", rf"(?P<non_torch_bytes__gib>{_N}) GiB for non-torch"),
    ("for CUDAGraph memory", rf"(?P<cuda_graph_bytes__gib>{_N}) GiB for CUDAGraph"),
    ("Current kv cache memory in use", r"in use is (?P<exact_kv__bytes>\d+) bytes"),
    ("Graph capturing finished", rf"took (?P<cuda_graph_bytes__gib>{_N}) GiB"),
    ("Estimated CUDA graph memory", rf"memory: (?P<estimated_cuda_graph_bytes__gib>{_N}) GiB"),
    ("CUDA graph memory profiling is enabled", r"(?P<graphs_counted__text>is enabled)"),
    ("CUDA graph memory profiling will be", r"(?P<graphs_not_counted__text>will be)"),
    ("CUDA graph pool memory", rf"memory: (?P<cuda_graph_bytes__gib>{_N}) GiB \(actual\)"),
    ("memory for KV Cache as specified", rf"eserved (?P<kv_cache_bytes_per_gpu__gib>{_N}) GiB"),
    ("warming up sampler", r"with (?P<max_num_seqs__int>\d+) dummy requests"),
    ("available Mamba cache blocks", r"max_num_seqs \((?P<max_num_seqs__int>\d+)\).{0,60}blocks \((?P<num_blocks__int>\d+)\)"),
    ("To serve at least one request", r"max seq len \((?P<max_model_len_tokens__int>\d+)\)"),
    ("To serve at least one request", rf"available KV cache memory \((?P<kv_cache_bytes_per_gpu__gib>{_N}) GiB\)"),
    ("tokens that can be stored in", r"max seq len \((?P<max_model_len_tokens__int>\d+)\)"),
    ("tokens that can be stored in", r"KV cache \((?P<kv_cache_tokens__int>\d+)\)"),
)
_FAILURES = (
    Failure("is less than desired GPU memory", re.compile(r"Free memory on device.*"), "free_memory"),
    Failure("warming up sampler", re.compile(r"(?:CUDA )?out of memory occurred when warming up sampler.*"), "profile_run"),
    Failure("Error in memory profiling", re.compile(r"Error in memory profiling.*"), "memory_grew"),
    Failure("No available memory for the cache blocks", re.compile(r"No available memory for.*"), "kv_memory"),
    Failure(
        "To serve at least one request",
        re.compile(
            r"To serve at least one request.{0,200}\((?P<needed>[\d.]+) GiB KV cache is needed"
            r"(?:.{0,300}estimated maximum model length is (?P<longest>\d+))?.*"
        ),
        "max_model_len",
    ),
    Failure("Cannot auto-fit max_model_len", re.compile(r"Cannot auto-fit max_model_len.*"), "max_model_len"),
    Failure(
        "tokens that can be stored in",
        re.compile(r"The model's max seq len.{0,200}KV cache \((?P<longest>\d+)\).*"),
        "max_model_len",
    ),
    Failure("available Mamba cache blocks", re.compile(r"max_num_seqs \(\d+\) exceeds available Mamba cache blocks.*"), "state_blocks"),
    Failure("out of memory", re.compile(r"(?:CUDA|HIP) (?:error: )?out of memory.*"), None),
)


def _interpret(reading: Reading, notes: list[Note]) -> dict[str, object]:
    values = reduced(reading, notes)
    for flag in ("enforce_eager", "prefix_caching", "chunked_prefill"):
        if flag in values:
            values[flag] = values[flag] == "True"
    if str(values.get("engine_version", "")).startswith("0.1.dev"):
        message = f"Version {values.pop('engine_version')} is that of a build without tags: it does not say which rules apply."
        notes.append(Note(code="untagged_build", message=message))
    pools = reading.get("exact_kv") or reading.get("kv_cache_bytes_per_gpu")
    if pools:
        values["kv_cache_bytes_per_gpu"], values["largest_kv_cache_bytes_per_gpu"] = min(pools), max(pools)
    if "graphs_counted" in reading or "graphs_not_counted" in reading:
        values["graphs_in_budget"] = "graphs_counted" in reading
    if "max_num_batched_tokens" in values:
        # What is given is raised for some models, and the last line does not always come from the same process.
        values["max_num_batched_tokens"] = max(reading["max_num_batched_tokens"])
    length = reading.get("fitted_len") or reading.get("concurrency_len")
    if length:
        values["max_model_len_tokens"] = length[-1]
    weights, peak = values.get("weights_bytes_per_gpu"), reading.get("torch_peak")
    if peak and isinstance(weights, int) and "activation_bytes" not in values:
        values["activation_bytes"] = max(0, round(float(peak[-1])) - weights)
    if (blocks := reading.get("paged_blocks")) and "kv_cache_tokens" not in values:
        values["num_blocks"] = min(blocks)
        values["kv_cache_tokens"] = int(min(blocks)) * int(str(values.get("block_size_tokens", BLOCK_SIZE_TOKENS)))
    _note_overrides(reading, notes)
    return values


def _note_overrides(reading: Reading, notes: list[Note]) -> None:
    if asked := reading.get("kv_cache_asked"):
        notes.append(
            Note(code="pool_was_given", message=f"kv_cache_memory_bytes {asked[-1]} was given: the engine ignores its memory fraction.")
        )
    if blocks := reading.get("blocks_asked"):
        notes.append(
            Note(code="blocks_were_given", message=f"num_gpu_blocks_override {blocks[-1]} was given: the pool is not the engine's own.")
        )
    if offloaded := reading.get("offloaded"):
        notes.append(
            Note(
                code="weights_offloaded",
                message=f"cpu_offload_gb is set: up to {offloaded[-1]} bytes of weights are not on the accelerator.",
            )
        )


VLLM = EngineLines(
    begins=re.compile(r"vLLM API server version|Initializing an? .{0,10}LLM engine \(v|(?:█|▄).*version \d|vLLM is starting"),
    ready=re.compile(r"Application startup complete|Starting vLLM API server|Uvicorn running on"),
    printed=tuple(Printed(where, re.compile(pattern)) for where, pattern in _PRINTED),
    failures=_FAILURES,
    known=re.compile(
        r"Checkpoint size|Available RAM|Auto-prefetch|default since v0\.21|memory profiling will be enabled|# CPU blocks|shared memory"
        r"|CPU swap|KV Transfer|pin_memory|Loading safetensors"
    ),
    weights="weights_bytes_per_gpu",
    pool="kv_cache_tokens",
    interpret=_interpret,
)
"""https://github.com/vllm-project/vllm"""
