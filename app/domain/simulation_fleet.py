"""Replicas behind a load balancer in a simulation: arrivals, clients that give up and try again, replicas that fail."""

import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from app.domain.simulation_engine import Engine
from app.domain.simulation_record import Recorder
from app.domain.simulation_replica import ReplicaModel
from app.domain.simulation_requests import Outcome, Request, SharedPrefix

Balancing = Literal["round_robin", "least_loaded", "prefix_aware"]
UNBALANCED = 64
"""Requests by which a replica may be ahead of the least loaded before its prefix cache counts no more."""
UNBALANCED_RATIO = 1.5
"""And the ratio of both: https://docs.sglang.io/advanced_features/router.html (balance-abs-threshold, balance-rel-threshold)."""
CHECKED_REQUESTS = 500
"""Progress is told every so many arrivals."""


@dataclass(frozen=True)
class ReplicaLoss:
    """A replica goes down with everything that it computes and holds, and is back with an empty cache."""

    at_s: float
    duration_s: float = math.inf
    """Until it serves again; a restart that takes so long [s]."""
    replica_index: int = 0


@dataclass(frozen=True)
class CacheFlush:
    """All replicas forget what their prefix caches hold."""

    at_s: float


@dataclass(frozen=True)
class Client:
    """How long clients wait, and whether they come again."""

    timeout_s: float = math.inf
    """From sending a request to the end of its answer [s]."""
    max_num_retries: int = 0
    """Times that a request is sent again after a timeout: a storm when all time out."""
    retry_delay_s: float = 0.0
    resend_lost: bool = True
    """Requests of a replica that is lost are sent again at once, beside the retries; else they have failed."""


class Fleet:
    """Engines of all replicas, driven from event to event in order of time."""

    def __init__(
        self,
        model: ReplicaModel,
        num_replicas: int,
        balancing: Balancing,
        client: Client,
        prefix: SharedPrefix | None,
        recorder: Recorder,
        *,
        max_num_waiting: int | None = None,
    ) -> None:
        self.model, self.balancing, self.client, self.recorder = model, balancing, client, recorder
        self.replicas = [[Engine(model, prefix, recorder) for _ in range(model.groups)] for _ in range(num_replicas)]
        self.down = [False] * num_replicas
        self.max_num_waiting = max_num_waiting
        self.turn = 0
        self.homes = dict[int, int]()
        self.events: list[tuple[float, int, Callable[[float], None]]] = []
        self.order = 0
        self.in_system = 0
        self.area = 0.0
        """Requests in the system x time, between warm-up and the last arrival [s]."""
        self.clock_s = 0.0
        self.num_timeouts = self.num_retries = 0
        self.following = deque[Request]()
        """Requests that are sent as others end."""

    def at(self, time_s: float, action: Callable[[float], None]) -> None:
        """Do something at a time."""
        self.order += 1
        heapq.heappush(self.events, (time_s, self.order, action))

    def lose(self, loss: ReplicaLoss) -> None:
        """Plan a loss."""
        self.at(loss.at_s, lambda now: self._go_down(loss.replica_index, now))
        if not math.isinf(loss.duration_s):
            self.at(loss.at_s + loss.duration_s, lambda _: self._come_back(loss.replica_index))

    def flush(self, fault: CacheFlush) -> None:
        """Plan a flush."""
        self.at(fault.at_s, lambda _: self._forget())

    def _forget(self) -> None:
        for replica in self.replicas:
            for engine in replica:
                engine.prefixes.flush()

    def run(self, requests: list[Request], until_s: float, on_progress: Callable[[float], None] | None = None) -> None:
        """Serve all of them; what is not done at `until_s` stays in flight. Those that never arrive follow others that end."""
        self.following.extend(request for request in requests if math.isinf(request.arrival_s))
        if self.following:
            requests = requests[: -len(self.following)]
        count, events = len(requests), self.events
        for index, request in enumerate(requests):
            if on_progress is not None and index % CHECKED_REQUESTS == 0:
                on_progress(index / count)
            while events and events[0][0] <= request.arrival_s:
                time_s, _, action = heapq.heappop(events)
                self._pass(time_s)
                action(time_s)
            self._pass(request.arrival_s)
            self.arrive(request, request.arrival_s)
        for replica in self.replicas:
            for engine in replica:
                engine.last_batch = True
                if math.isinf(engine.end_s) and engine.waiting:
                    self._go_on(engine, self.clock_s)
        while events and events[0][0] <= until_s:
            time_s, _, action = heapq.heappop(events)
            self._pass(time_s)
            action(time_s)

    def _pass(self, now: float) -> None:
        begin, end = max(self.clock_s, self.recorder.warm_up_s), min(now, self.recorder.until_s)
        if end > begin:
            self.area += self.in_system * (end - begin)
        self.clock_s = now

    def _follow(self, now: float) -> None:
        """A client has its answer, or gave up: the next request is sent."""
        if self.following:
            request = self.following.popleft()
            request.arrival_s = request.sent_s = now
            self.at(now, lambda then: self.arrive(request, then))

    def arrive(self, request: Request, now: float) -> None:
        """The balancer sends a request to a replica."""
        replica = self._chosen(request)
        if replica is None:
            self._reject(request, now)
            return
        engines = self.replicas[replica]
        engine = engines[0] if len(engines) == 1 else min(engines, key=lambda one: one.load)
        too_many = self.max_num_waiting is not None and len(engine.waiting) >= self.max_num_waiting
        if too_many or not engine.fits(request):
            self._reject(request, now)
            return
        model, self.in_system, request.replica = self.model, self.in_system + 1, replica
        request.server_s = model.request_s + model.input_token_s * request.input_tokens
        if model.request_concurrency_s:
            request.server_s += model.request_concurrency_s * sum(one.load for one in engines)
        if not math.isinf(self.client.timeout_s):
            attempt = request.attempt
            self.at(now + self.client.timeout_s, lambda then: self._give_up(request, attempt, engine, then))
        before_s = engine.end_s
        engine.submit(request, now)
        if engine.end_s != before_s:
            self._expect(engine)

    def _reject(self, request: Request, now: float) -> None:
        request.outcome, request.finished_s = "rejected", now
        self._follow(now)

    def _chosen(self, request: Request) -> int | None:
        up = [index for index, down in enumerate(self.down) if not down] if any(self.down) else range(len(self.down))
        if len(up) < 2:
            return up[0] if up else None
        if self.balancing == "prefix_aware" and request.prefix >= 0:
            home = self._home(request, list(up))
            if home is not None:
                return home
        self.turn += 1
        if self.balancing == "round_robin":
            return up[self.turn % len(up)]
        return min(up, key=lambda index: (self._load(index), (index - self.turn) % len(self.down)))

    def _load(self, replica: int) -> int:
        return sum(engine.load for engine in self.replicas[replica])

    def _home(self, request: Request, up: list[int]) -> int | None:
        """The replica that is known to hold the beginning, unless it is far ahead of the others."""
        loads = {index: self._load(index) for index in up}
        least = min(loads.values())
        home = self.homes.get(request.prefix)
        if home in loads and not (loads[home] > least + UNBALANCED and loads[home] > least * UNBALANCED_RATIO):
            return home
        if home is None or home not in loads:
            self.turn += 1
            home = min(up, key=lambda index: (loads[index], (index - self.turn) % len(self.down)))
            self.homes[request.prefix] = home
            return home
        return None

    def _expect(self, engine: Engine) -> None:
        if not math.isinf(engine.end_s):
            end_s = engine.end_s
            self.at(end_s, lambda _: self._steps_end(engine, end_s))

    def _steps_end(self, engine: Engine, end_s: float) -> None:
        if engine.end_s != end_s:
            return  # An arrival or a loss came between.
        engine.advance()
        self._go_on(engine, end_s)

    def _go_on(self, engine: Engine, now: float) -> None:
        for request in engine.finished:
            request.outcome, request.finished_s = "finished", now + request.server_s
            self.in_system -= 1
            self._follow(request.finished_s)
        engine.finished.clear()
        engine.plan(now)
        self._expect(engine)

    def _give_up(self, request: Request, attempt: int, engine: Engine, now: float) -> None:
        """The client's patience ends; the engine notices with the step that runs."""
        if request.attempt != attempt or request.outcome not in ("waiting", "running"):
            return
        before_s = engine.end_s
        if request.outcome == "running":
            engine.cut(now)
        if engine.end_s != before_s:
            self._expect(engine)
        if request.outcome == "waiting" or math.isinf(engine.end_s):
            self._drop(request, attempt, engine, now)
        else:
            self.at(engine.end_s, lambda then: self._drop(request, attempt, engine, then))

    def _drop(self, request: Request, attempt: int, engine: Engine, now: float) -> None:
        if request.attempt != attempt or request.outcome not in ("waiting", "running"):
            return
        before_s = engine.end_s
        engine.abandon(request, now)
        if engine.end_s != before_s:
            self._expect(engine)
        request.num_timeouts += 1
        self.num_timeouts += 1
        self._end_attempt(
            request, "timed_out", now, again=request.num_timeouts <= self.client.max_num_retries, delay_s=self.client.retry_delay_s
        )

    def _end_attempt(self, request: Request, outcome: Outcome, now: float, *, again: bool, delay_s: float) -> None:
        self.in_system -= 1
        if not again:
            request.outcome, request.finished_s = outcome, now
            self._follow(now)
            return
        request.restart(now + delay_s)
        self.num_retries += 1
        self.at(now + delay_s, lambda then: self.arrive(request, then))

    def _go_down(self, replica: int, now: float) -> None:
        self.down[replica] = True
        for engine in self.replicas[replica]:
            for request in engine.empty():
                self._end_attempt(request, "failed", now, again=self.client.resend_lost, delay_s=0.0)
        self.homes = {which: home for which, home in self.homes.items() if home != replica}

    def _come_back(self, replica: int) -> None:
        self.down[replica] = False
