"""What the traffic demands: token rates, prefix savings, time in the system, concurrency."""

from app.domain.provenance import Step, step
from app.domain.units import exact, plain
from app.domain.value import Value
from app.domain.workload import Workload

RATE_SOURCE = "definition: rate = requests per second x tokens per request"
LITTLE_SOURCE = "Little's law, https://doi.org/10.1287/opre.9.3.383"


class GrowthEffect(Value):
    """What more tokens for the same text cost."""

    prefill_ratio: float
    """Linear part of prefill: grows with the tokens."""
    kv_cache_ratio: float
    """KV cache: grows with the tokens."""
    attention_ratio: float
    """Attention FLOPs: grow with the square of the tokens."""


class Demand(Value):
    """Load at the peak, after bursts and token growth."""

    request_rps: float
    """peak_rps x burst_ratio [requests/s]."""
    requests_per_minute: float
    """The same per minute (RPM)."""
    mean_input_tokens: float
    """Mean prompt [tokens]."""
    p95_input_tokens: float | None
    """95th percentile of the prompt; None when it is not given [tokens]."""
    mean_output_tokens: float
    """Mean output [tokens]."""
    p95_output_tokens: float | None
    """95th percentile of the output; None when it is not given [tokens]."""
    input_tokens_per_s: float
    """Prompt tokens that arrive: loads prefill [tokens/s]."""
    output_tokens_per_s: float
    """Tokens to generate: loads decode and KV cache [tokens/s]."""
    input_tokens_per_minute: float
    """Prompt tokens per minute (TPM)."""
    output_tokens_per_minute: float
    """Output tokens per minute (TPM)."""
    shared_input_tokens_per_s: float
    """Prompt tokens that belong to the shared prefix [tokens/s]."""
    saved_input_tokens_per_s: float
    """Prompt tokens that the prefix cache serves [tokens/s]."""
    computed_input_tokens_per_s: float
    """Prompt tokens left to compute [tokens/s]."""
    growth: GrowthEffect
    """Effect of token_growth_ratio, already within the rates above."""


def demand_of(workload: Workload) -> Demand:
    """Token rates of a workload at its peak.

    rate = peak_rps x burst x mean tokens x growth [tokens/s]; saved = rps x shared prefix (or the mean prompt) x growth x hit ratio.
    """
    growth = workload.token_growth_ratio
    prompt, output = workload.lengths("input_tokens"), workload.lengths("output_tokens")
    rps = workload.peak_rps * workload.burst_ratio
    arriving, generated = rps * prompt.mean * growth, rps * output.mean * growth
    shared = rps * growth * (workload.shared_prefix_tokens if workload.shared_prefix_tokens is not None else prompt.mean)
    if workload.shared_prefix_tokens is None and not workload.prefix_hit_ratio:
        shared = 0.0
    saved = shared * workload.prefix_hit_ratio
    return Demand(
        request_rps=exact(rps),
        requests_per_minute=exact(rps * 60),
        mean_input_tokens=exact(prompt.mean * growth),
        p95_input_tokens=None if prompt.p95 is None else exact(prompt.p95 * growth),
        mean_output_tokens=exact(output.mean * growth),
        p95_output_tokens=None if output.p95 is None else exact(output.p95 * growth),
        input_tokens_per_s=exact(arriving),
        output_tokens_per_s=exact(generated),
        input_tokens_per_minute=exact(arriving * 60),
        output_tokens_per_minute=exact(generated * 60),
        shared_input_tokens_per_s=exact(shared),
        saved_input_tokens_per_s=exact(saved),
        computed_input_tokens_per_s=exact(arriving - saved),
        growth=GrowthEffect(prefill_ratio=growth, kv_cache_ratio=growth, attention_ratio=round(growth**2, 12)),
    )


def demand_steps(workload: Workload, demand: Demand) -> list[Step]:
    """The working of the token rates."""
    rps, growth = plain(demand.request_rps), workload.token_growth_ratio
    steps = []
    if workload.burst_ratio != 1:
        steps.append(
            step(
                "request_rps",
                "peak_rps x burst_ratio",
                f"{plain(workload.peak_rps)} x {plain(workload.burst_ratio)}",
                demand.request_rps,
                "requests/s",
                RATE_SOURCE,
            )
        )
    for which, rate in (("input", demand.input_tokens_per_s), ("output", demand.output_tokens_per_s)):
        mean = workload.lengths(f"{which}_tokens").mean
        if workload.classes:
            terms = " + ".join(f"{plain(item.share_ratio)} x {plain(getattr(item, which + '_tokens'))}" for item in workload.classes)
            steps.append(
                step(f"mean_{which}_tokens", "sum over classes of share_ratio x tokens", terms, exact(mean), "tokens", RATE_SOURCE)
            )
        steps.append(
            step(
                f"{which}_tokens_per_s",
                f"request_rps x mean {which} tokens" + (" x token_growth_ratio" if growth != 1 else ""),
                f"{rps} x {plain(mean)}" + (f" x {plain(growth)}" if growth != 1 else ""),
                rate,
                "tokens/s",
                RATE_SOURCE,
            )
        )
    if demand.saved_input_tokens_per_s:
        steps.append(
            step(
                "saved_input_tokens_per_s",
                "shared_input_tokens_per_s x prefix_hit_ratio",
                f"{plain(demand.shared_input_tokens_per_s)} x {plain(workload.prefix_hit_ratio)}",
                demand.saved_input_tokens_per_s,
                "tokens/s",
                RATE_SOURCE,
            )
        )
    return steps
