"""Physical limits of speed: what bandwidth and arithmetic allow at best. No engine reaches them; each is labelled a bound."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from app.domain.attention_reach import attention_reaches
from app.domain.deployment import Deployment
from app.domain.hardware import Gpu
from app.domain.kv_cache import KvCost, kv_read_cost, resolve_kv_format
from app.domain.llm import Llm
from app.domain.memory_fit import Fit
from app.domain.model_work import model_work
from app.domain.precision import compute_format, native_format

PREFILL_SOURCE = "https://arxiv.org/abs/2001.08361 (2 FLOPs per parameter and token)"
ATTENTION_SOURCE = "https://arxiv.org/abs/2204.02311 appendix B (attention matmul FLOPs)"
BANDWIDTH_SOURCE = "https://arxiv.org/abs/2211.05102 section 2 (weights and KV are read once per step)"


def linear_flops(llm: Llm, tokens: float) -> float:
    """FLOPs of all matrix products with weights: 2 x active params x tokens [FLOP].

    >>> linear_flops(Llm(slug="m", num_params=70_000_000_000, num_active_params=70_000_000_000), 4000) / 1e12
    560.0
    """
    return 2.0 * llm.num_active_params * tokens


class AttentionTerm(NamedTuple):
    """Layers that attend alike."""

    layers: int
    width: int
    """heads x (key_dim + value_dim)."""
    reach: float
    """Entries that a query sees at most [tokens]."""
    filling_tokens: float
    """Tokens of the prompt over which queries see less, half on average, until they see `reach` [tokens]."""

    @property
    def full_flops_per_token(self) -> float:
        """Scores and weighted values of one query at full reach [FLOP/token]."""
        return 2.0 * self.layers * self.width * self.reach

    def causal_flops(self, tokens: float) -> float:
        """The same over a prompt, each query seeing what came before: full x tokens - what early queries lack [FLOP]."""
        return self.full_flops_per_token * (tokens - self.filling_tokens / 2)


def attention_terms(llm: Llm, tokens: float) -> Iterator[AttentionTerm]:
    """The attending layers over a prompt: what a query sees at most, and over how many tokens early queries see less."""
    for reach in attention_reaches(llm):
        entries = reach.entries(tokens)
        yield AttentionTerm(reach.num_layers, reach.prompt_width, entries, tokens if reach.restarts else entries * reach.tokens_per_entry)


def attention_flops(llm: Llm, tokens: float) -> float:
    """FLOPs of scores and weighted values over the full matrix, an upper bound [FLOP].

    sum over layers of 2 x heads x (key_dim + value_dim) x tokens x min(tokens, window, selected); this is 4 x layers x tokens^2 x d_model
    where heads x head_dim = d_model. Recurrent layers are linear in the tokens and left out, as are indexers. 0 when the layers are not
    known.
    """
    return sum(term.full_flops_per_token * tokens for term in attention_terms(llm, tokens))


def causal_attention_flops(llm: Llm, tokens: float, cached_tokens: float = 0) -> float:
    """What causal masking leaves of `attention_flops`, without the first `cached_tokens` that a prefix cache serves [FLOP].

    sum over layers of 2 x heads x (key_dim + value_dim) x (tokens x reach - reach^2 / 2): half where every token sees all before it.
    """
    whole = sum(term.causal_flops(tokens) for term in attention_terms(llm, tokens))
    return whole - (causal_attention_flops(llm, cached_tokens) if cached_tokens else 0)


def weights_read_ratio(llm: Llm, num_tokens: float, dp: int = 1) -> float:
    """Share of the weights on an accelerator that one step over `num_tokens` tokens reads.

    Dense parameters are always read; of E experts with k per token a step of n tokens touches E (1 - (1 - k/E)^n) on average. The
    experts are spread over the `dp` ranks, everything else is repeated on each. Where the layers are not known, what is not active on every
    token counts as experts chosen in that proportion, as in `model_work`: 1 - (1 - active / params)^n.
    """
    experts = llm.num_expert_params
    if not experts and not model_work(llm).is_known and llm.num_active_params < llm.num_params:
        unused: float = (1 - llm.num_active_params / llm.num_params) ** num_tokens
        return 1 - unused
    if not experts:
        return 1.0
    untouched = 0.0
    for group in llm.layer_groups or ():
        for part in group.feed_forward:
            if part.kind == "moe":
                missed = (1 - part.num_experts_per_token / part.num_experts) ** num_tokens
                untouched += missed * group.num_layers * part.num_expert_params(llm.hidden_size or 0)
    return 1 - untouched / dp / (llm.num_params - experts + experts / dp)


@dataclass(frozen=True)
class SpeedBounds:
    """Best possible prefill and decode times of one replica."""

    llm: Llm
    deployment: Deployment
    found: Fit
    peak_flops_per_s: float
    """Dense peak of one accelerator in the format that the products run in [FLOP/s]."""
    bandwidth_bytes_per_s: float
    """Memory bandwidth of one accelerator [bytes/s]."""
    number_format: str
    """The format in which products run."""

    @property
    def tokens_per_step(self) -> float:
        """Tokens that one decode step yields per sequence: 1, or 1 + drafts x acceptance with speculation."""
        return self.deployment.speculative.tokens_per_iteration if self.deployment.speculative else 1

    @property
    def positions_per_step(self) -> int:
        """Tokens that one decode step computes per sequence: 1, and with speculation all drafts beside it."""
        return 1 + self.deployment.speculative.num_draft_tokens if self.deployment.speculative else 1

    @cached_property
    def read_cost(self) -> KvCost | None:
        """What one decode step reads of a sequence's cache; sparse attention reads what it selects."""
        if self.found.cost is None:
            return None
        kv_format = resolve_kv_format(self.llm, self.deployment.kv_cache)
        return kv_read_cost(self.llm, self.found.cost, kv_format, tp=self.deployment.tp, pp=self.deployment.pp)

    @cached_property
    def _compute_s_per_sequence(self) -> float:
        """Arithmetic of one decode step for one sequence on the whole replica [s]."""
        return linear_flops(self.llm, self.positions_per_step) / (self.deployment.num_gpus * self.peak_flops_per_s)

    def prefill_s(self, input_tokens: float, cached_tokens: float = 0, causal_flops: float | None = None) -> float:
        """Least time for one prompt of which `cached_tokens` come from the cache: (2 P N + causal attention) / (GPUs x peak) [s].

        `causal_flops` are those of the attention where they are computed already.
        """
        if causal_flops is None:
            causal_flops = causal_attention_flops(self.llm, input_tokens, cached_tokens)
        flops = linear_flops(self.llm, input_tokens - cached_tokens) + causal_flops
        return flops / (self.deployment.num_gpus * self.peak_flops_per_s)

    def read_ratio(self, num_sequences: float) -> float:
        """Share of the weights that one decode step over `num_sequences` sequences reads."""
        return weights_read_ratio(self.llm, num_sequences * self.positions_per_step, self.deployment.dp)

    def decode_step_s(self, num_sequences: float, context_tokens: float) -> float:
        """Least time of one decode step of the replica [s].

        max of memory: (pp x weights/gpu x share read + sequences / dp x KV/gpu) / bandwidth, and arithmetic: 2 P sequences x positions /
        (GPUs x peak).
        """
        deployment = self.deployment
        read = deployment.pp * self.found.weights_bytes_per_gpu * self.read_ratio(num_sequences)
        if self.read_cost is not None:
            read += num_sequences / deployment.dp * self.read_cost.sequence_bytes(context_tokens)
        return max(read / self.bandwidth_bytes_per_s, num_sequences * self._compute_s_per_sequence)

    def tpot_s(self, num_sequences: float, context_tokens: float) -> float:
        """Least time per output token: step / tokens per step [s]."""
        return self.decode_step_s(num_sequences, context_tokens) / self.tokens_per_step

    def compute_tokens_per_s(self) -> float:
        """Best output rate of the replica however many sequences run: arithmetic alone [tokens/s]."""
        return self.tokens_per_step / self._compute_s_per_sequence

    def weights_only_tokens_per_s(self) -> float:
        """Best rate of a single stream when only weights are read: bandwidth / weights per accelerator [tokens/s]."""
        read = self.deployment.pp * self.found.weights_bytes_per_gpu * weights_read_ratio(self.llm, 1, self.deployment.dp)
        return self.bandwidth_bytes_per_s / read

    def largest_batch(self, tpot_s: float, context_tokens: float, most: int) -> int:
        """Most sequences whose time per token stays within `tpot_s` even at the bound; 0 when one alone is slower."""
        low, high = 0, most
        if self.read_ratio(1) == 1:
            guess = min(self._dense_batch(tpot_s, context_tokens), most)
            low, high = max(0, guess - 1), min(most, guess + 1)  # one off at most, by rounding
        while low < high:
            middle = (low + high + 1) // 2
            if self.tpot_s(middle, context_tokens) <= tpot_s:
                low = middle
            else:
                high = middle - 1
        return low

    def _dense_batch(self, tpot_s: float, context_tokens: float) -> int:
        """`largest_batch` solved for a model whose weights are all read in every step."""
        deployment, found = self.deployment, self.found
        step_s = tpot_s * self.tokens_per_step
        room = step_s * self.bandwidth_bytes_per_s - deployment.pp * found.weights_bytes_per_gpu
        per_sequence = self.read_cost.sequence_bytes(context_tokens) / deployment.dp if self.read_cost else 0
        if room < 0:
            return 0
        by_compute = step_s / self._compute_s_per_sequence
        return int(min(by_compute, room / per_sequence) if per_sequence else by_compute)


def speed_bounds(llm: Llm, gpu: Gpu, deployment: Deployment, found: Fit) -> SpeedBounds:
    """Bounds from the accelerator's bandwidth and dense peak; raises MissingFigure naming the figure that the catalog lacks."""
    number_format = compute_format(deployment.weights or native_format(llm.native.quantization), gpu)
    return SpeedBounds(
        llm, deployment, found, gpu.require_peak_flops_per_s(number_format), gpu.require_bandwidth_bytes_per_s(), number_format
    )
