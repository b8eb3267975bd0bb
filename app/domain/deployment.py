"""How one replica runs: parallelism, precisions and the engine's limits."""

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, PrivateAttr

from app.domain.errors import InvalidInput
from app.domain.llm import Llm
from app.domain.precision import KvChoice, WeightFormat
from app.domain.value import Given

Degree = Annotated[int, Field(ge=1, le=1024)]
Tokens = Annotated[int, Field(ge=1, le=10**9)]
Ratio = Annotated[float, Field(ge=0, le=1)]
FITTED_LENGTH: Final = -1
"""max_model_len_tokens of a deployment that asks for the longest sequence that fits."""
EngineName = Literal["generic", "vllm", "sglang", "tensorrt-llm", "llama.cpp"]


def _not_zero(length: int) -> int:
    if not length:
        raise ValueError("0 is no length: at least 1, or -1 for the longest that fits")
    return length


class Speculative(Given):
    """Speculative decoding: a draft proposes tokens, the model checks them in one step."""

    num_draft_tokens: Annotated[int, Field(ge=1, le=64)]
    """Tokens that the draft proposes per step."""
    acceptance_ratio: Ratio
    """Accepted draft tokens / proposed draft tokens."""
    draft_model: str | None = Field(default=None, max_length=200)
    """Catalog slug or Hugging Face id of the draft model."""
    _draft: Llm | None = PrivateAttr(default=None)

    @property
    def draft(self) -> Llm | None:
        """The draft model after its name was resolved; None without one, or where the catalog does not know it."""
        return self._draft

    def with_draft(self, draft: Llm) -> "Speculative":
        """The same with the draft model that the name means."""
        resolved = self.model_copy()
        resolved._draft = draft
        return resolved

    @property
    def tokens_per_iteration(self) -> float:
        """Tokens that one step of the target model yields: 1 + num_draft_tokens x acceptance_ratio."""
        return 1 + self.num_draft_tokens * self.acceptance_ratio


class LoraSlots(Given):
    """Room that an engine keeps on the accelerators for low-rank adapters."""

    num_slots: Annotated[int, Field(ge=1, le=1024)] = 1
    """Adapters that one step can use (max_loras of vLLM, max_loras_per_batch of SGLang)."""
    max_rank: Annotated[int, Field(ge=1, le=4096)] = 16
    """Largest rank of an adapter."""


class Deployment(Given):
    """One replica: tp x pp x dp accelerators that serve one copy of the model."""

    tp: Degree = 1
    """Attention tensor-parallel degree."""
    pp: Degree = 1
    """Pipeline stages."""
    dp: Degree = 1
    """Attention data-parallel ranks of one engine."""
    dcp: Degree = 1
    """Decode context-parallel ranks within tp: each keeps 1/dcp of a sequence's tokens in the layers that cache all of them."""
    ep: Degree = 1
    """Expert-parallel degree: 1, or tp x dp."""
    weights: WeightFormat | None = None
    """Precision of the weights; None is the checkpoint's own."""
    kv_cache: KvChoice = "auto"
    """Precision of the KV cache; auto is the engine's choice, 16 bits unless the checkpoint says otherwise."""
    engine: EngineName = "generic"
    """Inference engine."""
    engine_version: str | None = Field(default=None, max_length=50)
    """Version of the engine."""
    usage_context: Literal["server", "offline"] = "server"
    """Whether the engine runs as a server or inside a program (vLLM's class LLM), which decides its default of batched tokens."""
    memory_fraction_ratio: Annotated[float, Field(ge=0.01, le=1)] | None = None
    """Share of the device memory that the engine may use."""
    max_model_len_tokens: Annotated[int, Field(ge=FITTED_LENGTH, le=10**9), AfterValidator(_not_zero)] | None = None
    """Longest sequence that is admitted, prompt and output together; None is the model's own limit, -1 the longest that fits."""
    max_num_seqs: Annotated[int, Field(ge=1, le=10**6)] | None = None
    """Most sequences that run at once."""
    max_num_batched_tokens: Tokens | None = None
    """Most tokens that one step processes."""
    block_size_tokens: Annotated[int, Field(ge=1, le=65536)] = 16
    """Tokens of one KV cache block."""
    enforce_eager: bool = False
    """Run without CUDA graphs."""
    chunked_prefill: bool = True
    """Split long prompts over several steps."""
    poll_interval_steps: Annotated[int, Field(ge=1, le=1000)] = 1
    """Steps from one look for new requests to the next (SGLang: --scheduler-recv-interval)."""
    batch_wait_steps: Annotated[int, Field(ge=0, le=10_000)] = 0
    """Steps for which a prompt is held back while others gather (TensorRT-LLM: batch_wait_timeout_iters)."""
    prefix_caching: bool = True
    """Reuse the KV cache of common prompt beginnings."""
    num_redundant_experts: Annotated[int, Field(ge=0, le=4096)] = 0
    """Copies of experts beside the model's own, over all ranks, with expert parallelism."""
    lora: LoraSlots | None = None
    """Slots for low-rank adapters; None serves none."""
    task: Literal["generate", "embed"] = "generate"
    """`embed` is a pooling model: no output head is loaded, and nothing is sampled."""
    language_model_only: bool = False
    """No vision tower is loaded or profiled (vLLM: language_model_only, or a limit of 0 for every modality)."""
    flashinfer_sampler: bool | None = None
    """Whether vLLM before 0.17 samples with FlashInfer instead of sorting the logits; None is not known."""
    speculative: Speculative | None = None
    """Speculative decoding."""
    reserve_bytes_per_gpu: Annotated[int, Field(ge=0, le=10**15)] | None = None
    """Memory kept for everything beside weights and KV cache; replaces the engine's own terms."""

    @property
    def num_gpus(self) -> int:
        """Accelerators of one replica: tp x pp x dp."""
        return self.tp * self.pp * self.dp

    @property
    def draft(self) -> Llm | None:
        """The draft model of speculation after its name was resolved; None without one, or where the catalog does not know it."""
        return None if self.speculative is None else self.speculative.draft


def check_layout(llm: Llm, deployment: Deployment, *, field: str = "/deployment/tp") -> None:
    """Refuse a layout that no engine can run; raises InvalidInput naming the field.

    Query heads divide by tp; key/value heads divide by tp or tp divides by them (they are then replicated); pp is at most the number
    of layers; ep is 1 or tp x dp and needs experts. Source: https://github.com/vllm-project/vllm/blob/main/vllm/config/model.py
    (`verify_with_parallel_config`).
    """
    if deployment.dcp > 1:
        _check_context_ranks(llm, deployment)
    tp, pp, ep = deployment.tp, deployment.pp, deployment.ep
    heads = llm.num_attention_heads
    if heads is not None and heads % tp:
        divisors = [str(d) for d in range(1, min(heads, 64) + 1) if heads % d == 0]
        raise InvalidInput(
            f"tp {tp} does not divide the {heads} attention heads of {llm.slug}",
            field=field, value=tp, expected=f"one of {', '.join(divisors)}",
        )  # fmt: skip
    for group in llm.layer_groups or ():
        mixer = group.mixer
        if mixer is not None and mixer.kind == "attention" and mixer.num_kv_heads % tp and tp % mixer.num_kv_heads:
            raise InvalidInput(
                f"tp {tp} neither divides nor is a multiple of the {mixer.num_kv_heads} key/value heads of {llm.slug}",
                field=field, value=tp, expected=f"a divisor or a multiple of {mixer.num_kv_heads}",
            )  # fmt: skip
    if llm.layer_groups is not None and pp > llm.num_layers:
        raise InvalidInput(
            f"pp {pp} is more than the {llm.num_layers} layers of {llm.slug}",
            field="/deployment/pp", value=pp, expected=f"1 to {llm.num_layers}",
        )  # fmt: skip
    if ep not in (1, tp * deployment.dp):
        raise InvalidInput(
            f"ep {ep} is neither 1 nor tp x dp = {tp * deployment.dp}",
            field="/deployment/ep", value=ep, expected=f"1 or {tp * deployment.dp}",
        )  # fmt: skip
    if deployment.num_redundant_experts and ep == 1:
        raise InvalidInput(
            f"num_redundant_experts {deployment.num_redundant_experts} without expert parallelism",
            field="/deployment/num_redundant_experts", value=deployment.num_redundant_experts, expected="0 where ep is 1",
        )  # fmt: skip
    if ep > 1 and llm.layer_groups is not None and not llm.num_expert_params:
        raise InvalidInput(
            f"ep {ep} for {llm.slug}, which has no experts", field="/deployment/ep", value=ep, expected="1 for a dense model"
        )


def _check_context_ranks(llm: Llm, deployment: Deployment) -> None:
    """Refuse context-parallel ranks that vLLM, the one engine that is read here, refuses; raises InvalidInput.

    dcp divides tp; heads that are replicated make room for it: dcp <= tp / key/value heads, and it divides the queries of each; windows
    are not split. Sources: https://github.com/vllm-project/vllm/blob/v0.25.0/vllm/config/model.py (verify_with_parallel_config),
    https://github.com/vllm-project/vllm/blob/v0.25.0/vllm/v1/kv_cache_interface.py (SlidingWindowSpec).
    """
    tp, dcp = deployment.tp, deployment.dcp
    expected = None if deployment.engine == "vllm" else "1: it is known for vllm only"
    if tp % dcp:
        expected = f"a divisor of tp {tp}"
    mixers = [group.mixer for group in llm.layer_groups or ()]
    if any(mixer is not None and mixer.kind == "compressed_attention" for mixer in mixers):
        expected = "1: layers that compress their history are not split"
    heads = [mixer for mixer in mixers if mixer is not None and mixer.kind == "attention"]
    if any(mixer.window_tokens is not None for mixer in heads):
        expected = "1: layers with windows are not split"
    elif any(dcp > tp // mixer.num_kv_heads or mixer.num_heads // mixer.num_kv_heads % dcp for mixer in heads):
        expected = "at most tp / key/value heads, and a divisor of the queries of each"
    if expected is not None:
        raise InvalidInput(f"{llm.slug} cannot be served with dcp {dcp} at tp {tp}", field="/deployment/dcp", value=dcp, expected=expected)
