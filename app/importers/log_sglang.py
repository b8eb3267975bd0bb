"""What SGLang prints when it starts; its GB are 2^30 bytes.

Formats: https://github.com/sgl-project/sglang `python/sglang/srt/model_executor/model_runner.py`, `srt/mem_cache/memory_pool.py`,
`srt/managers/scheduler.py`.
"""

import re

from app.domain.provenance import Note
from app.domain.units import gigabytes
from app.importers.log_lines import NUMBER, EngineLines, Failure, Printed, Reading, reduced

_N = NUMBER
_ARGUMENTS, _POOL, _TOTAL = "ServerArgs(", "KV Cache is allocated", "max_total_num_tokens="
_PRINTED = (
    (_ARGUMENTS, r"\bmodel_path='(?P<model__text>[^']+)'"),
    (_ARGUMENTS, r"\bquantization='(?P<quantization__text>[\w-]+)'"),
    (_ARGUMENTS, r"\bkv_cache_dtype='(?P<kv_cache__kv>[\w.]+)'"),
    (_ARGUMENTS, r"\bmem_fraction_static=(?P<memory_fraction_ratio__float>[\d.]+)"),
    (_ARGUMENTS, r"\bcontext_length=(?P<max_model_len_tokens__int>\d+)"),
    (_ARGUMENTS, r"\btp_size=(?P<tp__int>\d+)"),
    (_ARGUMENTS, r"\bpp_size=(?P<pp__int>\d+)"),
    (_ARGUMENTS, r"\bdp_size=(?P<dp__int>\d+)"),
    (_ARGUMENTS, r"\bspeculative_num_draft_tokens=(?P<num_draft_tokens__int>\d+)"),
    (_ARGUMENTS, r"\bdisable_cuda_graph=(?P<enforce_eager__text>True|False)"),
    ("sglang", r"\bsglang(?: version|==| v)\s*(?P<engine_version__text>\d+\.\d+\.\d[\w.+]*)"),
    ("total GPU memory per device", r"using min: (?P<memory_bytes__mib>\d+) MiB"),
    ("total capacity of", r"total capacity of (?P<memory_bytes__gib>[\d.]+) GiB"),
    ("Load weight begin", r"avail mem=(?P<before_load__gib>[\d.]+) GB"),
    ("Load weight end", rf"end\.(?:.{{0,100}}\btype=(?P<load_type__text>\w+))?.{{0,200}}mem usage=(?P<load__gib>{_N}) GB"),
    (
        _POOL,
        r"#tokens: (?P<pool_tokens__int>\d+), (?:K|KV) size: (?P<pool_keys__gib>[\d.]+) GB(?:, V size: (?P<pool_values__gib>[\d.]+) GB)?",
    ),
    (_POOL, r"allocated\. K size: (?P<pool_keys__gib>[\d.]+) GB, V size: (?P<pool_values__gib>[\d.]+) GB"),  # before 0.4.2
    ("Load weight end", r"end\..{0,200}avail mem=(?P<after_load__gib>[\d.]+) GB"),
    ("SWAKVPool mem usage", r"usage: (?P<window_pools__gib>[\d.]+) GB"),
    ("SWAKVPool mem usage", r"full size: (?P<kv_cache_tokens__int>\d+)"),
    ("Mamba Cache is allocated", r"conv_state size: (?P<state_convolution__gib>[\d.]+) ?GB"),
    ("Mamba Cache is allocated", r" ssm_state size: (?P<state_recurrent__gib>[\d.]+) ?GB"),
    ("Mamba Cache is allocated", r"intermediate_conv_window_cache size: (?P<state_draft_windows__gib>[\d.]+) ?GB"),
    ("Mamba Cache is allocated", r"intermediate_ssm_state_cache size: (?P<state_drafts__gib>[\d.]+) ?GB"),
    (
        "graph end",
        rf"Capture (?P<graph_kind__text>[\w ]{{0,40}}?) ?(?:cuda|CUDA|npu) graph end\..{{0,100}}mem usage=(?P<graph__gib>{_N}) GB",
    ),
    (_TOTAL, r"max_total_num_tokens=(?P<total_tokens__int>\d+)"),
    (_TOTAL, r"\bchunked_prefill_size=(?P<max_num_batched_tokens__int>\d+)"),
    (_TOTAL, r"\bmax_running_requests=(?P<max_num_seqs__int>\d+)"),
    (_TOTAL, r"\bcontext_len=(?P<max_model_len_tokens__int>\d+)"),
)
_FAILURES = (
    Failure("--mem-fraction-static", re.compile(r"Not enough memory\. Please try to increase --mem-fraction-static.*"), "kv_memory"),
    Failure("leave no GPU memory", re.compile(r"Loaded weights leave no GPU memory for the KV cache.*"), "kv_memory"),
    Failure(
        "max_mamba_cache_size", re.compile(r"max_mamba_cache_size.{0,100}(?:<= 0|must be (?:greater|positive)|too small).*"), "state_blocks"
    ),
    Failure("out of memory", re.compile(r"CUDA (?:error: )?out of memory.*"), None),
)


def _interpret(reading: Reading, notes: list[Note]) -> dict[str, object]:
    values = reduced(reading, notes)
    if "enforce_eager" in values:
        values["enforce_eager"] = values["enforce_eager"] == "True"
    before = reading.get("before_load")
    if before:
        values["free_at_start_bytes"] = before[0]
    if "load" in reading:
        values["weights_bytes_per_gpu"] = _sum_of_kinds(reading, "load_type", "load")
    elif after := reading.get("after_load"):
        pairs = zip(sorted(map(float, before or ())), sorted(map(float, after)), strict=False)
        if used := [round(ahead - left) for ahead, left in pairs]:
            values["weights_bytes_per_gpu"] = max(0, *used)
    if "graph" in reading:
        values["cuda_graph_bytes"] = _sum_of_kinds(reading, "graph_kind", "graph")
    if states := [max(sizes) for name, sizes in reading.items() if name.startswith("state_")]:
        values["state_bytes"] = sum(int(size) for size in states)
    if totals := reading.get("total_tokens"):
        values["kv_cache_tokens"] = min(totals)
    if "pool_keys" in reading:
        _pools(reading, values, notes)
    return values


def _sum_of_kinds(reading: Reading, kind: str, size: str) -> int:
    """Largest figure of each kind over the ranks, kinds added: the model and its draft, decode and prefill graphs."""
    kinds = reading.get(kind, [])
    sizes = [max(0, round(float(value))) for value in reading[size]]
    if len(kinds) != len(sizes):
        return max(sizes)
    largest: dict[str, int] = {}
    for name, value in zip(kinds, sizes, strict=True):
        largest[str(name)] = max(largest.get(str(name), 0), value)
    return sum(largest.values())


def _pools(reading: Reading, values: dict[str, object], notes: list[Note]) -> None:
    """The pool of the model; ranks print the same one again, and a draft model prints its own behind it."""
    keys, vectors = reading["pool_keys"], reading.get("pool_values", [])
    halves = vectors if len(vectors) == len(keys) else [0] * len(keys)
    sizes = [round(float(key) + float(value)) for key, value in zip(keys, halves, strict=True)]
    tokens = [int(value) for value in reading.get("pool_tokens", [1] * len(sizes))]
    if windows := reading.get("window_pools"):
        values["kv_cache_bytes_per_gpu"], values["largest_kv_cache_bytes_per_gpu"] = min(windows), max(windows)
        return
    same = [size for count, size in zip(tokens, sizes, strict=True) if abs(size - sizes[0]) <= sizes[0] / 10 and count]
    values["kv_cache_bytes_per_gpu"], values["largest_kv_cache_bytes_per_gpu"] = min(same), max(same)
    if "pool_tokens" in reading:
        values.setdefault("kv_cache_tokens", min(tokens))
    others = [size for size in sizes if abs(size - sizes[0]) > sizes[0] / 10]
    if others:
        message = (
            f"A second KV cache pool of {gigabytes(max(others))} is printed, of a draft model; it is not part of kv_cache_bytes_per_gpu."
        )
        notes.append(Note(code="draft_pool", message=message))


SGLANG = EngineLines(
    begins=re.compile(r"server_args=ServerArgs\("),
    ready=re.compile(r"fired up and ready to roll|Application startup complete|Uvicorn running on"),
    printed=tuple(Printed(where, re.compile(pattern)) for where, pattern in _PRINTED),
    failures=_FAILURES,
    known=re.compile(r"Memory pool end|graph begin|Capturing|distributed ends|Load weight begin|avail[_ ]mem|Checkpoint size"),
    weights="load",
    pool="pool_keys",
    interpret=_interpret,
)
"""https://github.com/sgl-project/sglang"""
