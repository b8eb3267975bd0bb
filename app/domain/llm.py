"""A large language model as groups of layers; weights, KV cache, FLOPs and bytes per step are sums over groups."""

from collections.abc import Iterable, Iterator
from datetime import date
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field, PositiveInt, model_validator

from app.domain.attention import Attention, CompressedAttention, Count, LatentAttention, LayerCache
from app.domain.feed_forward import FeedForward
from app.domain.precision import KvFormat
from app.domain.recurrent import GatedDeltaNet, KimiDeltaAttention, LightningAttention, Mamba1, Mamba2
from app.domain.tensors import Tensor, TensorClass, matrices
from app.domain.value import Given, Slug

Mixer = Annotated[
    Attention | LatentAttention | CompressedAttention | GatedDeltaNet | KimiDeltaAttention | Mamba1 | Mamba2 | LightningAttention,
    Field(discriminator="kind"),
]


class LayerGroup(Given):
    """Layers of one shape."""

    num_layers: PositiveInt
    """Layers in the group."""
    mixer: Mixer | None = None
    """What mixes tokens; None for a layer that has only a feed-forward part."""
    feed_forward: tuple[FeedForward, ...] = ()
    """Feed-forward parts, run on the same input where there are two."""
    num_norm_params: Count = 0
    """Parameters of the norms of one layer."""
    num_extra_params: Count = 0
    """Other parameters of one layer."""

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """Weight tensors of one layer."""
        mixer = self.mixer.tensors(hidden_size) if self.mixer else ()
        parts = tuple(tensor for part in self.feed_forward for tensor in part.tensors(hidden_size))
        small = Tensor("small", whole=self.num_norm_params + self.num_extra_params)
        return (*mixer, *parts, small)

    def num_params(self, hidden_size: int, *, active: bool = False) -> int:
        """Parameters of the whole group."""
        per_layer = self.num_norm_params + self.num_extra_params
        if self.mixer:
            per_layer += self.mixer.num_params(hidden_size)
        return self.num_layers * (per_layer + sum(part.num_params(hidden_size, active=active) for part in self.feed_forward))

    def num_expert_params(self, hidden_size: int) -> int:
        """Parameters of the routed experts of the whole group."""
        return self.num_layers * sum(part.num_expert_params(hidden_size) for part in self.feed_forward)


def most_attention_heads(groups: Iterable[LayerGroup]) -> int | None:
    """The largest number of query heads of the layers that attend; None when none does."""
    mixers = (group.mixer for group in groups)
    return max((mixer.num_heads for mixer in mixers if isinstance(mixer, Attention | LatentAttention | CompressedAttention)), default=None)


class ExtraWeights(Given):
    """Parameters outside the layers, embeddings and head."""

    what: str
    """What they are."""
    num_params: PositiveInt
    """How many."""


class StatedKvCache(Given):
    """KV cache size per token as its vendor states it, for a model whose layers are not known in detail."""

    bytes_per_token: Annotated[float, Field(ge=1e-3, le=1e12)]
    """Bytes per token over all layers."""
    precision: str
    """Precision that the figure is stated for."""
    note: str
    """What the figure leaves out."""


class NativeWeights(Given):
    """The checkpoint as published: its own precision and size."""

    dtype: str | None = None
    """Element type of the unquantised tensors."""
    dtype_source: str | None = None
    """Where the element type was read."""
    quantization: str | None = None
    """Quantisation of the published checkpoint, None when there is none."""
    kv_cache: KvFormat | None = None
    """Precision of the KV cache that the checkpoint's quantisation names, which engines follow for `auto`."""
    weights_bytes: PositiveInt | None = None
    """Size of the weights in that form, None when it is not known."""
    weights_basis: str | None = None
    """How the size was obtained."""


class Llm(Given):
    """A large language model: sizes, layer groups, origin."""

    slug: Slug
    """Name in the catalog."""
    hf_id: str | None = Field(default=None, max_length=200)
    """Hugging Face repository id."""
    hf_aliases: tuple[Annotated[str, Field(max_length=200)], ...] = Field(default=(), max_length=20)
    """Further Hugging Face repositories with the same layers and context length (instruction-tuned, renamed); found by these ids too."""
    family: str | None = Field(default=None, max_length=100)
    """Family of models."""
    num_params: Annotated[int, Field(gt=0, le=10**16)]
    """All parameters that are loaded: language model and, where there is one, vision tower."""
    num_active_params: Annotated[int, Field(gt=0, le=10**16)]
    """Parameters of the language model that work on one token."""
    num_vision_params: Count | None = None
    """Parameters of the vision tower and projector within `num_params`."""
    num_mtp_params: Count | None = None
    """Parameters of multi-token prediction layers, beside `num_params`."""
    num_mtp_layers: Count | None = None
    """Multi-token prediction layers."""
    hidden_size: PositiveInt | None = None
    """Width of the residual stream."""
    vocab_size: PositiveInt | None = None
    """Rows of the embedding table."""
    num_attention_heads: PositiveInt | None = None
    """Query heads, the largest of all groups."""
    max_model_len_tokens: PositiveInt | None = None
    """Longest context that the model was made for."""
    tie_word_embeddings: bool | None = None
    """Embedding and output head share one table."""
    layer_groups: tuple[LayerGroup, ...] | None = Field(default=None, max_length=1000)
    """Layers by shape; None when only the parameter count is known."""
    num_final_norm_params: Count = 0
    """Parameters of the norm before the head."""
    num_position_embeddings: Count = 0
    """Rows of a learned position table."""
    lm_head_bias: bool = False
    """The output head has a bias."""
    extra_weights: tuple[ExtraWeights, ...] = ()
    """Parameters of the language model outside layers, embeddings and head."""
    stated_kv_cache: StatedKvCache | None = None
    """KV cache as stated, where the layer groups are not known."""
    native: NativeWeights = NativeWeights()
    """The checkpoint as published."""
    model_type: str | None = None
    """`model_type` of the Hugging Face configuration."""
    license: str | None = None
    """Licence of the weights."""
    release_date: date | None = None
    """Day of publication."""
    notes: tuple[str, ...] = ()
    """What to know about the entry."""
    sources: tuple[str, ...] = ()
    """Where the figures come from."""
    checked_on: date | None = None
    """Day on which the figures were last checked against the sources."""

    @model_validator(mode="after")
    def _consistent(self) -> "Llm":
        if self.num_active_params > self.num_params:
            raise ValueError(f"num_active_params {self.num_active_params} is more than num_params {self.num_params}")
        if self.layer_groups is not None and not self.layer_groups:
            raise ValueError("layer_groups is empty: a model has at least one layer")
        return self

    @cached_property
    def num_layers(self) -> int:
        """Layers over all groups (0 when they are not known)."""
        return sum(group.num_layers for group in self.layer_groups or ())

    @cached_property
    def kv_elements_by_layout(self) -> dict[tuple[int, int], Any]:
        """Sums over the layers that `kv_cache.kv_elements` has made, by (tp, pp): every request of the same model asks for them again."""
        return {}

    @cached_property
    def loaded_weights_by_layout(self) -> dict[tuple[Any, ...], Any]:
        """Weights that `loaded_weights` has summed, by layout: searches ask for the same ones again."""
        return {}

    @cached_property
    def keeps_state(self) -> bool:
        """Whether any layer keeps a recurrent state."""
        return any(cache.state or cache.convolution for _, cache in self.caches())

    @cached_property
    def has_experts(self) -> bool:
        """Whether any layer has experts."""
        return any(part.kind == "moe" for group in self.layer_groups or () for part in group.feed_forward)

    @cached_property
    def kv_steps_by_layout(self) -> dict[tuple[str, int, int, bool], Any]:
        """Lines of working that `kv_working.kv_cost_steps` has written: they are the same for every request of this layout."""
        return {}

    @cached_property
    def kept_work(self) -> dict[str, Any]:
        """Sums that `model_work.model_work` has made."""
        return {}

    def caches(self, tp: int = 1) -> Iterator[tuple[int, LayerCache]]:
        """(layers, cache of one of them on one rank) for every group with a mixer."""
        for group in self.layer_groups or ():
            if group.mixer:
                yield group.num_layers, group.mixer.cache(tp)

    def num_language_params(self, *, active: bool = False) -> int | None:
        """Parameters of the language model summed over embeddings, layer groups, head and extras.

        sum = vocab x hidden x (1 if tied else 2) + positions x hidden + groups + final norm + extras. None where a size is not known;
        the catalog test compares it with the published count.
        """
        if self.hidden_size is None or self.vocab_size is None:
            return None
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tie_word_embeddings else 2)
        groups = sum(group.num_params(self.hidden_size, active=active) for group in self.layer_groups or ())
        extras = self.num_final_norm_params + self.num_position_embeddings * self.hidden_size + self.vocab_size * self.lm_head_bias
        return embeddings + groups + extras + sum(extra.num_params for extra in self.extra_weights)

    @cached_property
    def num_expert_params(self) -> int:
        """Parameters of all routed experts (0 for a dense model)."""
        return sum(group.num_expert_params(self.hidden_size or 0) for group in self.layer_groups or ())

    def tensors_outside_layers(self) -> tuple[Tensor, ...]:
        """Embedding, head (none where it is tied), positions, final norm, extras (tables over the vocabulary are divided), vision tower."""
        hidden, table = self.hidden_size or 0, (self.hidden_size or 0) * (self.vocab_size or 0)
        small = self.num_final_norm_params + self.num_position_embeddings * hidden + (self.vocab_size or 0) * self.lm_head_bias
        return matrices(
            Tensor("embedding", split=table),
            Tensor("head", split=0 if self.tie_word_embeddings else table),
            Tensor("small", whole=small),
            *(
                Tensor("extra", split=extra.num_params)
                if extra.num_params % (self.vocab_size or 1) == 0
                else Tensor("extra", whole=extra.num_params)
                for extra in self.extra_weights
            ),
            Tensor("vision", split=self.num_vision_params or 0),
        )

    def without_head(self) -> "Llm":
        """The same as a pooling model: no output head is loaded, so that nothing but the embedding is as wide as the vocabulary."""
        if self.tie_word_embeddings or self.hidden_size is None or self.vocab_size is None:
            return self
        head = self.hidden_size * self.vocab_size + self.vocab_size * self.lm_head_bias
        if head >= self.num_active_params:
            return self
        fewer = {"num_params": self.num_params - head, "num_active_params": self.num_active_params - head}
        return self.model_copy(update=fewer | {"tie_word_embeddings": True, "lm_head_bias": False})

    def without_vision(self) -> "Llm":
        """The same as a language model alone: neither vision tower nor projector is loaded, 16 bits per parameter less are stored."""
        tower, native = self.num_vision_params or 0, self.native
        if not tower or self.num_params - tower < self.num_active_params:
            return self
        if native.weights_bytes is not None:
            native = native.model_copy(update={"weights_bytes": max(0, native.weights_bytes - 2 * tower)})
        return self.model_copy(update={"num_params": self.num_params - tower, "num_vision_params": None, "native": native})

    def num_params_by_class(self) -> dict[TensorClass, int]:
        """Parameters by class of tensor: they sum to `num_params` where layer groups and sizes are complete."""
        found: dict[TensorClass, int] = {}
        layers = ((group.num_layers, tensor) for group in self.layer_groups or () for tensor in group.tensors(self.hidden_size or 0))
        for count, tensor in (*layers, *((1, tensor) for tensor in self.tensors_outside_layers())):
            found[tensor.kind] = found.get(tensor.kind, 0) + count * tensor.num_params
        return found
