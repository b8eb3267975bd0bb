"""What random arrivals meet, against steps that are drawn one by one: d seconds and m for each prompt that they take."""

import math
import random
from collections import deque
from typing import NamedTuple

import pytest

from app.domain.arrivals import Line, Prompt, batches_between, busy_ratio, met_step_s, met_turn_s, wait

PLAIN, STEPS = 1.0, 60_000


class Drawn(NamedTuple):
    """Means over the steps."""

    ttft_s: float
    mean_s: float
    met_s: float
    """Mean square / mean."""


def drawn(prompt_s: float, most: float, rate: float) -> Drawn:
    """An engine that is never idle and takes up to `most` prompts in a step, parts of them too."""
    draw = random.Random(1)  # noqa: S311 - no secrets
    waiting, now, next_s = deque[list[float]](), 0.0, draw.expovariate(rate)
    waited, total, squares = list[float](), 0.0, 0.0
    for _ in range(STEPS):
        left, done = most, list[float]()
        while waiting and left > 1e-12:
            taken = min(left, waiting[0][1])
            waiting[0][1] -= taken
            left -= taken
            if waiting[0][1] <= 1e-12:
                done.append(waiting.popleft()[0])
        step_s = PLAIN + prompt_s * (most - left)
        now, total, squares = now + step_s, total + step_s, squares + step_s**2
        waited += [now - each for each in done]
        while next_s <= now:
            waiting.append([next_s, 1.0])
            next_s += draw.expovariate(rate)
    return Drawn(sum(waited) / len(waited), total / STEPS, squares / total)


def expected(prompt_s: float, most: float, rate: float) -> Drawn:
    """The closed form of the same."""
    added, full_s = rate * prompt_s, PLAIN + most * prompt_s
    mean_s = PLAIN / (1 - added)
    met_s = met_step_s(PLAIN, mean_s, prompt_s, full_s)
    steps, line_s = math.ceil(1 / most), full_s / most
    own = Prompt(PLAIN + prompt_s * min(1.0, most), steps * PLAIN + prompt_s, in_turn=False)
    found = wait(1.0, PLAIN, mean_s, met_s, rate * met_s, prompt_s, Line(rate * line_s, line_s), own)
    return Drawn(found.residual_s + found.ahead_s + own.whole_s, mean_s, met_s)


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.2, 0.5, 0.7])
@pytest.mark.parametrize(
    ("prompt_s", "most"),
    [(1.0, 100.0), (10.0, 100.0), (1.0, 8.0), (10.0, 4.0), (10.0, 2.0), (10.0, 1.0), (1.0, 1.0), (10.0, 0.5), (4.0, 0.25)],
    ids=["short, no budget", "long, no budget", "eight", "four", "two", "one", "one, short", "two steps", "four steps"],
)
def test_waits_are_those_of_steps_one_by_one(prompt_s: float, most: float, load: float) -> None:
    rate = load / (PLAIN / most + prompt_s)
    found, true = expected(prompt_s, most, rate), drawn(prompt_s, most, rate)
    assert found.mean_s == pytest.approx(true.mean_s, rel=0.03)
    # Exact where all fit or one does; in between the larger of both.
    assert found.ttft_s == pytest.approx(true.ttft_s, rel=0.03 if most <= 1 or most >= 8 else 0.055)
    if most >= 8:
        assert found.met_s == pytest.approx(true.met_s, rel=0.05)


@pytest.mark.parametrize("most", [4.0, 1000.0])
@pytest.mark.parametrize("rate", [0.05, 0.3, 0.6])
def test_prompts_that_run_first_gather_in_steps_of_their_own(rate: float, most: float) -> None:
    first_s, next_s, decode_s = 1.5, 0.5, 1.0
    draw, batches, prompts, turns, squares, total = random.Random(2), 0, 0, 20_000, 0.0, 0.0  # noqa: S311 - no secrets

    def arrived(seconds: float) -> int:
        count, at = 0, draw.expovariate(rate)
        while at <= seconds:
            count, at = count + 1, at + draw.expovariate(rate)
        return count

    for _ in range(turns):
        waiting, total, squares = arrived(decode_s), total + decode_s, squares + decode_s**2
        while waiting:
            taken = min(waiting, int(most))
            step_s = first_s + (taken - 1) * next_s
            waiting, batches, prompts = waiting - taken + arrived(step_s), batches + 1, prompts + taken
            total, squares = total + step_s, squares + step_s**2
    found = batches_between(decode_s, first_s, next_s, prompts / turns, most)
    assert found == pytest.approx(batches / turns, rel=0.06)
    batch_s = first_s + (prompts / turns / found - 1) * next_s
    assert met_turn_s(decode_s, batch_s, found, next_s, prompts / turns) == pytest.approx(squares / total, rel=0.06)


def test_nobody_arrives() -> None:
    assert batches_between(1, 1, 1, 0, 10) == 0
    assert met_turn_s(1.0, 5.0, 0.0, 1.0, 0.0) == 1
    assert busy_ratio(0) == 0
    assert met_step_s(1.0, 1.0, 5.0, math.inf) == 1


def test_a_line_that_is_always_busy_never_ends() -> None:
    assert Line(1.0, 2.0).wait_s == math.inf
    assert Line(0.5, 2.0).wait_s == pytest.approx(1.0)


def test_prompts_gather_for_the_own_step_or_the_time_in_line() -> None:
    own = Prompt(3.0, 3.0, in_turn=True)
    together = wait(1.0, 1.0, 1.5, 2.0, 0.5, 2.0, Line(0.1, 1.0), own)
    assert not together.in_line
    assert together.gathering_s == pytest.approx(3.0 + 0.5 * 2.0 - 1.0)
    behind = wait(1.0, 1.0, 1.5, 2.0, 0.5, 2.0, Line(0.9, 3.0), own)
    assert behind.in_line
    assert behind.gathering_s == pytest.approx(3.0 + Line(0.9, 3.0).wait_s - 1.0)
    assert behind.prompts_s == pytest.approx(Line(0.9, 3.0).wait_s)
