"""Feed-forward parts of a transformer layer: dense, or a mixture of experts."""

from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from app.domain.attention import Count
from app.domain.tensors import ExpertStack, Tensor, matrices
from app.domain.value import Given


class DenseFeedForward(Given):
    """A feed-forward part that every token passes through."""

    kind: Literal["dense"] = "dense"
    intermediate_size: PositiveInt
    """Inner width."""
    num_matrices: Annotated[int, Field(ge=2, le=3)] = 3
    """3 for a gated unit (gate, up, down), 2 for up and down."""
    bias: bool = False
    """Every matrix has a bias."""

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """Gate and up projection as one tensor, down projection, biases."""
        one = hidden_size * self.intermediate_size
        bias = self.intermediate_size * (self.num_matrices - 1) + hidden_size if self.bias else 0
        return matrices(Tensor("dense", split=(self.num_matrices - 1) * one), Tensor("dense", split=one), Tensor("small", whole=bias))

    def num_params(self, hidden_size: int, *, active: bool = False) -> int:
        """Parameters; all of them work on every token."""
        return sum(tensor.num_params for tensor in self.tensors(hidden_size))

    def num_expert_params(self, hidden_size: int) -> int:
        """Parameters of routed experts: none."""
        return 0


class MoeFeedForward(Given):
    """Mixture of experts: a router sends each token to a few of many experts, shared experts see every token."""

    kind: Literal["moe"] = "moe"
    num_experts: PositiveInt
    """Routed experts."""
    num_experts_per_token: PositiveInt
    """Experts that work on one token."""
    intermediate_size: PositiveInt
    """Inner width of one expert."""
    num_matrices: Annotated[int, Field(ge=2, le=3)] = 3
    """3 for a gated unit (gate, up, down), 2 for up and down."""
    shared_intermediate_size: Count = 0
    """Inner width of all shared experts together."""
    shared_gate: bool = False
    """A gate of one value per token on the shared experts."""
    router_bias: bool = False
    """One correction bias per expert."""
    expert_bias: bool = False
    """Every expert matrix has a bias."""
    latent_size: PositiveInt | None = None
    """Experts work in a space of this width, reached by one projection in and one out."""
    num_latent_norm_params: Count = 0
    """Parameters of the norm in the latent space."""
    num_router_extra_params: Count = 0
    """Further router parameters (scales)."""
    num_hash_table_entries: Count = 0
    """Entries of a token-to-expert table."""

    @model_validator(mode="after")
    def _chosen_experts_exist(self) -> "MoeFeedForward":
        if self.num_experts_per_token > self.num_experts:
            raise ValueError(f"num_experts_per_token {self.num_experts_per_token} is more than num_experts {self.num_experts}")
        return self

    def _per_expert(self, hidden_size: int) -> int:
        bias = self.intermediate_size * (self.num_matrices - 1) + hidden_size if self.expert_bias else 0
        return self.num_matrices * (self.latent_size or hidden_size) * self.intermediate_size + bias

    def num_expert_params(self, hidden_size: int) -> int:
        """Parameters of all routed experts."""
        return self.num_experts * self._per_expert(hidden_size)

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """Two stacks of expert matrices (gate and up; down), biases of experts, shared experts, latent projections, router."""
        outer, shared = self.latent_size or hidden_size, hidden_size * self.shared_intermediate_size
        wide = ExpertStack(self.num_experts, self.num_matrices - 1, outer, self.intermediate_size)
        narrow = ExpertStack(self.num_experts, 1, outer, self.intermediate_size)
        small = hidden_size * self.shared_gate + self.num_latent_norm_params + self.num_router_extra_params
        return matrices(
            Tensor("experts", split=wide.num_params, stack=wide),
            Tensor("experts", split=narrow.num_params, stack=narrow),
            Tensor("expert_bias", split=self.num_expert_params(hidden_size) - wide.num_params - narrow.num_params),
            Tensor("shared", split=(self.num_matrices - 1) * shared),
            Tensor("shared", split=shared),
            Tensor("shared", whole=2 * hidden_size * (self.latent_size or 0)),
            Tensor("router", whole=self.num_experts * (hidden_size + self.router_bias)),
            Tensor("small", whole=small + self.num_hash_table_entries),
        )

    def num_params(self, hidden_size: int, *, active: bool = False) -> int:
        """Parameters of router, shared and routed experts; with `active` only the experts that work on one token."""
        total = sum(tensor.num_params for tensor in self.tensors(hidden_size))
        return total - (self.num_experts - self.num_experts_per_token) * self._per_expert(hidden_size) * active


FeedForward = Annotated[DenseFeedForward | MoeFeedForward, Field(discriminator="kind")]
