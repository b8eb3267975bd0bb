"""Pools of equal replicas in a simulation: which requests go to a pool, and to which of its replicas."""

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from app.domain.errors import InvalidInput
from app.domain.length_spread import NORMAL
from app.domain.simulation_engine import Engine
from app.domain.simulation_record import Recorder
from app.domain.simulation_replica import ReplicaModel
from app.domain.simulation_requests import Request, RequestKind, SharedPrefix, Traced

Balancing = Literal["round_robin", "least_loaded", "prefix_aware"]
UNBALANCED = 64
"""Requests by which a replica may be ahead of the least loaded before its prefix cache counts no more."""
UNBALANCED_RATIO = 1.5
"""And the ratio of both: https://docs.sglang.io/advanced_features/router.html (balance-abs-threshold, balance-rel-threshold)."""

NUM_LENGTHS = 200
"""Prompts of a kind by which the mean of those that a pool takes is found."""
Routes = list[list[tuple[float, int]]]
"""By kind of request: (longest prompt [tokens], pool) in the order in which pools are asked, the last one without a limit."""


class Intake(NamedTuple):
    """The requests that a pool takes."""

    kinds: tuple[str, ...] = ()
    """Names of the kinds of requests; empty takes every kind."""
    max_input_tokens: float = math.inf
    """Longest prompt [tokens]."""


EVERY_REQUEST = Intake()


@dataclass(frozen=True)
class PoolModel:
    """Replicas of one deployment, and the requests that go to them."""

    replica: ReplicaModel
    num_replicas: int = 1
    balancing: Balancing = "round_robin"
    name: str = "all"
    intake: Intake = EVERY_REQUEST


def routes_of(intakes: Sequence[Intake], kinds: Sequence[str]) -> Routes:
    """Each request goes to the first pool that takes it; raises InvalidInput where none may, or a pool names an unknown kind."""
    for index, intake in enumerate(intakes):
        unknown = [name for name in intake.kinds if name not in kinds]
        if unknown:
            raise InvalidInput(
                f"no requests are of the class {unknown[0]}", field=f"/pools/{index}/classes", value=unknown[0],
                expected=f"some of {', '.join(kinds)}",
            )  # fmt: skip
    routes = Routes()
    for kind in kinds:
        asked = [(each.max_input_tokens, index) for index, each in enumerate(intakes) if not each.kinds or kind in each.kinds]
        last = next((place for place, (limit, _) in enumerate(asked) if math.isinf(limit)), None)
        if last is None:
            raise InvalidInput(
                f"long prompts of the class {kind} go to no pool",
                field="/pools",
                expected="a last pool without classes and max_input_tokens",
            )  # fmt: skip
        routes.append(asked[: last + 1])
    return routes


def mean_lengths(routes: Routes, kinds: Sequence[RequestKind], trace: Sequence[Traced], num_pools: int) -> list[tuple[float, float]]:
    """Mean (input, output) of the requests of each pool [tokens]: of NUM_LENGTHS equally likely prompts of each kind, or of a trace.

    A pool to which none goes gets the mean of all.
    """
    found = [(0, float(one.input_tokens), float(one.output_tokens), 1.0) for one in trace]
    if not trace:
        deviates = [NORMAL.inv_cdf((place + 0.5) / NUM_LENGTHS) for place in range(NUM_LENGTHS)]
        found = [
            (index, max(1.0, kind.inputs.at(deviate)), max(1.0, kind.outputs.mean), kind.share_ratio)
            for index, kind in enumerate(kinds)
            for deviate in deviates
        ]
    parts = [[each for each in found if pool_of(routes, each[0], each[1]) == index] for index in range(num_pools)]
    means = []
    for part in (each or found for each in parts):
        whole = math.fsum(share for *_, share in part)
        prompts = math.fsum(prompt * share for _, prompt, _, share in part)
        answers = math.fsum(answer * share for *_, answer, share in part)
        means.append((prompts / whole, answers / whole))
    return means


def pool_of(routes: Routes, kind: int, input_tokens: float) -> int:
    """Where a request goes."""
    return next(index for limit, index in routes[kind] if input_tokens <= limit)


class Pool:
    """The replicas of a pool behind their balancer."""

    def __init__(self, model: PoolModel, index: int, prefix: SharedPrefix | None, recorder: Recorder) -> None:
        self.model, self.index, self.recorder = model, index, recorder
        replica, count = model.replica, model.num_replicas
        self.replicas = [[Engine(replica, prefix, recorder, index, each) for _ in range(replica.groups)] for each in range(count)]
        self.up = list(range(count))
        """Replicas that serve, in order."""
        self.down = set[int]()
        self.turn = 0
        self.homes = dict[int, int]()
        """Replicas that hold beginnings, by beginning."""
        self.loads = [0] * count
        """Requests of each replica, as the balancer sees them."""
        self.by_load = {0: list(self.up)}
        """Replicas that serve by their load, in order."""
        self.least = 0
        """Smallest load of a replica that serves."""
        self.num_in_system = 0
        self.area = 0.0
        """Requests in the pool x time, between warm-up and the last arrival [s]."""
        self.since_s = 0.0

    def count(self, change: int, now: float) -> None:
        """So many requests more are in the pool."""
        begin, end = max(self.since_s, self.recorder.warm_up_s), min(now, self.recorder.until_s)
        if end > begin:
            self.area += self.num_in_system * (end - begin)
        self.since_s = now
        self.num_in_system += change

    def settle(self, replica: int) -> None:
        """Take the requests of a replica as they are now."""
        if self.model.balancing == "round_robin":
            return
        load = sum(engine.load for engine in self.replicas[replica])
        if load != self.loads[replica] and replica not in self.down:
            self._take(replica)
            self._put(replica, load)

    def _take(self, replica: int) -> None:
        """Out of the replicas that serve."""
        before = self.loads[replica]
        beside = self.by_load[before]
        del beside[bisect.bisect_left(beside, replica)]
        if not beside:
            del self.by_load[before]
            if before == self.least:
                self.least = min(self.by_load, default=0)

    def _put(self, replica: int, load: int) -> None:
        """Among the replicas that serve."""
        self.loads[replica] = load
        self.least = min(self.least, load) if self.by_load else load
        bisect.insort(self.by_load.setdefault(load, []), replica)

    def go_down(self, replica: int) -> list[Request]:
        """The replica serves no more; returns the requests that it had."""
        if replica not in self.down:
            self.down.add(replica)
            self.up.remove(replica)
            self._take(replica)
        self.homes = {which: home for which, home in self.homes.items() if home != replica}
        return [request for engine in self.replicas[replica] for request in engine.empty()]

    def come_back(self, replica: int) -> None:
        """The replica serves again."""
        if replica in self.down:
            self.down.remove(replica)
            bisect.insort(self.up, replica)
            self._put(replica, 0)

    def forget(self, _: float) -> None:
        """Flush the prefix caches, at any time."""
        for replica in self.replicas:
            for engine in replica:
                engine.cache.prefixes.flush()

    def chosen(self, request: Request) -> Engine | None:
        """Where the balancer sends a request; None where no replica serves."""
        if not self.up:
            return None
        engines = self.replicas[self._replica(request)]
        return engines[0] if len(engines) == 1 else min(engines, key=lambda one: one.load)

    def _replica(self, request: Request) -> int:
        up = self.up
        if len(up) < 2:
            return up[0]
        if self.model.balancing == "prefix_aware" and request.prefix >= 0:
            home = self._home(request)
            if home is not None:
                return home
        self.turn += 1
        if self.model.balancing == "round_robin":
            return up[self.turn % len(up)]
        return self._least_loaded()

    def _least_loaded(self) -> int:
        """Of those with fewest requests the next one in turn."""
        fewest = self.by_load[self.least]
        place = bisect.bisect_left(fewest, self.turn % len(self.replicas))
        return fewest[place] if place < len(fewest) else fewest[0]

    def _home(self, request: Request) -> int | None:
        """The replica that is known to hold the beginning, unless it is far ahead of the others."""
        home = self.homes.get(request.prefix)
        if home is None:
            self.turn += 1
            home = self.homes[request.prefix] = self._least_loaded()
            return home
        is_ahead = self.loads[home] > self.least + UNBALANCED and self.loads[home] > self.least * UNBALANCED_RATIO
        return None if is_ahead else home
