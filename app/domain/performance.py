"""A deployment under load, from what fits in its memory to the constants of its class: the one place where speed is put together."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from app.domain.concurrency import ramp
from app.domain.deployment import Deployment
from app.domain.engine import EngineMemory
from app.domain.hardware import Gpu
from app.domain.llm import Llm
from app.domain.load_state import LoadState
from app.domain.memory import fit
from app.domain.memory_fit import Fit
from app.domain.places import MOST_SEQUENCES, PlacesLimit, places_of
from app.domain.prefix_cache import PrefixCache
from app.domain.serving import Serving
from app.domain.step import StepTimer, step_timer
from app.domain.step_class import Load, StepClass, gpu_class
from app.domain.step_constants import ROOFLINE, Constants, StepModel
from app.domain.step_work import NO_CONTEXTS, Contexts, StepWork, step_work

USUAL_TOKEN_BUDGET = 8192
"""Tokens of a step where the engine is not named: the default of vLLM servers on large devices, of SGLang's chunks and of
TensorRT-LLM (https://github.com/vllm-project/vllm/blob/v0.19.1/vllm/engine/arg_utils.py, https://docs.sglang.io/)."""
BENCHMARK_WAVES = 10
"""Requests that a closed-loop benchmark sends for each unit of concurrency:
https://github.com/SemiAnalysisAI/InferenceX/tree/main/benchmarks (num-prompts)."""


class Lengths(NamedTuple):
    """Mean lengths of a request [tokens], the share of the prompt that the prefix cache serves, and what running requests hold once."""

    input_tokens: float
    output_tokens: float
    prefix_hit_ratio: float = 0.0
    shared: PrefixCache | None = None

    @classmethod
    def finding(cls, input_tokens: float, output_tokens: float, hit_ratio: float, shared_tokens: float | None) -> "Lengths":
        """A share of the hits in a beginning that all requests have in common, in the whole prompt where none is known."""
        if shared_tokens is None:
            return cls(input_tokens, output_tokens, hit_ratio)
        found = min(shared_tokens * hit_ratio, input_tokens - 1) / input_tokens
        return cls(input_tokens, output_tokens, found, PrefixCache(shared_tokens, hit_ratio) if shared_tokens else None)

    def held_tokens(self, constants: Constants) -> float:
        """What a request is taken to hold when it gets a place: its prompt and a share of its output [tokens]."""
        return self.input_tokens + constants.held_output_ratio * self.output_tokens

    @property
    def held_once(self) -> PrefixCache | None:
        """What running requests hold once of `shared`: nothing that is not found."""
        return self.shared if self.prefix_hit_ratio else None

    @property
    def computed_tokens(self) -> float:
        """What is left to compute of the prompt; the last token always is [tokens]."""
        return max(1.0, self.input_tokens * (1 - self.prefix_hit_ratio))

    @property
    def decode_context_tokens(self) -> float:
        """Mean context of a decoding sequence: the prompt and half of the output [tokens]."""
        return self.input_tokens + self.output_tokens / 2

    @property
    def prompt_context_tokens(self) -> float:
        """Mean context of a computed prompt token: what is cached and half of the rest [tokens]."""
        return self.input_tokens - self.computed_tokens / 2


@dataclass(frozen=True)
class Performance:
    """One deployment with everything that its speed is computed from."""

    llm: Llm
    gpu: Gpu
    deployment: Deployment
    found: Fit
    lengths: Lengths
    work: StepWork
    model: StepModel
    step_class: StepClass
    constants: Constants
    places: float
    """Requests that have a place in the replica at once; 0 where it serves none."""
    places_limit: PlacesLimit
    token_budget: float
    """Prompt tokens of one step over all dp ranks; infinite where prompts are not cut [tokens]."""
    draft: StepTimer | None
    """Steps of the draft model."""
    steps: StepTimer
    """Times of a step at any lengths."""
    num_waves: float | None = None
    length_width_ratio: float = 0.0

    @cached_property
    def timer(self) -> StepTimer:
        """Times of a step at these lengths."""
        return self.steps.at_contexts(self._contexts)

    @cached_property
    def roofline(self) -> StepTimer:
        """The same at full bandwidth and peaks, for utilisation."""
        return step_timer(self.work, ROOFLINE, self._contexts)

    @cached_property
    def _contexts(self) -> Contexts:
        return self.work.contexts(self.lengths.decode_context_tokens, self.lengths.prompt_context_tokens)

    @property
    def is_fitted(self) -> bool:
        """Whether measurements of this engine, class of accelerator, weights and kind of model are among those of the fit."""
        return self.model.rows_of(self.step_class) > 0

    @cached_property
    def serving(self) -> Serving:
        """The deployment under load."""
        speculative = self.deployment.speculative
        return Serving(
            timer=self.timer,
            input_tokens=self.lengths.input_tokens,
            computed_tokens=self.lengths.computed_tokens,
            output_tokens=self.lengths.output_tokens,
            tokens_per_step=speculative.tokens_per_iteration if speculative else 1.0,
            draft_s=None if speculative is None else self.draft_s,
            token_budget=self.token_budget,
            most_admitted=self.places,
            num_waves=self.num_waves,
            poll_interval_steps=self.deployment.poll_interval_steps,
            batch_wait_steps=self.deployment.batch_wait_steps,
            prefill_first=self.deployment.engine in self.model.prefill_first,
            length_width_ratio=self.length_width_ratio,
        )

    def draft_s(self, num_sequences: float) -> float:
        """Time that drafting adds to a step [s]: drafts x step of the draft model, or of the prediction layers as a share of all layers."""
        speculative = self.deployment.speculative
        if speculative is None:
            return 0.0
        sequences = max(1.0, num_sequences)
        if self.draft is not None:
            return speculative.num_draft_tokens * self.draft.total_s(sequences, 0)
        if speculative.draft_model is None and self.llm.num_mtp_layers:
            share = self.llm.num_mtp_layers / self.llm.num_layers
            return speculative.num_draft_tokens * share * self.timer.total_s(sequences / self.work.positions_per_sequence, 0)
        return 0.0

    def at_lengths(self, lengths: Lengths) -> "Performance":
        """The same deployment with requests of other lengths, which find more or fewer places."""
        places, limit = places_of(self.found, self.deployment, lengths.held_tokens(self.constants), lengths.held_once)
        return self._but(lengths=lengths, places=places, places_limit=limit)

    def with_constants(self, constants: Constants) -> "Performance":
        """The same deployment and lengths at other constants."""
        return replace(self, constants=constants, steps=step_timer(self.work, constants, NO_CONTEXTS, self.model.kernels))

    def with_lengths(self, lengths: Lengths) -> "Performance":
        """The same deployment and places with other lengths."""
        return self._but(lengths=lengths)

    def _but(self, **changes: Any) -> "Performance":
        """As `replace`, which takes far longer: an answer asks for a dozen."""
        return Performance(**({name: vars(self)[name] for name in self.__match_args__} | changes))

    def without_speculation(self) -> "Performance":
        """The same deployment with plain decoding."""
        plain_work = replace(self.work, positions_per_sequence=1)
        deployment = self.deployment.model_copy(update={"speculative": None})
        steps = replace(self.steps, work=plain_work, positions_per_sequence=1)
        return replace(self, deployment=deployment, work=plain_work, draft=None, steps=steps)

    @cached_property
    def _known(self) -> dict[float, LoadState]:
        return {}

    def closed(self, concurrency: float) -> LoadState:
        """Steady state at a concurrency, computed once."""
        if concurrency not in self._known:
            self._known[concurrency] = self.serving.closed(concurrency)
        return self._known[concurrency]

    @property
    def saturated(self) -> LoadState:
        """Every place taken: more requests only wait."""
        return self.closed(self.places)

    def curve(self) -> list[LoadState]:
        """Steady states at 1, 2, 4 ... and at every place taken."""
        levels = [float(level) for level in ramp(int(self.places))]
        states = [self.closed(level) for level in levels if level < self.places]
        return [*states, self.saturated]

    def compute_bound_sequences(self) -> int | None:
        """Fewest sequences at which a decode step computes longer than it reads; None where that is never so."""

        def computes(sequences: int) -> bool:
            step = self.timer.iteration(sequences / self.work.pp, 0)
            return step.compute_s >= step.memory_s

        return _first(computes)

    def speculation_pays_up_to(self) -> int | None:
        """Most sequences at which a token takes less time with speculation than without; None where it always pays, 0 where never."""
        plain = self.without_speculation()
        tokens = self.serving.tokens_per_step

        def loses(sequences: int) -> bool:
            share = sequences / self.work.pp
            return self.serving.step_s(share, 0) / tokens >= plain.timer.total_s(share, 0)

        first = _first(loses)
        return None if first is None else first - 1


def _first(holds: Callable[[int], bool]) -> int | None:
    """The smallest batch from which on a condition holds, found by doubling and halving; None where it does not up to MOST_SEQUENCES."""
    high = 1
    while not holds(high):
        high *= 2
        if high > MOST_SEQUENCES:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


class StepParts(NamedTuple):
    """What the time of a step follows from, whatever the memory holds and the engine's limits are."""

    work: StepWork
    step_class: StepClass
    constants: Constants
    steps: StepTimer
    """Times of a step without any context."""


def step_parts(llm: Llm, gpu: Gpu, deployment: Deployment, model: StepModel, load: Load = "served") -> StepParts:
    """Work, class and constants of the steps of a deployment; raises MissingFigure naming the bandwidth or peak that the catalog lacks."""
    work = step_work(llm, gpu, deployment)
    step_class = StepClass(
        deployment.engine,
        gpu_class(gpu),
        work.products.weight_class,
        "moe" if work.model.experts else "dense",
        load=load,
        era=model.era_of(deployment.engine, deployment.engine_version),
        dense_weights=work.products.dense_class,
        link=work.tensor_link.kind if deployment.tp > 1 else "none",
    )
    constants = model.constants_of(step_class)
    return StepParts(work, step_class, constants, step_timer(work, constants, NO_CONTEXTS, model.kernels))


def performance_of(
    llm: Llm,
    gpu: Gpu,
    deployment: Deployment,
    engine: EngineMemory | None,
    model: StepModel,
    lengths: Lengths,
    *,
    draft: Llm | None = None,
    num_waves: float | None = None,
    length_width_ratio: float = 0.0,
    load: Load = "served",
    parts: StepParts | None = None,
    found: Fit | None = None,
) -> Performance:
    """A deployment and its lengths, ready to be asked; `model` holds the constants, `draft` is the draft model of speculation,
    `found` its memory where it is at hand.

    `parts` are its `step_parts` where they are at hand. Raises InvalidInput for an impossible layout, MissingFigure naming the memory,
    bandwidth or peak that the catalog lacks.
    """
    found = found or fit(llm, gpu, deployment, engine)
    work, step_class, constants, steps = parts or step_parts(llm, gpu, deployment, model, load)
    places, limit = places_of(found, deployment, lengths.held_tokens(constants), lengths.held_once)
    timer = None
    if draft is not None:
        alone = Deployment(tp=deployment.tp, engine=deployment.engine, kv_cache=deployment.kv_cache)
        draft_work = step_work(draft, gpu, alone)
        contexts = draft_work.contexts(lengths.decode_context_tokens, lengths.prompt_context_tokens)
        timer = step_timer(draft_work, constants, contexts, model.kernels)
    limits = places, limit, _token_budget(found, deployment)
    return Performance(
        llm, gpu, deployment, found, lengths, work, model, step_class, constants, *limits, timer, steps, num_waves, length_width_ratio
    )


def _token_budget(found: Fit, deployment: Deployment) -> float:
    if not deployment.chunked_prefill:
        return math.inf
    settings = found.settings
    given = deployment.max_num_batched_tokens or (settings and settings.max_num_batched_tokens) or USUAL_TOKEN_BUDGET
    return float(given * deployment.dp)
