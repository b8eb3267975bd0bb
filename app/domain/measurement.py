"""Is the measurement possible at all? What contradicts itself makes every conclusion from it worthless."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from app.domain.metrics import Metrics
from app.domain.metrics_latency import LATENCIES, PERCENTILES, STATISTICS
from app.domain.metrics_load import LENGTHS
from app.domain.provenance import Note
from app.domain.units import plain

INTERPOLATION_SLACK_RATIO = 1.25
"""Percentiles of two histograms may cross by this factor without contradiction.

A quantile is interpolated inside a bucket (https://prometheus.io/docs/practices/histograms/#errors-of-quantile-estimation), and engines
use other bucket bounds for queue time, TTFT and E2E.
"""


def contradictions(metrics: Metrics, *, within: str, max_num_seqs: float | None) -> Sequence[Note]:
    """Statements of `metrics` that cannot all be true; empty when the measurement may be right.

    Percentiles of one quantity must not fall. A part of a request (queue, prefill, TTFT) cannot take longer than the whole (TTFT, E2E), up
    to INTERPOLATION_SLACK_RATIO. A batch cannot hold more sequences than its cap [count]. `within` names the object for the reader.
    """
    return (*_falling_percentiles(metrics, within), *_parts_above_wholes(metrics, within), *_above_cap(metrics, within, max_num_seqs))


def _falling_percentiles(metrics: Metrics, within: str) -> Iterator[Note]:
    names = [[f"{family}_{level}_s" for level in PERCENTILES] for family in LATENCIES]
    names += [[f"{family}_{level}_tokens" for level in PERCENTILES] for family in LENGTHS]
    for family in names:
        known = [(name, value) for name in family if (value := metrics.get(name)) is not None]
        for (low, small), (high, large) in pairwise(known):
            if small > large:
                message = f"{within}: {low} {plain(small)} is above {high} {plain(large)}; percentiles of one quantity cannot fall"
                yield Note(code="percentiles_out_of_order", message=message)


def _parts_above_wholes(metrics: Metrics, within: str) -> Iterator[Note]:
    for part, whole in (("ttft", "e2e"), ("queue_time", "ttft"), ("prefill_time", "ttft")):
        for statistic in STATISTICS:
            inner, outer = metrics.latency(part, statistic), metrics.latency(whole, statistic)
            if inner is not None and outer is not None and inner > outer * INTERPOLATION_SLACK_RATIO:
                message = (
                    f"{within}: {part}_{statistic}_s {plain(inner)} is above {whole}_{statistic}_s {plain(outer)}, of which it is a part; "
                    "were both measured on the same requests and in seconds?"
                )
                yield Note(code="part_above_whole", message=message)


def _above_cap(metrics: Metrics, within: str, max_num_seqs: float | None) -> Iterator[Note]:
    running = metrics.num_running_requests
    if running is not None and max_num_seqs is not None and running > max_num_seqs:
        message = (
            f"{within}: {plain(running)} running requests are more than the cap of {plain(max_num_seqs)} sequences; "
            "give the figures of one engine, not sums over replicas"
        )
        yield Note(code="running_above_cap", message=message)
