"""Ways of batching: continuous, or static and dynamic, where requests are computed in batches that nothing joins."""

from typing import Literal

from app.domain.load_state import LoadState, WaitingTimes
from app.domain.serving import MOST_ROUNDS, TOLERANCE, Serving

NATURAL_WIDTH_RATIO = 0.6 / 0.9
"""Width of the lengths of recorded conversations, for which `longest_output_ratio` was fitted."""
LAST_OF_BATCH = 8
"""One of so many sequences still runs while the longest outputs end."""
Batching = Literal["continuous", "dynamic", "static"]


def state_of(serving: Serving, batching: Batching, *, concurrency: float | None, request_rps: float | None) -> LoadState | None:
    """Steady state at a concurrency or at a rate; None where requests arrive faster than the replica ends them."""
    if request_rps is None:
        level = concurrency or 1.0
        return serving.closed(level) if batching == "continuous" else whole_batches(serving, level)
    if batching == "continuous":
        return serving.open(request_rps)
    return arriving_batches(serving, request_rps, max(1, int(serving.most_admitted)), waits_until_full=batching == "static")


def whole_batches(serving: Serving, concurrency: float) -> LoadState:
    """Batches of whole requests, `concurrency` in the system: all prompts first, then steps until the longest output ends.

    B = min(C, places); batch time = B x prompt in a burst + decode steps x t(B, 0) + `longest_output_s`; those that are not in the batch
    wait for (C - B) / B batches. Nothing joins on the way.
    """
    batch = min(concurrency, serving.most_admitted)
    share, constants = batch / serving.groups, serving.timer.constants
    decode = serving.step(share, 0)
    prefill_s = share * serving.burst_s(share)
    server_s = constants.request_s + constants.request_concurrency_s * batch + constants.input_token_s * serving.input_tokens
    inside_s = server_s + prefill_s + serving.decode_steps * decode.total_s + longest_output_s(serving, share)
    waiting = WaitingTimes(server_s, 0.0, prefill_s, 0.0, 0.0, (concurrency - batch) / batch * inside_s)
    return LoadState(
        concurrency,
        batch,
        batch,
        batch,
        decode,
        decode,
        0.0,
        0.0,
        decode.total_s,
        decode.total_s / serving.tokens_per_step,
        waiting,
        inside_s + waiting.admission_s,
        batch / inside_s,
    )


def longest_output_s(serving: Serving, num_sequences: float) -> float:
    """What the longest output of a batch takes beyond the mean one, few others running by then [s].

    decode steps x longest_output_ratio x width of the lengths / NATURAL_WIDTH_RATIO x t(B / 8, 0).
    """
    share = min(1.0, serving.length_width_ratio / NATURAL_WIDTH_RATIO)
    if not share:
        return 0.0
    extra = serving.decode_steps * serving.timer.constants.longest_output_ratio * share
    return extra * serving.step(num_sequences / LAST_OF_BATCH, 0).total_s


def run_rps(serving: Serving, concurrency: float) -> float:
    """Requests per second of a run that sends `concurrency` requests at once and none after, until the last one ends [requests/s]."""
    if concurrency <= serving.most_admitted:
        return whole_batches(serving, concurrency).request_rps
    last_s = longest_output_s(serving, serving.most_admitted / serving.groups)
    return concurrency / (concurrency / serving.closed(concurrency).request_rps + last_s)


def arriving_batches(serving: Serving, request_rps: float, most: int, *, waits_until_full: bool) -> LoadState | None:
    """Batches of whole requests at a rate; None where they arrive faster than the replica ends them.

    Static batching waits until `most` requests are there, (most - 1) / 2r on average; dynamic batching takes those that arrived
    while the last batch ran, B = r x batch time, which wait half of it on average.
    """
    full = whole_batches(serving, most)
    if request_rps >= full.request_rps:
        return None
    batch = float(most)
    if not waits_until_full:
        batch = 1.0
        for _ in range(MOST_ROUNDS):
            after = min(max(1.0, request_rps * whole_batches(serving, batch).e2e_s), most)
            if abs(after - batch) <= TOLERANCE * batch:
                break
            batch = after
    state = whole_batches(serving, batch)
    wait_s = (most - 1) / (2 * request_rps) if waits_until_full else min(1.0, request_rps * state.e2e_s) * state.e2e_s / 2
    waiting = state.waiting._replace(admission_s=wait_s)
    e2e_s = state.e2e_s + wait_s
    return state._replace(concurrency=request_rps * e2e_s, waiting=waiting, e2e_s=e2e_s, request_rps=request_rps)
