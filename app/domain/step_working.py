"""The working of one step: constants of its class, what each term is on one accelerator, and their sum."""

from collections.abc import Iterator

from app.domain.bounds import ATTENTION_SOURCE, BANDWIDTH_SOURCE, PREFILL_SOURCE
from app.domain.calibrated_model import CalibratedModel
from app.domain.kernels import KernelsPerLayer
from app.domain.kv_working import sequence_step
from app.domain.provenance import Basis, Step, step
from app.domain.step import ALL_REDUCES_PER_LAYER, ALL_TO_ALLS_PER_LAYER, OVERLAP, IterationTime, StepTimer
from app.domain.step_class import StepClass
from app.domain.step_constants import LIMIT_POWER, Constants, StepConstant, StepModel
from app.domain.step_kernels import kernel_counts, num_kernels
from app.domain.step_work import ACTIVATION_BYTES, StepWork
from app.domain.units import plain

ROOFLINE_SOURCE = "https://doi.org/10.1145/1498765.1498785 (roofline), fixed times and efficiencies fitted"
LINK_SOURCE = "https://arxiv.org/abs/1909.08053 section 3, https://arxiv.org/abs/2006.16668 section 3 (collectives of a layer)"
KERNELS_SOURCE = "https://github.com/vllm-project/vllm/tree/main/vllm/model_executor/models (kernels that a layer launches)"


def constant_steps(model: StepModel, found: StepClass) -> tuple[Step, ...]:
    """One line per constant: base x effects, with the spread of the base."""
    kept: tuple[Step, ...] | None = model.kept_working.get(found)
    if kept is None:
        kept = model.kept_working[found] = tuple(_constant_steps(model, found, model.constants_of(found)))
    return kept


def _constant_steps(model: StepModel, found: StepClass, constants: Constants) -> Iterator[Step]:
    basis: Basis = "calibrated" if model.rows_of(found) else "assumed"
    for constant in model.constants:
        factors = [effect.factor_ratio for effect in constant.effects if effect.holds(found)]
        product = " x ".join(plain(factor) for factor in (constant.base, *factors))
        limit = "" if constant.most is None else ", bent below the physical limit"
        yield step(
            constant.name,
            f"base x effects of engine, accelerator, weights and kind of model{limit}",
            product if constant.most is None else _bent(product, plain(constant.most)),
            getattr(constants, constant.name),
            _unit(constant),
            f"{_source(model, constant)}; base {plain(constant.low)} to {plain(constant.high)} (without single families or series)",
            basis=basis,
        )


def _source(model: StepModel, constant: StepConstant) -> str:
    return model.source_of(constant.name) if isinstance(model, CalibratedModel) else model.sources[0]


def _bent(product: str, most: str) -> str:
    return f"{product} / (1 + ({product} / {most})^{LIMIT_POWER})^(1 / {LIMIT_POWER})"


def _unit(constant: StepConstant) -> str:
    name = constant.name
    return "s" if name.endswith("_s") else "tokens" if name.endswith("_tokens") else "elements" if name.endswith("_size") else "ratio"


def term_steps(timer: StepTimer, kernels: KernelsPerLayer) -> Iterator[Step]:
    """What reading, computing, sending and fixed times take on one accelerator."""
    yield from _reading(timer)
    yield from _computing(timer)
    yield from _sending(timer)
    work, constants = timer.work, timer.constants
    counted = kernel_counts(work, kernels, constants)
    launched = num_kernels(work, kernels, constants)
    yield step(
        "num_kernels",
        "sum over kinds of layers: kernels per layer x layers x time of one / kernel_s",
        " + ".join(f"{each} x {plain(count)} x {plain(ratio)}" for each, count, ratio in counted) or "0",
        launched,
        "kernels",
        KERNELS_SOURCE,
        basis="calibrated",
    )
    yield step(
        "fixed_s",
        "num_kernels x kernel_s + step_s",
        f"{plain(launched)} x {plain(constants.kernel_s)} + {plain(constants.step_s)}",
        timer.fixed_s,
        "s",
        ROOFLINE_SOURCE,
        basis="calibrated",
    )
    yield step(
        "fixed_s_per_sequence",
        "sequence_s / dp",
        f"{plain(constants.sequence_s)} / {work.dp}",
        timer.fixed_s_per_sequence,
        "s",
        ROOFLINE_SOURCE,
        basis="calibrated",
    )


def _reading(timer: StepTimer) -> Iterator[Step]:
    work, at = timer.work, timer.at

    def reading(name: str, what: str, numbers: str, value: float, constant: str) -> Step:
        rate = f"({plain(getattr(timer.constants, constant))} x {plain(work.bandwidth_bytes_per_s)})"
        return step(name, f"{what} / ({constant} x bandwidth)", f"{numbers} / {rate}", value, "s", BANDWIDTH_SOURCE, basis="calibrated")

    yield reading(
        "weights_s",
        "weights on one accelerator that every step reads (no embedding rows)",
        plain(work.dense_bytes),
        timer.weights_s,
        "bandwidth_ratio",
    )
    total = sum(each.num_expert_params for each in work.model.experts)
    for number, (experts, times) in enumerate(zip(work.model.experts, timer.experts, strict=True)):
        share = "" if experts.num_expert_params == total else f" x {experts.num_expert_params} / {total}"
        yield reading(
            _numbered("experts_s", number),
            "all experts on one accelerator",
            f"{plain(work.expert_bytes)}{share}",
            times.read_s,
            "expert_bandwidth_ratio",
        )
    if work.kv is None:
        return
    state = work.kv.state_bytes
    for name, context, value, seconds in (
        ("kv_bytes_read_per_sequence", at.decode_tokens, at.kv_bytes, timer.kv_s_per_sequence),
        ("kv_bytes_read_per_prompt", at.prompt_tokens, at.prompt_kv_bytes, timer.prompt_kv_s),
    ):
        yield sequence_step(work.kv, context, round(value) - state, name)
        per_rank, divided = ("", "") if name.endswith("prompt") else (" / dp", f" / {work.dp}")
        numbers = plain(round(value) - state) if not state else f"({plain(round(value) - state)} + {state})"
        written = " + state, written" if state else ""
        yield reading(
            name.replace("kv_bytes_read", "kv_s"), f"(cache{written}){per_rank}", f"{numbers}{divided}", seconds, "cache_bandwidth_ratio"
        )


def _computing(timer: StepTimer) -> Iterator[Step]:
    work, constants, at = timer.work, timer.constants, timer.at
    model, products, gpus = work.model, work.products, work.num_gpus

    def computing(name: str, formula: str, numbers: str, value: float, source: str = PREFILL_SOURCE) -> Step:
        return step(name, formula, numbers, value, "s", source, basis="calibrated")

    yield computing(
        "dense_s_per_token",
        f"2 x (mixer params / peak in {products.mixer_format} + dense params / peak in {products.dense_format}) / GPUs / dense_peak_ratio",
        f"2 x ({model.mixer_params} / {plain(products.mixer_flops_per_s)} + {model.dense_params} / {plain(products.dense_flops_per_s)})"
        f" / {gpus} / {plain(constants.dense_peak_ratio)}",
        timer.dense_s_per_token,
    )
    yield computing(
        "head_s_per_position",
        "2 x head params / peak in 16 bits / GPUs / dense_peak_ratio",
        f"2 x {model.head_params} / {plain(products.sixteen_flops_per_s)} / {gpus} / {plain(constants.dense_peak_ratio)}",
        timer.head_s_per_position,
    )
    for number, (experts, times) in enumerate(zip(model.experts, timer.experts, strict=True)):
        width = work.expert_width(experts)
        narrow = f" x {plain(width)} / ({plain(width)} + {plain(constants.expert_half_width_size)})" if width else ""
        chosen = f"{plain(experts.num_experts_per_token)} / {plain(experts.num_experts)}"
        yield computing(
            _numbered("experts_s_per_token", number),
            f"2 x expert params x k/E / (GPUs x peak in {products.expert_format} x expert_peak_ratio"
            + " x w / (w + expert_half_width_size))" * bool(width)
            + ")" * (not width),
            f"2 x {experts.num_expert_params} x {chosen} / ({gpus} x {plain(products.expert_flops_per_s)}"
            f" x {plain(constants.expert_peak_ratio)}{narrow})",
            times.compute_s_per_token,
        )
    for name, flops, value in (
        ("attention_s_per_position", at.decode_attention_flops, timer.attention_s_per_position),
        ("attention_s_per_prompt_token", at.prompt_attention_flops, timer.attention_s_per_prompt_token),
    ):
        yield computing(
            name,
            "attention FLOPs of one token on one rank / (attention_peak_ratio x peak in 16 bits) / dp",
            f"{plain(flops)} / ({plain(constants.attention_peak_ratio)} x {plain(products.sixteen_flops_per_s)}) / {work.dp}",
            value,
            ATTENTION_SOURCE,
        )


def _sending(timer: StepTimer) -> Iterator[Step]:
    work, message = timer.work, plain(timer.constants.message_s)
    counts, sent = [], []
    if work.tp > 1 and work.model.layers.spanning_norm:
        counts.append(f"{plain(work.model.layers.spanning_norm)} x {message}")
    for count, elements, rate in _collectives(work):
        counts.append(f"{plain(count)} x {message}")
        if rate:
            sent.append(f"{plain(count)} x {elements} x {ACTIVATION_BYTES} / ({plain(timer.constants.link_ratio)} x {plain(rate)})")
    yield step(
        "messages_s",
        "collectives of a step x message_s",
        " + ".join(counts) or "0",
        timer.messages_s,
        "s",
        LINK_SOURCE,
        basis="calibrated",
    )
    yield step(
        "sent_s_per_token",
        "sum over collectives: count x elements per token x bytes / (link_ratio x one-way bandwidth)",
        " + ".join(sent) or "0",
        timer.sent_s_per_token,
        "s",
        LINK_SOURCE,
        basis="calibrated",
    )


def _collectives(work: StepWork) -> Iterator[tuple[float, str, float | None]]:
    """(how many in a step, elements per token in numbers, one-way bandwidth)."""
    hidden = work.model.hidden_size
    if work.tp > 1:
        count = ALL_REDUCES_PER_LAYER * work.model.num_layers
        yield count, f"{hidden} / {work.dp} x 2 x ({work.tp} - 1) / {work.tp}", work.tensor_link.one_way_bytes_per_s
    for experts in work.model.experts if work.dp > 1 else ():
        copies = plain(work.expert_copies(experts))
        count = ALL_TO_ALLS_PER_LAYER * experts.num_layers
        yield count, f"{hidden} x {copies} / {work.num_gpus}", work.expert_link.one_way_bytes_per_s
    if work.pp > 1:
        yield work.pp - 1, f"{hidden} / {work.dp} / {work.tp}", work.stage_link.one_way_bytes_per_s


def iteration_steps(
    timer: StepTimer, found: IterationTime, prefix: str, sequences: float, prompt_tokens: float, draft_s: float = 0.0
) -> Iterator[Step]:
    """The lines of one step with so many sequences and prompt tokens; `draft_s` is within its overhead [s]."""
    positions = sequences * timer.work.positions_per_sequence
    tokens = positions + prompt_tokens
    count, number, prompt, half = plain(sequences), plain(tokens), plain(prompt_tokens), plain(timer.constants.dense_half_tokens)
    sampled = f"({plain(positions)} + 1 + {half})" if prompt_tokens else f"({plain(positions)} + {half})"

    def line(name: str, formula: str, substituted: str, value: float) -> Step:
        return step(f"{prefix}_{name}", formula, substituted, value, "s", ROOFLINE_SOURCE, basis="calibrated")

    dense = f"({number} + {half}) x {plain(timer.dense_s_per_token)} + {sampled} x {plain(timer.head_s_per_position)}"
    yield line(
        "dense_s",
        "joint(weights_s, (N + half) x dense_s_per_token + (sampled + half) x head_s_per_position), joint(a, b) = (a^q + b^q)^(1/q)",
        _joint(plain(timer.weights_s), dense),
        found.dense_s,
    )
    memory, compute, experts = [plain(timer.weights_s)], [dense], []
    for times in timer.experts:
        read = f"{plain(times.read_s)} x (1 - {plain(times.missed_ratio)}^{number})"
        products = f"{plain(times.compute_s_per_token)} x ({number} + {plain(times.half_tokens)})"
        memory.append(read)
        compute.append(products)
        experts.append(_joint(read, products))
    if experts:
        yield line(
            "experts_s",
            "joint(experts_s x (1 - (1 - k/E)^(expert_choice_ratio N)), (N + half) x experts_s_per_token)",
            " + ".join(experts),
            found.experts_s,
        )
    read, scores = f"{count} x {plain(timer.kv_s_per_sequence)}", f"{plain(positions)} x {plain(timer.attention_s_per_position)}"
    yield line("attention_s", "max(sequences x cache, positions x attention)", f"max({read}, {scores})", found.attention_s)
    memory.append(read)
    compute.append(scores)
    if prompt_tokens:
        read, scores = plain(timer.prompt_kv_s), f"{prompt} x {plain(timer.attention_s_per_prompt_token)}"
        yield line(
            "prompt_attention_s", "max(cache of a prompt, prompt tokens x attention)", f"max({read}, {scores})", found.prompt_attention_s
        )
        memory.append(read)
        compute.append(scores)
    yield line("memory_s", "all reading", " + ".join(memory), found.memory_s)
    yield line("compute_s", "all arithmetic", " + ".join(compute), found.compute_s)
    yield line(
        "communication_s",
        "messages_s + N x sent_s_per_token",
        f"{plain(timer.messages_s)} + {number} x {plain(timer.sent_s_per_token)}",
        found.communication_s,
    )
    drafts = f" + {plain(draft_s)}" if draft_s else ""
    yield line(
        "overhead_s",
        "fixed_s + sequences x fixed_s_per_sequence" + " + drafting" * bool(drafts),
        f"{plain(timer.fixed_s)} + {count} x {plain(timer.fixed_s_per_sequence)}{drafts}",
        found.overhead_s,
    )
    parts = (found.dense_s, found.experts_s, found.attention_s, found.prompt_attention_s, found.communication_s, found.overhead_s)
    yield line(
        "step_s",
        "dense + experts + attention + prompt attention + communication + overhead",
        " + ".join(plain(part) for part in parts if part),
        found.total_s,
    )


def _joint(read: str, computed: str) -> str:
    power = plain(OVERLAP)
    return f"(({read})^{power} + ({computed})^{power})^(1 / {power})"


def _numbered(name: str, number: int) -> str:
    return name if not number else f"{name}_{number + 1}"
