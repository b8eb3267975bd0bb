"""Arithmetic of a model at a workload: FLOPs and least times, all of it bounds."""

from app.domain.bounds import attention_flops, causal_attention_flops, linear_flops
from app.domain.deployment import Deployment
from app.domain.llm import Llm
from app.domain.sizing import Sizing
from app.domain.units import exact
from app.domain.value import Value


class SpeedLimits(Value):
    """Arithmetic of the model at this workload; all of it bounds, before any engine inefficiency."""

    prefill_flops: float
    """2 x active parameters x mean prompt, without the tokens that the prefix cache serves [FLOP]."""
    attention_full_flops: float
    """Attention over the full matrix of the mean prompt [FLOP]."""
    attention_causal_flops: float
    """What causal masking and the prefix cache leave of it: half, where every token sees all before it [FLOP]."""
    decode_flops_per_token: float
    """2 x active parameters [FLOP/token]."""
    prefill_s: float | None
    """Least prefill time of the mean prompt on one replica [s]."""
    decode_step_s: float | None
    """Least time of one decode step at the running concurrency, of one request where that is not known [s]."""
    single_stream_output_tokens_per_s: float | None
    """Bandwidth / weights per GPU: best rate of one stream when only weights are read [tokens/s]."""
    prefill_chunks_iterations: int | None
    """Steps that the mean prompt takes: ceil(prompt / max_num_batched_tokens); None without that limit or without chunking."""
    decode_iterations: float
    """Steps of the model per request: output / tokens per step (1 without speculation)."""


def speed_limits(llm: Llm, deployment: Deployment, sizing: Sizing) -> SpeedLimits:
    """What the workload costs in arithmetic; times are None without the figures of the accelerator."""
    prompt, output = sizing.demand.mean_input_tokens, sizing.demand.mean_output_tokens
    bounds, least = sizing.bounds, sizing.least
    budget = deployment.max_num_batched_tokens if deployment.chunked_prefill else None
    cached = sizing.cached_tokens(prompt)
    return SpeedLimits(
        prefill_flops=exact(linear_flops(llm, prompt - cached)),
        attention_full_flops=exact(attention_flops(llm, prompt)),
        attention_causal_flops=exact(least.causal_flops if least else causal_attention_flops(llm, prompt, cached)),
        decode_flops_per_token=exact(linear_flops(llm, 1)),
        prefill_s=least.prefill_s if least else None,
        decode_step_s=least.decode_step_s if least else None,
        single_stream_output_tokens_per_s=bounds.weights_only_tokens_per_s() if bounds else None,
        prefill_chunks_iterations=None if budget is None else -int(-prompt // budget),
        decode_iterations=output / (deployment.speculative.tokens_per_iteration if deployment.speculative else 1),
    )
