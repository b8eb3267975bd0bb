"""One replica under the traffic of a plan: the most that it does, the rate at which it holds the objectives, its times at a rate."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from app.domain.latency_tail import LEVELS, TIMES, Level, Prompts, Tails, TimeName
from app.domain.length_spread import Spread
from app.domain.load_state import LoadState
from app.domain.performance import Lengths, Performance
from app.domain.provenance import Basis
from app.domain.serving import Serving
from app.domain.units import plain, seconds
from app.domain.workload import Slo

TOLERANCE = 1e-3
"""The rate that just holds the objectives is found to this relative width, on the safe side."""
IDLE_PROMPTS = 1e-3
"""Requests in a replica that counts as idle."""
MOST_PROMPTS = 1e6
"""Prompts per step where nothing else limits them."""
MOST_ROUNDS = 40
FIRST_TRIAL = 8.0
"""Part of the largest load that is tried first, and factor by which a trial grows at most."""
OVERSHOOT = 1.05
"""A trial beyond the line through the last two loads finds the other side of the objective."""


class Loaded(NamedTuple):
    """A replica at a rate."""

    request_rps: float
    state: LoadState
    tails: Tails


class Objective(NamedTuple):
    """One objective and what is expected of it."""

    name: str
    limit_s: float
    expected_s: float

    @property
    def holds(self) -> bool:
        """Whether it is kept."""
        return self.expected_s <= self.limit_s


@dataclass(frozen=True)
class ReplicaSpeed:
    """A deployment with the lengths and objectives of its traffic."""

    performance: Performance
    inputs: Spread
    outputs: Spread
    cached_tokens: float
    """Tokens of a prompt that the prefix cache serves."""
    slo: Slo | None
    _known: dict[Level, Serving] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def basis(self) -> Basis:
        """calibrated where measurements of such a replica are among those of the fit."""
        return "calibrated" if self.performance.is_fitted else "assumed"

    @property
    def serving(self) -> Serving:
        """The replica with all requests of the mean length."""
        return self.performance.serving

    @property
    def serves(self) -> bool:
        """Whether the replica holds a request at all."""
        return self.performance.places > 0

    @cached_property
    def prompts(self) -> Prompts:
        """The replica by length of the prompts."""
        return Prompts(self.serving, self._prompts_at, self.inputs, self.outputs)

    def _prompts_at(self, level: Level) -> Serving:
        if level not in self._known:
            self._known[level] = self._with_prompts_of(self.inputs.p95 if level == "p95" else self.inputs.p99)
        return self._known[level]

    def _with_prompts_of(self, tokens: float) -> Serving:
        if tokens <= self.inputs.mean:
            return self.serving
        lengths = Lengths(tokens, self.performance.lengths.output_tokens, min(self.cached_tokens, tokens - 1) / tokens)
        return self.performance.with_lengths(lengths).serving

    @cached_property
    def prefill_tokens_per_s(self) -> float:
        """Prompt tokens that the replica computes when it does nothing else, as many in a step as its budget takes [tokens/s]."""
        return self.serving.groups * self.serving.computed_tokens / self.serving.crowded_s

    def most_rps(self, concurrency: float) -> float:
        """Requests that the replica ends with so many in it [requests/s]."""
        return self.performance.closed(concurrency).request_rps

    def at_rate(self, request_rps: float) -> Loaded | None:
        """The replica under Poisson arrivals; None where they outrun it."""
        return self._with_tails(self.serving.open(request_rps)) if self.serves else None

    def _with_tails(self, state: LoadState | None) -> Loaded | None:
        return None if state is None else Loaded(state.request_rps, state, Tails(self.prompts, state))

    @cached_property
    def idle(self) -> Loaded | None:
        """The replica with next to nothing to do: no number of replicas is faster."""
        return self._at_prompts_per_step(IDLE_PROMPTS / (1 + self.serving.decode_steps)) if self.serves else None

    def objectives(self, loaded: Loaded) -> list[Objective]:
        """Every objective with what is expected at a load."""
        return [Objective(f"{name}_{level}", limit, loaded.tails.percentile(name, level)) for name, level, limit in self._limits]

    def holds(self, loaded: Loaded) -> bool:
        """Whether every objective is kept at a load."""
        return all(loaded.tails.percentile(name, level) <= limit for name, level, limit in self._limits)

    @cached_property
    def _limits(self) -> list[tuple[TimeName, Level, float]]:
        limits = [(name, level, getattr(self.slo, f"{name}_{level}_s", None)) for name in TIMES for level in LEVELS]
        return [(name, level, limit) for name, level, limit in limits if limit is not None]

    def reason(self, missed: list[Objective]) -> str:
        """Why objectives are missed without any load, and what would help."""
        parts = []
        if self.idle is not None and any(each.name.startswith("ttft") for each in missed):
            level: Level = "p95" if any(each.name == "ttft_p95" for each in missed) else "p99"
            own_s = self.prompts.at(level).prompt_s(0)
            parts.append(
                f"the prefill of a prompt of {plain(getattr(self.inputs, level))} tokens alone takes {seconds(own_s)}, the server "
                f"{seconds(self.idle.state.waiting.server_s)}: more tensor parallelism, faster accelerators, a larger token budget or "
                "prefix hits help"
            )
        if self.idle is not None and any(each.name.startswith("tpot") for each in missed):
            parts.append(
                f"one decode step takes {seconds(self.idle.state.decode.total_s)}: more tensor parallelism, narrower weights, more memory "
                "bandwidth or speculative decoding help"
            )
        return f" ({'; '.join(parts)})" if parts else ""

    @cached_property
    def within_objectives(self) -> Loaded | None:
        """The largest rate at which every objective holds; None where there is none, not even for an idle replica."""
        idle = self.idle
        if idle is None or not self.holds(idle):
            return None
        serving = self.serving
        places = serving.most_admitted / serving.groups
        most = min(places / max(serving.decode_steps, 1.0), serving.token_budget / serving.computed_tokens, MOST_PROMPTS)
        return _largest(self._at_prompts_per_step, self._strain, idle, most)

    def _at_prompts_per_step(self, num_prompts: float) -> Loaded | None:
        return self._with_tails(self.serving.at_prompts_per_step(num_prompts))

    def _strain(self, loaded: Loaded | None) -> float:
        """Largest expected / objective; infinite where requests outrun the replica."""
        if loaded is None:
            return math.inf
        return max((loaded.tails.percentile(name, level) / limit for name, level, limit in self._limits), default=0.0)


def _largest(at: Callable[[float], Loaded | None], strain: Callable[[Loaded | None], float], idle: Loaded, most: float) -> Loaded:
    """The largest load up to `most` whose strain, which grows with the load, is at most 1.

    From a part of `most` outwards along the line through the last two loads until one is too much, then regula falsi with the Illinois rule
    (https://doi.org/10.1007/BF01934364) on strain - 1 until it is TOLERANCE below 0 or the bracket as narrow; the side that holds is the
    answer.
    """
    best, low, below = idle, 0.0, strain(idle) - 1
    high, above, side = math.inf, math.inf, 0
    trial = most / FIRST_TRIAL
    for _ in range(MOST_ROUNDS):
        trial = min(trial, most)
        found = at(trial)
        value = strain(found) - 1
        if found is not None and value <= 0:
            step = (trial - low) * -value / max(value - below, -value / FIRST_TRIAL)
            best, low, below = found, trial, value
            if value >= -TOLERANCE or trial >= most:
                break
            above *= 0.5 if side > 0 else 1
            side = 1
        else:
            step = 0.0
            high, above = trial, value
            below *= 0.5 if side < 0 else 1
            side = -1
        if math.isinf(high):
            trial = low + OVERSHOOT * step
        elif high - low <= TOLERANCE * high:
            break
        else:
            share = 0.5 if math.isinf(above) else below / (below - above)
            trial = low + min(max(share, 0.01), 0.99) * (high - low)
    return best
