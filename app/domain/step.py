"""The time of one engine iteration: everything about speed comes from this one function."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from app.domain.step_constants import Constants
from app.domain.step_work import ACTIVATION_BYTES, Contexts, StepWork

Part = Literal["memory", "compute", "communication", "overhead"]
OVERLAP = 3.0
"""Reading and computing overlap: their joint time is the 3-norm of both, between the larger (full overlap) and the sum (none)."""
ALL_REDUCES_PER_LAYER = 2
"""One after the mixer and one after the feed-forward part: https://arxiv.org/abs/1909.08053 section 3."""
ALL_TO_ALLS_PER_LAYER = 2
"""Tokens to their experts and back: https://arxiv.org/abs/2006.16668 section 3."""


class IterationTime(NamedTuple):
    """One step of one rank group, and what it is made of [s]."""

    total_s: float
    """joint of memory and compute + communication + overhead."""
    memory_s: float
    compute_s: float
    communication_s: float
    overhead_s: float

    @property
    def binds(self) -> Part:
        """The largest part."""
        parts: dict[Part, float] = {
            "memory": self.memory_s,
            "compute": self.compute_s,
            "communication": self.communication_s,
            "overhead": self.overhead_s,
        }
        return max(parts, key=lambda name: parts[name])


class ExpertTimes(NamedTuple):
    """What experts chosen alike take in a step of N tokens."""

    read_s: float
    """Reading all of them on one accelerator [s]; N tokens touch 1 - missed^N of it."""
    missed_ratio: float
    """Chance that a token does not choose an expert: 1 - k/E."""
    compute_s_per_token: float
    """Their products at full rate [s]."""
    half_tokens: float
    """Tokens of a step at which the products reach half of that rate: expert_half_tokens x E/k."""


@dataclass(frozen=True, slots=True)
class StepTimer:
    """Times that a step is the sum of, for one deployment at given contexts; every term is on one accelerator."""

    work: StepWork
    constants: Constants
    at: Contexts
    weights_s: float
    """Reading the weights that every step reads [s]."""
    kv_s_per_sequence: float
    """Reading the cache of one decoding sequence of the whole group [s]."""
    prompt_kv_s: float
    """Reading the cache of a prompt [s]."""
    experts: tuple[ExpertTimes, ...]
    dense_s_per_token: float
    """Dense products at full rate [s]."""
    head_s_per_position: float
    """Head at full rate [s]."""
    attention_s_per_position: float
    """Attention of one decoding position of the whole group [s]."""
    attention_s_per_prompt_token: float
    """Attention of one prompt token of the whole group [s]."""
    messages_s: float
    """Fixed time of all collectives of a step [s]."""
    sent_s_per_token: float
    """Their transfer per token of the whole group [s]."""
    fixed_s: float
    """Layers, experts and scheduler [s]."""
    fixed_s_per_sequence: float
    """Per decoding sequence of the whole group [s]."""

    def iteration(self, num_sequences: float, num_prompt_tokens: float) -> IterationTime:
        """Time of one step with so many decoding sequences and prompt tokens over all dp ranks [s].

        N = sequences x positions + prompt tokens; memory = weights + experts x (1 - missed^N) + sequences x cache + cache of a prompt;
        compute = dense x (N + half) + head x (positions + 1) (N + half)/N + experts x (N + half) + attention;
        total = (memory^3 + compute^3)^(1/3) + messages + N x sent + fixed + sequences x fixed. Needs N > 0. Form: roofline
        (https://doi.org/10.1145/1498765.1498785) with efficiencies and fixed times fitted to measurements.
        """
        positions = num_sequences * self.work.positions_per_sequence
        tokens = positions + num_prompt_tokens
        memory = self.weights_s + num_sequences * self.kv_s_per_sequence + (self.prompt_kv_s if num_prompt_tokens else 0.0)
        half = tokens + self.constants.dense_half_tokens
        compute = half * (self.dense_s_per_token + self.head_s_per_position * (positions + 1) / tokens)
        compute += positions * self.attention_s_per_position + num_prompt_tokens * self.attention_s_per_prompt_token
        for read_s, missed, compute_s, half_tokens in self.experts:
            memory += read_s * (1.0 - missed**tokens)
            compute += compute_s * (tokens + half_tokens)
        sent = self.messages_s + tokens * self.sent_s_per_token
        overhead = self.fixed_s + num_sequences * self.fixed_s_per_sequence
        joint = (memory**OVERLAP + compute**OVERLAP) ** (1 / OVERLAP)
        return IterationTime(joint + sent + overhead, memory, compute, sent, overhead)


def step_timer(work: StepWork, constants: Constants, at: Contexts) -> StepTimer:
    """The terms of a step: bytes / (bandwidth_ratio x bandwidth), FLOPs / (ratio x peak), messages, fixed times."""
    model, products, gpus = work.model, work.products, work.num_gpus
    bandwidth = constants.bandwidth_ratio * work.bandwidth_bytes_per_s
    dense_s = 2 * (model.mixer_params / products.mixer_flops_per_s + model.dense_params / products.dense_flops_per_s)
    attention = constants.attention_peak_ratio * products.sixteen_flops_per_s * work.dp
    messages_s, sent_s = _communication(work, constants)
    return StepTimer(
        work=work,
        constants=constants,
        at=at,
        weights_s=work.dense_bytes / bandwidth,
        kv_s_per_sequence=at.kv_bytes / work.dp / bandwidth,
        prompt_kv_s=at.prompt_kv_bytes / bandwidth,
        experts=tuple(_experts(work, constants)),
        dense_s_per_token=dense_s / gpus / constants.dense_peak_ratio,
        head_s_per_position=2 * model.head_params / products.sixteen_flops_per_s / gpus / constants.dense_peak_ratio,
        attention_s_per_position=at.decode_attention_flops / attention,
        attention_s_per_prompt_token=at.prompt_attention_flops / attention,
        messages_s=messages_s,
        sent_s_per_token=sent_s,
        fixed_s=model.num_layers * constants.layer_s + model.num_expert_layers * constants.expert_layer_s + constants.step_s,
        fixed_s_per_sequence=constants.sequence_s / work.dp,
    )


def _experts(work: StepWork, constants: Constants) -> list[ExpertTimes]:
    """Products of narrow experts reach w / (w + half width) of the best rate, w their width on one accelerator."""
    found = []
    params = sum(each.num_expert_params for each in work.model.experts)
    for experts in work.model.experts:
        chosen = experts.num_experts_per_token / experts.num_experts
        width = work.expert_width(experts)
        rate = constants.expert_peak_ratio * work.products.expert_flops_per_s * work.num_gpus
        if width:
            rate *= width / (width + constants.expert_half_width_size)
        found.append(
            ExpertTimes(
                read_s=work.expert_bytes * experts.num_expert_params / params / (constants.bandwidth_ratio * work.bandwidth_bytes_per_s),
                missed_ratio=1.0 - chosen,
                compute_s_per_token=2 * experts.num_expert_params * chosen / rate,
                half_tokens=constants.expert_half_tokens / chosen,
            )
        )
    return found


def _communication(work: StepWork, constants: Constants) -> tuple[float, float]:
    """(fixed time of all collectives, their transfer per token of the group) of a step [s].

    tp: all-reduces of N/dp x 2 H (t - 1)/t x 2 bytes; dp: all-to-alls of N/n x min(k, n) x H x 2 bytes; pp: N/(dp t) x H x 2 bytes over
    each stage boundary; each over one way of the link. A link that is not known costs its message only.
    """
    model, fixed_s, sent_s = work.model, 0.0, 0.0

    def one_way_s(num_bytes: float, bytes_per_s: float | None) -> float:
        return num_bytes / (constants.link_ratio * bytes_per_s) if bytes_per_s else 0.0

    stream = model.hidden_size * ACTIVATION_BYTES
    if work.tp > 1:
        count = ALL_REDUCES_PER_LAYER * model.num_layers
        fixed_s += count * constants.message_s
        sent_s += count * one_way_s(stream / work.dp * 2 * (work.tp - 1) / work.tp, work.tensor_link.one_way_bytes_per_s)
    for experts in model.experts if work.dp > 1 else ():
        count = ALL_TO_ALLS_PER_LAYER * experts.num_layers
        fixed_s += count * constants.message_s
        sent_s += count * one_way_s(stream * work.expert_copies(experts) / work.num_gpus, work.expert_link.one_way_bytes_per_s)
    if work.pp > 1:
        fixed_s += (work.pp - 1) * constants.message_s
        sent_s += (work.pp - 1) * one_way_s(stream / work.dp / work.tp, work.stage_link.one_way_bytes_per_s)
    return fixed_s, sent_s
