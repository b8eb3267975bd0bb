"""How many requests a replica holds at once."""

from typing import Literal

from app.domain.deployment import Deployment
from app.domain.engine import EngineMemory
from app.domain.engine_working import request_steps
from app.domain.hardware import Gpu
from app.domain.kv_cache import unknown_layers
from app.domain.kv_working import sequence_step
from app.domain.llm import Llm
from app.domain.memory import fit
from app.domain.memory_fit import Fit
from app.domain.memory_notes import memory_warnings
from app.domain.memory_working import memory_steps
from app.domain.prefix_cache import PrefixCache, PrefixCacheUse, division, kept_once, pool_shares, prefix_steps
from app.domain.provenance import Answer, Note, Step, Versions, step
from app.domain.rounding import floor
from app.domain.units import plain
from app.domain.value import Value

SAFETY_SOURCE = "serving practice: plan with 60 to 80 % of the theoretical maximum, lengths vary and engines preempt when the pool is full"


class ConcurrencyAtLength(Value):
    """Requests of one length that a replica holds."""

    tokens_per_sequence: float
    """Length of a request, prompt and output together [tokens]."""
    max_concurrency: int
    """Requests whose KV cache fits at once, or `max_num_seqs` where that is less."""
    safe_concurrency: int
    """floor(max_concurrency x safety_ratio), but one where one fits."""


class ConcurrencyAnswer(Answer):
    """Requests that one replica holds at once."""

    model: str
    """Catalog slug of the model, or `inline`."""
    gpu: str
    """Catalog slug of the accelerator, or `inline`."""
    num_gpus: int
    """Accelerators of one replica."""
    kv_capacity_tokens: int | None
    """Token positions of one engine rank, across its tp x pp accelerators; None where they depend on a longest length that is not known."""
    num_engine_ranks: int
    """Attention data-parallel ranks of the replica, each with a pool of its own."""
    max_concurrency: int
    """Requests of the mean length that the replica holds, over all its engine ranks."""
    safe_concurrency: int
    """floor(max_concurrency x safety_ratio), but one where one fits: what to plan with."""
    at_mean: ConcurrencyAtLength
    """At the mean length."""
    at_p95: ConcurrencyAtLength | None
    """At the 95th percentile of the length; None when it is not given."""
    at_max_model_len: ConcurrencyAtLength | None
    """At the longest admitted length; None when it is not known."""
    recommended_max_num_seqs: int
    """`max_num_seqs` of one engine rank to start a load test with: safe_concurrency / dp, rounded down to a multiple of 8."""
    load_test_concurrency: list[int]
    """Concurrency levels of a load test on the whole replica: powers of two up to the maximum."""
    binding: Literal["kv_cache", "max_num_seqs"]
    """What limits the number of requests."""
    prefix_cache: PrefixCacheUse | None
    """What a shared prefix saves and a reserve costs; None where neither is given."""


def at_length(
    found: Fit, deployment: Deployment, tokens: float, safety_ratio: float, prefix: PrefixCache | None = None
) -> ConcurrencyAtLength:
    """Requests of `tokens` tokens in one replica: min(dp x floor(kv_cache_bytes / sequence_bytes), max_num_seqs), and the safe share.

    Where the engine cuts its memory into blocks, floor(blocks / blocks of a request) takes the place of the quotient of bytes; the
    engine's own max_num_seqs counts where the deployment names none. `prefix_cache.pool_shares` says what a prefix changes.
    """
    per_rank = per_engine_rank(found, tokens, prefix)
    most = deployment.dp * per_rank if per_rank is not None else 0
    limit = sequence_limit(found, deployment)
    if limit is not None:
        most = min(most, limit * deployment.dp)
    safe = max(min(1, most), floor(most * safety_ratio))
    return ConcurrencyAtLength(tokens_per_sequence=tokens, max_concurrency=most, safe_concurrency=safe)


def per_engine_rank(found: Fit, tokens: float, prefix: PrefixCache | None = None) -> int | None:
    """Requests of `tokens` tokens that the KV cache of one engine rank holds; None without a known cost."""
    if prefix is None:
        return found.sequences(tokens)
    shares = pool_shares(found, tokens, prefix)
    return None if shares is None else shares.sequences


def sequence_limit(found: Fit, deployment: Deployment) -> int | None:
    """Most sequences that one engine rank runs at once; None where nothing limits them."""
    return deployment.max_num_seqs if found.settings is None else found.settings.max_num_seqs


def answer_concurrency(
    llm: Llm,
    gpu: Gpu,
    deployment: Deployment,
    *,
    engine: EngineMemory | None = None,
    mean_tokens: float,
    p95_tokens: float | None,
    safety_ratio: float,
    prefix: PrefixCache | None = None,
    assumptions: list[Note],
    versions: Versions,
) -> ConcurrencyAnswer:
    """Requests that one replica holds at the mean, the 95th percentile and the longest length.

    max = floor(kv_cache_bytes / kv_bytes_per_sequence) per engine rank, safe = floor(max x safety_ratio). Lengths in tokens, prompt and
    output together; `prefix` is what requests have in common and what is reserved beside them. Raises MissingFigure when the KV cache
    of the model is not known.
    """
    found = fit(llm, gpu, deployment, engine)
    capacity = found.capacity_tokens()
    if found.cost is None:
        raise unknown_layers(llm)
    mean = at_length(found, deployment, mean_tokens, safety_ratio, prefix)
    longest = found.max_model_len_tokens
    unlimited = (per_engine_rank(found, mean_tokens, prefix) or 0) * deployment.dp
    shares = None if prefix is None else pool_shares(found, mean_tokens, prefix)
    more, told = kept_once(found, mean_tokens, prefix)
    unshared = at_length(found, deployment, mean_tokens, safety_ratio).max_concurrency
    positions = "" if capacity is None else f" ({capacity} token positions per engine rank)"
    return ConcurrencyAnswer(
        summary=(
            f"{llm.slug} on {deployment.num_gpus} x {gpu.slug} holds {mean.max_concurrency} requests of {plain(mean_tokens)} tokens"
            f"{positions}; plan with {mean.safe_concurrency}."
            + ("" if shares is None else f" With nothing shared or reserved it would hold {unshared}.")
            + ("" if found.verdict == "serves" else f" The deployment does not serve ({found.verdict}).")
        ),
        working=_working(llm, gpu, deployment, found, mean, safety_ratio, prefix),
        assumptions=[*assumptions, *found.notes, *more],
        warnings=[*_warnings(llm, deployment, found, mean_tokens, p95_tokens), *told],
        versions=versions,
        model=llm.slug,
        gpu=gpu.slug,
        num_gpus=deployment.num_gpus,
        kv_capacity_tokens=capacity,
        num_engine_ranks=deployment.dp,
        max_concurrency=mean.max_concurrency,
        safe_concurrency=mean.safe_concurrency,
        at_mean=mean,
        at_p95=None if p95_tokens is None else at_length(found, deployment, p95_tokens, safety_ratio, prefix),
        at_max_model_len=None if longest is None else at_length(found, deployment, longest, safety_ratio, prefix),
        recommended_max_num_seqs=recommended_max_num_seqs(mean.safe_concurrency, deployment.dp),
        load_test_concurrency=ramp(mean.max_concurrency),
        binding="max_num_seqs" if mean.max_concurrency < unlimited else "kv_cache",
        prefix_cache=None
        if shares is None
        else PrefixCacheUse(
            shared_prefix_tokens=shares.shared_tokens,
            shared_prefix_bytes=shares.shared_bytes,
            reserve_bytes=shares.reserve_bytes,
            max_concurrency=mean.max_concurrency,
            unshared_max_concurrency=unshared,
        ),
    )


def recommended_max_num_seqs(safe_concurrency: int, dp: int = 1) -> int:
    """The share of one of `dp` engine ranks, which each have a limit of their own, at least one where one fits.

    From 8 on the multiple of 8 below it (engines capture CUDA graphs in steps of 8).

    >>> recommended_max_num_seqs(53), recommended_max_num_seqs(53, 4), recommended_max_num_seqs(53, 8)
    (48, 8, 6)
    """
    rank = max(min(1, safe_concurrency), safe_concurrency // dp)
    return rank // 8 * 8 if rank >= 8 else rank


def ramp(max_concurrency: int) -> list[int]:
    """Powers of two up to the maximum: 1, 2, 4 ...

    >>> ramp(77)
    [1, 2, 4, 8, 16, 32, 64]
    """
    return [1 << power for power in range(max_concurrency.bit_length())]


def concurrency_steps(
    found: Fit, deployment: Deployment, at: ConcurrencyAtLength, safety_ratio: float, prefix: PrefixCache | None = None
) -> list[Step]:
    """The working from the KV pool to the safe number of requests."""
    assert found.cost is not None  # noqa: S101 - callers check
    tokens, prefix = at.tokens_per_sequence, prefix or PrefixCache()
    shares = pool_shares(found, tokens, prefix)
    assert shares is not None  # noqa: S101 - the cost is known
    if found.pool is None:
        request = [sequence_step(found.cost, tokens, shares.request, "kv_bytes_per_request_per_gpu")]
    else:
        request = request_steps(found.pool, tokens, "kv_bytes_per_request_per_gpu", "num_blocks_per_request")
    request += prefix_steps(found, tokens, prefix, shares)
    formula, text = division(found, shares)
    formula, most = f"dp x {formula}", f"{deployment.dp} x {text}"
    limit = sequence_limit(found, deployment)
    if limit is not None:
        formula, most = f"min({formula}, dp x max_num_seqs)", f"min({most}, {deployment.dp} x {limit})"
    safe, safe_formula = f"floor({at.max_concurrency} x {plain(safety_ratio)})", "floor(max_concurrency x safety_ratio)"
    if at.max_concurrency and at.max_concurrency * safety_ratio < 1:
        safe, safe_formula = f"max(1, {safe})", f"max(1, {safe_formula})"
    return [
        *request,
        step(
            "max_concurrency",
            formula,
            most,
            at.max_concurrency,
            "requests",
            "https://arxiv.org/abs/2309.06180 (paged attention)",
        ),
        step(
            "safe_concurrency",
            safe_formula,
            safe,
            at.safe_concurrency,
            "requests",
            SAFETY_SOURCE,
            basis="assumed",
        ),
    ]


def _working(
    llm: Llm, gpu: Gpu, deployment: Deployment, found: Fit, mean: ConcurrencyAtLength, safety_ratio: float, prefix: PrefixCache | None
) -> list[Step]:
    recommended = recommended_max_num_seqs(mean.safe_concurrency, deployment.dp)
    rank = f"{mean.safe_concurrency} / {deployment.dp}"
    return [
        *memory_steps(llm, gpu, deployment, found),
        *concurrency_steps(found, deployment, mean, safety_ratio, prefix),
        step(
            "recommended_max_num_seqs",
            "safe_concurrency / dp, rounded down to a multiple of 8 from 8 on, at least 1 where one fits",
            f"floor({rank} / 8) x 8"
            if recommended >= 8
            else f"floor({rank})"
            if recommended * deployment.dp <= mean.safe_concurrency
            else "1",
            recommended,
            "requests",
            "https://github.com/vllm-project/vllm/blob/main/vllm/config/vllm.py (CUDA graph sizes in steps of 8)",
            basis="assumed",
        ),
    ]


def _warnings(llm: Llm, deployment: Deployment, found: Fit, mean_tokens: float, p95_tokens: float | None) -> list[Note]:
    warnings = memory_warnings(llm, deployment, found)
    if found.verdict != "serves":
        warnings.append(Note(code=found.verdict, message=f"The deployment does not serve ({found.verdict}, limited by {found.limiting})."))
    longest = found.max_model_len_tokens
    for which, tokens in (("", mean_tokens), (" (P95)", p95_tokens)):
        if longest is not None and tokens is not None and tokens > longest:
            warnings.append(
                Note(
                    code="beyond_max_model_len",
                    message=f"Requests of {plain(tokens)} tokens{which} are longer than max_model_len_tokens {longest}.",
                )
            )
            break
    return warnings
