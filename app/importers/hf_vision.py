"""Vision towers and projectors beside a language model: how many parameters they have."""

from app.importers.config_fields import ConfigFields


def count_vision_params(root: ConfigFields, text: ConfigFields) -> int | None:
    """Parameters of tower and projector [parameters]; None when there is none."""
    return None
