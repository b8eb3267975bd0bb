"""What the layers of a model cache on one rank, sorted by kind: the specs that an engine cuts into pages."""

import math
from typing import Literal, NamedTuple

from app.domain.attention import Attention, CompressedAttention, LatentAttention, LayerCache
from app.domain.deployment import Speculative
from app.domain.kv_cache import CONVOLUTION_BYTES_PER_ELEMENT, STATE_BYTES_PER_ELEMENT
from app.domain.llm import LayerGroup, Llm
from app.domain.paging_rules import PagingRules
from app.domain.precision import KV_CACHE, KvFormat
from app.domain.recurrent import LightningAttention, Mamba1, Mamba2

SPARSE_LATENT_FP8_BYTES = 656
"""Latent in 8 bits beside its scales and a 16-bit rotary key, of models whose indexer selects tokens [bytes/token]. Source:
https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/v1/attention/backends/mla/flashmla_sparse.py (fp8_ds_mla: 512 + 4 x 4 + 64 x 2)."""
INDEX_SCALE_ELEMENTS = 128
"""Index keys are 8 bits wide with one single-precision scale per this many elements. Source:
https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/model_executor/models/deepseek_v2.py (indexer cache)."""
PADDED_HEAD = 256
"""Width to which whole keys and values of latent attention were padded before the latent was cached [elements]. Source:
https://github.com/vllm-project/vllm/blob/v0.6.4/vllm/model_executor/models/deepseek_v2.py (head_size 256)."""


NARROW_STATE = (Mamba1, Mamba2, LightningAttention)
"""Mixers whose state is kept in the model's 16 bits unless the checkpoint asks for more; delta rules keep single precision. Source:
https://github.com/vllm-project/vllm/blob/v0.19.1/vllm/model_executor/layers/mamba/mamba_utils.py (MambaStateDtypeCalculator)."""


class LayerKind(NamedTuple):
    """Layers whose cache has one shape."""

    kind: Literal["full", "sliding", "chunked", "state"]
    num_layers: int
    bytes_per_token: float
    """Cache that one layer adds per token on one rank [bytes/token]; 0 for recurrent state."""
    window_tokens: int = 0
    state_bytes: int = 0
    """Recurrent and convolution state of one layer and sequence on one rank [bytes]."""
    latent: bool = False


def layer_kinds(llm: Llm, kv_format: KvFormat, rules: PagingRules, *, tp: int, speculative: Speculative | None = None) -> list[LayerKind]:
    """Kinds of the layers with a cache; multi-token prediction layers join the full attention where speculation uses them.

    Per layer and token: max(1, kv_heads / tp) x (key_dim + value_dim) x bytes, the latent on every rank; windows count as full layers
    where the engine knows none, or keeps them apart for other models only.
    """
    if rules.window_model_types and not (llm.model_type or "").startswith(rules.window_model_types):
        rules = rules.model_copy(update={"windows": False, "chunked_windows": False})
    size = KV_CACHE[kv_format].bytes_per_element
    wide = (llm.model_type or "").startswith(rules.wide_state_model_types)
    drafts = speculative.num_draft_tokens if speculative else 0
    found: dict[tuple[object, ...], int] = {}
    for group in llm.layer_groups or ():
        for kind in _kinds_of(group, size, kv_format, rules, tp, drafts, wide):
            found[kind] = found.get(kind, 0) + group.num_layers
    if speculative is not None and speculative.draft_model is None and llm.num_mtp_layers:
        widest = next((key for key in found if key[0] == "full"), None)
        if widest is not None:
            found[widest] += llm.num_mtp_layers
    if speculative is not None and speculative.draft is not None:
        _add_draft(found, layer_kinds(speculative.draft, kv_format, rules, tp=tp))
    return [LayerKind(key[0], count, *key[1:]) for key, count in found.items()]  # type: ignore[arg-type]


def _add_draft(found: dict[tuple[object, ...], int], draft: list[LayerKind]) -> None:
    """A draft model's layers beside the target's: kinds of their own, or, where windows or states make groups, as many of the widest.

    Layers of full attention share one group whatever their sizes; a group of other pages would have to be made equal, so that the bytes
    per token count instead: ceil(draft bytes / bytes of the widest layer) layers.
    """
    widest = next((key for key in found if key[0] == "full"), None)
    if all(key[0] == "full" for key in found) and all(kind.kind == "full" for kind in draft):
        for kind in draft:
            key: tuple[object, ...] = tuple(kind)[:1] + tuple(kind)[2:]
            found[key] = found.get(key, 0) + kind.num_layers
    elif widest is not None and isinstance(each := widest[1], float) and each:
        found[widest] += math.ceil(sum(kind.num_layers * kind.bytes_per_token for kind in draft) / each)


def _kinds_of(
    group: LayerGroup, size: float, kv_format: KvFormat, rules: PagingRules, tp: int, drafts: int, wide: bool
) -> list[tuple[object, ...]]:
    """(kind, bytes per token, window, state bytes, latent) of one layer of a group."""
    mixer = group.mixer
    if mixer is None:
        return []
    cache = mixer.cache(tp)
    if isinstance(mixer, LatentAttention):
        return _latent(mixer, cache, size, kv_format, rules, tp)
    if isinstance(mixer, Attention):
        if not cache.per_token and not cache.per_window_token:
            return []
        per_token = (cache.per_token + cache.per_window_token) * size
        kept = rules.windows if mixer.window_kind == "sliding" else rules.chunked_windows
        kinds: list[tuple[object, ...]] = [
            (mixer.window_kind, per_token, mixer.window_tokens, 0, False)
            if mixer.window_tokens and kept
            else ("full", per_token, 0, 0, False)
        ]
        return kinds + ([("full", _index_bytes(cache.index_per_token), 0, 0, True)] if cache.index_per_token else [])
    if isinstance(mixer, CompressedAttention):
        kinds = [("sliding", cache.per_window_token * size, cache.window_tokens, 0, True)]
        history = cache.per_token * size + _index_bytes(cache.index_per_token)
        return kinds + ([("full", history, 0, 0, True)] if history else [])
    kernel = getattr(mixer, "conv_kernel_size", 1)
    tail = cache.convolution // (kernel - 1) * (kernel - 1 + drafts) if kernel > 1 else cache.convolution
    element = STATE_BYTES_PER_ELEMENT if wide or not isinstance(mixer, NARROW_STATE) else CONVOLUTION_BYTES_PER_ELEMENT
    return [("state", 0.0, 0, cache.state * element + tail * CONVOLUTION_BYTES_PER_ELEMENT, False)]


def _latent(
    mixer: LatentAttention, cache: LayerCache, size: float, kv_format: KvFormat, rules: PagingRules, tp: int
) -> list[tuple[object, ...]]:
    if not rules.latent_cache:
        return [("full", max(1, mixer.num_heads // tp) * 2 * PADDED_HEAD * size, 0, 0, False)]
    per_token = cache.per_token * size
    if mixer.indexer is None:
        return [("full", per_token, 0, 0, True)]
    if kv_format == "fp8" and rules.sparse_latent_scales:
        per_token = SPARSE_LATENT_FP8_BYTES
    return [("full", per_token, 0, 0, True), ("full", _index_bytes(cache.index_per_token), 0, 0, True)]


def _index_bytes(elements: float) -> float:
    """8-bit keys and their scales [bytes/token]."""
    return elements + math.ceil(elements / INDEX_SCALE_ELEMENTS) * 4 if elements >= 1 else elements * (1 + 4 / INDEX_SCALE_ELEMENTS)
