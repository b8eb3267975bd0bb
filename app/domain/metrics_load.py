"""Load, batch, cache and traffic that a diagnosis reads: what engines and benchmarks count."""

from typing import Annotated

from pydantic import Field

from app.domain.value import Given

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[float, Field(ge=0, le=1e9)]
Rate = Annotated[float, Field(ge=0, le=1e12)]
Length = Annotated[float, Field(ge=0, le=1e9)]
Factor = Annotated[float, Field(ge=0, le=1e6)]

LENGTHS = ("input", "output")


class ThroughputMetrics(Given):
    """Rates and lengths of the requests of one window."""

    request_rps: Rate | None = None
    """Requests finished per second."""
    offered_rps: Rate | None = None
    """Requests sent per second by all clients, finished or not."""
    input_tokens_per_s: Rate | None = None
    """Prompt tokens processed per second: the load on prefill."""
    output_tokens_per_s: Rate | None = None
    """Tokens generated per second over all requests: the load on decode."""
    total_tokens_per_s: Rate | None = None
    """Prompt and generated tokens per second together."""
    send_delay_p99_s: Annotated[float, Field(ge=0, le=1e7)] | None = None
    """Time from when a request was due by the schedule of the load until it was sent, 99th percentile [s]."""
    num_concurrent_requests: Count | None = None
    """Requests in flight as the client counts them, waiting or running."""
    failed_request_ratio: Share | None = None
    """Requests that failed, were aborted or timed out / all requests."""
    input_p50_tokens: Length | None = None
    """Prompt length, median [tokens]."""
    input_p90_tokens: Length | None = None
    """Prompt length, 90th percentile [tokens]."""
    input_p95_tokens: Length | None = None
    """Prompt length, 95th percentile [tokens]."""
    input_p99_tokens: Length | None = None
    """Prompt length, 99th percentile [tokens]."""
    input_mean_tokens: Length | None = None
    """Prompt length, mean [tokens]."""
    input_max_tokens: Length | None = None
    """Longest prompt of the window [tokens]."""
    output_p50_tokens: Length | None = None
    """Output length, median [tokens]."""
    output_p90_tokens: Length | None = None
    """Output length, 90th percentile [tokens]."""
    output_p95_tokens: Length | None = None
    """Output length, 95th percentile [tokens]."""
    output_p99_tokens: Length | None = None
    """Output length, 99th percentile [tokens]."""
    output_mean_tokens: Length | None = None
    """Output length, mean [tokens]."""


class SchedulerMetrics(Given):
    """Batch, queue, steps and KV cache of one engine over one window."""

    num_running_requests: Count | None = None
    """Requests in the running batch of the engine."""
    num_waiting_requests: Count | None = None
    """Requests in the queue of the engine."""
    num_deferred_requests: Count | None = None
    """Waiting requests that are held back for another reason than capacity: a KV transfer, a grammar, an adapter, a policy."""
    max_num_seqs: Annotated[float, Field(ge=1, le=1e6)] | None = None
    """Most sequences that the engine runs at once, as it reports it; the deployment's own figure is used when this is left out."""
    max_num_batched_tokens: Annotated[float, Field(ge=1, le=1e9)] | None = None
    """Token budget of one step, as the engine reports it; the deployment's own figure is used when this is left out."""
    step_time_mean_s: Annotated[float, Field(ge=0, le=1e7)] | None = None
    """Duration of one engine step, mean [s]."""
    tokens_per_step: Count | None = None
    """Tokens that one step processes, prompts and outputs together, mean."""
    max_cuda_graph_batch_size: Annotated[float, Field(ge=0, le=1e6)] | None = None
    """Largest batch (or number of tokens) for which the engine captured a CUDA graph; 0 without graphs."""
    cuda_graph_step_ratio: Share | None = None
    """Decode steps that ran from a captured CUDA graph / all decode steps; 0 when graphs are off."""
    num_cuda_graph_steps: Count | None = None
    """Decode steps that ran from a captured CUDA graph since the engine started; 0 when there are none."""
    num_kv_cache_tokens: Annotated[float, Field(ge=0, le=1e12)] | None = None
    """Token positions that the KV cache holds, as the engine reports it."""
    num_kv_cache_free_tokens: Annotated[float, Field(ge=0, le=1e12)] | None = None
    """Token positions of the KV cache that are free, where they were fewest while requests waited."""
    kv_cache_usage_ratio: Share | None = None
    """KV cache blocks in use / all KV cache blocks."""
    preemptions_per_s: Rate | None = None
    """Requests thrown out of the running batch per second to free KV cache (SGLang: retractions)."""
    num_preemptions_per_request: Count | None = None
    """Preemptions / finished requests; computed from preemptions_per_s and request_rps when left out."""
    prefix_cache_hit_ratio: Share | None = None
    """Prompt tokens found in the prefix cache / prompt tokens looked up."""
    repeated_prompt_hit_ratio: Share | None = None
    """The same, when one prompt is sent twice in a row straight to one engine: 0 there blames the engine, not the clients."""
    external_prefix_cache_hit_ratio: Share | None = None
    """Prompt tokens found in a cache outside the accelerators (host memory, storage) / prompt tokens looked up there."""
    spec_decode_acceptance_ratio: Share | None = None
    """Draft tokens accepted / draft tokens proposed."""
    num_spec_tokens: Annotated[float, Field(ge=0, le=1000)] | None = None
    """Draft tokens proposed per step."""


class TrafficMetrics(Given):
    """What kinds of requests the window held, and how much slower a kind is than plain requests beside it."""

    shared_prefix_ratio: Share | None = None
    """Prompt tokens that other recent prompts begin with as well / prompt tokens: the hits that a prefix cache could have."""
    structured_output_request_ratio: Share | None = None
    """Requests with a grammar, JSON schema or tool choice / all requests."""
    structured_output_slowdown_ratio: Factor | None = None
    """Latency of structured requests / that of free requests under the same load."""
    structured_output_slowdown_alone_ratio: Factor | None = None
    """The same with one request at a time."""
    multimodal_request_ratio: Share | None = None
    """Requests with images, video or audio / all requests."""
    multimodal_slowdown_ratio: Factor | None = None
    """Latency of requests with media / that of text requests under the same load."""
    lora_request_ratio: Share | None = None
    """Requests that use an adapter / all requests."""
    lora_slowdown_ratio: Factor | None = None
    """Latency of requests with an adapter / that of the base model under the same load."""
    logprobs_request_ratio: Share | None = None
    """Requests that ask for log-probabilities or for several answers (n > 1) / all requests."""
    sampling_request_ratio: Share | None = None
    """Requests with top-p, top-k, min-p or penalties / all requests."""
    sampling_slowdown_ratio: Factor | None = None
    """Latency with these sampling parameters or beside a request that has them / that of plain requests without."""
    quantization_slowdown_ratio: Factor | None = None
    """Latency with these quantised weights or this KV cache / that of the same model in 16 bits or with another kernel, same load."""
    client_slowdown_ratio: Factor | None = None
    """Latency that this client or benchmark reports / that of another client on the same server under the same load."""
    short_request_ttft_p99_s: Annotated[float, Field(ge=0, le=1e7)] | None = None
    """TTFT of the short prompts of the mix, 99th percentile [s]."""
    long_request_ttft_p99_s: Annotated[float, Field(ge=0, le=1e7)] | None = None
    """TTFT of the long prompts of the mix, 99th percentile [s]."""
    num_replicas: Annotated[float, Field(ge=1, le=1e6)] | None = None
    """Replicas that share the traffic."""
    max_replica_traffic_ratio: Share | None = None
    """Share of all requests that the busiest replica gets."""
