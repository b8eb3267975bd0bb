"""What a request to `/simulate` describes as the scenario that the domain runs."""

import math
from collections.abc import Sequence

from app.domain.demand import demand_of
from app.domain.errors import InvalidInput
from app.domain.performance import BENCHMARK_WAVES
from app.domain.provenance import Note
from app.domain.simulation_fleet import CacheFlush, Client, ReplicaLoss
from app.domain.simulation_lengths import quantiles_of
from app.domain.simulation_pool import PoolModel
from app.domain.simulation_requests import Arrivals, Flood, RequestKind, SharedPrefix, Surge, Traced
from app.domain.simulation_scenario import Limits, Scenario
from app.domain.units import plain
from app.domain.workload import Slo, TokenLengths, Workload
from app.services.assumptions import default_used
from app.services.simulation_request import LongFlood, PrefixFlush, ReplicaLost, SimulationRequest, TrafficSurge

USUAL_DURATION_S = 300.0
CONSTANT_PACE_RATIO = 0.01


def scenario_of(request: SimulationRequest, pools: Sequence[PoolModel], kinds: tuple[RequestKind, ...], notes: list[Note]) -> Scenario:
    """The scenario; `notes` gets the defaults that it takes. Raises InvalidInput for faults that cannot happen."""
    duration_s, num_requests = request.duration_s, request.num_requests
    if duration_s is None and num_requests is None and not request.trace:
        if request.concurrency is None:
            duration_s = USUAL_DURATION_S
            notes.append(default_used("duration_s", USUAL_DURATION_S))
        else:
            num_requests = BENCHMARK_WAVES * request.concurrency
            notes.append(default_used("num_requests", num_requests))
    faults, clients = _checked_faults(request, pools, duration_s), request.clients
    names = [pool.name for pool in pools]
    losses = tuple(
        ReplicaLoss(
            each.at_s,
            math.inf if each.duration_s is None else each.duration_s,
            each.replica_index,
            0 if each.pool is None else names.index(each.pool),
        )
        for each in faults
        if isinstance(each, ReplicaLost)
    )
    flushes = [each for each in faults if isinstance(each, PrefixFlush)]
    workload = request.workload
    return Scenario(
        pools=tuple(pools),
        arrivals=_arrivals(request),
        kinds=kinds,
        client=Client(
            math.inf if clients.timeout_s is None else clients.timeout_s,
            clients.max_num_retries,
            clients.retry_delay_s,
            clients.resend_lost,
        ),
        prefix=None if workload is None else prefix_of(workload, request.num_prefixes),
        surges=tuple(Surge(each.at_s, each.at_s + each.duration_s, each.factor_ratio) for each in faults if isinstance(each, TrafficSurge)),
        floods=tuple(
            Flood(each.at_s, each.at_s + each.duration_s, each.request_rps, each.input_tokens, each.output_tokens)
            for each in faults
            if isinstance(each, LongFlood)
        ),
        losses=losses,
        flushes=tuple(CacheFlush(each.at_s, None if each.pool is None else names.index(each.pool)) for each in flushes),
        limits=_limits(request.slo),
        max_num_waiting=request.max_num_waiting,
        duration_s=duration_s,
        num_requests=num_requests,
        warm_up_ratio=request.warm_up_ratio,
        seeds=tuple(request.seeds),
    )


def traced(request: SimulationRequest) -> tuple[Traced, ...]:
    """The recorded requests."""
    return tuple(Traced(each.arrival_s, each.input_tokens, each.output_tokens) for each in request.trace)


def _arrivals(request: SimulationRequest) -> Arrivals:
    if request.workload is None:
        return Arrivals(trace=traced(request))
    variation = request.variation_ratio if request.variation_ratio >= CONSTANT_PACE_RATIO else 0.0
    return Arrivals(
        demand_of(request.workload).request_rps, variation, concurrency=request.concurrency, num_under_way=request.num_under_way
    )


def kinds_of(workload: Workload | None) -> tuple[RequestKind, ...]:
    """The classes of a workload, or all of its requests as one kind; none of a trace."""
    if workload is None:
        return ()
    growth = workload.token_growth_ratio
    if not workload.classes:
        inputs, outputs = (quantiles_of(workload.lengths(which), growth) for which in ("input_tokens", "output_tokens"))
        return (RequestKind("all", 1.0, inputs, outputs),)
    return tuple(
        RequestKind(
            f"class-{index}",
            each.share_ratio,
            quantiles_of(TokenLengths(mean=each.input_tokens), growth),
            quantiles_of(TokenLengths(mean=each.output_tokens), growth),
        )
        for index, each in enumerate(workload.classes, 1)
    )


def prefix_of(workload: Workload, num_prefixes: int) -> SharedPrefix | None:
    """The hits of the workload: so many requests have the beginning, or so much of every prompt is found where none is stated."""
    hits = workload.prefix_hit_ratio
    if not hits:
        return None
    if workload.shared_prefix_tokens is None:
        return SharedPrefix(input_ratio=hits, num_prefixes=num_prefixes)
    return SharedPrefix(workload.shared_prefix_tokens * workload.token_growth_ratio, share_ratio=hits, num_prefixes=num_prefixes)


def _limits(slo: Slo | None) -> Limits:
    """The strictest limit of each time."""

    def strictest(name: str) -> float | None:
        return min((limit for which, limit in slo or () if limit is not None and which.startswith(name)), default=None)

    return Limits(strictest("ttft"), strictest("tpot"), strictest("e2e"))


def _checked_faults(
    request: SimulationRequest, pools: Sequence[PoolModel], duration_s: float | None
) -> list[ReplicaLost | TrafficSurge | LongFlood | PrefixFlush]:
    for index, each in enumerate(request.faults):
        if duration_s is not None and each.at_s >= duration_s:
            raise InvalidInput(
                f"the fault at {plain(each.at_s)} s comes after the last arrival", field=f"/faults/{index}/at_s", value=each.at_s,
                expected=f"below duration_s {plain(duration_s)}",
            )  # fmt: skip
        if isinstance(each, ReplicaLost | PrefixFlush):
            _check_pool(each, pools, index)
    return list(request.faults)


def _check_pool(fault: ReplicaLost | PrefixFlush, pools: Sequence[PoolModel], index: int) -> None:
    """Refuse a fault in a pool or a replica that is not there, or in one of several pools without saying in which."""
    names, found = [pool.name for pool in pools], [pool for pool in pools if fault.pool in (None, pool.name)]
    is_open = fault.pool is None and isinstance(fault, ReplicaLost) and len(pools) > 1
    if is_open or not found:
        raise InvalidInput(
            "the fault does not say in which pool" if is_open else f"there is no pool {fault.pool}",
            field=f"/faults/{index}/pool", value=fault.pool, expected=f"one of {', '.join(names)}",
        )  # fmt: skip
    if isinstance(fault, ReplicaLost) and fault.replica_index >= found[0].num_replicas:
        raise InvalidInput(
            f"there is no replica {fault.replica_index}", field=f"/faults/{index}/replica_index", value=fault.replica_index,
            expected=f"0 to {found[0].num_replicas - 1}",
        )  # fmt: skip
