"""What the reader of a modelled speed should know: where constants are carried over, what is assumed, what is not counted."""

from app.domain.load_state import LoadState
from app.domain.memory_notes import memory_warnings
from app.domain.performance import Performance
from app.domain.places import USUAL_PLACES
from app.domain.prefix_cache import kept_once
from app.domain.provenance import Note
from app.domain.units import plain

CROWDED_RATIO = 0.8
"""Above this share of the places the waiting for one depends on how lengths vary, which means do not say."""


def performance_warnings(performance: Performance, state: LoadState | None, *, saturated: bool = False) -> list[Note]:
    """Warnings of `/performance`: those of the memory, and what the speed is uncertain by."""
    found = performance.found
    warnings = memory_warnings(performance.llm, performance.deployment, found)

    def warn(code: str, message: str) -> None:
        warnings.append(Note(code=code, message=message))

    if found.verdict != "serves":
        warn(found.verdict, f"The deployment does not serve ({found.verdict}, limited by {found.limiting}).")
    length = performance.lengths.input_tokens + performance.lengths.output_tokens
    if found.max_model_len_tokens is not None and length > found.max_model_len_tokens:
        warn(
            "beyond_max_model_len", f"Requests of {plain(length)} tokens are longer than max_model_len_tokens {found.max_model_len_tokens}."
        )
    warnings += kept_once(found, length, performance.lengths.held_once)[1]
    warnings += speed_notes(performance)
    if saturated:
        warn("saturated", "Requests arrive faster than the replica ends them: times have no steady state. Add replicas.")
    elif state is not None and state.concurrency > CROWDED_RATIO * performance.places:
        warn("few_places_left", f"{plain(state.concurrency)} requests for {plain(performance.places)} places: TTFT is uncertain here.")
    return warnings


def speed_notes(performance: Performance) -> list[Note]:
    """What the speed of a deployment is uncertain by, at any load."""
    llm, work, deployment = performance.llm, performance.work, performance.deployment
    warnings: list[Note] = []

    def warn(code: str, message: str) -> None:
        warnings.append(Note(code=code, message=message))

    if not performance.is_fitted:
        kind = performance.step_class
        warn(
            "constants_carried_over",
            f"No measurement of engine {kind.engine} on accelerators of class {kind.gpu_class} with {kind.weights} weights and a "
            f"{kind.kind} model is in the fit: constants are carried over from others, and the range is wider. Calibrate with one run.",
        )
    if not work.model.is_known:
        warn(
            "layers_unknown",
            f"The layers of {llm.slug} are not known in full: "
            + ("what is not active on every token counts as experts" if work.model.experts else "all parameters count as dense products")
            + ", layers are taken from the usual shape, and attention and cache count as far as they are given.",
        )
    if performance.places_limit == "not_known":
        warn("places_not_known", f"Neither the KV cache of {llm.slug} nor max_num_seqs is known: {USUAL_PLACES} places are taken.")
    _link_warnings(performance, warnings)
    if deployment.enforce_eager:
        warn("eager_not_modelled", "enforce_eager: without CUDA graphs small steps take longer than shown here.")
    if deployment.speculative is not None and performance.draft is None and not llm.num_mtp_layers:
        warn("draft_time_not_counted", "The time of drafting is not counted: name a draft_model of the catalog.")
    return warnings


def _link_warnings(performance: Performance, warnings: list[Note]) -> None:
    work, slug = performance.work, performance.gpu.slug
    used = [link for degree, link in ((work.tp, work.tensor_link), (work.dp, work.expert_link), (work.pp, work.stage_link)) if degree > 1]
    if any(link.bytes_per_s is None for link in used):
        message = f"The link between accelerators {slug} is not known: transfers between them are not counted."
        warnings.append(Note(code="link_not_known", message=message))
    if any(link.kind == "network" for link in used):
        message = "The replica spans servers: 400 Gbit/s for each accelerator are assumed between them."
        warnings.append(Note(code="network_assumed", message=message))
