"""Recurrent mixers (linear attention, state space): each knows its parameters and the fixed state that it keeps per sequence.

Parameter formulas follow the layer definitions of the public implementations
(https://github.com/huggingface/transformers/tree/main/src/transformers/models); the catalog test recomputes every
bundled model with them.
"""

from typing import Literal

from pydantic import PositiveInt

from app.domain.attention import LayerCache
from app.domain.tensors import Tensor, matrices
from app.domain.value import Given


class GatedDeltaNet(Given):
    """Gated delta rule linear attention. Source: https://arxiv.org/abs/2412.06464."""

    kind: Literal["gated_delta_net"] = "gated_delta_net"
    num_key_heads: PositiveInt
    """Query and key heads."""
    num_value_heads: PositiveInt
    """Value heads."""
    key_head_dim: PositiveInt
    """Width of a key head."""
    value_head_dim: PositiveInt
    """Width of a value head."""
    conv_kernel_size: PositiveInt
    """Taps of the short convolution."""

    @property
    def _convolved(self) -> int:
        return 2 * self.num_key_heads * self.key_head_dim + self.num_value_heads * self.value_head_dim

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """One projection in, one out; convolution, decay and its gates, norm."""
        value = self.num_value_heads * self.value_head_dim
        small = self._convolved * self.conv_kernel_size + 2 * self.num_value_heads * (hidden_size + 1) + self.value_head_dim
        return matrices(
            Tensor("recurrent", split=hidden_size * (self._convolved + value)),
            Tensor("recurrent", split=value * hidden_size),
            Tensor("small", split=small - self.value_head_dim, whole=self.value_head_dim),
        )

    def num_params(self, hidden_size: int) -> int:
        """Parameters of the mixer."""
        return sum(tensor.num_params for tensor in self.tensors(hidden_size))

    def cache(self, tp: int = 1) -> LayerCache:
        """Fixed state and convolution tail, divided by `tp`."""
        state = self.num_value_heads * self.key_head_dim * self.value_head_dim
        return LayerCache(state=-(-state // tp), convolution=-(-self._convolved * (self.conv_kernel_size - 1) // tp))


class KimiDeltaAttention(Given):
    """Delta attention with a gate per channel. Source: https://arxiv.org/abs/2510.26692."""

    kind: Literal["kimi_delta_attention"] = "kimi_delta_attention"
    num_heads: PositiveInt
    """Heads."""
    head_dim: PositiveInt
    """Width of a head."""
    conv_kernel_size: PositiveInt
    """Taps of the short convolution."""
    full_rank_gate: bool = False
    """The output gate is a full projection instead of a low-rank one."""

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """Fused query, key and value, gates (the narrow side of low-rank ones on every rank), output; convolutions, decay, norm."""
        width = self.num_heads * self.head_dim
        low_rank = 1 if self.full_rank_gate else 2
        return matrices(
            Tensor("recurrent", split=3 * hidden_size * width),
            Tensor("recurrent", split=hidden_size * width * self.full_rank_gate),
            Tensor("recurrent", split=low_rank * self.head_dim * width, whole=low_rank * self.head_dim * hidden_size),
            Tensor("recurrent", split=width * hidden_size),
            Tensor(
                "small",
                split=3 * width * self.conv_kernel_size + self.num_heads * (hidden_size + 1) + width,
                whole=self.head_dim,
            ),
        )

    def num_params(self, hidden_size: int) -> int:
        """Parameters of the mixer."""
        return sum(tensor.num_params for tensor in self.tensors(hidden_size))

    def cache(self, tp: int = 1) -> LayerCache:
        """Fixed state and convolution tails, divided by `tp`."""
        convolution = 3 * self.num_heads * self.head_dim * (self.conv_kernel_size - 1)
        return LayerCache(state=-(-self.num_heads * self.head_dim**2 // tp), convolution=-(-convolution // tp))


class Mamba1(Given):
    """Selective state space layer. Source: https://arxiv.org/abs/2312.00752."""

    kind: Literal["mamba1"] = "mamba1"
    inner_dim: PositiveInt
    """Width of the expanded stream."""
    state_dim: PositiveInt
    """State per channel."""
    dt_rank: PositiveInt
    """Rank of the time-step projection."""
    conv_kernel_size: PositiveInt
    """Taps of the short convolution."""

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """Projections in and out, of time step and state inputs; convolution, decay, skip, and the norms of Jamba."""
        inner, state, rank = self.inner_dim, self.state_dim, self.dt_rank
        return matrices(
            Tensor("recurrent", split=2 * hidden_size * inner),
            Tensor("recurrent", split=hidden_size * inner),
            Tensor("recurrent", split=inner * (rank + 2 * state)),
            Tensor("recurrent", split=rank * inner),
            Tensor("small", split=inner * (self.conv_kernel_size + 1) + 2 * inner + inner * state, whole=rank + 2 * state),
        )

    def num_params(self, hidden_size: int) -> int:
        """Parameters of the mixer."""
        return sum(tensor.num_params for tensor in self.tensors(hidden_size))

    def cache(self, tp: int = 1) -> LayerCache:
        """Fixed state and convolution tail, divided by `tp`."""
        convolution = self.inner_dim * (self.conv_kernel_size - 1)
        return LayerCache(state=-(-self.inner_dim * self.state_dim // tp), convolution=-(-convolution // tp))


class Mamba2(Given):
    """State space duality layer. Source: https://arxiv.org/abs/2405.21060."""

    kind: Literal["mamba2"] = "mamba2"
    num_heads: PositiveInt
    """Heads."""
    head_dim: PositiveInt
    """Width of a head."""
    state_dim: PositiveInt
    """State per head channel."""
    num_groups: PositiveInt
    """Groups that share the state inputs."""
    conv_kernel_size: PositiveInt
    """Taps of the short convolution."""
    conv_bias: bool = False
    """The convolution has a bias."""

    @property
    def _convolved(self) -> int:
        return self.num_heads * self.head_dim + 2 * self.num_groups * self.state_dim

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """One projection in, one out; convolution, decay, skip, time-step bias, norm."""
        inner = self.num_heads * self.head_dim
        small = self._convolved * (self.conv_kernel_size + self.conv_bias) + 3 * self.num_heads + inner
        return matrices(
            Tensor("recurrent", split=hidden_size * (inner + self._convolved + self.num_heads)),
            Tensor("recurrent", split=inner * hidden_size),
            Tensor("small", split=small),
        )

    def num_params(self, hidden_size: int) -> int:
        """Parameters of the mixer."""
        return sum(tensor.num_params for tensor in self.tensors(hidden_size))

    def cache(self, tp: int = 1) -> LayerCache:
        """Fixed state and convolution tail, divided by `tp`."""
        state = self.num_heads * self.head_dim * self.state_dim
        return LayerCache(state=-(-state // tp), convolution=-(-self._convolved * (self.conv_kernel_size - 1) // tp))


class LightningAttention(Given):
    """Linear attention with one matrix of state per head. Source: https://arxiv.org/abs/2501.08313."""

    kind: Literal["lightning_attention"] = "lightning_attention"
    num_heads: PositiveInt
    """Heads."""
    head_dim: PositiveInt
    """Width of a head."""

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """Query, key and value as one projection, gate, output; norm."""
        width = self.num_heads * self.head_dim
        return matrices(
            Tensor("recurrent", split=3 * hidden_size * width),
            Tensor("recurrent", split=hidden_size * width),
            Tensor("recurrent", split=hidden_size * width),
            Tensor("small", split=width),
        )

    def num_params(self, hidden_size: int) -> int:
        """Parameters of the mixer."""
        return sum(tensor.num_params for tensor in self.tensors(hidden_size))

    def cache(self, tp: int = 1) -> LayerCache:
        """Fixed state, divided by `tp`."""
        return LayerCache(state=-(-self.num_heads * self.head_dim**2 // tp))
