"""A deployment as the command line of vLLM or SGLang.

Option names: https://docs.vllm.ai/en/latest/cli/serve/ and https://docs.sglang.io/advanced_features/server_arguments.html; a test holds
them against the options that released versions define.
"""

import json
import shlex
from collections.abc import Callable, Iterator, Mapping

from app.domain.deployment import Deployment, EngineName, Speculative
from app.domain.engine_arguments import EngineArgument, EngineArguments
from app.domain.kv_cache import resolve_kv_format
from app.domain.llm import Llm
from app.domain.memory_fit import Fit
from app.domain.precision import KvChoice, native_format
from app.domain.provenance import Note
from app.domain.units import plain

UNNAMED = "MODEL"
"""Stands for a model that has no Hugging Face id."""
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_KV_DTYPES: Mapping[EngineName, Mapping[KvChoice, str]] = {
    "vllm": {"bf16": "bfloat16", "fp16": "float16", "fp8": "fp8"},
    "sglang": {"bf16": "bfloat16", "fp8": "fp8_e4m3"},
}
_Options = Iterator[tuple[str, str | int | float | None]]


def engine_arguments(llm: Llm, deployment: Deployment, found: Fit, max_num_seqs: int, draft: Llm | None = None) -> EngineArguments | None:
    """The command for the deployment; None for engines other than vLLM and SGLang.

    `found` holds the limits with the engine's defaults filled in, `max_num_seqs` the sequences of one engine rank, `draft` the draft
    model. What the engine reads from the checkpoint or has no option for is a note.
    """
    notes: list[Note] = []
    write = _WRITERS.get(deployment.engine)
    if write is None:
        return None
    model = llm.hf_id or UNNAMED
    if llm.hf_id is None:
        notes.append(Note(code="model_not_named", message=f"{UNNAMED} stands for the path or Hugging Face id of the model."))
    options = [
        EngineArgument(option=name, value=None if value is None else value if isinstance(value, str) else plain(value))
        for name, value in (
            *write(deployment, found, max(1, max_num_seqs)),
            *_weights(llm, deployment, notes),
            *_kv_cache(llm, deployment, notes),
            *_speculation(llm, deployment, draft, notes),
        )
    ]
    start = ["vllm", "serve", model] if deployment.engine == "vllm" else ["python3", "-m", "sglang.launch_server", "--model-path", model]
    words = [word for each in options for word in (each.option, each.value) if word is not None]
    return EngineArguments(
        engine=deployment.engine,
        engine_version=deployment.engine_version,
        arguments=options,
        command=shlex.join([*start, *words]),
        notes=notes,
    )


def _vllm(deployment: Deployment, found: Fit, max_num_seqs: int) -> _Options:
    yield "--tensor-parallel-size", deployment.tp
    if deployment.pp > 1:
        yield "--pipeline-parallel-size", deployment.pp
    if deployment.dp > 1:
        yield "--data-parallel-size", deployment.dp
    if deployment.ep > 1:
        yield "--enable-expert-parallel", None
    if found.settings is not None and found.settings.fraction is not None:
        yield "--gpu-memory-utilization", found.settings.fraction
    if found.max_model_len_tokens is not None:
        yield "--max-model-len", found.max_model_len_tokens
    yield "--max-num-seqs", max_num_seqs
    if found.settings is not None:
        yield "--max-num-batched-tokens", found.settings.max_num_batched_tokens
    yield "--enable-chunked-prefill" if deployment.chunked_prefill else "--no-enable-chunked-prefill", None
    yield "--enable-prefix-caching" if deployment.prefix_caching else "--no-enable-prefix-caching", None
    if "block_size_tokens" in deployment.model_fields_set:
        yield "--block-size", deployment.block_size_tokens
    if deployment.enforce_eager:
        yield "--enforce-eager", None


def _sglang(deployment: Deployment, found: Fit, max_num_seqs: int) -> _Options:
    """SGLang counts attention data parallelism within tp, and requests and chunks over all its ranks.

    https://github.com/sgl-project/sglang/blob/v0.5.2/python/sglang/srt/server_args.py (chunked_prefill_size // dp_size)
    """
    yield "--tp-size", deployment.tp * deployment.dp
    if deployment.pp > 1:
        yield "--pp-size", deployment.pp
    if deployment.dp > 1:
        yield "--dp-size", deployment.dp
        yield "--enable-dp-attention", None
    if deployment.ep > 1:
        yield "--ep-size", deployment.ep
    if found.settings is not None and found.settings.fraction is not None:
        yield "--mem-fraction-static", round(found.settings.fraction, 3)
    if found.max_model_len_tokens is not None:
        yield "--context-length", found.max_model_len_tokens
    yield "--max-running-requests", max_num_seqs * deployment.dp
    if not deployment.chunked_prefill:
        yield "--chunked-prefill-size", -1
    elif found.settings is not None:
        yield "--chunked-prefill-size", found.settings.max_num_batched_tokens * deployment.dp
    if deployment.poll_interval_steps != 1:
        yield "--scheduler-recv-interval", deployment.poll_interval_steps
    if not deployment.prefix_caching:
        yield "--disable-radix-cache", None
    if "block_size_tokens" in deployment.model_fields_set:
        yield "--page-size", deployment.block_size_tokens
    if deployment.enforce_eager:
        yield "--disable-cuda-graph", None


_WRITERS: Mapping[EngineName, Callable[[Deployment, Fit, int], _Options]] = {"vllm": _vllm, "sglang": _sglang}


def _weights(llm: Llm, deployment: Deployment, notes: list[Note]) -> _Options:
    wanted, native = deployment.weights, native_format(llm.native.quantization)
    if wanted is None or wanted == native:
        return
    if wanted in _DTYPES and native is None:
        yield "--dtype", _DTYPES[wanted]
    elif wanted == "fp8" and native is None:
        yield "--quantization", "fp8"
        message = "Weights are quantised to FP8 while they load; a checkpoint in FP8 loads faster and needs no --quantization."
        notes.append(Note(code="quantised_on_loading", message=message))
    else:
        message = f"weights {wanted}: name a checkpoint in this format in place of the model; the engine reads the format from it."
        notes.append(Note(code="checkpoint_in_format", message=message))


def _kv_cache(llm: Llm, deployment: Deployment, notes: list[Note]) -> _Options:
    wanted = deployment.kv_cache
    if wanted == "auto" or wanted == resolve_kv_format(llm, "auto"):
        return
    name = _KV_DTYPES[deployment.engine].get(wanted)
    if name is not None:
        yield "--kv-cache-dtype", name
    else:
        message = f"kv_cache {wanted}: {deployment.engine} has no option of that name in all its versions; look up --kv-cache-dtype."
        notes.append(Note(code="kv_cache_not_exported", message=message))


def _speculation(llm: Llm, deployment: Deployment, draft: Llm | None, notes: list[Note]) -> _Options:
    speculative = deployment.speculative
    if speculative is None:
        return
    drafter = None if draft is None else draft.hf_id
    if drafter is None and not llm.num_mtp_layers:
        message = "Speculative decoding is not in the command: name a draft_model that has a Hugging Face id."
        notes.append(Note(code="draft_not_named", message=message))
        return
    if deployment.engine == "vllm":
        method = {"method": "mtp"} if drafter is None else {"model": drafter}
        yield "--speculative-config", json.dumps({**method, "num_speculative_tokens": speculative.num_draft_tokens})
    else:
        yield from _sglang_speculation(speculative, drafter)


def _sglang_speculation(speculative: Speculative, drafter: str | None) -> _Options:
    """One chain of drafts; the count of draft tokens includes the one that the last step has verified."""
    yield "--speculative-algorithm", "NEXTN" if drafter is None else "STANDALONE"
    if drafter is not None:
        yield "--speculative-draft-model-path", drafter
    yield "--speculative-num-steps", speculative.num_draft_tokens
    yield "--speculative-eagle-topk", 1
    yield "--speculative-num-draft-tokens", speculative.num_draft_tokens + 1
