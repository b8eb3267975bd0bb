"""Pools of replicas in a simulation: arrivals, clients that give up and try again, replicas that fail."""

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.domain.simulation_engine import Engine
from app.domain.simulation_pool import Pool, Routes, pool_of
from app.domain.simulation_requests import Outcome, Request

TOLD_EVENTS = 500
"""Progress is told every so many events."""


@dataclass(frozen=True)
class ReplicaLoss:
    """A replica goes down with everything that it computes and holds, and is back with an empty cache."""

    at_s: float
    duration_s: float = math.inf
    """Until it serves again; a restart that takes so long [s]."""
    replica_index: int = 0
    pool: int = 0


@dataclass(frozen=True)
class CacheFlush:
    """The replicas forget what their prefix caches hold."""

    at_s: float
    pool: int | None = None
    """Of one pool; None of all."""


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
    """Engines of all pools, driven from event to event in order of time."""

    def __init__(self, pools: Sequence[Pool], routes: Routes, client: Client, *, max_num_waiting: int | None = None) -> None:
        self.pools, self.routes, self.client = pools, routes, client
        self.max_num_waiting = max_num_waiting
        self.events: list[tuple[float, int, Callable[[float], None]]] = []
        self.order = 0
        self.clock_s = 0.0
        self.num_events = self.num_sent = 0
        self.num_requests = 1
        self.on_progress: Callable[[float], None] | None = None
        self.following = deque[Request]()
        """Requests that are sent as others end."""

    def at(self, time_s: float, action: Callable[[float], None]) -> None:
        """Do something at a time."""
        self.order += 1
        heapq.heappush(self.events, (time_s, self.order, action))

    def lose(self, loss: ReplicaLoss) -> None:
        """Plan a loss."""
        pool = self.pools[loss.pool]
        self.at(loss.at_s, lambda now: self._go_down(pool, loss.replica_index, now))
        if not math.isinf(loss.duration_s):
            self.at(loss.at_s + loss.duration_s, lambda _: pool.come_back(loss.replica_index))

    def flush(self, fault: CacheFlush) -> None:
        """Plan a flush."""
        for pool in self.pools if fault.pool is None else (self.pools[fault.pool],):
            self.at(fault.at_s, pool.forget)

    def run(self, requests: list[Request], until_s: float, on_progress: Callable[[float], None] | None = None) -> None:
        """Serve all of them; what is not done at `until_s` stays in flight. Those that never arrive follow others that end."""
        self.on_progress, self.num_requests = on_progress, len(requests)
        self.following.extend(request for request in requests if math.isinf(request.arrival_s))
        if self.following:
            requests = requests[: -len(self.following)]
        events = self.events
        for request in requests:
            while events and events[0][0] <= request.arrival_s:
                self._go_to(events[0][0])
                heapq.heappop(events)[2](self.clock_s)
            self._go_to(request.arrival_s)
            self.num_sent += 1
            self.arrive(request, request.arrival_s)
        for engine in (engine for pool in self.pools for replica in pool.replicas for engine in replica):
            engine.last_batch = True
            if math.isinf(engine.end_s) and engine.waiting:
                self._go_on(engine, self.clock_s)
        while events and events[0][0] <= until_s:
            self._go_to(events[0][0])
            heapq.heappop(events)[2](self.clock_s)

    def _go_to(self, now: float) -> None:
        self.clock_s = now
        self.num_events += 1
        if self.num_events % TOLD_EVENTS == 1 and self.on_progress is not None:
            in_system = sum(pool.num_in_system for pool in self.pools)
            self.on_progress(max(0, self.num_sent - in_system) / self.num_requests)

    def _follow(self, now: float) -> None:
        """A client has its answer, or gave up: the next request is sent."""
        if self.following:
            request = self.following.popleft()
            self.num_sent += 1
            request.arrival_s = request.sent_s = now
            self.at(now, lambda then: self.arrive(request, then))

    def arrive(self, request: Request, now: float) -> None:
        """A request goes to its pool, and there to a replica."""
        pool = self.pools[pool_of(self.routes, request.kind, request.input_tokens)]
        request.pool = pool.index
        engine = pool.chosen(request)
        too_many = engine is None or (self.max_num_waiting is not None and len(engine.waiting) >= self.max_num_waiting)
        if engine is None or too_many or not engine.fits(request):
            self._reject(request, now)
            return
        model = engine.model
        pool.count(1, now)
        request.server_s = model.request_s + model.input_token_s * request.input_tokens
        if model.request_concurrency_s:
            request.server_s += model.request_concurrency_s * sum(one.load for one in pool.replicas[engine.replica_index])
        if not math.isinf(self.client.timeout_s):
            attempt = request.attempt
            self.at(now + self.client.timeout_s, lambda then: self._give_up(request, attempt, engine, then))
        before_s = engine.end_s
        engine.submit(request, now)
        pool.settle(engine.replica_index)
        if engine.end_s != before_s:
            self._expect(engine)

    def _reject(self, request: Request, now: float) -> None:
        request.outcome, request.finished_s = "rejected", now
        self._follow(now)

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
        pool = self.pools[engine.pool_index]
        for request in engine.finished:
            request.outcome, request.finished_s = "finished", now + request.server_s
            pool.count(-1, now)
            self._follow(request.finished_s)
        if engine.finished:
            engine.finished.clear()
            pool.settle(engine.replica_index)
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
        self.pools[engine.pool_index].settle(engine.replica_index)
        if engine.end_s != before_s:
            self._expect(engine)
        request.num_timeouts += 1
        self._end_attempt(
            request, "timed_out", now, again=request.num_timeouts <= self.client.max_num_retries, delay_s=self.client.retry_delay_s
        )

    def _end_attempt(self, request: Request, outcome: Outcome, now: float, *, again: bool, delay_s: float) -> None:
        self.pools[request.pool].count(-1, now)
        if not again:
            request.outcome, request.finished_s = outcome, now
            self._follow(now)
            return
        request.restart(now + delay_s)
        self.at(now + delay_s, lambda then: self.arrive(request, then))

    def _go_down(self, pool: Pool, replica: int, now: float) -> None:
        for request in pool.go_down(replica):
            self._end_attempt(request, "failed", now, again=self.client.resend_lost, delay_s=0.0)
