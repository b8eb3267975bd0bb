"""Steps of an engine that are taken together, because nothing happens between them."""

import math

EPSILON = 1e-9
"""A moment within this share of a step of its end falls into it."""


class Span:
    """Steps one after another, each longer than the one before by the same time."""

    __slots__ = ("begin_s", "end_s", "first_s", "growth_s", "num_steps")

    def __init__(self, begin_s: float, first_s: float, growth_s: float, num_steps: int) -> None:
        self.begin_s, self.first_s, self.growth_s, self.num_steps = begin_s, first_s, growth_s, num_steps
        self.end_s = begin_s + num_steps * first_s + growth_s * num_steps * (num_steps - 1) / 2

    def cut(self, now: float) -> "Span":
        """The same up to the end of the step that runs at `now`.

        The least j with j first + growth j (j - 1) / 2 >= now - begin.

        >>> Span(0.0, 1.0, 0.5, 10).cut(3.6).num_steps
        3
        """
        if self.num_steps <= 1:
            return self
        passed_s, half, linear = now - self.begin_s, self.growth_s / 2, self.first_s - self.growth_s / 2
        root = linear * linear + 4 * half * passed_s
        straight = abs(half) * passed_s < 1e-12 * linear * linear or root < 0
        reached = passed_s / linear if straight else (math.sqrt(root) - linear) / (2 * half)
        steps = max(1, math.ceil(reached - EPSILON))
        return self if steps >= self.num_steps else Span(self.begin_s, self.first_s, self.growth_s, steps)


NOTHING = Span(0.0, math.inf, 0.0, 1)
"""Of an engine that is idle."""
