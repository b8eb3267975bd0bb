"""One scrape of a metrics endpoint, or two with the time between them -> the metrics of a diagnosis.

Two scrapes tell what happened between them: rates and percentiles are of the differences, gauges the mean of both. One scrape tells the
averages since the engine started. Names of engines and exporters are in one map each.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from app.domain.errors import InvalidInput
from app.domain.metrics import Metrics
from app.domain.provenance import Note
from app.domain.units import seconds as written
from app.importers.scrape_figures import facts_of, figures_of, metrics_of, notes_of, read_from
from app.importers.scrape_gateway import DYNAMO_FRONTEND, GATEWAY
from app.importers.scrape_gen_ai import GEN_AI
from app.importers.scrape_groups import Engine, Grouped, grouped, one_model
from app.importers.scrape_hardware import CADVISOR, DCGM
from app.importers.scrape_llama_cpp import LLAMA_CPP
from app.importers.scrape_map import FactValue, ScrapeMap
from app.importers.scrape_readings import Figure
from app.importers.scrape_sglang import SGLANG
from app.importers.scrape_tensorrt_llm import TRITON, TRTLLM_SERVE
from app.importers.scrape_text import Exposition, read_exposition
from app.importers.scrape_tgi import TGI
from app.importers.scrape_time import CLOCKS, OF_EACH_PROCESS, STARTED, checked_seconds, seconds_between, seconds_since_start
from app.importers.scrape_vllm import VLLM
from app.importers.scrape_window import Window

ENGINES: tuple[ScrapeMap, ...] = (VLLM, SGLANG, TRTLLM_SERVE, TRITON, TGI, LLAMA_CPP, GEN_AI)
COMPANIONS: tuple[ScrapeMap, ...] = (DCGM, CADVISOR, GATEWAY, DYNAMO_FRONTEND)
MAX_ENGINES = 1000
MAX_NAMED = 8


@dataclass(frozen=True)
class Scraped:
    """What the scrapes of one target say."""

    engine: str
    """The engine or exporter, as its map names it."""
    whole: Metrics
    """All engines of the text: latencies over all requests, amounts and rates as means per engine."""
    replicas: Sequence[tuple[str, Metrics]]
    """Each engine by its name; of one engine the same as the whole."""
    notes: Sequence[Note]
    """What the reader has to know: the window, what was ambiguous, what was left out."""
    read_from: Sequence[Note]
    """For the working: which metrics were read from which name, and how."""
    facts: Mapping[str, FactValue]
    """Settings and sizes that the engine tells, in the words of EngineStart."""
    model: str | None = None
    """The model, where the series name it."""
    seconds: float | None = None
    """Length of the window [s]; None when it is not known."""


def read_scrapes(
    scrapes: Sequence[str] | str,
    seconds: float | None,
    *,
    pointer: str,
    model_name: str | None = None,
    maps: Sequence[ScrapeMap] = ENGINES + COMPANIONS,
) -> Scraped:
    """Metrics of one target from one scrape or two, the earlier first.

    Arguments: the texts, or one that stands alone at `pointer`; the seconds between them (needed unless the texts tell the time); where
    they are in the request (at `/prometheus` there are `scrapes`, `seconds_between` and `model_name`); the model to read where the text is
    of several; the engines and exporters to look for: what is beside an engine is read where no engine is.
    Raises InvalidInput with the place, the value and what was expected.
    """
    given = [scrapes] if isinstance(scrapes, str) else scrapes
    if not 1 <= len(given) <= 2:
        detail = f"{len(given)} scrapes are given."
        raise InvalidInput(detail, field=f"{pointer}/scrapes", value=len(given), expected="one scrape, or two of one target")
    checked_seconds(seconds, len(given), pointer=pointer)
    places = [pointer] if isinstance(scrapes, str) else [f"{pointer}/scrapes/{index}" for index in range(len(given))]
    names = _names(maps)
    texts = [
        read_exposition(text, names, pointer=place, of_each_process=OF_EACH_PROCESS) for text, place in zip(given, places, strict=True)
    ]
    notes: list[Note] = []
    of = _engine(texts, maps, places, notes)
    model = one_model(of, texts[-1], model_name, pointer=pointer)
    found, length = _window(of, texts, model, seconds, notes, pointer)
    if len(found.engines) > MAX_ENGINES:
        detail = f"The text holds {len(found.engines)} engines."
        raise InvalidInput(detail, field=places[-1], value=len(found.engines), expected=f"at most {MAX_ENGINES} engines")
    window = Window(found.whole, length, len(found.engines))
    figures = figures_of(of, window)
    if not of.is_companion and (age := seconds_since_start(texts[-1])) is not None:
        figures["uptime_s"] = Figure("uptime_s", age, STARTED, "time of the scrape - start")
    whole, left_out = metrics_of(figures)
    replicas = [(found.engines[0].name, whole)]
    if len(found.engines) > 1:
        parts = [figures_of(of, Window(each.points, length)) for each in found.engines]
        replicas = [(each.name, metrics_of(part)[0]) for each, part in zip(found.engines, parts, strict=True)]
        whole = whole.model_copy(update=_shares(of, found.engines))
        notes.append(_several(of, found.engines))
    return Scraped(
        engine=of.engine,
        whole=whole,
        replicas=replicas,
        notes=[*notes, *left_out, *notes_of(of, window, figures)],
        read_from=read_from(figures),
        facts=facts_of(of, window),
        model=model,
        seconds=length,
    )


def _names(maps: Sequence[ScrapeMap]) -> Callable[[str], str | None]:
    """From a name in a text to the name in the map that reads it."""
    common = {STARTED, *CLOCKS}

    def ours(name: str) -> str | None:
        if name in common:
            return name
        return next((found for each in maps if (found := each.ours(name)) is not None), None)

    return ours


def _engine(texts: Sequence[Exposition], maps: Sequence[ScrapeMap], places: Sequence[str], notes: list[Note]) -> ScrapeMap:
    """The engine of the texts; raises InvalidInput where there is none that is known, or the second text is of another."""
    chosen: list[ScrapeMap] = []
    for text, place in zip(texts, places, strict=True):
        counts = {each: sum(name in each.named for name in text.series) for each in maps}
        held = [each for each, count in counts.items() if count]
        of = [each for each in held if not each.is_companion] or held
        if not of:
            shown = ", ".join(sorted(text.names)[:MAX_NAMED])
            expected = f"metrics of {', '.join(each.engine for each in maps)}"
            raise InvalidInput(f"No metric of a known engine is in the text; it has {shown}.", field=place, value=shown, expected=expected)
        beside = [each.engine for each in held if each not in of]
        if beside and text is texts[-1]:
            message = f"The text holds metrics of {', '.join(beside)} too, which are not read here: give it once more as theirs."
            notes.append(Note(code="companion_not_read", message=message))
        chosen.append(max(of, key=lambda each: counts[each]))
        others = [each.engine for each in of if each is not chosen[-1]]
        if others and text is texts[-1]:
            message = f"The text holds metrics of {', '.join(others)} too: those of {chosen[-1].engine} are read."
            notes.append(Note(code="several_kinds", message=message))
    if chosen[0] is not chosen[-1]:
        detail = f"The first scrape is of {chosen[0].engine}, the second of {chosen[-1].engine}."
        raise InvalidInput(detail, field=places[-1], value=chosen[-1].engine, expected="two scrapes of one target")
    return chosen[-1]


def _window(
    of: ScrapeMap, texts: Sequence[Exposition], model: str | None, seconds: float | None, notes: list[Note], pointer: str
) -> tuple[Grouped, float | None]:
    """(the engines' series, length of the window [s]); raises InvalidInput after a restart whose time is not known."""
    if len(texts) == 1:
        age = seconds_since_start(texts[0])
        since = f"{written(age)} before" if age else "at an unknown time, so that there are no rates: a second scrape would give them"
        message = f"One scrape: latencies and ratios are lifetime averages since the engine started, {since}. Gauges are of one moment."
        if of.is_companion:
            message = "One scrape: its gauges are of one moment, and counters tell nothing before a second."
        notes.append(Note(code="lifetime_averages", message=message))
        return grouped(of, texts, model), age
    found = grouped(of, texts, model)
    length: float | None = seconds_between(texts, seconds, notes, pointer=pointer)
    if found.restarted and not found.engines:
        name, fall = found.restarted[0]
        length = seconds_since_start(texts[-1])
        if length is None or (seconds is not None and length > seconds):
            detail = f"A counter of {name} fell between the scrapes ({fall}): it was restarted, or the scrapes are the wrong way round."
            raise InvalidInput(
                detail, field=f"{pointer}/scrapes/1", value=str(fall), expected="two scrapes of one run of the engine, the earlier first"
            )
        message = f"A counter fell between the scrapes ({fall}): the engine was restarted. The window is the {written(length)} since."
        notes.append(Note(code="restarted", message=message))
        return grouped(of, texts[-1:], model), length
    if found.restarted:
        shown = _shown([f"{name} ({fall})" for name, fall in found.restarted])
        notes.append(Note(code="restarted", message=f"Left out, since they were restarted between the scrapes: {shown}."))
    if not found.engines:
        detail = f"No series of {of.engine} in the second scrape is in the first one under the same labels."
        raise InvalidInput(detail, field=f"{pointer}/scrapes/1", value=_shown(found.new), expected="two scrapes of one target")
    if found.new:
        message = f"Left out, since the first scrape does not hold them: {_shown(found.new)}."
        notes.append(Note(code="new_engines", message=message))
    if found.gone:
        notes.append(Note(code="gone_engines", message=f"Left out, since the second scrape does not hold them: {_shown(found.gone)}."))
    return found, length


def _shares(of: ScrapeMap, engines: Sequence[Engine]) -> dict[str, float]:
    """How many engines there are, and the share of the requests that the busiest got, where each counts its own."""
    if of.finished is None:
        return {}
    counts = [Window(each.points, None).increase(of.finished) for each in engines]
    known = [count for count in counts if count is not None]
    shares: dict[str, float] = {"num_replicas": float(len(engines))}
    if len(known) == len(counts) and sum(known) > 0:
        shares["max_replica_traffic_ratio"] = max(known) / sum(known)
    return shares


def _several(of: ScrapeMap, engines: Sequence[Engine]) -> Note:
    names = _shown([each.name for each in engines])
    what = "devices or containers" if of.is_companion else "engines"
    message = (
        f"The text holds {len(engines)} {what} ({names}). Figures of the whole: latencies are of "
        "all requests together, amounts and rates are means per engine, other gauges the mean or, where said, the extreme."
    )
    return Note(code="several_engines", message=message)


def _shown(names: Sequence[str]) -> str:
    return "; ".join(names[:MAX_NAMED]) + (f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else "")
