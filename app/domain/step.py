"""The time of one engine iteration: everything about speed comes from this one function."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from app.domain.kernels import KernelsPerLayer
from app.domain.step_constants import Constants
from app.domain.step_kernels import num_kernels
from app.domain.step_work import ACTIVATION_BYTES, NO_CONTEXTS, Contexts, StepWork

Part = Literal["memory", "compute", "communication", "overhead"]
PARTS: tuple[Part, ...] = ("memory", "compute", "communication", "overhead")
OVERLAP = 3.0
"""Reading and computing overlap: their joint time is this norm of both, between the larger (full overlap) and the sum (none)."""
ALL_REDUCES_PER_LAYER = 2
"""One after the mixer and one after the feed-forward part: https://arxiv.org/abs/1909.08053 section 3."""
ALL_TO_ALLS_PER_LAYER = 2
"""Tokens to their experts and back: https://arxiv.org/abs/2006.16668 section 3."""


class IterationTime(NamedTuple):
    """One step of one rank group, and what it is made of [s].

    Reading and computing overlap within each kind of kernel, so that the kernels take between the larger of both and their sum.
    """

    total_s: float
    """Kernels + communication + overhead."""
    dense_s: float
    """Dense products and head, weights read beside them."""
    experts_s: float
    """Products of experts, weights read beside them."""
    attention_s: float
    """Attention of decoding sequences, caches read beside it."""
    prompt_attention_s: float
    """Attention of prompts."""
    memory_s: float
    """All reading, within the kernels."""
    compute_s: float
    """All arithmetic, within the kernels."""
    communication_s: float
    overhead_s: float

    @property
    def binds(self) -> Part:
        """The largest part."""
        times = self.memory_s, self.compute_s, self.communication_s, self.overhead_s
        return PARTS[times.index(max(times))]


class ExpertTimes(NamedTuple):
    """What experts chosen alike take in a step of N tokens."""

    read_s: float
    """Reading all of them on one accelerator [s]; N tokens touch 1 - missed^N of it."""
    missed_ratio: float
    """Chance that a token does not choose an expert: (1 - k/E)^expert_choice_ratio."""
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
    positions_per_sequence: int
    """Tokens that a step computes per decoding sequence."""
    half_tokens: float
    """Tokens of a step at which dense products reach half of their best rate [tokens]."""
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
    """Kernels and scheduler [s]."""
    fixed_s_per_sequence: float
    """Per decoding sequence of the whole group [s]."""

    def iteration(self, num_sequences: float, num_prompt_tokens: float) -> IterationTime:
        """Time of one step with so many decoding sequences and prompt tokens over all dp ranks [s].

        With N = sequences x positions + prompt tokens, joint(a, b) = (a^q + b^q)^(1/q), q = OVERLAP:
        dense = joint(weights, (N + half) x dense + (positions + [prompt] + half) x head);
        experts = joint(read x (1 - missed^N), (N + half) x experts); attention = max(sequences x cache, positions x attention);
        prompt attention = max(cache of a prompt, prompt tokens x attention);
        total = dense + experts + attention + prompt attention + messages + N x sent + fixed + sequences x fixed. Needs N > 0.
        Form: roofline (https://doi.org/10.1145/1498765.1498785) of each kind of kernel, efficiencies and fixed times fitted.
        """
        positions = num_sequences * self.positions_per_sequence
        tokens = positions + num_prompt_tokens
        half = self.half_tokens
        sampled = positions + 1 if num_prompt_tokens else positions
        memory = self.weights_s
        compute = (tokens + half) * self.dense_s_per_token + (sampled + half) * self.head_s_per_position
        dense = (memory**OVERLAP + compute**OVERLAP) ** (1 / OVERLAP)
        experts = 0.0
        for all_s, missed, compute_s, half_tokens in self.experts:
            read_s = all_s * (1.0 - missed**tokens)
            products_s = compute_s * (tokens + half_tokens)
            experts += (read_s**OVERLAP + products_s**OVERLAP) ** (1 / OVERLAP)
            memory += read_s
            compute += products_s
        kv_s, scores_s = num_sequences * self.kv_s_per_sequence, positions * self.attention_s_per_position
        prompt_kv_s = self.prompt_kv_s if num_prompt_tokens else 0.0
        prompt_scores_s = num_prompt_tokens * self.attention_s_per_prompt_token
        attention, prompts = max(kv_s, scores_s), max(prompt_kv_s, prompt_scores_s)
        sent = self.messages_s + tokens * self.sent_s_per_token
        overhead = self.fixed_s + num_sequences * self.fixed_s_per_sequence
        return IterationTime(
            dense + experts + attention + prompts + sent + overhead,
            dense,
            experts,
            attention,
            prompts,
            memory + kv_s + prompt_kv_s,
            compute + scores_s + prompt_scores_s,
            sent,
            overhead,
        )

    def total_s(self, num_sequences: float, num_prompt_tokens: float) -> float:
        """The total of `iteration` alone, for the many steps of which nobody asks for the parts; a test holds both together [s]."""
        positions = num_sequences * self.positions_per_sequence
        tokens = positions + num_prompt_tokens
        half = self.half_tokens
        sampled = positions + 1 if num_prompt_tokens else positions
        compute = (tokens + half) * self.dense_s_per_token + (sampled + half) * self.head_s_per_position
        total: float = (self.weights_s**OVERLAP + compute**OVERLAP) ** (1 / OVERLAP)
        if self.experts:
            experts = 0.0
            for all_s, missed, compute_s, half_tokens in self.experts:
                experts += ((all_s * (1.0 - missed**tokens)) ** OVERLAP + (compute_s * (tokens + half_tokens)) ** OVERLAP) ** (1 / OVERLAP)
            total += experts
        total += max(num_sequences * self.kv_s_per_sequence, positions * self.attention_s_per_position)
        if num_prompt_tokens:
            total += max(self.prompt_kv_s, num_prompt_tokens * self.attention_s_per_prompt_token)
        return total + (self.messages_s + tokens * self.sent_s_per_token) + (self.fixed_s + num_sequences * self.fixed_s_per_sequence)

    def at_contexts(self, at: Contexts) -> "StepTimer":
        """The same deployment at other contexts."""
        if at == self.at:
            return self
        work, constants = self.work, self.constants
        cache_bytes_per_s = constants.cache_bandwidth_ratio * work.bandwidth_bytes_per_s
        attention_flops_per_s = constants.attention_peak_ratio * work.products.sixteen_flops_per_s * work.dp
        return StepTimer(
            work,
            constants,
            at,
            self.positions_per_sequence,
            self.half_tokens,
            self.weights_s,
            at.kv_bytes / work.dp / cache_bytes_per_s,
            at.prompt_kv_bytes / cache_bytes_per_s,
            self.experts,
            self.dense_s_per_token,
            self.head_s_per_position,
            at.decode_attention_flops / attention_flops_per_s,
            at.prompt_attention_flops / attention_flops_per_s,
            self.messages_s,
            self.sent_s_per_token,
            self.fixed_s,
            self.fixed_s_per_sequence,
        )


def step_timer(work: StepWork, constants: Constants, at: Contexts, kernels: KernelsPerLayer | None = None) -> StepTimer:
    """The terms of a step: bytes / (ratio x bandwidth), FLOPs / (ratio x peak), messages, fixed times of `kernels`."""
    model, products, gpus, bandwidth = work.model, work.products, work.num_gpus, work.bandwidth_bytes_per_s
    dense_s = 2 * (model.mixer_params / products.mixer_flops_per_s + model.dense_params / products.dense_flops_per_s)
    messages_s, sent_s = _communication(work, constants)
    launched = 0.0 if kernels is None else num_kernels(work, kernels, constants)
    timer = StepTimer(
        work=work,
        constants=constants,
        at=NO_CONTEXTS,
        positions_per_sequence=work.positions_per_sequence,
        half_tokens=constants.dense_half_tokens,
        weights_s=work.dense_bytes / (constants.bandwidth_ratio * bandwidth),
        kv_s_per_sequence=0.0,
        prompt_kv_s=0.0,
        experts=tuple(_experts(work, constants)),
        dense_s_per_token=dense_s / gpus / constants.dense_peak_ratio,
        head_s_per_position=2 * model.head_params / products.sixteen_flops_per_s / gpus / constants.dense_peak_ratio,
        attention_s_per_position=0.0,
        attention_s_per_prompt_token=0.0,
        messages_s=messages_s,
        sent_s_per_token=sent_s,
        fixed_s=launched * constants.kernel_s + constants.step_s,
        fixed_s_per_sequence=constants.sequence_s / work.dp,
    )
    return timer.at_contexts(at)


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
        share = work.expert_bytes * experts.num_expert_params / params
        found.append(
            ExpertTimes(
                read_s=share / (constants.expert_bandwidth_ratio * work.bandwidth_bytes_per_s),
                missed_ratio=(1.0 - chosen) ** constants.expert_choice_ratio,
                compute_s_per_token=2 * experts.num_expert_params * chosen / rate,
                half_tokens=constants.expert_half_tokens / chosen,
            )
        )
    return found


def _communication(work: StepWork, constants: Constants) -> tuple[float, float]:
    """(fixed time of all collectives, their transfer per token of the group) of a step [s].

    tp: all-reduces of N/dp x 2 H (t - 1)/t x 2 bytes; dp: all-to-alls of N/n x min(k, n) x H x 2 bytes; pp: N/(dp t) x H x 2 bytes over
    each stage boundary; each over one way of the link. A link that is not known costs its message only. Norms that span all heads add
    a message each.
    """
    model, fixed_s, sent_s = work.model, 0.0, 0.0

    def one_way_s(num_bytes: float, bytes_per_s: float | None) -> float:
        return num_bytes / (constants.link_ratio * bytes_per_s) if bytes_per_s else 0.0

    stream = model.hidden_size * ACTIVATION_BYTES
    if work.tp > 1:
        count = ALL_REDUCES_PER_LAYER * model.num_layers
        fixed_s += (count + model.layers.spanning_norm) * constants.message_s
        sent_s += count * one_way_s(stream / work.dp * 2 * (work.tp - 1) / work.tp, work.tensor_link.one_way_bytes_per_s)
    for experts in model.experts if work.dp > 1 else ():
        count = ALL_TO_ALLS_PER_LAYER * experts.num_layers
        fixed_s += count * constants.message_s
        sent_s += count * one_way_s(stream * work.expert_copies(experts) / work.num_gpus, work.expert_link.one_way_bytes_per_s)
    if work.pp > 1:
        fixed_s += (work.pp - 1) * constants.message_s
        sent_s += (work.pp - 1) * one_way_s(stream / work.dp / work.tp, work.stage_link.one_way_bytes_per_s)
    return fixed_s, sent_s
