"""What TensorRT-LLM prints when it starts: the PyTorch backend with its profile run, and compiled engines.

Formats: https://github.com/NVIDIA/TensorRT-LLM `tensorrt_llm/_torch/pyexecutor/_util.py`,
`cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp`.
"""

import re

from app.domain.provenance import Note
from app.importers.log_lines import NUMBER, EngineLines, Failure, Figure, Printed, Reading, reduced

_N = NUMBER
_PROFILE = r"in memory usage profiling: "
_LIMITS, _PAGED = "max_num_requests=", "in paged KV cache"
_PRINTED = (
    ("TensorRT-LLM version", r"version: (?P<engine_version__text>\d+\.\d[\w.+]*)"),
    ("tensor_parallel_size=", r"\btensor_parallel_size=(?P<tp__int>\d+)"),
    ("pipeline_parallel_size=", r"\bpipeline_parallel_size=(?P<pp__int>\d+)"),
    ("KV cache quantization", r"(?:overwritten|set) to \"?(?P<kv_cache__kv>\w+)"),
    (_LIMITS, r"max_seq_len=(?P<max_model_len_tokens__int>\d+)"),
    (_LIMITS, r"max_num_requests=(?P<max_num_seqs__int>\d+)"),
    (_LIMITS, r"max_num_tokens=(?P<max_num_batched_tokens__int>\d+)"),
    ("TRTGptModel maxBatchSize", r"maxBatchSize: (?P<max_num_seqs__int>\d+)"),
    ("TRTGptModel maxNumTokens", r"maxNumTokens: (?P<max_num_batched_tokens__int>\d+)"),
    ("TRTGptModel maxSequenceLen", r"maxSequenceLen: (?P<max_model_len_tokens__int>\d+)"),
    ("Number of tokens per block", r"block: (?P<block_size_tokens__int>\d+)"),
    ("Loaded engine size", r"size: (?P<weights_bytes_per_gpu__mib>[\d.]+) MiB"),
    ("GB for model weights", r"Rank \d+ uses (?P<checkpoint__gib>[\d.]+) GB"),
    ("after loading model weights (inside torch)", _PROFILE + r"(?P<weights_bytes_per_gpu__gib>[\d.]+) GiB"),
    ("allocated during inference (inside torch)", _PROFILE + r"(?P<activation_bytes__gib>[\d.]+) GiB"),
    ("Memory used outside torch", _PROFILE + r"(?P<non_torch_bytes__gib>[\d.]+) GiB"),
    ("available KV cache memory when", rf"max tokens: (?P<profiled_pool__gib>{_N}) GiB"),
    ("fraction is set", r"fraction is set (?P<memory_fraction_ratio__float>[\d.]+)"),
    ("device total memory", r"total memory (?P<memory_bytes__gib>[\d.]+) GiB"),
    ("kv_mem", r"tmp kv_mem (?P<trial_pool__gib>[\d.]+) GiB"),
    ("temporary kv cache memory", r"during profiling:? (?P<trial_pool__gib>[\d.]+) GiB"),
    ("Estimated max memory in KV cache", r"cache\s*: (?P<profiled_pool__gib>[\d.]+) GiB"),
    ("max tokens in paged kv cache: total", r"total: (?P<memory_bytes__gib>[\d.]+) GiB, available: (?P<left__gib>[\d.]+) GiB"),
    ("for execution context memory", r"Allocated (?P<activation_bytes__mib>[\d.]+) MiB"),
    (_PAGED, r"Allocated (?P<pool__gib>[\d.]+) GiB for max tokens in paged KV cache \((?P<pool_tokens__int>\d+)\)"),
    ("primary blocks=", r"primary blocks=(?P<primary_blocks__int>\d+)"),
    ("KV cache primary pool", r"pool: (?P<primary_blocks__int>\d+)"),
)
_FAILURES = (
    Failure("out of memory", re.compile(r"CUDA (?:error: )?out of memory.*"), None),
    Failure("due to insufficient GPU memory", re.compile(r"Executor creation failed due to insufficient GPU memory.*"), "kv_memory"),
    Failure("in kvCache", re.compile(r"Impossible to fit any sequence in kvCache.*"), "kv_memory"),
)


def _interpret(reading: Reading, notes: list[Note]) -> dict[str, object]:
    values = reduced(reading, notes)
    outside, trial = reading.get("non_torch_bytes"), reading.get("trial_pool")
    if outside and trial:  # the pool of the profile run is allocated outside torch and given back
        values["non_torch_bytes"] = max(0, max(int(size) for size in outside) - max(int(size) for size in trial))
    if "checkpoint" in reading:
        values.setdefault("weights_bytes_per_gpu", max(reading["checkpoint"]))
    pools = _final(reading.get("pool", []))
    if pools:
        values["kv_cache_bytes_per_gpu"], values["largest_kv_cache_bytes_per_gpu"] = min(pools), max(pools)
        values["kv_cache_tokens"] = min(_final(reading["pool_tokens"]))
    elif profiled := reading.get("profiled_pool"):
        values["kv_cache_bytes_per_gpu"] = min(profiled)
    if blocks := _final(reading.get("primary_blocks", [])):
        values["num_blocks"] = min(blocks)
    return values


def _final(printed: list[Figure]) -> list[int]:
    """The last pool over its ranks; a small one is made for the profile run before it."""
    sizes = [round(float(value)) for value in printed]
    return [size for size in sizes if abs(size - sizes[-1]) <= sizes[-1] / 10]


TENSORRT_LLM = EngineLines(
    begins=re.compile(r"TensorRT-LLM version: |Engine version .* found in the config file"),
    ready=re.compile(r"Engine loaded and ready|Application startup complete|Uvicorn running on|Started HTTPService"),
    printed=tuple(Printed(where, re.compile(pattern)) for where, pattern in _PRINTED),
    failures=_FAILURES,
    known=re.compile(
        r"Estimated (?:engine size|total)|prefetching|TensorRT-managed|workspace size|\(outside torch\)|model weights in total"
    ),
    weights="weights_bytes_per_gpu",
    pool="profiled_pool",
    interpret=_interpret,
)
"""https://github.com/NVIDIA/TensorRT-LLM"""
