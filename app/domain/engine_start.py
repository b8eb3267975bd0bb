"""What an engine printed about its memory when it started, as figures, or what a caller read from such a log."""

from typing import Annotated, Literal

from pydantic import Field

from app.domain.deployment import Deployment, EngineName
from app.domain.engine import CheckName
from app.domain.precision import KvChoice
from app.domain.provenance import Note
from app.domain.value import Given, Value

Bytes = Annotated[int, Field(ge=0, le=10**15)]
SignedBytes = Annotated[int, Field(ge=-(10**15), le=10**15)]
Count = Annotated[int, Field(ge=0, le=10**12)]
Text = Annotated[str, Field(max_length=300)]
StopName = CheckName | Literal["memory_grew"]
"""Where a start stops: at one of the checks, or because free memory grew under the profile run, as another process ended."""


class StartFailure(Given):
    """Why an engine did not start."""

    check: StopName
    """Where it stopped."""
    message: Annotated[str, Field(max_length=2000)]
    """The line that says so."""
    longest_len_tokens: Count | None = None
    """Longest sequence that the engine says would fit [tokens]."""
    needed_kv_cache_bytes: Bytes | None = None
    """KV cache that one sequence of the longest admitted length needs, as printed [bytes]."""


class EngineStart(Given):
    """Settings and memory figures of one start; each is None when it was not printed.

    Figures are those of the rank that decides: the smallest KV cache pool, and the largest of everything that is taken out of it.
    """

    engine: EngineName | None = None
    """Inference engine."""
    engine_version: Annotated[str, Field(min_length=1, max_length=50)] | None = None
    """Version of the engine."""
    model: Text | None = None
    """Name or path of the model."""
    tp: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Tensor-parallel degree."""
    pp: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Pipeline stages."""
    dp: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Data-parallel ranks."""
    quantization: Annotated[str, Field(max_length=50)] | None = None
    """Quantisation of the weights, in the engine's words."""
    kv_cache: KvChoice | None = None
    """Precision of the KV cache."""
    memory_fraction_ratio: Annotated[float, Field(ge=0.01, le=1)] | None = None
    """Share of the memory that the engine may use: gpu_memory_utilization, mem_fraction_static, free_gpu_memory_fraction."""
    max_model_len_tokens: Annotated[int, Field(ge=1, le=10**9)] | None = None
    """Longest sequence that is admitted [tokens]."""
    max_num_seqs: Annotated[int, Field(ge=1, le=10**6)] | None = None
    """Most sequences that run at once."""
    max_num_batched_tokens: Annotated[int, Field(ge=1, le=10**9)] | None = None
    """Most tokens that one step processes [tokens]."""
    block_size_tokens: Annotated[int, Field(ge=1, le=65536)] | None = None
    """Tokens of one KV cache block [tokens]."""
    num_draft_tokens: Annotated[int, Field(ge=1, le=64)] | None = None
    """Tokens that speculative decoding proposes per step."""
    enforce_eager: bool | None = None
    """Run without CUDA graphs."""
    prefix_caching: bool | None = None
    """Reuse of common prompt beginnings."""
    chunked_prefill: bool | None = None
    """Long prompts are split over several steps."""
    memory_bytes: Bytes | None = None
    """Memory of one accelerator as the engine sees it [bytes]."""
    free_at_start_bytes: Bytes | None = None
    """Free memory of one accelerator before the weights were loaded [bytes]."""
    budget_bytes: Bytes | None = None
    """What the engine allowed itself on one accelerator [bytes]."""
    weights_bytes_per_gpu: Bytes | None = None
    """Weights on the fullest accelerator [bytes]."""
    consumed_bytes: Bytes | None = None
    """Weights and memory outside the framework's allocator as one figure, as new versions of vLLM print it [bytes]."""
    activation_bytes: Bytes | None = None
    """Peak of the activations in the profile run [bytes]."""
    non_torch_bytes: Bytes | None = None
    """Memory outside the framework's allocator: communication, kernels [bytes]."""
    estimated_cuda_graph_bytes: Bytes | None = None
    """CUDA graphs as estimated before the pool was sized [bytes]."""
    cuda_graph_bytes: Bytes | None = None
    """CUDA graphs as captured [bytes]."""
    graphs_in_budget: bool | None = None
    """Whether the estimated graphs were taken off the budget before the pool was sized."""
    state_bytes: Bytes | None = None
    """Pool of recurrent states beside the KV cache pool [bytes]."""
    kv_cache_bytes_per_gpu: SignedBytes | None = None
    """KV cache pool of the rank with the smallest one [bytes]."""
    largest_kv_cache_bytes_per_gpu: SignedBytes | None = None
    """KV cache pool of the rank with the largest one [bytes]."""
    kv_cache_tokens: Count | None = None
    """Token positions of one engine [tokens]."""
    num_blocks: Count | None = None
    """KV cache blocks of one engine."""
    max_concurrency_at_max_len_ratio: Annotated[float, Field(ge=0, le=10**9)] | None = None
    """Sequences of the longest admitted length that one engine holds."""
    failure: StartFailure | None = None
    """Why it did not start."""

    def settings(self) -> dict[str, object]:
        """The printed settings, by the names that a deployment gives them."""
        return {
            name: value for name, value in self if name in Deployment.model_fields and name != "block_size_tokens" and value is not None
        }


class ReadStart(Value):
    """The last start of a log."""

    start: EngineStart
    """Its figures."""
    notes: list[Note]
    """What was ambiguous, contradictory or not understood."""
