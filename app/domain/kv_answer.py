"""The answer of `/kv`: the cache by length, by precision and against other attention kinds, with its working."""

from collections.abc import Sequence

from app.domain.kv_cache import FORMULA_SOURCE, KvCost, attention_kind, kv_cost, kv_elements, kv_elements_by_heads, resolve_kv_format
from app.domain.kv_engine import KvInEngine
from app.domain.kv_working import kv_cost_steps, sequence_step
from app.domain.llm import Llm
from app.domain.precision import KV_CACHE, KvChoice, KvFormat
from app.domain.provenance import Answer, Note, Step, Versions, step
from app.domain.units import exact, gigabytes, plain
from app.domain.value import Value


class KvAtContext(Value):
    """KV cache at one sequence length."""

    context_tokens: int
    """Length of a sequence, prompt and output together [tokens]."""
    bytes_per_sequence: int
    """KV cache of one sequence, every key and value counted once, without block rounding [bytes]."""
    bytes_per_sequence_per_gpu: int
    """The same on one accelerator; times tp it is more than `bytes_per_sequence` where heads or latents are replicated [bytes]."""
    total_bytes: int
    """KV cache of all `num_sequences`, every key and value counted once [bytes]."""
    num_blocks: int
    """Cache blocks of one sequence: ceil(context / block)."""
    wasted_bytes: int
    """Allocated in the last block but not used, all sequences together [bytes]."""


class KvAtPrecision(Value):
    """KV cache in one precision."""

    kv_cache: KvFormat
    """Precision of the cache."""
    bytes_per_token: int | float
    """Keys and values per token over the whole model [bytes/token]."""
    total_bytes: int
    """All sequences at the longest context asked for [bytes]."""


class KvAtHeads(Value):
    """KV cache for another number of KV heads, everything else equal."""

    attention: str
    """mha, gqa, mqa or the model's own kind."""
    bytes_per_token: int | float
    """Keys and values per token [bytes/token]."""
    vs_mha_ratio: float
    """Size relative to multi-head attention."""


class KvAnswer(Answer):
    """The size of the KV cache."""

    model: str
    """Catalog slug of the model, or `inline`."""
    attention: str
    """Kind of attention."""
    kv_cache: KvFormat
    """Precision that was used."""
    num_sequences: int
    """Sequences that `total_bytes` counts."""
    block_size_tokens: int
    """Tokens of one cache block."""
    bytes_per_token: int | float
    """Keys and values that each further token adds once all windows are full, whole model [bytes/token]."""
    bytes_per_token_below_windows: int | float
    """The same while the sequence is shorter than the windows; equal to `bytes_per_token` without windows [bytes/token]."""
    index_bytes_per_token: int | float
    """Keys of a sparse-attention indexer, beside `bytes_per_token` [bytes/token]."""
    bytes_per_token_per_gpu: int | float
    """`bytes_per_token` on one accelerator of the tensor-parallel group [bytes/token]."""
    state_bytes_per_sequence: int
    """Recurrent and convolution state of one sequence, independent of its length [bytes]."""
    by_context: list[KvAtContext]
    """One row per length asked for."""
    in_engine: list[KvInEngine]
    """What the engine reserves for one sequence, one row per length asked for; empty for the generic engine."""
    by_precision: list[KvAtPrecision]
    """The same cache in every precision."""
    by_attention: list[KvAtHeads]
    """The same model with MHA, its own heads, and MQA."""
    vs_mha_ratio: float | None
    """Own size / size with one KV head per query head; None where the layers are not known."""
    vs_mqa_ratio: float | None
    """Own size / size with a single KV head; None where the layers are not known."""


def answer_kv(
    llm: Llm,
    *,
    kv_cache: KvChoice,
    tp: int,
    context_tokens: Sequence[int],
    num_sequences: int,
    block_size_tokens: int,
    in_engine: tuple[Sequence[KvInEngine], Sequence[Step]] = ((), ()),
    assumptions: list[Note],
    versions: Versions,
) -> KvAnswer:
    """The KV cache of a model by length, precision and attention kind, with its working.

    bytes per token = sum over layers of kv_heads x (key_dim + value_dim) x bytes per element; a sequence adds the windowed layers up to
    their window and the recurrent state. `in_engine` is what `kv_engine.kv_in_engine` found. Arguments in
    tokens and counts, results in bytes. Raises MissingFigure when the layers are not known.
    """
    kv_format = resolve_kv_format(llm, kv_cache)
    whole, rank = kv_cost(llm, kv_format), kv_cost(llm, kv_format, tp=tp)
    own, mha, mqa = kv_elements_by_heads(llm)
    size = KV_CACHE[kv_format].bytes_per_element
    rows = [_at_context(whole, rank, tokens, num_sequences, block_size_tokens) for tokens in context_tokens]
    longest = max(context_tokens)
    kind = attention_kind(llm)
    windows = "".join(f", {plain(per)} B/token up to {window} tokens in windowed layers" for per, window in whole.windows)
    total = whole.sequence_bytes(longest) * num_sequences
    return KvAnswer(
        summary=(
            f"{llm.slug} ({kind}, {kv_format} KV) keeps {plain(whole.bytes_per_token)} bytes per token{windows}; "
            f"{num_sequences} sequence(s) of {longest} tokens hold {gigabytes(total)}."
        ),
        working=[
            *_working(llm, kv_format, whole, rank, rows[context_tokens.index(longest)], tp, num_sequences, block_size_tokens),
            *in_engine[1],
        ],
        assumptions=assumptions,
        warnings=_warnings(llm, longest, tp),
        versions=versions,
        model=llm.slug,
        attention=kind,
        kv_cache=kv_format,
        num_sequences=num_sequences,
        block_size_tokens=block_size_tokens,
        bytes_per_token=exact(whole.bytes_per_token),
        bytes_per_token_below_windows=exact(whole.bytes_per_token + whole.windowed_bytes_per_token),
        index_bytes_per_token=exact(whole.index_bytes_per_token),
        bytes_per_token_per_gpu=exact(rank.bytes_per_token),
        state_bytes_per_sequence=whole.state_bytes,
        by_context=rows,
        in_engine=list(in_engine[0]),
        by_precision=_by_precision(llm, longest, num_sequences),
        by_attention=[
            KvAtHeads(attention=name, bytes_per_token=exact(elements * size), vs_mha_ratio=elements / mha)
            for name, elements in {"mha": mha, kind: own, "mqa": mqa}.items()
            if mha
        ],
        vs_mha_ratio=own / mha if mha else None,
        vs_mqa_ratio=own / mqa if mqa else None,
    )


def _at_context(whole: KvCost, rank: KvCost, tokens: int, num_sequences: int, block: int) -> KvAtContext:
    blocks = -(-tokens // block)
    used = whole.sequence_bytes(tokens)
    return KvAtContext(
        context_tokens=tokens,
        bytes_per_sequence=used,
        bytes_per_sequence_per_gpu=rank.sequence_bytes(tokens),
        total_bytes=used * num_sequences,
        num_blocks=blocks,
        wasted_bytes=(whole.sequence_bytes(blocks * block) - used) * num_sequences,
    )


def _by_precision(llm: Llm, tokens: int, num_sequences: int) -> list[KvAtPrecision]:
    if llm.layer_groups is None:
        return []
    elements = kv_elements(llm)
    costs = ((name, elements.cost(name)) for name in KV_CACHE)
    return [
        KvAtPrecision(kv_cache=name, bytes_per_token=exact(cost.bytes_per_token), total_bytes=cost.sequence_bytes(tokens) * num_sequences)
        for name, cost in costs
    ]


def _working(
    llm: Llm, kv_format: KvFormat, whole: KvCost, rank: KvCost, row: KvAtContext, tp: int, num_sequences: int, block: int
) -> list[Step]:
    tokens = row.context_tokens
    steps = [*kv_cost_steps(llm, kv_format, whole), sequence_step(whole, tokens, row.bytes_per_sequence)]
    steps += kv_cost_steps(llm, kv_format, rank, tp=tp, per_gpu=True)
    if tp > 1:
        steps.append(sequence_step(rank, tokens, row.bytes_per_sequence_per_gpu, "kv_bytes_per_sequence_per_gpu"))
    steps.append(
        step(
            "total_bytes",
            "bytes_per_sequence x num_sequences",
            f"{row.bytes_per_sequence} x {num_sequences}",
            row.total_bytes,
            "bytes",
            FORMULA_SOURCE,
        )
    )
    steps.append(
        step(
            "num_blocks",
            "ceil(context_tokens / block_size_tokens)",
            f"ceil({row.context_tokens} / {block})",
            row.num_blocks,
            "blocks",
            "https://arxiv.org/abs/2309.06180 (paged attention)",
        )
    )
    return steps


def _warnings(llm: Llm, longest: int, tp: int) -> list[Note]:
    warnings = []
    if llm.max_model_len_tokens is not None and longest > llm.max_model_len_tokens:
        warnings.append(
            Note(
                code="beyond_model_length",
                message=f"{longest} tokens is more than the {llm.max_model_len_tokens} that {llm.slug} was made for; engines refuse it.",
            )
        )
    if llm.stated_kv_cache is not None and llm.layer_groups is None:
        warnings.append(Note(code="stated_kv_cache", message=f"The layers of {llm.slug} are not known: {llm.stated_kv_cache.note}."))
    warnings += _replication_notes(llm, tp)
    return warnings


def _replication_notes(llm: Llm, tp: int) -> list[Note]:
    """What tensor parallelism does not divide."""
    if tp == 1:
        return []
    if llm.layer_groups is None:
        return [Note(code="kv_not_divided", message=f"The layers of {llm.slug} are not known: the whole cache is counted on each GPU.")]
    mixers = [group.mixer for group in llm.layer_groups if group.mixer]
    notes = []
    fewest = min((mixer.num_kv_heads for mixer in mixers if mixer.kind == "attention"), default=tp)
    if tp > fewest:
        notes.append(
            Note(
                code="kv_heads_replicated",
                message=f"tp {tp} is above {fewest} KV heads: heads are replicated and the total over all GPUs grows.",
            )
        )
    if any(mixer.kind in ("latent_attention", "compressed_attention") for mixer in mixers):
        notes.append(
            Note(code="latent_replicated", message=f"Every rank keeps the whole latent cache: over {tp} GPUs it takes {tp} times its size.")
        )
    return notes
