"""Kernels that the layers of a model launch: what the fixed time of a step is proportional to."""

from app.domain.attention import Count
from app.domain.value import Given


class KernelsPerLayer(Given):
    """Kernels that a layer launches, by what it holds: the fixed time of a step follows their number."""

    num_attention: Count
    """Attention over keys and values: norm, projections, rotation, cache write, attention, output, sum with the stream."""
    num_qk_norm: Count
    """Further ones where queries and keys are normalised."""
    num_recurrent: Count
    """Recurrent mixer."""
    num_dense: Count
    """Dense feed-forward part."""
    num_latent: Count
    """Latent attention."""
    num_indexer: Count
    """Further ones of an indexer."""
    num_expert: Count
    """Routed experts: router, choice, sorting, two grouped products, activation, sum."""
    num_shared: Count
    """Shared experts."""
    num_quantise_attention: Count
    """Quantising activations of mixers, where products run below 16 bits."""
    num_quantise_latent: Count
    """The same of latent attention."""
    num_quantise_dense: Count
    """The same of dense feed-forward parts."""
    num_quantise_shared: Count
    """The same of shared experts."""
    num_quantise_expert: Count
    """The same of routed experts."""
