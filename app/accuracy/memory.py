"""The planner's memory answers against recorded start-ups, quantity by quantity."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from app.accuracy.expression import POOL_OF_CONTEXT, Expressed, NotExpressed, express
from app.accuracy.quantities import QUANTITIES, Comparison, Kind, LeftOut, MemoryAccuracy, PoolRange, Quantity, QuantityTable, StartVerdict
from app.accuracy.records import ReadRecord, StartUpRecord
from app.domain.accuracy import coverage_of, relative_error_ratio, summarise_errors
from app.domain.catalog import Catalog
from app.domain.errors import PlannerError
from app.domain.llm import Llm
from app.domain.memory import fit
from app.domain.memory_answer import MemoryAnswer
from app.domain.paging import CellPool
from app.domain.units import GIB
from app.services import estimates
from app.services.references import as_deployed, engine_of, resolve_gpu


class _Scored(NamedTuple):
    comparisons: list[Comparison]
    pool_range: PoolRange | None
    verdict: StartVerdict | None


def memory_accuracy(catalog: Catalog, records: Iterable[ReadRecord]) -> MemoryAccuracy:
    """Score the planner on recorded start-ups: every case that a request expresses, none left out because it disagrees."""
    read, scored, left_out = list(records), [], []
    for each in read:
        expressed = express(catalog, each)
        if isinstance(expressed, NotExpressed):
            left_out.append(LeftOut(case=expressed.case, parts=[], reason=expressed.reason))
            continue
        try:
            scored.append(_score(catalog, each.record, expressed))
        except PlannerError as error:
            left_out.append(LeftOut(case=each.record.id, parts=[], reason=f"refused: {error}"))
            continue
        left_out += [LeftOut(case=each.record.id, parts=sorted(parts), reason=why) for why, parts in expressed.left_out_why.items()]
    comparisons = [comparison for each in scored for comparison in each.comparisons]
    ranges = [each.pool_range for each in scored if each.pool_range]
    return MemoryAccuracy(
        num_cases=len(read),
        num_expressed=len(scored),
        quantities=[_table(quantity, comparisons) for quantity in QUANTITIES],
        pool_coverage=coverage_of((each.low_bytes, each.recorded_bytes, each.high_bytes) for each in ranges),
        pool_ranges=ranges,
        verdicts=[each.verdict for each in scored if each.verdict],
        comparisons=comparisons,
        left_out=left_out,
    )


def kind_of(llm: Llm) -> Kind:
    """Kind of a model by what makes its cache unlike a dense model's: state, then windows, latents, experts."""
    caches = [cache for _, cache in llm.caches()]
    if llm.keeps_state:
        return "hybrid"
    if any(cache.window_tokens for cache in caches):
        return "windowed"
    if any(group.mixer is not None and group.mixer.kind == "latent_attention" for group in llm.layer_groups or ()):
        return "mla"
    return "moe" if llm.num_expert_params else "dense"


def _table(quantity: Quantity, comparisons: list[Comparison]) -> QuantityTable:
    title, goal = QUANTITIES[quantity]
    own = [comparison for comparison in comparisons if comparison.quantity == quantity]
    groups: dict[str, list[float]] = {}
    for comparison in own:
        for group in (comparison.kind, "quantised" if comparison.quantised else "not quantised"):
            groups.setdefault(group, []).append(comparison.error_ratio)
    summaries = {group: summarise_errors(errors, goal) for group, errors in sorted(groups.items())}
    return QuantityTable(
        quantity=quantity,
        title=title,
        goal=goal,
        overall=summarise_errors((comparison.error_ratio for comparison in own), goal),
        by_kind={group: summary for group, summary in summaries.items() if summary},
    )


def _score(catalog: Catalog, record: StartUpRecord, expressed: Expressed) -> _Scored:
    answer = estimates.memory(catalog, expressed.request)
    kind = kind_of(expressed.llm)
    comparisons = [
        Comparison(
            case=record.id,
            quantity=quantity,
            kind=kind,
            quantised=expressed.quantised,
            recorded=recorded,
            estimated=estimated,
            error_ratio=relative_error_ratio(estimated, recorded),
        )
        for quantity, recorded, estimated in _figures(catalog, record, expressed, answer)
        if recorded > 0
    ]
    verdict = None
    if record.outcome is not None and "verdict" not in expressed.leave_out:
        verdict = StartVerdict(case=record.id, outcome=record.outcome, verdict=answer.verdict)
    return _Scored(comparisons, _pool_range(catalog, record, expressed, answer), verdict)


def _pool_range(catalog: Catalog, record: StartUpRecord, expressed: Expressed, answer: MemoryAnswer) -> PoolRange | None:
    pool, low, high = _bytes(record.kv_available_gib_per_gpu), answer.kv_cache_low_bytes, answer.kv_cache_high_bytes
    if "kv_memory" in expressed.leave_out or pool is None or pool <= 0 or low is None or high is None:
        return None
    return PoolRange(case=record.id, low_bytes=low, recorded_bytes=_whole_pool(catalog, expressed, pool), high_bytes=high)


def _figures(
    catalog: Catalog, record: StartUpRecord, expressed: Expressed, answer: MemoryAnswer
) -> Iterator[tuple[Quantity, float, float]]:
    """(quantity, recorded, estimated) of everything that both sides state."""
    weights = _bytes(record.weights_gib_per_gpu) if "weights" not in expressed.leave_out else None
    if weights is not None:
        yield "weights_bytes_per_gpu", weights, answer.per_gpu.weights_bytes
    pool, judges_tokens = _bytes(record.kv_available_gib_per_gpu), "tokens" not in expressed.leave_out
    if pool is not None and pool > 0 and judges_tokens:
        yield from _given_pool(record, answer_given_pool(catalog, expressed, pool), pool)
    if "kv_memory" in expressed.leave_out:
        return
    room = _printed_pool(answer)
    if pool is not None:
        yield "pool_from_inputs", pool, room
        if expressed.knows_limits:
            yield "pool_with_limits_recorded", pool, room
        if weights is not None:
            yield "pool_given_weights", pool, _pool_given_weights(catalog, expressed, weights)
    if not judges_tokens:
        return
    if record.kv_tokens is not None:
        yield "kv_tokens_from_inputs", record.kv_tokens, answer.kv_capacity_tokens or 0
    if record.max_concurrency is not None:
        ratio = answer.max_concurrency_at_max_len_ratio or 0
        yield "concurrency_from_inputs", record.max_concurrency, ratio
        if expressed.knows_limits:
            yield "concurrency_with_limits_recorded", record.max_concurrency, ratio


def _given_pool(record: StartUpRecord, given: MemoryAnswer, pool: int) -> Iterator[tuple[Quantity, float, float]]:
    if record.kv_tokens is not None and given.kv_capacity_tokens:
        yield "kv_bytes_per_token_per_gpu", pool / record.kv_tokens, _printed_pool(given) / given.kv_capacity_tokens
    if record.kv_tokens is not None:
        yield "kv_tokens_given_pool", record.kv_tokens, given.kv_capacity_tokens or 0
    if record.max_concurrency is not None:
        yield "concurrency_given_pool", record.max_concurrency, given.max_concurrency_at_max_len_ratio or 0


def _bytes(gib: float | None) -> int | None:
    return None if gib is None else round(gib * GIB)


def _pool_given_weights(catalog: Catalog, expressed: Expressed, weights: int) -> int:
    gpu, engine = resolve_gpu(catalog, expressed.request.gpu), engine_of(catalog, expressed.request.deployment)
    deployment, _ = as_deployed(catalog, expressed.request.deployment, expressed.llm, gpu)
    found = fit(expressed.llm, gpu, deployment, engine, loaded_bytes=weights)
    return found.kv_cache_bytes - found.state_bytes


def _printed_pool(answer: MemoryAnswer) -> int:
    """The KV memory as an engine prints it: without states that it sizes and prints apart [bytes]."""
    return answer.per_gpu.kv_cache_bytes - answer.per_gpu.state_bytes


def _whole_pool(catalog: Catalog, expressed: Expressed, printed: int) -> int:
    """KV memory with the states that an engine prints apart from it [bytes]."""
    if not expressed.llm.keeps_state:
        return printed
    deployment = expressed.request.deployment
    pool = fit(expressed.llm, resolve_gpu(catalog, expressed.request.gpu), deployment, engine_of(catalog, deployment)).pool
    return pool.whole_bytes(printed) if isinstance(pool, CellPool) else printed


def answer_given_pool(catalog: Catalog, expressed: Expressed, printed_bytes: int) -> MemoryAnswer:
    """The answer for a KV memory that is printed: the reserve takes what the weights leave beyond it.

    reserve = memory - weights - pool. Where the estimated weights leave less than the pool, the device is given the missing memory. An
    engine whose pool follows from the context answers as it is.
    """
    request = expressed.request
    answer = estimates.memory(catalog, request)
    if request.deployment.engine in POOL_OF_CONTEXT:
        return answer
    pool_bytes = _whole_pool(catalog, expressed, printed_bytes)
    plain = answer.per_gpu
    reserve = plain.memory_bytes - plain.weights_bytes - pool_bytes
    deployment = request.deployment.model_copy(update={"memory_fraction_ratio": 1.0, "reserve_bytes_per_gpu": max(0, reserve)})
    if reserve < 0:
        larger = resolve_gpu(catalog, request.gpu).model_copy(update={"memory_bytes": plain.weights_bytes + pool_bytes})
        catalog = replace(catalog, gpus={**catalog.gpus, larger.slug: larger})
        request = request.model_copy(update={"gpu": larger.slug})
    return estimates.memory(catalog, request.model_copy(update={"deployment": deployment}))
