"""What prompts add to the decoding of a request: bounds and limits of the formulas; against a simulation see `test_latency_tail`."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.decoding import followed_s, gamma_percentile, prompts_deviation_s

SECONDS = st.floats(1e-4, 10)


@given(steps=st.floats(0, 5000), decode=SECONDS, more=st.floats(0, 10), longest=st.floats(0, 10), waited=st.floats(0, 1000))
def test_what_follows_is_at_most_steps_full_of_prompts(steps: float, decode: float, more: float, longest: float, waited: float) -> None:
    mean_s = decode * (1 + more)
    found = followed_s(steps, decode, mean_s, mean_s + longest, waited)
    assert 0 <= found <= steps * longest * (1 + 1e-9) + steps * mean_s * 1e-15 + 1e-12
    assert found <= waited * more * (1 + 1e-6) + 1e-12
    assert found <= followed_s(steps, decode, mean_s, mean_s + longest, waited + 1) + 1e-12


def test_prompts_that_come_between_steps_are_limited_by_nothing() -> None:
    assert followed_s(10, 1, 1.5, math.inf, 4) == pytest.approx(2)
    assert followed_s(10, 1, 1.5, 1e9, 4) == pytest.approx(2)
    assert followed_s(0, 1, 1.5, math.inf, 4) == 0


def test_the_deviation_is_that_of_a_busy_period() -> None:
    rate, prompt_s, waited, decode = 2.0, 0.25, 3.0, 7.0  # half of the time is prompts
    busy = rate * prompt_s
    initial = decode + busy * waited
    variance = rate * prompt_s**2 * initial / (1 - busy) ** 3 + rate * waited * prompt_s**2 / (1 - busy) ** 2
    ratio = busy / (1 - busy)
    assert prompts_deviation_s(decode * (1 + ratio), ratio, 1, rate, waited) == pytest.approx(math.sqrt(variance))


@pytest.mark.parametrize(("shape", "p95", "p99"), [(1, 2.9957, 4.6052), (4, 7.7537, 10.0451), (100, 117.0, 124.7)])
def test_percentiles_of_the_gamma_distribution(shape: float, p95: float, p99: float) -> None:
    found = [gamma_percentile(shape, math.sqrt(shape), deviates) for deviates in (1.644854, 2.326348)]
    assert found == pytest.approx([p95, p99], rel=0.02)
