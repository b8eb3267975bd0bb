"""The checks that an engine makes at start-up, in its order: the first that fails is why it does not start."""

from collections.abc import Iterator
from typing import NamedTuple

from app.domain.engine import CheckName, EngineMemory
from app.domain.paging import PagedPool, Pool
from app.domain.units import GIB
from app.domain.value import Value


class StartCheck(Value):
    """One check of the engine's start."""

    name: CheckName
    """The check."""
    passed: bool
    """Whether the deployment passes it."""
    margin_bytes: int
    """Left (positive) or missing (negative) per accelerator [bytes]."""
    message: str
    """What was compared, as a sentence, and what to change where it fails."""


class CheckInputs(NamedTuple):
    """What the checks compare, on the fullest accelerator [bytes]."""

    memory_bytes: int
    budget_bytes: int
    weights_bytes: int
    persistent_bytes: int
    """Context, libraries, communication: beside the weights for good."""
    activation_bytes: int
    graphs_outside_bytes: int
    """CUDA graphs that the budget does not count; 0 where it does or none are captured."""
    kv_room_bytes: int
    pool: Pool | None
    max_model_len_tokens: int | None
    max_num_seqs: int
    captures_graphs: bool
    keeps_state: bool


def start_checks(engine: EngineMemory, given: CheckInputs) -> tuple[StartCheck, ...]:
    """Every check of the engine in its order, also those behind one that fails."""
    return tuple(check for name in engine.checks for check in _CHECKS[name](given))


def first_failure(checks: tuple[StartCheck, ...]) -> StartCheck | None:
    """The check at which the start stops; None when it does not."""
    return next((check for check in checks if not check.passed), None)


def _gib(num_bytes: float) -> str:
    return f"{num_bytes / GIB:.2f} GiB"


def _check(name: CheckName, margin: int, message: str, *, least: int = 0) -> Iterator[StartCheck]:
    yield StartCheck(name=name, passed=margin >= least, margin_bytes=margin, message=message)


def _free_memory(given: CheckInputs) -> Iterator[StartCheck]:
    margin = given.memory_bytes - given.budget_bytes
    yield from _check(
        "free_memory", margin,
        f"At start {_gib(given.budget_bytes)} of {_gib(given.memory_bytes)} have to be free: other processes may hold "
        f"{_gib(max(0, margin))}; else lower memory_fraction_ratio.",
    )  # fmt: skip


def _weights_load(given: CheckInputs) -> Iterator[StartCheck]:
    margin = given.memory_bytes - given.weights_bytes
    yield from _check(
        "weights_load", margin,
        f"Weights of {_gib(given.weights_bytes)} against {_gib(given.memory_bytes)} of the device; the fraction does not limit loading.",
    )  # fmt: skip


def _profile_run(given: CheckInputs) -> Iterator[StartCheck]:
    needed = given.weights_bytes + given.persistent_bytes + given.activation_bytes
    yield from _check(
        "profile_run", given.memory_bytes - needed,
        f"The profile run needs {_gib(needed)} of {_gib(given.memory_bytes)}; lower max_num_seqs first, then max_num_batched_tokens.",
    )  # fmt: skip


def _kv_memory(given: CheckInputs) -> Iterator[StartCheck]:
    yield from _check(
        "kv_memory", given.kv_room_bytes,
        f"The budget leaves {_gib(given.kv_room_bytes)} for the KV cache; "
        "where that is nothing raise memory_fraction_ratio or lower max_num_seqs.",
        least=1,
    )  # fmt: skip


def _max_model_len(given: CheckInputs) -> Iterator[StartCheck]:
    length, pool = given.max_model_len_tokens, given.pool
    if length is None or pool is None:
        return
    needed = pool.request_bytes(length)
    yield from _check(
        "max_model_len", max(0, given.kv_room_bytes) - needed,
        f"One request of {length} tokens needs {_gib(needed)} of KV cache, {_gib(max(0, given.kv_room_bytes))} are available.",
    )  # fmt: skip


def _state_blocks(given: CheckInputs) -> Iterator[StartCheck]:
    pool = given.pool
    if not isinstance(pool, PagedPool) or not given.keeps_state or not given.captures_graphs:
        return
    blocks = pool.num_blocks(max(0, given.kv_room_bytes))
    yield from _check(
        "state_blocks", int((blocks - given.max_num_seqs) * pool.bytes_per_block),
        f"max_num_seqs {given.max_num_seqs} against {blocks} cache blocks: every sequence that decodes in a CUDA graph needs one.",
    )  # fmt: skip


def _graph_capture(given: CheckInputs) -> Iterator[StartCheck]:
    if not given.captures_graphs:
        return
    free = given.memory_bytes - given.budget_bytes + given.activation_bytes
    yield from _check(
        "graph_capture", free - given.graphs_outside_bytes,
        f"CUDA graphs take {_gib(given.graphs_outside_bytes)} outside the budget, {_gib(free)} are left; "
        "where that is too little lower memory_fraction_ratio or run eager.",
    )  # fmt: skip


_CHECKS = {
    "free_memory": _free_memory,
    "weights_load": _weights_load,
    "profile_run": _profile_run,
    "kv_memory": _kv_memory,
    "max_model_len": _max_model_len,
    "state_blocks": _state_blocks,
    "graph_capture": _graph_capture,
}
