"""Latencies as families of statistics, their parts and their tails."""

from collections.abc import Mapping, Sequence

from app.domain.metrics_latency import STATISTICS
from app.domain.observation import Absent, Observation, Reading, Sight, Symptom, quotient, single


def _latency(family: str) -> Symptom:
    """All given statistics of a latency."""

    def sight(observation: Observation) -> Sight:
        found = tuple(
            Reading(f"{family}_{statistic}_s", value, statistic)
            for statistic in STATISTICS
            if (value := observation.metrics.latency(family, statistic)) is not None
        )
        return found or Absent((f"{family}_p95_s",))

    return sight


def _share_of_ttft(part: str, statistics: Sequence[str] = STATISTICS) -> Symptom:
    """Share of a part of the time to first token, at each high percentile that was measured of both.

    Of the medians where TTFT is known by its median only, of the means where nothing else is. The percentile of a part is not the part of
    the percentile: the share is an indication, exact only where one request is typical of all.
    """

    def sight(observation: Observation) -> Sight:
        metrics = observation.metrics
        found: list[Reading] = []
        for statistic in statistics:
            inner, ttft = metrics.latency(part, statistic), metrics.latency("ttft", statistic)
            if inner is None or ttft is None or (statistic == "mean" and found):
                continue
            if statistic == "p50" and len(statistics) > 1 and metrics.high_percentile("ttft") is not None:
                continue  # the median request says nothing about what delays the slow ones
            name = f"{part}_share_of_ttft_{statistic}_ratio"
            reading = quotient(name, (f"{part}_{statistic}_s", inner), (f"ttft_{statistic}_s", ttft), statistic=statistic)
            if isinstance(reading, Reading):
                found.append(reading)
        if found:
            return tuple(found)
        order = [statistic for statistic in ("p95", "p99", "p90", "p50", "mean") if statistic in statistics]
        known = (statistic for latency in ("ttft", part) for statistic in order if metrics.latency(latency, statistic) is not None)
        wanted = next(known, order[0])
        return Absent(tuple(f"{each}_{wanted}_s" for each in ("ttft", part) if metrics.latency(each, wanted) is None))

    return sight


def _latency_tail(family: str) -> Symptom:
    def sight(observation: Observation) -> Sight:
        top, middle = f"{family}_p99_s", f"{family}_p50_s"
        metrics = observation.metrics
        return single(quotient(f"{family}_tail_ratio", (top, metrics.get(top)), (middle, metrics.get(middle))))

    return sight


def _length_tail(family: str) -> Symptom:
    """P99 / P50 of a length, of the metrics or else of the workload."""

    def sight(observation: Observation) -> Sight:
        top, middle = (observation.metrics.length(family, level) for level in ("p99", "p50"))
        names = f"{family}_p99_tokens", f"{family}_p50_tokens"
        if top is None and middle is None and observation.workload is not None:
            lengths = observation.workload.lengths(f"{family}_tokens")
            top, middle = lengths.p99, lengths.p50
            if top is not None and middle is not None:
                names = f"workload.{family}_tokens.p99", f"workload.{family}_tokens.p50"
        return single(quotient(f"{family}_tail_ratio", (names[0], top), (names[1], middle)))

    return sight


FAMILIES = (
    "ttft", "tpot", "itl", "e2e", "queue_time", "prefill_time", "client_ttft", "client_itl", "client_e2e", "kv_load_time",
    "preprocess_time", "grammar_time",
)  # fmt: skip

LATENCY_SYMPTOMS: Mapping[str, Symptom] = {
    **{family: _latency(family) for family in FAMILIES},
    **{f"{part}_share_of_ttft": _share_of_ttft(part) for part in ("queue_time", "prefill_time")},
    "queue_time_share_of_ttft_p50": _share_of_ttft("queue_time", ("p50",)),
    **{f"{family}_tail_ratio": _latency_tail(family) for family in ("ttft", "tpot", "itl", "e2e")},
    **{f"{family}_tail_ratio": _length_tail(family) for family in ("input", "output")},
}
"""Symptoms of this module by name."""
