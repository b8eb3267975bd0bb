"""How much worse than before, or than the planner expects."""

from collections.abc import Iterator, Mapping, Sequence

from app.domain.metrics_latency import STATISTICS
from app.domain.observation import Absent, Observation, Reading, Sight, Symptom, quotient

THROUGHPUT = ("output_tokens_per_s", "total_tokens_per_s", "request_rps")


def _times(*families: str) -> Sequence[str]:
    return tuple(f"{family}_{statistic}_s" for family in families for statistic in STATISTICS)


GENERATION = (*_times("tpot", "itl"), "step_time_mean_s")
FIRST_TOKEN = _times("ttft", "client_ttft")
WHOLE = _times("e2e", "client_e2e")


def _slower(name: str, times: Sequence[str], rates: Sequence[str]) -> Symptom:
    """Now / before of times and before / now of rates, one reading for each that is known on both sides.

    Before is the baseline; a figure that it lacks is taken from what the planner expects.
    """

    def sight(observation: Observation) -> Sight:
        found = tuple(_readings(name, observation, times, rates))
        if found:
            return found
        metrics = (*times, *rates)
        if measured := [each for each in metrics if observation.metrics.get(each) is not None]:
            return Absent((f"baseline.{measured[0]}",))
        return Absent(metrics[:1])

    return sight


def _readings(name: str, observation: Observation, times: Sequence[str], rates: Sequence[str]) -> Iterator[Reading]:
    for metric, upside_down in (*((time, False) for time in times), *((rate, True) for rate in rates)):
        now, before = observation.metrics.get(metric), observation.earlier(metric)
        if now is None or before is None:
            continue
        over, under = ((metric, now), (f"earlier {metric}", before))
        ratio = quotient(f"{name} by {metric}", *((under, over) if upside_down else (over, under)))
        if isinstance(ratio, Reading):
            yield Reading(name, ratio.value, working=ratio.working)


SLOWDOWN_SYMPTOMS: Mapping[str, Symptom] = {
    "generation_slowdown_ratio": _slower("generation_slowdown_ratio", GENERATION, ("output_tokens_per_s",)),
    "tpot_slowdown_ratio": _slower("tpot_slowdown_ratio", GENERATION, ()),
    "ttft_slowdown_ratio": _slower("ttft_slowdown_ratio", FIRST_TOKEN, ()),
    "throughput_slowdown_ratio": _slower("throughput_slowdown_ratio", (), THROUGHPUT),
    "slowdown_ratio": _slower("slowdown_ratio", (*FIRST_TOKEN, *GENERATION, *WHOLE), THROUGHPUT),
}
"""Symptoms of this module by name; of several readings the largest decides a comparison with >, the same for <=."""
