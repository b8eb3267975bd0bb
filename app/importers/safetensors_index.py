"""model.safetensors.index.json: how large the published checkpoint is."""

from collections.abc import Mapping
from typing import NamedTuple

from app.domain.errors import InvalidInput
from app.importers.config_fields import ConfigFields

MAX_BYTES = 10**16
BYTES_PER_PARAM = (0.1, 8.0)
"""Below one bit with scales, above float64: no checkpoint is outside."""


class CheckpointSize(NamedTuple):
    """What an index says about its checkpoint."""

    total_size_bytes: int | None
    total_parameters: int | None

    def refuse_absurd(self, num_params: int, num_mtp_params: int, pointer: str) -> None:
        """Raise InvalidInput when the index cannot belong to a model of that many parameters."""
        low, high = BYTES_PER_PARAM
        size, whole = self.total_size_bytes, num_params + num_mtp_params
        if size is not None and not low * num_params <= size <= high * whole:
            raise InvalidInput(
                f"total_size is {size} bytes, but the configuration adds up to {num_params} parameters: the two do not belong together.",
                field=f"{pointer}/metadata/total_size",
                value=size,
                expected=f"{low} to {high} bytes per parameter",
            )
        total = self.total_parameters
        if total is not None and not num_params / 16 <= total <= 2 * whole:
            raise InvalidInput(
                f"total_parameters is {total}, but the configuration adds up to {num_params}: the two do not belong together.",
                field=f"{pointer}/metadata/total_parameters",
                value=total,
                expected=f"about {num_params}",
            )

    def notes(self, num_params: int, num_mtp_params: int) -> list[str]:
        """The index's parameter count against the arithmetic, where they differ."""
        total = self.total_parameters
        if total is None or total == num_params:
            return []
        if num_mtp_params and total == num_params + num_mtp_params:
            return [f"The index counts {total} parameters: num_params and the {num_mtp_params} of the prediction layers."]
        difference = total - num_params
        return [
            f"The index counts {total} parameters, {abs(difference)} {'more' if difference > 0 else 'fewer'} than the arithmetic over the"
            f" configuration ({num_params}): packed quantised tensors, scales, prediction layers or towers that are not counted here."
        ]


def read_index(index: Mapping[str, object], pointer: str) -> CheckpointSize:
    """Total size [bytes] and parameters of a checkpoint.

    Raises UnsupportedConfig without `metadata.total_size`, InvalidInput for values that are no positive integers. Written by
    https://github.com/huggingface/huggingface_hub/blob/main/src/huggingface_hub/serialization/_torch.py.
    """
    fields = ConfigFields(index, pointer)
    metadata = fields.section("metadata")
    if metadata is None:
        raise fields.missing("metadata")
    size = metadata.optional_count("total_size", maximum=MAX_BYTES)
    parameters = metadata.optional_count("total_parameters", maximum=MAX_BYTES)
    if size is None and parameters is None:
        raise metadata.missing("total_size")
    _, weights = fields.find("weight_map")
    if weights is not None and not isinstance(weights, Mapping):
        raise fields.wrong("weight_map", "an object from tensor names to files")
    return CheckpointSize(size, parameters)
