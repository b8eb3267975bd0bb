"""Price of a fleet, and of the requests and tokens that it serves."""

from app.domain.cost import HOURS_PER_MONTH, usd_per_million
from app.domain.cost import SOURCE as COST_SOURCE
from app.domain.cost_split import CostSplit, cost_split
from app.domain.demand import Demand
from app.domain.provenance import Basis, Step, step
from app.domain.replica_speed import Loaded, ReplicaSpeed
from app.domain.units import plain, tidy
from app.domain.value import Value
from app.domain.workload import Workload


class FleetCost(Value):
    """Price of the fleet, spread over what it serves: mean_rps where the workload gives it, else the peak without its bursts."""

    usd_per_gpu_hour: float
    """Price of one accelerator [USD/hour]."""
    price_source: str
    """Where the price comes from."""
    usd_per_hour: float
    """All accelerators [USD/hour]."""
    usd_per_month: float
    """730 hours [USD]."""
    usd_per_request: float
    """At that rate [USD]."""
    usd_per_million_input_tokens: float
    """The share of the price that input tokens carry, as in `/cost`; the whole where no replica is modelled [USD]."""
    usd_per_million_output_tokens: float
    """The share of the price that output tokens carry, as in `/cost`; the whole where no replica is modelled [USD]."""
    usd_per_million_blended_tokens: float
    """The whole price on input and output tokens together [USD]."""
    split: CostSplit | None
    """Shares of input and output in the time of a replica; None where no replica is modelled."""


def fleet_cost(
    workload: Workload,
    demand: Demand,
    gpus: int,
    replicas: int,
    usd_per_gpu_hour: float,
    source: str,
    speed: ReplicaSpeed | None,
    loaded: Loaded | None,
) -> tuple[FleetCost, list[Step]]:
    """gpus x price an hour, spread over the requests and tokens of the sustained rate [USD], with the working.

    `source` says where the price comes from, `speed` is the modelled replica, `loaded` its state at the peak. Input and output share the
    price as `cost_split` says.
    """
    hourly, rps = tidy(gpus * usd_per_gpu_hour), workload.sustained_rps
    split, shares = None, list[Step]()
    if speed is not None and speed.serves:
        known = None if loaded is None or rps != demand.request_rps else loaded.state
        split, _, shares = cost_split(speed.performance, rps / replicas, known)
    rates = {"input": tidy(rps * demand.mean_input_tokens), "output": tidy(rps * demand.mean_output_tokens)}
    blended = tidy(rates["input"] + rates["output"])
    ratios = {"input": split.input_time_ratio, "output": split.output_time_ratio} if split else {}
    cost = FleetCost(
        usd_per_gpu_hour=usd_per_gpu_hour,
        price_source=source,
        usd_per_hour=hourly,
        usd_per_month=tidy(hourly * HOURS_PER_MONTH),
        usd_per_request=hourly / (rps * 3600),
        usd_per_million_input_tokens=usd_per_million(hourly, rates["input"]) * ratios.get("input", 1),
        usd_per_million_output_tokens=usd_per_million(hourly, rates["output"]) * ratios.get("output", 1),
        usd_per_million_blended_tokens=usd_per_million(hourly, blended),
        split=split,
    )
    price, text = f"{gpus} x {plain(usd_per_gpu_hour)}", plain(hourly)
    basis: Basis = "exact" if source == "request" else "datasheet"

    def unit_step(name: str, formula: str, substituted: str) -> Step:
        return step(name, formula, substituted, getattr(cost, name), "USD", COST_SOURCE)

    steps = [
        step("usd_per_hour", "gpus x usd_per_gpu_hour", price, hourly, "USD/hour", source, basis=basis),
        unit_step("usd_per_month", "usd_per_hour x 730", f"{text} x {HOURS_PER_MONTH}"),
        unit_step("usd_per_request", "usd_per_hour / (sustained requests/s x 3600)", f"{text} / ({plain(rps)} x 3600)"),
        *shares,
    ]
    for which, rate in (*rates.items(), ("blended", blended)):
        share = f" x {which}_time_ratio", f" x {plain(ratios[which])}" if which in ratios else ""
        formula = f"usd_per_hour / (sustained {which} tokens/s x 3600) x 1e6{share[0] if share[1] else ''}"
        steps.append(unit_step(f"usd_per_million_{which}_tokens", formula, f"{text} / ({plain(rate)} x 3600) x 1e6{share[1]}"))
    return cost, steps
