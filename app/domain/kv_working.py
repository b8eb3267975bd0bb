"""The working of a KV cache: from the layers to the bytes of a sequence, over the whole model or on one accelerator."""

from collections.abc import Iterator

from app.domain.kv_cache import CONVOLUTION_BYTES_PER_ELEMENT, FORMULA_SOURCE, STATE_BYTES_PER_ELEMENT, KvCost
from app.domain.llm import LayerGroup, Llm
from app.domain.precision import KV_CACHE, KvFormat
from app.domain.provenance import Step, step
from app.domain.units import exact, plain

HEADS_SOURCE = "https://github.com/vllm-project/vllm/blob/main/vllm/config/model.py (get_num_kv_heads)"
STATE_SOURCE = "single precision (vLLM's mamba_ssm_cache_dtype for most models), its convolution with 16 bits"


MOST_LAYOUTS = 64
"""Layouts of one model whose working is kept."""


def kv_cost_steps(llm: Llm, kv_format: KvFormat, cost: KvCost, *, tp: int = 1, pp: int = 1, per_gpu: bool = False) -> tuple[Step, ...]:
    """One line for each part of `cost`: bytes per token of full, windowed and index keys [bytes/token], and the state [bytes]."""
    kept, layout = llm.kv_steps_by_layout, (kv_format, tp, pp, per_gpu)
    steps: tuple[Step, ...] | None = kept.get(layout)
    if steps is None:
        if len(kept) >= MOST_LAYOUTS:
            kept.clear()
        steps = kept[layout] = tuple(_cost_steps(llm, kv_format, cost, tp, pp, per_gpu=per_gpu))
    return steps


def _cost_steps(llm: Llm, kv_format: KvFormat, cost: KvCost, tp: int, pp: int, *, per_gpu: bool) -> Iterator[Step]:
    where = "_per_gpu" if per_gpu else ""
    if llm.layer_groups is None and llm.stated_kv_cache is not None:
        yield _stated_step(llm, kv_format, cost, per_gpu=per_gpu)
        return
    size = KV_CACHE[kv_format].bytes_per_element
    heads = "max(1, kv_heads / tp)" if per_gpu else "kv_heads"
    stage, in_stage = (f" x ceil({llm.num_layers} / {pp}) / {llm.num_layers}", " x ceil(layers / pp) / layers") if pp > 1 else ("", "")

    def line(name: str, formula: str, terms: list[str], value: float, source: str = HEADS_SOURCE if per_gpu else FORMULA_SOURCE) -> Step:
        total = " + ".join(terms) or "0"
        unit = "bytes" if name.startswith("state") else "bytes/token"
        return step(name + where, formula + in_stage, f"({total}){stage}" if stage else total, exact(value), unit, source)

    layers = f"layers x {heads} x (key_dim + value_dim) x bytes"
    full = [term for group in llm.layer_groups or () if (term := _full_term(group, size, tp))]
    yield line(
        "kv_bytes_per_token",
        f"sum over full-attention layers: {layers} (latent: kv_lora_rank + rope, on every rank)"
        if full
        else "no layer keeps all tokens: 0",
        full,
        cost.bytes_per_token,
    )
    for value, window in cost.windows:
        terms = [
            f"{count} x {plain(cache.per_window_token)} x {plain(size)}"
            for count, cache in llm.caches(tp)
            if cache.per_window_token and cache.window_tokens == window
        ]
        formula = f"sum over layers that keep {window} tokens: layers x elements per token{' and rank' if per_gpu else ''} x bytes"
        yield line(f"windowed_kv_bytes_per_token_{window}", formula, terms, value)
    if cost.index_bytes_per_token:
        terms = [f"{count} x {plain(cache.index_per_token)} x {plain(size)}" for count, cache in llm.caches(tp) if cache.index_per_token]
        yield line(
            "index_bytes_per_token",
            "sum over layers with an indexer: layers x elements per token x bytes",
            terms,
            cost.index_bytes_per_token,
        )
    if cost.state_bytes:
        terms = [
            f"{count} x ({cache.state} x {STATE_BYTES_PER_ELEMENT} + {cache.convolution} x {CONVOLUTION_BYTES_PER_ELEMENT})"
            for count, cache in llm.caches(tp)
            if cache.state or cache.convolution
        ]
        formula = f"sum over recurrent layers: layers x (state elements{' / tp' if per_gpu else ''} x 4 + convolution elements x 2)"
        yield line("state_bytes_per_sequence", formula, terms, cost.state_bytes, STATE_SOURCE)


def _full_term(group: LayerGroup, size: float, tp: int) -> str | None:
    mixer = group.mixer
    if mixer is None:
        return None
    if mixer.kind == "attention" and mixer.window_tokens is None and not mixer.shares_kv:
        heads = max(1, mixer.num_kv_heads // tp)
        return f"{group.num_layers} x {heads} x ({mixer.key_head_dim} + {mixer.value_head_dim}) x {plain(size)}"
    if mixer.kind == "latent_attention":
        return f"{group.num_layers} x ({mixer.kv_lora_rank} + {mixer.qk_rope_head_dim}) x {plain(size)}"
    if mixer.kind == "compressed_attention" and mixer.compress_ratio:
        return f"{group.num_layers} x {mixer.head_dim} / {mixer.compress_ratio} x {plain(size)}"
    return None


def _stated_step(llm: Llm, kv_format: KvFormat, cost: KvCost, *, per_gpu: bool) -> Step:
    stated = llm.stated_kv_cache
    assert stated is not None  # noqa: S101 - the caller checks
    given = plain(stated.bytes_per_token)
    converted = stated.precision != kv_format and stated.bytes_per_token != cost.bytes_per_token
    return step(
        "kv_bytes_per_token_per_gpu" if per_gpu else "kv_bytes_per_token",
        f"as stated for {stated.precision}; {stated.note}" + ("; not divided by tp or pp, because the layers are not known" * per_gpu),
        f"{given} x {plain(cost.bytes_per_token / stated.bytes_per_token)}" if converted else given,
        exact(cost.bytes_per_token),
        "bytes/token",
        "; ".join(llm.sources) or llm.slug,
        basis="datasheet",
    )


def sequence_step(cost: KvCost, tokens: float, value: int, name: str = "kv_bytes_per_sequence") -> Step:
    """KV bytes of one sequence from the per-token cost, the windows and the state."""
    parts = [f"{plain(cost.bytes_per_token)} x {plain(tokens)}"]
    formula = "bytes_per_token x tokens"
    if cost.index_bytes_per_token:
        parts.append(f"{plain(cost.index_bytes_per_token)} x {plain(tokens)}")
        formula += " + index_bytes_per_token x tokens"
    if cost.windows:
        parts += [f"{plain(per)} x min({plain(tokens)}, {window})" for per, window in cost.windows]
        formula += " + windowed bytes_per_token x min(tokens, window)"
    if cost.state_bytes:
        parts.append(plain(cost.state_bytes))
        formula += " + state"
    total = " + ".join(parts)
    whole = float(tokens).is_integer() and cost.bytes_per_token % 1 == 0 and cost.index_bytes_per_token % 1 == 0
    return step(name, formula if whole else f"ceil({formula})", total if whole else f"ceil({total})", value, "bytes", FORMULA_SOURCE)
