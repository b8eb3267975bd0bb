"""What public evaluations say that a quantisation does to the answers of a model. Words with their sources; no score is estimated."""

from typing import NamedTuple

from app.domain.deployment import Deployment
from app.domain.kv_cache import kv_is_known, resolve_kv_format
from app.domain.llm import Llm
from app.domain.precision import KvFormat, WeightFormat
from app.domain.provenance import Note


class Finding(NamedTuple):
    """What was found, and where it can be read."""

    found: str
    source: str


_FORMATS = "https://arxiv.org/abs/2411.02355"
_REASONING = "https://arxiv.org/abs/2504.04823"
_FOUR_BIT_FLOATS = "https://arxiv.org/abs/2509.23202"
_FP8_CACHE = "https://vllm.ai/blog/fp8-kvcache"

INT4 = Finding(
    "over the Llama 3.1 family 4-bit weights came close to 8-bit ones, and reasoning models of 1.5B to 70B lost next to nothing; other "
    "studies saw large losses in mathematics, mostly of small models, so measure your own tasks",
    f"{_FORMATS}, {_REASONING}, https://arxiv.org/abs/2501.03035",
)
WEIGHTS: dict[WeightFormat, Finding] = {
    "fp8": Finding("over the Llama 3.1 family no loss was seen at any size", _FORMATS),
    "int8": Finding("over the Llama 3.1 family well calibrated weights and activations lost 1 to 3 % of the scores", _FORMATS),
    "int4": INT4,
    "awq": INT4,
    "gptq": INT4,
    "nvfp4": Finding(
        "the loss depends on how the checkpoint was made: plain rounding to NVFP4 loses visibly, calibrated and trained ones far less",
        _FOUR_BIT_FLOATS,
    ),
    "mxfp4": Finding(
        "scales that are powers of two make larger errors than NVFP4 unless the model was trained in the format", _FOUR_BIT_FLOATS
    ),
}
"""Against 16 bits."""
CACHE: dict[KvFormat, Finding] = {
    "fp8": Finding(
        "models tested by the vLLM project stay near their scores; long contexts on older kernels did not, and some attention needs "
        "calibrated scales",
        _FP8_CACHE,
    ),
    "int8": Finding("no evaluation across engines is known to the planner", _REASONING),
    "fp4": Finding("reasoning with weights, activations and cache all in 4 bits lost much", "https://arxiv.org/abs/2606.15682"),
}
"""Against a cache of 16 bits."""


def quality_notes(llm: Llm, deployment: Deployment) -> list[Note]:
    """What to know about the answers of a deployment in fewer bits than its checkpoint; empty where it is served as published."""
    notes = []
    weights = deployment.weights
    if weights in WEIGHTS:
        finding = WEIGHTS[weights]
        native = (llm.native.quantization or "").casefold()
        if weights not in native:
            message = f"{weights} weights are not the checkpoint's own: one in this format is needed. {_sentence(finding)}"
            notes.append(Note(code="quality_of_weights", message=message))
    if deployment.kv_cache in CACHE and not (kv_is_known(llm) and resolve_kv_format(llm, "auto") == deployment.kv_cache):
        finding = CACHE[deployment.kv_cache]
        notes.append(Note(code="quality_of_cache", message=f"{deployment.kv_cache} KV cache. {_sentence(finding)}"))
    return notes


def _sentence(finding: Finding) -> str:
    return f"{finding.found[0].upper()}{finding.found[1:]} ({finding.source})."
