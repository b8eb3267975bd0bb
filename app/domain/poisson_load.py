"""A replica under Poisson arrivals: its mean steps, and what requests wait for."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.domain.arrivals import Line, Prompt, Wait, busy_ratio, met_step_s, met_turn_s, wait
from app.domain.decoding import followed_s
from app.domain.load_state import LoadState, StepTimes, WaitingTimes

if TYPE_CHECKING:
    from app.domain.serving import Serving

TOLERANCE = 1e-3
"""Step times are found to this relative change."""
MOST_ROUNDS = 40
MOST_PROMPTS = 1e6
"""Prompts per step from which on nothing is solved for."""
STEEP = 0.25
"""Least 1 - slope that secants are drawn with: at most four times the difference ahead."""
LEAST_RELAXATION = 0.2
"""Least 1 - elasticity for which the variance of the running sequences is taken to be linear noise."""
MOST_GROWTH = 0.5
"""Most that one round of following prompts brings after another."""
SMALL_RATIO = 0.02
"""Below so many of the sequences a second round of following prompts is not asked for."""
NATURAL_RESIDUAL_STEPS = 0.5
"""Of the steps in flight that a request waits for, those that are modelled: half of the one in progress."""


@dataclass(frozen=True, slots=True)
class PoissonLoad:
    """Requests that arrive at random; those that run are spread evenly over the groups of a replica.

    r requests/s of a group, steps of x seconds: lam = r x prompts arrive per step, B = r x decode steps x x sequences decode. One of them
    shares its steps with B others, 1 / groups + B in all: processor sharing, whose mean holds for any lengths
    (https://doi.org/10.1145/321879.321887). So x = step(1 / groups + B, lam), solved by secants from below.
    Waiting: see `Wait`; for a place that of A servers (Sakasegawa, https://doi.org/10.1007/BF02532775). Means are within 3 % of a replica
    stepped through request by request up to 70 % of the saturation (`tests/domain/test_simulation_replica.py`), within 7 % where prompts
    of thousands of tokens take most of the time and outputs are short.
    """

    serving: "Serving"

    def at_rate(self, request_rps: float) -> LoadState | None:
        """The steady state at a rate; None where requests arrive faster than the replica ends them."""
        serving = self.serving
        rate = request_rps / serving.groups
        if rate * serving.crowded_s >= 1:
            return None  # Prompts alone outrun the replica: steps that hold all that arrives meanwhile would grow without end.
        before = serving.step_s(0, 0)
        value = found = self._mean_step_s(rate * before)
        for _ in range(MOST_ROUNDS):
            after = self._mean_step_s(rate * value)
            slope = (after - found) / (value - before) if value != before else 0.0
            if rate * serving.decode_steps * value > serving.most_admitted or rate * value > MOST_PROMPTS:
                return None
            if abs(after - value) <= TOLERANCE * value * min(1.0, max(1 - slope, TOLERANCE)):
                return self._state(request_rps, after)
            # Where steps grow as fast as what arrives meanwhile there may be a steady state further up: experts that few tokens touch.
            before, found, value = value, after, value + (after - value) / max(1 - slope, STEEP)
        return None

    def at_prompts_per_step(self, num_prompts: float) -> LoadState | None:
        """The same at the rate at which so many prompts arrive per step of a group: r = prompts / step(prompts), no fixed point."""
        step_s = self._mean_step_s(num_prompts)
        return self._state(num_prompts / step_s * self.serving.groups, step_s)

    def _mean_step_s(self, lam: float) -> float:
        """Mean step when `lam` prompts arrive per step, with the sequences that they become [s]."""
        return self.serving.steps_s(self._sequences(lam * self.serving.decode_steps), lam).mean_s

    def _sequences(self, others: float) -> float:
        """Those of a mean step: fewer than on average where steps grow less and less with them, as those with experts do.

        n + c V / (2 g), g and c the growth and curvature of the step at n = 1 / groups + B; V = B / (1 - B g / step) is the variance of B
        where steps grow with it (linear noise, https://doi.org/10.1016/B978-0-444-52965-7.X5000-4 chapter X).
        """
        serving = self.serving
        count = max(1.0, others + 1 / serving.groups)
        if not serving.timer.experts or others <= 0:
            return count
        apart = min(math.sqrt(others), count - 0.5)
        low, here, high = (serving.step_s(count + each, 0) for each in (-apart, 0, apart))
        growth, curvature = (high - low) / (2 * apart), (high + low - 2 * here) / apart**2
        if curvature >= 0:
            return count
        variance = others / max(1 - others * growth / here, LEAST_RELAXATION)
        return max(1.0, count + curvature * variance / (2 * growth))

    def _state(self, request_rps: float, step_s: float) -> LoadState | None:
        """Waiting and times where a step takes so long."""
        serving = self.serving
        rate, steps = request_rps / serving.groups, serving.decode_steps
        running, lam = rate * steps * step_s, rate * step_s
        if rate * serving.crowded_s >= 1 or (not serving.prefill_first and lam * serving.computed_tokens > serving.token_budget):
            return None
        full_s = self._full_s(running)
        found = self._wait(rate, running, serving.steps_s(max(1.0, running), lam), full_s)
        longest_s = math.inf if serving.prefill_first else full_s
        met, mean_s = self._met(rate, step_s, longest_s, found)
        between = serving.interference(met, rate * mean_s, at_random=True)
        following_s = followed_s(steps, between.decode.total_s, between.mean_step_s, longest_s, found.gathering_s)
        decode_s = steps * between.mean_step_s + following_s
        running = rate * decode_s
        prompt_s, server_s = serving.own_prompt_s(running), serving.server_s(1)
        steps_s = serving.timer.constants.residual_iterations - NATURAL_RESIDUAL_STEPS
        residual_s = (max(0.0, steps_s) + serving.held_steps(lam)) * found.plain_s + found.residual_s
        inside_s = server_s + residual_s + prompt_s + found.ahead_s + decode_s
        more_s = serving.timer.constants.request_concurrency_s * (request_rps * inside_s - 1)
        inside_s += more_s
        load, places = request_rps * inside_s, serving.most_admitted
        if not load < places:
            return None
        waiting = WaitingTimes(server_s + more_s, residual_s, prompt_s, found.ahead_s, 0.0, self._admission_s(load, inside_s))
        e2e_s = waiting.ttft_s + decode_s
        return LoadState(
            concurrency=request_rps * e2e_s,
            admitted=load,
            running=running * serving.groups,
            sequences=met * serving.groups,
            decode=between.decode,
            mixed=between.mixed,
            prompt_tokens_per_step=between.prompt_tokens,
            prompt_step_ratio=between.often,
            step_s=between.mean_step_s,
            tpot_s=decode_s / (serving.output_tokens - 1) if steps else between.mean_step_s / serving.tokens_per_step,
            waiting=waiting,
            e2e_s=e2e_s,
            request_rps=request_rps,
            wait=found,
            followed_s=following_s,
            longest_step_s=longest_s,
        )

    def _met(self, rate: float, step_s: float, longest_s: float, found: Wait) -> tuple[float, float]:
        """(sequences of a step that a decoding request meets, the mean step [s]).

        Prompts that follow its own start to decode soon after it, following / (what a prompt adds) of them, and as many did before: it
        shares more steps with both than the mean has. They lengthen steps, in which more follow: a geometric series of two terms.
        """
        serving, steps = self.serving, self.serving.decode_steps
        alone = self._sequences(rate * steps * step_s)

        def beside(plain_s: float, mean_s: float) -> float:
            following_s = followed_s(steps, plain_s, mean_s, longest_s, found.gathering_s)
            return 2 * following_s / (mean_s - plain_s) * rate * mean_s if mean_s > plain_s else 0.0

        first = beside(found.plain_s, found.mean_s)
        if first <= SMALL_RATIO * alone:
            return alone + first, found.mean_s
        plain_s, mean_s, _ = serving.steps_s(alone + first, rate * found.mean_s)
        second = beside(plain_s, mean_s) + rate * steps * (mean_s - step_s)
        return alone + first / (1 - min(max(0.0, second / first - 1), MOST_GROWTH)), mean_s

    def _full_s(self, running: float) -> float:
        """A step full of prompts beside so many sequences; infinite where nothing limits it [s]."""
        room = self._room(running)
        return math.inf if math.isinf(room) else self.serving.step_s(0.0 if self.serving.prefill_first else running, room)

    def _room(self, running: float) -> float:
        """Prompt tokens that a step takes beside so many sequences."""
        budget = self.serving.token_budget
        return budget if self.serving.prefill_first else max(1.0, budget - running * self.serving.timer.positions_per_sequence)

    def _wait(self, rate: float, running: float, beside: StepTimes, full_s: float) -> Wait:
        """What an arrival waits for that meets so many running sequences, and the steps `beside` them."""
        serving, tokens = self.serving, self.serving.computed_tokens
        plain_s, mean_s, batches = beside
        lam, with_prompts, room = rate * mean_s, 0.0 if serving.prefill_first else running, self._room(running)
        whole_s = serving.own_prompt_s(running)
        busy = busy_ratio(rate * (serving.decode_steps * mean_s + whole_s))
        if serving.prefill_first:
            batch_s = (mean_s - plain_s) / batches if batches else 0.0
            met_s = met_turn_s(plain_s, batch_s, batches, serving.next_prompt_s, lam)
        else:
            met_s = met_step_s(plain_s, mean_s, (mean_s - plain_s) / lam if lam else 0.0, full_s)
        others = rate * met_s * busy
        alone_s = whole_s if serving.prefill_steps == 1 else serving.step_s(with_prompts, tokens)
        together_s = serving.step_s(with_prompts, tokens * (1 + others)) if others else alone_s
        line_s = 0.0 if math.isinf(room) else full_s * tokens / room
        own = Prompt(alone_s if tokens <= room else full_s, whole_s, serving.prefill_first)
        other_s = (together_s - alone_s) / others if others else 0.0
        return wait(busy, plain_s, mean_s, met_s, others, other_s, Line(rate * line_s, line_s), own)

    def _admission_s(self, load: float, inside_s: float) -> float:
        places = self.serving.most_admitted
        if math.isinf(places):
            return 0.0
        use = load / places
        waits: float = use ** (math.sqrt(2 * (places + 1)) - 1)
        return waits / (places * (1 - use)) * inside_s
