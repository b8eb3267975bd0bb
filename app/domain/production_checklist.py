"""What to see to before traffic arrives: each item with what the plan already settles about it."""

from collections.abc import Iterator
from typing import Literal

from app.domain.capacity_answer import CapacityAnswer
from app.domain.deployment import Deployment
from app.domain.fleet import RollingUpdate
from app.domain.units import plain
from app.domain.value import Value
from app.domain.workload import Slo, Workload

Topic = Literal["model_and_configuration", "memory_and_service", "scheduling_and_speed", "observation_and_response"]
ItemState = Literal["planned", "open", "not_applicable"]


class ChecklistItem(Value):
    """One item of the production checklist."""

    topic: Topic
    """The part of the list."""
    item: str
    """What has to be true."""
    state: ItemState
    """planned: the plan settles it; open: somebody has to see to it; not_applicable: nothing here needs it."""
    why: str
    """What the plan says about it, or how to find out."""


def production_checklist(
    answer: CapacityAnswer, deployment: Deployment, workload: Workload, slo: Slo | None, update: RollingUpdate | None
) -> list[ChecklistItem]:
    """The items in order, judged by a plan."""
    parts: tuple[tuple[Topic, Iterator[tuple[str, ItemState, str]]], ...] = (
        ("model_and_configuration", _model(answer, deployment)),
        ("memory_and_service", _memory(answer, deployment, update)),
        ("scheduling_and_speed", _scheduling(answer, deployment, workload)),
        ("observation_and_response", _response(deployment, workload, slo)),
    )
    return [ChecklistItem(topic=topic, item=item, state=state, why=why) for topic, items in parts for item, state, why in items]


_Items = Iterator[tuple[str, ItemState, str]]


def _model(answer: CapacityAnswer, deployment: Deployment) -> _Items:
    if deployment.weights is None:
        yield "Precision of the weights", "open", "The plan names none and takes the checkpoint's own: name the one that is served."
    else:
        narrow = deployment.weights not in ("bf16", "fp16", "fp32")
        yield (
            "Precision of the weights",
            "open" if narrow else "planned",
            f"Planned in {deployment.weights}" + ("; run your own quality test at that precision." if narrow else "."),
        )
    yield (
        "Tokenizer and chat template",
        "open",
        "Compare token ids of a few chats with the model's own tokenizer.",
    )
    if deployment.max_model_len_tokens is None:
        yield "Longest context", "open", "The plan sets no max_model_len_tokens: the engine allows what the model was made for."
    else:
        yield "Longest context", "planned", f"max_model_len_tokens is {deployment.max_model_len_tokens}."
    longest = answer.demand.p95_output_tokens or answer.demand.mean_output_tokens
    yield "Longest answer", "open", f"Set max_tokens at the gateway: the plan counts on answers of about {plain(longest)} tokens and fewer."
    known = answer.model is not None
    yield (
        "Attention heads and KV heads",
        "planned" if known else "open",
        "Read from the model's description." if known else "The plan names no model: its figures were measured or given.",
    )


def _memory(answer: CapacityAnswer, deployment: Deployment, update: RollingUpdate | None) -> _Items:
    capacity = answer.per_replica.kv_capacity_tokens
    if capacity is None:
        yield "Weights, KV cache and workspace", "open", "Nothing was computed: name model and accelerator, or read the engine's log."
    else:
        yield "Weights, KV cache and workspace", "planned", f"A replica is expected to hold {plain(capacity)} tokens: compare with the log."
    safe = answer.per_replica.safe_concurrency
    if safe is None:
        yield "Watermark of the KV cache", "open", "The plan knows no safe concurrency."
    else:
        yield (
            "Watermark of the KV cache",
            "planned",
            f"{safe} requests of mean length; alerts fire above safety_ratio.",
        )
    paged = deployment.engine in ("vllm", "sglang", "tensorrt-llm")
    yield (
        "Paged KV cache",
        "planned" if paged else "open",
        f"{deployment.engine} " + ("always pages it." if paged else "may not page it: requests then hold their longest length."),
    )
    yield (
        "What happens without memory",
        "open",
        "In the fault test, send more than fits: requests wait or are refused.",
    )
    lost = next((case for case in answer.situations if case.name == "one replica lost"), None)
    if update is None:
        yield (
            "Room while replicas are exchanged",
            "open" if lost is None or not lost.holds else "planned",
            (
                "No rolling_update is planned"
                + ("." if lost is None else f"; with one replica away the fleet {'still holds' if lost.holds else 'does not hold'}.")
            ),
        )
    else:
        away = next((case for case in answer.situations if case.name == "rolling update"), None)
        holds = away is not None and away.holds
        yield (
            "Room while replicas are exchanged",
            "planned" if holds else "open",
            (f"{update.unavailable_replicas} away, {update.surge_replicas} more: the fleet {'holds' if holds else 'does not hold'}."),
        )


def _scheduling(answer: CapacityAnswer, deployment: Deployment, workload: Workload) -> _Items:
    named = deployment.engine != "generic"
    yield (
        "Continuous batching",
        "planned" if named else "open",
        (f"{deployment.engine} batches so by itself." if named else "The plan names no engine."),
    )
    yield (
        "max_num_seqs",
        "open",
        "Load-test it: "
        + (
            f"the plan sets {deployment.max_num_seqs}."
            if deployment.max_num_seqs
            else "the plan leaves it to the engine or to engine_args."
        ),
    )
    budget = deployment.max_num_batched_tokens
    yield (
        "Tokens of a step",
        "planned" if budget else "open",
        (f"max_num_batched_tokens is {budget}." if budget else "The engine's default is used; it trades TTFT against TPOT."),
    )
    if deployment.chunked_prefill:
        yield "Chunked prefill", "open", "On in the plan: the mixed test shows whether it keeps TPOT while long prompts arrive."
    else:
        yield "Chunked prefill", "open", "Off in the plan: a long prompt then stops every answer for the time of its prefill."
    if answer.pools is None:
        why = "Prompts are of one kind." if not workload.classes else "No prompts are far longer than the rest."
        yield "Short and long requests apart", "not_applicable", why
    else:
        yield (
            "Short and long requests apart",
            "open",
            "Prompts differ widely: see `pools` of the plan.",
        )


def _response(deployment: Deployment, workload: Workload, slo: Slo | None) -> _Items:
    yield (
        "Percentiles of TTFT, TPOT and queue time",
        "planned",
        "On the dashboard"
        + (", with alerts on the objectives." if slo is not None and slo.has_objective else "; no objective is set, so none alerts."),
    )
    yield "KV cache in use", "planned", "On the dashboard, with alerts."
    if not deployment.prefix_caching:
        yield "Prefix hits", "not_applicable", "The plan has no prefix cache."
    elif workload.prefix_hit_ratio:
        yield "Prefix hits", "planned", f"The plan counts on {workload.prefix_hit_ratio:.0%}: an alert watches the share."
    else:
        yield "Prefix hits", "planned", "On the dashboard; the plan does not count on any."
    yield "Alerts on refusals, preemption and lost memory", "planned", "In the rules."
    yield "Throttling, degradation, scaling out, going back", "open", "Do each once in the fault test, by the people on call."
