"""The defaults that decide an answer and that a request does not set, each as a note."""

from functools import lru_cache

from pydantic import BaseModel

from app.domain.checkpoint_names import BY_NAME
from app.domain.deployment import Deployment
from app.domain.hardware import Gpu
from app.domain.kv_cache import resolve_kv_format
from app.domain.kv_working import STATE_SOURCE
from app.domain.length_spread import lognormal_of
from app.domain.llm import Llm
from app.domain.loaded_weights import TORCH_ENGINES
from app.domain.memory import GENERIC_RESERVE_RATIO
from app.domain.precision import WEIGHTS, KvChoice
from app.domain.provenance import Note
from app.domain.units import plain
from app.domain.workload import Workload


@lru_cache(maxsize=512, typed=True)
def default_used(name: str, value: str | float | None) -> Note:
    """The note that `name` was left out and `value` stands in for it; kept, because defaults are the same in every request."""
    return Note(code=f"default_{name}", message=f"{name} was not given: {value} is used.")


def defaults_used(given: BaseModel, *names: str) -> list[Note]:
    """A note for each of the fields `names` that the caller left out."""
    return [default_used(name, getattr(given, name)) for name in names if name not in given.model_fields_set]


def length_notes(workload: Workload) -> list[Note]:
    """What the tail of the lengths is taken to be where a model of it decides the answer."""
    shaped = [] if workload.classes else [name for name in ("input_tokens", "output_tokens") if lognormal_of(workload.lengths(name))]
    if not shaped:
        return []
    message = f"Between and above the percentiles that are given, {' and '.join(shaped)} are lognormal through mean and P95."
    return [Note(code="lengths_lognormal", message=message)]


def checkpoint_notes(llm: Llm) -> list[Note]:
    """What the name of a checkpoint that the catalog does not list was taken for."""
    return [Note(code="checkpoint_name", message=note) for note in llm.notes if note.startswith(BY_NAME)]


def cache_defaults(llm: Llm, kv_cache: KvChoice) -> list[Note]:
    """The precisions of the cache that the request leaves open."""
    notes = []
    if kv_cache == "auto":
        kind = resolve_kv_format(llm, kv_cache)
        stated = llm.stated_kv_cache is not None and llm.stated_kv_cache.precision == kind
        if llm.native.kv_cache is not None:
            why = "which the checkpoint's quantisation names"
        else:
            why = "as the vendor states the cache" if stated else "16 bits, what engines use unless the checkpoint names a KV scheme"
        notes.append(Note(code="kv_cache_auto", message=f"kv_cache auto: {kind}, {why}."))
    if llm.keeps_state:
        notes.append(Note(code="state_precision", message=f"Recurrent state is counted with {STATE_SOURCE}."))
    return notes


def _reserve_default(deployment: Deployment) -> Note | None:
    """What is taken for the memory that is neither weights nor KV cache, where the request leaves it open."""
    fraction, reserve = deployment.memory_fraction_ratio, deployment.reserve_bytes_per_gpu
    if fraction is None and reserve is None:
        share = f"{GENERIC_RESERVE_RATIO:.0%}"
        message = f"reserve_bytes_per_gpu was not given: {share} of the memory stays for everything beside weights and KV cache."
    elif reserve is None:
        message = "reserve_bytes_per_gpu was not given: 0, memory_fraction_ratio takes its place."
    else:
        return default_used("memory_fraction_ratio", 1) if fraction is None else None
    return Note(code="default_reserve", message=message)


def deployment_defaults(llm: Llm | None, gpu: Gpu | None, deployment: Deployment) -> list[Note]:
    """The defaults of the deployment that decide the answer; those of the memory only where model and accelerator are given."""
    notes = [] if llm is None else checkpoint_notes(llm)
    notes += defaults_used(deployment, "tp", "pp", "dp", "ep", "engine")
    if llm is None or gpu is None:
        return notes
    if deployment.weights is None:
        native = llm.native
        what = native.quantization or native.dtype or "16 bits per parameter"
        known = "" if native.weights_bytes is not None else "; their size is not recorded, so 2 bytes per parameter are taken"
        notes.append(Note(code="default_weights", message=f"weights was not given: the checkpoint's own ({what}){known}."))
    elif deployment.engine == "generic" and deployment.weights not in ("fp32", "bf16", "fp16"):
        each = plain(WEIGHTS[deployment.weights].bytes_per_element)
        message = (
            f"weights {deployment.weights}: {each} bytes for every parameter; what a checkpoint leaves in 16 bits is not counted extra."
        )
        notes.append(Note(code="uniform_weights", message=message))
    if deployment.lora is not None and deployment.engine not in TORCH_ENGINES:
        notes.append(Note(code="adapters_not_counted", message=f"Slots for adapters are not counted for engine {deployment.engine}."))
    notes += cache_defaults(llm, deployment.kv_cache)
    if deployment.max_model_len_tokens is None and llm.max_model_len_tokens is not None:
        notes.append(default_used("max_model_len_tokens", f"{llm.max_model_len_tokens}, the model's own limit,"))
    if deployment.engine == "generic" and (reserve := _reserve_default(deployment)) is not None:
        notes.append(reserve)
    return notes
