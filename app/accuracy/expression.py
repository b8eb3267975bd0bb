"""A recorded start as the request that a user of the planner would have sent before it."""

import re
from typing import Any, NamedTuple, get_args

from pydantic import ValidationError

from app.accuracy.records import Part, Reading, ReadRecord, StartUpRecord
from app.domain.catalog import Catalog
from app.domain.deployment import EngineName
from app.domain.errors import PlannerError
from app.domain.llm import Llm
from app.domain.precision import GgufKind, KvChoice, WeightFormat
from app.domain.units import GIB
from app.services.references import resolve_model
from app.services.requests import MemoryRequest

AMPLE_MEMORY_BYTES = 1 << 36
"""Device memory that stands in where the record names no device; no figure that depends on it is judged then [bytes]."""

POOL_OF_CONTEXT: tuple[EngineName, ...] = ("llama.cpp",)
"""Engines whose pool is as large as the context asks for, on whatever device."""

_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?(?:(?:a|b|rc|\.post|\.dev)\d+)*(?:\+[a-z0-9.]+)?")
_WEIGHTS: tuple[tuple[str, WeightFormat], ...] = (
    *((kind, kind) for kind in get_args(GgufKind)),
    ("nvfp4", "nvfp4"),
    ("mxfp4", "mxfp4"),
    ("wna16", "gptq"),
    ("gptq", "gptq"),
    ("awq", "awq"),
    ("bnb", "bnb-4bit"),
    ("bitsandbytes", "bnb-4bit"),
    ("int4", "int4"),
    ("w4a16", "int4"),
    ("int8", "int8"),
    ("fp8", "fp8"),
    ("w8a8", "int8"),
)
"""The first word that a recorded quantisation contains, and the format that a request calls it."""
_KV_CACHE: tuple[tuple[str, KvChoice], ...] = (
    ("nvfp4", "fp4"),
    ("fp4", "fp4"),
    ("fp8", "fp8"),
    ("auto", "auto"),
    ("bf", "bf16"),
    ("fp16", "fp16"),
    ("f16", "fp16"),
    ("q8_0", "q8_0"),
)
"""The same for the KV cache; a precision that the engine resolved from the checkpoint is named, for the catalog entry is another one."""


class Expressed(NamedTuple):
    """The request that means a recorded start, and what it cannot judge."""

    request: MemoryRequest
    llm: Llm
    quantised: bool
    left_out_why: dict[str, frozenset[Part]]
    """Parts that this record cannot judge, by reason."""
    knows_limits: bool
    """Utilisation, max_num_seqs and max_num_batched_tokens are recorded."""

    @property
    def leave_out(self) -> frozenset[Part]:
        """Every part that this record cannot judge."""
        return frozenset().union(*self.left_out_why.values())


class NotExpressed(NamedTuple):
    """A recorded start that no request means, and why."""

    case: str
    reason: str


def express(catalog: Catalog, read: ReadRecord) -> Expressed | NotExpressed:
    """The request of a record: catalog names where given, the engine's defaults where the record is silent.

    A record without a device is asked about an ample one, and only judged in what does not depend on it.
    """
    record, reading = read.record, read.reading or Reading(why="")
    if not reading.expressed:
        return NotExpressed(record.id, reading.why)
    try:
        request = _request(catalog, record, reading)
        llm = resolve_model(catalog, request.model)
        if request.deployment.weights is not None and is_native(llm, record.quantization):
            own = request.deployment.model_copy(update={"weights": None})
            request = request.model_copy(update={"deployment": own})
    except (PlannerError, ValidationError) as error:
        return NotExpressed(record.id, str(error))
    deployment = request.deployment
    left_out: dict[str, frozenset[Part]] = {reading.why: frozenset(reading.leave_out)} if reading.leave_out else {}
    if record.gpu_slug is None and record.gpu_memory_gib_total is None:
        without: set[Part] = {"verdict"} if deployment.engine in POOL_OF_CONTEXT else {"verdict", "kv_memory"}
        left_out["the memory of the device is not recorded"] = frozenset(without)
    limits = deployment.memory_fraction_ratio, deployment.max_num_seqs, deployment.max_num_batched_tokens
    quantised = deployment.weights not in (None, "bf16", "fp16", "fp32") or (deployment.weights is None and bool(llm.native.quantization))
    return Expressed(request, llm, quantised, left_out, None not in limits)


def _request(catalog: Catalog, record: StartUpRecord, reading: Reading) -> MemoryRequest:
    model = reading.model or _published(catalog, record) or record.model_slug or record.model_hf_id
    memory = AMPLE_MEMORY_BYTES if record.gpu_memory_gib_total is None else round(record.gpu_memory_gib_total * GIB)
    deployment: dict[str, Any] = {
        "engine": engine_of(record.engine),
        "engine_version": version_of(record.engine_version),
        "tp": record.tp or record.gpu_count,
        "pp": record.pp,
        "dp": record.dp,
        "ep": record.ep,
        "weights": weight_format_of(record.quantization),
        "kv_cache": kv_choice_of(record.kv_cache_dtype),
        "memory_fraction_ratio": record.gpu_memory_utilization,
        "max_model_len_tokens": record.max_model_len,
        "max_num_seqs": record.max_num_seqs,
        "max_num_batched_tokens": record.max_num_batched_tokens,
        "enforce_eager": record.enforce_eager,
    }
    given = {name: value for name, value in (deployment | reading.deployment).items() if value is not None}
    named = record.gpu_slug if record.gpu_slug and catalog.gpu(record.gpu_slug).memory_bytes is not None else None
    figures: dict[str, Any] = {"memory_bytes": memory} | ({"name": record.gpu} if record.gpu else {})
    return MemoryRequest.model_validate({"model": model, "gpu": named or figures, "deployment": given})


def _published(catalog: Catalog, record: StartUpRecord) -> str | None:
    """The recorded repository where it is known by its name and means the recorded model: recipes differ by publisher."""
    try:
        found = catalog.checkpoint(record.model_hf_id)
    except PlannerError:
        return None
    return record.model_hf_id if found.slug == record.model_slug else None


def engine_of(name: str) -> str:
    """The engine that a record names, without what follows it.

    >>> engine_of("llama.cpp (ollama)")
    'llama.cpp'
    """
    first = name.split()[0].lower()
    return first if first in get_args(EngineName) else name


def version_of(text: str | None) -> str | None:
    """The version number within a recorded version, with the build after `+`; None where there is only a date or a name.

    >>> version_of("V1 0.8.x (2025-04)"), version_of("0.13.0+nv26.01"), version_of("2026-06")
    ('0.8', '0.13.0+nv26.01', None)
    """
    found = _VERSION.search(text or "")
    return found[0] if found else None


def weight_format_of(quantization: str | None) -> WeightFormat | None:
    """The weight format that a recorded quantisation names; None where nothing is recorded: the checkpoint's own.

    >>> weight_format_of("compressed-tensors int4"), weight_format_of("awq_marlin"), weight_format_of(None)
    ('int4', 'awq', None)
    """
    text = (quantization or "").lower()
    return next((weights for word, weights in _WEIGHTS if word in text), None)


def kv_choice_of(dtype: str | None) -> KvChoice:
    """The KV cache precision that a record names, auto where it names none.

    >>> kv_choice_of("auto (resolved to fp8_e4m3 from the checkpoint)"), kv_choice_of("f16"), kv_choice_of(None)
    ('fp8', 'fp16', 'auto')
    """
    text = (dtype or "").lower()
    return next((choice for word, choice in _KV_CACHE if word in text), "auto")


def is_native(llm: Llm, quantization: str | None) -> bool:
    """Whether a recorded quantisation is the one in which the model is published, so that its own checkpoint was loaded."""
    wanted = weight_format_of(quantization)
    return wanted is not None and wanted == weight_format_of(llm.native.quantization)
