"""Each printed figure of a start against its estimate, and what explains the gap."""

from app.domain.engine_start import EngineStart
from app.domain.provenance import Note
from app.domain.reconciliation import CLOSE_RATIO, Estimate, cache_ratio, printed_pool_bytes
from app.domain.units import GIB, gigabytes
from app.domain.value import Value

ROUNDING_BYTES = GIB // 20
"""Half of what several figures with two decimals of a GiB can add up to [bytes]."""
CONTEXT_BYTES = 3 * GIB // 2
"""Memory that a device's own context may hold before an engine starts: 0.3 to 0.7 GiB on the logs of tests/importers/start_up_logs
(79.18 GiB of which 78.57 are free), with room for drivers that take more [bytes]."""


class ReconciledTerm(Value):
    """A term of one accelerator's memory."""

    name: str
    """The term, as the answer of `/memory` calls it where it has it."""
    estimated_bytes: int | None
    """What the planner computes with the printed settings; None where it does not split this term off [bytes]."""
    printed_bytes: int | None
    """What the log says; None where it does not print it [bytes]."""
    difference_bytes: int | None
    """Printed - estimated [bytes]."""
    printed_to_estimated_ratio: float | None
    """Printed / estimated."""
    explanation: str
    """What explains the gap, or that there is none."""


class ReconciledCount(Value):
    """A count or ratio that the engine prints beside its bytes."""

    name: str
    """The figure, as the answer of `/memory` calls it."""
    num_estimated: float | None
    """What the planner computes with the printed settings."""
    num_printed: float | None
    """What the log says."""
    num_difference: float | None
    """Printed - estimated."""
    printed_to_estimated_ratio: float | None
    """Printed / estimated."""
    explanation: str
    """What explains the gap, or that there is none."""


def budget_bytes(start: EngineStart, estimate: Estimate) -> int:
    """Printed budget, or memory x fraction where the engine takes its fraction of the whole memory; else the estimated one [bytes]."""
    if start.budget_bytes is not None:
        return start.budget_bytes
    if start.engine in (None, "vllm", "generic") and start.memory_bytes is not None and start.memory_fraction_ratio is not None:
        return round(start.memory_bytes * start.memory_fraction_ratio)
    return estimate.budget_bytes


def printed_overhead_bytes(start: EngineStart, estimate: Estimate) -> int | None:
    """Budget - printed weights - printed pool: everything else that the engine took out of its budget [bytes].

    None for llama.cpp, which allocates what the context needs and leaves the rest free.
    """
    weights, pool = start.weights_bytes_per_gpu, printed_pool_bytes(start)
    if weights is None or pool is None or start.engine == "llama.cpp":
        return None
    return budget_bytes(start, estimate) - weights - pool


_GAPS: dict[str, tuple[str, str]] = {
    "memory_bytes": (
        "The device has more than the catalog says: another variant.",
        "The device reports less than the catalog says: another variant, memory for error correction, or a partition.",
    ),
    "budget_bytes": (
        "The engine allowed itself more: a larger memory fraction or more memory than computed with.",
        "The engine allowed itself less: a smaller memory fraction or less memory than computed with.",
    ),
    "weights_bytes": (
        "More was loaded: tensors that the quantisation leaves in 16 bits, a draft model, adapters, or a larger format than computed with.",
        "Less was loaded: a smaller format than computed with, parts in host memory, or parts left out, as poolers do with the head.",
    ),
    "overhead_bytes": (
        "Everything beside weights and cache took more: larger max_num_seqs or max_num_batched_tokens, another version or image, or "
        "other processes.",
        "Everything beside weights and cache took less: smaller max_num_seqs or max_num_batched_tokens, or another version or image.",
    ),
    "activation_bytes": (
        "The profile run peaked higher: it grows with max_num_seqs x vocabulary and max_num_batched_tokens; sorting samplers take more.",
        "The profile run peaked lower: fewer max_num_seqs or max_num_batched_tokens, or an image with a leaner sampler.",
    ),
    "cuda_graph_bytes": (
        "More or larger graphs were captured: they grow with layers and capture sizes.",
        "Fewer graphs were captured, or their memory was shared with the pool of the activations.",
    ),
    "outside_framework_bytes": (
        "More was allocated outside the framework: buffers between linked accelerators, libraries of kernels, other processes.",
        "Less was allocated outside the framework: fewer buffers of collectives than computed with.",
    ),
}
"""Explanation where more and where less was printed than estimated. The mechanisms: https://github.com/vllm-project/vllm
`vllm/v1/worker/gpu_worker.py` (determine_available_memory) and `vllm/v1/sample/ops/topk_topp_sampler.py`."""

_COMPUTE_BUFFER = (
    "The buffer of a step differs: it grows with max_num_batched_tokens (ubatch-size), with the vocabulary and, without flash attention, "
    "with the context."
)
"""Why llama.cpp, which profiles nothing, takes another activation than computed; source as in `compute_buffer`."""


def reconciled_terms(start: EngineStart, estimate: Estimate) -> list[ReconciledTerm]:
    """Every term of which the log prints something, and in any case weights and cache."""
    split = estimate.is_split
    graphs_inside = start.consumed_bytes is not None and start.graphs_in_budget is not False
    activation = estimate.activation_bytes + (estimate.cuda_graph_bytes if graphs_inside else 0)
    graphs = estimate.cuda_graph_bytes + estimate.graphs_outside_bytes
    budget = budget_bytes(start, estimate)
    pairs: list[tuple[str, int | None, int | None]] = [
        ("memory_bytes", estimate.memory_bytes, start.memory_bytes),
        ("budget_bytes", estimate.budget_bytes, None if budget == estimate.budget_bytes else budget),
        ("weights_bytes", estimate.weights_bytes, start.weights_bytes_per_gpu),
        ("overhead_bytes", estimate.overhead_bytes, printed_overhead_bytes(start, estimate)),
        ("activation_bytes", activation if split else None, start.activation_bytes),
        ("cuda_graph_bytes", graphs if split else None, start.cuda_graph_bytes),
        ("outside_framework_bytes", estimate.outside_bytes if split else None, _outside(start)),
    ]
    own = {"activation_bytes": _COMPUTE_BUFFER} if start.engine == "llama.cpp" else {}
    terms = [_term(*pair, own.get(pair[0])) for pair in pairs if pair[2] is not None or pair[0] == "weights_bytes"]
    return [*terms, _pool(start, estimate, {term.name: term.difference_bytes for term in terms})]


def _outside(start: EngineStart) -> int | None:
    if start.non_torch_bytes is not None:
        return start.non_torch_bytes
    if start.consumed_bytes is None or start.weights_bytes_per_gpu is None:
        return None
    return max(0, start.consumed_bytes - start.weights_bytes_per_gpu)


def _term(name: str, estimated: int | None, printed: int | None, explanation: str | None = None) -> ReconciledTerm:
    difference = None if estimated is None or printed is None else printed - estimated
    if printed is None:
        explanation = "The log does not print it."
    elif estimated is None or difference is None:
        explanation = "The planner does not split it off here: it is part of overhead_bytes."
    elif abs(difference) <= max(CLOSE_RATIO * abs(estimated), ROUNDING_BYTES):
        explanation = "They agree."
    else:
        explanation = explanation or _GAPS[name][difference < 0]
    return ReconciledTerm(
        name=name,
        estimated_bytes=estimated,
        printed_bytes=printed,
        difference_bytes=difference,
        printed_to_estimated_ratio=printed / estimated if printed is not None and estimated else None,
        explanation=explanation,
    )


def _pool(start: EngineStart, estimate: Estimate, gaps: dict[str, int | None]) -> ReconciledTerm:
    """The pool last: its gap is that of the budget less those of weights and overhead."""
    parts = [(name, gaps.get(name)) for name in ("budget_bytes", "weights_bytes", "overhead_bytes")]
    shown = ", ".join(f"{name} {gap / GIB:+.2f} GiB" for name, gap in parts if gap is not None)
    if start.engine == "llama.cpp":
        explanation = "The engine allocates what its context needs: other cells, another precision, or other layers on this accelerator."
    elif shown:
        explanation = f"The gap of the budget less the other gaps: {shown}."
    else:
        explanation = "The log prints none of the terms that it is the rest of."
    return _term("kv_cache_bytes", estimate.kv_cache_bytes, printed_pool_bytes(start), explanation)


def reconciled_counts(start: EngineStart, estimate: Estimate) -> list[ReconciledCount]:
    """Tokens and concurrency as printed and as estimated, and what a token costs by the printed figures."""
    ratio = cache_ratio(start, estimate)
    agrees = ratio is not None and abs(ratio - 1) <= CLOSE_RATIO
    if agrees:
        why = "It follows from the pool: a sequence takes what is computed."
    elif ratio is not None:
        why = f"Beside the pool, what the cache holds costs {ratio:.3f} times what is computed: its precision, or its pages, differ."
    else:
        why = "The log prints no pool to compare with."
    tokens_why, pool = why, printed_pool_bytes(start)
    if agrees and pool and start.kv_cache_tokens and estimate.kv_cache_tokens and (start.pp or 1) == 1:
        expected = estimate.kv_cache_tokens * pool / estimate.kv_cache_bytes
        if abs(start.kv_cache_tokens - expected) > CLOSE_RATIO * expected:
            tokens_why = "Versions print this line by different rules for models with windows or states; compare the concurrency."
    rows = [
        _count("kv_capacity_tokens", estimate.kv_cache_tokens, start.kv_cache_tokens, tokens_why),
        _count("max_concurrency_at_max_len_ratio", estimate.concurrency_ratio, start.max_concurrency_at_max_len_ratio, why),
    ]
    return [row for row in rows if row.num_printed is not None]


def _count(name: str, estimated: float | None, printed: float | None, explanation: str) -> ReconciledCount:
    difference = None if estimated is None or printed is None else printed - estimated
    ratio = printed / estimated if printed is not None and estimated else None
    if ratio is not None and abs(ratio - 1) <= CLOSE_RATIO:
        explanation = "They agree."
    elif estimated is None:
        explanation = "The planner does not know the layers of the model."
    return ReconciledCount(
        name=name,
        num_estimated=estimated,
        num_printed=printed,
        num_difference=difference,
        printed_to_estimated_ratio=ratio,
        explanation=explanation,
    )


def observations(start: EngineStart, estimate: Estimate) -> list[Note]:
    """What the printed figures say by themselves, each as a sentence."""
    return [
        note
        for note in (_processes(start), _graphs_rule(start, estimate), _residue(start, estimate), _ranks(start), _outcome(start, estimate))
        if note is not None
    ]


def _processes(start: EngineStart) -> Note | None:
    if start.memory_bytes is None or start.free_at_start_bytes is None:
        return None
    taken = start.memory_bytes - start.free_at_start_bytes
    if taken <= CONTEXT_BYTES:
        return None
    message = f"{gigabytes(taken)} of the accelerator were in use before the start: other processes, or a device that shares host memory."
    return Note(code="other_processes", message=message)


def _graphs_rule(start: EngineStart, estimate: Estimate) -> Note | None:
    """Whether the engine counts graphs otherwise than the rules of its version."""
    printed, outside = start.estimated_cuda_graph_bytes, estimate.graphs_outside_bytes
    if start.graphs_in_budget and printed and outside:
        message = (
            f"The engine took its estimate of the CUDA graphs, {gigabytes(printed)}, off the budget; the estimate leaves them outside."
        )
    elif start.graphs_in_budget is False and estimate.cuda_graph_bytes:
        message = f"The engine left the CUDA graphs outside the budget; the estimate takes {gigabytes(estimate.cuda_graph_bytes)} off it."
    else:
        return None
    return Note(code="graphs_counted_otherwise", message=message)


def _residue(start: EngineStart, estimate: Estimate) -> Note | None:
    """Whether the printed terms add up to the budget, with or without the graphs."""
    overhead, activation, outside = printed_overhead_bytes(start, estimate), start.activation_bytes, _outside(start)
    if overhead is None or activation is None or outside is None:
        return None
    left = overhead - activation - outside
    graphs = start.cuda_graph_bytes or 0
    if abs(left) <= 2 * ROUNDING_BYTES:
        if graphs > 2 * ROUNDING_BYTES and start.consumed_bytes is None:
            message = f"The printed terms fill the budget without the CUDA graphs: their {gigabytes(graphs)} come on top of it."
            return Note(code="graphs_outside_budget", message=message)
        return None
    for inside in (start.estimated_cuda_graph_bytes, graphs):
        if inside and abs(left - inside) <= 2 * ROUNDING_BYTES:
            return Note(code="graphs_inside_budget", message=f"The budget also holds {gigabytes(inside)} of CUDA graphs.")
    message = f"The printed terms differ from the budget by {gigabytes(abs(left))}: fragmentation, rounding, or memory of another process."
    return Note(code="unaccounted_memory", message=message)


def _ranks(start: EngineStart) -> Note | None:
    smallest, largest = start.kv_cache_bytes_per_gpu, start.largest_kv_cache_bytes_per_gpu
    if smallest is None or largest is None or largest - smallest <= max(CLOSE_RATIO * abs(smallest), ROUNDING_BYTES):
        return None
    message = f"Ranks differ: the largest pool is {gigabytes(largest)}, but all work with the smallest of {gigabytes(smallest)}."
    if (start.pp or 1) > 1:
        message = (
            f"Pools of the pipeline stages lie between {gigabytes(smallest)} and {gigabytes(largest)}; the one with fewest tokens decides."
        )
    return Note(code="ranks_differ", message=message)


def _outcome(start: EngineStart, estimate: Estimate) -> Note | None:
    failure = start.failure
    if failure is None:
        if estimate.verdict == "serves":
            return None
        return Note(code="started_against_estimate", message=f"It started, and the estimate says {estimate.verdict}: see the terms.")
    longest = f" The engine says {failure.longest_len_tokens} tokens would fit." if failure.longest_len_tokens else ""
    agrees = "as the estimate says" if estimate.verdict != "serves" else "and the estimate says serves: see the terms"
    return Note(code="start_failed", message=f"The start failed at {failure.check}, {agrees}.{longest} It printed: {failure.message[:300]}")
