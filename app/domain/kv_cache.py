"""KV cache: what a sequence holds on one accelerator, by length, precision and attention kind."""

import math
from typing import NamedTuple

from app.domain.attention import Attention, CompressedAttention, LatentAttention
from app.domain.errors import MissingFigure
from app.domain.llm import Llm
from app.domain.precision import KV_CACHE, KvChoice, KvFormat

STATE_BYTES_PER_ELEMENT = 4
"""Recurrent state is kept in single precision (https://github.com/vllm-project/vllm, `mamba_ssm_cache_dtype`, float32 for most models)."""
CONVOLUTION_BYTES_PER_ELEMENT = 2
"""Convolution tails are kept in the model's 16-bit precision."""
SPARSE = (Attention, LatentAttention, CompressedAttention)
"""Mixers that an indexer can make sparse."""
FORMULA_SOURCE = "https://arxiv.org/abs/2305.13245 (keys and values of every layer and KV head)"


class KvCost(NamedTuple):
    """Bytes that one sequence keeps on one accelerator."""

    bytes_per_token: float
    """Keys and values that every token adds at any length [bytes/token]."""
    windows: tuple[tuple[float, int], ...]
    """(bytes per token, window in tokens) of the windowed layers."""
    index_bytes_per_token: float
    """Keys of a sparse-attention indexer [bytes/token]."""
    state_bytes: int
    """Recurrent and convolution state, independent of length [bytes]."""

    def sequence_bytes(self, tokens: float) -> int:
        """Bytes of a sequence of `tokens` tokens: (kv + index) x tokens + sum over windows of kv x min(tokens, window) + state."""
        total = (self.bytes_per_token + self.index_bytes_per_token) * tokens + self.state_bytes
        for per_token, window in self.windows:
            total += per_token * min(tokens, window)
        return math.ceil(total)

    @property
    def windowed_bytes_per_token(self) -> float:
        """Bytes per token of all windowed layers while the sequence is shorter than their windows."""
        return sum(per_token for per_token, _ in self.windows)


class KvElements(NamedTuple):
    """Elements that one sequence keeps on one accelerator; the fields are those of KvCost before the precision is chosen."""

    per_token: float
    windows: tuple[tuple[float, int], ...]
    index_per_token: float
    state_bytes: int

    def cost(self, kv_format: KvFormat) -> KvCost:
        """The same in a precision; the state keeps its own."""
        size = KV_CACHE[kv_format].bytes_per_element
        windows = tuple((elements * size, window) for elements, window in self.windows)
        return KvCost(self.per_token * size, windows, self.index_per_token * size, self.state_bytes)


def kv_is_known(llm: Llm) -> bool:
    """Whether the catalog or the request says how large the KV cache of this model is."""
    return llm.layer_groups is not None or llm.stated_kv_cache is not None


def resolve_kv_format(llm: Llm, choice: KvChoice) -> KvFormat:
    """`auto` is 16 bits, or what the checkpoint's own quantisation names for the cache, or the precision of a stated figure."""
    if choice != "auto":
        return choice
    if llm.native.kv_cache is not None:
        return llm.native.kv_cache
    if llm.stated_kv_cache is not None and llm.stated_kv_cache.precision == "fp4":
        return "fp4"
    return "fp16" if llm.native.dtype == "float16" else "bf16"


def kv_cost(llm: Llm, kv_format: KvFormat, *, tp: int = 1, pp: int = 1, field: str = "/kv_cache") -> KvCost:
    """Bytes per sequence on one accelerator of a tp x pp group.

    Per layer: kv_heads/tp x (key_dim + value_dim) x bytes (heads are replicated below one per rank; latent caches are on every rank);
    a pipeline stage holds ceil(layers / pp) of the layers, the worst stage counts. [bytes_per_element] from `precision.KV_CACHE`.
    Raises MissingFigure when the model's layers are not known, or a stated figure is for another precision than that of `field`.
    """
    return _stated_cost(llm, kv_format, field) if llm.layer_groups is None else kv_elements(llm, tp=tp, pp=pp).cost(kv_format)


def kv_elements(llm: Llm, *, tp: int = 1, pp: int = 1) -> KvElements:
    """Elements per sequence on one accelerator of a tp x pp group, summed over the layer groups, which have to be known."""
    known: KvElements | None = llm.kv_elements_by_layout.get((tp, pp))
    if known is None:
        known = llm.kv_elements_by_layout[tp, pp] = _summed_elements(llm, tp, pp)
    return known


def _summed_elements(llm: Llm, tp: int, pp: int) -> KvElements:
    stage = -(-llm.num_layers // pp) / llm.num_layers if pp > 1 else 1
    per_token = index = state = 0.0
    windows: dict[int, float] = {}
    for layers, cache in llm.caches(tp):
        share = layers * stage
        per_token += share * cache.per_token
        index += share * cache.index_per_token
        state += share * (cache.state * STATE_BYTES_PER_ELEMENT + cache.convolution * CONVOLUTION_BYTES_PER_ELEMENT)
        if cache.per_window_token:
            windows[cache.window_tokens] = windows.get(cache.window_tokens, 0.0) + share * cache.per_window_token
    return KvElements(per_token, tuple((elements, window) for window, elements in sorted(windows.items())), index, math.ceil(state))


def kv_read_cost(llm: Llm, cost: KvCost, kv_format: KvFormat, *, tp: int = 1, pp: int = 1) -> KvCost:
    """What a decode step reads of a cache of `cost`: all of it, but of sparse layers the selected tokens only, like a window [bytes]."""
    size = KV_CACHE[kv_format].bytes_per_element * (-(-llm.num_layers // pp) / llm.num_layers if llm.num_layers else 1)
    full, windows = cost.bytes_per_token, list(cost.windows)
    for group in llm.layer_groups or ():
        mixer = group.mixer
        if mixer is None or not isinstance(mixer, SPARSE) or mixer.indexer is None or mixer.indexer.num_attended is None:
            continue
        per_token = group.num_layers * mixer.cache(tp).per_token * size
        tokens_per_entry = mixer.compress_ratio if mixer.kind == "compressed_attention" else 1
        full -= per_token
        windows.append((per_token, mixer.indexer.num_attended * tokens_per_entry))
    return cost if full == cost.bytes_per_token else cost._replace(bytes_per_token=max(0.0, full), windows=tuple(windows))


def unknown_layers(llm: Llm) -> MissingFigure:
    """The refusal of everything that needs the KV cache of a model whose layers are not known."""
    return MissingFigure(
        f"the layers of {llm.slug} are not known, so its KV cache cannot be computed",
        field="/model",
        value=llm.slug,
        expected="num_layers, num_kv_heads and head_dim beside params, or layer_groups, or a catalog model",
    )


def _stated_cost(llm: Llm, kv_format: KvFormat, field: str) -> KvCost:
    stated = llm.stated_kv_cache
    if stated is None:
        raise unknown_layers(llm)
    native, wanted = KV_CACHE.get(stated.precision), KV_CACHE[kv_format]  # type: ignore[call-overload]
    if stated.precision != kv_format and (native is None or stated.precision == "fp4"):
        raise MissingFigure(
            f"the KV cache of {llm.slug} is only stated for {stated.precision}, not for {kv_format}",
            field=field, value=kv_format, expected=f"auto or {stated.precision}",
        )  # fmt: skip
    factor = 1.0 if stated.precision == kv_format or native is None else wanted.bytes_per_element / native.bytes_per_element
    return KvCost(stated.bytes_per_token * factor, (), 0.0, 0)


def attention_kind(llm: Llm) -> str:
    """The kind of attention over all groups: mha, gqa, mqa, mla, compressed, with `hybrid` and the recurrent kinds before it."""
    attention: dict[str, None] = {}
    recurrent: dict[str, None] = {}
    for group in llm.layer_groups or ():
        mixer = group.mixer
        if mixer is None:
            continue
        if mixer.kind == "attention":
            kind = "mha" if mixer.num_kv_heads == mixer.num_heads else "mqa" if mixer.num_kv_heads == 1 else "gqa"
            attention[kind] = None
        elif mixer.kind == "latent_attention":
            attention["mla"] = None
        elif mixer.kind == "compressed_attention":
            attention["compressed"] = None
        else:
            recurrent[mixer.kind] = None
    if not attention and not recurrent:
        return "unknown"
    kinds = " + ".join([*recurrent, *attention])
    return f"hybrid {kinds}" if recurrent else kinds


def kv_elements_by_heads(llm: Llm) -> tuple[float, float, float]:
    """(own, multi-head, multi-query) KV elements per token below all windows, for the same layers and head widths.

    Multi-head gives every query head its own key and value, multi-query one pair to all; recurrent layers are left out.
    """
    own = mha = mqa = 0.0
    for group in llm.layer_groups or ():
        mixer = group.mixer
        if mixer is None:
            continue
        cache = mixer.cache()
        own += group.num_layers * (cache.per_token + cache.per_window_token)
        if mixer.kind == "attention" and not mixer.shares_kv:
            one = mixer.key_head_dim + mixer.value_head_dim
        elif mixer.kind == "latent_attention":
            one = mixer.qk_nope_head_dim + mixer.qk_rope_head_dim + mixer.v_head_dim
        elif mixer.kind == "compressed_attention":
            one = 2 * mixer.head_dim
        else:
            continue
        mha += group.num_layers * mixer.num_heads * one
        mqa += group.num_layers * one
    return own, mha, mqa
