"""What a request of `/concurrency` says about a shared prefix and the prefix cache."""

from app.domain.deployment import Deployment
from app.domain.errors import InvalidInput
from app.domain.prefix_cache import PrefixCache
from app.domain.provenance import Note
from app.domain.units import plain
from app.services.assumptions import default_used, defaults_used
from app.services.requests import ConcurrencyRequest


def prefix_cache_of(request: ConcurrencyRequest, deployment: Deployment) -> tuple[PrefixCache | None, list[Note]]:
    """(what is shared and reserved, the notes about what the caller left out); None where the request names neither.

    The shared prefix grows with the tokens; a workload without prefix_hit_ratio is taken to find all of it. Raises InvalidInput for a
    reserve without a prefix cache.
    """
    ratio, workload = request.prefix_cache_reserve_ratio, request.workload
    if ratio and not deployment.prefix_caching:
        raise InvalidInput(
            f"prefix_cache_reserve_ratio is {plain(ratio)}, but prefix_caching is false: nothing is cached",
            field="/prefix_cache_reserve_ratio", value=ratio, expected="0, or prefix_caching true",
        )  # fmt: skip
    shared = 0.0 if workload is None else (workload.shared_prefix_tokens or 0.0) * workload.token_growth_ratio
    if not shared:
        return (PrefixCache(reserve_ratio=ratio) if ratio else None), []
    if not deployment.prefix_caching:
        return None, [Note(code="prefix_not_shared", message="prefix_caching is false: every request holds its own copy of the prefix.")]
    assert workload is not None  # noqa: S101 - it has a shared prefix
    notes = defaults_used(request, "prefix_cache_reserve_ratio")
    given = "prefix_hit_ratio" in workload.model_fields_set
    if not given:
        notes.append(default_used("prefix_hit_ratio", 1))
    return PrefixCache(shared, workload.prefix_hit_ratio if given else 1, ratio), notes
