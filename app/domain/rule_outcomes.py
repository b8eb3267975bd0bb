"""Every rule evaluated on one observation, children under their parents."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from app.domain.evidence import Evaluator, Verdict
from app.domain.observation import Observation
from app.domain.rule import Hint, Rule
from app.domain.thresholds import Overrides


@dataclass(frozen=True)
class Outcome:
    """The verdict on one rule and, when it fires, those on what speaks for and against it."""

    rule: Rule
    verdict: Verdict
    fired_parents: tuple[str, ...] = ()
    support: tuple[tuple[Hint, Verdict], ...] = ()
    objections: tuple[tuple[Hint, Verdict], ...] = ()

    @property
    def fires(self) -> bool:
        """Whether the rule is reported."""
        return self.verdict.held is True

    @property
    def presumed(self) -> bool:
        """Whether it fires without a symptom, because most of those that it is a cause of were not measured."""
        return self.fires and bool(self.rule.parents) and not self.fired_parents

    def verdicts(self) -> Sequence[Verdict]:
        """Everything that was evaluated and counts."""
        return (self.verdict, *(verdict for _, verdict in (*self.support, *self.objections)))

    def unmeasured(self) -> Sequence[Verdict]:
        """What speaks for or against the rule and could not be examined; objections first."""
        return [verdict for _, verdict in (*self.objections, *self.support) if verdict.held is None]


def evaluate(rules: Sequence[Rule], observation: Observation, overrides: Overrides) -> Sequence[Outcome]:
    """The outcome of every rule, in their order.

    A rule with parents fires when its condition holds and one of them fires, or most of them cannot be evaluated: then the symptom is
    presumed, for a diagnosis was asked for. It is silent when its condition fails or all of them are silent, else unknown. `overrides`
    replaces thresholds by `<rule>.<name>`.
    """
    evaluators = {rule.id: Evaluator(observation, overrides, rule.id) for rule in rules}
    own = {rule.id: evaluators[rule.id].evaluate(rule.when) for rule in rules}
    parents = {rule.id: rule.parents for rule in rules}

    @cache  # most rules share their parents
    def under_parents(rule_id: str) -> Verdict:
        if not parents[rule_id]:
            return own[rule_id]
        above = [under_parents(parent) for parent in parents[rule_id]]
        return _gated(above, own[rule_id])

    verdicts = {rule.id: under_parents(rule.id) for rule in rules}
    outcomes = []
    for rule in rules:
        verdict, evaluator = verdicts[rule.id], evaluators[rule.id]
        if not verdict.held:
            outcomes.append(Outcome(rule, verdict))
            continue
        support = tuple((hint, evaluator.evaluate(hint.when)) for hint in rule.supported_by)
        objections = tuple((hint, evaluator.evaluate(hint.when)) for hint in rule.objections)
        fired = tuple(parent for parent in rule.parents if verdicts[parent].held)
        outcomes.append(Outcome(rule, verdict, fired, support, objections))
    return outcomes


def _gated(parents: Sequence[Verdict], child: Verdict) -> Verdict:
    """A child applies where it does itself and one of its parents does, or most are unknown; else both name what is missing."""
    if child.held is False or any(parent.held for parent in parents):
        return child
    if child.held and 2 * sum(parent.held is None for parent in parents) > len(parents):
        return child  # little was measured that its symptom would show in
    if all(parent.held is False for parent in parents):
        return Verdict(False, tuple(dict.fromkeys(line for parent in parents for line in parent.evidence)))
    unknown = [parent for parent in parents if parent.held is None]
    missing = dict.fromkeys(name for verdict in (*unknown, child) for name in verdict.missing)
    return Verdict(None, child.evidence, tuple(missing), child.working)
