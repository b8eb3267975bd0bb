"""How far queries see and how wide the products are: the attending layers of a model, whatever the length of the context."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from app.domain.attention import Indexer
from app.domain.llm import Llm


class AttentionReach(NamedTuple):
    """Layers that attend alike."""

    num_layers: int
    prompt_width: int
    """heads x (key_dim + value_dim) as a prompt is computed."""
    decode_width: int
    """The same in a decode step: latent attention folds its up-projections away and works on the latent itself."""
    most_entries: float
    """Cache entries that a query sees at most: window or selection, infinite without either."""
    tokens_per_entry: int = 1
    """Tokens that one cache entry stands for."""
    restarts: bool = False
    """A chunk starts anew: its queries see half of it on average however long the prompt is."""

    def entries(self, context_tokens: float) -> float:
        """Cache entries that a query at this context sees: min(context / tokens per entry, most)."""
        return min(context_tokens / self.tokens_per_entry, self.most_entries)

    def prompt_flops_per_token(self, context_tokens: float) -> float:
        """Scores and weighted values of one query of a prompt: 2 x layers x width x entries [FLOP/token]."""
        return 2.0 * self.num_layers * self.prompt_width * self.entries(context_tokens)

    def decode_flops_per_token(self, context_tokens: float) -> float:
        """The same for one query of a decode step [FLOP/token]."""
        return 2.0 * self.num_layers * self.decode_width * self.entries(context_tokens)


def attention_reaches(llm: Llm) -> Iterator[AttentionReach]:
    """The attending layers: windows and the selection of sparse attention limit the reach. Indexers themselves are left out.

    Latent attention decodes in the latent: heads x (2 kv_lora_rank + rope) per entry in place of heads x (nope + rope + v)
    (https://arxiv.org/abs/2405.04434 section 2.1.2).
    """
    for group in llm.layer_groups or ():
        mixer, layers = group.mixer, group.num_layers
        if mixer is None:
            continue
        if mixer.kind == "attention":
            width = mixer.num_heads * (mixer.key_head_dim + mixer.value_head_dim)
            most = min(mixer.window_tokens or math.inf, _selected(mixer.indexer))
            yield AttentionReach(layers, width, width, most, restarts=mixer.window_kind == "chunked")
        elif mixer.kind == "latent_attention":
            width = mixer.num_heads * (mixer.qk_nope_head_dim + mixer.qk_rope_head_dim + mixer.v_head_dim)
            latent = mixer.num_heads * (2 * mixer.kv_lora_rank + mixer.qk_rope_head_dim)
            yield AttentionReach(layers, width, latent, _selected(mixer.indexer))
        elif mixer.kind == "compressed_attention":
            width = mixer.num_heads * 2 * mixer.head_dim
            yield AttentionReach(layers, width, width, mixer.window_tokens)
            if mixer.compress_ratio:
                yield AttentionReach(layers, width, width, _selected(mixer.indexer), mixer.compress_ratio)


def _selected(indexer: Indexer | None) -> float:
    return math.inf if indexer is None or indexer.num_attended is None else indexer.num_attended
