"""The form of a diagnosis rule. Rules are data; this says what they may contain, and no more than comparisons."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from app.domain.symptoms import SYMPTOMS
from app.domain.units import plain
from app.domain.value import Value

Bottleneck = Literal[
    "admission_policy", "batch_too_small", "client_side", "cold_start", "config_error", "cpu_numa_affinity", "cpu_scheduler_overhead",
    "cpu_starvation", "cpu_tokenizer", "cuda_graph_disabled", "cuda_graph_gap", "decode_bandwidth", "host_gc_pause", "kv_capacity",
    "kv_preemption", "kv_transfer_slow", "long_tail_requests", "lora_overhead", "measurement_artifact", "memory_fragmentation",
    "memory_oom_runtime", "multimodal_preprocessing", "network_gateway", "overload_capacity", "pcie_topology", "power_thermal_throttle",
    "prefill_bound", "prefill_decode_interference", "prefix_cache_miss", "quant_kernel_slow", "queueing_batch_cap", "replica_imbalance",
    "sampling_overhead", "spec_decode_low_acceptance", "structured_output_overhead", "tp_communication", "none_healthy", "unresolved",
    "queueing", "prefill", "decode", "memory", "outside_engine", "measurement",
]  # fmt: skip
"""Classes of causes; the last six are the coarse parents that a finding stays at while the evidence supports no class."""

Operator = Literal[">", ">=", "<", "<="]
Stage = Literal["validity", "configuration", "location", "cause", "suspicion", "capacity"]
"""In this order: whether the figures can be trusted, what is set wrongly, where the time goes, why, what it usually is where nothing that
would show it was measured, and last that it is too little."""
Severity = Literal["critical", "warning", "info"]
LatencyFamily = Literal["ttft", "tpot", "itl", "e2e"]
Identifier = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{2,60}$")]
Sentence = Annotated[str, Field(min_length=3, max_length=600)]
Url = Annotated[str, Field(pattern=r"^https://[^\s]+$", max_length=300)]
Figure = Annotated[float, Field(ge=0, le=1e12)]
Factor = Annotated[float, Field(gt=0, le=1000)]
Prior = Annotated[float, Field(gt=0, lt=1)]


def _symptom(name: str) -> str:
    if name not in SYMPTOMS:
        raise ValueError(f"there is no symptom {name!r}")
    return name


class Comparison(Value):
    """A symptom against a threshold: the objective of a latency, the baseline, another symptom, or a number."""

    name: Identifier
    """Name of the threshold; a request overrides it as `<rule>.<name>`."""
    metric: str
    """The symptom that is compared."""
    op: Operator
    """How it is compared."""
    objective: LatencyFamily | None = None
    """Compare with what this latency ought to be: SLO, baseline, or the default."""
    baseline_ratio: Factor | None = None
    """Compare with the same symptom of the baseline times this."""
    symptom: str | None = None
    """Compare with another symptom."""
    times_ratio: Factor = 1
    """Factor on the objective or on the other symptom."""
    number: Figure | None = None
    """Compare with this; after `baseline_ratio` or `symptom` it is what remains when those are unknown."""

    @field_validator("metric", "symptom")
    @classmethod
    def _known(cls, name: str | None) -> str | None:
        return None if name is None else _symptom(name)

    @model_validator(mode="after")
    def _has_a_reference(self) -> "Comparison":
        if all(each is None for each in (self.objective, self.baseline_ratio, self.symptom, self.number)):
            raise ValueError("one of objective, baseline_ratio, symptom and number is needed")
        if self.objective is not None and any(each is not None for each in (self.baseline_ratio, self.symptom, self.number)):
            raise ValueError("an objective brings its own baseline and default; leave out baseline_ratio, symptom and number")
        if self.times_ratio != 1 and self.objective is None and self.symptom is None:
            raise ValueError("times_ratio is a factor on an objective or a symptom, and there is neither")
        return self


class AllOf(Value):
    """Holds when every part holds."""

    all: Annotated[Sequence["Condition"], Field(min_length=1)]
    """The parts."""


class AnyOf(Value):
    """Holds when at least one part holds."""

    any: Annotated[Sequence["Condition"], Field(min_length=1)]
    """The parts."""


class AnyKnown(Value):
    """Holds when at least one of the parts that can be evaluated holds; unknown only when none can be.

    For several ways to measure one thing, of which callers have some: what they lack decides nothing.
    """

    any_known: Annotated[Sequence["Condition"], Field(min_length=1)]
    """The parts."""


def _kind(given: Any) -> str | None:
    if isinstance(given, Value):
        return {AllOf: "all", AnyOf: "any", AnyKnown: "any_known", Comparison: "comparison"}.get(type(given))
    if isinstance(given, dict):
        return next((kind for kind in ("all", "any", "any_known") if kind in given), "comparison")
    return None


Condition = Annotated[
    Annotated[Comparison, Tag("comparison")]
    | Annotated[AllOf, Tag("all")]
    | Annotated[AnyOf, Tag("any")]
    | Annotated[AnyKnown, Tag("any_known")],
    Discriminator(_kind),
]


class Remedy(Value):
    """Something to change, and what the change costs."""

    action: Sentence
    """What to do."""
    lever: Sentence
    """The setting, flag or component that does it."""
    effect: Sentence | None = None
    """What it brought where it was measured."""
    price: Sentence
    """What gets worse."""
    verify: Sentence
    """How to see that it worked."""
    undo: Sentence
    """How to take it back."""


class Hint(Value):
    """A condition that speaks for or against a rule that fires already."""

    because: Sentence
    """What it says."""
    when: Condition
    """The condition."""


class Magnitude(Value):
    """How much slower the cause makes an engine, at most; what exceeds it has another cause, or one more."""

    metric: str
    """The symptom that says how much slower it became."""
    at_most_ratio: Factor
    """Largest effect of this cause in any public record, with a margin."""

    @field_validator("metric")
    @classmethod
    def _known(cls, name: str) -> str:
        return _symptom(name)


class Rule(Value):
    """One row of the diagnosis table, or one cause."""

    id: Identifier
    """Name of the rule and of its file."""
    bottleneck: Bottleneck
    """The class of cause."""
    stage: Stage
    """What the rule decides: whether to trust the figures, what is set wrongly, where the time goes, why, or that it is too little; a
    suspicion gives way to any cause that was seen."""
    parents: Sequence[Identifier] = ()
    """Rules of which one has to fire before this one is reported."""
    title: Sentence
    """The finding in one line."""
    when: Condition
    """When it applies."""
    supported_by: Sequence[Hint] = ()
    """What makes it more probable where it applies."""
    contradicted_by: Sequence[Hint] = ()
    """What speaks against it where it applies."""
    explains: Sequence[Identifier] = ()
    """Rules that this one, being true, would make fire as well: they are less probable beside it."""
    magnitude: Magnitude | None = None
    """The most that the cause can do."""
    prior_ratio: Prior
    """Probability that it is the cause when `when` holds and nothing else is known; judged from recorded incidents, not calibrated."""
    severity: Severity
    """How urgent it is when it is true."""
    why: Sentence
    """The mechanism behind the symptom."""
    confirm: Sentence
    """The next measurement that proves or refutes it."""
    check_first: Annotated[Sequence[Sentence], Field(min_length=1)]
    """What to look at, in this order."""
    remedies: Annotated[Sequence[Remedy], Field(min_length=1)]
    """What may be done about it."""
    sources: Annotated[Sequence[Url], Field(min_length=1)]
    """Public records that the rule rests on."""

    @model_validator(mode="after")
    def _one_meaning_per_name(self) -> "Rule":
        seen: dict[str, Comparison] = {}
        for comparison in self.comparisons():
            if seen.setdefault(comparison.name, comparison) != comparison:
                raise ValueError(f"the threshold name {comparison.name!r} stands for two different comparisons")
        return self

    def comparisons(self) -> Iterator[Comparison]:
        """Every comparison of the rule, that of its magnitude included."""
        for condition in (self.when, *(hint.when for hint in self.objections), *(hint.when for hint in self.supported_by)):
            yield from _leaves(condition)

    @cached_property
    def objections(self) -> Sequence[Hint]:
        """What speaks against the rule: contradicted_by, and an effect larger than its magnitude."""
        if self.magnitude is None:
            return self.contradicted_by
        largest = self.magnitude.at_most_ratio
        too_large = Comparison(name="magnitude", metric=self.magnitude.metric, op=">", number=largest)
        because = f"The slowdown is larger than this cause has been seen to make it, {plain(largest)} times at most"
        return (*self.contradicted_by, Hint(because=because, when=too_large))


def _leaves(condition: Condition) -> Iterator[Comparison]:
    match condition:
        case Comparison():
            yield condition
        case AllOf():
            for part in condition.all:
                yield from _leaves(part)
        case AnyOf():
            for part in condition.any:
                yield from _leaves(part)
        case AnyKnown():
            for part in condition.any_known:
                yield from _leaves(part)
