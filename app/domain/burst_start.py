"""A run that starts with all of its requests at once: how long its requests stay together, and wait for one another."""

import math


def start_share(num_waves: float, burst_s: float, spread_s: float, *, in_turn: bool) -> float:
    """Share of the burst of prompts that the mean request of a run waits for.

    (1/n) (1 + sum over waves w < n of max(0, 1 - W / S)): S is the burst [s]; in wave w requests have spread over
    W = [mixed: S] + spread x sqrt(w), the spread of one wave from the width of the lengths [s]; `in_turn` are prompts that run in steps of
    their own. sum of sqrt(w) = 2/3 n^1.5 + n^0.5 / 2 - 0.2079 (Euler-Maclaurin).
    """
    waves = max(1.0, num_waves)
    together = 0.0
    if in_turn:
        spread = spread_s / burst_s
        together = waves - 1 if not spread else min(waves - 1, math.floor(spread**-2))
        if together >= 1:
            together -= spread * (2 / 3 * together**1.5 + together**0.5 / 2 - 0.2079)
    return min(1.0, (1 + max(0.0, together)) / waves)
