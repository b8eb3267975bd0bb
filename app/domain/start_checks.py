"""The checks that an engine makes at start-up, in its order: the first that fails is why it does not start."""

from collections.abc import Callable
from typing import NamedTuple

from app.domain.engine import CheckName, EngineMemory
from app.domain.paging import CellPool, PagedPool, Pool
from app.domain.units import GIB

KV_CHECKS: tuple[CheckName, ...] = ("kv_memory", "max_model_len", "state_blocks")
"""The checks that compare the room for the KV cache with what it has to hold."""


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
    longest_bytes: int
    """KV cache of one request of that length."""
    max_num_seqs: int
    captures_graphs: bool
    keeps_state: bool


class Check(NamedTuple):
    """One check of the engine's start."""

    name: CheckName
    """The check."""
    margin_bytes: int
    """Left (positive) or missing (negative) per accelerator [bytes]."""
    passed: bool
    """Whether the deployment passes it."""
    given: CheckInputs
    """What was compared."""

    @property
    def message(self) -> str:
        """What was compared, as a sentence, and what to change where it fails."""
        compared = _MESSAGES[self.name](self.given)
        return compared if self.passed or self.name not in _ADVICE else f"{compared} {_ADVICE[self.name]}"


def start_checks(engine: EngineMemory, given: CheckInputs) -> tuple[Check, ...]:
    """Every check of the engine in its order, also those behind one that fails."""
    found = []
    for name in engine.checks:
        margin = _MARGINS[name](given)
        if margin is not None:
            found.append(Check(name, margin, margin >= (name == "kv_memory"), given))
    return tuple(found)


def first_failure(checks: tuple[Check, ...]) -> Check | None:
    """The check at which the start stops; None when it does not."""
    for check in checks:
        if not check.passed:
            return check
    return None


def _profiled_bytes(given: CheckInputs) -> int:
    return given.weights_bytes + given.persistent_bytes + given.activation_bytes


def _missing_for_longest(given: CheckInputs) -> int | None:
    if given.max_model_len_tokens is None or given.pool is None:
        return None
    return max(0, given.kv_room_bytes) - given.longest_bytes


def _state_pool(given: CheckInputs) -> PagedPool | None:
    pool = given.pool
    return pool if isinstance(pool, PagedPool) and given.keeps_state and given.captures_graphs else None


def _blocks_beyond_sequences(given: CheckInputs) -> int | None:
    pool = _state_pool(given)
    if pool is None:
        return None
    return int((pool.num_blocks(max(0, given.kv_room_bytes)) - given.max_num_seqs) * pool.bytes_per_block)


def _room_beside_states(given: CheckInputs) -> int:
    """Room for the KV cache without the states that are allocated for every sequence that may run [bytes]."""
    return given.kv_room_bytes - (given.pool.fixed_state_bytes if isinstance(given.pool, CellPool) else 0)


def _free_for_graphs(given: CheckInputs) -> int:
    return given.memory_bytes - given.budget_bytes + given.activation_bytes


_MARGINS: dict[CheckName, Callable[[CheckInputs], int | None]] = {
    "free_memory": lambda given: given.memory_bytes - given.budget_bytes,
    "weights_load": lambda given: given.memory_bytes - given.weights_bytes,
    "profile_run": lambda given: given.memory_bytes - _profiled_bytes(given),
    "kv_memory": _room_beside_states,
    "max_model_len": _missing_for_longest,
    "state_blocks": _blocks_beyond_sequences,
    "graph_capture": lambda given: _free_for_graphs(given) - given.graphs_outside_bytes if given.captures_graphs else None,
}
"""What each check leaves or misses [bytes]; None where the engine does not make it."""


def _gib(num_bytes: float) -> str:
    return f"{num_bytes / GIB:.2f} GiB"


def _free_memory(given: CheckInputs) -> str:
    return (
        f"At start {_gib(given.budget_bytes)} of {_gib(given.memory_bytes)} have to be free: other processes may hold "
        f"{_gib(max(0, given.memory_bytes - given.budget_bytes))}."
    )


def _weights_load(given: CheckInputs) -> str:
    weights, memory = _gib(given.weights_bytes), _gib(given.memory_bytes)
    return f"Weights of {weights} against {memory} of the device; the fraction does not limit loading."


def _profile_run(given: CheckInputs) -> str:
    needed, memory = _gib(_profiled_bytes(given)), _gib(given.memory_bytes)
    return f"The profile run needs {needed} of {memory}."


def _kv_memory(given: CheckInputs) -> str:
    room = _room_beside_states(given)
    if room <= 0:
        states = "" if room == given.kv_room_bytes else f" beside the states of {given.max_num_seqs} sequences"
        return f"The budget leaves nothing for the KV cache{states}: {_gib(-room)} are missing."
    return f"The budget leaves {_gib(given.kv_room_bytes)} for the KV cache."


def _max_model_len(given: CheckInputs) -> str:
    needed, room = _gib(given.longest_bytes), _gib(max(0, given.kv_room_bytes))
    return f"One request of {given.max_model_len_tokens} tokens needs {needed} of KV cache, {room} are available."


def _state_blocks(given: CheckInputs) -> str:
    pool = _state_pool(given)
    blocks = 0 if pool is None else pool.num_blocks(max(0, given.kv_room_bytes))
    return f"max_num_seqs {given.max_num_seqs} against {blocks} cache blocks: every sequence that decodes in a CUDA graph needs one."


def _graph_capture(given: CheckInputs) -> str:
    return f"CUDA graphs take {_gib(given.graphs_outside_bytes)} outside the budget, where {_gib(_free_for_graphs(given))} are free."


_MESSAGES: dict[CheckName, Callable[[CheckInputs], str]] = {
    "free_memory": _free_memory,
    "weights_load": _weights_load,
    "profile_run": _profile_run,
    "kv_memory": _kv_memory,
    "max_model_len": _max_model_len,
    "state_blocks": _state_blocks,
    "graph_capture": _graph_capture,
}
_ADVICE: dict[CheckName, str] = {
    "free_memory": "Lower memory_fraction_ratio.",
    "profile_run": "Lower max_num_seqs first, then max_num_batched_tokens.",
    "kv_memory": "Raise memory_fraction_ratio or lower max_num_seqs.",
    "state_blocks": "Lower max_num_seqs.",
    "graph_capture": "Lower memory_fraction_ratio or run eager.",
}
"""What to change where a check fails."""
