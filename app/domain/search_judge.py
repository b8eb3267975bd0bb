"""What a search asks about a deployment: bounds of a family from the times of its steps, and the replicas that the traffic needs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from app.domain.engine import EngineMemory
from app.domain.latency_tail import LEVELS
from app.domain.length_spread import Spread
from app.domain.llm import Llm
from app.domain.performance import Lengths, Performance, StepParts, performance_of, step_parts
from app.domain.replica_speed import ReplicaSpeed
from app.domain.rounding import ceil
from app.domain.search import Miss
from app.domain.search_bounds import most_rps
from app.domain.search_leaders import Outcome
from app.domain.search_space import Family, Reason, Setting
from app.domain.step import StepTimer, step_timer
from app.domain.step_constants import StepModel
from app.domain.units import plain
from app.domain.workload import Slo

_MISSED: Mapping[str, Reason] = {"ttft": "ttft_missed", "tpot": "tpot_missed", "e2e": "e2e_missed"}


@dataclass
class TrafficJudge:
    """Judges deployments by the traffic that they must serve."""

    llm: Llm
    engines: Mapping[str, EngineMemory | None]
    model: StepModel
    inputs: Spread
    outputs: Spread
    cached_tokens: float
    """Tokens of a prompt that the prefix cache serves."""
    request_rps: float
    slo: Slo
    redundancy_ratio: float
    spare_replicas: int
    most_seqs: int
    """The largest max_num_seqs that is looked at."""
    _parts: dict[int, StepParts] = field(default_factory=dict)
    _speed: ReplicaSpeed | None = None

    @cached_property
    def lengths(self) -> Lengths:
        """Mean lengths of the traffic."""
        return self._lengths(self.inputs.mean)

    def _lengths(self, prompt_tokens: float) -> Lengths:
        cached = max(0.0, min(self.cached_tokens, prompt_tokens - 1))
        return Lengths(prompt_tokens, self.outputs.mean, cached / prompt_tokens)

    def best(self, family: Family) -> Outcome | Miss:
        """Bounds of every setting of a family, without a look at what fits beside the weights."""
        gpu, deployment = family.priced.gpu, family.deployment
        parts = self._parts[id(family)] = step_parts(self.llm, gpu, deployment, self.model)
        work, memory = parts.work, gpu.require_memory_bytes()
        weights = (work.dense_bytes + work.expert_bytes) / work.pp
        if weights > memory:
            return Miss("does_not_fit", f"{plain(weights)} bytes of weights on each accelerator of {memory}")
        timer = self._timer(parts, self.lengths)
        per_step = deployment.speculative.tokens_per_iteration if deployment.speculative else 1.0
        tpot_s = timer.iteration(1, 0).total_s / per_step
        for name, limit, least in (*self._ttft_bounds(parts), *self._tpot_bounds(tpot_s)):
            if least > limit:
                return Miss(_MISSED[name.split("_")[0]], f"{name} is at least {plain(least)} s, the objective is {plain(limit)} s")
        places = self.most_seqs * work.dp
        held = timer.at.kv_bytes and (memory - weights) * work.pp / timer.at.kv_bytes * work.dp
        limit = min((limit for _, limit, _ in self._tpot_bounds(tpot_s)), default=math.inf)
        rate = most_rps(timer, min(places, held or places), self.lengths, per_step, limit)
        exact = self.request_rps / rate
        return Outcome(exact, self.replicas(exact), self._least_ttft_s(parts, timer, self.lengths), tpot_s)

    def _ttft_bounds(self, parts: StepParts) -> list[tuple[str, float, float]]:
        bounds = []
        for level in LEVELS:
            limit = getattr(self.slo, f"ttft_{level}_s")
            if limit is not None:
                lengths = self._lengths(max(self.inputs.mean, getattr(self.inputs, level)))
                bounds.append((f"ttft_{level}", limit, self._least_ttft_s(parts, self._timer(parts, lengths), lengths)))
        return bounds

    def _tpot_bounds(self, tpot_s: float) -> list[tuple[str, float, float]]:
        limits = {f"tpot_{level}": getattr(self.slo, f"tpot_{level}_s") for level in LEVELS}
        return [(name, limit, tpot_s) for name, limit in limits.items() if limit is not None]

    def _timer(self, parts: StepParts, lengths: Lengths) -> StepTimer:
        contexts = parts.work.contexts(lengths.decode_context_tokens, lengths.prompt_context_tokens)
        return step_timer(parts.work, parts.constants, contexts, self.model.kernels)

    def _least_ttft_s(self, parts: StepParts, timer: StepTimer, lengths: Lengths) -> float:
        """The server, and the whole prompt in one step of its own: several steps take longer [s]."""
        constants = parts.constants
        return constants.request_s + constants.input_token_s * lengths.input_tokens + timer.iteration(0, lengths.computed_tokens).total_s

    def perform(self, family: Family, setting: Setting) -> Performance:
        """The deployment with the fit of its memory."""
        deployment = family.deployment.model_copy(update=setting._asdict())
        gpu, engine = family.priced.gpu, self.engines[deployment.engine]
        return performance_of(self.llm, gpu, deployment, engine, self.model, self.lengths, parts=self._parts[id(family)])

    def speed(self, performance: Performance) -> ReplicaSpeed:
        """The deployment under this traffic; the last one is kept."""
        if self._speed is None or self._speed.performance is not performance:
            self._speed = ReplicaSpeed(performance, self.inputs, self.outputs, self.cached_tokens, self.slo)
        return self._speed

    def replicas(self, exact: float) -> int:
        """Whole replicas with redundancy and spares: ceil(ceil(exact) x redundancy) + spares."""
        return ceil(max(1, ceil(exact)) * self.redundancy_ratio) + self.spare_replicas

    def least_exact(self, replicas: int) -> float:
        """What `replicas_exact` of a fleet of at least so many replicas is above, from `replicas`."""
        return (replicas - self.spare_replicas - 1) / self.redundancy_ratio - 1

    def times(self, performance: Performance, replicas: int) -> tuple[float, float] | None:
        """Expected TTFT and TPOT with so many replicas [s]; None where the objectives do not hold with so many or fewer."""
        needed = math.floor((replicas - self.spare_replicas) / self.redundancy_ratio)
        speed = self.speed(performance)
        loaded = speed.at_rate(self.request_rps / needed) if needed >= 1 else None
        if loaded is None or not all(each.holds for each in speed.objectives(loaded)):
            return None
        return self._times(speed, replicas)

    def assess(self, performance: Performance) -> Outcome | Miss:
        """The fewest replicas that hold every objective, and the times that they are expected to have."""
        speed = self.speed(performance)
        loaded = speed.within_objectives
        if loaded is None:
            return self._missed(speed)
        exact = self.request_rps / loaded.request_rps
        replicas = self.replicas(exact)
        times = self._times(speed, replicas)
        return (
            Miss("overloaded", "requests outrun the replicas at any number of them") if times is None else Outcome(exact, replicas, *times)
        )

    def _times(self, speed: ReplicaSpeed, replicas: int) -> tuple[float, float] | None:
        state = speed.serving.open(self.request_rps / replicas)
        return None if state is None else (state.waiting.ttft_s, state.tpot_s)

    def _missed(self, speed: ReplicaSpeed) -> Miss:
        for each in speed.objectives(speed.idle) if speed.idle else ():
            if not each.holds:
                why = f"{each.name} of an idle replica is {plain(each.expected_s)} s, the objective is {plain(each.limit_s)} s"
                return Miss(_MISSED[each.name.split("_")[0]], why)
        return Miss("overloaded", "requests outrun the replica at any rate")
