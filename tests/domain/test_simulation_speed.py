"""How long simulations take, beside plain arithmetic on the same machine."""

from dataclasses import replace

import pytest

from app.domain.simulation_requests import Arrivals
from tests.benchmarks.simulation import Figure, cases, measure

GOAL_LOOPS = 20
"""5 s on a core that adds three million numbers in a quarter of a second."""


@pytest.mark.slow
def test_a_request_takes_no_longer_among_many_replicas() -> None:
    hour = cases()[0].scenario
    pool, figures = hour.pools[0], list[Figure]()
    for count in (10, 1000):
        many = replace(pool, num_replicas=count, balancing="least_loaded")
        figures.append(measure(replace(hour, pools=(many,), arrivals=Arrivals(10.0 * count), duration_s=2000 / count)))
    few, crowd = (figure.loop_ratio / figure.num_requests for figure in figures)
    assert crowd < 3 * few


@pytest.mark.slow
def test_an_hour_of_traffic_takes_seconds_and_grows_with_its_requests() -> None:
    hour = cases()[0].scenario
    whole, quarter = measure(hour), measure(replace(hour, duration_s=900))
    assert whole.num_requests > 35_000
    assert whole.loop_ratio < GOAL_LOOPS
    assert whole.loop_ratio / whole.num_requests < 1.6 * quarter.loop_ratio / quarter.num_requests
