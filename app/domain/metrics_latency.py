"""Latencies that a diagnosis reads: families of percentiles, each of one window [s]."""

from typing import Annotated

from pydantic import Field

from app.domain.value import Given

Seconds = Annotated[float, Field(ge=0, le=1e7)]

PERCENTILES = ("p50", "p90", "p95", "p99")
STATISTICS = (*PERCENTILES, "mean")

ENGINE_LATENCIES = ("ttft", "tpot", "itl", "e2e", "queue_time", "prefill_time")
"""What the engine's own clock sees."""
OUTSIDE_LATENCIES = ("client_ttft", "client_itl", "client_e2e", "preprocess_time", "grammar_time", "kv_load_time")
"""What it does not see, or sees as part of something else."""
LATENCIES = (*ENGINE_LATENCIES, *OUTSIDE_LATENCIES)


class LatencyMetrics(Given):
    """Latencies of the requests of one window."""

    ttft_p50_s: Seconds | None = None
    """Time to first token as the engine measures it, median [s]."""
    ttft_p90_s: Seconds | None = None
    """Time to first token as the engine measures it, 90th percentile [s]."""
    ttft_p95_s: Seconds | None = None
    """Time to first token as the engine measures it, 95th percentile [s]."""
    ttft_p99_s: Seconds | None = None
    """Time to first token as the engine measures it, 99th percentile [s]."""
    ttft_mean_s: Seconds | None = None
    """Time to first token as the engine measures it, mean; percentiles are better evidence [s]."""
    tpot_p50_s: Seconds | None = None
    """Time per output token of a request, (E2E - TTFT) / (output tokens - 1), median [s]."""
    tpot_p90_s: Seconds | None = None
    """Time per output token of a request, (E2E - TTFT) / (output tokens - 1), 90th percentile [s]."""
    tpot_p95_s: Seconds | None = None
    """Time per output token of a request, (E2E - TTFT) / (output tokens - 1), 95th percentile [s]."""
    tpot_p99_s: Seconds | None = None
    """Time per output token of a request, (E2E - TTFT) / (output tokens - 1), 99th percentile [s]."""
    tpot_mean_s: Seconds | None = None
    """Time per output token of a request, (E2E - TTFT) / (output tokens - 1), mean; percentiles are better evidence [s]."""
    itl_p50_s: Seconds | None = None
    """Time between two streamed chunks as the engine measures it, median [s]."""
    itl_p90_s: Seconds | None = None
    """Time between two streamed chunks as the engine measures it, 90th percentile [s]."""
    itl_p95_s: Seconds | None = None
    """Time between two streamed chunks as the engine measures it, 95th percentile [s]."""
    itl_p99_s: Seconds | None = None
    """Time between two streamed chunks as the engine measures it, 99th percentile [s]."""
    itl_mean_s: Seconds | None = None
    """Time between two streamed chunks as the engine measures it, mean; percentiles are better evidence [s]."""
    e2e_p50_s: Seconds | None = None
    """End-to-end latency of a request as the engine measures it, median [s]."""
    e2e_p90_s: Seconds | None = None
    """End-to-end latency of a request as the engine measures it, 90th percentile [s]."""
    e2e_p95_s: Seconds | None = None
    """End-to-end latency of a request as the engine measures it, 95th percentile [s]."""
    e2e_p99_s: Seconds | None = None
    """End-to-end latency of a request as the engine measures it, 99th percentile [s]."""
    e2e_mean_s: Seconds | None = None
    """End-to-end latency of a request as the engine measures it, mean; percentiles are better evidence [s]."""
    queue_time_p50_s: Seconds | None = None
    """Time between arrival at the engine and first scheduling, median [s]."""
    queue_time_p90_s: Seconds | None = None
    """Time between arrival at the engine and first scheduling, 90th percentile [s]."""
    queue_time_p95_s: Seconds | None = None
    """Time between arrival at the engine and first scheduling, 95th percentile [s]."""
    queue_time_p99_s: Seconds | None = None
    """Time between arrival at the engine and first scheduling, 99th percentile [s]."""
    queue_time_mean_s: Seconds | None = None
    """Time between arrival at the engine and first scheduling, mean; percentiles are better evidence [s]."""
    prefill_time_p50_s: Seconds | None = None
    """Time between first scheduling and first token, median [s]."""
    prefill_time_p90_s: Seconds | None = None
    """Time between first scheduling and first token, 90th percentile [s]."""
    prefill_time_p95_s: Seconds | None = None
    """Time between first scheduling and first token, 95th percentile [s]."""
    prefill_time_p99_s: Seconds | None = None
    """Time between first scheduling and first token, 99th percentile [s]."""
    prefill_time_mean_s: Seconds | None = None
    """Time between first scheduling and first token, mean; percentiles are better evidence [s]."""
    client_ttft_p50_s: Seconds | None = None
    """Time to first token as the client measures it, median [s]."""
    client_ttft_p90_s: Seconds | None = None
    """Time to first token as the client measures it, 90th percentile [s]."""
    client_ttft_p95_s: Seconds | None = None
    """Time to first token as the client measures it, 95th percentile [s]."""
    client_ttft_p99_s: Seconds | None = None
    """Time to first token as the client measures it, 99th percentile [s]."""
    client_ttft_mean_s: Seconds | None = None
    """Time to first token as the client measures it, mean; percentiles are better evidence [s]."""
    client_itl_p50_s: Seconds | None = None
    """Time between two streamed chunks as the client receives them, median [s]."""
    client_itl_p90_s: Seconds | None = None
    """Time between two streamed chunks as the client receives them, 90th percentile [s]."""
    client_itl_p95_s: Seconds | None = None
    """Time between two streamed chunks as the client receives them, 95th percentile [s]."""
    client_itl_p99_s: Seconds | None = None
    """Time between two streamed chunks as the client receives them, 99th percentile [s]."""
    client_itl_mean_s: Seconds | None = None
    """Time between two streamed chunks as the client receives them, mean; percentiles are better evidence [s]."""
    client_e2e_p50_s: Seconds | None = None
    """End-to-end latency as the client measures it, median [s]."""
    client_e2e_p90_s: Seconds | None = None
    """End-to-end latency as the client measures it, 90th percentile [s]."""
    client_e2e_p95_s: Seconds | None = None
    """End-to-end latency as the client measures it, 95th percentile [s]."""
    client_e2e_p99_s: Seconds | None = None
    """End-to-end latency as the client measures it, 99th percentile [s]."""
    client_e2e_mean_s: Seconds | None = None
    """End-to-end latency as the client measures it, mean; percentiles are better evidence [s]."""
    preprocess_time_p50_s: Seconds | None = None
    """Work on a request before it is queued: media, processor, template, tokenizer, median [s]."""
    preprocess_time_p90_s: Seconds | None = None
    """Work on a request before it is queued: media, processor, template, tokenizer, 90th percentile [s]."""
    preprocess_time_p95_s: Seconds | None = None
    """Work on a request before it is queued: media, processor, template, tokenizer, 95th percentile [s]."""
    preprocess_time_p99_s: Seconds | None = None
    """Work on a request before it is queued: media, processor, template, tokenizer, 99th percentile [s]."""
    preprocess_time_mean_s: Seconds | None = None
    """Work on a request before it is queued: media, processor, template, tokenizer, mean; percentiles are better evidence [s]."""
    grammar_time_p50_s: Seconds | None = None
    """Compilation of the grammar or schema of a structured request, median [s]."""
    grammar_time_p90_s: Seconds | None = None
    """Compilation of the grammar or schema of a structured request, 90th percentile [s]."""
    grammar_time_p95_s: Seconds | None = None
    """Compilation of the grammar or schema of a structured request, 95th percentile [s]."""
    grammar_time_p99_s: Seconds | None = None
    """Compilation of the grammar or schema of a structured request, 99th percentile [s]."""
    grammar_time_mean_s: Seconds | None = None
    """Compilation of the grammar or schema of a structured request, mean; percentiles are better evidence [s]."""
    kv_load_time_p50_s: Seconds | None = None
    """Fetching KV cache for a request from host memory, storage or a prefill instance, median [s]."""
    kv_load_time_p90_s: Seconds | None = None
    """Fetching KV cache for a request from host memory, storage or a prefill instance, 90th percentile [s]."""
    kv_load_time_p95_s: Seconds | None = None
    """Fetching KV cache for a request from host memory, storage or a prefill instance, 95th percentile [s]."""
    kv_load_time_p99_s: Seconds | None = None
    """Fetching KV cache for a request from host memory, storage or a prefill instance, 99th percentile [s]."""
    kv_load_time_mean_s: Seconds | None = None
    """Fetching KV cache for a request from host memory, storage or a prefill instance, mean; percentiles are better evidence [s]."""
