"""Modelled figures with the range that measurements are expected in."""

from typing import Literal

from app.domain.load_state import LoadState
from app.domain.performance import Performance
from app.domain.value import Value

Quantity = Literal["ttft", "tpot", "throughput"]


class Estimate(Value):
    """A modelled figure and the range that holds four of five measurements; the unit is that of the field."""

    value: float
    """What the model says."""
    low: float
    """Nine of ten measurements are above."""
    high: float
    """Nine of ten measurements are below."""


class ServiceFigures(Value):
    """What a replica does, and how long its requests take. Means; TPOT = (E2E - TTFT) / (output tokens - 1)."""

    ttft_s: Estimate | None
    """Time to the first token, waiting included; None where the queue grows without end [s]."""
    tpot_s: Estimate
    """Time per output token after the first [s]."""
    e2e_s: Estimate | None
    """Whole request; None where the queue grows without end [s]."""
    output_tokens_per_s: Estimate
    """Output tokens of the replica [tokens/s]."""
    input_tokens_per_s: Estimate
    """Prompt tokens of the replica, cached ones too [tokens/s]."""
    tokens_per_s_per_user: Estimate
    """Speed at which one answer appears: 1 / TPOT [tokens/s]."""
    request_rps: Estimate
    """Requests that the replica ends [requests/s]."""


def service_figures(performance: Performance, state: LoadState, *, arriving: bool, saturated: bool) -> ServiceFigures:
    """The figures of a state with their ranges: value x measured over predicted, 10th to 90th percentile of left-out measurements.

    A rate that arrives and is served has no range: what comes in goes out.
    """
    lengths = performance.lengths
    ttft, tpot = _banded(performance, state.waiting.ttft_s, "ttft"), _banded(performance, state.tpot_s, "tpot")
    after_first = lengths.output_tokens - 1
    rate = _banded(performance, state.request_rps, "throughput")
    if arriving and not saturated:
        rate = Estimate(value=state.request_rps, low=state.request_rps, high=state.request_rps)
    return ServiceFigures(
        ttft_s=None if saturated else ttft,
        tpot_s=tpot,
        e2e_s=None
        if saturated
        else Estimate(value=state.e2e_s, low=ttft.low + after_first * tpot.low, high=ttft.high + after_first * tpot.high),
        output_tokens_per_s=_times(rate, lengths.output_tokens),
        input_tokens_per_s=_times(rate, lengths.input_tokens),
        tokens_per_s_per_user=Estimate(value=1 / tpot.value, low=1 / tpot.high, high=1 / tpot.low),
        request_rps=rate,
    )


def _banded(performance: Performance, value: float, quantity: Quantity) -> Estimate:
    band = performance.model.band(performance.step_class, quantity)
    return Estimate(value=value, low=value * band.low_ratio, high=value * band.high_ratio)


def _times(rate: Estimate, tokens: float) -> Estimate:
    return Estimate(value=rate.value * tokens, low=rate.low * tokens, high=rate.high * tokens)
