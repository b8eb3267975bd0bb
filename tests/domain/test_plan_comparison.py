"""What a reader is told of a comparison before he looks at its list."""

from app.domain.json_difference import differences
from app.domain.plan_comparison import differing


def told(before: dict[str, object], after: dict[str, object]) -> str:
    return differing(tuple(differences(before, after)), "input", "inputs")  # type: ignore[arg-type]  # plain JSON


def test_one_difference_is_counted_as_one() -> None:
    assert told({"replicas": 5}, {"replicas": 4}) == "1 input differs: /replicas 5 -> 4 (-20 %)"


def test_no_difference_and_a_new_wording_are_nothing() -> None:
    assert told({"summary": "a", "tp": 1}, {"summary": "b", "tp": 1}) == ""


def test_values_of_the_whole_come_first_and_what_is_no_value_last() -> None:
    before = {"assumptions": [{"code": "a"}], "per_replica": {"tokens": 1, "requests": 2}, "replicas": 28, "gpus": 112}
    after = {"assumptions": [], "per_replica": {"tokens": 2, "requests": 1}, "replicas": 14, "gpus": 56}
    assert told(before, after) == (
        "5 inputs differ: /replicas 28 -> 14 (-50 %), /gpus 112 -> 56 (-50 %), /per_replica/tokens 1 -> 2 (+100 %) and 2 more"
    )
