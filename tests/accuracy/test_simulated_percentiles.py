"""Simulated percentiles against load tests that print them: how far off, and never further again."""

import json
import statistics
from pathlib import Path
from typing import NamedTuple

import pytest

from app.accuracy.load_records import LoadRecord, read_loads
from app.accuracy.performance import recorded_performance
from app.accuracy.serving_recipes import read_recipes
from app.domain.batching import NATURAL_WIDTH_RATIO
from app.domain.simulation import Run, simulate_seed
from app.domain.simulation_lengths import Quantiles, quantiles_of
from app.domain.simulation_pool import PoolModel
from app.domain.simulation_replica import replica_of
from app.domain.simulation_requests import Arrivals, RequestKind
from app.domain.simulation_scenario import Scenario
from app.domain.workload import TokenLengths
from tests.domain.shapes import CATALOG

pytestmark = pytest.mark.slow

PERCENTILES, CASES, RECIPES = (
    Path(__file__).with_name(name) for name in ("load_percentiles.jsonl", "throughput_cases.jsonl", "serving_recipes.yaml")
)
NATURAL_P95 = 2.5
"""P95 / mean of the lengths of recorded conversations, whose spread the load tests do not print: assumed."""
UNIFORM_P95 = 0.45
"""P95 of lengths drawn evenly: mean x (1 + 0.45 x width)."""
MOST_REQUESTS = 3000
WAVES = 10


class Bound(NamedTuple):
    """Simulated / recorded as measured on 2026-11-30: counts, the range that the median is in, the least share within a factor of two."""

    num_rows: int
    low_ratio: float
    high_ratio: float
    within_double_ratio: float


BOUNDS = {
    ("closed, lengths of benchmarks", "tpot_p99"): Bound(32, 0.88, 0.96, 1.0),
    ("closed, lengths of benchmarks", "ttft_p99"): Bound(32, 0.92, 1.02, 0.68),
    ("closed, lengths of conversations", "tpot_p99"): Bound(28, 0.9, 0.98, 1.0),
    ("closed, lengths of conversations", "ttft_p99"): Bound(28, 1.33, 1.43, 0.67),
    ("open", "tpot_p99"): Bound(30, 0.65, 0.74, 0.5),
    ("open", "ttft_p95"): Bound(22, 0.93, 1.03, 0.81),
    ("open", "ttft_p99"): Bound(56, 0.34, 0.42, 0.28),
}
"""What is reached with the constants of the catalog; they follow each other. How many of the open rows were sent faster than they could be
served, where a few percent of the rate decide the tail, was not counted.

The 0.68 was 0.71 while SGLang was simulated as if it took whoever fits and preempted the youngest. With its own admission one row
(dstack-r1-on-0048: 128 requests of equal lengths where the estimated pool holds 102) went from 1.1 to 2.3 times the recorded P99 TTFT, and
its P99 TPOT from 1.13 to 0.97 times; its median TTFT is half of the recorded one in both, so that the 1.1 was chance."""


def is_natural(record: LoadRecord) -> bool:
    return record.length_width_ratio >= NATURAL_WIDTH_RATIO - 1e-9


def lengths(record: LoadRecord, tokens: float) -> Quantiles:
    ratio = NATURAL_P95 if is_natural(record) else 1 + UNIFORM_P95 * record.length_width_ratio
    return quantiles_of(TokenLengths(mean=tokens, p95=tokens * ratio if ratio > 1 else None))


def simulated(record: LoadRecord) -> Run:
    kinds = (RequestKind("all", 1, lengths(record, record.input_tokens), lengths(record, record.output_tokens)),)
    if record.load == "open":
        arrivals, count = Arrivals(record.request_rps or 1.0), MOST_REQUESTS // 2
    else:
        clients = record.concurrency or 1
        arrivals, count = Arrivals(concurrency=clients), min(MOST_REQUESTS, int((record.num_waves or WAVES) * clients))
    replica = replica_of(recorded_performance(CATALOG, record))
    return simulate_seed(Scenario((PoolModel(replica),), arrivals, kinds, num_requests=count, seeds=(1,)), 1)


def test_percentiles_are_as_close_as_they_were() -> None:
    recorded = {row["id"]: row for row in map(json.loads, PERCENTILES.read_text(encoding="utf-8").splitlines())}
    records, _ = read_loads(CASES, recipes=read_recipes(RECIPES))
    ratios = dict[tuple[str, str], list[float]]()
    for record in records:
        row = recorded.get(record.id)
        if row is None:
            continue
        run = simulated(record)
        group = "open" if record.load == "open" else f"closed, lengths of {'conversations' if is_natural(record) else 'benchmarks'}"
        for time, found in (("ttft", run.times.ttft), ("tpot", run.times.tpot)):
            assert found is not None
            for level in ("p95", "p99"):
                if f"{time}_{level}_s" in row:
                    ratios.setdefault((group, f"{time}_{level}"), []).append(getattr(found, level) / row[f"{time}_{level}_s"])
    for key, bound in BOUNDS.items():
        each = ratios[key]
        assert len(each) == bound.num_rows, key
        assert bound.low_ratio <= statistics.median(each) <= bound.high_ratio, key
        assert sum(0.5 <= ratio <= 2 for ratio in each) / len(each) >= bound.within_double_ratio, key
