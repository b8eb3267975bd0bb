"""Percentiles of the times of a request: how far they lie above the means of the steady state.

The one seam for them: a simulation of the same steps may take the place of `tails_of`, which approximates.
"""

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

from app.domain.length_spread import NORMAL, Spread
from app.domain.load_state import LoadState
from app.domain.serving import Serving

Level = Literal["p95", "p99"]
LEVELS: Mapping[Level, float] = {"p95": 0.95, "p99": 0.99}
DEVIATES: Mapping[Level, float] = {level: NORMAL.inv_cdf(share) for level, share in LEVELS.items()}
"""Standard deviations that a percentile of a normal distribution lies above its mean."""
LEAST_RELAXATION = 0.05
"""Where steps grow almost as fast as the sequences that run in them, the linear theory of fluctuations ends."""
SIMULATED_RATIO = 1.35
"""A replica stepped through request by request has percentiles up to this much above the approximation, and hardly any below
(`tests/domain/test_latency_tail.py`, up to 80 % of the saturation)."""
SOURCE = (
    "tails of waiting as exponentials (https://doi.org/10.1002/9781119453765), independent deviations added in squares, "
    "not yet held against recorded percentiles"
)


class Tail(NamedTuple):
    """A time of a request [s]."""

    mean: float
    p95: float
    p99: float

    def at(self, level: Level) -> float:
        """The percentile."""
        return self.p95 if level == "p95" else self.p99


class TtftDeviations(NamedTuple):
    """What a percentile of the time to first token lies above its mean by, each cause alone [s]."""

    own_prompt_s: float
    """A prompt of that percentile of the lengths."""
    prompts_ahead_s: float
    """Prompts that arrived before."""
    admission_s: float
    """Waiting for a place."""

    @property
    def joint_s(self) -> float:
        """Causes are taken as independent: root of the sum of squares."""
        return math.hypot(*self)


class Tails(NamedTuple):
    """Percentiles of the times of a request, and what those of TTFT are made of."""

    ttft: Tail
    tpot: Tail
    e2e: Tail
    deviations: Mapping[Level, TtftDeviations]


class Prompts(NamedTuple):
    """Prompts of a replica by length."""

    mean: Serving
    """The replica with all prompts of the mean length."""
    at: Mapping[Level, Serving]
    """With all of that percentile."""
    inputs: Spread
    outputs: Spread


def tails_of(prompts: Prompts, state: LoadState) -> Tails:
    """Percentiles under Poisson arrivals, from the means of a steady state.

    TTFT: mean + root of the sum of squares of what the percentile of each part lies above its mean: own prompt at that percentile of the
    lengths, waiting behind prompts and for a place with exponential tails. Waiting behind prompts of different lengths is (1 + variance /
    mean^2) times that behind equal ones (Pollaczek-Khinchine).
    TPOT: see `_tpot`. E2E: mean + root of the sum of squares over TTFT, TPOT and the output length. Valid up to 80 % of the saturation
    within SIMULATED_RATIO; where prompts take most of the time and few sequences run, TPOT percentiles come out too low.
    """
    serving = prompts.mean
    more_ahead = prompts.inputs.variance_ratio * state.waiting.prompts_ahead_s
    ttft = state.waiting.ttft_s + more_ahead
    beside = 0.0 if serving.prefill_first else state.running / serving.groups
    deviations = {level: _ttft(prompts, state, more_ahead, beside, level) for level in LEVELS}
    tpots = {level: _tpot(prompts, state, level) for level in LEVELS}
    steps = serving.output_tokens - 1
    e2e = state.e2e_s + more_ahead
    whole = {
        level: e2e
        + math.hypot(
            deviations[level].joint_s,
            steps * (tpots[level] - state.tpot_s),
            (getattr(prompts.outputs, level) - prompts.outputs.mean) * state.tpot_s,
        )
        for level in LEVELS
    }
    return Tails(
        Tail(ttft, ttft + deviations["p95"].joint_s, ttft + deviations["p99"].joint_s),
        Tail(state.tpot_s, tpots["p95"], tpots["p99"]),
        Tail(e2e, whole["p95"], whole["p99"]),
        deviations,
    )


def _ttft(prompts: Prompts, state: LoadState, more_ahead: float, beside: float, level: Level) -> TtftDeviations:
    serving, waiting = prompts.mean, state.waiting
    own_s = prompts.at[level].prompt_s(beside) - waiting.prefill_s if prompts.at[level] is not serving else 0.0
    service_s = serving.burst_s(1)
    busy = 2 * waiting.prompts_ahead_s / (2 * waiting.prompts_ahead_s + service_s)
    ahead_s = exponential_tail_s(waiting.prompts_ahead_s + more_ahead, busy, LEVELS[level])
    admission_s = 0.0
    if waiting.admission_s:
        places = serving.most_admitted
        chance = (state.admitted / places) ** (math.sqrt(2 * (places + 1)) - 1)
        admission_s = exponential_tail_s(waiting.admission_s, chance, LEVELS[level])
    return TtftDeviations(max(0.0, own_s), ahead_s, admission_s)


def exponential_tail_s(mean_s: float, chance: float, share: float) -> float:
    """What a percentile of a wait lies above its mean by, when only a share `chance` waits, exponentially long [s].

    P(W > t) = chance x exp(-chance x t / mean), so the percentile is mean / chance x ln(chance / (1 - share)); exact for M/M/c.

    >>> round(exponential_tail_s(1.0, 0.5, 0.95), 3)
    3.605
    """
    if chance <= 1 - share:
        return 0.0
    return max(0.0, mean_s / chance * math.log(chance / (1 - share)) - mean_s)


def _tpot(prompts: Prompts, state: LoadState, level: Level) -> float:
    """TPOT at a percentile: x + z x (what the running sequences add + what the prompts add), x the mean step.

    q = time with prompts / time of decoding. Sequences: the deviation of B averaged over a lifetime, through the decode step. B follows
    dB = dN(r) (1 + prompt work x departure rate) - departures, a birth and death process whose rates hang on the step:
    variance B (2 + 2 q + q^2 V) / (2 (1 - e)), relaxation (1 - e) / lifetime, with e = B d'(B) / d(B), V = E[prompt^2] / E[prompt]^2
    (linear noise, https://doi.org/10.1016/B978-0-444-52965-7.X5000-4 chapter X).
    Prompts: a lifetime lasts as the busy period of its decoding with the prompts that arrive meanwhile, deviation x q sqrt(V / B)
    (delay busy period, https://doi.org/10.1002/9781119453765). Both come from the same arrivals, so they add up.
    """
    serving, deviates = prompts.mean, DEVIATES[level]
    running = state.running / serving.groups
    decode_s = state.decode.total_s
    if running <= 0:
        return state.tpot_s
    prompt_ratio, square = state.step_s / decode_s - 1, 1 + prompts.inputs.variance_ratio
    wide = max(1.0, math.sqrt(running))
    elasticity = running * (serving.step(running + wide, 0).total_s - decode_s) / wide / decode_s
    relaxation = max(1 - elasticity, LEAST_RELAXATION)
    variance = running * (2 + 2 * prompt_ratio + prompt_ratio**2 * square) / (2 * relaxation)
    averaged = math.sqrt(2 * (relaxation + math.expm1(-relaxation))) / relaxation
    more = serving.step(running + deviates * averaged * math.sqrt(variance), 0).total_s / decode_s - 1
    # Where so few requests arrive during a lifetime that fewer than this share of requests meets one, the percentile meets none.
    met = -math.expm1(-running) > 1 - LEVELS[level]
    return state.tpot_s * (1 + more + (deviates * prompt_ratio * math.sqrt(square / running) if met else 0.0))
