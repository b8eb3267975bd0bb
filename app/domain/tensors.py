"""Weight tensors of a model as engines keep them: what each holds and how tensor parallelism divides it."""

from typing import Literal, NamedTuple

TensorClass = Literal[
    "embedding", "head", "attention", "recurrent", "dense", "shared", "experts", "expert_bias", "router", "small", "extra", "vision"
]
"""What a quantisation tells apart. embedding and head: the vocabulary tables; attention, recurrent: linear layers of the mixers;
dense, shared, experts: linear layers of feed-forward parts, of shared experts and of routed experts; small: norms, biases,
convolutions, gates of one value per head; extra: what the catalog lists outside the layers; vision: tower and projector."""


class ExpertStack(NamedTuple):
    """One tensor that holds a matrix, or two side by side, of every routed expert of a layer."""

    num_experts: int
    num_matrices: int
    outer_dim: int
    """Width of the stream that the experts read and write."""
    inner_dim: int
    """Inner width of one expert; tensor parallelism divides it."""

    @property
    def num_params(self) -> int:
        """Elements: experts x matrices x outer x inner."""
        return self.num_experts * self.num_matrices * self.outer_dim * self.inner_dim


class Tensor(NamedTuple):
    """One tensor as the engine allocates it, or the small ones of a layer together, in elements."""

    kind: TensorClass
    split: int = 0
    """Elements that tensor parallelism divides."""
    kv: int = 0
    """Elements that belong to key/value heads: divided by tp as long as every rank keeps one head."""
    num_kv_heads: int = 1
    whole: int = 0
    """Elements that every rank holds."""
    stack: ExpertStack | None = None
    """The shape, for routed experts; `split` is then all of it."""
    expands_latent: bool = False
    """Up-projection of a cached latent, which engines fold into queries and outputs and then keep in 16 bits as well."""

    @property
    def num_params(self) -> int:
        """Elements over the whole model."""
        return self.split + self.kv + self.whole

    def on_rank(self, tp: int) -> int:
        """Elements of one tensor-parallel rank: split/tp + kv/min(tp, kv_heads) + whole.

        >>> Tensor("attention", split=4096 * 4096, kv=2 * 1024 * 4096, num_kv_heads=8).on_rank(16)
        2097152
        """
        return -(-self.split // tp) + -(-self.kv // min(tp, self.num_kv_heads)) + self.whole


def matrices(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors that hold anything."""
    return tuple(tensor for tensor in tensors if tensor.num_params)
