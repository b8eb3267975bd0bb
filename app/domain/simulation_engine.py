"""One engine step by step: requests first come first served, a budget of tokens, a cache that fills, sequences that are preempted.

Between two events every step decodes the same sequences, whose contexts grow by the same number of tokens: such steps are taken together,
their times an arithmetic series. An event is a prompt to compute, a sequence that ends, a full cache, or an arrival that gets a place.
"""

import heapq
import math
from collections import deque

from app.domain.simulation_prefix import PrefixStore
from app.domain.simulation_record import Recorder
from app.domain.simulation_replica import ReplicaModel
from app.domain.simulation_requests import Request, SharedPrefix
from app.domain.simulation_span import EPSILON, NOTHING, Span


class Engine:
    """A scheduler with the steps that it has planned."""

    def __init__(
        self, model: ReplicaModel, prefix: SharedPrefix | None, recorder: Recorder, pool_index: int = 0, replica_index: int = 0
    ) -> None:
        share = model.groups
        self.model, self.recorder = model, recorder
        self.pool_index, self.replica_index = pool_index, replica_index
        """Where it is."""
        self.capacity = model.room.capacity / share
        self.max_num_running = max(1, model.max_num_seqs // share)
        if model.batching != "continuous":
            self.max_num_running = min(self.max_num_running, max(1, model.batch_size // share))
        self.prefixes = PrefixStore(prefix, model.room.per_token)
        self.growth = 0.0 if model.reserves_output else model.room.per_token * model.tokens_per_step
        """Room that a decoding sequence takes up in a step."""
        self.waiting = deque[Request]()
        self.running = dict[Request, None]()
        """Requests with a place, oldest first."""
        self.prompts = deque[Request]()
        self.prompt_tokens = self.context_tokens = self.held = 0.0
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
        tokens, longest = request.input_tokens + request.output_tokens, self.model.max_model_len_tokens
        return self.model.room.of(tokens) + self.prefixes.beyond(request) <= self.capacity and (longest is None or tokens <= longest)

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

    def _need(self, request: Request) -> float:
        """Room that it takes up with its place: its tokens so far, all of them where the output is reserved; a shared beginning once."""
        tokens = request.input_tokens + request.generated_tokens
        if self.model.reserves_output:
            tokens = float(request.input_tokens + request.output_tokens)
        return self.model.room.of(tokens - self.prefixes.found_once(request))

    def _has_place(self, request: Request) -> bool:
        if len(self.running) >= self.max_num_running:
            return False
        return self.held + self.prefixes.pinned_with(request) + self._need(request) <= self.capacity

    def _admit(self, now: float) -> None:
        model, waiting = self.model, self.waiting
        if not waiting:
            self.hold_until = None
        if not waiting or not self._looks():
            return
        budget = model.token_budget if model.batching == "continuous" else math.inf
        while waiting and self.prompt_tokens < budget and self._has_place(waiting[0]):
            request = waiting.popleft()
            self.running[request] = None
            request.outcome = "running"
            if request.start_s is None:
                request.start_s = now
            request.held = self._need(request)
            self.prefixes.enter(request)
            self.held += request.held
            self.prefixes.shrink(self.capacity - self.held)
            whole = request.input_tokens + request.generated_tokens
            request.cached_tokens = min(self.prefixes.found(request), whole - 1)
            request.left_tokens = whole - request.cached_tokens
            self.prompt_tokens += request.left_tokens
            self.prompts.append(request)

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
        self._admit(now)
        model, self.chunks, self.decodes = self.model, [], False
        if self.num_decoding and not (self.prompts and model.prefill_first):
            self._make_room()
        if self.prompts:
            self._plan_prompts(now)
        if self.chunks:
            return
        if not self.num_decoding:
            self.span = NOTHING
            return
        steps = self._steps_to_next_end()
        grown = self.growth * self.num_decoding
        if grown and not math.isinf(self.capacity):
            steps = min(steps, max(1, int((self.capacity - self.held - self.prefixes.pinned) / grown)))
        if self.hold_until is not None:
            steps = min(steps, max(1, self.hold_until - self.step_index))
        seconds, added = model.times.seconds, model.tokens_per_step * self.num_decoding
        first_s, growth_s = seconds(self.num_decoding, self.context_tokens, 0, 0), 0.0
        if steps > 1:
            last_s = seconds(self.num_decoding, self.context_tokens + added * (steps - 1), 0, 0)
            growth_s = (last_s - first_s) / (steps - 1)
        self.decodes, self.span = True, Span(now, first_s, growth_s, steps)

    def _steps_to_next_end(self) -> int:
        ends = self.ends
        while ends[0][2] != ends[0][3].epoch:
            heapq.heappop(ends)
        return ends[0][0] - self.step_index

    def _plan_prompts(self, now: float) -> None:
        """One step with as many prompt tokens as the budget has left."""
        model, sequences = self.model, 0 if self.model.prefill_first else self.num_decoding
        left, total, weighted = model.token_budget - sequences * model.positions_per_sequence, 0.0, 0.0
        for request in self.prompts:
            if left <= 0:
                break
            taken = min(left, request.left_tokens)
            done = request.input_tokens + request.generated_tokens - request.left_tokens
            self.chunks.append((request, taken))
            total += taken
            weighted += taken * (done + taken / 2)
            left -= taken
        if not self.chunks:
            return
        first_s = model.times.seconds(sequences, self.context_tokens, total, weighted / total)
        self.decodes, self.span = sequences > 0, Span(now, first_s, 0.0, 1)

    def _make_room(self) -> None:
        """Preempt the youngest until every decoding sequence has room for one more step; what was computed of it is lost."""
        grown = self.growth
        while self.held + grown * self.num_decoding + self.prefixes.pinned > self.capacity and len(self.running) > 1:
            youngest = next(reversed(self.running))
            youngest.num_preemptions += 1
            self.recorder.num_preemptions += 1
            self._leave(youngest)
            youngest.outcome = "waiting"
            self.waiting.appendleft(youngest)
        self.prefixes.shrink(self.capacity - self.held - grown * self.num_decoding)

    def _leave(self, request: Request) -> None:
        """Give its place up: between steps only."""
        del self.running[request]
        if request.left_tokens > 0:
            self.prompts.remove(request)
            self.prompt_tokens -= request.left_tokens
            request.left_tokens = 0.0
        else:
            steps = self.step_index - request.decode_start
            request.generated_tokens += steps * self.model.tokens_per_step
            request.held += steps * self.growth
            self._count(request, -1)
            self.context_tokens -= request.input_tokens + request.generated_tokens
        self._release(request)

    def _release(self, request: Request) -> None:
        request.epoch += 1
        self.held -= request.held
        if not self.running:
            self.held = 0.0
        self.prefixes.leave(request)

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
        self.prompt_tokens = self.context_tokens = self.held = 0.0
        self.hold_until, self.chunks = None, []
        self.prefixes.flush()
        return lost

    def advance(self) -> None:
        """The planned steps are over: tokens are out, sequences end."""
        now, steps, count = self.span.end_s, self.span.num_steps, self.num_decoding
        self.recorder.record(self, now)
        if self.decodes:
            self.step_index += steps
            self.context_tokens += steps * count * self.model.tokens_per_step
            self.held += steps * count * self.growth
        for request, taken in self.chunks:
            request.left_tokens -= taken
            self.prompt_tokens -= taken
            if request.left_tokens <= 0:
                self.prompts.popleft()
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
        if request.prefix >= 0 and request.prefix_generation is None:
            freed = self.prefixes.keep(request)
            request.held -= freed
            self.held -= freed
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
        steps = self.step_index - request.decode_start
        del self.running[request]
        self._count(request, -1)
        request.held += steps * self.growth
        self.context_tokens -= request.input_tokens + request.generated_tokens + steps * self.model.tokens_per_step
        if not self.num_decoding:
            self.context_tokens = 0.0
        self._release(request)
        request.last_token_s = now
        (self.finished if self.model.batching == "continuous" else self.parked).append(request)
