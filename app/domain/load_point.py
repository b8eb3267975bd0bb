"""One measured point of load: what a benchmark saw at one concurrency or one request rate, and whether its figures agree."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field

from app.domain.provenance import Note
from app.domain.units import plain, seconds
from app.domain.value import Value

BenchmarkTool = Literal["vllm", "sglang", "guidellm", "aiperf", "genai-perf", "llm-d"]
LATENCY_STATISTICS = ("mean", "p50", "p90", "p95", "p99")

AGREEMENT_RATIO = 1.25
"""Two figures that measure one thing in two ways may differ by this factor: windows and averages (over requests, over tokens) are not
the same. A unit taken for another differs by a thousand, a TPOT that contains the TTFT by TTFT over E2E."""
SLACK_RATIO = 1.02
"""Rounding and clock noise of figures that bound each other."""

MAX_SECONDS, MAX_COUNT = 1e7, 1e12
Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS)]
Count = Annotated[float, Field(ge=0, le=MAX_COUNT)]


class Latency(Value):
    """Statistics of one latency over the requests that succeeded [s]; None where the tool printed none."""

    mean_s: Seconds | None = None
    """Mean over the requests [s]."""
    p50_s: Seconds | None = None
    """Median [s]."""
    p90_s: Seconds | None = None
    """90th percentile [s]."""
    p95_s: Seconds | None = None
    """95th percentile [s]."""
    p99_s: Seconds | None = None
    """99th percentile [s]."""

    def get(self, statistic: str) -> float | None:
        """The statistic of that name of LATENCY_STATISTICS [s]."""
        value: float | None = getattr(self, f"{statistic}_s")
        return value


class LoadPoint(Value):
    """What one benchmark run measured at one load; None is what its tool did not write."""

    tool: BenchmarkTool
    """Whose results file it is."""
    tool_version: str | None = None
    """Version of the tool, where the file says."""
    model: str | None = None
    """Name of the model as the tool sent it."""
    concurrency: Annotated[float, Field(gt=0, le=MAX_COUNT)] | None = None
    """Most requests in flight that the tool allowed; None when only the rate limits them."""
    requests_offered_per_s: Annotated[float, Field(gt=0, le=MAX_COUNT)] | None = None
    """Request rate that the tool aimed at; None for a closed loop, where a request starts when another ends."""
    num_completed: Annotated[float, Field(gt=0, le=MAX_COUNT)] | None = None
    """Requests that succeeded."""
    num_failed: Count | None = None
    """Requests that failed."""
    duration_s: Seconds | None = None
    """Length of the measured window [s]."""
    mean_input_tokens: Count | None = None
    """Mean prompt length [tokens]."""
    mean_output_tokens: Count | None = None
    """Mean answer length [tokens]."""
    requests_per_s: Count | None = None
    """Requests that succeeded per second."""
    output_tokens_per_s: Count | None = None
    """Generated tokens per second, over all requests."""
    ttft: Latency = Latency()
    """Time to first token."""
    tpot: Latency = Latency()
    """Time per output token after the first, (E2E - TTFT) / (output tokens - 1), one value a request."""
    itl: Latency = Latency()
    """Time between one streamed chunk and the next, one value a chunk."""
    e2e: Latency = Latency()
    """Time from sending the request to its last token."""

    @property
    def in_flight(self) -> float | None:
        """Mean requests in flight by Little's law, L = X W, from completed requests/s and mean E2E; None when either is unknown.

        Source: https://doi.org/10.1287/opre.9.3.383
        """
        if self.requests_per_s is None or self.e2e.mean_s is None:
            return None
        return self.requests_per_s * self.e2e.mean_s


def disagreements(point: LoadPoint, *, within: str) -> Sequence[Note]:
    """Figures of one point that cannot all be true, and requests that failed; empty when the point may be right.

    Percentiles must not fall; TTFT is a part of E2E; E2E = TTFT + TPOT (n - 1) for n output tokens; tokens/s = requests/s times n;
    requests in flight by Little's law do not exceed the concurrency. `within` names the point for the reader.
    """
    checks = (_falling, _ttft_above_e2e, _sum_of_parts, _token_rate, _above_concurrency, _failures)
    return [Note(code=code, message=f"{within}: {message}") for check in checks for code, message in check(point)]


Finding = tuple[str, str]


def _falling(point: LoadPoint) -> Iterator[Finding]:
    for name in ("ttft", "tpot", "itl", "e2e"):
        latency: Latency = getattr(point, name)
        known = [(each, value) for each in LATENCY_STATISTICS[1:] if (value := latency.get(each)) is not None]
        for (low, small), (high, large) in pairwise(known):
            if small > large:
                message = f"{low} of {name} {seconds(small)} is above its {high} {seconds(large)}; percentiles cannot fall"
                yield "percentiles_out_of_order", message


def _ttft_above_e2e(point: LoadPoint) -> Iterator[Finding]:
    for each in LATENCY_STATISTICS:
        part, whole = point.ttft.get(each), point.e2e.get(each)
        if part is not None and whole is not None and part > whole * SLACK_RATIO:
            yield "part_above_whole", f"{each} of ttft {seconds(part)} is above that of e2e {seconds(whole)}, of which it is a part"


def _sum_of_parts(point: LoadPoint) -> Iterator[Finding]:
    ttft, tpot, e2e, num_output = point.ttft.mean_s, point.tpot.mean_s, point.e2e.mean_s, point.mean_output_tokens
    if ttft is None or tpot is None or e2e is None or num_output is None:
        return
    expected = ttft + tpot * max(num_output - 1, 0)
    if _differ(expected, e2e):
        message = (
            f"mean ttft {seconds(ttft)} and tpot {seconds(tpot)} over {plain(num_output)} output tokens make {seconds(expected)}, "
            f"yet mean e2e is {seconds(e2e)}; is each in the unit it is labelled with?"
        )
        yield "latencies_disagree", message


def _token_rate(point: LoadPoint) -> Iterator[Finding]:
    rate, num_output, tokens = point.requests_per_s, point.mean_output_tokens, point.output_tokens_per_s
    if rate is not None and num_output is not None and tokens is not None and _differ(rate * num_output, tokens):
        message = f"{plain(rate)} requests/s of {plain(num_output)} output tokens are not the {plain(tokens)} output tokens/s stated"
        yield "throughput_disagrees", message


def _above_concurrency(point: LoadPoint) -> Iterator[Finding]:
    in_flight = point.in_flight
    if in_flight is not None and point.concurrency is not None and in_flight > point.concurrency * AGREEMENT_RATIO:
        message = (
            f"{plain(point.requests_per_s or 0)} requests/s of {seconds(point.e2e.mean_s or 0)} each keep {plain(in_flight)} in flight, "
            f"more than the concurrency of {plain(point.concurrency)}"
        )
        yield "in_flight_above_concurrency", message


def _failures(point: LoadPoint) -> Iterator[Finding]:
    if point.num_failed:
        done = f" beside {plain(point.num_completed)} that succeeded" if point.num_completed else ""
        yield "requests_failed", f"{plain(point.num_failed)} requests failed{done}; the load was not what it was meant to be"


def _differ(one: float, other: float) -> bool:
    return max(one, other) > AGREEMENT_RATIO * min(one, other)
