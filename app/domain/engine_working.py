"""The working of a budget by an engine's own rules: what comes off the memory, and how the rest is cut."""

import math

from app.domain.deployment import Deployment
from app.domain.hardware import Gpu
from app.domain.memory_fit import Fit
from app.domain.paging import PAGE_SOURCE, CellPool, PagedPool, Pool
from app.domain.provenance import Basis, Step, step
from app.domain.units import exact, plain

_BUDGETS = {
    "of_total": ("ceil(memory_bytes x memory_fraction_ratio)", "ceil({memory} x {fraction})"),
    "of_free_before_load": (
        "floor(memory_fraction_ratio x (memory_bytes - outside)) + outside, outside = runtime_bytes + communication_bytes",
        "floor({fraction} x ({memory} - {outside})) + {outside}",
    ),
    "of_free_after_load": (
        "taken + min(free, floor(memory_fraction_ratio x free)), taken = weights + reserve_bytes, free = memory_bytes - taken",
        "{taken} + min({memory} - {taken}, floor({fraction} x ({memory} - {taken})))",
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
        formula, substituted = "floor(memory_bytes x memory_fraction_ratio)", "floor({memory} x {fraction})"
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
    for name, formula, value in (
        (
            "cuda_graph_bytes",
            "fixed + by layer and captured batch; 0 where eager or not in the budget",
            terms.cuda_graph_bytes,
        ),
        ("communication_bytes", "by link of the accelerators, 0 for tp 1", terms.communication_bytes),
        ("runtime_bytes", "by device, and the recurrent states of all sequences where they are beside the blocks", terms.runtime_bytes),
    ):
        steps.append(step(name, f"{engine.slug}: {formula}", str(value), value, "bytes", source, basis="calibrated"))
    return steps


def pool_steps(found: Fit, pool: Pool) -> list[Step]:
    """From KV memory to blocks and the token count that the engine prints."""
    length = found.max_model_len_tokens or pool.block_size_tokens
    steps: list[Step] = []
    if isinstance(pool, PagedPool):
        steps.append(_page_step(pool))
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
    elif isinstance(pool, CellPool) and found.state_bytes:
        steps.append(_state_step(found, pool))
    steps += request_steps(pool, length, "kv_bytes_per_longest_sequence_per_gpu", "num_blocks_per_longest_sequence")
    capacity = found.capacity_tokens()
    if capacity is not None:
        steps.append(_tokens_step(found, pool, length, capacity))
    return steps


def _state_step(found: Fit, pool: CellPool) -> Step:
    """States that the engine sizes apart from keys and values [bytes]."""
    kv, fixed, ratio = found.kv_cache_bytes, pool.fixed_state_bytes, plain(pool.state_pool_ratio)
    if fixed:
        formula, text = "min(max_num_seqs x state of one sequence, kv_cache_bytes)", f"min({fixed}, {kv})"
    else:
        formula = "kv_cache_bytes - floor(kv_cache_bytes / (1 + pool of states / pool of keys and values))"
        text = f"{kv} - floor({kv} / (1 + {ratio}))"
    return step("state_bytes", formula, text, found.state_bytes, "bytes", PAGE_SOURCE)


def _page_step(pool: PagedPool) -> Step:
    """One page of one layer: that of the attention layers where they fill it, the state of a layer without attention, else a mean."""
    formula, text = "pages of all layers / layers of a group, whose sizes differ", plain(pool.page_bytes)
    for kind, tokens in pool.groups:
        if kind.kind == "state" and kind.state_bytes == pool.page_bytes:
            formula, text = "state of one layer", str(kind.state_bytes)
        elif math.isclose(kind.bytes_per_token * tokens, pool.page_bytes):
            formula, text = (
                "tokens of a block x bytes per token of what a page holds",
                f"{tokens} x {plain(kind.bytes_per_token)}",
            )
            break
    return step("page_bytes", formula, text, exact(pool.page_bytes), "bytes", PAGE_SOURCE)


def request_steps(pool: Pool, tokens: float, name: str, blocks_name: str) -> list[Step]:
    """Memory that one sequence reserves [bytes], by way of its blocks where the engine cuts memory into blocks."""
    needed = pool.request_bytes(tokens)
    if isinstance(pool, PagedPool):
        blocks = pool.request_blocks(tokens)
        formula = (
            "sum over groups of layers: groups x blocks of the tokens they keep (windows with the steps in flight; states a fixed number)"
        )
        return [
            step(blocks_name, formula, _blocks_text(pool, tokens), blocks, "blocks", PAGE_SOURCE),
            step(
                name, "blocks of the sequence x layers of a group x page_bytes",
                f"ceil({blocks} x {pool.num_group_layers} x {plain(pool.page_bytes)})", needed, "bytes", PAGE_SOURCE,
            ),
        ]  # fmt: skip
    assert isinstance(pool, CellPool)  # noqa: S101 - there is no third kind
    slots = "" if pool.num_slots == 1 else f"{pool.num_slots} x "
    formula = f"ceil(bytes_per_token x tokens + {'slots x ' if slots else ''}windowed bytes_per_token x cells of the window + state)"
    text = f"{plain(pool.bytes_per_token)} x {plain(tokens)}"
    rounding = pool.window_rounding_tokens
    for per_token, cells in pool.windows:
        reach = f"{plain(tokens)} / {pool.num_slots}" if slots else plain(tokens)
        text += f" + {slots}{plain(per_token)} x ceil(min({plain(cells)}, {reach}) / {rounding}) x {rounding}"
    text += f" + {pool.state_bytes}" if pool.state_bytes else ""
    if pool.state_pool_ratio:
        formula, text = f"{formula} x (1 + pool of states / pool of keys and values)", f"({text}) x (1 + {plain(pool.state_pool_ratio)})"
    return [step(name, formula, f"ceil({text})", needed, "bytes", PAGE_SOURCE)]


def _blocks_text(pool: PagedPool, tokens: float) -> str:
    """groups x blocks of one, by kind of group; see `PagedPool.request_blocks`."""
    counts: dict[str, int] = {}
    for group in pool.groups:
        kind, reach = group.kind, plain(tokens)
        if kind.kind == "full" and pool.num_context_ranks > 1:
            reach = f"ceil({reach} / {pool.num_context_ranks})"
        if kind.kind == "sliding":
            reach = f"min({kind.window_tokens} - 1 + {pool.window_batch_tokens}, {reach})"
        elif kind.kind == "chunked":
            reach = f"min({kind.window_tokens} + {pool.window_batch_tokens}, {reach})"
        blocks = f"ceil({reach} / {group.block_tokens})"
        one = str(pool.num_state_blocks) if kind.kind == "state" else f"({blocks} + 1)" if kind.kind == "sliding" else blocks
        counts[one] = counts.get(one, 0) + 1
    return " + ".join(f"{count} x {one}" if count > 1 else one for one, count in counts.items())


def _tokens_step(found: Fit, pool: Pool, length: int, capacity: int) -> Step:
    kv_bytes = found.kv_cache_bytes
    if isinstance(pool, PagedPool):
        blocks = pool.num_blocks(kv_bytes)
        if pool.tokens_line == "pool":
            formula, text = (
                "floor(num_blocks / groups) x block_size_tokens",
                f"floor({blocks} / {len(pool.groups)}) x {pool.block_size_tokens}",
            )
            if pool.num_context_ranks > 1:
                formula, text = f"{formula} x dcp", f"{text} x {pool.num_context_ranks}"
        else:
            formula = "floor(num_blocks / blocks of the longest sequence x max_model_len_tokens)"
            text = f"floor({blocks} / {pool.request_blocks(length)} x {length})"
    elif isinstance(pool, CellPool) and pool.fixed_length:
        formula, text = "max_model_len_tokens where the KV cache of one context fits, else 0", str(capacity)
    elif isinstance(pool, CellPool) and pool.counts_tokens:
        block = pool.block_size_tokens
        formula = "floor((kv_cache_bytes - state_bytes) / bytes_per_token / block) x block"
        text = f"floor(({kv_bytes} - {found.state_bytes}) / {plain(pool.bytes_per_token)} / {block}) x {block}"
    else:
        formula = "floor(kv_cache_bytes / kv_bytes_per_longest_sequence_per_gpu x max_model_len_tokens)"
        text = f"floor({kv_bytes} / {pool.request_bytes(length)} x {length})"
    return step("kv_capacity_tokens", formula, text, capacity, "tokens", PAGE_SOURCE)
