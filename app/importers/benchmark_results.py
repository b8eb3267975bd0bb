"""Results files of benchmark tools -> the load points of one sweep; the format is recognised from what is in the file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from app.domain.errors import InvalidInput
from app.domain.load_point import LoadPoint, disagreements
from app.domain.provenance import Note
from app.importers import benchmark_aiperf, benchmark_guidellm, benchmark_llm_d, benchmark_sglang, benchmark_vllm
from app.importers.benchmark_documents import documents
from app.importers.benchmark_fields import ResultFields, expected_object

MAX_FILES = 200
MAX_POINTS = 1000

Recognises = Callable[[ResultFields], bool]
Reads = Callable[[ResultFields], Sequence[LoadPoint]]
FORMATS: Mapping[str, tuple[Recognises, Reads]] = {
    "GuideLLM benchmarks.json": (benchmark_guidellm.is_guidellm, benchmark_guidellm.load_points),
    "AIPerf or GenAI-Perf profile export": (benchmark_aiperf.is_aiperf, benchmark_aiperf.load_points),
    "llm-d benchmark report": (benchmark_llm_d.is_llm_d, benchmark_llm_d.load_points),
    "SGLang bench_serving": (benchmark_sglang.is_sglang, benchmark_sglang.load_points),
    "vLLM bench serve": (benchmark_vllm.is_vllm, benchmark_vllm.load_points),
}


@dataclass(frozen=True)
class Sweep:
    """What one or several results files measured, in the order of the files, with notes on what disagrees in them."""

    points: Sequence[LoadPoint]
    notes: Sequence[Note]


def read_sweep(texts: Sequence[str], *, pointer: str = "/files") -> Sweep:
    """The load points of all files, in their order.

    A run whose every figure is that of an earlier one is the same run given twice: it counts once, and a note says so.
    Raises InvalidInput, or UnsupportedConfig for a version of a format that is not read, with the pointer, value and what was expected.
    """
    if not 0 < len(texts) <= MAX_FILES:
        raise InvalidInput(
            f"{len(texts)} results files are given; expected 1 to {MAX_FILES}.", field=pointer, expected=f"1 to {MAX_FILES} files"
        )
    points: dict[LoadPoint, int] = {}
    notes: list[Note] = []
    again: list[str] = []
    for index, text in enumerate(texts):
        for place, value in documents(text, pointer=f"{pointer}/{index}"):
            values = value if isinstance(value, list) else [value]
            for number, each in enumerate(values):
                where = f"{place}/{number}" if isinstance(value, list) else place
                for point in _points(expected_object(each, where)):
                    if point in points:
                        again.append(f"{where} is point {points[point]}")
                        continue
                    points[point] = len(points) + 1
                    notes += disagreements(point, within=f"point {len(points)}")
        if len(points) + len(again) > MAX_POINTS:
            detail = f"The results files hold more than {MAX_POINTS} measured points."
            raise InvalidInput(detail, field=f"{pointer}/{index}", expected=f"at most {MAX_POINTS} points")
    if not points:
        raise InvalidInput("The results files hold no measured point.", field=pointer, expected=_expected())
    if again:
        message = f"The same run is given more than once and counts once: {'; '.join(again[:5])}{' ...' if again[5:] else ''}."
        notes.append(Note(code="run_given_twice", message=message))
    models = sorted({point.model for point in points if point.model})
    if len(models) > 1:
        message = f"The points name different models ({', '.join(models[:5])}): one sweep measures one model."
        notes.append(Note(code="several_models", message=message))
    return Sweep(list(points), notes)


def _points(fields: ResultFields) -> Sequence[LoadPoint]:
    for recognises, reads in FORMATS.values():
        if recognises(fields):
            return reads(fields)
    keys = ", ".join(str(key)[:40] for key in list(fields.fields)[:8])
    detail = f"{fields.pointer} is no results file that is known; it begins with the fields {keys or '(none)'}."
    raise InvalidInput(detail, field=fields.pointer, value=keys, expected=_expected())


def _expected() -> str:
    return f"one of {', '.join(FORMATS)}"
