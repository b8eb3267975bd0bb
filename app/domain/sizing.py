"""What the replica count is computed from: demand, measured figures, objectives, and the times and concurrency that follow."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, NamedTuple

from pydantic import Field

from app.domain.bounds import SpeedBounds, causal_attention_flops
from app.domain.concurrency import ConcurrencyAtLength
from app.domain.demand import Demand
from app.domain.latency_tail import LEVELS
from app.domain.load_state import LoadState
from app.domain.provenance import Basis
from app.domain.replica_speed import Loaded, Objective, ReplicaSpeed
from app.domain.simulated_search import FoundSize
from app.domain.units import plain, tidy
from app.domain.value import Given, Value
from app.domain.workload import Seconds, Slo, TokensPerS


class Measured(Given):
    """What was measured on one replica; each figure replaces the modelled one."""

    output_tokens_per_s: TokensPerS | None = None
    """Output tokens per second that one replica sustains within the objectives."""
    input_tokens_per_s: TokensPerS | None = None
    """Input tokens per second that one replica sustains."""
    concurrency: Annotated[float, Field(ge=1e-3, le=1e6)] | None = None
    """Requests that one replica runs at once within the objectives."""
    kv_concurrency: Annotated[float, Field(ge=1e-3, le=1e6)] | None = None
    """Requests whose KV cache one replica holds safely."""
    queue_s: Annotated[float, Field(ge=0, le=1e6)] | None = None
    """Time before prefill starts [s]."""
    ttft_s: Seconds | None = None
    """Time to first token without the queue [s]."""
    tpot_s: Seconds | None = None
    """Time per output token [s]."""
    e2e_s: Seconds | None = None
    """Mean time of a request in the system [s]; given, it replaces queue + TTFT + output x TPOT."""

    def objectives(self, slo: Slo) -> list[Objective]:
        """The objectives whose time was measured; the queue counts towards the first token where it is given."""
        ttft = None if self.ttft_s is None else self.ttft_s + (self.queue_s or 0.0)
        times = (("ttft", ttft), ("tpot", self.tpot_s), ("e2e", self.e2e_s))
        return [
            Objective(f"{name}_{level}", limit, time_s)
            for name, time_s in times
            for level in LEVELS
            if time_s is not None and (limit := getattr(slo, f"{name}_{level}_s")) is not None
        ]

    def unmeasured(self, slo: Slo) -> Slo | None:
        """The objectives whose time was not measured; None where none is left."""
        held = {f"{each.name}_s" for each in self.objectives(slo)}
        left = {name: limit for name, limit in slo if limit is not None and name not in held}
        return Slo.model_validate(left) if left else None


_NOTHING_MEASURED = Measured()


class Latency(Value):
    """Times of one request of mean length."""

    queue_s: float
    """Before prefill starts [s]."""
    ttft_s: float
    """Time to first token without the queue [s]."""
    tpot_s: float
    """Time per output token [s]."""
    e2e_s: float
    """queue + TTFT + output tokens x TPOT [s]; benchmark tools count one TPOT less: TPOT = (E2E - TTFT) / (output tokens - 1)."""
    next_500_output_tokens_s: float
    """What 500 more output tokens add: 500 x TPOT [s]."""
    basis: Basis
    """measured; calibrated or assumed where a time is modelled; bound where it is neither (no engine is faster)."""


class Known(NamedTuple):
    """A figure, how it is known, and its formula with and without the numbers in it."""

    value: float
    basis: Basis
    substituted: str
    formula: str


class LeastTimes(NamedTuple):
    """What the bounds allow at best for a request of mean length."""

    causal_flops: float
    """Attention over the prompt without what the prefix cache serves [FLOP]."""
    prefill_s: float
    """Prefill of the prompt without what the prefix cache serves [s]."""
    decode_step_s: float
    """One decode step [s]."""
    tpot_s: float
    """Time per output token [s]."""


def cached_tokens(demand: Demand, prompt_tokens: float) -> float:
    """Tokens of a prompt that the prefix cache serves: the mean saving per request, but the last token is always computed [tokens]."""
    saved = demand.saved_input_tokens_per_s / demand.request_rps
    return max(0.0, min(saved, prompt_tokens - 1)) if saved else 0.0


@dataclass(frozen=True)
class Sizing:
    """What the constraints are computed from."""

    demand: Demand
    measured: Measured | None
    slo: Slo | None
    holds: ConcurrencyAtLength | None
    max_num_seqs: int | None
    """Most sequences of the replica, over all its engine ranks."""
    bounds: SpeedBounds | None
    speed: ReplicaSpeed | None = None
    """The modelled replica where an engine is named; else only the bounds are known."""
    simulated: FoundSize | None = None
    """The fleet that holds the objectives, where it was simulated; else percentiles are approximated."""

    @cached_property
    def within_objectives(self) -> Loaded | None:
        """The modelled replica at the largest rate that holds the objectives; None where none does, or where the model saturates."""
        speed, found = self.speed, self.simulated
        if speed is None or found is None:
            return None if speed is None else speed.within_objectives
        return None if found.replicas_exact is None else speed.at_rate(self.demand.request_rps / found.replicas_exact)

    @cached_property
    def operating(self) -> LoadState | None:
        """The modelled replica as it is planned; None without a model or where it serves nothing.

        At `planned_concurrency`, or at the largest rate that holds the objectives where that is less.
        """
        speed, planned = self.speed, self.planned_concurrency
        if speed is None or not speed.serves or planned == 0:
            return None
        most = speed.performance.closed(speed.performance.places if planned is None else planned)
        held = None if speed.slo is None else self.within_objectives
        return most if held is None or held.request_rps >= most.request_rps else held.state

    @cached_property
    def context_tokens(self) -> float:
        """Mean context of a sequence while it decodes: the prompt and half of the output [tokens]."""
        return self.demand.mean_input_tokens + self.demand.mean_output_tokens / 2

    @cached_property
    def planned_concurrency(self) -> float | None:
        """Requests that one replica runs at once: measured, else what it holds safely; None when neither is known."""
        if self.measured and self.measured.concurrency is not None:
            return self.measured.concurrency
        return self.holds.safe_concurrency if self.holds is not None else None

    @cached_property
    def running(self) -> float:
        """`planned_concurrency`, or the one request that is fastest where none is known or held."""
        return self.planned_concurrency or 1

    def cached_tokens(self, prompt_tokens: float) -> float:
        """Tokens of a prompt that the prefix cache serves."""
        return cached_tokens(self.demand, prompt_tokens)

    @cached_property
    def least(self) -> LeastTimes | None:
        """The least times of the mean request at the running concurrency; None without the bounds."""
        bounds, prompt = self.bounds, self.demand.mean_input_tokens
        if bounds is None:
            return None
        cached = self.cached_tokens(prompt)
        flops = causal_attention_flops(bounds.llm, prompt, cached)
        step_s = bounds.decode_step_s(self.running, self.context_tokens)
        return LeastTimes(flops, bounds.prefill_s(prompt, cached, flops), step_s, step_s / bounds.tokens_per_step)

    @cached_property
    def latency(self) -> Latency | None:
        """Measured times where they are given, each else modelled for the replica as planned, without an engine its bound.

        None where one has neither.
        """
        measured = self.measured or _NOTHING_MEASURED
        queue, ttft, tpot = measured.queue_s or 0.0, measured.ttft_s, measured.tpot_s
        if ttft is not None and tpot is not None:
            return self._latency(queue, ttft, tpot, "measured")
        if self.operating is not None and self.speed is not None:
            waiting, per_token = self.operating.waiting, self.operating.tpot_s
            queued = waiting.prompts_ahead_s + waiting.admission_s
            if measured.queue_s is None and ttft is None:
                queue = queued
            first = waiting.ttft_s - queued
            return self._latency(queue, first if ttft is None else ttft, per_token if tpot is None else tpot, self.speed.basis)
        if self.least is None:
            return None
        return self._latency(queue, self.least.prefill_s if ttft is None else ttft, self.least.tpot_s if tpot is None else tpot, "bound")

    def _latency(self, queue: float, ttft: float, tpot: float, basis: Basis) -> Latency:
        e2e = queue + ttft + self.demand.mean_output_tokens * tpot
        return Latency(queue_s=queue, ttft_s=ttft, tpot_s=tpot, e2e_s=e2e, next_500_output_tokens_s=500 * tpot, basis=basis)

    @cached_property
    def time_in_system_s(self) -> Known | None:
        """Mean time of a request in the system [s].

        Measured first; else modelled for the replica as planned; else the objectives (a system that just holds them keeps requests that
        long); else the bounds.
        """
        measured, slo, output = self.measured, self.slo, self.demand.mean_output_tokens
        if measured and measured.e2e_s is not None:
            return Known(measured.e2e_s, "measured", plain(measured.e2e_s), "measured e2e_s")
        latency = self.latency
        if latency is not None and latency.basis == "measured":
            return Known(latency.e2e_s, "measured", self._terms(latency), "queue_s + ttft_s + output tokens x tpot_s, measured")
        if latency is not None and latency.basis != "bound":
            formula = "queue + TTFT + output tokens x TPOT of the replica as planned"
            return Known(latency.e2e_s, latency.basis, self._terms(latency), formula)
        if slo is not None:
            e2e, ttft, tpot = (slo.e2e_p95_s or slo.e2e_p99_s), (slo.ttft_p95_s or slo.ttft_p99_s), (slo.tpot_p95_s or slo.tpot_p99_s)
            if ttft is not None and tpot is not None and (e2e is None or ttft + output * tpot <= e2e):
                return Known(
                    ttft + output * tpot,
                    "assumed",
                    f"{plain(ttft)} + {plain(output)} x {plain(tpot)}",
                    "TTFT + output tokens x TPOT, of the objectives",
                )
            if e2e is not None:
                return Known(e2e, "assumed", plain(e2e), "objective of e2e")
        if latency is not None:
            return Known(latency.e2e_s, "bound", self._terms(latency), "queue + TTFT + output tokens x TPOT at best")
        return None

    def _terms(self, latency: Latency) -> str:
        return f"{plain(latency.queue_s)} + {plain(latency.ttft_s)} + {plain(self.demand.mean_output_tokens)} x {plain(latency.tpot_s)}"

    @cached_property
    def concurrency(self) -> Known | None:
        """Requests in the system at the peak, by Little's law: request_rps x time_in_system_s."""
        inside, rps = self.time_in_system_s, self.demand.request_rps
        if inside is None:
            return None
        terms = f"{plain(rps)} x {plain(inside.value)}"
        return Known(tidy(rps * inside.value), inside.basis, terms, "request_rps x time_in_system_s")
