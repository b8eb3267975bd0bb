"""Recurrent mixers (linear attention, state space): each knows its parameters and the fixed state that it keeps per sequence.

Parameter formulas follow the layer definitions of the public implementations
(https://github.com/huggingface/transformers/tree/main/src/transformers/models); the catalog test recomputes every
bundled model with them.
"""

from typing import Literal

from pydantic import PositiveInt

from app.domain.attention import LayerCache
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

    def num_params(self, hidden_size: int) -> int:
        """Parameters of the mixer: projections, convolution, decay, norm and output."""
        value = self.num_value_heads * self.value_head_dim
        total = hidden_size * (self._convolved + value + 2 * self.num_value_heads) + self._convolved * self.conv_kernel_size
        return total + 2 * self.num_value_heads + self.value_head_dim + value * hidden_size

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

    def num_params(self, hidden_size: int) -> int:
        """Parameters of the mixer: projections, convolutions, decay and output gates, norm."""
        width = self.num_heads * self.head_dim
        low_rank = self.head_dim * (hidden_size + width)
        total = 4 * hidden_size * width + 3 * width * self.conv_kernel_size + hidden_size * self.num_heads
        total += low_rank + self.num_heads + width + self.head_dim
        return total + (hidden_size * width if self.full_rank_gate else low_rank)

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

    def num_params(self, hidden_size: int) -> int:
        """Parameters of the mixer, with the norms on the time step and the state inputs (Jamba)."""
        inner, state, rank = self.inner_dim, self.state_dim, self.dt_rank
        total = 3 * hidden_size * inner + inner * (self.conv_kernel_size + 1) + inner * (rank + 2 * state)
        return total + rank * inner + inner + inner * state + inner + rank + 2 * state

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

    def num_params(self, hidden_size: int) -> int:
        """Parameters of the mixer: projections, convolution, decay, skip, time-step bias, norm and output."""
        inner = self.num_heads * self.head_dim
        total = hidden_size * (inner + self._convolved + self.num_heads) + self._convolved * (self.conv_kernel_size + self.conv_bias)
        return total + 3 * self.num_heads + inner + inner * hidden_size

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

    def num_params(self, hidden_size: int) -> int:
        """Parameters of the mixer: query, key, value, gate and output projections, norm."""
        width = self.num_heads * self.head_dim
        return 5 * hidden_size * width + width

    def cache(self, tp: int = 1) -> LayerCache:
        """Fixed state, divided by `tp`."""
        return LayerCache(state=-(-self.num_heads * self.head_dim**2 // tp))
