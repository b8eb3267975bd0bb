"""How the time of a replica divides between the prompts that it computes and the tokens that it generates."""

from collections.abc import Iterator

from app.domain.load_state import LoadState
from app.domain.performance import Performance
from app.domain.provenance import Basis, Step, step
from app.domain.units import plain
from app.domain.value import Value

SPLIT_SOURCE = "definition: what a step takes longer with prompt tokens than without is the prompts' time, the rest that of decoding"


class CostSplit(Value):
    """Shares of the busy time of a replica at its rate, by the step-time model."""

    input_time_ratio: float
    """Share of the busy time that prompts use."""
    output_time_ratio: float
    """Share that decoding uses: 1 - input_time_ratio."""
    request_rps: float
    """Requests per second of the replica at which the steps are timed [requests/s]."""
    saturated: bool
    """The rate is above what the modelled replica ends: the steps are those with every place taken."""
    basis: Basis
    """calibrated: measurements of such a replica were in the fit; assumed: carried over from others."""


def cost_split(performance: Performance, request_rps: float, known: LoadState | None = None) -> tuple[CostSplit, LoadState, list[Step]]:
    """Shares of prompts and of decoding at a rate of one replica [requests/s], the state that they follow from, and the working from there.

    A request takes its prompt m t(B, I / m) - m b t(B, 0) and its decoding n t(B, 0) / max(1, B): m steps of prompt, n of decoding, which
    B running sequences share, b = min(1, B): an idle engine runs no steps. Reading the weights in a step of both kinds counts for
    decoding, which reads them in any case; where the engine computes prompts in steps of their own they take m t(0, I / m). Idle time is
    shared like busy time. The replica must hold a request (`performance.places` >= 1); `known` is its state at that rate where it is at
    hand. Source: `serving`, `step`.
    """
    # Rates far beyond what it ends are not solved for: their steps would hold more sequences than numbers do.
    serving = performance.serving
    open_state = known or (serving.open(request_rps) if request_rps < performance.saturated.request_rps else None)
    state = open_state or performance.saturated
    running, decode_s, prompt_s = state.running / performance.work.pp, state.decode.total_s, state.waiting.prefill_s
    beside_s = 0.0 if serving.prefill_first else serving.prefill_steps * min(1.0, running) * decode_s
    input_s, output_s = prompt_s - beside_s, serving.decode_steps * decode_s / max(1.0, running)
    ratio = input_s / (input_s + output_s)
    split = CostSplit(
        input_time_ratio=ratio,
        output_time_ratio=1 - ratio,
        request_rps=request_rps if open_state else state.request_rps,
        saturated=open_state is None,
        basis="calibrated" if performance.is_fitted else "assumed",
    )

    def lines() -> Iterator[Step]:
        def line(name: str, formula: str, substituted: str, value: float, unit: str) -> Step:
            return step(name, formula, substituted, value, unit, SPLIT_SOURCE, basis=split.basis)

        decode, sequences = plain(decode_s), plain(running)
        yield line("own_prompt_s", "steps of the prompt beside the running sequences", plain(prompt_s), prompt_s, "s")
        formula, terms = "own_prompt_s", plain(prompt_s)
        if beside_s:
            formula += " - prompt steps x min(1, decoding sequences) x decode_step_s"
            terms += f" - {serving.prefill_steps} x min(1, {sequences}) x {decode}"
        yield line("input_s_per_request", formula, terms, input_s, "s")
        yield line(
            "output_s_per_request",
            "decode steps x decode_step_s / max(1, decoding sequences)",
            f"{plain(serving.decode_steps)} x {decode} / max(1, {sequences})",
            output_s,
            "s",
        )
        both = f"({plain(input_s)} + {plain(output_s)})"
        yield line(
            "input_time_ratio",
            "input_s_per_request / (input_s_per_request + output_s_per_request)",
            f"{plain(input_s)} / {both}",
            ratio,
            "ratio",
        )
        yield line("output_time_ratio", "1 - input_time_ratio", f"1 - {plain(ratio)}", 1 - ratio, "ratio")

    return split, state, list(lines())
