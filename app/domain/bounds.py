"""Physical limits of speed: what bandwidth and arithmetic allow at best. No engine reaches them; each is labelled a bound."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from app.domain.deployment import Deployment
from app.domain.hardware import Gpu
from app.domain.llm import Llm
from app.domain.memory import Fit
from app.domain.precision import compute_format

PREFILL_SOURCE = "https://arxiv.org/abs/2001.08361 (2 FLOPs per parameter and token)"
ATTENTION_SOURCE = "https://arxiv.org/abs/2204.02311 appendix B (attention matmul FLOPs)"
BANDWIDTH_SOURCE = "https://arxiv.org/abs/2211.05102 section 2 (weights and KV are read once per step)"


def linear_flops(llm: Llm, tokens: float) -> float:
    """FLOPs of all matrix products with weights: 2 x active params x tokens [FLOP].

    >>> linear_flops(Llm(slug="m", num_params=70_000_000_000, num_active_params=70_000_000_000), 4000) / 1e12
    560.0
    """
    return 2.0 * llm.num_active_params * tokens


def attention_terms(llm: Llm, tokens: float) -> Iterator[tuple[int, int, float]]:
    """(layers, width, reach) of each group that attends: heads x (key_dim + value_dim), and the tokens that a token sees at most."""
    for group in llm.layer_groups or ():
        mixer = group.mixer
        if mixer is None:
            continue
        if mixer.kind == "attention":
            yield (
                group.num_layers,
                mixer.num_heads * (mixer.key_head_dim + mixer.value_head_dim),
                min(tokens, mixer.window_tokens or tokens),
            )
        elif mixer.kind == "latent_attention":
            yield group.num_layers, mixer.num_heads * (mixer.qk_nope_head_dim + mixer.qk_rope_head_dim + mixer.v_head_dim), tokens
        elif mixer.kind == "compressed_attention":
            compressed = tokens / mixer.compress_ratio if mixer.compress_ratio else 0
            yield group.num_layers, mixer.num_heads * 2 * mixer.head_dim, min(tokens, mixer.window_tokens) + compressed


def attention_flops(llm: Llm, tokens: float) -> float:
    """FLOPs of scores and weighted values over the full matrix, an upper bound; causal masking leaves half [FLOP].

    sum over layers of 2 x heads x (key_dim + value_dim) x tokens x min(tokens, window); this is 4 x layers x tokens^2 x d_model where
    heads x head_dim = d_model. Recurrent layers are linear in the tokens and left out. 0 when the layers are not known.
    """
    return sum(layers * 2.0 * width * tokens * reach for layers, width, reach in attention_terms(llm, tokens))


def weights_read_ratio(llm: Llm, num_sequences: float) -> float:
    """Share of the weights that one decode step over `num_sequences` tokens reads.

    Dense parameters are always read; of E experts with k per token a step of n tokens touches E (1 - (1 - k/E)^n) on average.
    """
    experts = llm.num_expert_params
    if not experts:
        return 1.0
    untouched = 0.0
    for group in llm.layer_groups or ():
        for part in group.feed_forward:
            if part.kind == "moe":
                missed = (1 - part.num_experts_per_token / part.num_experts) ** num_sequences
                untouched += missed * group.num_layers * part.num_expert_params(llm.hidden_size or 0)
    return 1 - untouched / llm.num_params


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

    @cached_property
    def _compute_s_per_token(self) -> float:
        return linear_flops(self.llm, 1) / (self.deployment.num_gpus * self.peak_flops_per_s)

    def prefill_s(self, input_tokens: float) -> float:
        """Least time for one prompt: (2 P N + causal attention) / (GPUs x peak) [s]."""
        flops = linear_flops(self.llm, input_tokens) + attention_flops(self.llm, input_tokens) / 2
        return flops / (self.deployment.num_gpus * self.peak_flops_per_s)

    def decode_step_s(self, num_sequences: float, context_tokens: float) -> float:
        """Least time of one decode step of the replica [s].

        max of memory: (pp x weights/gpu x share read + sequences / dp x KV/gpu) / bandwidth, and arithmetic: 2 P sequences / (GPUs x peak).
        """
        deployment = self.deployment
        read = deployment.pp * self.found.weights_bytes_per_gpu * weights_read_ratio(self.llm, num_sequences)
        if self.found.cost is not None:
            read += num_sequences / deployment.dp * self.found.cost.sequence_bytes(context_tokens)
        compute = num_sequences * self._compute_s_per_token
        return max(read / self.bandwidth_bytes_per_s, compute)

    def tpot_s(self, num_sequences: float, context_tokens: float) -> float:
        """Least time per output token: step / tokens per step [s]."""
        return self.decode_step_s(num_sequences, context_tokens) / self.tokens_per_step

    def weights_only_tokens_per_s(self) -> float:
        """Best rate of a single stream when only weights are read: bandwidth / weights per accelerator [tokens/s]."""
        read = self.deployment.pp * self.found.weights_bytes_per_gpu * weights_read_ratio(self.llm, 1)
        return self.bandwidth_bytes_per_s / read

    def largest_batch(self, tpot_s: float, context_tokens: float, most: int) -> int:
        """Most sequences whose time per token stays within `tpot_s` even at the bound; 0 when one alone is slower."""
        low, high = 0, most
        if not self.llm.num_expert_params:
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
        per_sequence = found.cost.sequence_bytes(context_tokens) / deployment.dp if found.cost else 0
        if room < 0:
            return 0
        by_compute = step_s / self._compute_s_per_token
        return int(min(by_compute, room / per_sequence) if per_sequence else by_compute)


def speed_bounds(llm: Llm, gpu: Gpu, deployment: Deployment, found: Fit) -> SpeedBounds:
    """Bounds from the accelerator's bandwidth and dense peak; raises MissingFigure naming the figure that the catalog lacks."""
    number_format = compute_format(deployment.weights, gpu)
    return SpeedBounds(
        llm, deployment, found, gpu.require_peak_flops_per_s(number_format), gpu.require_bandwidth_bytes_per_s(), number_format
    )
