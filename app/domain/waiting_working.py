"""The working of the time to first token: each part with the numbers that it follows from, as far as the answer holds them."""

import math
from collections.abc import Iterator

from app.domain.load_state import LoadState
from app.domain.provenance import Step, step
from app.domain.serving import Serving
from app.domain.units import plain

QUEUE_SOURCE = (
    "https://doi.org/10.1007/BF01194620 (Pollaczek), https://doi.org/10.1007/BF02532775 (several servers), scaled to measurements"
)
BUSIEST = 0.9
"""Above it ten digits of how busy prompts keep a replica do not give ten digits of the wait behind them."""
_FORMULAS = {
    "server_s": "request_s + request_concurrency_s x requests in the system + input_token_s x prompt tokens",
    "residual_s": "(residual_iterations + (poll_interval_steps - 1) / 2 + steps held for a batch) x decode step"
    " + (mean square of the steps / mean step - decode step) / 2",
    "prefill_s": "steps of the prompt x time of one beside the running sequences",
    "prompts_ahead_s": "prompts that arrived before: prefill_queue_ratio x busy / (1 - 0.9 busy) x prefill / 2, or what the budget delays",
    "start_s": "half of the prompts of the burst x share of the waves of the run that still start together",
    "admission_s": "requests without a place / requests with one x time inside; at a rate, the wait for one of several servers",
}
_AT_A_RATE = {
    "residual_s": "(residual_iterations - 0.5 + steps held) x decode step beside the running sequences + chance that the engine is at work"
    " x mean square of the steps / mean step / 2",
    "prompts_ahead_s": "prompts that arrived in the same step x what each adds to it; or, where longer, those in line by the token budget:"
    " busy x service / (2 (1 - busy)), with half of a step without prompts for half of the one met",
}


def waiting_steps(serving: Serving, state: LoadState, request_rps: float | None) -> Iterator[Step]:
    """The parts of the time to first token; what solves an equation, or is a sum over the waves of a run, is given as found."""
    formulas = _FORMULAS if request_rps is None else _FORMULAS | _AT_A_RATE
    for name, value in zip(state.waiting._fields, state.waiting, strict=True):
        terms = _TERMS[name](serving, state, request_rps) if name in _TERMS else None
        # Whole batches wait by other formulas: what does not give the value is not said of it.
        text = terms[1] if terms is not None and math.isclose(terms[0], value, rel_tol=1e-9, abs_tol=1e-15) else plain(value)
        yield step(f"ttft_{name}", formulas[name], text, value, "s", QUEUE_SOURCE, basis="calibrated")


Terms = tuple[float, str] | None
"""A value and how it is computed."""


def _server(serving: Serving, state: LoadState, request_rps: float | None) -> Terms:
    constants, tokens = serving.timer.constants, serving.input_tokens
    alone_s = constants.request_s + constants.input_token_s * tokens
    if not constants.request_concurrency_s:
        return alone_s, f"{plain(constants.request_s)} + {plain(constants.input_token_s)} x {plain(tokens)}"
    # At a rate those in the system are counted without what their number adds.
    inside = state.concurrency if request_rps is None else (state.waiting.server_s - alone_s) / constants.request_concurrency_s
    text = f"{plain(constants.request_s)} + {plain(constants.request_concurrency_s)} x {plain(inside)}"
    return alone_s + constants.request_concurrency_s * inside, f"{text} + {plain(constants.input_token_s)} x {plain(tokens)}"


def _prefill(serving: Serving, state: LoadState, _: float | None) -> Terms:
    running = 0.0 if serving.prefill_first else state.running / serving.groups
    one_s = serving.step_s(running, serving.computed_tokens / serving.prefill_steps)
    return serving.prefill_steps * one_s, f"{serving.prefill_steps} x {plain(one_s)}"


def _ahead(_: Serving, state: LoadState, __: float | None) -> Terms:
    found = state.wait
    if found is None or found.line.busy_ratio > BUSIEST:
        return None
    if not found.in_line:
        return found.num_others * found.other_s, f"{plain(found.num_others)} x {plain(found.other_s)}"
    busy, line = plain(found.busy_ratio), found.line
    queue = f"{plain(line.busy_ratio)} x {plain(line.service_s)} / (2 x (1 - {plain(line.busy_ratio)}))"
    # The two steps are nearly as long: their difference, taken of ten digits each, would have lost most of its own.
    longer_s = found.plain_s - found.met_s
    return found.ahead_s, f"{queue} {'+' if longer_s >= 0 else '-'} {busy} x {plain(abs(longer_s))} / 2"


def _residual(_: Serving, state: LoadState, __: float | None) -> Terms:
    found = state.wait
    if found is None:
        return None
    steps = (state.waiting.residual_s - found.residual_s) / found.plain_s
    text = f"{plain(steps)} x {plain(found.plain_s)} + {plain(found.busy_ratio)} x {plain(found.met_s)} / 2"
    return state.waiting.residual_s, text


def _admission(_: Serving, state: LoadState, request_rps: float | None) -> Terms:
    if request_rps is not None or state.concurrency <= state.admitted:
        return None
    inside_s = state.admitted / state.request_rps
    value = (state.concurrency - state.admitted) / state.admitted * inside_s
    return value, f"({plain(state.concurrency)} - {plain(state.admitted)}) / {plain(state.admitted)} x {plain(inside_s)}"


_TERMS = {"server_s": _server, "residual_s": _residual, "prompts_ahead_s": _ahead, "prefill_s": _prefill, "admission_s": _admission}
