"""The working of `/performance`: from the steps of a load to the times of a request and the rates of the replica."""

import math
from collections.abc import Iterator

from app.domain.batching import Batching
from app.domain.decoding import SOURCE as DECODING_SOURCE
from app.domain.demand import LITTLE_SOURCE
from app.domain.load_state import LoadState
from app.domain.memory_working import memory_steps
from app.domain.performance import Performance
from app.domain.provenance import Step, step
from app.domain.step_working import constant_steps, iteration_steps, term_steps
from app.domain.units import exact, plain
from app.domain.waiting_working import waiting_steps

STEP_SOURCE = "mean over the steps with and without prompt tokens"


def performance_steps(performance: Performance, state: LoadState, request_rps: float | None, batching: Batching) -> list[Step]:
    """Constants, terms of a step, the steps of this load, waiting, and rates; each line can be redone by hand.

    The running sequences and the parts of the waiting solve equations that contain each other (`serving`): they are given as found.
    """
    return [
        *memory_steps(performance.llm, performance.gpu, performance.deployment, performance.found),
        *load_steps(performance, state),
        *_times(performance, state, request_rps),
        *_rates(performance, state, request_rps, batching),
    ]


def load_steps(performance: Performance, state: LoadState) -> list[Step]:
    """Constants, terms of a step, and the steps of this load without and with prompt tokens."""
    share = state.sequences / performance.work.pp
    decoding = max(1.0, share)
    steps = [
        *constant_steps(performance.model, performance.step_class),
        *term_steps(performance.timer, performance.model.kernels),
        *iteration_steps(performance.timer, state.decode, "decode", decoding, 0, performance.draft_s(share)),
    ]
    if state.prompt_step_ratio:
        steps += _mixed(performance, state, share)
    return steps


def _mixed(performance: Performance, state: LoadState, share: float) -> Iterator[Step]:
    tokens, draft_s = state.prompt_tokens_per_step, performance.draft_s(share)
    if not performance.serving.prefill_first:
        yield from iteration_steps(performance.timer, state.mixed, "mixed", share, tokens, draft_s)
        return
    chunk = performance.serving.step(0, tokens)
    yield from iteration_steps(performance.timer, chunk, "prompt", 0, tokens, performance.draft_s(0))
    yield step(
        "mixed_step_s",
        "decode_step_s + prompt_step_s: prompts run in steps of their own",
        f"{plain(state.decode.total_s)} + {plain(chunk.total_s)}",
        state.mixed.total_s,
        "s",
        STEP_SOURCE,
        basis="calibrated",
    )


def _times(performance: Performance, state: LoadState, request_rps: float | None) -> Iterator[Step]:
    serving = performance.serving
    decode, mixed, often = plain(state.decode.total_s), plain(state.mixed.total_s), plain(state.prompt_step_ratio)
    yield step(
        "mean_step_s",
        "decode_step_s + prompt steps per step x (mixed_step_s - decode_step_s)",
        f"{decode} + {often} x ({mixed} - {decode})" if state.prompt_step_ratio else decode,
        state.step_s,
        "s",
        STEP_SOURCE,
        basis="calibrated",
    )
    formula, terms = "mean_step_s / tokens per step", f"{plain(state.step_s)} / {plain(serving.tokens_per_step)}"
    if state.followed_s:
        yield _followed(performance, state)
        formula = "(decode steps x mean_step_s + followed_s) / (output tokens - 1)"
        terms = (
            f"({plain(serving.decode_steps)} x {plain(state.step_s)} + {plain(state.followed_s)}) / ({plain(serving.output_tokens)} - 1)"
        )
    yield step("tpot_s", formula, terms, state.tpot_s, "s", "definition of the time per output token", basis="calibrated")
    yield from waiting_steps(serving, state, request_rps)
    yield step(
        "ttft_s",
        "server + steps in flight + prefill + prompts ahead + start + admission",
        " + ".join(plain(value) for value in state.waiting),
        state.waiting.ttft_s,
        "s",
        "sum of the parts",
        basis="calibrated",
    )
    yield step(
        "e2e_s",
        "ttft_s + (output tokens - 1) x tpot_s",
        f"{plain(state.waiting.ttft_s)} + ({plain(serving.output_tokens)} - 1) x {plain(state.tpot_s)}",
        state.e2e_s,
        "s",
        "definition of end-to-end latency",
        basis="calibrated",
    )


def _followed(performance: Performance, state: LoadState) -> Step:
    """What prompts that arrived while the request waited for its own add to its decoding."""
    serving = performance.serving
    decode, mixed = plain(state.decode.total_s), plain(state.mixed.total_s)
    formula = "gathering x prompt steps per step x (mixed_step_s - decode_step_s) / decode_step_s"
    terms = f"{plain(state.wait.gathering_s if state.wait else 0.0)} x {plain(state.prompt_step_ratio)} x ({mixed} - {decode}) / {decode}"
    longest_s = state.longest_step_s
    if not math.isinf(longest_s):
        most = f"{plain(serving.decode_steps)} x ({plain(longest_s)} - {plain(state.step_s)})"
        formula = f"most x (1 - e^(-{formula} / most)), most = decode steps x (step full of prompts - mean_step_s)"
        terms = f"{most} x (1 - {plain(math.e)}^(0 - {terms} / ({most})))"
    return step("followed_s", formula, terms, state.followed_s, "s", DECODING_SOURCE, basis="calibrated")


def _rates(performance: Performance, state: LoadState, request_rps: float | None, batching: Batching) -> Iterator[Step]:
    if request_rps is not None:
        yield step("request_rps", "what arrives is served", plain(request_rps), state.request_rps, "requests/s", "the request")
    else:
        inside_s = state.admitted / state.request_rps
        waited = " + ".join(plain(value) for value in state.waiting[:-1])
        yield step(
            "time_with_a_place_s",
            "ttft_s without admission + (output tokens - 1) x tpot_s",
            f"{waited} + ({plain(performance.lengths.output_tokens)} - 1) x {plain(state.tpot_s)}",
            inside_s,
            "s",
            "sum of the parts",
            basis="calibrated",
        )
        yield step(
            "request_rps",
            "requests with a place / time_with_a_place_s",
            f"{plain(state.admitted)} / {plain(inside_s)}",
            state.request_rps,
            "requests/s",
            LITTLE_SOURCE,
            basis="calibrated",
        )
    for name, tokens in (
        ("output_tokens_per_s", performance.lengths.output_tokens),
        ("input_tokens_per_s", performance.lengths.input_tokens),
    ):
        yield step(
            name,
            f"request_rps x {name.split('_')[0]} tokens",
            f"{plain(state.request_rps)} x {plain(exact(tokens))}",
            state.request_rps * tokens,
            "tokens/s",
            f"definition of the rate, {batching} batching",
            basis="calibrated",
        )
