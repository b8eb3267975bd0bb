"""What a search asks about a deployment: bounds of a family from the times of its steps, and the replicas that the traffic needs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from app.domain.calibration import Calibrations
from app.domain.capacity_variants import lengths_of
from app.domain.concurrency import at_length, sequence_limit
from app.domain.demand import Demand, demand_of
from app.domain.deployment import Deployment
from app.domain.engine import EngineMemory
from app.domain.fleet import Reserve, sized
from app.domain.hardware import Gpu
from app.domain.latency_tail import LEVELS
from app.domain.length_spread import Spread, spread_of
from app.domain.llm import Llm
from app.domain.memory import trial_fit
from app.domain.performance import Lengths, Performance, StepParts, performance_of, step_parts
from app.domain.prefix_cache import PrefixCache, shared_prefix
from app.domain.replica_speed import ReplicaSpeed
from app.domain.rounding import ceil
from app.domain.search import MARGIN_RATIO, Miss
from app.domain.search_bounds import most_rps
from app.domain.search_leaders import Outcome
from app.domain.search_space import Family, Reason, Setting
from app.domain.sizing import Sizing, cached_tokens
from app.domain.step import StepTimer
from app.domain.step_constants import StepModel
from app.domain.units import plain, seconds
from app.domain.workload import Slo, Workload

_MISSED: Mapping[str, Reason] = {"ttft": "ttft_missed", "tpot": "tpot_missed", "e2e": "e2e_missed"}


@dataclass
class TrafficJudge:
    """Judges deployments by the traffic that they must serve."""

    llm: Llm
    engines: Mapping[str, EngineMemory | None]
    model: StepModel
    workload: Workload
    slo: Slo
    reserve: Reserve
    safety_ratio: float
    """Share of the theoretical concurrency to plan with."""
    most_seqs: int
    """The largest max_num_seqs that is looked at."""
    calibrations: Calibrations = field(default_factory=Calibrations)
    """Measured set-ups, whose candidates have their own constants; empty where none is wanted."""
    _parts: dict[int, StepParts] = field(default_factory=dict)
    _last: tuple[Performance, Sizing] | None = None

    @cached_property
    def demand(self) -> Demand:
        """What the traffic needs."""
        return demand_of(self.workload)

    @cached_property
    def inputs(self) -> Spread:
        """Prompts by length."""
        return spread_of(self.workload, "input_tokens")

    @cached_property
    def outputs(self) -> Spread:
        """Outputs by length."""
        return spread_of(self.workload, "output_tokens")

    @cached_property
    def prefix(self) -> PrefixCache | None:
        """What requests hold in common; every candidate has a prefix cache."""
        return shared_prefix(self.workload, Deployment())

    @cached_property
    def lengths(self) -> Lengths:
        """Mean lengths of the traffic."""
        return lengths_of(self.demand, self.prefix)

    def _steps(self, gpu: Gpu, deployment: Deployment) -> StepModel:
        return self.calibrations.steps(self.model, self.llm, gpu, deployment).model

    def _lengths(self, prompt_tokens: float) -> Lengths:
        return Lengths(prompt_tokens, self.lengths.output_tokens, cached_tokens(self.demand, prompt_tokens) / prompt_tokens)

    def best(self, family: Family) -> Outcome | Miss:
        """Bounds of every setting of a family, without a look at what fits beside the weights."""
        gpu, deployment = family.priced.gpu, family.deployment
        parts = step_parts(self.llm, gpu, deployment, self._steps(gpu, deployment))
        parts = self._parts[id(family)] = parts._replace(steps=self._timer(parts, self.lengths))
        work, memory = parts.work, gpu.require_memory_bytes()
        weights = (work.dense_bytes + work.expert_bytes) / work.pp
        if weights > memory:
            return Miss("does_not_fit", f"{plain(weights)} bytes of weights on each accelerator of {memory}")
        timer = parts.steps
        per_step = deployment.speculative.tokens_per_iteration if deployment.speculative else 1.0
        tpot_s = timer.total_s(1, 0) / per_step
        for name, limit, least in (*self._ttft_bounds(parts), *self._tpot_bounds(tpot_s)):
            if least > limit:
                return Miss(_MISSED[name.split("_")[0]], f"{name} is at least {seconds(least)}, the objective is {seconds(limit)}")
        places = self.most_seqs * work.dp
        own = timer.at.kv_bytes * self._own_ratio
        held = own and (memory - weights) * work.pp / own * work.dp
        limit = min((limit for _, limit, _ in self._tpot_bounds(tpot_s)), default=math.inf)
        rate = most_rps(timer, min(places, held or places), self.lengths, per_step, limit)
        exact = self.demand.request_rps / rate
        return Outcome(exact, self.replicas(exact), self._least_ttft_s(parts, timer, self.lengths), tpot_s)

    @cached_property
    def _own_ratio(self) -> float:
        """Least share of its cache that a request holds itself: what it does not find in common, of the context that it has on average."""
        context = self.lengths.decode_context_tokens
        found = 0.0 if self.prefix is None else min(self.prefix.shared_tokens, context - 1) * self.prefix.hit_ratio
        return 1 - found / context

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
        return parts.steps.at_contexts(contexts)

    def _least_ttft_s(self, parts: StepParts, timer: StepTimer, lengths: Lengths) -> float:
        """The server, and the whole prompt in one step of its own: several steps take longer [s]."""
        constants = parts.constants
        return constants.request_s + constants.input_token_s * lengths.input_tokens + timer.total_s(0, lengths.computed_tokens)

    def perform(self, family: Family, setting: Setting) -> Performance:
        """The deployment with the fit of its memory."""
        deployment = family.deployment.model_copy(update=setting._asdict())
        gpu, engine = family.priced.gpu, self.engines[deployment.engine]
        found, model = trial_fit(self.llm, gpu, deployment, engine), self._steps(gpu, deployment)
        return performance_of(self.llm, gpu, deployment, engine, model, self.lengths, parts=self._parts[id(family)], found=found)

    def with_budget(self, performance: Performance, setting: Setting) -> Performance:
        """The deployment with another token budget in the same memory: a larger one in truth leaves less for the cache."""
        return replace(performance, token_budget=float(setting.max_num_batched_tokens * performance.deployment.dp))

    def sizing(self, performance: Performance) -> Sizing:
        """What the replicas are computed from, as `/capacity` does it; that of the last deployment is kept."""
        if self._last is None or self._last[0] is not performance:
            found, deployment, demand = performance.found, performance.deployment, self.demand
            holds = None
            if found.cost is not None:
                tokens = demand.mean_input_tokens + demand.mean_output_tokens
                holds = at_length(found, deployment, tokens, self.safety_ratio, self.prefix)
            limit = sequence_limit(found, deployment)
            speed = ReplicaSpeed(performance, self.inputs, self.outputs, cached_tokens(demand, demand.mean_input_tokens), self.slo)
            self._last = performance, Sizing(demand, None, self.slo, holds, limit and limit * deployment.dp, None, speed)
        return self._last[1]

    def replicas(self, exact: float) -> int:
        """Whole replicas with their reserve."""
        return self.reserve.replicas_for(max(1, ceil(exact)))

    def least_exact(self, replicas: int) -> float:
        """What `replicas_exact` of a fleet of at least so many replicas is above."""
        return (replicas - self.reserve.spare_replicas - 1) / self.reserve.redundancy_ratio - 1

    def times(self, performance: Performance, replicas: int) -> tuple[float, float] | None:
        """Bounds of the expected TTFT and TPOT with so many replicas [s]; None where the objectives need more, or may by a hair."""
        needed = math.floor((replicas - self.reserve.spare_replicas) / self.reserve.redundancy_ratio)
        if needed < 1:
            return None
        sizing, rate = self.sizing(performance), self.demand.request_rps / needed * MARGIN_RATIO
        speed, planned = sizing.speed, sizing.planned_concurrency
        assert speed is not None  # noqa: S101 - `sizing` models every deployment
        if planned == 0:
            return None
        if rate > speed.most_rps(performance.places if planned is None else planned):
            return None
        loaded = speed.at_rate(rate)
        if loaded is None or not speed.holds(loaded):
            return None
        times = self._times(speed, replicas)
        return None if times is None else (times[0] / MARGIN_RATIO, times[1] / MARGIN_RATIO)

    def needs_more(self, performance: Performance, exact: float) -> bool:
        """Whether one replica misses the objectives under its share of so many, a hair less than it."""
        speed = self.sizing(performance).speed
        assert speed is not None  # noqa: S101 - `sizing` models every deployment
        loaded = speed.at_rate(self.demand.request_rps / exact / MARGIN_RATIO)
        return loaded is None or not speed.holds(loaded)

    def assess(self, performance: Performance) -> Outcome | Miss:
        """The fewest replicas that hold every objective, and the times that they are expected to have."""
        sizing = self.sizing(performance)
        speed = sizing.speed
        assert speed is not None  # noqa: S101 - `sizing` models every deployment
        if sizing.planned_concurrency == 0:
            return Miss("does_not_fit", "the cache of one replica holds no request of mean length")
        if speed.within_objectives is None:
            return self._missed(speed)
        fleet = sized(sizing, self.reserve)
        times = self._times(speed, fleet.replicas)
        if times is None or fleet.binding is None or fleet.binding.replicas_exact is None:
            return Miss("overloaded", "requests outrun the replicas at any number of them")
        return Outcome(fleet.binding.replicas_exact, fleet.replicas, *times)

    def _times(self, speed: ReplicaSpeed, replicas: int) -> tuple[float, float] | None:
        loaded = speed.at_rate(self.demand.request_rps / replicas)
        return None if loaded is None else (loaded.tails.mean("ttft"), loaded.tails.mean("tpot"))

    def _missed(self, speed: ReplicaSpeed) -> Miss:
        for each in speed.objectives(speed.idle) if speed.idle else ():
            if not each.holds:
                why = f"{each.name} of an idle replica is {seconds(each.expected_s)}, the objective is {seconds(each.limit_s)}"
                return Miss(_MISSED[each.name.split("_")[0]], why)
        return Miss("overloaded", "requests outrun the replica at any rate")
