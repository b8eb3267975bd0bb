"""Workloads: lengths, mixes, and what is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.domain.workload import TokenLengths, Workload

MIX = [
    {"share_ratio": 0.8, "input_tokens": 1000, "output_tokens": 200},
    {"share_ratio": 0.15, "input_tokens": 8000, "output_tokens": 500},
    {"share_ratio": 0.05, "input_tokens": 32000, "output_tokens": 1000},
]
SHORT = [{"share_ratio": 0.5, "input_tokens": 1, "output_tokens": 200}, {"share_ratio": 0.5, "input_tokens": 900, "output_tokens": 200}]


def test_a_bare_number_is_a_constant() -> None:
    load = Workload.model_validate({"peak_rps": 1, "input_tokens": 100, "output_tokens": {"mean": 50, "p95": 90}})
    assert load.lengths("input_tokens") == TokenLengths(mean=100, p50=100, p95=100, p99=100)
    assert load.lengths("output_tokens").p99 is None


def test_a_mix_has_the_mean_and_the_percentiles_of_its_classes() -> None:
    load = Workload.model_validate({"peak_rps": 1, "classes": MIX})
    prompt, output = load.lengths("input_tokens"), load.lengths("output_tokens")
    assert (prompt.mean, prompt.p50, prompt.p95, prompt.p99) == (3600, 1000, 8000, 32000)
    assert (output.mean, output.p50, output.p95, output.p99) == (285, 200, 500, 1000)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"input_tokens": {"mean": 1000, "p50": 1200, "p95": 1100}}, "p50 1200 is above p95 1100"),
        ({"input_tokens": {"mean": 1000, "p95": 900}}, "p95 900 is below the mean 1000"),
        ({"input_tokens": 0}, "greater than or equal to 1"),
        ({"input_tokens": 1e30}, "less than or equal to"),
        ({"input_tokens": True}, "valid dictionary"),
        ({"peak_rps": 0}, "greater than or equal to 0.000001"),
        ({"mean_rps": 5}, "mean_rps 5 is above peak_rps 1"),
        ({"shared_prefix_tokens": 200}, "shared_prefix_tokens 200 is more than the mean prompt"),
        ({"prefix_hit_ratio": 1.1}, "less than or equal to 1"),
        ({"token_growth_ratio": 0.01, "output_tokens": 99}, "leaves less than one token of output_tokens 99"),
        ({"token_growth_ratio": 0.01, "output_tokens": None, "input_tokens": None, "classes": SHORT}, "token of input_tokens 1"),
        ({"classes": MIX}, "either classes or"),
        ({"input_tokens": None}, "input_tokens and output_tokens are needed"),
        ({"unknown": 1}, "Extra inputs"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Workload.model_validate({"peak_rps": 1, "input_tokens": 100, "output_tokens": 50, **changes})


def test_shares_must_add_up() -> None:
    with pytest.raises(ValidationError, match=r"add up to 1, not 0\.95"):
        Workload.model_validate({"peak_rps": 1, "classes": MIX[:2]})


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(1, 10**6)), min_size=1, max_size=20))
def test_percentiles_of_a_mix_are_ordered_lengths_of_its_classes(parts: list[tuple[int, int]]) -> None:
    total = sum(weight for weight, _ in parts)
    classes = [{"share_ratio": weight / total, "input_tokens": length, "output_tokens": 1} for weight, length in parts]
    lengths = Workload.model_validate({"peak_rps": 1, "classes": classes}).lengths("input_tokens")
    known = {float(length) for _, length in parts}
    assert lengths.p50 is not None
    assert lengths.p95 is not None
    assert lengths.p99 is not None
    assert lengths.p50 <= lengths.p95 <= lengths.p99
    assert {lengths.p50, lengths.p95, lengths.p99} <= known
    assert min(known) * (1 - 1e-9) <= lengths.mean <= max(known) * (1 + 1e-9)


def test_the_total_of_classes_is_that_of_whole_requests() -> None:
    classes = [
        {"share_ratio": 0.9, "input_tokens": 1000, "output_tokens": 100},
        {"share_ratio": 0.06, "input_tokens": 8000, "output_tokens": 10},
        {"share_ratio": 0.04, "input_tokens": 10, "output_tokens": 8000},
    ]
    mix = Workload.model_validate({"peak_rps": 1, "classes": classes, "token_growth_ratio": 2})
    assert mix.total_tokens("p95") == 16_020
    assert mix.lengths("input_tokens").p95 == 8000
    assert mix.lengths("output_tokens").p95 == 100  # the sum of both, 8100, would be no bound
    plain = Workload.model_validate({"peak_rps": 1, "input_tokens": {"mean": 100, "p95": 200}, "output_tokens": 50})
    assert (plain.total_tokens("mean"), plain.total_tokens("p95")) == (150, 250)
    assert Workload.model_validate({"peak_rps": 1, "input_tokens": {"mean": 100}, "output_tokens": 50}).total_tokens("p95") is None
