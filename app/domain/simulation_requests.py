"""Requests of a simulation: when they arrive, how long they are, and what becomes of each."""

import bisect
import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from app.domain.errors import InvalidInput
from app.domain.simulation_lengths import Quantiles

Outcome = Literal["waiting", "running", "finished", "rejected", "timed_out", "failed"]
NO_PREFIX = -1
LONGEST_OUTPUTS = 20
"""Outputs so many times as long as the mean are under way at the start at most."""


class Request:
    """One request and where it stands; engines change it as they go."""

    __slots__ = (
        "arrival_s", "attempt", "cached_tokens", "decode_start", "epoch", "finished_s", "first_token_s", "generated_tokens", "held",
        "index", "input_tokens", "kind", "last_token_s", "left_tokens", "num_preemptions", "num_timeouts", "outcome",
        "output_tokens", "pool", "prefix", "prefix_generation", "sent_s", "server_s", "start_s",
    )  # fmt: skip

    def __init__(self, index: int, arrival_s: float, kind: int, input_tokens: int, output_tokens: int, prefix: int = NO_PREFIX) -> None:
        self.index, self.kind, self.prefix = index, kind, prefix
        self.arrival_s = self.sent_s = arrival_s
        """First sent, and sent for the last time [s]."""
        self.input_tokens, self.output_tokens = input_tokens, output_tokens
        self.outcome: Outcome = "waiting"
        self.attempt = self.epoch = self.num_preemptions = self.num_timeouts = 0
        self.start_s: float | None = None
        """A place was given for the first time [s]."""
        self.first_token_s: float | None = None
        self.last_token_s = self.finished_s = self.server_s = 0.0
        self.left_tokens = self.cached_tokens = self.generated_tokens = self.held = 0.0
        self.decode_start = 0
        self.prefix_generation: int | None = None
        self.pool = 0
        """Where it was routed."""

    def restart(self, sent_s: float) -> None:
        """Send it again: nothing that was computed is left."""
        self.sent_s, self.outcome, self.epoch, self.attempt = sent_s, "waiting", self.epoch + 1, self.attempt + 1
        self.generated_tokens = 0.0
        self.start_s = self.first_token_s = None


@dataclass(frozen=True)
class RequestKind:
    """Requests whose lengths come from the same distributions."""

    name: str
    share_ratio: float
    inputs: Quantiles
    outputs: Quantiles


@dataclass(frozen=True)
class Traced:
    """One request of a recorded trace."""

    arrival_s: float
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class Arrivals:
    """When requests arrive: gaps of a gamma distribution, or a recorded trace."""

    request_rps: float = 1.0
    """Mean rate [requests/s]."""
    variation_ratio: float = 1.0
    """Standard deviation of the gaps / their mean: 0 is a constant pace, 1 a Poisson process, more comes in bursts."""
    trace: tuple[Traced, ...] = ()
    """Replayed instead; kinds and rate are not used."""
    concurrency: int | None = None
    """Clients that each send a request as their last one ends, instead of a rate: all start at once, as load generators do."""
    num_under_way: int = 0
    """Requests in the fleet at the start, about: sent at 0 s as they would be had such traffic come before, the rest of each output left,
    so that a run need not fill up first. They come on top of `num_requests`, and belong to the warm-up."""


@dataclass(frozen=True)
class Surge:
    """The rate is multiplied for a while."""

    start_s: float
    end_s: float
    factor_ratio: float = 2.0


@dataclass(frozen=True)
class Flood:
    """Requests of one length that come on top for a while, at random."""

    start_s: float
    end_s: float
    request_rps: float
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class SharedPrefix:
    """What requests have in common with earlier ones: a beginning of `tokens`, and `input_ratio` of the whole prompt."""

    tokens: float = 0.0
    """Held once by all running requests that have it [tokens]."""
    input_ratio: float = 0.0
    """Found again as well, as in earlier turns; each request holds it."""
    share_ratio: float = 1.0
    """Share of the requests that have any."""
    num_prefixes: int = 1
    """Different ones, equally often."""

    def cached_tokens(self, input_tokens: float) -> float:
        """min(tokens + ratio x input, input - 1): the last token is always computed [tokens]."""
        return min(self.tokens + self.input_ratio * input_tokens, input_tokens - 1)

    def shared_tokens(self, input_tokens: float) -> float:
        """Of it, what is held once [tokens]."""
        return min(self.tokens, input_tokens - 1)


def stream(seed: int, purpose: str) -> random.Random:
    """Random numbers of one purpose: a change of one input leaves those of the others as they were (common random numbers)."""
    return random.Random(f"{seed} {purpose}")  # noqa: S311 - no secrets


def gaps(arrivals: Arrivals, draw: random.Random) -> Iterator[float]:
    """Gaps with a mean of 1: gamma with shape 1 / variation^2."""
    variation = arrivals.variation_ratio
    while True:
        if variation == 0:
            yield 1.0
        elif variation == 1:
            yield draw.expovariate(1.0)
        else:
            yield draw.gammavariate(variation**-2, variation**2)


def _after(now: float, gap: float, surges: tuple[Surge, ...]) -> float:
    """When `gap` seconds at the usual rate have passed since `now`, a surge letting them pass faster [s]."""
    while True:
        rate = math.prod(each.factor_ratio for each in surges if each.start_s <= now < each.end_s)
        turn = min((edge for each in surges for edge in (each.start_s, each.end_s) if edge > now), default=math.inf)
        if not rate * (turn - now) < gap:
            return now + gap / rate
        gap -= rate * (turn - now)
        now = turn


def requests_of(
    arrivals: Arrivals,
    kinds: tuple[RequestKind, ...],
    *,
    seed: int,
    duration_s: float | None = None,
    num_requests: int | None = None,
    surges: tuple[Surge, ...] = (),
    floods: tuple[Flood, ...] = (),
    prefix: SharedPrefix | None = None,
) -> list[Request]:
    """The requests of a run in order of arrival, until `duration_s` has passed or there are `num_requests`; a trace ends by itself.

    Raises InvalidInput where neither ends it, or where surges would multiply a trace.
    """
    if arrivals.concurrency is not None and (surges or floods):
        raise InvalidInput("clients that wait for their answers have no rate", field="/faults", expected="no surge and no flood")
    if arrivals.trace:
        if surges:
            raise InvalidInput("a replayed trace has the rate that it was recorded with", field="/faults", expected="no surge")
        ordered = sorted(arrivals.trace, key=lambda one: one.arrival_s)
        found = [Request(index, one.arrival_s, 0, one.input_tokens, one.output_tokens) for index, one in enumerate(ordered[:num_requests])]
        found = [one for one in found if duration_s is None or one.arrival_s < duration_s]
    else:
        if num_requests is None and (duration_s is None or arrivals.concurrency is not None):
            raise InvalidInput("a run needs an end", field="/duration_s", expected="duration_s or num_requests")
        found = _generated(arrivals, kinds, seed, math.inf if duration_s is None else duration_s, num_requests, surges)
    draw, flooded = stream(seed, "flood"), list[Request]()
    for flood in floods:
        now = flood.start_s + draw.expovariate(flood.request_rps)
        while now < flood.end_s:
            flooded.append(Request(0, now, max(1, len(kinds)), flood.input_tokens, flood.output_tokens))
            now += draw.expovariate(flood.request_rps)
    found += _under_way(arrivals, kinds, seed)
    if prefix is not None:
        draw = stream(seed, "prefix")
        for one in found:
            chance, which = draw.random(), draw.randrange(prefix.num_prefixes)
            one.prefix = which if chance < prefix.share_ratio else NO_PREFIX
    if flooded or arrivals.num_under_way:
        found = sorted([*found, *flooded], key=lambda one: one.arrival_s)
    for index, one in enumerate(found):
        one.index = index
    return found


def _under_way(arrivals: Arrivals, kinds: tuple[RequestKind, ...], seed: int) -> list[Request]:
    """Of requests that came before, those that are not done yet: the j-th before the start has had j / n of the mean output, n being
    `num_under_way`, and what it has had counts to its prompt. On average n are left, the sum over j of P(output > j x mean / n).
    """
    if not arrivals.num_under_way or not kinds:
        return []
    draw, found = stream(seed, "under way"), list[Request]()
    shares = [kind.share_ratio for kind in kinds]
    mean = sum(kind.share_ratio * kind.outputs.mean for kind in kinds) / sum(shares)
    for before in range(1, LONGEST_OUTPUTS * arrivals.num_under_way):
        (which,) = draw.choices(range(len(kinds)), shares)
        prompt, answer = kinds[which].inputs.at(draw.gauss(0, 1)), kinds[which].outputs.at(draw.gauss(0, 1))
        had = before * mean / arrivals.num_under_way
        if answer > had:
            left = max(1, round(answer - had))
            found.append(Request(0, 0.0, which, max(1, round(prompt + answer) - left), left))
    return found


def _generated(
    arrivals: Arrivals,
    kinds: tuple[RequestKind, ...],
    seed: int,
    duration_s: float,
    num_requests: int | None,
    surges: tuple[Surge, ...],
) -> list[Request]:
    found, now, mean_gap = list[Request](), 0.0, 1 / arrivals.request_rps
    choose, inputs, outputs = (stream(seed, purpose) for purpose in ("kind", "input", "output"))
    limits = list(itertools.accumulate(kind.share_ratio for kind in kinds))
    for gap in gaps(arrivals, stream(seed, "arrival")):
        if arrivals.concurrency is not None:
            now = 0.0 if len(found) < arrivals.concurrency else math.inf  # Those are sent as others end.
        else:
            now = _after(now, gap * mean_gap, surges) if surges else now + gap * mean_gap
        if len(found) == num_requests or duration_s <= now < math.inf:
            return found
        which = min(bisect.bisect_right(limits, choose.random() * limits[-1]), len(kinds) - 1)
        kind = kinds[which]
        prompt, answer = kind.inputs.at(inputs.gauss(0, 1)), kind.outputs.at(outputs.gauss(0, 1))
        found.append(Request(0, now, which, max(1, round(prompt)), max(1, round(answer))))
    return found
