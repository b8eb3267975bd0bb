"""The usual order of optimising a deployment, and what of it applies to one plan."""

from collections.abc import Iterator
from typing import Literal

from app.domain.capacity_answer import CapacityAnswer
from app.domain.deployment import Deployment
from app.domain.units import plain
from app.domain.value import Value
from app.domain.workload import Slo, Workload

Applies = Literal["done", "next", "no"]
WIDE_WEIGHTS = ("bf16", "fp16", "fp32")
LONG_PROMPT_TOKENS = 1000
"""Prompts from here on are worth shortening before machines are added (a convention)."""
LONG_ANSWER_TOKENS = 1000
"""Answers from here on are worth bounding and shortening (a convention)."""
DRAFT_CONCURRENCY = 32
"""Requests at once in a replica above which drafts compete with requests for the same computing (a convention): they pay at low to medium
load, https://docs.vllm.ai/en/latest/features/spec_decode.html."""
DECODE_SHARE_RATIO = 0.5
"""Share of the time of a request after its first token from which on decoding is worth speeding up first (a convention)."""


class OptimisationStep(Value):
    """One step of the order."""

    order: int
    """Place in the order, from 1."""
    step: str
    """What is done."""
    applies: Applies
    """done: the plan has it; next: worth doing here; no: nothing to gain here."""
    why: str
    """Why, in the figures of the plan."""


def optimisation_order(
    answer: CapacityAnswer, deployment: Deployment, workload: Workload, slo: Slo | None, *, published: str | None = None
) -> list[OptimisationStep]:
    """The fourteen steps in order, judged by a plan; `published` is the quantisation of the checkpoint, which weights not named have."""
    steps = [*_before(answer, deployment, workload, slo), *_tuning(answer, deployment, workload, published), *_beyond(answer, deployment)]
    return [OptimisationStep(order=order, step=what, applies=applies, why=why) for order, (what, applies, why) in enumerate(steps, 1)]


_Steps = Iterator[tuple[str, Applies, str]]


def _before(answer: CapacityAnswer, deployment: Deployment, workload: Workload, slo: Slo | None) -> _Steps:
    spread = bool(workload.classes) or (workload.input_tokens is not None and workload.input_tokens.p95 is not None)
    missing = [
        name for name, known in (("objectives", slo is not None and slo.has_objective), ("percentiles of lengths", spread)) if not known
    ]
    yield (
        "State rate, lengths and objectives",
        "next" if missing else "done",
        (f"Missing: {', '.join(missing)}." if missing else f"{plain(answer.demand.request_rps)} requests/s with lengths and objectives."),
    )
    measured = answer.latency is not None and answer.latency.basis == "measured"
    yield (
        "Measure one request alone and a ramp",
        "done" if measured else "next",
        ("The plan rests on measured figures." if measured else "Nothing was measured: POST /load-tests writes the schedule."),
    )
    held = answer.per_replica.kv_capacity_tokens
    yield (
        "Count weights and KV cache",
        "next" if held is None else "done",
        ("Name model and accelerator." if held is None else f"A replica holds {plain(held)} tokens."),
    )
    named = deployment.engine in ("vllm", "sglang", "tensorrt-llm")
    yield (
        "Continuous batching and a paged KV cache",
        "done" if named else "next",
        (f"{deployment.engine} has both." if named else "Name an engine that has both."),
    )
    bounded = deployment.max_model_len_tokens is not None
    yield (
        "Bound contexts and answers",
        "done" if bounded else "next",
        (
            f"Contexts end at {deployment.max_model_len_tokens} tokens; bound max_tokens at the gateway, too."
            if bounded
            else "No max_model_len_tokens: one request may take the whole cache."
        ),
    )


def _tuning(answer: CapacityAnswer, deployment: Deployment, workload: Workload, published: str | None) -> _Steps:
    demand = answer.demand
    given = deployment.max_num_seqs is not None and deployment.max_num_batched_tokens is not None
    yield (
        "Set max_num_seqs and max_num_batched_tokens",
        "done" if given else "next",
        ("Both are set: the ramp confirms them." if given else "One is the engine's default: try those of engine_args in a ramp."),
    )
    if deployment.chunked_prefill:
        yield "Chunked prefill to protect decoding", "done", "It is on."
    else:
        yield (
            "Chunked prefill to protect decoding",
            "next",
            f"It is off: prompts of {plain(demand.mean_input_tokens)} tokens stop answers.",
        )
    lengths = (("Prompts", demand.mean_input_tokens, LONG_PROMPT_TOKENS), ("Answers", demand.mean_output_tokens, LONG_ANSWER_TOKENS))
    long = [f"{what} of {plain(tokens)} tokens" for what, tokens, limit in lengths if tokens >= limit]
    yield (
        "Shorten prompts, retrieved text, history and answers",
        "next" if long else "no",
        (
            f"{' and '.join(long)}: what is left out costs nothing."
            if long
            else f"{' and '.join(f'{what} of {plain(tokens)} tokens' for what, tokens, _ in lengths)} leave little to cut."
        ),
    )
    if not deployment.prefix_caching:
        yield (
            "Prefix cache for shared beginnings",
            "next" if workload.shared_prefix_tokens else "no",
            ("Prompts share a beginning, and it is off." if workload.shared_prefix_tokens else "No beginning is said to be shared."),
        )
    elif workload.prefix_hit_ratio:
        saved = demand.saved_input_tokens_per_s / demand.input_tokens_per_s
        yield "Prefix cache for shared beginnings", "done", f"{saved:.0%} of the prompt tokens are planned to come from it."
    else:
        yield (
            "Prefix cache for shared beginnings",
            "next",
            "It is on, the plan counts on no hits: measure them.",
        )
    wide_kv = deployment.kv_cache in ("auto", "bf16", "fp16")
    wide = published is None if deployment.weights is None else deployment.weights in WIDE_WEIGHTS
    bound_by_kv = answer.binding in ("kv_cache", "concurrency")
    left = [what for what, is_wide in (("weights", wide), ("KV cache" + (", which binds" if bound_by_kv else ""), wide_kv)) if is_wide]
    yield (
        "Narrower weights and KV cache",
        "next" if left else "done",
        (f"Not narrowed or not named: {' and '.join(left)}; test the quality on your own tasks." if left else "Both are narrow."),
    )


def _beyond(answer: CapacityAnswer, deployment: Deployment) -> _Steps:
    expected = answer.expected
    share = None if expected is None else 1 - expected.ttft.mean_s.value / expected.e2e.mean_s.value
    if deployment.speculative is not None:
        yield "Speculative decoding", "done", f"{deployment.speculative.num_draft_tokens} drafts are planned: watch their acceptance."
    elif share is None:
        yield "Speculative decoding", "next", "Nothing is modelled: measure TTFT and the whole request first; drafts shorten only the rest."
    else:
        at_once = 0.0 if expected is None else expected.concurrency
        pays = share >= DECODE_SHARE_RATIO and at_once <= DRAFT_CONCURRENCY
        yield (
            "Speculative decoding",
            "next" if pays else "no",
            f"{share:.0%} of a request's time is expected after its first token, "
            + (
                f"with about {at_once:.3g} requests at once: drafts shorten it while batches are small."
                if pays
                else f"but about {at_once:.3g} requests run at once, and drafts compete with them for the same computing."
                if share >= DECODE_SHARE_RATIO
                else "and drafts shorten nothing else."
            ),
        )
    replicas = answer.replicas
    yield (
        "Tensor parallelism within, replicas beside",
        "next" if replicas is None else "done",
        ("The plan has no size yet." if replicas is None else f"tp {deployment.tp} in each of {replicas} replicas; see POST /recommend."),
    )
    apart = answer.pools is not None
    yield (
        "Keep long and short requests, tenants and priorities apart",
        "next" if apart else "no",
        ("Some prompts are far longer than the rest: see `pools` of the plan." if apart else "No prompts are far longer than the rest."),
    )
    yield "Size and price by a load test", "next", "POST /load-tests/analysis reads its results, and calibrates the model with them."
