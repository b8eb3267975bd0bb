"""The answer of `/performance`: times, rates, what binds, and how they change with load and settings, with the working."""

from functools import cache
from typing import Any, get_args
from uuid import UUID

from app.domain.batching import Batching, state_of
from app.domain.calibrated_model import CalibratedModel
from app.domain.load_state import LoadState
from app.domain.memory_fit import Limiting, Verdict
from app.domain.memory_working import memory_steps
from app.domain.performance import Performance
from app.domain.performance_estimate import Estimate, ServiceFigures, service_figures
from app.domain.performance_notes import performance_warnings
from app.domain.performance_parts import StepParts, WaitingParts, decode_parts, mean_parts, mixed_parts, prefill_parts
from app.domain.performance_variants import (
    CurvePoint,
    Saturation,
    Speculation,
    Variant,
    by_batching,
    by_prefix_hit,
    by_token_budget,
    curve_of,
    saturation_of,
    speculation_of,
)
from app.domain.performance_working import performance_steps
from app.domain.provenance import Answer, Basis, Note, Versions
from app.domain.serving import Serving
from app.domain.step import Part
from app.domain.units import plain, seconds


class PerformanceAnswer(Answer):
    """How fast one replica serves. Every time and rate is None where it does not serve at all."""

    model: str
    """Catalog slug of the model, or `inline`."""
    gpu: str
    """Catalog slug of the accelerator, or `inline`."""
    num_gpus: int
    """Accelerators of the replica: tp x pp x dp."""
    verdict: Verdict
    """Whether the deployment serves, as `/memory` says."""
    limiting: Limiting | None
    """What stands in the way."""
    basis: Basis
    """calibrated: measurements of this engine, class of accelerator, weights and kind of model were in the fit; assumed: carried over."""
    calibration: UUID | None
    """The calibration whose constants the steps have; None for those of the class."""
    batching: Batching
    """How requests are batched."""
    saturated: bool
    """Requests arrive faster than they end: the rates are what the replica can do, and the queue grows."""
    ttft_s: Estimate | None
    """Mean time to the first token, waiting included; also None where saturated [s]."""
    tpot_s: Estimate | None
    """Mean time per output token after the first [s]."""
    e2e_s: Estimate | None
    """Mean time of a request: TTFT + (output tokens - 1) x TPOT; also None where saturated [s]."""
    output_tokens_per_s: Estimate | None
    """Output tokens of the replica [tokens/s]."""
    input_tokens_per_s: Estimate | None
    """Prompt tokens of the replica, cached ones too [tokens/s]."""
    tokens_per_s_per_user: Estimate | None
    """Speed at which one answer appears: 1 / TPOT [tokens/s]."""
    request_rps: Estimate | None
    """Requests that the replica ends [requests/s]."""
    concurrency: float | None
    """Requests in the system, waiting ones too."""
    running_concurrency: float | None
    """Sequences that decode, on average."""
    waiting: WaitingParts | None
    """The time to the first token taken apart."""
    prefill: StepParts | None
    """The steps of one mean prompt with nothing beside it."""
    decode: StepParts | None
    """One decode step at this load without prompts."""
    mixed: StepParts | None
    """One step at this load that carries prompt tokens; None where decode steps never do."""
    prompt_step_ratio: float | None
    """Share of the steps that carry prompt tokens."""
    binds: Part | None
    """Largest part of the mean step."""
    mfu_ratio: float | None
    """Time that the arithmetic of the mean step takes at the peaks of the data sheet / mean step."""
    mbu_ratio: float | None
    """Time that its reading takes at the bandwidth of the data sheet / mean step."""
    compute_bound_concurrency: int | None
    """Fewest decoding sequences at which a step computes longer than it reads; None where that is never so."""
    saturation: Saturation | None
    """The most that the replica does."""
    curve: list[CurvePoint]
    """Concurrency 1, 2, 4 ... up to every place taken, under continuous batching."""
    knee_concurrency: float | None
    """Concurrency of the curve at its knee."""
    by_batching: list[Variant]
    """The same load under each way of batching."""
    by_token_budget: list[Variant]
    """The same load with other token budgets, and with prompts computed whole."""
    by_prefix_hit: list[Variant]
    """The same load with other shares of the prompt found in the prefix cache."""
    speculation: Speculation | None
    """What speculative decoding brings; None where the deployment has none."""


def answer_performance(
    performance: Performance,
    *,
    concurrency: float | None,
    request_rps: float | None,
    batching: Batching,
    assumptions: list[Note],
    versions: Versions,
) -> PerformanceAnswer:
    """Times and rates of one replica at a concurrency, or at a rate [requests/s], under one way of batching.

    See `serving` for the equations, `step` for the time of a step. A deployment that serves nothing is answered with its verdict alone.
    """

    @cache
    def own_state(how: Batching) -> LoadState | None:
        if how == "continuous" and concurrency is not None:
            return performance.closed(concurrency)
        return state_of(performance.serving, how, concurrency=concurrency, request_rps=request_rps)

    def solve(serving: Serving, how: Batching) -> LoadState | None:
        if serving is performance.serving:
            return own_state(how)
        return state_of(serving, how, concurrency=concurrency, request_rps=request_rps)

    found, llm, gpu = performance.found, performance.llm, performance.gpu
    shared: dict[str, Any] = {
        "assumptions": [*assumptions, *found.notes],
        "versions": versions,
        "model": llm.slug,
        "gpu": gpu.slug,
        "num_gpus": performance.deployment.num_gpus,
        "verdict": found.verdict,
        "limiting": found.limiting,
        "basis": "calibrated" if performance.is_fitted else "assumed",
        "calibration": performance.model.calibration if isinstance(performance.model, CalibratedModel) else None,
        "batching": batching,
    }
    if performance.places < 1:
        return PerformanceAnswer(
            summary=f"{_where(performance)} serves no request of this length ({found.verdict}, limited by {found.limiting}).",
            working=memory_steps(llm, gpu, performance.deployment, found),
            warnings=performance_warnings(performance, None),
            **shared,
            **_NOTHING,
        )
    served = solve(performance.serving, batching)
    saturated, state = served is None, served or performance.saturated
    figures = service_figures(performance, state, arriving=request_rps is not None, saturated=saturated)
    decode, mixed = decode_parts(performance, state), mixed_parts(performance, state) if state.prompt_step_ratio else None
    mean = mean_parts(performance, state)
    curve = curve_of(performance)
    return PerformanceAnswer(
        summary=_summary(performance, state, figures, request_rps),
        working=performance_steps(performance, state, None if saturated else request_rps, batching),
        warnings=performance_warnings(performance, state, saturated=saturated),
        **shared,
        saturated=saturated,
        **dict(figures),
        concurrency=None if saturated else state.concurrency,
        running_concurrency=state.running,
        waiting=None if saturated else WaitingParts(**state.waiting._asdict()),
        prefill=prefill_parts(performance),
        decode=decode,
        mixed=mixed,
        prompt_step_ratio=state.prompt_step_ratio,
        binds=mean.binds,
        mfu_ratio=mean.mfu_ratio,
        mbu_ratio=mean.mbu_ratio,
        compute_bound_concurrency=performance.compute_bound_sequences(),
        saturation=saturation_of(performance),
        curve=curve,
        knee_concurrency=next(point.concurrency for point in curve if point.is_knee),
        by_batching=by_batching(performance, solve),
        by_token_budget=by_token_budget(performance, solve),
        by_prefix_hit=by_prefix_hit(performance, solve),
        speculation=speculation_of(performance, state),
    )


_NOTHING: dict[str, Any] = {
    name: None
    for name, field in PerformanceAnswer.model_fields.items()
    if name not in ("limiting", "calibration") and type(None) in get_args(field.annotation)
} | {"saturated": False, "curve": [], "by_batching": [], "by_token_budget": [], "by_prefix_hit": []}


def _where(performance: Performance) -> str:
    return f"{performance.llm.slug} on {performance.deployment.num_gpus} x {performance.gpu.slug}"


def _summary(performance: Performance, state: LoadState, figures: ServiceFigures, request_rps: float | None) -> str:
    lengths = performance.lengths
    load = f"{plain(request_rps)} requests/s" if request_rps is not None else f"concurrency {plain(state.concurrency)}"
    rate = figures.output_tokens_per_s
    what = f"{_where(performance)}, {load} of {plain(lengths.input_tokens)} + {plain(lengths.output_tokens)} tokens"
    speed = f"TPOT {seconds(figures.tpot_s.value)} ({seconds(figures.tpot_s.low)} to {seconds(figures.tpot_s.high)})"
    if figures.ttft_s is None:
        most = f"{performance.saturated.request_rps:.3g} requests/s"
        return f"{what}: more than the replica ends ({most}, {rate.value:,.0f} output tokens/s, {speed}); the queue grows without end."
    first = f"TTFT {seconds(figures.ttft_s.value)} ({seconds(figures.ttft_s.low)} to {seconds(figures.ttft_s.high)})"
    return f"{what}: {first}, {speed}, {rate.value:,.0f} output tokens/s; the step is bound by {state.mean_step.binds}."
