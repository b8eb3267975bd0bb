"""What to measure next: first what tells the two leading causes apart."""

from collections.abc import Sequence

from app.domain.finding import Finding, Suggestion
from app.domain.rule_outcomes import Outcome

MAX_SUGGESTIONS = 5
NUM_LEADING = 2


def measure_next(findings: Sequence[Finding], outcomes: Sequence[Outcome], for_health: Sequence[str]) -> list[Suggestion]:
    """At most MAX_SUGGESTIONS measurements, most useful first.

    What speaks for or against the two leading findings, a metric of both before one of either; then what decides the causes under a
    symptom that was found; then what health cannot be judged without (`for_health`); then what most other rules wait for.
    """
    suggestions: dict[str, tuple[str, list[str]]] = {}

    def suggest(name: str, why: str, rules: Sequence[str]) -> None:
        _, helped = suggestions.setdefault(name, (why, []))
        helped.extend(rule for rule in rules if rule not in helped)

    leading = findings[:NUM_LEADING]
    titles = {finding.rule: finding.title for finding in findings}
    wanted = list(dict.fromkeys(name for finding in leading for name in finding.missing))
    for name in sorted(wanted, key=lambda each: -sum(each in finding.missing for finding in leading)):
        rules = [finding.rule for finding in leading if name in finding.missing]
        if len(rules) == NUM_LEADING:
            why = f"tells apart: {titles[rules[0]]} / {titles[rules[1]]}"
        else:
            why = f"supports or refutes: {titles[rules[0]]}"
        suggest(name, why, rules)
    unknown = [each for each in outcomes if each.verdict.held is None]
    under = [each for each in unknown if any(parent in titles for parent in each.rule.parents)]
    found_below = {each.rule.id for each in under}
    for name, rules in _by_worth(under):
        suggest(name, f"decides the cause of what was found: {_counted(rules)}", rules)
    for name in for_health:
        suggest(name, "nothing can be called healthy without it", ())
    for name, rules in _by_worth([each for each in unknown if each.rule.id not in found_below]):
        suggest(name, f"decides {_counted(rules)} that could not be evaluated", rules)
    return [Suggestion(metric=name, why=why, rules=rules) for name, (why, rules) in list(suggestions.items())[:MAX_SUGGESTIONS]]


def _by_worth(unknown: Sequence[Outcome]) -> list[tuple[str, list[str]]]:
    """Missing names with the rules that wait for them.

    A metric that decides a rule alone is worth more than one of many that are missing; a field of the request may be left out on purpose
    and comes last.
    """
    waiting: dict[str, list[str]] = {}
    worth: dict[str, float] = {}
    for outcome in unknown:
        for name in outcome.verdict.missing:
            waiting.setdefault(name, []).append(outcome.rule.id)
            worth[name] = worth.get(name, 0.0) + 1 / len(outcome.verdict.missing)
    return sorted(waiting.items(), key=lambda item: ("." in item[0], -worth[item[0]]))


def _counted(rules: Sequence[str]) -> str:
    return f"{len(rules)} rule{'s' if len(rules) > 1 else ''}"
