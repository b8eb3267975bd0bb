"""How many requests have a place in a replica at once, and what limits them."""

from typing import Literal

from app.domain.concurrency import per_engine_rank, sequence_limit
from app.domain.deployment import Deployment
from app.domain.memory_fit import Fit
from app.domain.prefix_cache import PrefixCache

USUAL_PLACES = 1024
"""Sequences where neither the cache of the model nor max_num_seqs limits them: the default of vLLM servers on large devices."""
MOST_SEQUENCES = 65536
"""Batches above this are not looked at."""

PlacesLimit = Literal["kv_cache", "max_num_seqs", "not_known"]


def places_of(found: Fit, deployment: Deployment, tokens: float, shared: PrefixCache | None = None) -> tuple[float, PlacesLimit]:
    """(requests of so many tokens that the replica holds at once, what limits them); `shared` is what they hold once."""
    if not found.holds_requests:
        return 0.0, "kv_cache"
    held, limit = per_engine_rank(found, tokens, shared), sequence_limit(found, deployment)
    if held is None and limit is None:
        return float(USUAL_PLACES), "not_known"
    if held is None or (limit is not None and limit < held):
        return float((limit or 0) * deployment.dp), "max_num_seqs"
    return float(min(held, MOST_SEQUENCES) * deployment.dp), "kv_cache"
