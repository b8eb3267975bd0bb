"""Three-valued logic over comparisons: what holds, what does not, and what cannot be known, each with the numbers that decide it."""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from app.domain.metrics import metric_unit
from app.domain.observation import Absent, Observation, Reading
from app.domain.provenance import Step
from app.domain.rule import AllOf, AnyKnown, AnyOf, Comparison, Condition, LatencyFamily, Operator
from app.domain.symptoms import read
from app.domain.thresholds import Overrides
from app.domain.value import Value

ThresholdBasis = Literal["request", "profile", "slo", "baseline", "planner", "symptom", "default", "rule"]
"""Where a threshold comes from.

An override in the request or in the saved profile that it names, the SLO, the baseline, what the planner expects of the deployment,
another symptom, the default objective, or the rule's file.
"""

OBJECTIVES: Mapping[str, float] = {
    "objective.ttft_s": 2.0,
    "objective.tpot_s": 0.1,
    "objective.itl_s": 0.1,
    "objective.worse_than_baseline_ratio": 1.5,
}
"""What a latency ought to be when neither SLO nor baseline nor planner says: overridable by these names.

TTFT 2 s: the limit of the Llama 2 70B server scenario of MLPerf Inference at P99
(https://github.com/mlcommons/inference_policies/blob/master/inference_rules.adoc). TPOT, and the time between two chunks, 0.1 s: ten
tokens a second, somewhat faster than people read
(https://docs.databricks.com/en/machine-learning/foundation-models/prov-throughput-run-benchmark.html). E2E has no
default, because it depends on the length of the answer. A latency is worse than its baseline above 1.5 times: runs of one unbound
setup spread by 9 % either way (https://github.com/vllm-project/vllm-ascend/issues/6966), while missing CUDA graphs cost 1.7 times and
more (https://github.com/vllm-project/vllm-omni/issues/7960).
"""

_OPERATORS: Mapping[Operator, Callable[[float, float], bool]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
}  # fmt: skip


class Evidence(Value):
    """One comparison with its numbers."""

    name: str
    """The threshold's name; the request's `thresholds` may override it."""
    metric: str
    """What was observed."""
    observed: float
    """Its value."""
    op: Operator
    """How it is compared."""
    threshold: float
    """What it is compared with."""
    threshold_from: ThresholdBasis
    """Where the threshold comes from."""
    baseline: float | None
    """The same metric in the baseline, else as the planner expects it; null where neither is known."""
    unit: str
    """Unit of the numbers."""
    held: bool
    """Whether the comparison is true."""
    weak: bool
    """The metric reads high without useful work, so that this line proves little."""


@dataclass(frozen=True)
class Verdict:
    """Whether a condition holds; None when what was measured does not decide it."""

    held: bool | None
    evidence: tuple[Evidence, ...] = ()
    missing: tuple[str, ...] = ()
    working: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Evaluator:
    """An observation with the thresholds that are replaced, and the rule whose comparisons are evaluated."""

    observation: Observation
    overrides: Overrides = field(default_factory=Overrides)
    rule: str = "objective"

    def evaluate(self, condition: Condition) -> Verdict:
        """Kleene's strong three-valued logic: an unknown part decides nothing that the known parts have decided.

        The evidence is what decides: of a conjunction that fails the failing parts, of a disjunction that holds the holding ones.
        AnyKnown ignores the parts that are unknown.
        """
        match condition:
            case AllOf():
                return self._combine(condition.all, decisive=False)
            case AnyOf():
                return self._combine(condition.any, decisive=True)
            case AnyKnown():
                return self._any_known(condition.any_known)
        return self.compare(condition)

    def _combine(self, parts: Sequence[Condition], *, decisive: bool) -> Verdict:
        verdicts = [self.evaluate(part) for part in parts]
        if deciding := [verdict for verdict in verdicts if verdict.held is decisive]:
            return _joined(decisive, deciding)
        if any(verdict.held is None for verdict in verdicts):
            return _joined(None, verdicts)
        return _joined(not decisive, verdicts)

    def _any_known(self, parts: Sequence[Condition]) -> Verdict:
        verdicts = [self.evaluate(part) for part in parts]
        known = [verdict for verdict in verdicts if verdict.held is not None]
        if holding := [verdict for verdict in known if verdict.held]:
            return _joined(True, holding)
        return _joined(False, known) if known else _joined(None, verdicts)

    def compare(self, comparison: Comparison) -> Verdict:
        """One comparison; of several readings and references the pair that exceeds most decides.

        So > holds when any reading exceeds its reference, and <= when none does.
        """
        sight = read(comparison.metric, self.observation)
        if isinstance(sight, Absent):
            return Verdict(None, missing=sight.missing)
        name = f"{self.rule}.{comparison.name}"
        override = self.overrides.find(name)
        pairs: list[_Pair]
        if override is not None:
            pairs = [_Pair(reading, *override) for reading in sight]
        else:
            found = self._references(comparison, sight)
            if isinstance(found, Absent):
                return Verdict(None, missing=found.missing)
            pairs = found
        worst = max(pairs, key=_Pair.excess)
        held = _OPERATORS[comparison.op](worst.reading.value, worst.threshold)
        line = Evidence(
            name=name,
            metric=worst.reading.name,
            observed=worst.reading.value,
            op=comparison.op,
            threshold=worst.threshold,
            threshold_from=worst.basis,
            baseline=self._before(comparison.metric, worst.reading.name),
            unit=metric_unit(worst.reading.name),
            held=held,
            weak=worst.reading.overstates and comparison.op in (">", ">="),
        )
        steps = (worst.reading.working, worst.working)
        return Verdict(held, (line,), working=tuple(step for step in steps if step is not None))

    def _references(self, comparison: Comparison, readings: Sequence[Reading]) -> "list[_Pair] | Absent":
        if comparison.objective is not None:
            return self._objectives(comparison.objective, comparison.times_ratio, readings)
        missing: list[str] = []
        if comparison.baseline_ratio is not None:
            for earlier, basis in self._references_of(comparison.metric):
                if pairs := [
                    _Pair(each, earlier[each.name] * comparison.baseline_ratio, basis) for each in readings if each.name in earlier
                ]:
                    return pairs
            missing.append(f"baseline.{comparison.metric}")
        if comparison.symptom is not None:
            other = read(comparison.symptom, self.observation)
            if not isinstance(other, Absent):
                return [_Pair(each, of.value * comparison.times_ratio, "symptom", of.working) for each in readings for of in other]
            missing.extend(other.missing)
        if comparison.number is not None:
            return [_Pair(each, comparison.number, "rule") for each in readings]
        return Absent(tuple(missing))

    def _references_of(self, symptom: str) -> Iterator[tuple[Mapping[str, float], ThresholdBasis]]:
        """The readings of a symptom in the baseline, then in what the planner expects, where it can be read there."""
        before, planned = self.observation.before, self.observation.planned
        bases: Sequence[tuple[Observation | None, ThresholdBasis]] = ((before, "baseline"), (planned, "planner"))
        for observation, basis in bases:
            sight = None if observation is None else read(symptom, observation)
            if sight is not None and not isinstance(sight, Absent):
                yield {reading.name: reading.value for reading in sight}, basis

    def _before(self, symptom: str, reading: str) -> float | None:
        return next((earlier[reading] for earlier, _ in self._references_of(symptom) if reading in earlier), None)

    def _objectives(self, family: LatencyFamily, times: float, readings: Sequence[Reading]) -> "list[_Pair] | Absent":
        """SLO and baseline of the same statistic as the reading, both where both are given.

        Where neither is, the slow end of what the planner expects, and only without that the default.
        """
        slo, baseline = self.observation.slo, self.observation.baseline
        worse = self.objective("objective.worse_than_baseline_ratio")
        pairs = []
        for reading in readings:
            promised = getattr(slo, f"{family}_{reading.statistic}_s", None)
            if promised is not None:
                pairs.append(_Pair(reading, promised * times, "slo"))
            before = baseline.latency(family, reading.statistic) if baseline is not None and reading.statistic is not None else None
            if before is not None:
                pairs.append(_Pair(reading, before * worse * times, "baseline"))
        if not pairs and self.observation.expectation is not None:
            worst = self.observation.expectation.worst
            slowest = ((each, worst.latency(family, each.statistic)) for each in readings if each.statistic is not None)
            pairs = [_Pair(each, value * times, "planner") for each, value in slowest if value is not None]
        if pairs:
            return pairs
        name = f"objective.{family}_s"
        if name not in OBJECTIVES:
            promised_of = [level for level in ("p95", "p99") if getattr(slo, f"{family}_{level}_s", None) is not None]
            return Absent(tuple(f"{family}_{level}_s" for level in promised_of) or (f"slo.{family}_p95_s",))
        override = self.overrides.find(name)
        basis: ThresholdBasis = "default" if override is None else override[1]
        without_means = [reading for reading in readings if reading.statistic != "mean"]
        return [_Pair(reading, self.objective(name) * times, basis) for reading in without_means or readings]

    def objective(self, name: str) -> float:
        """A figure of OBJECTIVES, or what the request or its profile has put in its place."""
        override = self.overrides.find(name)
        return OBJECTIVES[name] if override is None else override[0]


@dataclass(frozen=True)
class _Pair:
    reading: Reading
    threshold: float
    basis: ThresholdBasis
    working: Step | None = None

    def excess(self) -> float:
        """How far the reading is above the threshold, as a ratio that also orders thresholds of zero."""
        if self.threshold > 0:
            return self.reading.value / self.threshold
        return 1.0 if self.reading.value == 0 else float("inf")


def _joined(held: bool | None, verdicts: Sequence[Verdict]) -> Verdict:
    return Verdict(
        held,
        tuple(dict.fromkeys(line for verdict in verdicts for line in verdict.evidence)),
        tuple(dict.fromkeys(name for verdict in verdicts for name in verdict.missing)),
        tuple(dict.fromkeys(step for verdict in verdicts for step in verdict.working)),
    )
