"""The best that a deployment can be under any setting of its engine: what a search need not compute to the end."""

from app.domain.performance import Lengths
from app.domain.step import StepTimer

MANY = 1e6
"""Requests whose work is put into one step for the bound of the rate: fixed times no longer count."""


def most_running(timer: StepTimer, places: float, step_s: float) -> float:
    """Most sequences of one group that decode in steps of `step_s` without prompts, at most `places`; 0 where one is slower.

    The step time grows with the sequences: found by halving, up to one sequence too many.
    """
    if timer.total_s(places, 0) <= step_s:
        return places
    if timer.total_s(1, 0) > step_s:
        return 0.0
    low, high = 1.0, places
    while high - low > 1:
        middle = (low + high) / 2
        if timer.total_s(middle, 0) <= step_s:
            low = middle
        else:
            high = middle
    return high


def most_rps(timer: StepTimer, places: float, lengths: Lengths, tokens_per_step: float, tpot_s: float) -> float:
    """Bound of the requests/s of a replica with so many places whose time per output token stays within `tpot_s` [requests/s].

    Two bounds of one group. The work of N requests in one step: t(a) + t(b) >= t(a + b), so that N / t(N x decode steps, N x prompt) is
    never reached. And B / (decode steps x t(B, 0)) at the most sequences B that hold the objective, since B / t(B) grows with B and
    prompts only add time. 0 where one sequence alone is too slow.
    """
    decode_steps = (lengths.output_tokens - 1) / tokens_per_step
    rate = MANY / timer.total_s(MANY * decode_steps, MANY * lengths.computed_tokens)
    if decode_steps:
        running = most_running(timer, max(1.0, places / timer.work.pp), tpot_s * tokens_per_step)
        if not running:
            return 0.0
        rate = min(rate, running / (decode_steps * timer.total_s(running, 0)))
    return rate * timer.work.pp
