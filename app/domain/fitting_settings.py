"""Settings of the engine that would let a deployment serve on the accelerators it has."""

from collections.abc import Iterator
from typing import Any

from app.domain.engine_budget import FEW_SEQUENCES
from app.domain.fitting_search import Change, Search, first, least, serves
from app.domain.memory import longest_len_tokens
from app.domain.memory_fit import Fit

HIGHEST_FRACTION = 0.98
"""Highest share of the memory that is offered: logged starts at 0.95 and above run out of memory later, in graphs or transfers."""
FEWEST_BATCHED_TOKENS, SHORTEST_LEN_TOKENS = 512, 1024
"""Where halving stops: steps of fewer tokens and shorter sequences are of no use to a server."""
SAFE_FRACTION, SMALL_STEP_TOKENS = 0.95, 2048
"""Settings that are tried together where no single one is enough: the share from which on logged starts run out of memory later, and
the step that vLLM takes by default on smaller devices (https://docs.vllm.ai/en/stable/configuration/conserving_memory.html)."""


def flags(search: Search) -> Iterator[Change | None]:
    """The engine's own limits; none of them lets weights fit that do not."""
    settings, found = search.found.settings, search.found
    if settings is None or found.verdict == "does_not_fit":
        return
    yield first(search.change(memory_fraction_ratio=fraction) for fraction in _higher(found, settings.fraction))
    sequences = {each for each in (found.num_blocks, *_halves(settings.max_num_seqs, 1)) if each and each < settings.max_num_seqs}
    yield least(sorted(sequences, reverse=True), lambda value: search.change(max_num_seqs=value))
    fewer = list(_halves(settings.max_num_batched_tokens, FEWEST_BATCHED_TOKENS))
    yield least(fewer, lambda value: search.change(max_num_batched_tokens=value))
    if not search.deployment.enforce_eager:
        yield search.change(enforce_eager=True)


def _higher(found: Fit, fraction: float | None) -> Iterator[float]:
    """Hundredths above the fraction, from where the missing memory could be there: no share of the memory frees more than itself."""
    if fraction is not None:
        missing = max(0, -found.margin_bytes) / found.memory_bytes
        for hundredths in range(int((fraction + missing) * 100) + 1, int(HIGHEST_FRACTION * 100) + 1):
            yield hundredths / 100


def lengths(search: Search) -> Iterator[Change | None]:
    """Shorter sequences: the longest that the KV cache holds, or shorter profile runs where those are whole prompts."""
    found, settings = search.found, search.found.settings
    if found.limiting == "max_model_len":
        lengths = (longest_len_tokens(found, room) for room in (found.low_room_bytes, found.kv_room_bytes) if room is not None)
        yield first(search.change(max_model_len_tokens=length) for length in lengths if length is not None)
    elif found.verdict != "does_not_fit" and settings is not None and found.max_model_len_tokens == settings.max_num_batched_tokens:
        shorter = list(_halves(found.max_model_len_tokens, SHORTEST_LEN_TOKENS))
        yield least(shorter, lambda value: search.change(max_model_len_tokens=value))


def settings_together(search: Search) -> Change | None:
    """Flags and the longest sequence together, each of which is needed: added one by one until it serves, then left out again in turn."""
    settings, found = search.found.settings, search.found
    if settings is None or found.verdict == "does_not_fit":
        return None
    offered: dict[str, Any] = {
        "memory_fraction_ratio": None if settings.fraction is None else max(SAFE_FRACTION, settings.fraction),
        "max_num_seqs": min(FEW_SEQUENCES, settings.max_num_seqs),
        "max_num_batched_tokens": min(SMALL_STEP_TOKENS, settings.max_num_batched_tokens),
    }
    fields = {name: value for name, value in offered.items() if value is not None and value != getattr(settings, _SETTINGS[name])}
    changed = search.change(**fields)
    for _ in range(2):  # first a length, then as many sequences as it leaves blocks for
        if changed is not None and not serves(changed):
            fields |= _fitted_limits(changed.found)
            changed = search.change(**fields)
    if not serves(changed):
        return None
    for name in list(fields):
        fewer = search.change(**{field: value for field, value in fields.items() if field != name})
        if serves(fewer) and fewer.found.is_tight <= changed.found.is_tight:
            changed = fewer
            del fields[name]
    return changed


def _fitted_limits(found: Fit) -> dict[str, Any]:
    """The limit that stands in the way, as low as the KV cache demands; empty where it is none of the caller's."""
    if found.limiting == "max_model_len":
        rooms = (found.low_room_bytes, found.kv_room_bytes)
        length = next((each for room in rooms if room is not None and (each := longest_len_tokens(found, room))), None)
        return {} if length is None else {"max_model_len_tokens": length}
    return {"max_num_seqs": found.num_blocks} if found.limiting == "max_num_seqs" and found.num_blocks else {}


_SETTINGS = {"memory_fraction_ratio": "fraction", "max_num_seqs": "max_num_seqs", "max_num_batched_tokens": "max_num_batched_tokens"}
"""Names of a deployment's fields in `engine_defaults.Settings`."""


def _halves(value: int, least: int) -> Iterator[int]:
    """value / 2, value / 4 ... down to `least`."""
    while (value := value // 2) >= least:
        yield value
