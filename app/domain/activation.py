"""What an engine's profile run takes beside weights: sampler, forward pass and vision encoder."""

from typing import NamedTuple

from app.domain.engine import ActivationModel, EncoderPeak
from app.domain.llm import Llm
from app.domain.recurrent import GatedDeltaNet, KimiDeltaAttention

VOCABULARY_PADDING = 64
"""Rows of the vocabulary are padded to a multiple of this. Source:
https://github.com/vllm-project/vllm/blob/v0.19.1/vllm/model_executor/layers/vocab_parallel_embedding.py (DEFAULT_VOCAB_PADDING_SIZE)."""
ELEMENT_BYTES = 2
"""Activations are 16 bits wide."""


class ActivationPeak(NamedTuple):
    """The terms of the peak; the largest of the first three counts, the inputs come on top [bytes]."""

    sampler_bytes: int
    forward_bytes: int
    encoder_bytes: int
    inputs_bytes: int
    is_known: bool
    """False where the shape of the model is not known and the engine's usual figure stands in."""

    @property
    def total_bytes(self) -> int:
        """max(sampler, forward, encoder) + inputs [bytes]."""
        return max(self.sampler_bytes, self.forward_bytes, self.encoder_bytes) + self.inputs_bytes

    @property
    def largest(self) -> str:
        """The term that decides."""
        terms = {"sampler": self.sampler_bytes, "forward pass": self.forward_bytes, "vision encoder": self.encoder_bytes}
        return max(terms, key=lambda name: terms[name])


def activation_peak(
    llm: Llm,
    model: ActivationModel,
    *,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    max_model_len_tokens: int | None,
    tp: int,
    dp: int = 1,
    whole_experts: bool = False,
    leanest: bool = False,
) -> ActivationPeak:
    """Peak of the profile run on the rank that samples.

    sampler = (c S + 4 rows) V, S sequences (at most the batched tokens), V the padded vocabulary, plus expert workspaces where they
    persist; forward = inner + 4 M H with inner = 6 M I / tp for dense layers, M k (max(2 I, H) + I) 2 bytes for k experts per token
    (`_expert_workspace_bytes`), or what a delta-rule layer holds where that is more (`_recurrent_bytes`); inputs = 2 M H. Counts, widths
    and tokens in; bytes out. Logits are gathered, so tp does not divide the sampler.
    """
    hidden, vocabulary = llm.hidden_size, llm.vocab_size
    if hidden is None or llm.layer_groups is None:
        return ActivationPeak(0, model.unknown.typical_bytes, 0, 0, False)
    tokens, rows = max_num_batched_tokens, min(max_num_seqs, max_num_batched_tokens)
    ranks = dp if model.gathers_ranks else 1
    workspace = _expert_workspace_bytes(llm, hidden, tokens * ranks, 1 if whole_experts else tp * ranks)
    sampler = 0.0
    if vocabulary is not None and rows:
        padded = -(-vocabulary // VOCABULARY_PADDING) * VOCABULARY_PADDING
        per_logit = model.bytes_per_logit_low if leanest else model.bytes_per_logit
        sampler = (per_logit * rows + 4 * model.num_logit_rows_extra) * padded
        sampler += workspace if model.workspace_persists else 0
    inner = workspace or model.bytes_per_inner_element * tokens * _dense_width(llm) / tp
    inner = max(inner, tokens * _recurrent_bytes(llm, model) / tp)
    forward = inner + model.bytes_per_hidden_element * tokens * hidden
    encoder = _encoder_bytes(llm, model, max_model_len_tokens, tp)
    return ActivationPeak(int(sampler), int(forward), encoder, int(model.bytes_per_kept_element * tokens * hidden), True)


def _dense_width(llm: Llm) -> int:
    parts = (part for group in llm.layer_groups or () for part in group.feed_forward if part.kind == "dense")
    return max((part.intermediate_size for part in parts), default=0)


def _recurrent_bytes(llm: Llm, model: ActivationModel) -> float:
    """What a delta-rule layer holds per token in the profile run, before it is divided by tp [bytes/token].

    One gate per head: q, k, v and the output gate of one projection, the output and the normed output, in 16 bits. The core, which takes
    several times as much, is skipped for want of a cache, so that a long prompt may need more than was profiled. Sources:
    https://github.com/vllm-project/vllm/blob/v0.20.0/vllm/model_executor/layers/mamba/gdn_linear_attn.py (forward_cuda, _forward_core),
    https://github.com/vllm-project/vllm/issues/52872 (110 kB per batched token of a model of 5,120 x 17,408, printed at four sizes).
    """
    widest = 0.0
    for group in llm.layer_groups or ():
        if isinstance(group.mixer, GatedDeltaNet):
            mixer = group.mixer
            keys, values = mixer.num_key_heads * mixer.key_head_dim, mixer.num_value_heads * mixer.value_head_dim
            widest = max(widest, ELEMENT_BYTES * (2 * keys + 4 * values))
        elif isinstance(group.mixer, KimiDeltaAttention):
            widest = max(widest, model.bytes_per_channel_gated_element * group.mixer.num_heads * group.mixer.head_dim)
    return widest


def _expert_workspace_bytes(llm: Llm, hidden: int, tokens: int, shards: int) -> int:
    """tokens x experts per token x (max(2 I, H) + I) x 2 bytes of the widest experts, I the inner width / shards; 0 for a dense model.

    With expert parallelism ranks compute whole experts (one shard), and data-parallel ranks see the tokens of all of them: buffers hold
    every (token, expert) pair whether or not the expert is on the rank. Sources:
    https://github.com/vllm-project/vllm/blob/v0.10.1.1/vllm/model_executor/layers/fused_moe/config.py (FusedMoEParallelConfig),
    https://github.com/vllm-project/vllm/blob/v0.10.1.1/vllm/model_executor/layers/fused_moe/fused_moe.py (intermediate caches),
    https://github.com/vllm-project/vllm/blob/v0.10.1.1/vllm/distributed/device_communicators/all2all.py (NaiveAll2AllManager).
    """
    widest = 0.0
    for group in llm.layer_groups or ():
        for part in group.feed_forward:
            if part.kind == "moe":
                inner = part.intermediate_size / shards
                widest = max(widest, part.num_experts_per_token * (max(2 * inner, part.latent_size or hidden) + inner))
    return int(tokens * widest * ELEMENT_BYTES)


def _encoder_bytes(llm: Llm, model: ActivationModel, length: int | None, tp: int) -> int:
    if not llm.num_vision_params:
        return 0
    found = next((each for each in model.encoders if any((llm.model_type or "").startswith(kind) for kind in each.model_types)), None)
    return _scaled(found, length, tp) if found is not None else 0


def _scaled(encoder: EncoderPeak, length: int | None, tp: int) -> int:
    whole = encoder.fixed_bytes + encoder.shared_bytes / tp
    if encoder.full_length_tokens is None or length is None:
        return int(whole)
    return int(whole * min(1, length / encoder.full_length_tokens))
