"""The body of `/cost`."""

from typing import Annotated

from pydantic import Field, PositiveInt, model_validator

from app.domain.calibration import CalibrationChoice
from app.domain.catalog import PriceKind
from app.domain.cost import Throughput
from app.domain.deployment import Deployment
from app.domain.value import Given
from app.domain.workload import Rps, TokensPerS, Workload
from app.services.requests import CapacityRequest, GpuRef, ModelRef, Usd

Factor = Annotated[float, Field(ge=1, le=1e6)]
MOST_REPLICAS = 10**6
BESIDE_A_PLAN = frozenset({"plan", "price_kind", "usd_per_gpu_hour", "success_ratio", "requests_per_task", "attempts_per_task"})
"""What a request may say beside the plan that it prices."""


class CostRequest(Given):
    """What tokens, requests and tasks cost."""

    plan: CapacityRequest | None = None
    """A fleet by what `/capacity` takes (the `request` of a saved plan): its replicas serve its rate, at its price unless one is given
    beside it."""
    replica_usd_per_hour: Usd | None = None
    """Price of one replica; or give gpu, gpus and usd_per_gpu_hour [USD/hour]."""
    gpu: GpuRef | None = None
    """The accelerator; the catalog's price is used when usd_per_gpu_hour and replica_usd_per_hour are left out."""
    price_kind: PriceKind = "on_demand"
    """Which price of the catalog is used, or what kind the given price is."""
    gpus: PositiveInt | None = Field(default=None, le=10**6)
    """Accelerators of one replica; those of the deployment when left out."""
    usd_per_gpu_hour: Usd | None = None
    """Price of one accelerator [USD/hour]."""
    model: ModelRef | None = None
    """The model; with gpu, a deployment that names its engine, and a workload, input and output are priced by the time that each uses."""
    deployment: Deployment | None = None
    """How one replica runs."""
    calibration: CalibrationChoice = None
    """Id of the calibration whose constants the steps take, or `none`; left out: that of this very set-up, where there is one."""
    replicas: Annotated[int, Field(ge=1, le=MOST_REPLICAS)] = 1
    """Replicas that are paid for."""
    output_tokens_per_s: TokensPerS | None = None
    """Output tokens per second of one replica [tokens/s]."""
    input_tokens_per_s: TokensPerS | None = None
    """Input tokens per second of one replica [tokens/s]."""
    request_rps: Rps | None = None
    """Finished requests per second of one replica [requests/s]."""
    workload: Workload | None = None
    """Traffic whose mean lengths turn token rates into requests; its rate over all replicas is used when no rate is given."""
    success_ratio: Annotated[float, Field(ge=1e-6, le=1)] = 1
    """Share of requests that succeed."""
    requests_per_task: Factor = 1
    """Requests of one business task."""
    attempts_per_task: Factor = 1
    """Attempts that a task takes on average, retries included."""

    @model_validator(mode="after")
    def _one_price(self) -> "CostRequest":
        if self.plan is not None:
            more = sorted(self.model_fields_set - BESIDE_A_PLAN)
            if more:
                raise ValueError(f"the plan says what is priced: leave out {', '.join(more)}")
        elif self.replica_usd_per_hour is not None:
            if self.gpus is not None or self.usd_per_gpu_hour is not None or (self.gpu is not None and self.model is None):
                raise ValueError("give either replica_usd_per_hour, or gpus with usd_per_gpu_hour or gpu")
        elif self.num_gpus is None or (self.usd_per_gpu_hour is None and self.gpu is None):
            raise ValueError(
                "a price is needed: replica_usd_per_hour, or gpus with usd_per_gpu_hour or a gpu that has a price in the catalog, or a plan"
            )
        return self

    @model_validator(mode="after")
    def _whole_replica(self) -> "CostRequest":
        if self.model is None and (self.deployment is not None or self.calibration is not None):
            raise ValueError("deployment and calibration belong to a model")
        if self.model is not None and (self.gpu is None or self.deployment is None or self.workload is None):
            raise ValueError("a model is priced with a gpu, a deployment and a workload")
        if self.deployment is not None and self.gpus is not None and self.gpus != self.deployment.num_gpus:
            raise ValueError(f"gpus is {self.gpus}, but the deployment has {self.deployment.num_gpus} (tp x pp x dp)")
        return self

    @property
    def num_gpus(self) -> int | None:
        """Accelerators of one replica."""
        return self.gpus if self.gpus is not None or self.deployment is None else self.deployment.num_gpus

    @property
    def throughput(self) -> Throughput:
        """The rates of one replica as given."""
        return Throughput(
            output_tokens_per_s=self.output_tokens_per_s, input_tokens_per_s=self.input_tokens_per_s, request_rps=self.request_rps
        )
