"""What a family reads from a configuration, before it is put together to a model."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from app.domain.feed_forward import FeedForward
from app.domain.llm import ExtraWeights, LayerGroup, Mixer
from app.importers.config_fields import ConfigFields

MAX_LAYERS = 10_000
MAX_MTP_MODULES = 100


class MtpLayers(NamedTuple):
    """Multi-token prediction layers behind the last layer."""

    num_layers: int
    layers: Sequence[LayerGroup]
    """Layers of one prediction module; one layer each."""
    num_tables: int = 0
    """Copies of the embedding table and the output head that a module stores."""
    num_extra_params: int = 0
    """Other parameters of one module."""

    def num_params(self, hidden_size: int, vocab_size: int) -> int:
        """Parameters of all modules: layers, the projection that joins embedding and hidden state, three norms, tables.

        params = modules x (layers + 2 x hidden^2 + 3 x hidden + tables x vocab x hidden + extra) [parameters].
        Source: https://arxiv.org/abs/2412.19437 section 2.2.
        """
        one = sum(layer.num_params(hidden_size) for layer in self.layers)
        one += 2 * hidden_size**2 + 3 * hidden_size + self.num_tables * vocab_size * hidden_size
        return self.num_layers * (one + self.num_extra_params)


class Architecture(NamedTuple):
    """Sizes and layers of a language model."""

    hidden_size: int
    vocab_size: int
    layers: Sequence[LayerGroup]
    """One entry per layer, in order."""
    tied_by_default: bool
    """What the configuration class takes for `tie_word_embeddings`."""
    num_final_norm_params: int
    num_position_embeddings: int = 0
    lm_head_bias: bool = False
    extra_weights: tuple[ExtraWeights, ...] = ()
    mtp: MtpLayers | None = None
    notes: tuple[str, ...] = ()


Family = Callable[[ConfigFields], Architecture]


class FamilyReader(NamedTuple):
    """How configurations of one model type are read."""

    read: Family
    defaults: Mapping[str, object] = {}
    """What the configuration class takes for fields that published files leave out."""


def layer(mixer: Mixer | None, *feed_forward: FeedForward, norms: int, extra: int = 0) -> LayerGroup:
    """One layer; `norms` and `extra` are its parameters beside mixer and feed-forward."""
    return LayerGroup(num_layers=1, mixer=mixer, feed_forward=feed_forward, num_norm_params=norms, num_extra_params=extra)


def grouped(layers: Sequence[LayerGroup]) -> tuple[LayerGroup, ...]:
    """Equal layers counted together, in the order in which each kind first appears."""
    counts: dict[LayerGroup, int] = {}
    for one in layers:
        counts[one] = counts.get(one, 0) + 1
    return tuple(one.model_copy(update={"num_layers": count}) for one, count in counts.items())


def read_mtp(
    fields: ConfigFields,
    *block: LayerGroup,
    name: str = "num_nextn_predict_layers",
    num_tables: int = 0,
    num_extra_params: int = 0,
    default: int = 0,
) -> MtpLayers | None:
    """As many prediction modules of these layers as the field `name` says; None for 0, or when a module has no layers."""
    modules = fields.count(name, default=default, minimum=0, maximum=MAX_MTP_MODULES)
    return MtpLayers(modules, block, num_tables, num_extra_params) if modules and block else None


def num_layers(fields: ConfigFields) -> int:
    """Layers of the model."""
    return fields.count("num_hidden_layers", "n_layer", "n_layers", "num_layers", maximum=MAX_LAYERS)
