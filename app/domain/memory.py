"""Does it fit: weights, reserve and KV cache against the memory of one accelerator."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from app.domain.deployment import Deployment, check_layout
from app.domain.errors import InvalidInput
from app.domain.hardware import Gpu
from app.domain.kv_cache import KvCost, kv_cost, kv_is_known, resolve_kv_format
from app.domain.llm import Llm
from app.domain.weights import WeightsSize, weights_bytes_per_gpu, weights_size

Verdict = Literal["serves", "loads_only", "does_not_fit"]
Limiting = Literal["weights", "kv_cache", "max_model_len"]

GENERIC_RESERVE_RATIO = 0.15
"""Memory that the generic engine keeps beside weights and KV cache. Serving guides advise to leave 10 to 20 % of the device free at
first (the middle, 15 %, is the 12 GB of an 80 GB card that such guides use in their examples); vLLM's default of 0.9 leaves 10 %
outside its budget before activations: https://docs.vllm.ai/en/stable/configuration/engine_args.html (gpu_memory_utilization)."""


class Fit(NamedTuple):
    """One replica's memory on its fullest accelerator, and what the rest holds."""

    weights: WeightsSize
    weights_bytes_per_gpu: int
    memory_bytes: int
    budget_bytes: int
    reserve_bytes: int
    kv_room_bytes: int
    """Budget - weights - reserve [bytes]; negative when they do not fit together."""
    cost: KvCost | None
    max_model_len_tokens: int | None
    longest_sequence_bytes: int
    """KV cache of one sequence of max_model_len_tokens [bytes]; of one token where that is not known, 0 without a known cost."""
    verdict: Verdict
    limiting: Limiting | None

    @property
    def kv_cache_bytes(self) -> int:
        """KV cache pool on one accelerator [bytes]."""
        return max(0, self.kv_room_bytes)

    @property
    def margin_bytes(self) -> int:
        """What is left (positive) or missing (negative) per accelerator until the verdict changes [bytes]."""
        if self.verdict == "does_not_fit":
            return self.memory_bytes - self.weights_bytes_per_gpu
        least = 1 if self.verdict == "loads_only" else 0
        return self.kv_room_bytes - max(least, self.longest_sequence_bytes)

    def outcome(self, weights_bytes_per_gpu: int, longest_sequence_bytes: int) -> tuple[Verdict, int | None]:
        """(verdict, token positions) of the same replica with other weights or another longest sequence on each accelerator."""
        room = self.budget_bytes - weights_bytes_per_gpu - self.reserve_bytes
        verdict, _ = _verdict(weights_bytes_per_gpu, self.memory_bytes, room, longest_sequence_bytes)
        return verdict, self._positions(max(0, room), longest_sequence_bytes)

    def capacity_tokens(self) -> int | None:
        """Token positions of one engine rank when sequences have the longest admitted length: floor(kv x L / sequence_bytes(L)).

        None without a known cost, and where windows or state make it depend on a longest length that is not known.
        """
        return self._positions(self.kv_cache_bytes, self.longest_sequence_bytes)

    def _positions(self, pool_bytes: int, sequence_bytes: int) -> int | None:
        length, cost = self.max_model_len_tokens, self.cost
        if cost is None or not sequence_bytes or (length is None and (cost.windows or cost.state_bytes)):
            return None
        return pool_bytes * (length or 1) // sequence_bytes

    def sequences(self, tokens: float) -> int | None:
        """Sequences of `tokens` tokens that one engine rank holds at once."""
        if self.cost is None:
            return None
        per_sequence = self.cost.sequence_bytes(tokens)
        return self.kv_cache_bytes // per_sequence if per_sequence else None


def fit(llm: Llm, gpu: Gpu, deployment: Deployment) -> Fit:
    """Memory of one replica on its fullest accelerator.

    budget = memory x fraction; kv = budget - weights/gpu - reserve, all [bytes]. Verdicts: `does_not_fit` when the weights exceed the
    memory; `loads_only` when no KV cache is left, or not even one sequence of the longest admitted length fits; else `serves`.
    The reserve is `reserve_bytes_per_gpu`, or GENERIC_RESERVE_RATIO of the memory unless a memory fraction takes its place.
    Raises InvalidInput for an impossible layout, MissingFigure when the catalog lacks the memory size.
    """
    check_layout(llm, deployment)
    memory = gpu.require_memory_bytes()
    weights = weights_size(llm, deployment.weights)
    per_gpu = weights_bytes_per_gpu(llm, weights.num_bytes, tp=deployment.tp, pp=deployment.pp, dp=deployment.dp)
    fraction = deployment.memory_fraction_ratio
    budget = memory if fraction is None else int(memory * fraction)
    reserve = deployment.reserve_bytes_per_gpu
    if reserve is None:
        reserve = int(GENERIC_RESERVE_RATIO * memory) if fraction is None else 0
    if reserve > memory:
        raise InvalidInput(
            f"the reserve of {reserve} bytes is more than the {memory} bytes of {gpu.slug}",
            field="/deployment/reserve_bytes_per_gpu", value=reserve, expected=f"at most {memory}",
        )  # fmt: skip
    cost = None
    if kv_is_known(llm):
        kv_format = resolve_kv_format(llm, deployment.kv_cache)
        cost = kv_cost(llm, kv_format, tp=deployment.tp, pp=deployment.pp, field="/deployment/kv_cache")
    length = deployment.max_model_len_tokens or llm.max_model_len_tokens
    room = budget - per_gpu - reserve
    longest = cost.sequence_bytes(length or 1) if cost is not None else 0
    verdict, limiting = _verdict(per_gpu, memory, room, longest)
    return Fit(weights, per_gpu, memory, budget, reserve, room, cost, length, longest, verdict, limiting)


def _verdict(weights: int, memory: int, room: int, longest: int) -> tuple[Verdict, Limiting | None]:
    if weights > memory:
        return "does_not_fit", "weights"
    if room <= 0:
        return "loads_only", "kv_cache"
    if longest > room:
        return "loads_only", "max_model_len"
    return "serves", None


def valid_tps(llm: Llm, largest: int = 64) -> Iterator[int]:
    """Tensor-parallel degrees up to `largest` that the model can be split into, ascending; powers of two where heads are unknown."""
    kv_heads = {group.mixer.num_kv_heads for group in llm.layer_groups or () if group.mixer and group.mixer.kind == "attention"}
    heads = llm.num_attention_heads
    for tp in range(1, largest + 1):
        if (heads % tp == 0 if heads is not None else tp & (tp - 1) == 0) and all(kv % tp == 0 or tp % kv == 0 for kv in kv_heads):
            yield tp


def longest_len_tokens(found: Fit) -> int | None:
    """The longest sequence that fits alone in the KV room [tokens], or None when none does or the KV cost is unknown."""
    if found.cost is None or found.kv_room_bytes <= 0:
        return None
    low, high = 0, found.max_model_len_tokens or 10**9
    while low < high:
        middle = (low + high + 1) // 2
        if found.cost.sequence_bytes(middle) <= found.kv_room_bytes:
            low = middle
        else:
            high = middle - 1
    return low or None
