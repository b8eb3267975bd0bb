"""What one token costs in a model, whatever it runs on: parameters by how they are used, experts, attention."""

import math
from typing import NamedTuple

from app.domain.attention import Attention, CompressedAttention, LatentAttention
from app.domain.attention_reach import AttentionReach, attention_reaches
from app.domain.llm import Llm
from app.domain.tensors import TensorClass

MIXERS: tuple[TensorClass, ...] = ("attention", "recurrent")
DENSE: tuple[TensorClass, ...] = ("dense", "shared", "router")
EXPERTS: tuple[TensorClass, ...] = ("experts", "expert_bias")
SMALL: tuple[TensorClass, ...] = ("small",)
USUAL_ASPECT = 128
"""hidden size / layers of a decoder of the usual shape: https://arxiv.org/abs/2001.08361 section 3.1, 80 layers of 8192 wide streams in
https://arxiv.org/abs/2307.09288."""


class ExpertWork(NamedTuple):
    """Layers whose tokens choose among experts alike."""

    num_layers: int
    num_experts: float
    num_experts_per_token: float
    num_expert_params: int
    """Matrices of all experts of all these layers."""
    intermediate_size: int
    """Inner width of one expert; 0 where it is not known."""

    def touched_ratio(self, num_tokens: float) -> float:
        """Share of the experts that a step over so many tokens reads: 1 - (1 - k/E)^n, chosen evenly and independently.

        >>> round(ExpertWork(58, 256, 8, 1, 2048).touched_ratio(32), 3)
        0.638
        """
        return 1.0 - math.pow(1.0 - self.num_experts_per_token / self.num_experts, num_tokens)


class LayerCounts(NamedTuple):
    """Layers by what they launch."""

    attention: float
    """Layers with attention over keys and values."""
    qk_norm: float = 0
    """Those of them that normalise queries and keys."""
    spanning_norm: float = 0
    """Those whose norm spans all heads, so that ranks exchange its sum."""
    latent: float = 0
    """Layers with latent or compressed attention."""
    indexer: float = 0
    """Layers with an indexer."""
    recurrent: float = 0
    """Layers with a recurrent state."""
    dense: float = 0
    """Layers with a dense feed-forward part."""
    expert: float = 0
    """Layers with routed experts."""
    shared: float = 0
    """Layers with shared experts."""


class ModelWork(NamedTuple):
    """Sums over the layers of a model that every step is computed from."""

    is_known: bool
    """False where only the parameter count is known, or the layers do not add up to it."""
    num_layers: float
    """Layers, from the usual shape where they are not known."""
    layers: LayerCounts
    hidden_size: int
    mixer_params: int
    """Linear layers of attention and recurrence."""
    dense_params: int
    """Linear layers of dense feed-forward parts, of shared experts, and routers."""
    head_params: int
    """The output head, which works on sampled positions only."""
    experts: tuple[ExpertWork, ...]
    reaches: tuple[AttentionReach, ...]

    @property
    def linear_params(self) -> float:
        """Parameters that work on one token, the head left out."""
        chosen = sum(each.num_expert_params * each.num_experts_per_token / each.num_experts for each in self.experts)
        return self.mixer_params + self.dense_params + chosen


def usual_num_layers(num_params: int) -> float:
    """Layers of a model of the usual shape: P = 12 L d^2 with d = 128 L, so L = (P / (12 x 128^2))^(1/3).

    >>> round(usual_num_layers(70_000_000_000))
    71
    """
    return math.cbrt(num_params / (12 * USUAL_ASPECT * USUAL_ASPECT))


def model_work(llm: Llm) -> ModelWork:
    """The sums of a model, kept with it: every request for the same model asks for them again."""
    kept: ModelWork | None = llm.kept_work.get("work")
    if kept is None:
        kept = llm.kept_work["work"] = _summed(llm)
    return kept


def _summed(llm: Llm) -> ModelWork:
    by_class = llm.num_params_by_class() if llm.layer_groups and llm.hidden_size and llm.vocab_size else {}
    reaches = tuple(attention_reaches(llm))
    if sum(by_class.values()) != llm.num_params:
        return _by_count(llm, reaches)
    head = (llm.vocab_size or 0) * (llm.hidden_size or 0)
    experts: dict[tuple[int, int, int], tuple[int, int]] = {}
    for group in llm.layer_groups or ():
        for part in group.feed_forward:
            if part.kind == "moe":
                key = (part.num_experts, part.num_experts_per_token, part.intermediate_size)
                layers, params = experts.get(key, (0, 0))
                experts[key] = (layers + group.num_layers, params + group.num_layers * part.num_expert_params(llm.hidden_size or 0))
    return ModelWork(
        is_known=True,
        num_layers=llm.num_layers,
        layers=_counts(llm),
        hidden_size=llm.hidden_size or 0,
        mixer_params=sum(by_class.get(kind, 0) for kind in MIXERS),
        dense_params=sum(by_class.get(kind, 0) for kind in DENSE),
        head_params=head,
        experts=tuple(ExpertWork(layers, key[0], key[1], params, key[2]) for key, (layers, params) in experts.items()),
        reaches=reaches,
    )


def _counts(llm: Llm) -> LayerCounts:
    found = dict.fromkeys(LayerCounts._fields, 0)
    for group in llm.layer_groups or ():
        mixer, layers = group.mixer, group.num_layers
        if isinstance(mixer, Attention):
            found["attention"] += layers
            found["qk_norm"] += layers * (mixer.num_qk_norm_params > 0)
            found["spanning_norm"] += layers * (mixer.num_qk_norm_params > 2 * mixer.key_head_dim)
        elif isinstance(mixer, LatentAttention | CompressedAttention):
            found["latent"] += layers
        elif mixer is not None:
            found["recurrent"] += layers
        if isinstance(mixer, Attention | LatentAttention | CompressedAttention):
            found["indexer"] += layers * (mixer.indexer is not None)
        for part in group.feed_forward:
            found["expert" if part.kind == "moe" else "dense"] += layers
            found["shared"] += layers * (part.kind == "moe" and part.shared_intermediate_size > 0)
    return LayerCounts(**found)


def _by_count(llm: Llm, reaches: tuple[AttentionReach, ...]) -> ModelWork:
    """A model by its parameter count: what is not active on every token is taken to be experts chosen in the same proportion."""
    layers = llm.num_layers or usual_num_layers(llm.num_params)
    hidden = llm.hidden_size or int(USUAL_ASPECT * layers)
    share = llm.num_active_params / llm.num_params
    experts = () if share == 1 else (ExpertWork(int(layers), 1.0, share, llm.num_params, 0),)
    usual = LayerCounts(attention=layers, dense=0 if experts else layers, expert=layers if experts else 0)
    return ModelWork(False, layers, usual, hidden, 0, 0 if experts else llm.num_active_params, 0, experts, reaches)
