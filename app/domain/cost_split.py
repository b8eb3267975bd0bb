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

    Of steps with f of them carrying prompts, t_d without and t_m with: decoding b x t_d per step, prompts f x (t_m - b x t_d), where
    b = min(1, running sequences) is the share of the steps in which anything decodes: an idle engine runs none. Reading the weights in a
    step of both kinds counts for decoding, which reads them in any case. Where the engine computes prompts in steps of their own, t_m is
    one of either and prompts take f x (t_m - t_d). Idle time is shared like busy time. The replica must hold a request
    (`performance.places` >= 1); `known` is its state at that rate where it is at hand. Source: `serving`, `step`.
    """
    # Rates far beyond what it ends are not solved for: their steps would hold more sequences than numbers do.
    open_state = known or (performance.serving.open(request_rps) if request_rps < performance.saturated.request_rps else None)
    state = open_state or performance.saturated
    decoding = min(1.0, state.running / performance.work.pp)
    decode_s, mixed_s, often = state.decode.total_s, state.mixed.total_s, state.prompt_step_ratio
    own_steps = performance.serving.prefill_first
    beside_s = decode_s if own_steps else decoding * decode_s
    prompt_s, output_s = often * (mixed_s - beside_s), decoding * decode_s
    ratio = prompt_s / (prompt_s + output_s)
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

        decode, mixed, share = plain(decode_s), plain(mixed_s), plain(decoding)
        beside = decode if own_steps else f"{share} x {decode}"
        named = "decode_step_s" if own_steps else "share of steps that decode x decode_step_s"
        yield line(
            "decoding_step_ratio", "min(1, decoding sequences)", f"min(1, {plain(state.running / performance.work.pp)})", decoding, "ratio"
        )
        yield line("output_s_per_step", "decoding_step_ratio x decode_step_s", f"{share} x {decode}", output_s, "s")
        yield line(
            "input_s_per_step", f"prompt steps per step x (mixed_step_s - {named})", f"{plain(often)} x ({mixed} - {beside})", prompt_s, "s"
        )
        both = f"({plain(prompt_s)} + {plain(output_s)})"
        yield line(
            "input_time_ratio", "input_s_per_step / (input_s_per_step + output_s_per_step)", f"{plain(prompt_s)} / {both}", ratio, "ratio"
        )
        yield line("output_time_ratio", "1 - input_time_ratio", f"1 - {plain(ratio)}", 1 - ratio, "ratio")

    return split, state, list(lines())
