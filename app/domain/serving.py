"""From one step to a service with continuous batching: what a replica does at a concurrency or at a rate."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from app.domain.arrivals import batches_between
from app.domain.burst_start import start_share
from app.domain.load_state import Interference, LoadState, StepTimes, WaitingTimes, mean_of_steps_s
from app.domain.poisson_load import PoissonLoad
from app.domain.step import IterationTime, StepTimer

TOLERANCE = 1e-3
"""Fixed points are found to this relative change of the running sequences or of the step time."""
MOST_ROUNDS = 40
LEAST_RUNNING = 1.0
"""An engine without requests runs no steps: those that it runs decode at least one sequence, or prompts."""
MOST_BATCHED = 1e6
"""Prompts that are computed together at most: as many as the token budget takes."""
CROWDED = 0.9
"""Share of the waiting behind other prompts that a full pipeline of prompts keeps finite: prompts leave as others enter."""


@dataclass(frozen=True)
class Serving:
    """A deployment under load: the time of its steps, and the limits of its scheduler."""

    timer: StepTimer
    input_tokens: float
    """Mean prompt [tokens]."""
    computed_tokens: float
    """What the prefix cache does not serve of it [tokens]."""
    output_tokens: float
    """Mean output [tokens]."""
    tokens_per_step: float
    """Output tokens of a sequence and step: 1, more with speculation."""
    draft_s: Callable[[float], float] | None
    """Time that drafting adds to a step with so many sequences [s]; None without speculation."""
    token_budget: float
    """Prompt tokens of one step of all ranks of a group; infinite when prompts are not cut [tokens]."""
    most_admitted: float
    """Requests that the cache and max_num_seqs of the replica hold."""
    num_waves: float | None = None
    """Requests of a closed-loop run that starts with all of its concurrency at once / that concurrency; None is the steady state."""
    length_width_ratio: float = 0.0
    """Width of the range of output lengths / mean; requests that start together stay together when it is 0."""
    poll_interval_steps: int = 1
    """Steps from one look for new requests to the next."""
    batch_wait_steps: int = 0
    """Steps for which the first prompt is held back while others gather."""
    prefill_first: bool = False
    """Prompts run in steps of their own while decoding waits; else both share steps."""

    @cached_property
    def groups(self) -> int:
        """Pipeline stages work on different batches at the same time: each is like a replica of the whole."""
        return self.timer.work.pp

    @cached_property
    def prefill_steps(self) -> int:
        """Steps that a prompt takes: ceil(computed tokens / token budget)."""
        return max(1, math.ceil(self.computed_tokens / self.token_budget))

    @cached_property
    def decode_steps(self) -> float:
        """Steps after the first token: (output - 1) / tokens per step."""
        return (self.output_tokens - 1) / self.tokens_per_step

    def step(self, num_sequences: float, prompt_tokens: float) -> IterationTime:
        """A step of one group, drafting included in the overhead."""
        found = self.timer.iteration(num_sequences if prompt_tokens else max(num_sequences, LEAST_RUNNING), prompt_tokens)
        if self.draft_s is None:
            return found
        draft_s = self.draft_s(num_sequences)
        return found._replace(total_s=found.total_s + draft_s, overhead_s=found.overhead_s + draft_s)

    def step_s(self, num_sequences: float, prompt_tokens: float) -> float:
        """The total of `step` alone [s]."""
        total_s = self.timer.total_s(num_sequences if prompt_tokens else max(num_sequences, LEAST_RUNNING), prompt_tokens)
        return total_s if self.draft_s is None else total_s + self.draft_s(num_sequences)

    def longest_step_s(self, running: float) -> float:
        """A step full of prompts beside so many sequences; infinite where nothing limits them [s]."""
        return math.inf if self.prefill_first or math.isinf(self.token_budget) else self.step_s(running, self.token_budget)

    def prompt_s(self, running: float) -> float:
        """Steps of one prompt beside so many running sequences of the group [s]."""
        steps = self.prefill_steps
        return steps * self.step_s(running, self.computed_tokens / steps)

    def burst_s(self, num_prompts: float) -> float:
        """Time per prompt when several are computed with nothing else, as many in a step as the budget takes [s]."""
        if self.computed_tokens >= self.token_budget:
            return self.prompt_s(0)
        tokens = min(self.token_budget, num_prompts * self.computed_tokens)
        return self.step_s(0, tokens) * self.computed_tokens / tokens

    @cached_property
    def alone_s(self) -> float:
        """A prompt with nothing beside it [s]."""
        return self.burst_s(1)

    @cached_property
    def crowded_s(self) -> float:
        """The same of one among as many as a step takes [s]."""
        return self.burst_s(MOST_BATCHED)

    @cached_property
    def _in_turn_s(self) -> float:
        """A request that is alone [s]."""
        decode_s = self.step_s(LEAST_RUNNING, 0)
        steps = self.timer.constants.residual_iterations + self.held_steps(0) + self.decode_steps
        outside_s, prompt_s = self.server_s(1) + steps * decode_s, self.own_prompt_s(LEAST_RUNNING)
        return outside_s + self.own_prompt_s(self.decode_steps * decode_s / (outside_s + prompt_s))

    def closed(self, concurrency: float) -> LoadState:
        """Steady state with `concurrency` requests in the system, each followed by the next as it ends.

        A = min(C, places); lam = (A - 1) / (decode steps + prefill steps) prompts of others arrive per step, as a request meets the rest of
        a closed network (https://doi.org/10.1145/322186.322195); B = A x decode time / (TTFT + decode time), found by iteration. No
        engine idles while requests wait: A of them take no longer than one after the other.
        """
        admitted = min(concurrency, self.most_admitted)
        share = admitted / self.groups
        lam = (admitted - 1) / self.groups / (self.decode_steps + self.prefill_steps) if admitted > 1 else 0.0
        alone, running, before, change_before = self.burst_s(share), share, 0.0, 0.0
        for _ in range(MOST_ROUNDS):
            state = self._state(concurrency, admitted, running, lam, alone)
            inside_s = state.e2e_s - state.waiting.admission_s
            change = share * self.decode_steps * state.step_s / inside_s - running
            if abs(change) <= TOLERANCE * share:
                break
            slope = (change - change_before) / (running - before) if change_before else -1.0
            before, change_before = running, change
            running = min(max(running - change / min(slope, -0.5), 0.0), share)
        return state.within(admitted * self._in_turn_s) if admitted > 1 else state

    @cached_property
    def most_together(self) -> float:
        """Prompts that a step of prompts alone takes."""
        return min(self.token_budget / self.computed_tokens, MOST_BATCHED)

    @cached_property
    def next_prompt_s(self) -> float:
        """What one prompt more adds to a step of prompts alone [s]."""
        most = self.most_together
        return (most * self.crowded_s - self.alone_s) / (most - 1) if most > 1 else self.crowded_s

    def _prompts_in_steps(self, lam: float, random_s: float | None) -> tuple[float, float]:
        """(steps with prompts per decode step, prompt tokens of each) at `lam` prompts per decode step.

        Mixed steps: a share f = min(1, max(1 - exp(-lam m), lam I / budget)) of the steps carries min(lam I / f, budget) tokens.
        Prefill first: lam x m of I / m tokens; of whole prompts that arrive at random `batches_between` steps of `random_s` that decode.
        """
        steps, tokens = self.prefill_steps, self.computed_tokens
        arriving = lam * tokens
        if self.prefill_first:
            often = lam * steps
            if random_s is not None and steps == 1:
                often = batches_between(random_s, self.alone_s, self.next_prompt_s, lam, self.most_together)
            return often, arriving / often if often else tokens / steps
        often = min(1.0, max(-math.expm1(-lam * steps), arriving / self.token_budget))
        return often, min(arriving / often if often else tokens / steps, self.token_budget)

    def interference(self, sequences: float, lam: float, *, at_random: bool = False) -> Interference:
        """Steps without and with prompts at `lam` prompts per step, and how often prompts interfere."""
        decode = self.step(sequences, 0)
        often, carried = self._prompts_in_steps(lam, decode.total_s if at_random else None)
        if not self.prefill_first:
            mixed = self.step(sequences, carried)
            square = (1 - often) * decode.total_s**2 + often * mixed.total_s**2
            mean_s = (1 - often) * decode.total_s + often * mixed.total_s
            return Interference(decode, mixed, carried, often, often * mixed.total_s, square / mean_s)
        chunk = self.step(0, carried)
        both = IterationTime(*(one + other for one, other in zip(decode, chunk, strict=True)))
        return Interference(decode, both, carried, often, often * chunk.total_s, decode.total_s)

    def steps_s(self, sequences: float, lam: float) -> StepTimes:
        """The totals of `interference` alone, where prompts arrive at random."""
        plain_s = self.step_s(sequences, 0)
        often, tokens = self._prompts_in_steps(lam, plain_s)
        mixed_s = plain_s + self.step_s(0, tokens) if self.prefill_first else self.step_s(sequences, tokens)
        return StepTimes(plain_s, mean_of_steps_s(plain_s, mixed_s, often), often)

    def _start_share(self, admitted: float, alone: float, decode_s: float) -> float:
        """Share of a burst of prompts that the mean request of a run waits for; 0 in the steady state."""
        if self.num_waves is None:
            return 0.0
        spread_s = self.length_width_ratio * self.output_tokens / self.tokens_per_step * decode_s
        return start_share(self.num_waves, admitted / self.groups * alone, spread_s, in_turn=self.prefill_first)

    def server_s(self, concurrency: float) -> float:
        """Outside the engine's steps: request + concurrency x per request + input x per token [s]."""
        constants = self.timer.constants
        return constants.request_s + constants.request_concurrency_s * concurrency + constants.input_token_s * self.input_tokens

    def _residual_s(self, found: Interference, lam: float) -> float:
        """(residual iterations + steps held) x t(B, 0) + half of what the mean square of the steps is above it [s]."""
        decode_s = found.decode.total_s
        steps = self.timer.constants.residual_iterations + self.held_steps(lam)
        return steps * decode_s + max(0.0, found.square_ratio - decode_s) / 2

    def held_steps(self, lam: float) -> float:
        """Steps that the scheduler lets pass before it looks at a prompt, or computes it: (poll interval - 1) / 2 + w (1 + w lam / 2) /
        (1 + w lam), w those for which the first prompt waits for others: as many as arrive meanwhile wait half."""
        gathered = self.batch_wait_steps * lam
        return (self.poll_interval_steps - 1) / 2 + self.batch_wait_steps * (1 + gathered / 2) / (1 + gathered)

    def own_prompt_s(self, running: float) -> float:
        """Steps that compute a prompt: beside the running sequences, unless prompts run first [s]."""
        return self.prompt_s(0 if self.prefill_first else running)

    def _state(self, concurrency: float, admitted: float, running: float, lam: float, alone: float) -> LoadState:
        """Times at a number of running sequences of one group when `lam` prompts arrive per step [s].

        step = t(B, 0) + (1 - start share / 2) x interference: the prompts of a burst are waited for, they do not interfere as well.
        TTFT = server + residual + own prompt (prefill steps x t(B, tokens per step))
        + prompts ahead (prefill queue ratio x u / (1 - 0.9 u) x prompt / 2, u the share of the time with prompts; at most behind)
        + start share x behind, behind = (A - 1) / 2 x a prompt of the burst
        + admission (C - A) / A x (TTFT without it + decode steps x step); of a single wave half of that.
        """
        found = self.interference(running, lam)
        decode, mixed = found.decode, found.mixed
        share = self._start_share(admitted, alone, decode.total_s)
        often = (1 - share / 2) * found.often
        step_s = decode.total_s + often * (mixed.total_s - decode.total_s)
        prompt_s = self.own_prompt_s(running)
        behind_s = max(0.0, admitted / self.groups - 1) / 2 * alone
        busy = min(1.0, found.busy_s / step_s)
        ahead_s = self.timer.constants.prefill_queue_ratio * busy / (1 - CROWDED * busy) * min(alone, prompt_s) / 2
        # More prompts than mixed steps take: a request lasts as many steps as the prompts of all others need.
        excess_steps = admitted / self.groups * self.computed_tokens / self.token_budget - self.decode_steps - self.prefill_steps
        waiting = WaitingTimes(
            self.server_s(concurrency),
            self._residual_s(found, lam),
            prompt_s,
            max(min(ahead_s, behind_s), 0.0 if self.prefill_first else excess_steps * step_s),
            share * behind_s,
            0.0,
        )
        decode_s = self.decode_steps * step_s
        inside_s = waiting.ttft_s + decode_s
        if concurrency > admitted:
            # Of a single wave nobody comes after: the mean request waits for half of those without a place.
            half = 0.5 if self.num_waves is not None and self.num_waves <= 1 else 1.0
            waiting = waiting._replace(admission_s=half * (concurrency - admitted) / admitted * inside_s)
        running *= self.groups
        steps = decode, mixed, found.prompt_tokens, often, step_s, step_s / self.tokens_per_step
        return LoadState(concurrency, admitted, running, running, *steps, waiting, waiting.ttft_s + decode_s, admitted / inside_s)

    def open(self, request_rps: float) -> LoadState | None:
        """Steady state under Poisson arrivals, see `PoissonLoad`; None where requests arrive faster than the replica ends them."""
        return PoissonLoad(self).at_rate(request_rps)

    def at_prompts_per_step(self, num_prompts: float) -> LoadState | None:
        """The same at the rate at which so many prompts arrive per step of a group, which needs no fixed point."""
        return PoissonLoad(self).at_prompts_per_step(num_prompts)
