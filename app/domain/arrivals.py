"""What a request meets that arrives at random: the step in progress, prompts of the same step, prompts that the budget puts off."""

import math
from typing import NamedTuple

SOURCE = (
    "residual life and Pollaczek-Khinchine with vacations (https://doi.org/10.1002/9781119453765), branching with immigration for the "
    "steps that prompts lengthen (https://doi.org/10.1007/978-3-642-65371-1)"
)
MOST_ROUNDS = 30
TOLERANCE = 1e-3


def busy_ratio(in_engine: float) -> float:
    """Chance that an arrival meets an engine at work, with so many requests in it on average: 1 - e^-L, as if all had a server.

    Source: M/G/infinity, https://doi.org/10.1002/9781119453765.
    """
    return -math.expm1(-in_engine)


def met_step_s(plain_s: float, mean_s: float, prompt_s: float, fullest_s: float) -> float:
    """Mean square / mean of steps that each compute the prompts that arrived in the one before [s].

    x + m rho / (1 - rho^2), x the mean step, m what a prompt adds to one, rho = 1 - plain / x: t' = plain + m Poisson(r t) in its steady
    state. At most that of steps which are either plain or full. Source: `SOURCE`.

    >>> met_step_s(1.0, 1.0, 5.0, 10.0), round(met_step_s(1.0, 2.0, 1.0, 100.0), 3)
    (1.0, 2.667)
    """
    added = 1 - plain_s / mean_s
    if added <= 0:
        return mean_s
    grown_s = mean_s + prompt_s * added / (1 - added**2)
    if math.isinf(fullest_s):
        return grown_s
    full = (mean_s - plain_s) / (fullest_s - plain_s)
    return min(grown_s, ((1 - full) * plain_s**2 + full * fullest_s**2) / mean_s)


def met_turn_s(decode_s: float, batch_s: float, num_batches: float, prompt_s: float, num_prompts: float) -> float:
    """The same where prompts run in steps of their own: (d^2 + b (p^2 + m^2 (k - 1))) / (d + b p) [s].

    b steps of p seconds with k = prompts / b of m seconds each come between two decode steps; k - 1 is close to the variance of a Poisson
    number that is not 0.
    """
    if num_batches <= 0:
        return decode_s
    more = max(0.0, num_prompts / num_batches - 1)
    return (decode_s**2 + num_batches * (batch_s**2 + prompt_s**2 * more)) / (decode_s + num_batches * batch_s)


def batches_between(decode_s: float, first_s: float, next_s: float, num_prompts: float, most: float) -> float:
    """Prompt steps between two decode steps of an engine that runs prompts first, at so many prompts per decode step.

    b = (1 - e^(-r d)) e^(r p): one after a decode step of d seconds in which somebody arrived, another after each of p = first + (k - 1)
    next seconds in which somebody did; r = prompts / (d + b p), k = prompts / b of at most `most`. Found by iteration.
    """
    if num_prompts <= 0:
        return 0.0
    least = num_prompts / most
    batches = max(num_prompts, least)
    for _ in range(MOST_ROUNDS):
        batch_s = first_s + (num_prompts / batches - 1) * next_s
        rate = num_prompts / (decode_s + batches * batch_s)
        after = max(least, min(num_prompts, -math.expm1(-rate * decode_s) * math.exp(rate * batch_s)))
        if abs(after - batches) <= TOLERANCE * batches:
            break
        batches = (batches + after) / 2
    return after


class Line(NamedTuple):
    """A queue of equally long services."""

    busy_ratio: float
    """Share of the time that they take; below 1 where there is a steady state."""
    service_s: float
    """One of them [s]; 0 where nothing queues."""

    @property
    def wait_s(self) -> float:
        """Behind others: u s / (2 (1 - u)); infinite from u = 1 on [s]. Source: Pollaczek-Khinchine, `SOURCE`."""
        return self.busy_ratio * self.service_s / (2 * (1 - self.busy_ratio)) if self.busy_ratio < 1 else math.inf


class Prompt(NamedTuple):
    """The prompt of an arrival, beside the sequences that run [s]."""

    step_s: float
    """Its step, or a full one."""
    whole_s: float
    """All of its steps."""
    in_turn: bool
    """Whether prompts run in steps of their own."""


class Wait(NamedTuple):
    """What an arrival waits for beside its own prompt, from what it meets."""

    busy_ratio: float
    """Chance that the engine is at work."""
    plain_s: float
    """A step without prompts [s]."""
    mean_s: float
    """The mean step [s]."""
    met_s: float
    """Mean square of the steps / their mean [s]."""
    num_others: float
    """Prompts of others that arrived in the same step."""
    other_s: float
    """What each of them adds to the step of the own prompt [s]."""
    line: Line
    """Prompts that the budget puts one after the other."""
    in_line: bool
    """Whether the line makes the wait, not the others in the step."""
    residual_s: float
    """What is left of the step in progress [s]."""
    ahead_s: float
    """Prompts of others [s]."""
    uneven_s: float
    """What prompts of different lengths add per variance / mean^2 of the lengths [s]."""
    gathering_s: float
    """How long prompts gather that follow the own one, beyond what they do in the mean step [s]."""

    @property
    def prompts_s(self) -> float:
        """Of residual and ahead what prompts of others cause: all but half of a step without any [s]."""
        return self.residual_s + self.ahead_s - self.busy_ratio * self.plain_s / 2


def wait(busy: float, plain_s: float, mean_s: float, met_s: float, num_others: float, other_s: float, line: Line, own: Prompt) -> Wait:
    """The larger of two waits, each exact where it holds; arguments as in `Wait`.

    The budget takes all that wait: half of the step in progress, busy e / 2, then the own prompt with k others, which add k m; of different
    lengths e = x + (1 + V) (e_0 - x). A step takes one prompt: half of a step without prompts, busy d / 2, then the line of steps full of
    prompts. Later prompts gather for Y - d, Y the step of the own prompt or all of its time in line; where both share steps
    (x - d) / (own step - d) of it is in the mean step anyway. Source: `SOURCE`.
    """
    residual_s, ahead_s = busy * met_s / 2, num_others * other_s
    step_s = gathered_s = own.step_s + ahead_s
    line_s = line.wait_s
    in_line_s = busy * plain_s / 2 + line_s - residual_s
    in_line = in_line_s > ahead_s
    if in_line:
        ahead_s, uneven_s, gathered_s = in_line_s, line_s, max(step_s, own.whole_s + line_s)
    else:
        uneven_s = (busy / 2 + ahead_s / met_s) * max(0.0, met_s - mean_s)
    beyond_s = max(0.0, gathered_s - plain_s)
    if not own.in_turn and step_s > plain_s:
        beyond_s *= max(0.0, 1 - (mean_s - plain_s) / (step_s - plain_s))
    return Wait(busy, plain_s, mean_s, met_s, num_others, other_s, line, in_line, residual_s, ahead_s, uneven_s, beyond_s)
