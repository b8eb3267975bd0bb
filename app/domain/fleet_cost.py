"""Price of a fleet at the demand of the peak."""

from app.domain.cost import HOURS_PER_MONTH, usd_per_million
from app.domain.cost import SOURCE as COST_SOURCE
from app.domain.demand import Demand
from app.domain.provenance import Basis, Step, step
from app.domain.units import plain, tidy
from app.domain.value import Value


class FleetCost(Value):
    """Price of the fleet at the demand of the peak."""

    usd_per_gpu_hour: float
    """Price of one accelerator [USD/hour]."""
    price_source: str
    """Where the price comes from."""
    usd_per_hour: float
    """All accelerators [USD/hour]."""
    usd_per_month: float
    """730 hours [USD]."""
    usd_per_request: float
    """At the peak rate [USD]."""
    usd_per_million_output_tokens: float
    """The whole price on the output tokens of the peak [USD]."""
    usd_per_million_blended_tokens: float
    """The whole price on input and output tokens of the peak [USD]."""


def fleet_cost(demand: Demand, gpus: int, usd_per_gpu_hour: float, source: str) -> FleetCost:
    """gpus x price an hour, spread over the requests and tokens of the peak [USD]; `source` says where the price comes from."""
    hourly = tidy(gpus * usd_per_gpu_hour)
    return FleetCost(
        usd_per_gpu_hour=usd_per_gpu_hour,
        price_source=source,
        usd_per_hour=hourly,
        usd_per_month=tidy(hourly * HOURS_PER_MONTH),
        usd_per_request=hourly / (demand.request_rps * 3600),
        usd_per_million_output_tokens=usd_per_million(hourly, demand.output_tokens_per_s),
        usd_per_million_blended_tokens=usd_per_million(hourly, demand.input_tokens_per_s + demand.output_tokens_per_s),
    )


def fleet_cost_steps(demand: Demand, gpus: int, cost: FleetCost) -> list[Step]:
    """The working of the prices."""
    hourly, rps, source = plain(cost.usd_per_hour), plain(demand.request_rps), cost.price_source
    inputs, outputs = plain(demand.input_tokens_per_s), plain(demand.output_tokens_per_s)
    price = f"{gpus} x {plain(cost.usd_per_gpu_hour)}"
    basis: Basis = "exact" if source == "request" else "datasheet"
    return [
        step("usd_per_hour", "gpus x usd_per_gpu_hour", price, cost.usd_per_hour, "USD/hour", source, basis=basis),
        step("usd_per_month", "usd_per_hour x 730", f"{hourly} x {HOURS_PER_MONTH}", cost.usd_per_month, "USD", COST_SOURCE),
        step(
            "usd_per_request", "usd_per_hour / (request_rps x 3600)", f"{hourly} / ({rps} x 3600)", cost.usd_per_request, "USD", COST_SOURCE
        ),
        step(
            "usd_per_million_output_tokens",
            "usd_per_hour / (output_tokens_per_s x 3600) x 1e6",
            f"{hourly} / ({outputs} x 3600) x 1e6",
            cost.usd_per_million_output_tokens,
            "USD",
            COST_SOURCE,
        ),
        step(
            "usd_per_million_blended_tokens",
            "usd_per_hour / ((input_tokens_per_s + output_tokens_per_s) x 3600) x 1e6",
            f"{hourly} / (({inputs} + {outputs}) x 3600) x 1e6",
            cost.usd_per_million_blended_tokens,
            "USD",
            COST_SOURCE,
        ),
    ]
