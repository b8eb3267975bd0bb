"""Time that a request spends before the engine's queue or after its last step: client, network, gateway, preparation."""

from collections.abc import Iterator, Mapping, Sequence

from app.domain.metrics import Metrics
from app.domain.metrics_latency import PERCENTILES, STATISTICS
from app.domain.observation import NEVER, Absent, Observation, Reading, Sight, Symptom, quotient, single
from app.domain.provenance import Step
from app.domain.symptoms_limits import absent, computed, first_known
from app.domain.units import plain

PREPARATION = ("preprocess_time", "grammar_time")


def _both_ends(metrics: Metrics) -> str:
    """The latency that client and engine both measured: TTFT, and E2E only where no statistic of TTFT is known of both."""
    known = [
        family for family in ("ttft", "e2e") for each in STATISTICS
        if metrics.latency(f"client_{family}", each) is not None and metrics.latency(family, each) is not None
    ]  # fmt: skip
    return known[0] if known else "ttft"


def _excess(metrics: Metrics) -> Iterator[tuple[str, float, float]]:
    """Statistic, client latency minus engine latency [s] and client latency [s], for each statistic that both have."""
    family = _both_ends(metrics)
    for statistic in STATISTICS:
        outer, inner = metrics.latency(f"client_{family}", statistic), metrics.latency(family, statistic)
        if outer is not None and inner is not None:
            yield statistic, max(outer - inner, 0.0), outer


def _without_excess(metrics: Metrics, prefix: str = "") -> Absent:
    """The engine's TTFT and the client's of one statistic, the one of which a half is known."""
    for statistic in STATISTICS:
        pair = [name for family in ("client_ttft", "ttft") if metrics.get(name := f"{family}_{statistic}_s") is None]
        if len(pair) == 1:
            return Absent((f"{prefix}{pair[0]}",))
    return Absent((f"{prefix}client_ttft_p50_s", f"{prefix}ttft_p50_s"))


def _outside(observation: Observation) -> Sight:
    """Client TTFT minus engine TTFT [s], or E2E of both; never below zero, for the two clocks need not agree."""
    found = tuple(
        Reading("outside_engine_s", excess, statistic, working=_difference(statistic, observation.metrics, excess))
        for statistic, excess, _ in _excess(observation.metrics)
    )
    return found or _without_excess(observation.metrics)


def _difference(statistic: str, metrics: Metrics, excess: float) -> Step:
    family = _both_ends(metrics)
    outer, inner = f"client_{family}_{statistic}_s", f"{family}_{statistic}_s"
    return Step(
        name="outside_engine_s",
        formula=f"max({outer} - {inner}, 0)",
        substituted=f"max({plain(metrics.get(outer) or 0)} - {plain(metrics.get(inner) or 0)}, 0)",
        value=excess,
        unit="s",
        basis="exact",
        source="arithmetic on the metrics given",
    )


def _outside_share(observation: Observation) -> Sight:
    """(client TTFT - engine TTFT) / client TTFT, or the same of E2E."""
    family = _both_ends(observation.metrics)
    readings = (
        quotient("outside_engine_share_ratio", ("outside_engine_s", excess), (f"client_{family}_{statistic}_s", whole), statistic=statistic)
        for statistic, excess, whole in _excess(observation.metrics)
    )
    return tuple(each for each in readings if isinstance(each, Reading)) or _without_excess(observation.metrics)


def _outside_growth(observation: Observation) -> Sight:
    """Time outside the engine now / at the lowest load of the sweep, of the first statistic that both have."""
    if observation.lightest is None:
        return Absent(("lightest.client_ttft_p50_s", "lightest.ttft_p50_s"))
    now = {statistic: excess for statistic, excess, _ in _excess(observation.metrics)}
    light = {statistic: excess for statistic, excess, _ in _excess(observation.lightest)}
    if not now:
        return _without_excess(observation.metrics)
    both = [statistic for statistic in now if statistic in light]
    if not both:
        return _without_excess(observation.lightest, "lightest.")
    over, under = ("outside_engine_s", now[both[0]]), ("outside_engine_s of the lowest load", light[both[0]])
    return single(quotient("outside_engine_growth_ratio", over, under))


def _preparation_of_outside(observation: Observation) -> Sight:
    """Preparation that the front end itself reports / time outside the engine: what a gateway or a client need not explain."""
    metrics = observation.metrics
    known = list(_excess(metrics))
    if not known:
        return _without_excess(metrics)
    for statistic, excess, _ in known:
        parts = [value for family in PREPARATION if (value := metrics.latency(family, statistic)) is not None]
        if parts:
            over = (f"preprocess and grammar time, {statistic}", sum(parts))
            return single(quotient("preparation_share_of_outside_ratio", over, (f"outside_engine_{statistic}_s", excess)))
    return Absent((f"preprocess_time_{known[0][0]}_s",))


def _client_itl(observation: Observation) -> Sight:
    """Median time between chunks at the client / in the engine; where the engine's is unknown, / at the client before.

    The engine's median, else its mean, else TPOT: chunks of one token. The mean at the client is of no use, for clumps leave it alone.
    """
    metrics = observation.metrics
    inside = ("itl_p50_s", "tpot_p50_s", "itl_mean_s", "tpot_mean_s")
    name = next((each for each in inside if metrics.get(each) is not None), None)
    earlier = observation.baseline.client_itl_p50_s if observation.baseline is not None else None
    if name is None and earlier is not None:
        under: tuple[str, float | None] = ("baseline.client_itl_p50_s", earlier)
    else:
        under = (name or "itl_p50_s", None if name is None else metrics.get(name))
    return single(quotient("client_itl_to_engine_ratio", ("client_itl_p50_s", metrics.client_itl_p50_s), under))


def _client_in_flight(observation: Observation) -> Sight:
    """Requests in flight as the client counts them / its rate x its latency (Little's law): near 1, none waits unseen behind those.

    The latency is E2E at the client, else TTFT, which leaves more in flight than explained.
    """
    metrics = observation.metrics
    latency = first_known(metrics, "client_e2e_mean_s", "client_e2e_p50_s", "client_ttft_mean_s", "client_ttft_p50_s")
    parts = (("num_concurrent_requests", metrics.num_concurrent_requests), ("request_rps", metrics.request_rps), latency)
    (_, number), (_, rate), (_, seconds) = parts
    if number is None or rate is None or seconds is None:
        return absent(*parts)
    value = number / (rate * seconds) if rate * seconds else NEVER
    return (computed("client_in_flight_ratio", "{} / ({} x {})", parts, value, source="arithmetic on the metrics given (Little's law)"),)


def _client_itl_tail(observation: Observation) -> Sight:
    metrics = observation.metrics
    top, middle = ("client_itl_p99_s", metrics.client_itl_p99_s), ("client_itl_p50_s", metrics.client_itl_p50_s)
    return single(quotient("client_itl_tail_ratio", top, middle))


def _share_of_request(part: str) -> Symptom:
    """Share of a part in TTFT at the client, in the engine's TTFT, and in the whole request, at each statistic that was measured of both.

    TTFT first: end-to-end time is used only where no TTFT is known.
    """

    def sight(observation: Observation) -> Sight:
        for whole in ("client_ttft", "ttft", "client_e2e", "e2e"):
            if found := tuple(_shares(part, whole, observation.metrics)):
                return found
        metrics = observation.metrics
        known = [statistic for statistic in STATISTICS if metrics.latency(part, statistic) is not None]
        return Absent((f"client_ttft_{known[0]}_s",) if known else (f"{part}_p50_s",))

    return sight


def _shares(part: str, whole: str, metrics: Metrics) -> Iterator[Reading]:
    for statistic in STATISTICS:
        over, under = f"{part}_{statistic}_s", f"{whole}_{statistic}_s"
        reading = quotient(f"{part}_share_ratio", (over, metrics.get(over)), (under, metrics.get(under)), statistic=statistic)
        if isinstance(reading, Reading):
            yield reading


def _preparation_use(observation: Observation) -> Sight:
    """Preparation [s] x requests per second: 1 when one worker that prepares one request at a time has no pause left."""
    metrics = observation.metrics
    names = ("preprocess_time_mean_s", "preprocess_time_p50_s")
    name = next((each for each in names if metrics.get(each) is not None), names[0])
    seconds, rate = metrics.get(name), metrics.request_rps
    if seconds is None or rate is None:
        return Absent(tuple(each for each, value in ((name, seconds), ("request_rps", rate)) if value is None))
    step = Step(
        name="preparation_use_ratio",
        formula=f"{name} x request_rps",
        substituted=f"{plain(seconds)} x {plain(rate)}",
        value=seconds * rate,
        unit="ratio",
        basis="exact",
        source="arithmetic on the metrics given (utilisation law)",
    )
    return (Reading("preparation_use_ratio", seconds * rate, working=step),)


def _growth(name: str, families: Sequence[str], statistics: Sequence[str], *, or_baseline: bool = False) -> Symptom:
    """Latency now / at the lowest load of the sweep, one reading for each known of both; without a sweep the baseline, if `or_baseline`."""

    def sight(observation: Observation) -> Sight:
        latencies = [f"{family}_{statistic}_s" for family in families for statistic in statistics]
        measured = [each for each in latencies if observation.metrics.get(each) is not None]
        light, where = observation.lightest, "of the lowest load"
        if light is None and or_baseline:
            light, where = observation.baseline, "of the baseline"
        readings = (
            quotient(name, (each, observation.metrics.get(each)), (f"{each} {where}", light.get(each)))
            for each in measured
            if light is not None
        )
        found = tuple(each for each in readings if isinstance(each, Reading))
        return found or Absent((f"lightest.{measured[0]}",) if measured else (latencies[0],))

    return sight


OUTSIDE_SYMPTOMS: Mapping[str, Symptom] = {
    "outside_engine_s": _outside,
    "outside_engine_share_ratio": _outside_share,
    "outside_engine_growth_ratio": _outside_growth,
    "preparation_share_of_outside_ratio": _preparation_of_outside,
    "client_itl_to_engine_ratio": _client_itl,
    "client_itl_tail_ratio": _client_itl_tail,
    "client_in_flight_ratio": _client_in_flight,
    "preprocess_time_share_ratio": _share_of_request("preprocess_time"),
    "grammar_time_share_ratio": _share_of_request("grammar_time"),
    "kv_load_time_share_ratio": _share_of_request("kv_load_time"),
    "preparation_use_ratio": _preparation_use,
    "mean_ttft_growth_ratio": _growth("mean_ttft_growth_ratio", ("ttft", "client_ttft"), ("mean",)),
    "ttft_percentile_growth_ratio": _growth("ttft_percentile_growth_ratio", ("ttft", "client_ttft"), PERCENTILES),
    "latency_growth_ratio": _growth("latency_growth_ratio", ("client_e2e", "e2e", "client_ttft", "ttft"), PERCENTILES, or_baseline=True),
}
"""Symptoms of this module by name."""
