"""What vision towers are counted from: projections, blocks, the SigLIP encoder."""

from typing import NamedTuple

from app.importers.config_fields import ConfigFields


class Tower(NamedTuple):
    """A tower's own fields, those of the file around it and of an audio tower, and the width of the language model."""

    own: ConfigFields
    root: ConfigFields
    audio: ConfigFields | None
    text_width: int


def linear(inputs: int, outputs: int, *, bias: bool = True) -> int:
    """Parameters of a projection."""
    return outputs * (inputs + bias)


def tower_block(hidden: int, inner: int, *, num_matrices: int = 2, bias: bool = True, norms: int) -> int:
    """Attention with four square projections, a feed-forward part and norms."""
    attention = 4 * linear(hidden, hidden, bias=bias)
    feed_forward = (num_matrices - 1) * linear(hidden, inner, bias=bias) + linear(inner, hidden, bias=bias)
    return attention + feed_forward + norms


def siglip_encoder(own: ConfigFields) -> int:
    """SigLIP without its pooling head: patches with bias, positions, blocks, one norm behind them."""
    hidden, patch = own.count("hidden_size"), own.count("patch_size")
    tokens = own.optional_count("num_image_tokens")  # stands in files that leave out the size of the image
    positions = tokens if tokens and not own.given("image_size") else (own.count("image_size") // patch) ** 2
    own.require("vision_use_head", False)
    blocks = own.count("num_hidden_layers") * tower_block(hidden, own.count("intermediate_size"), norms=4 * hidden)
    return linear(own.count("num_channels", default=3) * patch**2, hidden) + positions * hidden + blocks + 2 * hidden
