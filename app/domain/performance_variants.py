"""How speed changes: over concurrency, with other batching, token budgets and prefix hits, and with speculation."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from app.domain.batching import Batching
from app.domain.load_state import LoadState
from app.domain.performance import Lengths, Performance
from app.domain.places import PlacesLimit
from app.domain.serving import Serving
from app.domain.step import Part
from app.domain.units import plain
from app.domain.value import Value

PREFIX_HITS = (0.0, 0.5, 0.8)
"""Hit ratios at which the effect of the prefix cache is shown."""
TOKEN_BUDGETS = (2048, 8192)
"""Token budgets at which their effect is shown, beside the deployment's own."""
BATCHINGS: tuple[Batching, ...] = ("continuous", "dynamic", "static")


@dataclass(slots=True, unsafe_hash=True)
class CurvePoint:
    """The replica at one concurrency."""

    # No Value and not frozen, as steps are: an answer holds two dozen.
    __pydantic_config__ = Value.model_config

    concurrency: float
    """Requests in the system."""
    ttft_s: float
    """Mean time to the first token [s]."""
    tpot_s: float
    """Mean time per output token [s]."""
    e2e_s: float
    """Mean time of a request [s]."""
    request_rps: float
    """Requests that end [requests/s]."""
    output_tokens_per_s: float
    """Output tokens [tokens/s]."""
    tokens_per_s_per_user: float
    """1 / TPOT [tokens/s]."""
    binds: Part
    """Largest part of the mean step."""
    is_knee: bool
    """Where throughput / time of a request is largest: beyond it more load costs more than it brings
    (https://doi.org/10.1016/j.adhoc.2018.05.015)."""


class Saturation(Value):
    """Every place taken: the most that the replica does."""

    concurrency: float
    """Requests that have a place."""
    limited_by: PlacesLimit
    """What limits the places; not_known where neither cache nor max_num_seqs does, and 1024 are taken."""
    request_rps: float
    """Requests that end [requests/s]."""
    output_tokens_per_s: float
    """Output tokens [tokens/s]."""
    tpot_s: float
    """Mean time per output token [s]."""


@dataclass(slots=True, unsafe_hash=True)
class Variant:
    """The same load with one setting changed; None where the replica cannot keep up with it."""

    # No Value and not frozen, as steps are: an answer holds two dozen.
    __pydantic_config__ = Value.model_config

    name: str
    """What is changed."""
    ttft_s: float | None
    """Mean time to the first token [s]."""
    tpot_s: float | None
    """Mean time per output token [s]."""
    longest_step_s: float | None
    """Longest step, which an answer in progress notices as a pause [s]."""
    output_tokens_per_s: float | None
    """Output tokens [tokens/s]."""


class Speculation(Value):
    """What speculative decoding brings."""

    tokens_per_step: float
    """Output tokens per step and sequence: 1 + drafts x acceptance."""
    draft_s: float
    """Time that drafting adds to a step at this load [s]."""
    speedup_ratio: float
    """Time per output token without / with it at this load."""
    pays_up_to_concurrency: int | None
    """Most decoding sequences at which a token takes less time with it; None: always, 0: never."""


Solve = Callable[[Serving, Batching], LoadState | None]
"""The state of a deployment at the load of the request; None where it cannot keep up."""


def curve_of(performance: Performance) -> list[CurvePoint]:
    """Concurrency 1, 2, 4 ... up to every place taken; the knee is where throughput over time of a request is largest."""
    states = performance.curve()
    knee = max(states, key=lambda state: state.request_rps / state.e2e_s)
    return [
        CurvePoint(
            concurrency=state.concurrency,
            ttft_s=state.waiting.ttft_s,
            tpot_s=state.tpot_s,
            e2e_s=state.e2e_s,
            request_rps=state.request_rps,
            output_tokens_per_s=state.request_rps * performance.lengths.output_tokens,
            tokens_per_s_per_user=1 / state.tpot_s,
            binds=state.mean_step.binds,
            is_knee=state is knee,
        )
        for state in states
    ]


def saturation_of(performance: Performance) -> Saturation:
    """The most that the replica does."""
    state = performance.saturated
    return Saturation(
        concurrency=state.concurrency,
        limited_by=performance.places_limit,
        request_rps=state.request_rps,
        output_tokens_per_s=state.request_rps * performance.lengths.output_tokens,
        tpot_s=state.tpot_s,
    )


def by_batching(performance: Performance, solve: Solve) -> list[Variant]:
    """The same load under each way of batching."""
    return [_variant(batching, performance.serving, solve(performance.serving, batching)) for batching in BATCHINGS]


def by_token_budget(performance: Performance, solve: Solve) -> list[Variant]:
    """The same load with other token budgets, and with prompts computed whole."""
    dp, serving = performance.deployment.dp, performance.serving
    budgets = sorted({*(float(budget * dp) for budget in TOKEN_BUDGETS), serving.token_budget, math.inf})
    variants = []
    for budget in budgets:
        changed = serving if budget == serving.token_budget else replace(serving, token_budget=budget)
        name = "whole prompts" if math.isinf(budget) else f"max_num_batched_tokens {plain(budget / dp)}"
        variants.append(_variant(name, changed, solve(changed, "continuous")))
    return variants


def by_prefix_hit(performance: Performance, solve: Solve) -> list[Variant]:
    """The same load with other shares of the prompt, or of the beginning that is held in common, found in the prefix cache."""
    lengths, variants = performance.lengths, []
    shared = lengths.shared
    own = lengths.prefix_hit_ratio if shared is None else shared.hit_ratio
    for ratio in sorted({*PREFIX_HITS, own}):
        changed = performance.serving
        if ratio != own and shared is None:
            changed = replace(performance, lengths=lengths._replace(prefix_hit_ratio=ratio)).serving
        elif ratio != own and shared is not None:
            found = Lengths.finding(lengths.input_tokens, lengths.output_tokens, ratio, shared.shared_tokens)
            changed = performance.at_lengths(found).serving
        variants.append(_variant(f"prefix_hit_ratio {plain(ratio)}", changed, solve(changed, "continuous")))
    return variants


def _variant(name: str, serving: Serving, state: LoadState | None) -> Variant:
    if state is None:
        return Variant(name=name, ttft_s=None, tpot_s=None, longest_step_s=None, output_tokens_per_s=None)
    whole = min(serving.token_budget, serving.computed_tokens) if state.prompt_step_ratio else 0
    return Variant(
        name=name,
        ttft_s=state.waiting.ttft_s,
        tpot_s=state.tpot_s,
        longest_step_s=serving.step(state.running / serving.groups, whole).total_s,
        output_tokens_per_s=state.request_rps * serving.output_tokens,
    )


def speculation_of(performance: Performance, state: LoadState) -> Speculation | None:
    """What speculative decoding brings at a state."""
    if performance.deployment.speculative is None:
        return None
    share = state.sequences / performance.work.pp
    plain_step = performance.without_speculation().serving.step(share, 0).total_s
    return Speculation(
        tokens_per_step=performance.serving.tokens_per_step,
        draft_s=performance.draft_s(share),
        speedup_ratio=plain_step * performance.serving.tokens_per_step / state.decode.total_s,
        pays_up_to_concurrency=performance.speculation_pays_up_to(),
    )
