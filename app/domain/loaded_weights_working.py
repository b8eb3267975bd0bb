"""The working of weights as loaded, and what a format was taken to mean."""

from app.domain.deployment import Deployment
from app.domain.loaded_weights import LoadedWeights
from app.domain.provenance import Note, Step, step
from app.domain.units import gigabytes

_ALLOCATION = "https://github.com/vllm-project/vllm/tree/main/vllm/model_executor (parallel layers), and PyTorch's caching allocator"


def loaded_weights_steps(loaded: LoadedWeights, deployment: Deployment) -> list[Step]:
    """The two lines of working: the model in its format, and the fullest accelerator by class of tensors."""
    by_class = bool(loaded.parts)
    return [
        step(
            "weights_bytes",
            "sum over classes of params x (bits + scale_bits) / 8" if by_class else "weights of the whole model",
            loaded.substituted,
            loaded.num_bytes,
            "bytes",
            loaded.source,
            basis=loaded.basis,
        ),
        step(
            "weights_bytes_per_gpu",
            " + ".join(what for what, _ in loaded.parts) if by_class else "weights_bytes / tp, stages and ranks",
            " + ".join(str(size) for _, size in loaded.parts) if by_class else f"{loaded.num_bytes} / {deployment.tp}",
            loaded.bytes_per_gpu,
            "bytes",
            _ALLOCATION,
            basis=loaded.basis,
        ),
    ]


def weights_note(loaded: LoadedWeights) -> Note | None:
    """What the format was taken to touch, with the range that checkpoints of its name were seen in; None for 16 bits."""
    if loaded.basis == "exact":
        return None
    low, high = gigabytes(loaded.low_bytes_per_gpu), gigabytes(loaded.high_bytes_per_gpu)
    if not loaded.parts:
        taken = "The tensors are not known one by one and every parameter counts alike"
    else:
        taken = f"The weights are taken as {loaded.scheme}, other tensors in 16 bits"
    return Note(code="weights_scheme", message=f"{taken}: {low} to {high} on the fullest accelerator.")
