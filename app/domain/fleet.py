"""A fleet of equal replicas: how many a demand needs, and what is left when some are away."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from app.domain.capacity import Constraint, constraints_of, nodes_for
from app.domain.rounding import ceil
from app.domain.sizing import Sizing
from app.domain.value import Given, Value


class RollingUpdate(Given):
    """How replicas are exchanged for new ones."""

    surge_replicas: Annotated[int, Field(ge=0, le=10_000)] = 1
    """New replicas that start before old ones stop."""
    unavailable_replicas: Annotated[int, Field(ge=0, le=10_000)] = 0
    """Replicas that may be missing meanwhile."""


@dataclass(frozen=True)
class Reserve:
    """What a fleet holds beyond the need."""

    redundancy_ratio: float
    """Factor on the largest constraint."""
    spare_replicas: int
    """Added on top."""
    unavailable_replicas: int = 0
    """That may be missing during an update while the rest carries the peak."""

    def replicas(self, constraints: list[Constraint]) -> int:
        """max(ceil(largest whole constraint x redundancy), largest + unavailable) + spare; of 1 when no constraint was evaluated.

        >>> need = [Constraint(name="throughput", demand=30000, per_replica=10000, unit="output tokens/s", replicas_exact=3, replicas=3,
        ...                    basis="measured", note="")]
        >>> Reserve(1.25, 0).replicas(need), Reserve(1.25, 1, unavailable_replicas=2).replicas(need)
        (4, 6)
        """
        return self.replicas_for(max((item.replicas for item in constraints if item.replicas is not None), default=1))

    def replicas_for(self, largest: int) -> int:
        """The same where the largest constraint needs so many whole replicas."""
        return max(ceil(largest * self.redundancy_ratio), largest + self.unavailable_replicas) + self.spare_replicas


@dataclass(frozen=True)
class Sized:
    """A demand with its constraints and the replicas that they lead to."""

    sizing: Sizing
    constraints: list[Constraint]
    binding: Constraint | None
    """The constraint that needs most replicas."""
    replicas: int

    @property
    def holds_objectives(self) -> bool:
        """Whether no objective is out of reach of any number of replicas."""
        return all(item.per_replica != 0 for item in self.constraints if item.name == "slo")


def sized(sizing: Sizing, reserve: Reserve) -> Sized:
    """Constraints, the binding one, and the replicas with their reserve."""
    constraints = constraints_of(sizing)
    evaluated = [item for item in constraints if item.replicas_exact is not None]
    binding = max(evaluated, key=lambda item: item.replicas_exact or 0, default=None)
    return Sized(sizing, constraints, binding, reserve.replicas(constraints))


class Situation(Value):
    """The fleet at the peak while some replicas are away or added."""

    name: str
    """What happens."""
    replicas: int
    """Replicas that serve."""
    gpus: int
    """Accelerators that are occupied."""
    utilization_ratio: float | None
    """Replicas of the binding constraint, before rounding, / replicas that serve; None where none serves."""
    holds: bool
    """Whether the replicas are enough for every constraint."""


def situations_of(found: Sized, gpus_per_replica: int, gpus_per_node: int, update: RollingUpdate | None) -> list[Situation]:
    """All replicas serving, one of them lost, one machine lost, and a rolling update."""
    if found.binding is None or found.binding.replicas_exact is None:
        return []
    total = found.replicas
    nodes = nodes_for(total, gpus_per_replica, gpus_per_node)
    lost = {"all replicas serve": 0, "one replica lost": 1, "one node lost": max(1, nodes.replicas_per_node)}
    cases = [(name, total - away, total) for name, away in lost.items()]
    if update is not None:
        cases.append(("rolling update", total - update.unavailable_replicas, total + update.surge_replicas))
    exact = found.binding.replicas_exact
    return [
        Situation(
            name=name,
            replicas=max(0, serving),
            gpus=occupied * gpus_per_replica,
            utilization_ratio=exact / serving if serving > 0 else None,
            holds=serving > 0 and exact <= serving,
        )
        for name, serving, occupied in cases
    ]
