"""The bodies that create and change plans: one per calculation, told apart by `kind`."""

from typing import Annotated, Literal

from pydantic import Field

from app.domain.plan import PlanInput
from app.services.cost_request import CostRequest
from app.services.diagnosis import DiagnoseRequest
from app.services.requests import CapacityRequest, ConcurrencyRequest, KvRequest, MemoryRequest, PerformanceRequest


class MemoryPlanInput(PlanInput[Literal["memory"], MemoryRequest]):
    """A plan that keeps what `/memory` answers."""


class KvPlanInput(PlanInput[Literal["kv"], KvRequest]):
    """A plan that keeps what `/kv` answers."""


class ConcurrencyPlanInput(PlanInput[Literal["concurrency"], ConcurrencyRequest]):
    """A plan that keeps what `/concurrency` answers."""


class PerformancePlanInput(PlanInput[Literal["performance"], PerformanceRequest]):
    """A plan that keeps what `/performance` answers."""


class CapacityPlanInput(PlanInput[Literal["capacity"], CapacityRequest]):
    """A plan that keeps what `/capacity` answers."""


class CostPlanInput(PlanInput[Literal["cost"], CostRequest]):
    """A plan that keeps what `/cost` answers."""


class DiagnosePlanInput(PlanInput[Literal["diagnose"], DiagnoseRequest]):
    """A plan that keeps what `/diagnose` answers."""


NewPlan = Annotated[
    MemoryPlanInput | KvPlanInput | ConcurrencyPlanInput | PerformancePlanInput | CapacityPlanInput | CostPlanInput | DiagnosePlanInput,
    Field(discriminator="kind"),
]
"""What a caller sends to create or change a plan; `kind` decides what `request` holds."""
