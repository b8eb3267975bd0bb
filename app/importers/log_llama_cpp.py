"""What llama.cpp prints when it starts: a buffer a device for weights, cache and computation.

Formats: https://github.com/ggml-org/llama.cpp `src/llama-model.cpp`, `src/llama-kv-cache.cpp`, `src/llama-context.cpp`.
"""

import re

from app.domain.provenance import Note
from app.importers.log_lines import EngineLines, Failure, Printed, Reading, reduced

_BUFFER = r":\s+(?P<{0}_device__text>(?!CPU|\w+_Host)\S+)\s+{1}buffer size =\s*(?P<{0}__mib>[\d.]+) MiB"
_PRINTED = (
    ("build: ", r"\bbuild: (?P<engine_version__text>\d+) \("),
    ("build_info: b", r"build_info: b(?P<engine_version__text>\d+)"),
    ("loaded meta data", r"(?P<model__text>[^/\\\s]+\.gguf)\b"),
    ("file type ", r"print_info: file type\s+= (?:\(guessed\) )?(?P<quantization__text>\w+(?: - (?:Small|Medium|Large))?)"),
    ("VMM: ", r"VMM: \w+, VRAM: (?P<memory_bytes__mib>\d+) MiB"),
    ("using device", r" - (?P<free_at_start_bytes__mib>\d+) MiB free"),
    ("layers to GPU", r"offloaded (?P<layers_offloaded__int>\d+)/(?P<layers_in_all__int>\d+) layers"),
    ("load_tensors: ", _BUFFER.format("weights", "(?:model )?")),
    (" KV buffer size", _BUFFER.format("kv", "KV ")),
    (" RS buffer size", _BUFFER.format("state", "RS ")),
    (" compute buffer size", _BUFFER.format("compute", "compute ")),
    (" cells,", r"size =\s*(?!0\.00)[\d.]+ MiB \(\s*(?P<cells__int>\d+) cells,.{0,100}K \((?P<kv_cache__kv>\w+)\)"),
    ("KV self size", r"K \((?P<kv_cache__kv>\w+)\)"),
    ("n_ctx ", r"llama_\w+: n_ctx\s+= (?P<context__int>\d+)"),
    ("n_ctx_", r"llama_\w+: n_ctx_(?:per_)?seq\s+= (?P<max_model_len_tokens__int>\d+)"),
    ("n_seq_max", r"llama_\w+: n_seq_max\s+= (?P<max_num_seqs__int>\d+)"),
    ("n_outputs_max", r"llama_\w+: n_outputs_max\s+= (?P<outputs__int>\d+)"),
    ("flash_attn", r"llama_\w+: flash_attn\s+= (?P<flash_attention__text>\w+)"),
    ("n_ubatch", r"llama_\w+: n_ubatch\s+= (?P<max_num_batched_tokens__int>\d+)"),
)
_FAILURES = (
    Failure("buffer for kv cache", re.compile(r"failed to allocate buffer for kv cache.*"), "kv_memory"),
    Failure("unable to allocate", re.compile(r"unable to allocate \S+ buffer.*"), "weights_load"),
    Failure("failed to allocate compute", re.compile(r"failed to allocate compute.*"), "profile_run"),
)


FIRST_WITH_OUTPUTS, FIRST_WITH_WORDS = 9470, 6325
"""Builds from which n_outputs_max is printed, and flash attention as a word instead of 0 or 1; the first is interpolated by date.
https://github.com/ggml-org/llama.cpp/pull/23861, https://github.com/ggml-org/llama.cpp/pull/15434."""


def _interpret(reading: Reading, notes: list[Note]) -> dict[str, object]:
    values = reduced(reading, notes)
    if "engine_version" not in values and "max_num_batched_tokens" in reading and "outputs" not in reading:
        older = reading.get("flash_attention", ["auto"])[-1] == "0"
        values["engine_version"] = f"b{(FIRST_WITH_WORDS if older else FIRST_WITH_OUTPUTS) - 1}"
        shown = "flash attention is off as in builds before" if older else "nor is n_outputs_max, as in builds before"
        message = f"No build is printed; {shown} {FIRST_WITH_WORDS if older else FIRST_WITH_OUTPUTS}: read as {values['engine_version']}."
        notes.append(Note(code="build_by_format", message=message))
    weights = _by_device(reading, "weights")
    if weights:
        values["weights_bytes_per_gpu"] = max(weights.values())
        values["pp"] = len(weights)
        if len(weights) > 1:
            devices = ", ".join(weights)
            notes.append(Note(code="layers_over_devices", message=f"Layers lie on {devices}: read as pipeline stages, pp {len(weights)}."))
    if pools := _by_device(reading, "kv"):
        values["kv_cache_bytes_per_gpu"] = values["largest_kv_cache_bytes_per_gpu"] = max(pools.values())
    if states := _by_device(reading, "state"):
        values["state_bytes"] = max(states.values())
    if compute := _by_device(reading, "compute", repeated=True):
        values["activation_bytes"] = max(compute.values())
    if cells := reading.get("cells"):
        values["kv_cache_tokens"] = max(cells)
    if context := reading.get("context"):
        values.setdefault("max_model_len_tokens", context[-1])
        if "kv" in reading:
            values.setdefault("kv_cache_tokens", context[-1])
    offloaded, layers = reading.get("layers_offloaded"), reading.get("layers_in_all")
    if offloaded and layers and offloaded[-1] != layers[-1]:
        message = f"{offloaded[-1]} of {layers[-1]} layers are on accelerators: weights and cache of the others are in host memory."
        notes.append(Note(code="layers_in_host_memory", message=message))
    return values


def _by_device(reading: Reading, what: str, *, repeated: bool = False) -> dict[str, int]:
    """Bytes on each device: several caches of one device are added; a buffer that is reserved again counts once."""
    sizes: dict[str, int] = {}
    for device, size in zip(reading.get(f"{what}_device", []), reading.get(what, []), strict=True):
        before = sizes.get(str(device), 0)
        sizes[str(device)] = max(before, round(float(size))) if repeated else before + round(float(size))
    return sizes


LLAMA_CPP = EngineLines(
    begins=re.compile(r"\bmain: loading model|ggml_cuda_init: found"),
    ready=re.compile(r"server is listening|HTTP server listening|main: model loaded|all slots are idle"),
    printed=tuple(Printed(where, re.compile(pattern)) for where, pattern in _PRINTED),
    failures=_FAILURES,
    known=re.compile(r"CPU\w*\s+(?:\w+ )?buffer size|_Host\s|token to piece|output buffer|K \(|prompt cache|fit|size =|ggml_cuda_init"),
    weights="weights",
    pool="cells",
    interpret=_interpret,
)
"""https://github.com/ggml-org/llama.cpp"""
