"""What callers send is taken as it is meant."""

from functools import cached_property
from typing import Any

import pytest
from pydantic import Field, ValidationError

from app.domain.value import Given, Value


class Sent(Given):
    num: int | None = None
    ratio: float = 0
    several: list[int] = Field(default_factory=list)
    flag: bool = False
    text: str = ""


@pytest.mark.parametrize(
    ("field", "value", "place"),
    [
        ("num", True, ("num",)),
        ("num", "4", ("num",)),
        ("ratio", False, ("ratio",)),
        ("ratio", "0.5", ("ratio",)),
        ("several", [1, True], ("several", 1)),
    ],
)
def test_neither_booleans_nor_texts_pass_for_numbers(field: str, value: Any, place: tuple[str | int, ...]) -> None:
    with pytest.raises(ValidationError) as refused:
        Sent.model_validate({field: value})
    assert [error["loc"] for error in refused.value.errors()] == [place]


def test_numbers_booleans_and_texts_pass_in_their_own_fields() -> None:
    sent = Sent.model_validate({"num": 4, "ratio": 1, "several": [1, 2], "flag": True, "text": "4"})
    assert sent == Sent(num=4, ratio=1.0, several=[1, 2], flag=True, text="4")
    assert Sent.model_validate({"num": 7e10}).num == 70_000_000_000


class Sum(Value):
    parts: tuple[int, ...]

    @cached_property
    def total(self) -> int:
        return sum(self.parts)


def test_a_changed_copy_computes_its_figures_anew() -> None:
    first = Sum(parts=(1, 2))
    assert first.total == 3
    changed = first.model_copy(update={"parts": (5,)})
    assert (changed.total, first.total) == (5, 3)
    assert changed == Sum(parts=(5,))
