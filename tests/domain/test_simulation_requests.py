"""Requests of a simulation: lengths and arrivals have the figures that were asked for."""

import itertools
import statistics

import pytest

from app.domain.length_spread import NORMAL
from app.domain.simulation_lengths import quantiles_of
from app.domain.simulation_requests import Arrivals, Flood, Request, RequestKind, SharedPrefix, Surge, Traced, requests_of
from app.domain.workload import TokenLengths

ONE = (RequestKind("all", 1, quantiles_of(TokenLengths(mean=1000)), quantiles_of(TokenLengths(mean=200))),)


@pytest.mark.parametrize(
    "lengths",
    [
        TokenLengths(mean=4000, p95=12000),
        TokenLengths(mean=4000, p50=2500, p95=12000),
        TokenLengths(mean=4000, p50=2500, p95=12000, p99=20000),
        TokenLengths(mean=4000, p50=3900, p95=5000, p99=9000),
        TokenLengths(mean=300, p95=500, p99=2000),
        TokenLengths(mean=500, p50=100, p95=2500, p99=4000),
        TokenLengths(mean=210, p50=100, p95=1500, p99=2000),
    ],
    ids=["P95", "median too", "P99 too", "long tail", "no median", "many long ones", "few long ones"],
)
def test_lengths_have_their_mean_and_percentiles(lengths: TokenLengths) -> None:
    found = quantiles_of(lengths)
    assert found.mean == pytest.approx(lengths.mean, rel=1e-6)
    for level, tokens in ((0.5, lengths.p50), (0.95, lengths.p95), (0.99, lengths.p99)):
        if tokens is not None:
            assert found.at(NORMAL.inv_cdf(level)) == pytest.approx(tokens)
    steps = 20_000
    grid = [found.at(NORMAL.inv_cdf((each + 0.5) / steps)) for each in range(steps)]
    assert statistics.fmean(grid) == pytest.approx(lengths.mean, rel=5e-3)
    assert grid == sorted(grid)


def test_a_mean_alone_is_a_constant_and_grows_with_its_tokens() -> None:
    found = quantiles_of(TokenLengths(mean=400), growth_ratio=1.5)
    assert [found.at(deviate) for deviate in (-3, 0, 3)] == pytest.approx([600] * 3)


def gaps(variation: float) -> list[float]:
    found = requests_of(Arrivals(5, variation), ONE, seed=3, num_requests=20_000)
    return [other.arrival_s - one.arrival_s for one, other in itertools.pairwise(found)]


@pytest.mark.parametrize("variation", [0.0, 0.5, 1.0, 3.0])
def test_gaps_have_their_mean_and_their_spread(variation: float) -> None:
    found = gaps(variation)
    mean = statistics.fmean(found)
    assert mean == pytest.approx(0.2, rel=0.06)
    assert statistics.pstdev(found) / mean == pytest.approx(variation, rel=0.06, abs=1e-9)


def test_the_seed_decides() -> None:
    def made(seed: int) -> list[float]:
        return [one.arrival_s for one in requests_of(Arrivals(5), ONE, seed=seed, num_requests=10)]

    assert made(1) == made(1) != made(2)


def test_shares_of_kinds_and_prefixes() -> None:
    kinds = tuple(RequestKind(name, share, ONE[0].inputs, ONE[0].outputs) for name, share in (("a", 0.8), ("b", 0.15), ("c", 0.05)))
    found = requests_of(Arrivals(5), kinds, seed=1, num_requests=20_000, prefix=SharedPrefix(100, share_ratio=0.6, num_prefixes=3))
    shares = [sum(one.kind == index for one in found) / len(found) for index in range(3)]
    assert shares == pytest.approx([0.8, 0.15, 0.05], rel=0.06)
    prefixes = [sum(one.prefix == index for one in found) / len(found) for index in (-1, 0, 1, 2)]
    assert prefixes == pytest.approx([0.4, 0.2, 0.2, 0.2], rel=0.06)


def count(found: list[Request], low: float, high: float) -> int:
    return sum(low <= one.arrival_s < high for one in found)


def test_surges_and_floods_come_in_their_time() -> None:
    surges, floods = (Surge(100, 200, 3), Surge(150, 200, 2)), (Flood(300, 310, 40, 9000, 5),)
    found = requests_of(Arrivals(10, 0), ONE, seed=1, duration_s=400, surges=surges, floods=floods)
    assert count(found, 0, 100) == pytest.approx(1000, abs=2)
    assert count(found, 100, 150) == pytest.approx(1500, abs=2)
    assert count(found, 150, 200) == pytest.approx(3000, abs=2)
    assert count(found, 300, 310) == pytest.approx(500, rel=0.1)
    assert [one.index for one in found] == list(range(len(found)))
    assert {one.input_tokens for one in found if one.kind == 1} == {9000}


def test_a_trace_is_replayed_in_order() -> None:
    trace = Traced(2.0, 30, 3), Traced(1.0, 20, 2), Traced(9.0, 1, 1)
    found = requests_of(Arrivals(trace=trace), (), seed=1, duration_s=5)
    assert [(one.arrival_s, one.input_tokens, one.output_tokens) for one in found] == [(1.0, 20, 2), (2.0, 30, 3)]


@pytest.mark.parametrize("spread", [TokenLengths(mean=200), TokenLengths(mean=200, p95=600)], ids=["equal", "spread"])
def test_a_run_may_start_with_requests_under_way(spread: TokenLengths) -> None:
    kinds = (RequestKind("all", 1, quantiles_of(TokenLengths(mean=1000)), quantiles_of(spread)),)
    runs = [requests_of(Arrivals(2, num_under_way=100), kinds, seed=seed, num_requests=10) for seed in range(20)]
    started = [[one for one in run if one.arrival_s == 0] for run in runs]
    assert statistics.fmean(len(each) for each in started) == pytest.approx(100, rel=0.05)
    left = statistics.fmean(one.output_tokens for each in started for one in each)
    second_moment = statistics.fmean(kinds[0].outputs.at(NORMAL.inv_cdf((each + 0.5) / 1000)) ** 2 for each in range(1000))
    assert left == pytest.approx(second_moment / 200 / 2, rel=0.1)  # mean residual life, the mean square / twice the mean
    after = [[one.arrival_s for one in run if one.arrival_s > 0] for run in runs]
    plain = [[one.arrival_s for one in requests_of(Arrivals(2), kinds, seed=seed, num_requests=10)] for seed in range(20)]
    assert after == plain
    assert [[one.index for one in run] for run in runs] == [list(range(len(run))) for run in runs]
