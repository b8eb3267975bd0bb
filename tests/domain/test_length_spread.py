"""Spread of lengths: percentiles and moments of what is known about them, and the two sides of a split."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.length_spread import lognormal_of, natural_split, parts_at, spread_of
from app.domain.workload import TokenLengths, Workload

TAIL = Workload.model_validate({"peak_rps": 1, "input_tokens": {"mean": 4000, "p95": 12000}, "output_tokens": 500})
MIX = Workload.model_validate(
    {
        "peak_rps": 1,
        "classes": [
            {"share_ratio": 0.8, "input_tokens": 1000, "output_tokens": 200},
            {"share_ratio": 0.15, "input_tokens": 8000, "output_tokens": 500},
            {"share_ratio": 0.05, "input_tokens": 32000, "output_tokens": 1000},
        ],
    }
)


def test_the_lognormal_has_the_moments_of_drawn_lengths() -> None:
    shape = lognormal_of(TokenLengths(mean=4000, p95=12000))
    assert shape is not None
    draw = random.Random(3)  # noqa: S311 - no secrets
    drawn = sorted(draw.lognormvariate(shape.mu, shape.sigma) for _ in range(200_000))
    for low, high in ((0.0, 8000.0), (8000.0, 1e12)):
        inside = [each for each in drawn if low < each <= high]
        found = shape._replace(low=low, high=high)
        mean = sum(inside) / len(inside)
        assert found.share_ratio == pytest.approx(len(inside) / len(drawn), rel=0.02)
        assert found.spread().mean == pytest.approx(mean, rel=0.02)
        assert found.spread().p95 == pytest.approx(inside[int(0.95 * len(inside))], rel=0.02)
        assert found.spread().variance_ratio == pytest.approx(sum(each**2 for each in inside) / len(inside) / mean**2 - 1, rel=0.1)


@given(st.floats(1, 1e6), st.floats(1.5, 1000))
def test_the_sides_of_a_split_add_up(mean: float, ratio: float) -> None:
    load = Workload.model_validate({"peak_rps": 1, "input_tokens": {"mean": mean, "p95": mean * ratio}, "output_tokens": 1})
    found = parts_at(load, mean * 2)
    assert found is not None
    short, long = found
    assert short.share_ratio + long.share_ratio == pytest.approx(1)
    assert short.share_ratio * short.inputs.mean + long.share_ratio * long.inputs.mean == pytest.approx(mean)
    assert short.inputs.mean <= mean * 2 <= long.inputs.mean * (1 + 1e-9)
    assert short.inputs.p99 <= mean * 2 * (1 + 1e-9)


def test_classes_count_as_they_are() -> None:
    inputs = spread_of(MIX, "input_tokens")
    assert (inputs.mean, inputs.p95, inputs.p99) == (3600, 8000, 32000)
    assert inputs.variance_ratio == pytest.approx((0.8 * 1000**2 + 0.15 * 8000**2 + 0.05 * 32000**2) / 3600**2 - 1)
    short, long = parts_at(MIX, 1000) or pytest.fail("no split")
    assert (short.share_ratio, short.inputs.mean, short.inputs.variance_ratio) == (0.8, 1000, 0)
    assert long.share_ratio == pytest.approx(0.2)
    assert long.inputs.mean == pytest.approx(14000)
    assert long.outputs.mean == pytest.approx(625)


def test_growth_scales_lengths_and_not_their_spread() -> None:
    grown = TAIL.model_copy(update={"token_growth_ratio": 1.5})
    one, other = spread_of(TAIL, "input_tokens"), spread_of(grown, "input_tokens")
    assert other.mean == one.mean * 1.5
    assert other.p99 == pytest.approx(one.p99 * 1.5)
    assert other.variance_ratio == one.variance_ratio


@pytest.mark.parametrize(
    ("lengths", "p95", "p99", "spreads"),
    [
        (4000, 4000, 4000, False),
        ({"mean": 4000}, 4000, 4000, False),
        ({"mean": 4000, "p95": 8000, "p99": 9000}, 8000, 9000, True),
        ({"mean": 4000, "p95": 40000}, 40000, 47467, True),
    ],
    ids=["number", "mean alone", "percentiles as given", "no lognormal is as wide"],
)
def test_percentiles_that_are_given_stand(lengths: object, p95: float, p99: float, spreads: bool) -> None:
    found = spread_of(Workload.model_validate({"peak_rps": 1, "input_tokens": lengths, "output_tokens": 1}), "input_tokens")
    assert (found.p95, round(found.p99)) == (p95, p99)
    assert (found.variance_ratio > 0) is spreads


@pytest.mark.parametrize(("load", "tokens"), [(TAIL, 8000), (MIX, 1000)], ids=["tail", "classes"])
def test_a_split_is_natural_where_prompts_are_far_longer(load: Workload, tokens: float) -> None:
    assert natural_split(load, 2) == tokens
    assert natural_split(load, 100) is None
