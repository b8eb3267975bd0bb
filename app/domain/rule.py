"""The form of a diagnosis rule. Rules are data; this says what they may contain, and no more than comparisons."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from app.domain.symptoms import SYMPTOMS
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
Severity = Literal["critical", "warning", "info"]
LatencyFamily = Literal["ttft", "tpot", "e2e"]
Identifier = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{2,60}$")]
Sentence = Annotated[str, Field(min_length=3, max_length=600)]
Url = Annotated[str, Field(pattern=r"^https://[^\s]+$", max_length=300)]
Figure = Annotated[float, Field(ge=0, le=1e12)]
Factor = Annotated[float, Field(gt=0, le=1000)]
Prior = Annotated[float, Field(gt=0, lt=1)]


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
        if name is not None and name not in SYMPTOMS:
            raise ValueError(f"there is no symptom {name!r}")
        return name

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


def _kind(given: Any) -> str | None:
    if isinstance(given, Value):
        return {AllOf: "all", AnyOf: "any", Comparison: "comparison"}.get(type(given))
    if isinstance(given, dict):
        return next((kind for kind in ("all", "any") if kind in given), "comparison")
    return None


Condition = Annotated[
    Annotated[Comparison, Tag("comparison")] | Annotated[AllOf, Tag("all")] | Annotated[AnyOf, Tag("any")], Discriminator(_kind)
]


class Remedy(Value):
    """Something to change, and what the change costs."""

    action: Sentence
    """What to do."""
    lever: Sentence
    """The setting, flag or component that does it."""
    price: Sentence
    """What gets worse."""
    verify: Sentence
    """How to see that it worked."""
    undo: Sentence
    """How to take it back."""


class Contradiction(Value):
    """A condition that speaks against the rule."""

    because: Sentence
    """Why it does."""
    when: Condition
    """The condition."""


class Advice(Value):
    """What a rule or one of its narrowings says when it applies."""

    bottleneck: Bottleneck
    """The class of cause."""
    title: Sentence
    """The finding in one line."""
    when: Condition
    """When it applies."""
    contradicted_by: Sequence[Contradiction] = ()
    """What speaks against it."""
    prior_ratio: Prior
    """Probability that it is the cause when `when` holds and nothing else is known; judged from recorded incidents, not calibrated."""
    check_first: Annotated[Sequence[Sentence], Field(min_length=1)]
    """What to look at, in this order."""
    remedies: Annotated[Sequence[Remedy], Field(min_length=1)]
    """What may be done about it."""


class Rule(Advice):
    """One row of the diagnosis table."""

    id: Identifier
    """Name of the rule and of its file."""
    parent: Identifier | None
    """The rule that has to fire before this one is reported."""
    why: Sentence
    """The mechanism behind the symptom."""
    confirm: Sentence
    """The next measurement that proves or refutes it."""
    severity: Severity
    """How urgent it is when it is true."""
    narrows: Sequence[Advice] = ()
    """More precise causes; the first whose condition holds replaces bottleneck, title, prior, checks and remedies."""
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
        """Every comparison of the rule."""
        for advice in (self, *self.narrows):
            yield from _leaves(advice.when)
            for contradiction in advice.contradicted_by:
                yield from _leaves(contradiction.when)


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
