"""What the planner expects of a running deployment, as a baseline for a diagnosis that has none."""

from collections.abc import Iterator

from app.domain.catalog import Catalog
from app.domain.deployment import Deployment
from app.domain.expectation import Expectation
from app.domain.metrics import Metrics
from app.domain.performance_answer import PerformanceAnswer
from app.domain.performance_estimate import Estimate
from app.domain.provenance import Note, step
from app.domain.units import plain
from app.domain.workload import Workload
from app.services.estimates import memory, performance
from app.services.requests import GpuRef, MemoryRequest, ModelRef, PerformanceRequest

STEADY_REQUESTS = 10**9
"""A closed loop so long that its start does not count."""

_LATENCIES = (("ttft", "ttft_s"), ("tpot", "tpot_s"), ("itl", "tpot_s"), ("e2e", "e2e_s"))
_RATES = (("output_tokens_per_s", "output_tokens_per_s"), ("input_tokens_per_s", "input_tokens_per_s"), ("request_rps", "request_rps"))
_TYPICAL_STATISTICS = ("mean", "p50")
"""The planner knows means; requests of one length have medians near them."""


def expectation_of(
    catalog: Catalog, model: ModelRef, gpu: GpuRef, deployment: Deployment, metrics: Metrics, workload: Workload | None
) -> tuple[Expectation | None, list[Note]]:
    """TTFT, TPOT, rates and KV capacity that the planner expects at the load that was measured, and what stands in the way of it.

    The load is the running batch [requests], else the requests in flight, else the rate [requests/s], with the measured mean lengths, else
    those of the workload. TTFT is that of a steady state without a queue in front of free places. Raises PlannerError.
    """
    input_tokens, output_tokens = (_length(metrics, workload, side) for side in ("input", "output"))
    load = _load(metrics)
    if input_tokens is None or output_tokens is None or load is None:
        missing = [name for name, known in (("input_mean_tokens", input_tokens), ("output_mean_tokens", output_tokens)) if known is None]
        missing += [] if load else ["num_running_requests"]
        message = f"What the planner expects of the deployment was not computed: {', '.join(missing)} is missing."
        return None, [Note(code="no_expectation", message=message)]
    request = PerformanceRequest.model_validate(
        {"model": model, "gpu": gpu, "deployment": deployment, "input_tokens": input_tokens, "output_tokens": output_tokens} | load
    )
    answer = performance(catalog, request)
    if answer.tpot_s is None:
        message = f"The planner thinks that this deployment does not serve ({answer.verdict}), so that it expects nothing of it."
        return None, [Note(code="no_expectation", message=message)]
    capacity = memory(catalog, MemoryRequest(model=model, gpu=gpu, deployment=deployment)).kv_capacity_tokens
    held = {"num_kv_cache_tokens": capacity * deployment.dp} if capacity else {}
    typical = Metrics.model_validate(dict(_figures(answer, slow=False)) | held)
    worst = Metrics.model_validate(dict(_figures(answer, slow=True)) | held)
    at = ", ".join(f"{name} {plain(value)}" for name, value in load.items() if name != "num_requests")
    working = [
        step(
            f"expected {name}",
            f"/performance at {at}, {plain(input_tokens)} + {plain(output_tokens)} tokens",
            f"range up to {plain(worst.get(name) or 0)}" if "_s" in name else "",
            typical.get(name) or 0.0,
            "s" if name.endswith("_s") and "per" not in name else "",
            "POST /performance with the same model, gpu and deployment",
            answer.basis,
        )
        for name in ("ttft_mean_s", "tpot_mean_s", "output_tokens_per_s")
    ]
    message = f"Where neither SLO nor baseline says, figures are compared with what the planner expects of this deployment at {at}."
    return Expectation(typical, worst, working), [Note(code="planner_is_baseline", message=message)]


def _length(metrics: Metrics, workload: Workload | None, side: str) -> float | None:
    measured = metrics.length(side, "mean")
    if measured is None:
        measured = metrics.length(side, "p50")
    if measured is None and workload is not None:
        measured = workload.lengths(f"{side}_tokens").mean
    return measured if measured is None else max(measured, 1.0)


def _load(metrics: Metrics) -> dict[str, float] | None:
    batch = metrics.num_running_requests if metrics.num_running_requests is not None else metrics.num_concurrent_requests
    if batch is not None:
        return {"concurrency": max(round(batch), 1), "num_requests": STEADY_REQUESTS}
    return {"request_rps": metrics.request_rps} if metrics.request_rps else None


def _figures(answer: PerformanceAnswer, *, slow: bool) -> Iterator[tuple[str, float]]:
    """Names and values of the metrics that the answer has, at the slow end of their range or as modelled."""
    for family, field in _LATENCIES:
        estimate: Estimate | None = getattr(answer, field)
        if estimate is not None:
            for statistic in _TYPICAL_STATISTICS:
                yield f"{family}_{statistic}_s", estimate.high if slow else estimate.value
    for name, field in _RATES:
        rate: Estimate | None = getattr(answer, field)
        if rate is not None:
            yield name, rate.low if slow else rate.value
    if answer.prefill is not None:
        yield "prefill_time_mean_s", answer.prefill.total_s
