"""The fleet of a plan as `/cost` prices it: sized by `/capacity`, its rate spread over its replicas."""

from typing import Any

from app.domain.catalog import Catalog
from app.domain.errors import InvalidInput, under
from app.domain.provenance import Note, Step, step
from app.services.capacity import capacity
from app.services.cost_request import BESIDE_A_PLAN, MOST_REPLICAS, CostRequest
from app.services.requests import CapacityRequest


def sized_by_plan(catalog: Catalog, request: CostRequest, plan: CapacityRequest) -> tuple[CostRequest, Note, Step]:
    """The same request with the replicas, the deployment and the traffic of its plan, and what was taken from there.

    Raises PlannerError as `/capacity` does, and InvalidInput where the plan has no size.
    """
    with under("/plan"):
        answer = capacity(catalog, plan)
    if answer.replicas is None:
        raise InvalidInput(f"the plan has no size: {answer.summary}", field="/plan", expected="a plan to which /capacity answers replicas")
    if answer.replicas > MOST_REPLICAS:
        raise InvalidInput(f"the plan needs {answer.replicas} replicas", field="/plan", expected=f"one of at most {MOST_REPLICAS} replicas")
    taken: dict[str, Any] = {"gpu": plan.gpu, "replicas": answer.replicas, "workload": plan.workload, "price_kind": plan.price_kind}
    if plan.usd_per_gpu_hour is not None:
        taken["usd_per_gpu_hour"] = plan.usd_per_gpu_hour
    if plan.model is None or plan.gpu is None:
        taken["gpus"] = plan.deployment.num_gpus
    else:
        taken |= {"model": plan.model, "deployment": plan.deployment, "calibration": plan.calibration}
    own = {name: getattr(request, name) for name in request.model_fields_set & BESIDE_A_PLAN - {"plan"}}
    message = f"The plan needs {answer.replicas} replicas of {answer.gpus_per_replica} accelerators, bound by {answer.binding}."
    source = "POST /capacity with the plan says why"
    sized = step("replicas", "as /capacity sizes the plan", str(answer.replicas), answer.replicas, "replicas", source)
    if plan.gpu is None and "usd_per_gpu_hour" not in taken.keys() | own.keys():
        raise InvalidInput(
            "the plan names neither an accelerator nor a price", field="/plan", expected="a plan with usd_per_gpu_hour or gpu"
        )
    return CostRequest(**(taken | own)), Note(code="sized_by_plan", message=message), sized
