"""Feed-forward parts from a configuration, and which layers are mixtures of experts."""

from app.domain.feed_forward import DenseFeedForward, MoeFeedForward
from app.importers.config_fields import ConfigFields

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
EXPERTS_PER_TOKEN = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k", "top_k_experts", "experts_per_token")
SHARED_EXPERTS = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")


def gated(fields: ConfigFields, *, bias: bool = False, name: str = "intermediate_size") -> DenseFeedForward:
    """Gate, up and down projections."""
    return DenseFeedForward(intermediate_size=fields.count(name), bias=bias)


def read_moe(
    fields: ConfigFields,
    *,
    width: int,
    shared_width: int = 0,
    router_bias: bool = False,
    shared_gate: bool = False,
    expert_bias: bool = False,
    num_matrices: int = 3,
) -> MoeFeedForward:
    """Routed experts of `width`, shared experts of `shared_width` together.

    Raises InvalidInput when more experts are chosen than there are.
    """
    num_experts = fields.count(*EXPERTS)
    chosen = fields.count(*EXPERTS_PER_TOKEN)
    if chosen > num_experts:
        name = next((name for name in EXPERTS_PER_TOKEN if fields.fields.get(name) is not None), EXPERTS_PER_TOKEN[0])
        raise fields.wrong(name, f"at most the {num_experts} experts")
    return MoeFeedForward(
        num_experts=num_experts,
        num_experts_per_token=chosen,
        intermediate_size=width,
        num_matrices=num_matrices,
        shared_intermediate_size=shared_width,
        shared_gate=shared_gate,
        router_bias=router_bias,
        expert_bias=expert_bias,
    )


def moe_of_experts(fields: ConfigFields, *width_names: str, router_bias: bool) -> MoeFeedForward:
    """Routed experts of the width that the file names (`moe_intermediate_size`), and shared experts of the same width."""
    width = fields.count(*(width_names or ("moe_intermediate_size",)))
    num_shared = fields.count(*SHARED_EXPERTS, default=0, minimum=0)
    return read_moe(fields, width=width, shared_width=width * num_shared, router_bias=router_bias)


def dense_layers(fields: ConfigFields, length: int, *, default_first: int = 0) -> list[bool]:
    """Which layers are dense: `mlp_layer_types`, `moe_layer_freq` or `first_k_dense_replace`, whichever the file has."""
    types = fields.texts("mlp_layer_types", allowed=("dense", "sparse"), length=length)
    first = fields.count("first_k_dense_replace", default=default_first, minimum=0)
    _, frequency = fields.find("moe_layer_freq")
    if types is not None:
        return [kind == "dense" for kind in types]
    if isinstance(frequency, list | tuple):
        flags = fields.counts("moe_layer_freq", maximum=1, lengths=(length,)) or ()
        return [flag == 0 for flag in flags]
    period = fields.count("moe_layer_freq", default=1)
    return [index < first or index % period != 0 for index in range(length)]
