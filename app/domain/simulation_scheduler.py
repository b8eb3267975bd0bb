"""How schedulers of engines differ: room that a place takes, prompts beside decoding, who loses the place when the cache is full.

Sources: https://github.com/vllm-project/vllm/blob/main/vllm/v1/core/sched/scheduler.py (schedule),
https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/managers/schedule_policy.py (PrefillAdder),
https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/managers/scheduler.py (update_running_batch),
https://github.com/NVIDIA/TensorRT-LLM/blob/main/tensorrt_llm/llmapi/llm_args.py (CapacitySchedulerPolicy).
"""

from typing import Annotated, Literal

from pydantic import Field

from app.domain.deployment import EngineName
from app.domain.errors import InvalidInput
from app.domain.value import Given

Reservation = Literal["prompt", "output", "estimate"]
"""Room that a place takes: that of the prompt, and sequences are preempted when the cache is full; that of the whole output beside it, and
none is; or of the prompt where an estimate of what all running requests still write leaves room."""

INITIAL_RATIO = 0.7
"""Share of the outputs that SGLang expects running requests to write at first: SGLANG_INIT_NEW_TOKEN_RATIO of
https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/environ.py, as the next four."""
LEAST_SHARE = 0.14
"""Its least value / INITIAL_RATIO."""
DECAY_STEPS = 600
"""Steps in which it falls from the one to the other while nothing is retracted."""
RETRACTED_STEPS = 20
"""Tokens that each sequence is expected to get beside those that it has, after a retraction."""
CLIPPED_TOKENS = 4096
"""More than these of one output are not expected."""
WHOLE_PROMPTS_TOKENS = 16_384.0
"""Prompt tokens of one SGLang step where prompts are not cut (max_prefill_tokens of
https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/server_args.py)."""


class SchedulerSettings(Given):
    """How the engine schedules, where that is not its default."""

    long_prefill_threshold_tokens: Annotated[int, Field(ge=1, le=10**9)] | None = None
    """Most tokens of one prompt in a step, so that short prompts get their part of it (vLLM: --long-prefill-token-threshold)."""
    mixed_chunk: bool = False
    """Prompts run beside decoding instead of in steps of their own (SGLang: --enable-mixed-chunk)."""
    conservativeness_ratio: Annotated[float, Field(ge=0, le=10)] = 1
    """Room kept for outputs / the usual (SGLang: --schedule-conservativeness)."""
    capacity_policy: Literal["guaranteed_no_evict", "max_utilization"] = "guaranteed_no_evict"
    """Whether a place includes room for the whole output, or sequences are paused when the cache is full (TensorRT-LLM)."""


OF_ENGINES: dict[str, EngineName] = {
    "long_prefill_threshold_tokens": "vllm",
    "mixed_chunk": "sglang",
    "conservativeness_ratio": "sglang",
    "capacity_policy": "tensorrt-llm",
}
"""Settings by the engine that has them."""
AS_USUAL = SchedulerSettings()


def check_settings(settings: SchedulerSettings, engine: EngineName) -> None:
    """Refuse settings of other engines; raises InvalidInput naming the field."""
    for name, owner in OF_ENGINES.items():
        value = getattr(settings, name)
        if value != getattr(AS_USUAL, name) and engine != owner:
            raise InvalidInput(
                f"{name} is a setting of {owner}, and the engine is {engine}", field=f"/scheduler/{name}", value=value,
                expected=f"none, or the engine {owner}",
            )  # fmt: skip


def reservation_of(settings: SchedulerSettings, engine: EngineName) -> Reservation:
    """What a place takes on an engine."""
    if engine == "sglang":
        return "estimate"
    return "output" if engine == "tensorrt-llm" and settings.capacity_policy == "guaranteed_no_evict" else "prompt"


SAID: dict[EngineName, str] = {
    "generic": "Prompts and decoding share each step, first come first served; a place takes the room of its prompt, and the youngest "
    "sequence is preempted when the cache is full.",
    "vllm": "As vLLM's V1 scheduler does, prompts and decoding share each step, first come first served; a place takes the room of its "
    "prompt, and the sequence admitted last is preempted when the cache is full. Of its settings for long prompts it honours "
    "long_prefill_token_threshold alone.",
    "sglang": "As SGLang does, waiting prompts run in steps of their own, first come first served, while decoding waits; a request gets a "
    "place where its prompt, its output and the expected rest of the running outputs (new_token_ratio) fit, and the sequence with fewest "
    "output tokens is retracted when the cache is full. Clients are taken to ask for just the tokens that they get (max_tokens).",
    "tensorrt-llm": "As TensorRT-LLM does, prompts and decoding share each step, first come first served; a place takes the room of its "
    "prompt and, under guaranteed_no_evict, of its output.",
    "llama.cpp": "Prompts and decoding share each step, first come first served; a place takes the room of its prompt.",
}
"""What is simulated, by engine."""


class OutputEstimate:
    """The share of the outputs of running requests that SGLang expects to be written still (new_token_ratio)."""

    def __init__(self, conservativeness_ratio: float) -> None:
        self.initial = min(1.0, INITIAL_RATIO * conservativeness_ratio)
        self.least = self.initial * LEAST_SHARE
        self.ratio = self.initial

    def decode(self, num_steps: int) -> None:
        """Steps without a retraction: it falls by (initial - least) / DECAY_STEPS with each, down to the least."""
        self.ratio = max(self.least, self.ratio - num_steps * (self.initial - self.least) / DECAY_STEPS)

    def retracted(self, decoded_tokens: float, num_sequences: int, output_tokens: float) -> None:
        """min(1, (decoded + RETRACTED_STEPS x sequences) / (outputs + 1)) of the sequences that stay."""
        self.ratio = min(1.0, (decoded_tokens + RETRACTED_STEPS * num_sequences) / (output_tokens + 1))

    def reset(self) -> None:
        """Nothing waits or runs."""
        self.ratio = self.initial
