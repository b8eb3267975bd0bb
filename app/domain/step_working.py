"""The working of one step: constants of its class, what each term is on one accelerator, and their sum."""

from collections.abc import Iterator

from app.domain.bounds import ATTENTION_SOURCE, BANDWIDTH_SOURCE, PREFILL_SOURCE
from app.domain.kv_working import sequence_step
from app.domain.provenance import Basis, Step, step
from app.domain.step import ALL_REDUCES_PER_LAYER, ALL_TO_ALLS_PER_LAYER, OVERLAP, IterationTime, StepTimer
from app.domain.step_constants import Constants, StepClass, StepConstant, StepModel
from app.domain.step_work import ACTIVATION_BYTES, StepWork
from app.domain.units import plain

ROOFLINE_SOURCE = "https://doi.org/10.1145/1498765.1498785 (roofline), fixed times and efficiencies fitted"
LINK_SOURCE = "https://arxiv.org/abs/1909.08053 section 3, https://arxiv.org/abs/2006.16668 section 3 (collectives of a layer)"
EXPERTS_SOURCE = "experts chosen evenly and independently"


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
        limit = "" if constant.most is None else ", at most the physical limit"
        yield step(
            constant.name,
            f"base x effects of engine, accelerator, weights and kind of model{limit}",
            product if constant.most is None else f"min({product}, {plain(constant.most)})",
            getattr(constants, constant.name),
            _unit(constant),
            f"{model.sources[0]}; base {plain(constant.low)} to {plain(constant.high)} (10-90 %)",
            basis=basis,
        )


def _unit(constant: StepConstant) -> str:
    name = constant.name
    return "s" if name.endswith("_s") else "tokens" if name.endswith("_tokens") else "elements" if name.endswith("_size") else "ratio"


def term_steps(timer: StepTimer) -> Iterator[Step]:
    """What reading, computing, sending and fixed times take on one accelerator."""
    yield from _reading(timer)
    yield from _computing(timer)
    yield from _sending(timer)
    work, constants = timer.work, timer.constants
    yield step(
        "fixed_s",
        "layers x layer_s + layers with experts x expert_layer_s + step_s",
        f"{plain(work.model.num_layers)} x {plain(constants.layer_s)} + {work.model.num_expert_layers} x {plain(constants.expert_layer_s)}"
        f" + {plain(constants.step_s)}",
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
    rate = f"({plain(timer.constants.bandwidth_ratio)} x {plain(work.bandwidth_bytes_per_s)})"

    def reading(name: str, what: str, numbers: str, value: float) -> Step:
        return step(
            name, f"{what} / (bandwidth_ratio x bandwidth)", f"{numbers} / {rate}", value, "s", BANDWIDTH_SOURCE, basis="calibrated"
        )

    yield reading(
        "weights_s", "weights on one accelerator that every step reads (no embedding rows)", plain(work.dense_bytes), timer.weights_s
    )
    total = sum(each.num_expert_params for each in work.model.experts)
    for number, (experts, times) in enumerate(zip(work.model.experts, timer.experts, strict=True)):
        share = "" if experts.num_expert_params == total else f" x {experts.num_expert_params} / {total}"
        yield reading(_numbered("experts_s", number), "all experts on one accelerator", f"{plain(work.expert_bytes)}{share}", times.read_s)
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
        yield reading(name.replace("kv_bytes_read", "kv_s"), f"(cache{written}){per_rank}", f"{numbers}{divided}", seconds)


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
    timer: StepTimer, found: IterationTime, prefix: str, sequences: float, prompt_tokens: float, draft_s: float
) -> Iterator[Step]:
    """The lines of one step with so many sequences and prompt tokens; `draft_s` is within its overhead [s]."""
    positions = sequences * timer.work.positions_per_sequence
    tokens = positions + prompt_tokens
    count, number, prompt = plain(sequences), plain(tokens), plain(prompt_tokens)
    memory, compute = f"{plain(timer.weights_s)} + {count} x {plain(timer.kv_s_per_sequence)}", ""
    if prompt_tokens:
        memory += f" + {plain(timer.prompt_kv_s)}"
    head = f"{plain(timer.head_s_per_position)} x ({plain(positions)} + 1) / {number}"
    compute = f"({number} + {plain(timer.constants.dense_half_tokens)}) x ({plain(timer.dense_s_per_token)} + {head})"
    for experts in timer.experts:
        memory += f" + {plain(experts.read_s)} x (1 - {plain(experts.missed_ratio)}^{number})"
        compute += f" + {plain(experts.compute_s_per_token)} x ({number} + {plain(experts.half_tokens)})"
    compute += f" + {plain(positions)} x {plain(timer.attention_s_per_position)} + {prompt} x {plain(timer.attention_s_per_prompt_token)}"
    drafts = f" + {plain(draft_s)}" if draft_s else ""

    def line(name: str, formula: str, substituted: str, value: float) -> Step:
        return step(f"{prefix}_{name}", formula, substituted, value, "s", ROOFLINE_SOURCE, basis="calibrated")

    yield line("memory_s", "weights_s + sequences x kv_s + experts_s x (1 - missed^N)", memory, found.memory_s)
    yield line("compute_s", "(N + half) x (dense_s + head_s x (positions + 1) / N) + experts + attention", compute, found.compute_s)
    yield line(
        "communication_s",
        "messages_s + N x sent_s_per_token",
        f"{plain(timer.messages_s)} + {number} x {plain(timer.sent_s_per_token)}",
        found.communication_s,
    )
    yield line(
        "overhead_s",
        "fixed_s + sequences x fixed_s_per_sequence" + " + drafting" * bool(drafts),
        f"{plain(timer.fixed_s)} + {count} x {plain(timer.fixed_s_per_sequence)}{drafts}",
        found.overhead_s,
    )
    power, root = plain(OVERLAP), f"(1 / {plain(OVERLAP)})"
    yield line(
        "step_s",
        "(memory^3 + compute^3)^(1/3) + communication + overhead",
        f"({plain(found.memory_s)}^{power} + {plain(found.compute_s)}^{power})^{root}"
        f" + {plain(found.communication_s)} + {plain(found.overhead_s)}",
        found.total_s,
    )


def _numbered(name: str, number: int) -> str:
    return name if not number else f"{name}_{number + 1}"
