"""What not knowing an input costs: the inputs that decide an engine's KV cache and that callers forget."""

from typing import NamedTuple

from app.domain.deployment import FITTED_LENGTH, Deployment
from app.domain.engine import EngineMemory, version_key
from app.domain.engine_budget import NO_TERMS, most_lean_peak_bytes, samples_lean
from app.domain.engine_defaults import device_class
from app.domain.hardware import Gpu
from app.domain.llm import Llm
from app.domain.memory_fit import Fit
from app.domain.provenance import Note
from app.domain.units import gigabytes, plain


class Doubts(NamedTuple):
    """How much smaller or larger the KV cache may be for what the deployment does not say [bytes]."""

    below_bytes: int
    above_bytes: int
    costs: dict[str, str]
    """What a default costs, by the name of its field."""
    notes: tuple[Note, ...]
    """What is open although the deployment has no field for it."""


def doubts_of(found: Fit, llm: Llm, gpu: Gpu, deployment: Deployment) -> Doubts:
    """The doubts about a replica whose engine's terms were used.

    above = peak - leanest peak (few sequences, a sampler without a sort) + graphs that an unknown version may not count + all terms on
    accelerators whose back end was not read;
    below = memory x (default fraction - that of earlier versions) where neither version nor fraction is known [bytes].
    """
    engine, settings, peak = found.engine, found.settings, found.peak
    assert engine is not None and settings is not None and peak is not None  # noqa: PT018, S101 - fits of an engine have all three
    if found.terms == NO_TERMS:
        return Doubts(0, 0, {}, _fitted_length(found, deployment))
    lean = peak.total_bytes - most_lean_peak_bytes(llm, engine, deployment, settings, found.max_model_len_tokens)
    costs, notes = _costs(found, gpu, deployment, engine, lean), []
    leaner = engine.activation.bytes_per_logit_low < engine.activation.bytes_per_logit and samples_lean(engine, deployment) is None
    if lean > 0 and leaner:
        message = (
            f"flashinfer_sampler was not given: logits are taken to be sorted; with the package in the image the KV cache is up to "
            f"{gigabytes(lean)} larger."
        )
        notes.append(Note(code="unknown_image", message=message))
    below, above = 0, lean
    if deployment.engine_version is None or version_key(deployment.engine_version) is None:
        above += found.terms.cuda_graph_bytes
        if "memory_fraction_ratio" in settings.defaulted and engine.earlier_fraction_ratio is not None:
            below = int(found.memory_bytes * max(0, (settings.fraction or 0) - engine.earlier_fraction_ratio))
    if gpu.vendor is not None and engine.read_vendors and not gpu.vendor.startswith(engine.read_vendors):
        above += found.terms.total_bytes
        message = (
            f"The back end of {engine.engine} for {gpu.vendor} was not read: what it takes beside weights and KV cache is that of "
            f"{' and '.join(engine.read_vendors)}, and the range reaches to none of it."
        )
        notes.append(Note(code="back_end_not_read", message=message))
    return Doubts(below, above, costs, (*notes, *_fitted_length(found, deployment)))


def _costs(found: Fit, gpu: Gpu, deployment: Deployment, engine: EngineMemory, lean: int) -> dict[str, str]:
    costs = {}
    if lean > 0:
        costs["max_num_seqs"] = f"With few sequences the KV cache is up to {gigabytes(lean)} larger."
    if engine.fraction_basis == "of_total":
        costs["memory_fraction_ratio"] = f"Each 0.01 of it is {gigabytes(found.memory_bytes // 100)} of KV cache."
    offline = device_class(engine, gpu).offline_max_num_batched_tokens
    if offline is not None and "usage_context" not in deployment.model_fields_set:
        costs["max_num_batched_tokens"] = (
            f"A program that runs the engine in itself takes {plain(offline)}: then say usage_context offline."
        )
    return costs


def _fitted_length(found: Fit, deployment: Deployment) -> tuple[Note, ...]:
    if deployment.max_model_len_tokens != FITTED_LENGTH:
        return ()
    fits = found.kv_room_bytes >= found.longest_sequence_bytes
    what = "the longest sequence that fits and the model admits" if fits else "the model's own limit, for no sequence fits"
    message = f"max_model_len_tokens -1: {found.max_model_len_tokens}, {what}."
    return (Note(code="fitted_max_model_len", message=message),)
