"""Percentiles of the times of a request: how far they lie above the means of the steady state.

The one seam for them: a simulation of the same steps may take the place of `Tails`, which approximates.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

from app.domain.arrivals import Wait
from app.domain.decoding import followed_s, gamma_percentile, prompts_deviation_s
from app.domain.length_spread import NORMAL, Spread
from app.domain.load_state import LoadState
from app.domain.serving import Serving

Level = Literal["p95", "p99"]
TimeName = Literal["ttft", "tpot", "e2e"]
TIMES: tuple[TimeName, ...] = ("ttft", "tpot", "e2e")
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


class Prompts(NamedTuple):
    """Prompts of a replica by length."""

    mean: Serving
    """The replica with all prompts of the mean length."""
    at: Callable[[Level], Serving]
    """With all of that percentile."""
    inputs: Spread
    outputs: Spread


@dataclass
class Tails:
    """Percentiles of the times of a request under Poisson arrivals, from the means of a steady state.

    TTFT: mean + root of the sum of squares of what the percentile of each part lies above its mean: own prompt at that percentile of the
    lengths, waiting behind prompts (`gamma_tail_s`) and for a place (`exponential_tail_s`).
    TPOT: see `_tpot`. E2E: mean + root of the sum of squares over TTFT, TPOT and the output length. Valid up to 80 % of the saturation
    within SIMULATED_RATIO; where prompts take more than two thirds of the time, TPOT comes out up to 1.5 times too low.
    """

    prompts: Prompts
    state: LoadState
    _known: dict[tuple[TimeName, Level], float] = field(default_factory=dict, init=False, repr=False, compare=False)
    _deviations: dict[Level, TtftDeviations] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def _wait(self) -> Wait:
        if self.state.wait is None:
            raise ValueError("percentiles are those of a rate")
        return self.state.wait

    @property
    def more_ahead_s(self) -> float:
        """What prompts of different lengths add to the waiting behind them [s]."""
        return self.prompts.inputs.variance_ratio * self._wait.uneven_s

    @property
    def gathering_s(self) -> float:
        """Until the first token, beyond a step: prompts that arrive meanwhile follow [s]."""
        return self._wait.gathering_s + self.more_ahead_s

    @cached_property
    def followed_s(self) -> float:
        """What prompts that arrived during that time add to the decoding: more than of equally long ones, as the wait is longer [s]."""
        serving, state = self.prompts.mean, self.state
        if not self.more_ahead_s:
            return state.followed_s
        return followed_s(serving.decode_steps, state.decode.total_s, state.step_s, state.longest_step_s, self.gathering_s)

    @property
    def decoding_s(self) -> float:
        """Mean time from the first token to the last [s]."""
        return self.prompts.mean.decode_steps * self.state.step_s + self.followed_s

    @property
    def mean_tpot_s(self) -> float:
        """Mean time per output token after the first [s]."""
        serving = self.prompts.mean
        return self.decoding_s / (serving.output_tokens - 1) if serving.decode_steps else self.state.tpot_s

    @property
    def mean_e2e_s(self) -> float:
        """Mean of the whole request [s]."""
        return self.state.e2e_s + self.more_ahead_s + self.followed_s - self.state.followed_s

    def deviations(self, level: Level) -> TtftDeviations:
        """What the percentile of TTFT is made of."""
        if level not in self._deviations:
            self._deviations[level] = _ttft(self.prompts, self.state, self._wait.prompts_s + self.more_ahead_s, level)
        return self._deviations[level]

    def percentile(self, name: TimeName, level: Level) -> float:
        """The percentile of one time [s]."""
        if (name, level) not in self._known:
            self._known[name, level] = self._percentile(name, level)
        return self._known[name, level]

    def _percentile(self, name: TimeName, level: Level) -> float:
        if name == "ttft":
            return self.mean(name) + self.deviations(level).joint_s
        if name == "tpot":
            return _tpot(self, level)
        outputs = self.prompts.outputs
        longer = (outputs.p95 if level == "p95" else outputs.p99) - outputs.mean
        slower = (self.prompts.mean.output_tokens - 1) * (self.percentile("tpot", level) - self.mean_tpot_s)
        joint = math.hypot(self.deviations(level).joint_s, slower, longer * self.mean_tpot_s)
        return self.mean_e2e_s + joint

    def mean(self, name: TimeName) -> float:
        """The mean of one time [s]."""
        if name == "ttft":
            return self.state.waiting.ttft_s + self.more_ahead_s
        return self.mean_tpot_s if name == "tpot" else self.mean_e2e_s

    def _tail(self, name: TimeName) -> Tail:
        return Tail(self.mean(name), self.percentile(name, "p95"), self.percentile(name, "p99"))

    @property
    def ttft(self) -> Tail:
        """Time to first token."""
        return self._tail("ttft")

    @property
    def tpot(self) -> Tail:
        """Time per output token after the first."""
        return self._tail("tpot")

    @property
    def e2e(self) -> Tail:
        """Whole request."""
        return self._tail("e2e")


def _ttft(prompts: Prompts, state: LoadState, behind_s: float, level: Level) -> TtftDeviations:
    serving, waiting, own = prompts.mean, state.waiting, prompts.at(level)
    beside = 0.0 if serving.prefill_first else state.running / serving.groups
    own_s = own.prompt_s(beside) - waiting.prefill_s if own is not serving else 0.0
    ahead_s = gamma_tail_s(behind_s, _met_ratio(serving, state), prompts.inputs.variance_ratio, level)
    admission_s = 0.0
    if waiting.admission_s:
        places = serving.most_admitted
        chance = (state.admitted / places) ** (math.sqrt(2 * (places + 1)) - 1)
        admission_s = exponential_tail_s(waiting.admission_s, chance, LEVELS[level])
    return TtftDeviations(max(0.0, own_s), ahead_s, admission_s)


def _met_ratio(serving: Serving, state: LoadState) -> float:
    """Chance that a request meets prompts of others: share of the time in steps that compute any, or of the prompts alone."""
    chunk_s = state.mixed.total_s - (state.decode.total_s if serving.prefill_first else 0.0)
    return min(1.0, max(state.prompt_step_ratio * chunk_s / state.step_s, state.request_rps / serving.groups * serving.crowded_s))


def gamma_tail_s(mean_s: float, chance: float, variance_ratio: float, level: Level) -> float:
    """What a percentile of a wait lies above its mean by, when only a share `chance` waits, for times with a gamma distribution [s].

    Those have the mean over `chance` and the variance (1 + V) / 2 x that squared, V the variance / mean^2 of what is waited for: 1 is the
    wait of M/M/1, an exponential; 0 lies between the uniform residual of one service (1/3) and the wait in heavy traffic (1).

    >>> round(gamma_tail_s(1.0, 0.5, 1.0, "p95"), 2)
    3.56
    """
    if chance <= 1 - LEVELS[level]:
        return 0.0
    waited_s = mean_s / chance
    deviates = NORMAL.inv_cdf(1 - (1 - LEVELS[level]) / chance)
    return max(0.0, gamma_percentile(waited_s, waited_s * math.sqrt((1 + variance_ratio) / 2), deviates) - mean_s)


def exponential_tail_s(mean_s: float, chance: float, share: float) -> float:
    """What a percentile of a wait lies above its mean by, when only a share `chance` waits, exponentially long [s].

    P(W > t) = chance x exp(-chance x t / mean), so the percentile is mean / chance x ln(chance / (1 - share)); exact for M/M/c.

    >>> round(exponential_tail_s(1.0, 0.5, 0.95), 3)
    3.605
    """
    if chance <= 1 - share:
        return 0.0
    return max(0.0, mean_s / chance * math.log(chance / (1 - share)) - mean_s)


def _tpot(tails: Tails, level: Level) -> float:
    """TPOT at a percentile: (decode steps + what prompts add, a gamma distribution + what the running sequences add) / tokens.

    Sequences: the deviation of B averaged over a lifetime, through the decode step. B follows
    dB = dN(r) (1 + prompt work x departure rate) - departures, a birth and death process whose rates hang on the step:
    variance B (2 + 2 q + q^2 V) / (2 (1 - e)), relaxation (1 - e) / lifetime, with q = time with prompts / time of decoding,
    e = B d'(B) / d(B), V = E[prompt^2] / E[prompt]^2 (linear noise, https://doi.org/10.1016/B978-0-444-52965-7.X5000-4 chapter X).
    Prompts: `decoding`, with the deviation of the wait that they arrived in. Both come from the same arrivals, so they add up.
    """
    prompts, state, deviates = tails.prompts, tails.state, DEVIATES[level]
    serving = prompts.mean
    running, decode_s, steps = state.running / serving.groups, state.decode.total_s, serving.decode_steps
    if running <= 0 or not steps:
        return state.tpot_s
    # Of less than one running sequence, steps with prompts may be shorter than the decode step, which holds at least one.
    prompt_ratio, square = max(0.0, state.step_s / decode_s - 1), 1 + prompts.inputs.variance_ratio
    wide = max(1.0, math.sqrt(running))
    elasticity = running * (serving.step_s(running + wide, 0) - decode_s) / wide / decode_s
    relaxation = max(1 - elasticity, LEAST_RELAXATION)
    variance = running * (2 + 2 * prompt_ratio + prompt_ratio**2 * square) / (2 * relaxation)
    averaged = math.sqrt(2 * (relaxation + math.expm1(-relaxation))) / relaxation
    more = serving.step_s(running + deviates * averaged * math.sqrt(variance), 0) / decode_s - 1
    waited = tails.deviations(level)
    deviation = math.hypot(
        prompts_deviation_s(steps * state.step_s, prompt_ratio, square, state.request_rps / serving.groups, tails.gathering_s),
        prompt_ratio * math.hypot(waited.own_prompt_s, waited.prompts_ahead_s) / deviates,
    )
    mean_s, plain_s = tails.decoding_s, steps * decode_s
    added_s = gamma_percentile(max(0.0, mean_s - plain_s), deviation, deviates)
    slower_s = max(mean_s, min(plain_s + added_s, steps * state.longest_step_s))
    return (slower_s + steps * state.step_s * more) / (serving.output_tokens - 1)
