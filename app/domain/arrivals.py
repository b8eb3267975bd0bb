"""What a request meets that arrives at random: the step in progress, prompts of the same step, prompts that the budget puts off."""

import math
from typing import NamedTuple

SOURCE = (
    "residual life and Pollaczek-Khinchine with vacations (https://doi.org/10.1002/9781119453765), branching with immigration for the "
    "steps that prompts lengthen (https://doi.org/10.1007/978-3-642-65371-1)"
)
MOST_ROUNDS = 30
TOLERANCE = 1e-4


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


def queued_s(busy: float, service_s: float) -> float:
    """Wait behind equally long services: u s / (2 (1 - u)); infinite from u = 1 on [s]. Source: Pollaczek-Khinchine, `SOURCE`."""
    return busy * service_s / (2 * (1 - busy)) if busy < 1 else math.inf


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


class Wait(NamedTuple):
    """What a request waits for beside its own prompt, and what gathers behind it meanwhile [s]."""

    residual_s: float
    """What is left of the step in progress."""
    ahead_s: float
    """Prompts of the same step, or that the budget puts before."""
    gathering_s: float
    """Until its first token, beyond a step without prompts: prompts that arrive meanwhile follow."""
    prompts_s: float
    """Of both what prompts cause: all but half of a step without any."""
    uneven_s: float
    """What prompts of different lengths add per variance / mean^2 of the lengths."""


def wait(
    *,
    busy: float,
    plain_s: float,
    mean_s: float,
    met_s: float,
    beside_s: float,
    own_step_s: float,
    own_s: float,
    full_s: float,
    in_turn: bool,
) -> Wait:
    """What a Poisson arrival waits for; the larger of two limits, each exact where it holds.

    The budget takes all that wait: half of the step in progress, e / 2 with e = `met_s`, then the own prompt with r e others, which add
    `beside_s`. A step takes one prompt: half of a step without prompts, then P-K behind services of full steps, `full_s`, which is
    0 without a budget. Both only where the engine is at work (`busy`). Later prompts gather for Y - plain, of which a share
    (x - plain) / (own step - plain) is in the mean step x anyway where both share steps. Source: `SOURCE`.
    """
    residual_s, gathered_s = busy * met_s / 2, own_step_s + beside_s
    ahead_s, uneven_s = beside_s, (busy / 2 + beside_s / met_s) * max(0.0, met_s - mean_s)
    in_line_s = busy * plain_s / 2 + full_s - residual_s
    if in_line_s > ahead_s:
        ahead_s, uneven_s = in_line_s, full_s
        gathered_s = max(gathered_s, own_s + full_s)
    beyond_s = max(0.0, gathered_s - plain_s)
    step_beyond_s = own_step_s + beside_s - plain_s
    if not in_turn and step_beyond_s > 0:
        beyond_s *= max(0.0, 1 - (mean_s - plain_s) / step_beyond_s)
    return Wait(residual_s, ahead_s, beyond_s, residual_s + ahead_s - busy * plain_s / 2, uneven_s)
