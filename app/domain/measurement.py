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
SUM_SLACK_RATIO = 3.0
"""Two ways to one figure may differ by this: means over requests and over tokens, requests that began or ended outside the window."""
FILLING_SLACK_RATIO = 10.0
"""Requests in the batch may be so many times those that finish by Little's law while long ones pile up."""
MILLI = 1000.0

_PARTS = (
    ("ttft", "e2e"), ("queue_time", "ttft"), ("prefill_time", "ttft"), ("ttft", "client_ttft"), ("e2e", "client_e2e"),
    ("client_ttft", "client_e2e"),
)  # fmt: skip
"""Part and whole of one request."""


def contradictions(metrics: Metrics, *, within: str, max_num_seqs: float | None) -> Sequence[Note]:
    """Statements of `metrics` that cannot all be true; empty when the measurement may be right.

    Percentiles of one quantity must not fall. A part of a request (queue, prefill, TTFT) cannot take longer than the whole (TTFT, E2E,
    the client's view), up to INTERPOLATION_SLACK_RATIO. A batch cannot hold more sequences than its cap [count]. E2E = TTFT + TPOT (n - 1)
    for n output tokens, tokens/s = requests/s times n, and requests in flight = requests/s times E2E (Little's law,
    https://doi.org/10.1287/opre.9.3.383) have to agree within SUM_SLACK_RATIO; a factor near a thousand is named as milliseconds
    taken for seconds. `within` names the object for the reader.
    """
    checks = (_falling_percentiles, _parts_above_wholes, _sum_of_parts, _token_rate, _little, _step_of_batch)
    found = [note for check in checks for note in check(metrics, within)]
    return (*found, *_above_cap(metrics, within, max_num_seqs))


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
    for part, whole in _PARTS:
        for statistic in STATISTICS:
            inner, outer = metrics.latency(part, statistic), metrics.latency(whole, statistic)
            if inner is not None and outer is not None and inner > outer * INTERPOLATION_SLACK_RATIO:
                message = (
                    f"{within}: {part}_{statistic}_s {plain(inner)} is above {whole}_{statistic}_s {plain(outer)}, of which it is a part; "
                    "were both measured on the same requests and in seconds?"
                )
                yield Note(code="part_above_whole", message=message)


def _sum_of_parts(metrics: Metrics, within: str) -> Iterator[Note]:
    ttft, tpot, e2e, output = metrics.ttft_mean_s, metrics.tpot_mean_s, metrics.e2e_mean_s, metrics.output_mean_tokens
    if ttft is None or tpot is None or e2e is None or output is None:
        return
    expected = ttft + tpot * max(output - 1, 0)
    if _differ(expected, e2e, SUM_SLACK_RATIO):
        message = (
            f"{within}: ttft_mean_s {plain(ttft)} and tpot_mean_s {plain(tpot)} over {plain(output)} output tokens make "
            f"{plain(expected)} s, but e2e_mean_s is {plain(e2e)}{_unit_hint(expected, e2e)}"
        )
        yield Note(code="latencies_disagree", message=message)


def _token_rate(metrics: Metrics, within: str) -> Iterator[Note]:
    for side in LENGTHS:
        rate, length = metrics.request_rps, metrics.length(side, "mean")
        tokens = metrics.get(f"{side}_tokens_per_s")
        # Prompt tokens that a cache holds are processed by nobody: fewer than arrive prove nothing.
        if not rate or not length or not tokens:
            continue
        # Prompt tokens that a cache holds are processed by nobody: fewer than arrive prove nothing.
        too_few = side == "output" and rate * length > SUM_SLACK_RATIO * tokens
        if too_few or tokens > SUM_SLACK_RATIO * rate * length:
            message = (
                f"{within}: request_rps {plain(rate)} x {side}_mean_tokens {plain(length)} are "
                f"{plain(rate * length)} tokens/s, but {side}_tokens_per_s is {plain(tokens)}; are all of one engine and one window?"
            )
            yield Note(code="throughput_disagrees", message=message)


def _little(metrics: Metrics, within: str) -> Iterator[Note]:
    rate, e2e, running = metrics.request_rps, metrics.e2e_mean_s, metrics.num_running_requests
    if not rate or not e2e or running is None:
        return
    in_flight, seen = rate * e2e, running + (metrics.num_waiting_requests or 0)
    # One request is in flight at most times where fewer are on average; gauges are read at moments.
    if in_flight > SUM_SLACK_RATIO * max(seen, 1) or running > FILLING_SLACK_RATIO * max(in_flight, 1):
        message = (
            f"{within}: request_rps {plain(rate)} x e2e_mean_s {plain(e2e)} keep {plain(in_flight)} requests in flight by "
            f"Little's law, but {plain(seen)} run or wait{_unit_hint(in_flight, seen)}"
        )
        yield Note(code="little_law_broken", message=message)


def _step_of_batch(metrics: Metrics, within: str) -> Iterator[Note]:
    """A TPOT that is a thousand times the time in which each running request gets one token."""
    tpot = metrics.tpot_p50_s if metrics.tpot_mean_s is None else metrics.tpot_mean_s
    running, rate = metrics.num_running_requests, metrics.output_tokens_per_s
    if tpot and running and rate and _is_milli(tpot, running / rate):
        message = (
            f"{within}: {plain(running)} running requests that get {plain(rate)} tokens/s together make {plain(running / rate)} s a token "
            f"each, but TPOT is {plain(tpot)} s: milliseconds taken for seconds?"
        )
        yield Note(code="unit_confused", message=message)


def _differ(one: float, other: float, slack: float) -> bool:
    return max(one, other) > slack * min(one, other)


def _is_milli(one: float, other: float) -> bool:
    return other * MILLI / SUM_SLACK_RATIO < one < other * MILLI * SUM_SLACK_RATIO


def _unit_hint(one: float, other: float) -> str:
    if one > 0 and other > 0 and (_is_milli(one, other) or _is_milli(other, one)):
        return ": a factor of about a thousand; are some of them milliseconds?"
    return "; are all of the same requests and in seconds?"


def _above_cap(metrics: Metrics, within: str, max_num_seqs: float | None) -> Iterator[Note]:
    running = metrics.num_running_requests
    if running is not None and max_num_seqs is not None and running > max_num_seqs:
        message = (
            f"{within}: {plain(running)} running requests are more than the cap of {plain(max_num_seqs)} sequences; "
            "give the figures of one engine, not sums over replicas"
        )
        yield Note(code="running_above_cap", message=message)
