"""What to know about an estimate by an engine's own rules."""

from app.domain.deployment import Deployment
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

    low, high = found.kv_low_bytes or 0, found.kv_high_bytes or 0
    if found.verdict == "serves" and low < found.longest_sequence_bytes:
        warn(
            "tight_start",
            f"Recorded starts leave between {gigabytes(low)} and {gigabytes(high)} for the KV cache: one request of "
            f"{found.max_model_len_tokens} tokens may not fit.",
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
    if deployment.kv_cache == "auto" and deployment.weights in ("nvfp4", "fp8"):
        warn(
            "kv_cache_follows_checkpoint",
            f"{deployment.weights} checkpoints may name an 8-bit KV scheme that auto then follows: set kv_cache fp8 if yours does.",
        )
    return notes
