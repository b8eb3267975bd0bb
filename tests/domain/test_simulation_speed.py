"""How long simulations take, beside plain arithmetic on the same machine."""

from dataclasses import replace

import pytest

from tests.benchmarks.simulation import cases, measure

GOAL_LOOPS = 20
"""5 s on a core that adds three million numbers in a quarter of a second."""


@pytest.mark.slow
def test_an_hour_of_traffic_takes_seconds_and_grows_with_its_requests() -> None:
    hour = cases()[0].scenario
    whole, quarter = measure(hour), measure(replace(hour, duration_s=900))
    assert whole.num_requests > 35_000
    assert whole.loop_ratio < GOAL_LOOPS
    assert whole.loop_ratio / whole.num_requests < 1.6 * quarter.loop_ratio / quarter.num_requests
