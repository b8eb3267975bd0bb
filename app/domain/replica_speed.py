"""One replica under the traffic of a plan: the most that it does, the rate at which it holds the objectives, its times at a rate."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from app.domain.latency_tail import LEVELS, Prompts, Tails, tails_of
from app.domain.length_spread import Spread
from app.domain.load_state import LoadState
from app.domain.performance import Lengths, Performance
from app.domain.provenance import Basis
from app.domain.serving import MOST_BATCHED, Serving
from app.domain.workload import Slo

TOLERANCE = 1e-3
"""The rate that just holds the objectives is found to this relative width, on the safe side."""
IDLE_RATIO = 1e-3
"""Share of the most requests per second at which a replica counts as idle."""
MOST_ROUNDS = 30


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

    @property
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
        at = {level: self._with_prompts_of(getattr(self.inputs, level)) for level in LEVELS}
        return Prompts(self.serving, at, self.inputs, self.outputs)

    def _with_prompts_of(self, tokens: float) -> Serving:
        if tokens <= self.inputs.mean:
            return self.serving
        lengths = Lengths(tokens, self.performance.lengths.output_tokens, min(self.cached_tokens, tokens - 1) / tokens)
        return replace(self.performance, lengths=lengths).serving

    @cached_property
    def prefill_tokens_per_s(self) -> float:
        """Prompt tokens that the replica computes when it does nothing else, as many in a step as its budget takes [tokens/s]."""
        return self.serving.groups * self.serving.computed_tokens / self.serving.burst_s(MOST_BATCHED)

    def most_rps(self, concurrency: float) -> float:
        """Requests that the replica ends with so many in it [requests/s]."""
        return self.performance.closed(concurrency).request_rps

    def at_rate(self, request_rps: float) -> Loaded | None:
        """The replica under Poisson arrivals; None where they outrun it."""
        state = self.serving.open(request_rps) if self.serves else None
        return None if state is None else Loaded(request_rps, state, tails_of(self.prompts, state))

    @cached_property
    def idle(self) -> Loaded | None:
        """The replica with next to nothing to do: no number of replicas is faster."""
        return self.at_rate(IDLE_RATIO * self.performance.saturated.request_rps) if self.serves else None

    def objectives(self, loaded: Loaded) -> list[Objective]:
        """Every objective with what is expected at a load."""
        if self.slo is None:
            return []
        found = []
        for name in ("ttft", "tpot", "e2e"):
            for level in LEVELS:
                limit = getattr(self.slo, f"{name}_{level}_s")
                if limit is not None:
                    found.append(Objective(f"{name}_{level}", limit, getattr(loaded.tails, name).at(level)))
        return found

    @cached_property
    def within_objectives(self) -> Loaded | None:
        """The largest rate at which every objective holds; None where there is none, not even for an idle replica."""
        idle = self.idle
        if idle is None or not all(each.holds for each in self.objectives(idle)):
            return None

        def kept(loaded: Loaded | None) -> float:
            """Least limit / expected; 0 where requests outrun the replica."""
            return 0.0 if loaded is None else min((each.limit_s / each.expected_s for each in self.objectives(loaded)), default=math.inf)

        return largest(self.at_rate, kept, idle, self.performance.saturated.request_rps)


def largest(at: Callable[[float], Loaded | None], kept: Callable[[Loaded | None], float], start: Loaded, high: float) -> Loaded:
    """The largest rate up to `high` at which `kept` is at least 1; it falls with the rate and is at least 1 at `start`.

    Regula falsi with the Illinois rule (https://doi.org/10.1007/BF01934364) on kept - 1, until the bracket is TOLERANCE wide.
    """
    best, low, low_value = start, start.request_rps, min(kept(start), 4.0) - 1
    last = at(high)
    high_value = kept(last) - 1
    if high_value >= 0:
        return best if last is None else last
    side = 0
    for _ in range(MOST_ROUNDS):
        if high - low <= TOLERANCE * high:
            break
        share = low_value / (low_value - high_value)
        rate = low + min(max(share, 0.02), 0.98) * (high - low)
        found = at(rate)
        value = kept(found) - 1
        if value >= 0 and found is not None:
            best, low, low_value = found, rate, min(value, 3.0)
            high_value *= 0.5 if side > 0 else 1
            side = 1
        else:
            high, high_value = rate, value
            low_value *= 0.5 if side < 0 else 1
            side = -1
    return best
