"""The start-up log of an inference engine -> its settings and memory figures."""

from collections.abc import Mapping

from pydantic import ValidationError

from app.domain.deployment import EngineName
from app.domain.engine_start import EngineStart, ReadStart, StartFailure
from app.domain.errors import InvalidInput
from app.domain.provenance import Note
from app.domain.units import GIB
from app.importers.log_lines import EngineLines, Found, lines_of, lines_to_read, read_lines, spoken, starts
from app.importers.log_llama_cpp import LLAMA_CPP
from app.importers.log_sglang import SGLANG
from app.importers.log_tensorrt_llm import TENSORRT_LLM
from app.importers.log_vllm import VLLM

ENGINES: Mapping[EngineName, EngineLines] = {"vllm": VLLM, "sglang": SGLANG, "tensorrt-llm": TENSORRT_LLM, "llama.cpp": LLAMA_CPP}

POINTER = "/log"
EXPECTED = (
    "lines such as `GPU KV cache size: 94,784 tokens` (vLLM), `max_total_num_tokens=…` (SGLang), "
    "`Allocated … GiB for max tokens in paged KV cache` (TensorRT-LLM) or `KV buffer size = … MiB` (llama.cpp)"
)


def read_start_up(text: str) -> EngineStart:
    """Settings and figures of the last start that a log holds; raises InvalidInput when it holds none."""
    return read_log(text).start


def read_log(text: str) -> ReadStart:
    """The last start of a log with notes on what was ambiguous; raises InvalidInput when no line of a start is recognised."""
    lines = lines_of(text)
    whole = "\n".join(lines)
    found = {name: _last_start(spoken(engine, whole), lines) for name, engine in ENGINES.items()}
    counts = {name: one.num_figures for name, (one, _) in found.items() if one.reading or one.failure}
    if not counts:
        raise InvalidInput("no line of an engine's start is recognised in the log", field=POINTER, expected=EXPECTED)
    name = max(counts, key=lambda each: counts[each])
    last, num_starts = found[name]
    notes: list[Note] = []
    for other, count in counts.items():
        if other != name and 2 * count > counts[name]:
            notes.append(Note(code="several_engines", message=f"Lines of {other} are in the log too: it is read as one of {name}."))
    if num_starts > 1:
        notes.append(Note(code="several_starts", message=f"The log holds {num_starts} starts: the last one is read."))
    values = ENGINES[name].interpret(last.reading, notes)
    if last.failure is not None:
        values["failure"] = _failure(last)
    notes += [Note(code="line_not_understood", message=f"Not understood: {line}") for line in last.not_understood]
    try:
        return ReadStart(start=EngineStart.model_validate({"engine": name, **values}), notes=notes)
    except ValidationError as error:
        first = error.errors()[0]
        field, value = first["loc"][0] if first["loc"] else "", first["input"]
        raise InvalidInput(f"the log prints {field} = {value!r:.100}: {first['msg']}", field=POINTER, expected=EXPECTED) from error


def _last_start(engine: EngineLines, lines: list[str]) -> tuple[Found, int]:
    """(what the last start printed that measured something or failed, number of such starts); without one, the last that says anything."""
    if not (engine.printed or engine.failures):
        return Found({}, None, []), 0
    every = (read_lines(engine, one) for one in starts(engine, lines_to_read(engine, lines)))
    each = [found for found in every if found.reading or found.failure]
    measured = [found for found in each if found.is_measured]
    best = measured or each
    return (best[-1], len(measured)) if best else (Found({}, None, []), 0)


def _failure(found: Found) -> StartFailure | None:
    if found.failure is None:
        return None
    check, match = found.failure
    named = match.groupdict()
    needed, longest = named.get("needed"), named.get("longest")
    return StartFailure(
        check=check,
        message=match.group(0)[:2000],
        longest_len_tokens=int(longest) if longest else None,
        needed_kv_cache_bytes=round(float(needed) * GIB) if needed else None,
    )
