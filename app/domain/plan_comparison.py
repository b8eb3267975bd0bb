"""Two revisions side by side: which inputs and which parts of the answer differ."""

from collections.abc import Sequence

from app.domain.json_difference import Difference, JsonObject, differences
from app.domain.json_pointer import json_pointer
from app.domain.plan import Comparison, Plan, PlanHead

NOT_FIGURES = frozenset({"working", "versions"})
"""Parts of an answer that are not compared: the working repeats the figures, the versions are reported by themselves."""
NAMED_IN_SUMMARY = 3


def compare(before: Plan, after: Plan) -> Comparison:
    """What differs from one plan to the other; calculations of different kinds are compared on the fields that both have."""
    inputs, lone_inputs = _shared(before.inputs, after.inputs, same_kind=before.kind == after.kind)
    answers, lone_answers = _shared(before.answer, after.answer, same_kind=before.kind == after.kind)
    return Comparison(
        before=head(before),
        after=head(after),
        summary=_comparison_summary(before, after, inputs, answers),
        inputs=inputs,
        answers=answers,
        not_compared=[*(f"/inputs{name}" for name in lone_inputs), *(f"/answer{name}" for name in lone_answers)],
    )


def head(plan: Plan) -> PlanHead:
    """The plan without its contents."""
    return PlanHead(**{name: getattr(plan, name) for name in PlanHead.model_fields})


def answer_differences(before: JsonObject, after: JsonObject) -> Sequence[Difference]:
    """Fields in which two answers of one calculation differ."""
    return _shared(before, after, same_kind=True)[0]


def differing(found: Sequence[Difference], one: str, many: str) -> str:
    """How many `many` differ, and the first few in words: `2 inputs differ: /replicas 5 -> 4 (-20 %), ...`; empty when none does.

    Values of the whole come before those of its parts, and what is no single value comes last.
    """
    told = sorted((each for each in found if each.pointer != "/summary"), key=lambda each: (_composed(each), each.pointer.count("/")))
    if not told:
        return ""
    more = f" and {len(told) - NAMED_IN_SUMMARY} more" if len(told) > NAMED_IN_SUMMARY else ""
    named = ", ".join(map(_in_words, told[:NAMED_IN_SUMMARY]))
    return f"{len(told)} {f'{one} differs' if len(told) == 1 else f'{many} differ'}: {named}{more}"


def _composed(difference: Difference) -> bool:
    return any(isinstance(value, dict | list) for value in (difference.before, difference.after))


def _shared(before: JsonObject, after: JsonObject, *, same_kind: bool) -> tuple[Sequence[Difference], Sequence[str]]:
    one = {name: value for name, value in before.items() if name not in NOT_FIGURES}
    other = {name: value for name, value in after.items() if name not in NOT_FIGURES}
    if same_kind:
        return tuple(differences(one, other)), ()
    lone = [json_pointer(name) for name in dict.fromkeys((*one, *other)) if (name in one) != (name in other)]
    both = [name for name in one if name in other]
    return tuple(differences({name: one[name] for name in both}, {name: other[name] for name in both})), lone


def _comparison_summary(before: Plan, after: Plan, inputs: Sequence[Difference], answers: Sequence[Difference]) -> str:
    same_plan = before.id == after.id
    one = f"revision {before.revision}" if same_plan else f"“{before.name}” revision {before.revision}"
    other = f"revision {after.revision}" if same_plan else f"“{after.name}” revision {after.revision}"
    kinds = "" if before.kind == after.kind else f" A {before.kind} and a {after.kind} plan are compared on the fields that both have."
    if not inputs and not answers:
        return f"Nothing differs from {one} to {other}.{kinds}"
    asked = differing(inputs, "input", "inputs") or "No input differs"
    answered = differing(answers, "field of the answer", "fields of the answer") or "The figures are the same"
    return f"From {one} to {other}: {asked}. {answered}.{kinds}"


def _in_words(difference: Difference) -> str:
    ratio = f" ({100 * difference.change_ratio:+.3g} %)" if difference.change_ratio is not None else ""
    return f"{difference.pointer} {_short(difference.before)} -> {_short(difference.after)}{ratio}"


def _short(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:.6g}"
        case int() | str():
            text = str(value) if not isinstance(value, int) or abs(value) < 10**18 else "a number beyond 10^18"
            return text if len(text) <= 60 else text[:59] + "…"
        case list():
            return f"{len(value)} entries"
        case _:
            return "an object"
