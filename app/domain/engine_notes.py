"""What to know about an estimate by an engine's own rules."""

from app.domain.deployment import Deployment
from app.domain.memory import longest_len_tokens
from app.domain.memory_fit import Fit
from app.domain.paging import PagedPool
from app.domain.provenance import Note
from app.domain.units import gigabytes


def engine_warnings(deployment: Deployment, found: Fit) -> list[Note]:
    """Tight starts, terms that are only guessed, and printed figures that mean another thing than they seem to."""
    notes: list[Note] = []
    if found.engine is None:
        return notes

    def warn(code: str, message: str) -> None:
        notes.append(Note(code=code, message=message))

    high, closest, length = found.kv_high_bytes or 0, found.closest_check, found.max_model_len_tokens
    if found.verdict == "serves" and found.is_tight and closest is not None:
        warn(
            "tight_start",
            f"The start may fail at the check {closest.name}, which it passes by {gigabytes(found.margin_bytes)} per GPU: recorded starts "
            f"had up to {gigabytes(found.kv_room_bytes - (found.low_room_bytes or 0))} less for the KV cache than estimated.",
        )
    if found.verdict == "serves" and length is not None and found.kv_cache_bytes < found.longest_sequence_bytes:
        warn(
            "longest_not_held",
            f"{found.engine.engine} does not check at its start that one request of max_model_len_tokens {length} fits, and the KV cache "
            f"holds {longest_len_tokens(found, found.kv_cache_bytes) or 0}: longer requests are refused or stop early.",
        )
    if found.limiting in ("kv_cache", "max_model_len") and high >= max(1, found.longest_sequence_bytes):
        warn("narrow_failure", f"The KV cache may reach {gigabytes(high)}: the start fails by less than the error of the estimate.")
    if found.peak is not None and not found.peak.is_known and found.terms.activation_bytes:
        warn("activation_unknown", "The shape of the model is not known: its activation peak is the usual figure of the engine.")
    if isinstance(found.pool, PagedPool) and found.pool.tokens_line == "pool" and len(found.pool.groups) > 1:
        warn(
            "tokens_line_divided",
            f"{found.engine.slug} prints the pool divided by {len(found.pool.groups)} groups of layers as its token count; "
            "max_concurrency_at_max_len_ratio compares across versions.",
        )
    limits = found.settings
    if limits is not None and deployment.engine == "vllm" and deployment.max_num_batched_tokens is not None:
        # https://github.com/vllm-project/vllm/blob/v0.11.0/vllm/config/scheduler.py (_verify_args)
        if limits.max_num_batched_tokens < limits.max_num_seqs:
            warn(
                "batch_below_sequences",
                f"vLLM refuses max_num_batched_tokens {limits.max_num_batched_tokens} below max_num_seqs {limits.max_num_seqs}.",
            )
        if not deployment.chunked_prefill and length is not None and limits.max_num_batched_tokens < length:
            warn(
                "batch_below_length",
                f"Without chunked prefill vLLM refuses max_num_batched_tokens {limits.max_num_batched_tokens} below "
                f"max_model_len_tokens {length}.",
            )
    offered = found.engine.kv_caches
    if offered and deployment.kv_cache != "auto" and deployment.kv_cache not in offered:
        warn(
            "kv_cache_not_offered",
            f"{found.engine.slug} keeps its cache in {', '.join(offered)}: with kv_cache {deployment.kv_cache} it would not start.",
        )
    if deployment.kv_cache == "auto" and deployment.weights in ("nvfp4", "fp8"):
        warn(
            "kv_cache_follows_checkpoint",
            f"{deployment.weights} checkpoints may name an 8-bit KV scheme that auto then follows: set kv_cache fp8 if yours does.",
        )
    return notes
