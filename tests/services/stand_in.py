"""A calculation whose version and result the test chooses, and plans that hold it."""

from typing import Any, Literal

from app.domain.catalog import Catalog
from app.domain.errors import InvalidInput
from app.domain.plan import PlanInput
from app.domain.provenance import Answer, Note, Step, Versions
from app.domain.value import Value
from app.services.plans import Calculations

LLAMA, LLAMA_ON_HUB = "llama-3.1-70b", "meta-llama/Llama-3.1-70B"


class Options(Value):
    """Nested, with an optional member."""

    num_rows: int = 4
    limit: int | None = None


class StandInRequest(Value):
    """A body with one field of each kind that storing has to keep."""

    model: str | dict[str, Any]
    gpu: str | None = None
    tp: int = 1
    options: Options = Options()
    free: dict[str, Any] | None = None


class StandInAnswer(Answer):
    """A figure that depends on request and planner."""

    tokens: int
    num_given: int
    limiting: str | None


def calculations(*, factor: int = 1, planner: str = "1") -> Calculations:
    """A planner of some version that multiplies tp by `factor`."""

    def calculate(catalog: Catalog, request: StandInRequest) -> StandInAnswer:
        if isinstance(request.model, str):
            catalog.model(request.model)
        if request.tp > 64:
            raise InvalidInput("too many", field="/tp", value=request.tp)
        value = request.tp * factor
        return StandInAnswer(
            summary=f"{value} tokens",
            working=[Step(name="tokens", formula="tp x f", substituted="", value=value, unit="tokens", basis="exact", source="test")],
            assumptions=[] if "tp" in request.model_fields_set else [Note(code="default_tp", message="tp 1")],
            warnings=[],
            versions=Versions(planner=planner, catalog=catalog.version),
            tokens=value,
            num_given=len(request.model_fields_set),
            limiting=None,
        )

    return {"kv": (StandInRequest, calculate), "memory": (StandInRequest, calculate)}


OLD = calculations()
NEW = calculations(factor=2, planner="2")


def plan_input(kind: str = "kv", owner: str = "platform", **request: Any) -> PlanInput[Any, Any]:
    body = StandInRequest.model_validate({"model": LLAMA, **request})
    return PlanInput[Literal["kv", "memory"], StandInRequest].model_validate(
        {"kind": kind, "name": "A plan", "owner": owner, "request": body}
    )
