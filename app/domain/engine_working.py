"""The working of a budget by an engine's own rules: what comes off the memory, and how the rest is cut."""

from app.domain.deployment import Deployment
from app.domain.hardware import Gpu
from app.domain.memory_fit import Fit
from app.domain.paging import PAGE_SOURCE, PagedPool, Pool
from app.domain.provenance import Basis, Step, step
from app.domain.units import exact, plain

_BUDGETS = {
    "of_total": ("ceil(memory_bytes x memory_fraction_ratio)", "ceil({memory} x {fraction})"),
    "of_free_before_load": (
        "floor(memory_fraction_ratio x (memory_bytes - outside)) + outside, outside = runtime_bytes + communication_bytes",
        "floor({fraction} x ({memory} - {outside})) + {outside}",
    ),
    "of_free_after_load": (
        "taken + floor(memory_fraction_ratio x (memory_bytes - taken)), taken = weights_bytes_per_gpu + reserve_bytes",
        "{taken} + floor({fraction} x ({memory} - {taken}))",
    ),
    "exact": ("memory_bytes - margin of the engine", "{memory} - {margin}"),
}


def engine_budget_steps(gpu: Gpu, deployment: Deployment, found: Fit) -> list[Step]:
    """Budget, the terms beside weights and KV cache, and their sum."""
    engine, settings, terms = found.engine, found.settings, found.terms
    assert engine is not None  # noqa: S101 - callers check
    assert settings is not None  # noqa: S101 - callers check
    source = engine.sources[0]
    formula, substituted = _BUDGETS[engine.fraction_basis]
    fraction = settings.fraction
    if deployment.reserve_bytes_per_gpu is not None:
        formula, substituted = "memory_bytes x memory_fraction_ratio", "{memory} x {fraction}"
        fraction = deployment.memory_fraction_ratio
    values = {
        "memory": found.memory_bytes,
        "fraction": plain(1 if fraction is None else fraction),
        "outside": terms.runtime_bytes + terms.communication_bytes,
        "taken": found.weights_bytes_per_gpu + found.reserve_bytes,
        "margin": engine.device_margin_bytes,
    }
    steps = [
        step("budget_bytes", formula, substituted.format(**values), found.budget_bytes, "bytes", source, basis=_memory_basis(gpu)),
    ]
    if deployment.reserve_bytes_per_gpu is not None:
        steps.append(step("reserve_bytes", "given", str(found.reserve_bytes), found.reserve_bytes, "bytes", "request"))
        return steps
    steps += _term_steps(found)
    if engine.fraction_basis == "of_free_before_load":
        parts, formula = (
            [terms.runtime_bytes, terms.communication_bytes],
            "runtime_bytes + communication_bytes; the fraction leaves the rest",
        )
    else:
        parts = [terms.activation_bytes, terms.cuda_graph_bytes, terms.communication_bytes, terms.runtime_bytes]
        formula = "activation_bytes + cuda_graph_bytes + communication_bytes + runtime_bytes"
    total = " + ".join(str(part) for part in parts)
    steps.append(step("reserve_bytes", formula, total, found.reserve_bytes, "bytes", "sum of the terms above", basis="calibrated"))
    return steps


def _memory_basis(gpu: Gpu) -> Basis:
    return "datasheet" if gpu.memory_basis else "exact"


def _term_steps(found: Fit) -> list[Step]:
    engine, peak, settings, terms = found.engine, found.peak, found.settings, found.terms
    if engine is None or peak is None or settings is None:
        return []
    source = f"{engine.slug}: {engine.notes[-1]}"
    figures = f"{peak.sampler_bytes}, {peak.forward_bytes}, {peak.encoder_bytes}) + {peak.inputs_bytes}"
    steps = [
        step(
            "activation_bytes",
            f"max(sampler, forward pass, vision encoder) + inputs, at {settings.max_num_seqs} sequences and "
            f"{settings.max_num_batched_tokens} batched tokens",
            f"max({figures}",
            terms.activation_bytes,
            "bytes",
            source,
            basis="calibrated" if peak.is_known else "assumed",
        )
    ]
    for name, value in (
        ("cuda_graph_bytes", terms.cuda_graph_bytes),
        ("communication_bytes", terms.communication_bytes),
        ("runtime_bytes", terms.runtime_bytes),
    ):
        steps.append(step(name, f"constant of {engine.slug}", str(value), value, "bytes", source, basis="calibrated"))
    return steps


def pool_steps(found: Fit, pool: Pool) -> list[Step]:
    """From KV memory to blocks and the token count that the engine prints."""
    length = found.max_model_len_tokens or pool.block_size_tokens
    steps: list[Step] = []
    if isinstance(pool, PagedPool):
        steps.append(
            step(
                "num_blocks",
                "floor(kv_cache_bytes / (layers of a group x page_bytes))",
                f"floor({found.kv_cache_bytes} / ({pool.num_group_layers} x {plain(pool.page_bytes)}))",
                pool.num_blocks(found.kv_cache_bytes),
                "blocks",
                PAGE_SOURCE,
            )
        )
    steps.append(request_step(pool, length, "kv_bytes_per_longest_sequence_per_gpu"))
    capacity = found.capacity_tokens()
    if capacity is not None:
        steps.append(_tokens_step(found, pool, length, capacity))
    return steps


def request_step(pool: Pool, tokens: float, name: str) -> Step:
    """Memory that one sequence reserves [bytes]."""
    needed = pool.request_bytes(tokens)
    if not isinstance(pool, PagedPool):
        return step(name, "bytes of all layers up to their windows + state", f"{plain(tokens)} tokens", needed, "bytes", PAGE_SOURCE)
    kinds: dict[str, int] = {}
    for group in pool.groups:
        label = f"{group.kind.kind} in blocks of {group.block_tokens}" if group.kind.kind != "state" else "state"
        kinds[label] = kinds.get(label, 0) + 1
    groups = ", ".join(f"{count} group(s) {label}" for label, count in kinds.items())
    return step(
        name,
        "sum over groups of blocks x bytes of a block",
        f"{pool.request_blocks(tokens)} x {plain(pool.bytes_per_block)} ({groups}; {plain(tokens)} tokens)",
        needed,
        "bytes",
        PAGE_SOURCE,
    )


def _tokens_step(found: Fit, pool: Pool, length: int, capacity: int) -> Step:
    if isinstance(pool, PagedPool) and pool.tokens_line == "pool":
        blocks = pool.num_blocks(found.kv_cache_bytes)
        formula = "floor(num_blocks / groups) x block_size_tokens"
        substituted = f"floor({blocks} / {len(pool.groups)}) x {pool.block_size_tokens}"
    else:
        ratio = pool.concurrency(found.kv_cache_bytes, length)
        formula = "floor(concurrency x max_model_len_tokens) or floor(kv_cache_bytes / bytes per token), whole blocks"
        substituted = f"{plain(exact(ratio))} x {length}"
    return step("kv_capacity_tokens", formula, substituted, capacity, "tokens", PAGE_SOURCE)
