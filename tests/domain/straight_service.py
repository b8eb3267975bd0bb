"""A replica step by step: requests that arrive at random, prompts first come first served, every step timed by the same `Serving.step`."""

import math
import random
from collections import deque
from typing import NamedTuple

from app.domain.length_spread import LogNormal
from app.domain.serving import Serving


class Times(NamedTuple):
    """What requests took, sorted [s]."""

    ttft: list[float]
    tpot: list[float]
    e2e: list[float]

    def percentile(self, name: str, level: float) -> float:
        times: list[float] = getattr(self, name)
        return times[int(level * len(times))]

    def mean(self, name: str) -> float:
        times: list[float] = getattr(self, name)
        return sum(times) / len(times)


def served(serving: Serving, lengths: LogNormal, rps: float, num_requests: int, seed: int) -> Times:
    """Steps that decode every running sequence and fill the rest of the budget with prompts in order of arrival."""
    draw = random.Random(seed)  # noqa: S311 - no secrets
    budget, outputs, constants = serving.token_budget, round(serving.output_tokens), serving.timer.constants
    arrivals, now = deque[tuple[float, float]](), 0.0
    for _ in range(num_requests):
        now += draw.expovariate(rps)
        arrivals.append((now, max(1.0, draw.lognormvariate(lengths.mu, lengths.sigma))))
    waiting, running = deque[list[float]](), list[list[float]]()  # [arrival, left of the prompt]; [arrival, first token, left]
    ttft, tpot, e2e, now = list[float](), list[float](), list[float](), 0.0
    while arrivals or waiting or running:
        while arrivals and arrivals[0][0] <= now:
            waiting.append(list(arrivals.popleft()))
        if not waiting and not running:
            now = arrivals[0][0]
            continue
        left, done = budget, []
        while waiting and left > 0:
            taken = min(left, waiting[0][1])
            waiting[0][1] -= taken
            left -= taken
            if waiting[0][1] > 0:
                break
            done.append(waiting.popleft())
        now += serving.step(len(running), budget - left).total_s
        for each in running:
            each[2] -= 1
        for each in (one for one in running if one[2] == 0):
            tpot.append((now - each[1]) / (outputs - 1))
            e2e.append(now - each[0] + constants.request_s)
        running = [each for each in running if each[2] > 0]
        for each in done:
            ttft.append(now - each[0] + constants.request_s)
            running.append([each[0], now, outputs - 1])
    skip = num_requests // 10
    return Times(sorted(ttft[skip:]), sorted(tpot[skip:]), sorted(e2e[skip:]))


def lognormal(mean: float, sigma: float) -> LogNormal:
    return LogNormal(math.log(mean) - sigma**2 / 2, sigma)
