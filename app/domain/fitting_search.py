"""The replica that does not serve, its variants, and which of several is the smallest change."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeGuard

from app.domain.deployment import Deployment
from app.domain.engine import EngineMemory
from app.domain.engine_fit import with_weights
from app.domain.errors import PlannerError
from app.domain.hardware import Gpu
from app.domain.llm import Llm
from app.domain.memory import trial_fit
from app.domain.memory_fit import Fit
from app.domain.precision import WeightFormat


class Change(NamedTuple):
    """A replica with one thing changed, and its memory."""

    change: str
    gpu: Gpu
    deployment: Deployment
    found: Fit


class Search(NamedTuple):
    """The replica that does not serve, and how to compute another one."""

    llm: Llm
    gpu: Gpu
    deployment: Deployment
    engine: EngineMemory | None
    found: Fit

    def change(self, gpu: Gpu | None = None, **fields: Any) -> Change | None:
        """The replica with other fields or on another accelerator; None where no engine runs such a one."""
        deployment = self.deployment.model_copy(update=fields) if fields else self.deployment
        name = ", ".join(f"{field} {value}" for field, value in fields.items() if field != "ep") if gpu is None else f"gpu {gpu.slug}"
        other = gpu or self.gpu
        try:
            return Change(name, other, deployment, trial_fit(self.llm, other, deployment, self.engine))
        except PlannerError:  # a stated KV figure exists for one precision only; the memory of some devices is not known
            return None

    def unchanged(self) -> Change:
        """The replica itself."""
        return Change("", self.gpu, self.deployment, self.found)

    def tp_fields(self, tp: int) -> dict[str, Any]:
        """Another tensor-parallel degree; experts stay spread over all ranks where they are."""
        deployment = self.deployment
        return {} if tp == deployment.tp else {"tp": tp, "ep": 1 if deployment.ep == 1 else tp * deployment.dp}

    def with_tp(self, tp: int) -> Change | None:
        """The replica with another tensor-parallel degree."""
        return self.change(**self.tp_fields(tp))

    def with_weights(self, weights: WeightFormat) -> Change | None:
        """The replica with weights in another format; what does not depend on them is not computed again."""
        if self.engine is None:
            return self.change(weights=weights)
        deployment = self.deployment.model_copy(update={"weights": weights})
        return Change(f"weights {weights}", self.gpu, deployment, with_weights(self.found, self.llm, self.gpu, self.deployment, weights))


def serves(change: Change | None) -> TypeGuard[Change]:
    """Whether a variant exists and serves."""
    return change is not None and change.found.verdict == "serves"


def first(changes: Iterable[Change | None]) -> Change | None:
    """The first that serves with the estimate's error to spare, else the first that serves."""
    tight = None
    for each in changes:
        if serves(each):
            if not each.found.is_tight:
                return each
            tight = tight or each
    return tight


def least(values: Sequence[int], change: Callable[[int], Change | None]) -> Change | None:
    """The same for values of which each frees more memory than the one before, by bisection."""
    best = change(values[-1]) if values else None
    if not serves(best):
        return None
    tight_too = best.found.is_tight
    low, high = 0, len(values) - 1
    while low < high:
        middle = (low + high) // 2
        found = change(values[middle])
        if serves(found) and (tight_too or not found.found.is_tight):
            best, high = found, middle
        else:
            low = middle + 1
    return best
