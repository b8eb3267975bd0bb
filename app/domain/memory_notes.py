"""What the reader of an answer that rests on a replica's memory should know: what is not counted, and what it is counted with."""

from app.domain.deployment import Deployment
from app.domain.engine_notes import engine_warnings
from app.domain.llm import Llm
from app.domain.memory_fit import Fit
from app.domain.provenance import Note


def memory_warnings(llm: Llm, deployment: Deployment, found: Fit) -> list[Note]:
    """Warnings of `/memory`, which hold for everything that is computed from the same fit."""
    warnings: list[Note] = []

    def warn(code: str, message: str) -> None:
        warnings.append(Note(code=code, message=message))

    warnings += engine_warnings(deployment, found)
    if deployment.dp > 1 and llm.layer_groups is None:
        warn("experts_unknown", f"The layers of {llm.slug} are not known: all weights are counted on each data-parallel rank, experts too.")
    if found.cost is None:
        warn("kv_cache_unknown", f"The layers of {llm.slug} are not given: the KV cache could not be checked.")
    elif llm.layer_groups is None and llm.stated_kv_cache is not None:
        warn(
            "stated_kv_cache",
            f"The layers of {llm.slug} are not known: {llm.stated_kv_cache.note}. The whole cache is counted on each GPU.",
        )
    elif found.capacity_tokens() is None:
        warn(
            "kv_capacity_depends_on_length",
            f"What a token of {llm.slug} takes depends on the length: give max_model_len_tokens for the token positions.",
        )
    if found.engine is None and found.reserve_bytes == 0 and found.budget_bytes == found.memory_bytes:
        warn("no_reserve", "No memory is reserved for activations, graphs and buffers: a real engine runs out of memory.")
    elif found.engine is None and found.reserve_bytes == 0:
        warn(
            "activations_not_counted",
            "Nothing is reserved inside the budget of memory_fraction_ratio: activations and graphs come out of the KV cache shown here.",
        )
    if found.pool is not None and found.max_model_len_tokens is None:
        warn("longest_unknown", f"Neither the request nor {llm.slug} says how long a sequence may be: whether one fits was not checked.")
    if deployment.speculative is not None and not _counts_draft(llm, deployment, found):
        warn("draft_not_counted", "Weights and KV cache of the draft model or the prediction layers are not counted.")
    longest = llm.max_model_len_tokens
    if longest is not None and (found.max_model_len_tokens or 0) > longest:
        warn("beyond_model_length", f"max_model_len_tokens is above the {longest} tokens that {llm.slug} was made for.")
    return warnings


def _counts_draft(llm: Llm, deployment: Deployment, found: Fit) -> bool:
    """Whether the tokens are drafted by a known model or by prediction layers of the model, which the rules of an engine count."""
    given = deployment.speculative
    if found.engine is None or given is None:
        return False
    return given.draft is not None or (given.draft_model is None and bool(llm.num_mtp_params and llm.num_mtp_layers))
