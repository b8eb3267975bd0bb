"""One engine step by step: requests first come first served, a budget of tokens, a cache that fills, sequences that are preempted.

Between two events every step decodes the same sequences, whose contexts grow by the same number of tokens: such steps are taken together,
their times an arithmetic series. An event is a prompt to compute, a sequence that ends, a full cache, or an arrival that gets a place.
"""

import heapq
import math
from collections import deque

from app.domain.simulation_cache import KvCache
from app.domain.simulation_record import Recorder
from app.domain.simulation_replica import ReplicaModel
from app.domain.simulation_requests import Request, SharedPrefix
from app.domain.simulation_span import EPSILON, NOTHING, Span


class Engine:
    """A scheduler with the steps that it has planned."""

    def __init__(
        self, model: ReplicaModel, prefix: SharedPrefix | None, recorder: Recorder, pool_index: int = 0, replica_index: int = 0
    ) -> None:
        self.model, self.recorder = model, recorder
        self.pool_index, self.replica_index = pool_index, replica_index
        """Where it is."""
        self.max_num_running = max(1, model.max_num_seqs // model.groups)
        if model.batching != "continuous":
            self.max_num_running = min(self.max_num_running, max(1, model.batch_size // model.groups))
        self.cache = KvCache(model, prefix)
        self.waiting = deque[Request]()
        self.running = dict[Request, None]()
        """Requests with a place, oldest first."""
        self.prompts = dict[Request, None]()
        """Those of them whose prompts are computed, oldest first."""
        self.context_tokens = 0.0
        self.num_decoding = self.step_index = 0
        self.decoding = [0] * recorder.num_kinds
        """The same by kind of request."""
        self.ends: list[tuple[int, int, int, Request]] = []
        self.chunks: list[tuple[Request, float]] = []
        self.span, self.decodes, self.last_batch = NOTHING, False, False
        self.hold_until: int | None = None
        self.finished: list[Request] = []
        """Done in the steps that ended, for the fleet to collect."""
        self.parked: list[Request] = []
        self.stalled: list[tuple[int, int, float]] = []
        """(kind, sequences, their last token) while prompts run before them."""

    @property
    def load(self) -> int:
        """Requests that wait or run."""
        return len(self.waiting) + len(self.running) + len(self.parked)

    def fits(self, request: Request) -> bool:
        """Whether an empty replica would serve it to its end."""
        longest = self.model.max_model_len_tokens
        return self.cache.holds(request) and (longest is None or request.input_tokens + request.output_tokens <= longest)

    def submit(self, request: Request, now: float) -> None:
        """A request arrives; steps that were planned end with the one that runs when it can have a place."""
        self.waiting.append(request)
        if self.span is NOTHING:
            self.plan(now)
        elif len(self.waiting) == 1 and self.model.batching == "continuous" and self._has_place(request):
            self.cut(now)

    @property
    def end_s(self) -> float:
        """When the planned steps are over; infinite without any [s]."""
        return self.span.end_s

    def cut(self, now: float) -> None:
        """End the planned steps with the one that runs at `now`."""
        self.span = self.span.cut(now)

    def _has_place(self, request: Request) -> bool:
        if len(self.running) >= self.max_num_running:
            return False
        next_growth = 0.0 if self.model.prefill_first else self.cache.growth * self.num_decoding
        return self.cache.admits(request, self.running, self.step_index, next_growth)

    def _budget(self) -> float:
        """Prompt tokens that the coming step may compute [tokens]."""
        model = self.model
        return model.token_budget - (0 if model.prefill_first else self.num_decoding * model.positions_per_sequence)

    def _admit(self, now: float) -> None:
        model, waiting = self.model, self.waiting
        if not waiting:
            self.hold_until = None
        if not waiting or not self._looks():
            return
        most = model.prompt_step_tokens
        left = math.inf if model.batching != "continuous" else self._budget() - sum(min(one.left_tokens, most) for one in self.prompts)
        while waiting and left > 0 and self._has_place(waiting[0]):
            request = waiting[0]
            whole = request.input_tokens + request.generated_tokens
            tokens = whole - min(self.cache.prefixes.found(request), whole - 1)
            if not model.splits_prompts and tokens > left and self.prompts:
                return  # It waits for a step with room for all of it.
            waiting.popleft()
            self.running[request] = self.prompts[request] = None
            request.outcome = "running"
            if request.start_s is None:
                request.start_s = now
            self.cache.take(request)
            request.cached_tokens, request.left_tokens = whole - tokens, tokens
            left -= min(tokens, most)

    def _looks(self) -> bool:
        """Whether the scheduler looks at waiting requests before this step."""
        model = self.model
        if model.batching != "continuous":
            full = self.last_batch or model.batching == "dynamic" or len(self.waiting) >= self.max_num_running
            return full and not self.running
        if not self.num_decoding or (model.poll_interval_steps == 1 and not model.batch_wait_steps):
            return True
        if self.hold_until is None:
            poll = model.poll_interval_steps
            self.hold_until = -(-self.step_index // poll) * poll + (0 if self.prompts else model.batch_wait_steps)
        if self.step_index < self.hold_until:
            return False
        self.hold_until = None
        return True

    def plan(self, now: float) -> None:
        """Decide which steps come next."""
        model, self.chunks, self.decodes = self.model, [], False
        if model.prefill_first:
            self._admit(now)
            if self.num_decoding and not self.prompts:
                self._make_room()
        elif not (self.num_decoding and self._make_room()):
            self._admit(now)
        if self.prompts:
            self._plan_prompts(now)
        if self.chunks:
            return
        if not self.num_decoding:
            self.span = NOTHING
            self.cache.estimate.reset()
            return
        steps = self._steps_to_next_end()
        steps = int(min(steps, self.cache.steps_until_full(self.num_decoding)))
        if self.hold_until is not None:
            steps = min(steps, max(1, self.hold_until - self.step_index))
        self.decodes, self.span = True, model.decode_span(now, self.num_decoding, self.context_tokens, steps)

    def _steps_to_next_end(self) -> int:
        ends = self.ends
        while ends[0][2] != ends[0][3].epoch:
            heapq.heappop(ends)
        return ends[0][0] - self.step_index

    def _plan_prompts(self, now: float) -> None:
        """One step with as many prompt tokens as the budget has left."""
        model, sequences = self.model, 0 if self.model.prefill_first else self.num_decoding
        left, total, weighted = self._budget(), 0.0, 0.0
        for request in self.prompts:
            if left <= 0:
                break
            taken = min(left, request.left_tokens, model.prompt_step_tokens) if model.splits_prompts else request.left_tokens
            done = request.input_tokens + request.generated_tokens - request.left_tokens
            self.chunks.append((request, taken))
            total += taken
            weighted += taken * (done + taken / 2)
            left -= taken
        if not self.chunks:
            return
        first_s = model.times.seconds(sequences, self.context_tokens, total, weighted / total)
        self.decodes, self.span = sequences > 0, Span(now, first_s, 0.0, 1)

    def _make_room(self) -> bool:
        """Preempt until every other sequence has room for one more step; what was computed is lost. Says whether any was."""
        before = self.recorder.num_preemptions
        while self.cache.is_full_for(self.num_decoding) and len(self.running) > 1:
            victim = self._victim()
            victim.num_preemptions += 1
            self.recorder.num_preemptions += 1
            self._leave(victim)
            victim.outcome = "waiting"
            if self.model.reservation == "estimate":
                self.waiting.append(victim)
            else:
                self.waiting.appendleft(victim)
        self.cache.prefixes.shrink(self.cache.capacity - self.cache.held - self.cache.growth * self.num_decoding)
        is_short = self.recorder.num_preemptions > before
        if is_short and self.model.reservation == "estimate":
            decoded = sum(self._generated(one) for one in self.running)
            self.cache.estimate.retracted(decoded, len(self.running), sum(one.output_tokens for one in self.running))
        return is_short

    def _victim(self) -> Request:
        """The youngest; where outputs are estimated, of those that decode the one with fewest output tokens and the longest prompt."""
        youngest = next(reversed(self.running))
        if self.model.reservation != "estimate":
            return youngest
        decoding = (one for one in self.running if one not in self.prompts)
        return min(decoding, key=lambda one: (self._generated(one), -one.input_tokens), default=youngest)

    def _generated(self, request: Request) -> float:
        """Output tokens of a running request."""
        steps = 0 if request in self.prompts else self.step_index - request.decode_start
        return request.generated_tokens + steps * self.model.tokens_per_step

    def _leave(self, request: Request) -> None:
        """Give its place up: between steps only."""
        del self.running[request]
        if request in self.prompts:
            del self.prompts[request]
            request.left_tokens = 0.0
        else:
            request.generated_tokens = self._generated(request)
            request.held += (self.step_index - request.decode_start) * self.cache.growth
            self._count(request, -1)
            self.context_tokens -= request.input_tokens + request.generated_tokens
        request.epoch += 1
        self.cache.release(request, is_last=not self.running)

    def abandon(self, request: Request, now: float) -> None:
        """A client gave up: between steps, or while the request waits."""
        if request in self.running:
            self._leave(request)
            self.plan(now)
        elif request in self.parked:
            self.parked.remove(request)
        else:
            self.waiting.remove(request)
            if self.waiting and self.model.batching == "continuous" and self._has_place(self.waiting[0]):
                self.cut(now)

    def empty(self) -> list[Request]:
        """The replica is lost with all that it had; returns it."""
        lost = [*self.waiting, *self.running, *self.parked]
        for request in lost:
            request.epoch, request.prefix_generation = request.epoch + 1, None
        for part in (self.waiting, self.running, self.prompts, self.ends, self.parked, self.stalled):
            part.clear()
        self.num_decoding, self.decoding, self.span = 0, [0] * len(self.decoding), NOTHING
        self.context_tokens = 0.0
        self.hold_until, self.chunks = None, []
        self.cache.clear()
        return lost

    def advance(self) -> None:
        """The planned steps are over: tokens are out, sequences end."""
        now, steps, count = self.span.end_s, self.span.num_steps, self.num_decoding
        self.recorder.record(self, now)
        if self.decodes:
            self.step_index += steps
            self.context_tokens += steps * count * self.model.tokens_per_step
            self.cache.grow(steps, count)
        for request, taken in self.chunks:
            request.left_tokens -= taken
            if request.left_tokens <= 0:
                del self.prompts[request]
                self._start_decoding(request, now)
        ends = self.ends
        while ends and ends[0][0] <= self.step_index:
            _, _, epoch, request = heapq.heappop(ends)
            if epoch == request.epoch:
                self._end(request, now)
        if self.parked and not self.running:
            self.finished, self.parked = [*self.finished, *self.parked], []

    def _count(self, request: Request, change: int) -> None:
        self.num_decoding += change
        self.decoding[request.kind] += change

    def _start_decoding(self, request: Request, now: float) -> None:
        request.left_tokens = 0.0
        request.generated_tokens += 1
        if request.first_token_s is None:
            request.first_token_s = now
            if self.model.residual_steps:
                beside, context = max(1, self.num_decoding), self.context_tokens or request.input_tokens
                step_s = self.model.times.seconds(beside, context, 0, 0)
                request.server_s += self.model.residual_steps * step_s
        self.cache.keep(request)
        request.decode_start = self.step_index
        self._count(request, 1)
        self.context_tokens += request.input_tokens + request.generated_tokens
        steps = max(0, math.ceil((request.output_tokens - request.generated_tokens) / self.model.tokens_per_step - EPSILON))
        if not steps:
            self._end(request, now)
        else:
            heapq.heappush(self.ends, (self.step_index + steps, request.index, request.epoch, request))
            if self.stalled:
                self.stalled.append((request.kind, 1, now))

    def _end(self, request: Request, now: float) -> None:
        self._leave(request)
        if not self.num_decoding:
            self.context_tokens = 0.0
        request.last_token_s = now
        (self.finished if self.model.batching == "continuous" else self.parked).append(request)
