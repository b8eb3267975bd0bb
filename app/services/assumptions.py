"""The defaults that decide an answer and that a request does not set, each as a note."""

from pydantic import BaseModel

from app.domain.deployment import Deployment
from app.domain.hardware import Gpu
from app.domain.llm import Llm
from app.domain.memory import GENERIC_RESERVE_RATIO
from app.domain.provenance import Note


def default_used(name: str, value: object) -> Note:
    """The note that `name` was left out and `value` stands in for it."""
    return Note(code=f"default_{name}", message=f"{name} was not given: {value} is used.")


def defaults_used(given: BaseModel, *names: str) -> list[Note]:
    """A note for each of the fields `names` that the caller left out."""
    return [default_used(name, getattr(given, name)) for name in names if name not in given.model_fields_set]


def kv_cache_auto(llm: Llm) -> Note:
    """What `kv_cache: auto` means for a model."""
    if llm.stated_kv_cache is not None:
        return Note(code="kv_cache_auto", message=f"kv_cache auto: {llm.stated_kv_cache.precision}, as the vendor states the cache.")
    return Note(
        code="kv_cache_auto", message="kv_cache auto: 16 bits per element, what engines use unless the checkpoint names a KV scheme."
    )


def deployment_defaults(llm: Llm | None, gpu: Gpu | None, deployment: Deployment) -> list[Note]:
    """The defaults of the deployment that decide the answer; those of the memory only where model and accelerator are given."""
    notes = defaults_used(deployment, "tp", "engine")
    if llm is None or gpu is None:
        return notes
    if deployment.weights is None:
        native = llm.native
        what = native.quantization or native.dtype or "16 bits per parameter"
        known = "" if native.weights_bytes is not None else "; their size is not recorded, so 2 bytes per parameter are taken"
        notes.append(Note(code="default_weights", message=f"weights was not given: the checkpoint's own ({what}){known}."))
    if deployment.kv_cache == "auto":
        notes.append(kv_cache_auto(llm))
    if deployment.max_model_len_tokens is None and llm.max_model_len_tokens is not None:
        notes.append(default_used("max_model_len_tokens", f"{llm.max_model_len_tokens}, the model's own limit,"))
    if deployment.engine == "generic" and deployment.reserve_bytes_per_gpu is None and deployment.memory_fraction_ratio is None:
        notes.append(
            Note(
                code="default_reserve",
                message=(
                    f"reserve_bytes_per_gpu was not given: {GENERIC_RESERVE_RATIO:.0%} of the memory stays for everything beside weights "
                    "and KV cache."
                ),
            )
        )
    return notes
